/* One exchange against peers with bad manners, over real sockets on loopback. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <time.h>

#include "base/clock.h"
#include "net/net.h"
#include "net_server.h"

/* HTTP dates around now, in the three forms of RFC 9110. */
static void say_retry_date(int fd, const char *form, int seconds_ahead)
{
    char head[256];
    char date[64];
    struct tm tm;
    time_t when = time(NULL) + seconds_ahead;

    gmtime_r(&when, &tm);
    (void)strftime(date, sizeof date, form, &tm);
    (void)snprintf(head, sizeof head,
                   "HTTP/1.1 503 x\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n", date);
    (void)net_server_say(fd, head);
}

static _Atomic size_t large_sent; /* body bytes the server got rid of in /large/ */

static void say_large_body(int fd, size_t bytes)
{
    char block[4096];

    memset(block, 'x', sizeof block);
    if (!net_server_say(fd, "HTTP/1.1 200 OK\r\n\r\n"))
        return;
    for (size_t sent = 0; sent < bytes; sent += sizeof block)
        if (net_server_write(fd, block, sizeof block))
            large_sent += sizeof block;
        else
            return;
}

static void say_large_headers(int fd)
{
    char line[1024];

    memset(line, 'h', sizeof line);
    memcpy(line, "X-Filler: ", 10);
    line[sizeof line - 2] = '\r';
    line[sizeof line - 1] = '\n';
    if (!net_server_say(fd, "HTTP/1.1 200 OK\r\n"))
        return;
    for (int i = 0; i < 200; i++)
        if (!net_server_write(fd, line, sizeof line))
            return;
    (void)net_server_say(fd, "Content-Length: 0\r\n\r\n");
}

static void say_drip(struct net_server *s, int fd, const char *text)
{
    for (;;)
        for (const char *p = text; *p; p++)
            if (!net_server_write(fd, p, 1) || net_server_hold(s, fd, 10))
                return;
}

static void echo(int fd, const char *request)
{
    char head[128];

    (void)snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                   strlen(request));
    (void)net_server_say(fd, head);
    (void)net_server_say(fd, request);
}

