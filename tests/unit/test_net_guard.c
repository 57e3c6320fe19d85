/* What must never happen: a redirect or a proxy followed, a refused address dialled, a header
 * smuggled in, another scheme spoken. Every test also looks at who was visited. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/net.h"
#include "net_server.h"

static struct net_server *server;
static struct net_server *second; /* where redirects and proxies point; must stay unvisited */

static void say_redirect(int fd, const char *code)
{
    char head[256];

    (void)snprintf(
        head, sizeof head,
        "HTTP/1.1 %.3s x\r\nLocation: http://127.0.0.1:%d/next\r\nContent-Length: 0\r\n\r\n", code,
        second->port);
    (void)net_server_say(fd, head);
}

static void serve(struct net_server *s, int fd, const char *request)
{
    const char *redirect = strstr(request, " /redirect/");

    (void)s;
    if (request[0] == 0x16)
        (void)net_server_say(fd, "HTTP/1.1 400 this is no TLS port\r\n\r\n");
    else if (redirect)
        say_redirect(fd, redirect + 11);
    else
        (void)net_server_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
}

static int setup(void **state)
{
    (void)state;
    server = net_server_start(serve);
    second = net_server_start(serve);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    net_server_stop(server);
    net_server_stop(second);
    return 0;
}

/* A request to `path` on the test server with limits no test should meet; url[128] is filled. */
static struct net_request request_to(const char *path, char *url)
{
    (void)snprintf(url, 128, "http://127.0.0.1:%d%s", server->port, path);
    return (struct net_request){.method = "GET",
                                .url = url,
                                .timeout_ms = 20000,
                                .connect_timeout_ms = 5000,
                                .response_limit = 4096};
}

static struct net_response get(const char *path)
{
    char url[128];
    struct net_request request = request_to(path, url);
    struct net_response response;
    enum rl_rc rc = net_call(&request, &response);

    assert_int_equal(rc, response.rc);
    return response;
}

static void test_net_guard_redirects_are_not_followed(void **state)
{
    static const int codes[] = {301, 302, 303, 307, 308};
    char expected[64];

    (void)state;
    (void)snprintf(expected, sizeof expected, "http://127.0.0.1:%d/next", second->port);
    for (size_t i = 0; i < RL_ARRAY_LEN(codes); i++) {
        char path[32];
        (void)snprintf(path, sizeof path, "/redirect/%d", codes[i]);
        struct net_response r = get(path);
        assert_int_equal(r.rc, RL_OK);
        assert_int_equal(r.status, codes[i]);
        assert_string_equal(r.location, expected);
        net_response_free(&r);
    }
    assert_int_equal(net_server_accepted(second), 0);
}

static void test_net_guard_refuses_header_injection(void **state)
{
    static const char *const bad[] = {
        "X: a\r\nY: b", "X: a\nY: b", "X: a\rb", "X\r\n: a",     "X: \x01", "X: \x7f",
        "no colon",     ": no name",  "X Y: sp", "X: a\r\n\r\n", "",
    };
    int before = net_server_accepted(server);

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++) {
        char url[128];
        const char *headers[] = {"X-Good: 1", bad[i], NULL};
        struct net_response r;
        struct net_request request = request_to("/echo", url);
        request.headers = headers;
        assert_int_equal(net_call(&request, &r), RL_INVALID_FIELD);
        assert_true(strlen(r.error) > 0);
        assert_int_equal(r.status, 0);
        net_response_free(&r);
    }
    static const char *const methods[] = {"", "GET /x", "GET\r\nX: y"};
    for (size_t i = 0; i < RL_ARRAY_LEN(methods); i++) {
        char url[128];
        struct net_response r;
        struct net_request request = request_to("/echo", url);
        request.method = methods[i];
        assert_int_equal(net_call(&request, &r), RL_INVALID_FIELD);
        net_response_free(&r);
    }
    assert_int_equal(net_server_accepted(server), before);
}

