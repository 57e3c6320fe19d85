/* The server over real sockets: heads, bodies, thread budgets, start and stop. */
#include "http_world.h"

/* ---- heads ---- */

static void test_head_refused_and_closed(void **state)
{
    struct server *s = *state;
    static const char *const heads[] = {
        "POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
        "chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: "
        "6\r\n\r\n",
        "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3abc\r\n\r\nabc",
        "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length : 3\r\n\r\nabc",
        "POST /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\nContent-Length: 3\r\n\r\nabc",
        "GET /healthz HTTP/1.1\nHost: localhost\n\n",
        "GET /healthz HTTP/1.1\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        "GET /healthz%00x HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /healthz%0d%0aX:y HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "NONSENSE\r\n\r\n",
    };
    for (size_t i = 0; i < RL_ARRAY_LEN(heads); i++) {
        int fd = client_open(s->port);
        assert_true(client_send(fd, heads[i], strlen(heads[i])));
        struct answer a = client_read(fd, false);
        if (a.status != 400 || !strstr(a.body, "BAD_REQUEST") || !client_closed(fd))
            fail_msg("head %zu: %d %s", i, a.status, a.body);
        answer_free(&a);
        close(fd);
    }
}

static void test_head_many_fields(void **state)
{
    struct server *s = *state;
    AUTO_BUF struct rl_buf extra = {0};
    rl_buf_init(&extra, 8192);
    for (int i = 0; i < 70; i++)
        rl_buf_fmt(&extra, "X-%d: y\r\n", i);
    expect(call(s, "GET", "/healthz", extra.data, NULL), 400, "header fields");
}

static void test_host_rebinding(void **state)
{
    struct server *s = *state;
    expect(client_raw(s->port, "GET /healthz HTTP/1.1\r\nHost: evil.test\r\n\r\n"), 403,
           "FORBIDDEN");
    expect(client_raw(s->port, "GET /healthz HTTP/1.1\r\nHost: localhost:99\r\n\r\n"), 200, "ok");
}

static void test_request_id(void **state)
{
    struct server *s = *state;
    struct answer a = call(s, "GET", "/healthz", "X-Request-Id: abc-1\r\n", NULL);
    assert_string_equal(answer_header(&a, "X-Request-Id"), "abc-1");
    answer_free(&a);
    a = call(s, "GET", "/healthz", "X-Request-Id: a b\r\n", NULL);
    assert_int_equal(strlen(answer_header(&a, "X-Request-Id")), 16);
    answer_free(&a);
}

static void test_methods(void **state)
{
    struct server *s = *state;
    struct answer a = call(s, "PUT", "/api/v1/tasks", NULL, NULL);
    assert_string_equal(answer_header(&a, "Allow"), "POST, GET, HEAD, OPTIONS");
    expect(a, 405, "METHOD_NOT_ALLOWED");
    a = call_as(s, NULL, "OPTIONS", "/api/v1/tasks", "Origin: http://evil.test\r\n", NULL);
    assert_null(answer_header(&a, "Access-Control-Allow-Origin"));
    assert_non_null(answer_header(&a, "Allow"));
    expect(a, 204, NULL);
    a = call(s, "HEAD", "/healthz", NULL, NULL);
    assert_string_equal(answer_header(&a, "Content-Length"), "15");
    expect(a, 200, NULL);
    expect(call(s, "GET", "/etc/passwd", NULL, NULL), 404, "NOT_FOUND");
    expect(call(s, "GET", "/api/v1/tasks/../tasks", NULL, NULL), 404, NULL);
    a = call_as(s, NULL, "GET", "/", NULL, NULL);
    assert_non_null(strstr(answer_header(&a, "Content-Security-Policy"), "frame-ancestors 'none'"));
    expect(a, 200, "<html");
    expect(call_as(s, NULL, "GET", "/openapi.json", NULL, NULL), 200, "\"openapi\":\"3.1.0\"");
}