/* Answers that are only text. */
static const struct {
    const char *path;
    const char *answer;
} FIXED[] = {
    {"/hello", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"},
    {"/error", "HTTP/1.1 500 x\r\nContent-Length: 4\r\n\r\noops"},
    {"/reset-after", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"},
    {"/reset-before", ""},
    {"/cut", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"},
    {"/drip-body", "HTTP/1.1 200 OK\r\n\r\n"},
    {"/drip-past-limit", "HTTP/1.1 200 OK\r\n\r\n0123456789"},
    {"/early-hints", "HTTP/1.1 103 x\r\nRetry-After: 9\r\nLocation: /early\r\n\r\n"
                     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                     "2\r\nok\r\n0\r\nRetry-After: 8\r\n\r\n"},
    {"/odd-headers", "HTTP/1.1 200 OK\r\nLocation: /\xc3\xa9\x01z\r\nContent-Length: 0\r\n\r\n"},
    {"/http09", "no header at all"},
};

/* Answers with a part taken from the path. */
static void serve_made(int fd, const char *path)
{
    char head[128];

    if (strncmp(path, "/status/", 8) == 0) {
        (void)snprintf(head, sizeof head, "HTTP/1.1 %.3s x\r\nContent-Length: 0\r\n\r\n", path + 8);
        (void)net_server_say(fd, head);
    } else if (strncmp(path, "/retry/", 7) == 0) {
        (void)snprintf(head, sizeof head,
                       "HTTP/1.1 429 x\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n", path + 7);
        (void)net_server_say(fd, head);
    } else if (strcmp(path, "/retry-imf") == 0) {
        say_retry_date(fd, "%a, %d %b %Y %H:%M:%S GMT", 100);
    } else if (strcmp(path, "/retry-850") == 0) {
        say_retry_date(fd, "%A, %d-%b-%y %H:%M:%S GMT", 100);
    } else if (strcmp(path, "/retry-asctime") == 0) {
        say_retry_date(fd, "%a %b %e %H:%M:%S %Y", 100);
    } else if (strcmp(path, "/retry-past") == 0) {
        say_retry_date(fd, "%a, %d %b %Y %H:%M:%S GMT", -100);
    } else if (strcmp(path, "/retry-far") == 0) {
        say_retry_date(fd, "%a, %d %b %Y %H:%M:%S GMT", 864000);
    } else if (strncmp(path, "/large/", 7) == 0) {
        say_large_body(fd, strtoul(path + 7, NULL, 10));
    } else if (strcmp(path, "/large-headers") == 0) {
        say_large_headers(fd);
    }
}

static void serve(struct net_server *s, int fd, const char *request)
{
    char path[64] = "";

    (void)sscanf(request, "%*s %63s", path);
    for (size_t i = 0; i < RL_ARRAY_LEN(FIXED); i++)
        if (strcmp(path, FIXED[i].path) == 0 && !net_server_say(fd, FIXED[i].answer))
            return;
    serve_made(fd, path);
    if (strncmp(path, "/reset-", 7) == 0)
        net_server_reset(fd);
    else if (strcmp(path, "/echo") == 0)
        echo(fd, request);
    else if (strcmp(path, "/nothing") == 0)
        (void)net_server_hold(s, fd, -1);
    else if (strcmp(path, "/drip-headers") == 0)
        say_drip(s, fd, "HTTP/1.1 200 OK\r\n");
    else if (strcmp(path, "/many-1xx") == 0)
        say_drip(s, fd, "HTTP/1.1 103 x\r\n\r\n");
    else if (strncmp(path, "/drip-", 6) == 0)
        say_drip(s, fd, "b");
}

static struct net_server *server;

static int setup(void **state)
{
    (void)state;
    server = net_server_start(serve);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    net_server_stop(server);
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

static void test_net_call_status_and_body(void **state)
{
    static const int codes[] = {200, 201, 204, 400, 404, 410, 429, 500, 503};

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(codes); i++) {
        char path[32];
        (void)snprintf(path, sizeof path, "/status/%d", codes[i]);
        struct net_response r = get(path);
        assert_int_equal(r.rc, RL_OK);
        assert_int_equal(r.status, codes[i]);
        assert_string_equal(r.body, "");
        assert_string_equal(r.error, "");
        assert_int_equal(r.retry_after_s, -1);
        net_response_free(&r);
    }
    struct net_response r = get("/hello");
    assert_int_equal(r.rc, RL_OK);
    assert_string_equal(r.body, "hello");
    assert_int_equal(r.body_len, 5);
    assert_false(r.truncated);
    assert_string_equal(r.content_type, "text/plain");
    assert_string_equal(r.ip, "127.0.0.1");
    net_response_free(&r);
}

static void test_net_call_sends_method_headers_body(void **state)
{
    static const char *const methods[] = {"POST", "PUT", "PATCH", "DELETE"};
    const char *headers[] = {"Content-Type: application/json", "X-One: 1", NULL};

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(methods); i++) {
        char url[128];
        char line[32];
        struct net_response r;
        struct net_request request = request_to("/echo", url);
        request.method = methods[i];
        request.headers = headers;
        request.body = "a\0b";
        request.body_len = 3;
        assert_int_equal(net_call(&request, &r), RL_OK);
        (void)snprintf(line, sizeof line, "%s /echo HTTP/1.1\r\n", methods[i]);
        assert_int_equal(strncmp(r.body, line, strlen(line)), 0);
        assert_non_null(strstr(r.body, "\r\nContent-Type: application/json\r\n"));
        assert_non_null(strstr(r.body, "\r\nX-One: 1\r\n"));
        assert_non_null(strstr(r.body, "\r\nContent-Length: 3\r\n"));
        assert_non_null(strstr(r.body, "\r\nUser-Agent: reeld/"));
        assert_null(strcasestr(r.body, "\r\nExpect:"));
        assert_null(strcasestr(r.body, "\r\nAccept-Encoding:"));
        net_response_free(&r);
    }
}

static void test_net_call_large_body_needs_no_continue(void **state)
{
    char url[128];
    struct net_response r;
    struct net_request request = request_to("/echo", url);
    size_t len = (size_t)3 << 19; /* libcurl asks for a 100 from 1 MiB on */
    char *body = calloc(1, len + 1);

    (void)state;
    assert_non_null(body);
    memset(body, 'p', len);
    request.method = "POST";
    request.body = body;
    request.body_len = len;
    request.response_limit = len + 4096;
    assert_int_equal(net_call(&request, &r), RL_OK);
    assert_non_null(strstr(r.body, body));
    assert_null(strcasestr(r.body, "\r\nExpect:"));
    assert_null(strcasestr(r.body, "\r\nContent-Type:")); /* none given, none invented */
    net_response_free(&r);
    free(body);
}

static void test_net_call_empty_post_and_head(void **state)
{
    char url[128];
    struct net_response r;
    struct net_request request = request_to("/echo", url);

    (void)state;
    request.method = "POST";
    assert_int_equal(net_call(&request, &r), RL_OK);
    assert_non_null(strstr(r.body, "\r\nContent-Length: 0\r\n"));
    net_response_free(&r);
    request.method = "HEAD";
    assert_int_equal(net_call(&request, &r), RL_OK);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.body_len, 0);
    net_response_free(&r);
}

static void test_net_call_total_timeout(void **state)
{
    static const char *const paths[] = {"/nothing", "/drip-body", "/drip-headers", "/many-1xx"};

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(paths); i++) {
        char url[128];
        struct net_response r;
        struct net_request request = request_to(paths[i], url);
        int64_t start = rl_mono_ms();
        request.timeout_ms = 200;
        assert_int_equal(net_call(&request, &r), RL_REQUEST_TIMEOUT);
        assert_in_range(rl_mono_ms() - start, 190, 10000);
        assert_true(r.duration_ms >= 190);
        assert_true(strlen(r.error) > 0);
        if (i != 2) /* of the headers, the status line may or may not have arrived */
            assert_int_equal(r.status, i == 1 ? 200 : 0);
        net_response_free(&r);
    }
}