static void test_net_guard_ignores_proxy_environment(void **state)
{
    static const char *const names[] = {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"};
    char proxy[64];

    (void)state;
    (void)snprintf(proxy, sizeof proxy, "http://127.0.0.1:%d", second->port);
    for (size_t i = 0; i < RL_ARRAY_LEN(names); i++)
        assert_int_equal(setenv(names[i], proxy, 1), 0);
    struct net_response r = get("/hello");
    for (size_t i = 0; i < RL_ARRAY_LEN(names); i++)
        assert_int_equal(unsetenv(names[i]), 0);
    assert_int_equal(r.rc, RL_OK);
    assert_string_equal(r.body, "hello");
    assert_int_equal(net_server_accepted(second), 0);
    net_response_free(&r);
}

struct seen {
    size_t calls;
    struct sockaddr_storage addr;
    bool answer;
};

static bool record(void *user, const struct sockaddr *addr)
{
    struct seen *seen = user;

    seen->calls++;
    if (addr->sa_family == AF_INET)
        memcpy(&seen->addr, addr, sizeof(struct sockaddr_in));
    else
        memcpy(&seen->addr, addr, sizeof(struct sockaddr_in6));
    return seen->answer;
}

static void test_net_guard_refused_address_sees_no_connection(void **state)
{
    char url[128];
    struct net_response r;
    struct seen seen = {0};
    struct net_request request = request_to("/hello", url);
    int before = net_server_accepted(server);

    (void)state;
    request.allow = record;
    request.user = &seen;
    assert_int_equal(net_call(&request, &r), RL_ADDRESS_REFUSED);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.ip, "");
    assert_string_equal(r.error, "address 127.0.0.1 is refused");
    assert_int_equal(seen.calls, 1);
    assert_int_equal(net_addr_port((const struct sockaddr *)&seen.addr), server->port);
    assert_int_equal(net_server_accepted(server), before);
    net_response_free(&r);
    seen.answer = true;
    assert_int_equal(net_call(&request, &r), RL_OK);
    assert_int_equal(seen.calls, 2);
    net_response_free(&r);
}

/* However an address is spelled, the callback sees the bytes that would be dialled. */
static void test_net_guard_allow_sees_binary_address(void **state)
{
    static const struct {
        const char *host;
        const char *ipv4; /* NULL: only that it is loopback */
    } table[] = {
        {"127.0.0.1", "127.0.0.1"},
        {"2130706433", "127.0.0.1"},
        {"0177.0.0.1", "127.0.0.1"},
        {"0x7f.1", "127.0.0.1"},
        {"0x7f000001", "127.0.0.1"},
        {"127.1", "127.0.0.1"},
        {"017700000001", "127.0.0.1"},
        {"[::ffff:127.0.0.1]", NULL},
        {"[::ffff:7f00:1]", NULL},
        {"[::1]", NULL},
        {"localhost", NULL},
        {"0", "0.0.0.0"},
        {"0x0", "0.0.0.0"},
        {"2852039166", "169.254.169.254"},
    };

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(table); i++) {
        char url[128];
        char text[INET_ADDRSTRLEN];
        struct net_response r;
        struct seen seen = {0};
        struct sockaddr_in in;
        struct net_request request = request_to("/hello", url);
        (void)snprintf(url, sizeof url, "http://%s:%d/hello", table[i].host, server->port);
        request.allow = record;
        request.user = &seen;
        enum rl_rc rc = net_call(&request, &r);
        if (seen.calls == 0 && table[i].host[0] == '[') { /* a machine without IPv6 */
            net_response_free(&r);
            continue;
        }
        if (rc != RL_ADDRESS_REFUSED || seen.calls == 0)
            fail_msg("%s: %s %s", table[i].host, rl_code_name(rc), r.error);
        net_response_free(&r);
        if (!table[i].ipv4) {
            assert_true(net_addr_is_loopback((const struct sockaddr *)&seen.addr));
            continue;
        }
        assert_int_equal(seen.addr.ss_family, AF_INET);
        memcpy(&in, &seen.addr, sizeof in);
        assert_non_null(inet_ntop(AF_INET, &in.sin_addr, text, sizeof text));
        assert_string_equal(text, table[i].ipv4);
    }
}

static void test_net_guard_refuses_other_urls(void **state)
{
    static const char *const urls[] = {"ftp://127.0.0.1/",       "file:///etc/hostname",
                                       "http://u:p@127.0.0.1/",  "dict://127.0.0.1/",
                                       "gopher://127.0.0.1:70/", "http://"};

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(urls); i++) {
        struct net_response r;
        struct net_request request = {.method = "GET", .url = urls[i], .timeout_ms = 5000};
        if (net_call(&request, &r) != RL_INVALID_FIELD)
            fail_msg("%s: %s", urls[i], rl_code_name(r.rc));
        net_response_free(&r);
    }
}

static void test_net_guard_https_to_plain_port(void **state)
{
    char url[128];
    struct net_response r;
    struct net_request request = request_to("/", url);

    (void)state;
    (void)snprintf(url, sizeof url, "https://127.0.0.1:%d/hello", server->port);
    assert_int_equal(net_call(&request, &r), RL_NETWORK_ERROR);
    assert_int_equal(r.status, 0);
    assert_true(strlen(r.error) > 0);
    net_response_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_net_guard_redirects_are_not_followed),
        TEST(test_net_guard_refuses_header_injection),
        TEST(test_net_guard_ignores_proxy_environment),
        TEST(test_net_guard_refused_address_sees_no_connection),
        TEST(test_net_guard_allow_sees_binary_address),
        TEST(test_net_guard_refuses_other_urls),
        TEST(test_net_guard_https_to_plain_port),
#undef TEST
    };
    struct rl_err err = {0};

    if (net_init(&err)) {
        (void)fprintf(stderr, "%s\n", err.reason);
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    net_cleanup();
    return failed;
}