static void test_keep_alive_two_requests(void **state)
{
    struct server *s = *state;
    char text[512];
    int fd = client_open(s->port);
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof(text),
                 "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                 "%s\r\n" JSON_TYPE "Content-Length: 13\r\n\r\n{\"prompt\":\"\"}",
                 s->app);
        assert_true(client_send(fd, text, strlen(text)));
        struct answer a = client_read(fd, false);
        assert_string_equal(answer_header(&a, "Connection"), "keep-alive");
        expect(a, 422, "\"field\":\"prompt\"");
    }
    /* a body that the route never reads ends the connection: it must not become a request */
    const char *get = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nGET ";
    assert_true(client_send(fd, get, strlen(get)));
    struct answer a = client_read(fd, false);
    assert_string_equal(answer_header(&a, "Connection"), "close");
    expect(a, 200, "ok");
    assert_true(client_closed(fd));
    close(fd);
}

/* ---- bodies ---- */

static void test_body_drip_is_cut_at_the_deadline(void **state)
{
    struct server *s = *state;
    char text[512];
    int fd = client_open(s->port);
    snprintf(
        text, sizeof(text),
        "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n" JSON_TYPE
        "Content-Length: 4000\r\n\r\n",
        s->app);
    assert_true(client_send(fd, text, strlen(text)));
    int64_t began = rl_mono_ms();
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 20) == 0 && rl_mono_ms() - began < 8000)
        (void)client_send(fd, " ", 1); /* the end is what the test waits for */
    int64_t took = rl_mono_ms() - began;
    struct answer a = client_read(fd, false);
    expect(a, 408, "REQUEST_TIMEOUT");
    assert_in_range(took, DEADLINE_MS - 50, DEADLINE_MS + 3000);
    close(fd);
}

static void test_body_too_large(void **state)
{
    struct server *s = *state;
    AUTO_BUF struct rl_buf big = {0};
    rl_buf_init(&big, 1 << 20);
    for (int i = 0; i < 9000; i++)
        rl_buf_str(&big, "x");
    struct answer a = call(s, "POST", "/api/v1/tasks", JSON_TYPE, big.data);
    assert_string_equal(answer_header(&a, "Connection"), "close");
    expect(a, 413, "BODY_TOO_LARGE");
    AUTO_BUF struct rl_buf chunked = {0};
    rl_buf_init(&chunked, 1 << 20);
    rl_buf_fmt(
        &chunked,
        "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n" JSON_TYPE
        "Transfer-Encoding: chunked\r\n\r\n2328\r\n%s\r\n0\r\n\r\n",
        s->app, big.data);
    expect(client_raw(s->port, chunked.data), 413, "BODY_TOO_LARGE");
}

/* A client that is still sending must read the refusal, not a reset connection. */
static void test_body_unwanted_is_swallowed(void **state)
{
    struct server *s = *state;
    static const char head[] = "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE
                               "Content-Length: 600000\r\n\r\n";
    AUTO_FREE char *body = calloc(1, 600000);
    assert_non_null(body);
    int fd = client_open(s->port);
    assert_true(client_send(fd, head, strlen(head)));
    assert_true(client_send(fd, body, 600000));
    expect(client_read(fd, false), 401, "UNAUTHORIZED");
    assert_true(client_closed(fd));
    close(fd);
}

static void test_body_chunked_and_continue(void **state)
{
    struct server *s = *state;
    char text[1024];
    snprintf(
        text, sizeof(text),
        "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n" JSON_TYPE
        "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"pro\r\n24\r\nmpt\":\"a "
        "star\",\"idempotency\":\"off\"}  \r\n0\r\n\r\n",
        s->app);
    expect(client_raw(s->port, text), 202, "a star");
    char broken[1024];
    snprintf(
        broken, sizeof(broken),
        "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n" JSON_TYPE
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        s->app);
    expect(client_raw(s->port, broken), 400, NULL);

    int fd = client_open(s->port);
    const char *body = "{\"prompt\":\"a square\",\"idempotency\":\"off\"}";
    snprintf(
        text, sizeof(text),
        "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n" JSON_TYPE
        "Expect: 100-continue\r\nContent-Length: %zu\r\n\r\n",
        s->app, strlen(body));
    assert_true(client_send(fd, text, strlen(text)));
    struct answer a = client_read(fd, true);
    expect(a, 100, NULL);
    assert_true(client_send(fd, body, strlen(body)));
    expect(client_read(fd, false), 202, "a square");
    close(fd);
}