static void test_net_call_connection_refused(void **state)
{
    char url[128];
    struct net_response r;
    struct net_request request = request_to("/", url);

    (void)state;
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/", net_server_closed_port());
    assert_int_equal(net_call(&request, &r), RL_NETWORK_ERROR);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.ip, "127.0.0.1");
    assert_true(strlen(r.error) > 0);
    net_response_free(&r);
}

static void test_net_call_reset(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct net_response r = get("/reset-after");
        assert_int_equal(r.rc, RL_OK);
        assert_int_equal(r.status, 200);
        assert_string_equal(r.body, "hello");
        net_response_free(&r);
    }
    struct net_response r = get("/reset-before");
    assert_int_equal(r.rc, RL_NETWORK_ERROR);
    assert_int_equal(r.status, 0);
    net_response_free(&r);
    r = get("/cut");
    assert_int_equal(r.rc, RL_NETWORK_ERROR);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, "hello");
    net_response_free(&r);
}

static void test_net_call_body_past_limit_keeps_status(void **state)
{
    static const char *const paths[] = {"/large/8192", "/large/500000", "/large/500000000"};

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(paths); i++) {
        large_sent = 0;
        struct net_response r = get(paths[i]);
        assert_int_equal(r.rc, RL_OK);
        assert_true(large_sent < 100000000); /* 1 MiB and what sockets hold: then it was cut */
        assert_int_equal(r.status, 200);
        assert_true(r.truncated);
        assert_int_equal(r.body_len, 4096);
        assert_int_equal(strlen(r.body), 4096);
        assert_string_equal(r.error, "");
        net_response_free(&r);
    }
    struct net_response r = get("/large/4096"); /* exactly the limit */
    assert_int_equal(r.rc, RL_OK);
    assert_false(r.truncated);
    assert_int_equal(r.body_len, 4096);
    net_response_free(&r);
}

/* The part that is dropped may end in any way: a time-out there is not a failed delivery. */
static void test_net_call_timeout_past_limit_is_an_answer(void **state)
{
    char url[128];
    struct net_response r;
    struct net_request request = request_to("/drip-past-limit", url);

    (void)state;
    request.timeout_ms = 200;
    request.response_limit = 10;
    assert_int_equal(net_call(&request, &r), RL_OK);
    assert_int_equal(r.status, 200);
    assert_true(r.truncated);
    assert_string_equal(r.body, "0123456789");
    net_response_free(&r);
    request.response_limit = 0;
    assert_int_equal(net_call(&request, &r), RL_OK);
    assert_true(r.truncated);
    assert_string_equal(r.body, "");
    net_response_free(&r);
}

