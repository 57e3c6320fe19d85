/* What a download asks of an exchange: the head before the body, a pulse, silence noticed, and
 * redirects only as far as they were allowed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/net.h"
#include "net_server.h"

static void serve(struct net_server *s, int fd, const char *request)
{
    int hops = 0;
    char text[160];

    if (strstr(request, "/range "))
        (void)net_server_say(fd, "HTTP/1.1 206 x\r\nETag: \"tag\"\r\nContent-Length: 4\r\n"
                                 "Content-Range: bytes 2-5/9\r\n\r\nbody");
    else if (strstr(request, "/plain "))
        (void)net_server_say(fd, "HTTP/1.1 200 x\r\n\r\nbody");
    else if (strstr(request, "/missing "))
        (void)net_server_say(fd, "HTTP/1.1 404 x\r\nContent-Length: 4\r\n\r\nbody");
    else if (sscanf(request, "GET /hops/%d ", &hops) == 1 && hops > 0) {
        (void)snprintf(text, sizeof(text),
                       "HTTP/1.1 302 x\r\nLocation: /hops/%d\r\nContent-Length: 4\r\n\r\nskip",
                       hops - 1);
        (void)net_server_say(fd, text);
    } else if (strstr(request, "/hops/0 "))
        (void)net_server_say(fd, strstr(request, "Range: bytes=2-")
                                     ? "HTTP/1.1 200 x\r\nContent-Length: 4\r\n\r\nbody"
                                     : "HTTP/1.1 400 x\r\nContent-Length: 0\r\n\r\n");
    else if (strstr(request, "/file "))
        (void)net_server_say(fd, "HTTP/1.1 302 x\r\nLocation: file:///etc/passwd\r\n"
                                 "Content-Length: 0\r\n\r\n");
    else {
        (void)net_server_say(fd, "HTTP/1.1 200 x\r\nContent-Length: 9\r\n\r\nbody");
        (void)net_server_hold(s, fd, -1);
    }
}

struct receiver {
    int begun, ticks;
    struct net_head head;
    char etag[32], range[64], body[64];
    size_t len;
    bool refuse; /* at begin */
    int stop_at; /* tick */
};

static bool on_begin(void *user, const struct net_head *head)
{
    struct receiver *r = user;

    assert_int_equal(r->len, 0);
    r->begun++;
    r->head = *head;
    (void)snprintf(r->etag, sizeof(r->etag), "%s", head->etag ? head->etag : "none");
    (void)snprintf(r->range, sizeof(r->range), "%s",
                   head->content_range ? head->content_range : "none");
    return !r->refuse;
}

static bool on_bytes(void *user, const void *bytes, size_t len)
{
    struct receiver *r = user;

    assert_true(r->begun == 1 && len < sizeof(r->body) - r->len);
    memcpy(r->body + r->len, bytes, len);
    r->len += len;
    return true;
}

static bool on_tick(void *user)
{
    struct receiver *r = user;

    return ++r->ticks != r->stop_at;
}

static struct net_server *server;

static enum rl_rc get(const char *path, int redirects, int64_t stall_ms, struct receiver *r,
                      struct net_response *ret_response)
{
    char url[128];
    const char *const headers[] = {"Range: bytes=2-", NULL};
    const struct net_request request = {.method = "GET",
                                        .url = url,
                                        .headers = headers,
                                        .timeout_ms = 20000,
                                        .response_limit = 100,
                                        .user = r,
                                        .sink = on_bytes,
                                        .begin = on_begin,
                                        .tick = on_tick,
                                        .stall_timeout_ms = stall_ms,
                                        .redirects = redirects};

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d%s", server->port, path);
    return net_call(&request, ret_response);
}

static void test_net_call_begin(void **state)
{
    struct net_response response;
    struct receiver r = {0};

    (void)state;
    assert_int_equal(get("/range", 0, 0, &r, &response), RL_OK);
    assert_int_equal(r.begun, 1);
    assert_int_equal(r.head.status, 206);
    assert_int_equal(r.head.length, 4);
    assert_string_equal(r.etag, "\"tag\"");
    assert_string_equal(r.range, "bytes 2-5/9");
    assert_memory_equal(r.body, "body", 4);
    net_response_free(&response);

    r = (struct receiver){0};
    assert_int_equal(get("/plain", 0, 0, &r, &response), RL_OK);
    assert_int_equal(r.head.length, -1);
    assert_string_equal(r.etag, "none");
    net_response_free(&response);

    r = (struct receiver){.refuse = true};
    assert_int_equal(get("/range", 0, 0, &r, &response), RL_CANCELED);
    assert_int_equal(r.len, 0);
    net_response_free(&response);

    r = (struct receiver){0};
    assert_int_equal(get("/missing", 0, 0, &r, &response), RL_OK);
    assert_int_equal(r.begun, 0);
    assert_string_equal(response.body, "body");
    net_response_free(&response);
}

static void test_net_call_tick_and_stall(void **state)
{
    struct net_response response;
    struct receiver r = {.stop_at = 3};

    (void)state;
    assert_int_equal(get("/silence", 0, 0, &r, &response), RL_CANCELED);
    assert_int_equal(r.ticks, 3);
    net_response_free(&response);
    r = (struct receiver){0};
    assert_int_equal(get("/silence", 0, 1, &r, &response), RL_REQUEST_TIMEOUT);
    assert_int_equal(r.len, 4);
    assert_true(response.duration_ms < 15000);
    net_response_free(&response);
}

static void test_net_call_redirects(void **state)
{
    struct net_response response;
    struct receiver r = {0};

    (void)state;
    assert_int_equal(get("/hops/1", 0, 0, &r, &response), RL_OK); /* none: the answer itself */
    assert_int_equal(response.status, 302);
    assert_false(response.redirect_refused);
    net_response_free(&response);
    assert_int_equal(get("/hops/3", 3, 0, &r, &response), RL_OK);
    assert_int_equal(response.status, 200); /* and the header went all the way */
    assert_memory_equal(r.body, "body", 4);
    net_response_free(&response);
    r = (struct receiver){0};
    assert_int_equal(get("/hops/4", 3, 0, &r, &response), RL_NETWORK_ERROR);
    assert_true(response.redirect_refused);
    net_response_free(&response);
    assert_int_equal(get("/file", 3, 0, &r, &response), RL_NETWORK_ERROR);
    assert_true(response.redirect_refused);
    assert_int_equal(r.begun, 0);
    net_response_free(&response);
}

static int group_setup(void **state)
{
    struct rl_err err;

    (void)state;
    if (net_init(&err))
        return -1;
    server = net_server_start(serve);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    net_server_stop(server);
    net_cleanup();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_net_call_begin),
        cmocka_unit_test(test_net_call_tick_and_stall),
        cmocka_unit_test(test_net_call_redirects),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