/* ---- the server itself ---- */

/* Half a submit: the request is in flight until the rest arrives. */
static int half_submit(struct server *s, const char **ret_rest)
{
    static const char *const rest = "\":\"late\",\"idempotency\":\"off\"}";
    char text[512];
    int fd = client_open(s->port);
    snprintf(
        text, sizeof(text),
        "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n" JSON_TYPE
        "Expect: 100-continue\r\nContent-Length: %zu\r\n\r\n{\"prompt",
        s->app, strlen("{\"prompt") + strlen(rest));
    assert_true(client_send(fd, text, strlen(text)));
    struct answer a = client_read(fd, true); /* 100: it is being read now */
    assert_int_equal(a.status, 100);
    answer_free(&a);
    *ret_rest = rest;
    return fd;
}

static void test_full_house_says_so(void **state)
{
    struct server *s = *state;
    int fds[THREADS];
    const char *rest;
    for (int i = 0; i < THREADS; i++)
        fds[i] = half_submit(s, &rest);
    struct answer a = call(s, "GET", "/api/v1/tasks", NULL, NULL);
    assert_string_equal(answer_header(&a, "Retry-After"), "1");
    assert_string_equal(answer_header(&a, "Connection"), "close");
    expect(a, 503, "UNAVAILABLE");
    expect(call_as(s, NULL, "GET", "/healthz", NULL, NULL), 200, "ok");
    for (int i = 0; i < THREADS; i++) {
        assert_true(client_send(fds[i], rest, strlen(rest)));
        expect(client_read(fds[i], false), 202, "late");
        close(fds[i]);
    }
    expect(call(s, "GET", "/api/v1/tasks", NULL, NULL), 200, NULL);
}

static void test_start_names_a_taken_port(void **state)
{
    struct server *s = *state;
    char listen[32];
    struct http *second = NULL;
    int port;
    struct rl_err err = {0};
    snprintf(listen, sizeof(listen), "127.0.0.1:%d", s->port);
    set(s, "listen", listen);
    assert_int_equal(http_start(s->tasks, NULL, NULL, &second, &port, &err), RL_IO_ERROR);
    assert_non_null(strstr(err.reason, listen));
    assert_non_null(strstr(err.reason, "in use"));
    set(s, "listen", "[::1]:80");
    assert_int_equal(http_start(s->tasks, NULL, NULL, &second, &port, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "listen");
}

static void *stop_main(void *arg)
{
    struct server *s = arg;
    http_stop(s->http, 5000);
    s->http = NULL;
    return NULL;
}

/* Runs last: ends the group's server. */
static void test_stop_loses_no_answer(void **state)
{
    struct server *s = *state;
    const char *rest;
    int fd = half_submit(s, &rest);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_main, s), 0);
    struct answer a;
    for (;;) { /* until the server says that it is stopping */
        a = call(s, "GET", "/api/v1/engines", NULL, NULL);
        if (a.status == 503)
            break;
        answer_free(&a);
    }
    expect(a, 503, "stopping");
    assert_true(client_send(fd, rest, strlen(rest)));
    a = client_read(fd, false);
    assert_string_equal(answer_header(&a, "Connection"), "close");
    expect(a, 202, "late");
    close(fd);
    assert_int_equal(pthread_join(thread, NULL), 0);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_refused_and_closed),
        cmocka_unit_test(test_head_many_fields),
        cmocka_unit_test(test_host_rebinding),
        cmocka_unit_test(test_request_id),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_keep_alive_two_requests),
        cmocka_unit_test(test_body_drip_is_cut_at_the_deadline),
        cmocka_unit_test(test_body_too_large),
        cmocka_unit_test(test_body_unwanted_is_swallowed),
        cmocka_unit_test(test_body_chunked_and_continue),
    };
    const struct CMUnitTest patient[] = {
        cmocka_unit_test(test_full_house_says_so),
        cmocka_unit_test(test_start_names_a_taken_port),
        cmocka_unit_test(test_stop_loses_no_answer),
    };
    int failed = cmocka_run_group_tests(tests, server_start, server_end);
    return failed + cmocka_run_group_tests(patient, server_start_patient, server_end);
}