static void test_net_call_headers(void **state)
{
    (void)state;
    struct net_response r = get("/large-headers");
    assert_int_equal(r.rc, RL_NETWORK_ERROR);
    assert_non_null(strstr(r.error, "headers"));
    net_response_free(&r);
    r = get("/odd-headers");
    assert_int_equal(r.rc, RL_OK);
    assert_string_equal(r.location, "/???z");
    net_response_free(&r);
    r = get("/early-hints"); /* neither the 103 nor the trailer speaks for the answer */
    assert_int_equal(r.rc, RL_OK);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, "ok");
    assert_string_equal(r.location, "");
    assert_int_equal(r.retry_after_s, -1);
    net_response_free(&r);
    r = get("/http09");
    assert_int_equal(r.rc, RL_NETWORK_ERROR);
    assert_int_equal(r.status, 0);
    net_response_free(&r);
}

static void test_net_call_retry_after(void **state)
{
    static const struct {
        const char *path;
        int64_t min;
        int64_t max;
    } table[] = {
        {"/retry/0", 0, 0},
        {"/retry/17", 17, 17},
        {"/retry/007", 7, 7},
        {"/retry/86400", 86400, 86400},
        {"/retry/86401", 86400, 86400},
        {"/retry/99999999999999999999999999", 86400, 86400},
        {"/retry/-5", -1, -1},
        {"/retry/1.5", -1, -1},
        {"/retry/soon", -1, -1},
        {"/retry/", -1, -1},
        {"/retry-imf", 60, 100},
        {"/retry-850", 60, 100},
        {"/retry-asctime", 60, 100},
        {"/retry-past", 0, 0},
        {"/retry-far", 86400, 86400},
    };

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(table); i++) {
        struct net_response r = get(table[i].path);
        assert_int_equal(r.rc, RL_OK);
        if (r.retry_after_s < table[i].min || r.retry_after_s > table[i].max)
            fail_msg("%s: %lld", table[i].path, (long long)r.retry_after_s);
        net_response_free(&r);
    }
}

struct sunk {
    size_t bytes;
    size_t stop_at;
};

static bool sink(void *user, const void *bytes, size_t len)
{
    struct sunk *sunk = user;

    (void)bytes;
    sunk->bytes += len;
    return sunk->stop_at == 0 || sunk->bytes < sunk->stop_at;
}

static void test_net_call_sink(void **state)
{
    char url[128];
    struct net_response r;
    struct sunk sunk = {0};
    struct net_request request = request_to("/large/8388608", url);

    (void)state;
    request.sink = sink;
    request.user = &sunk;
    assert_int_equal(net_call(&request, &r), RL_OK); /* eight times what is dropped without one */
    assert_int_equal(r.status, 200);
    assert_int_equal(sunk.bytes, 8388608);
    assert_int_equal(r.body_len, 0);
    assert_false(r.truncated);
    net_response_free(&r);

    sunk = (struct sunk){.stop_at = 10000};
    assert_int_equal(net_call(&request, &r), RL_CANCELED);
    assert_int_equal(r.status, 200);
    assert_in_range(sunk.bytes, 10000, 200000);
    net_response_free(&r);

    sunk = (struct sunk){0};
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/error", server->port);
    assert_int_equal(net_call(&request, &r), RL_OK);
    assert_int_equal(r.status, 500);
    assert_int_equal(sunk.bytes, 0);
    assert_string_equal(r.body, "oops");
    net_response_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_net_call_status_and_body),
        TEST(test_net_call_sends_method_headers_body),
        TEST(test_net_call_large_body_needs_no_continue),
        TEST(test_net_call_empty_post_and_head),
        TEST(test_net_call_total_timeout),
        TEST(test_net_call_connection_refused),
        TEST(test_net_call_reset),
        TEST(test_net_call_body_past_limit_keeps_status),
        TEST(test_net_call_timeout_past_limit_is_an_answer),
        TEST(test_net_call_headers),
        TEST(test_net_call_retry_after),
        TEST(test_net_call_sink),
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
