/* The server over real sockets, with the real database below it and no pool. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/fs.h"
#include "config/config.h"
#include "engine/engine.h"
#include "events/events.h"
#include "http/http.h"
#include "http_client.h"
#include "store/store.h"
#include "task/task.h"

#define THREADS     12
#define DEADLINE_MS 700

struct server {
    char dir[64];
    struct config *cfg;
    struct store *store;
    struct hub *hub;
    struct engines *engines;
    struct tasks *tasks;
    struct http *http;
    int port;
    char owner[KEY_TEXT], app[KEY_TEXT];
};

static void fatal(void *user, const struct rl_err *err)
{
    (void)user;
    fail_msg("fatal: %s", err->reason);
}

static void set(struct server *s, const char *name, const char *value)
{
    struct rl_err err;
    if (config_set(s->cfg, name, value, &err) != RL_OK)
        fail_msg("%s: %s", name, err.reason);
}

/* deadline_ms of a body, timeout_ms of silence. */
static int server_start_with(void **state, const char *deadline_ms, const char *timeout_ms)
{
    struct server *s = calloc(1, sizeof(*s));
    struct rl_err err = {0};
    bool first;
    int64_t id;
    char listen[] = "127.0.0.1:0";
    strcpy(s->dir, "/tmp/reeld-http-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    assert_int_equal(rl_crypto_init(&err), RL_OK);
    s->cfg = config_new();
    set(s, "state_dir", s->dir);
    set(s, "listen", listen);
    set(s, "http.threads", "12");
    set(s, "http.stream_threads", "4");
    set(s, "http.body_deadline_ms", deadline_ms);
    set(s, "http.request_timeout_ms", timeout_ms);
    set(s, "http.body_limit", "8192");
    set(s, "store.ballast_bytes", "0");
    set(s, "store.min_free_bytes", "0");
    set(s, "engine.plugin_dir", "");
    enum rl_rc rc = store_open(s->cfg, fatal, s, &s->store, &err);
    if (rc == RL_OK)
        rc = engines_open(s->cfg, &s->engines, &err);
    s->hub = hub_new(0);
    if (rc == RL_OK)
        rc = tasks_open(s->cfg, s->store, s->hub, s->engines, &s->tasks, &first, &err);
    if (rc == RL_OK)
        rc = key_add(s->tasks, "boss", NULL, true, s->owner, &id, &err);
    if (rc == RL_OK)
        rc = key_add(s->tasks, "app", NULL, false, s->app, &id, &err);
    if (rc == RL_OK)
        rc = http_start(s->tasks, NULL, NULL, &s->http, &s->port, &err);
    if (rc != RL_OK)
        fail_msg("start: %s %s", rl_code_name(rc), err.reason);
    assert_true(s->port > 0);
    *state = s;
    return 0;
}

static int server_start(void **state)
{
    return server_start_with(state, "700", "2000");
}

/* For tests that hold requests half sent, on however slow a machine. */
static int server_start_patient(void **state)
{
    return server_start_with(state, "60000", "30000");
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int server_end(void **state)
{
    struct server *s = *state;
    http_stop(s->http, 2000);
    tasks_close(s->tasks);
    engines_close(s->engines);
    store_close(s->store);
    hub_free(s->hub);
    config_free(s->cfg);
    (void)nftw(s->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(s);
    return 0;
}

/* A request with the app's key; `extra` are whole header lines. */
static struct answer call_as(struct server *s, const char *key, const char *method,
                             const char *path, const char *extra, const char *body)
{
    AUTO_BUF struct rl_buf text;
    rl_buf_init(&text, 1 << 20);
    rl_buf_fmt(&text, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n", method, path, s->port);
    if (key)
        rl_buf_fmt(&text, "Authorization: Bearer %s\r\n", key);
    if (body)
        rl_buf_fmt(&text, "Content-Length: %zu\r\n", strlen(body));
    rl_buf_fmt(&text, "%s\r\n%s", extra ? extra : "", body ? body : "");
    assert_int_equal(rl_buf_ok(&text, NULL), RL_OK);
    return client_raw(s->port, text.data);
}

static struct answer call(struct server *s, const char *method, const char *path, const char *extra,
                          const char *body)
{
    return call_as(s, s->app, method, path, extra, body);
}

#define JSON_TYPE "Content-Type: application/json\r\n"

static void expect(struct answer a, int status, const char *in_body)
{
    if (a.status != status || (in_body && !strstr(a.body, in_body)))
        fail_msg("got %d, wanted %d with %s: %s%s", a.status, status, in_body ? in_body : "-",
                 a.head, a.body ? a.body : "");
    if (status >= 400 && a.body_len > 0)
        assert_string_equal(answer_header(&a, "Content-Type"), "application/problem+json");
    answer_free(&a);
}

static void submit(struct server *s, const char *extra, char *path, size_t size)
{
    struct answer a = call(s, "POST", "/api/v1/tasks", extra,
                           "{\"prompt\":\"a red circle\",\"idempotency\":\"off\"}");
    if (a.status != 202)
        fail_msg("submit: %d %s", a.status, a.body);
    assert_non_null(answer_header(&a, "Location"));
    assert_true(snprintf(path, size, "%s", answer_header(&a, "Location")) < (int)size);
    answer_free(&a);
}

/* ---- who may ask ---- */

static void test_auth_keys(void **state)
{
    struct server *s = *state;
    char extra[128];
    struct answer a = call_as(s, NULL, "GET", "/api/v1/tasks", NULL, NULL);
    assert_string_equal(answer_header(&a, "WWW-Authenticate"), "Bearer realm=\"reeld\"");
    expect(a, 401, "UNAUTHORIZED");
    expect(call_as(s, "rk_wrong", "GET", "/api/v1/tasks", NULL, NULL), 401, "UNAUTHORIZED");
    snprintf(extra, sizeof(extra), "X-API-Key: %s\r\n", s->app);
    expect(call_as(s, NULL, "GET", "/api/v1/tasks", extra, NULL), 200, "\"data\":");
    /* a wrong key is not skipped for a right one */
    expect(call_as(s, "rk_wrong", "GET", "/api/v1/tasks", extra, NULL), 401, NULL);
    expect(call(s, "GET", "/api/v1/keys", NULL, NULL), 403, "FORBIDDEN");
    expect(call_as(s, s->owner, "GET", "/api/v1/keys", NULL, NULL), 200, "\"hint\"");
    expect(call(s, "GET", "/api/v1/backup", NULL, NULL), 403, "FORBIDDEN");
    expect(call(s, "GET", "/api/v1/callback-secret", NULL, NULL), 200, "whsec_");
}

static void test_auth_cookie_needs_own_origin(void **state)
{
    struct server *s = *state;
    char body[128], cookie[256], extra[512];
    snprintf(body, sizeof(body), "{\"key\":\"%s\"}", s->app);
    expect(
        call_as(s, NULL, "POST", "/api/v1/session", JSON_TYPE "Origin: http://evil.test\r\n", body),
        403, NULL);
    expect(call_as(s, NULL, "POST", "/api/v1/session", "Content-Type: text/plain\r\n", body), 415,
           NULL);
    struct answer a = call_as(s, NULL, "POST", "/api/v1/session", JSON_TYPE, body);
    assert_int_equal(a.status, 200);
    const char *set_cookie = answer_header(&a, "Set-Cookie");
    assert_non_null(set_cookie);
    assert_non_null(strstr(set_cookie, "HttpOnly; SameSite=Strict"));
    snprintf(cookie, sizeof(cookie), "Cookie: a=b; %.*s\r\n", (int)strcspn(set_cookie, ";"),
             set_cookie);
    answer_free(&a);
    expect(call_as(s, NULL, "GET", "/api/v1/session", cookie, NULL), 200, "\"user_id\":\"app\"");
    const char *task = "{\"prompt\":\"x\",\"idempotency\":\"off\"}";
    snprintf(extra, sizeof(extra), "%s" JSON_TYPE, cookie);
    expect(call_as(s, NULL, "POST", "/api/v1/tasks", extra, task), 403, "Origin");
    snprintf(extra, sizeof(extra), "%s" JSON_TYPE "Origin: http://localhost:%d\r\n", cookie,
             s->port);
    expect(call_as(s, NULL, "POST", "/api/v1/tasks", extra, task), 403, NULL);
    snprintf(extra, sizeof(extra), "%s" JSON_TYPE "Origin: http://127.0.0.1:%d\r\n", cookie,
             s->port);
    expect(call_as(s, NULL, "POST", "/api/v1/tasks", extra, task), 202, NULL);
    snprintf(extra, sizeof(extra), "%sOrigin: http://127.0.0.1:%d\r\n", cookie, s->port);
    a = call_as(s, NULL, "DELETE", "/api/v1/session", extra, NULL);
    assert_non_null(strstr(answer_header(&a, "Set-Cookie"), "Max-Age=0"));
    expect(a, 204, NULL);
    expect(
        call_as(s, NULL, "GET", "/api/v1/session", "Cookie: reeld_session=session.1.9.x\r\n", NULL),
        401, NULL);
}

static void test_sign_in_link(void **state)
{
    struct server *s = *state;
    struct answer a = call(s, "POST", "/api/v1/session/link", NULL, NULL);
    assert_int_equal(a.status, 200);
    char *link = strstr(a.body, "/sign-in?token=");
    assert_non_null(link);
    link[strcspn(link, "\"")] = '\0';
    struct answer b = call_as(s, NULL, "GET", link, NULL, NULL);
    assert_int_equal(b.status, 303);
    assert_string_equal(answer_header(&b, "Location"), "/");
    assert_non_null(answer_header(&b, "Set-Cookie"));
    answer_free(&b);
    answer_free(&a);
    a = call_as(s, NULL, "GET", "/sign-in?token=link.1.2.x", NULL, NULL);
    assert_int_equal(a.status, 401);
    assert_null(answer_header(&a, "Set-Cookie"));
    answer_free(&a);
}

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
    AUTO_BUF struct rl_buf extra;
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
    AUTO_BUF struct rl_buf big;
    rl_buf_init(&big, 1 << 20);
    for (int i = 0; i < 9000; i++)
        rl_buf_str(&big, "x");
    struct answer a = call(s, "POST", "/api/v1/tasks", JSON_TYPE, big.data);
    assert_string_equal(answer_header(&a, "Connection"), "close");
    expect(a, 413, "BODY_TOO_LARGE");
    AUTO_BUF struct rl_buf chunked;
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

/* ---- tasks ---- */

static void test_submit_words(void **state)
{
    struct server *s = *state;
    const char *ok = "{\"prompt\":\"once\"}";
    expect(call(s, "POST", "/api/v1/tasks", "Content-Type: text/plain\r\n", ok), 415,
           "UNSUPPORTED_MEDIA_TYPE");
    expect(call(s, "POST", "/api/v1/tasks", JSON_TYPE, "{"), 400, "MALFORMED_JSON");
    expect(call(s, "POST", "/api/v1/tasks", JSON_TYPE, "{\"prompt\":\"a\",\"promt\":1}"), 422,
           "\"field\":\"promt\"");
    expect(call(s, "POST", "/api/v1/tasks", JSON_TYPE "Idempotency-Key: a b\r\n", ok), 422,
           "\"field\":\"Idempotency-Key\"");
    expect(call(s, "POST", "/api/v1/tasks", JSON_TYPE "Idempotency-Key: \r\n", ok), 422, NULL);
    expect(call(s, "POST", "/api/v1/tasks", JSON_TYPE "Idempotency-Key: k1\r\n", ok), 202, "k1");
    struct answer a = call(s, "POST", "/api/v1/tasks", JSON_TYPE "Idempotency-Key: k1\r\n", ok);
    assert_string_equal(answer_header(&a, "Idempotency-Replayed"), "true");
    assert_non_null(answer_header(&a, "Location"));
    expect(a, 200, "k1");
    expect(call(s, "POST", "/api/v1/tasks", JSON_TYPE "Idempotency-Key: k1\r\n",
                "{\"prompt\":\"other\"}"),
           422, "IDEMPOTENCY_KEY_REUSED");
}

static void test_lists_refuse(void **state)
{
    struct server *s = *state;
    static const struct {
        const char *query, *field;
    } bad[] = {
        {"limit=0", "limit"},        {"limit=201", "limit"},       {"limit=x", "limit"},
        {"limit=", "limit"},         {"after=x", "after"},         {"after=-1", "after"},
        {"order=up", "order"},       {"status=DONE", "status"},    {"status=queued", "status"},
        {"status=", "status"},       {"status=QUEUED,", "status"}, {"page=2", "page"},
        {"limit=1&limit=2", "limit"}};
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++) {
        char path[128], want[64];
        snprintf(path, sizeof(path), "/api/v1/tasks?%s", bad[i].query);
        snprintf(want, sizeof(want), "\"field\":\"%s\"", bad[i].field);
        expect(call(s, "GET", path, NULL, NULL), 422, want);
    }
    expect(call(s, "GET", "/api/v1/tasks?a=%zz", NULL, NULL), 400, "BAD_REQUEST");
    expect(call(s, "GET", "/api/v1/tasks?status=QUEUED,FAILED&limit=200&order=asc&after=0", NULL,
                NULL),
           200, "\"next\":");
}

static void test_task_get_etag_and_ids(void **state)
{
    struct server *s = *state;
    char path[128], extra[128];
    submit(s, JSON_TYPE, path, sizeof(path));
    struct answer a = call(s, "GET", path, NULL, NULL);
    snprintf(extra, sizeof(extra), "If-None-Match: %s\r\n", answer_header(&a, "ETag"));
    expect(a, 200, "QUEUED");
    a = call(s, "GET", path, extra, NULL);
    assert_int_equal(a.body_len, 0);
    expect(a, 304, NULL);
    expect(call_as(s, s->owner, "GET", path, NULL, NULL), 200, NULL);
    static const char *const ids[] = {"0",   "01", "-1", "+1", "abc", "1x", "9223372036854775808",
                                      "%31", "99"};
    for (size_t i = 0; i < RL_ARRAY_LEN(ids); i++) {
        char bad[64];
        snprintf(bad, sizeof(bad), "/api/v1/tasks/%s", ids[i]);
        expect(call(s, "GET", bad, NULL, NULL), 404, "NOT_FOUND");
    }
    char video[160];
    snprintf(video, sizeof(video), "%s/video", path);
    expect(call(s, "GET", video, NULL, NULL), 404, "VIDEO_NOT_READY");
    expect(call_as(s, NULL, "GET", video, NULL, NULL), 401, NULL);
    snprintf(video, sizeof(video), "%s/events", path);
    expect(call(s, "GET", video, NULL, NULL), 200, "\"to_status\":\"CREATED\"");
    expect(call(s, "GET", "/api/v1/tasks/99/events?status=QUEUED", NULL, NULL), 422, NULL);
}

static void test_task_cancel_words(void **state)
{
    struct server *s = *state;
    char path[128], cancel[160];
    submit(s, JSON_TYPE, path, sizeof(path));
    snprintf(cancel, sizeof(cancel), "%s/cancel", path);
    expect(call(s, "POST", cancel, JSON_TYPE, "{\"mode\":\"firm\"}"), 422, "\"field\":\"mode\"");
    expect(call(s, "POST", cancel, JSON_TYPE, "{\"mod\":\"hard\"}"), 422, "\"field\":\"mod\"");
    expect(call(s, "POST", cancel, "Content-Type: text/plain\r\n", "{}"), 415, NULL);
    expect(call(s, "POST", cancel, JSON_TYPE, "[]"), 422, NULL);
    expect(call(s, "POST", cancel, NULL, NULL), 200, "CANCELED");
    expect(call(s, "POST", cancel, JSON_TYPE, "{\"mode\":\"hard\"}"), 200, "CANCELED");
}

/* ---- results ---- */

static const char video_bytes[] = "0123456789abcdefghijklmnopqrstuvwxyz";

/* Submit, and play the pool: claim, write the files, succeed. */
static void make_video(struct server *s, char *path, size_t size)
{
    struct engine_device device = {.id = "cpu0", .name = "test", .backend = "cpu"};
    struct run_result result = {
        .bytes = sizeof(video_bytes) - 1, .width = 64, .height = 64, .frames = 1, .fps = 1};
    char part[512], final[512], poster_part[512], poster[512];
    uint8_t sha[RL_SHA256_BYTES];
    struct run *run = NULL;
    struct rl_err err;
    do { /* whatever other tests left waiting is claimed first */
        if (!run)
            submit(s, JSON_TYPE, path, size);
        run_free(run);
        run = NULL;
        if (run_claim(s->tasks, &device, &run, &err) != RL_OK || !run)
            fail_msg("claim: %s", err.reason);
        run_paths(run, part, final, poster_part, poster, sizeof(part));
        assert_int_equal(
            rl_fs_write_durable(final, video_bytes, sizeof(video_bytes) - 1, 0600, &err), RL_OK);
        assert_int_equal(rl_fs_write_durable(poster, "jpeg", 4, 0600, &err), RL_OK);
        rl_sha256(video_bytes, sizeof(video_bytes) - 1, sha);
        rl_hex(sha, sizeof(sha), result.sha256);
        result.file = strrchr(final, '/') + 1;
        if (run_succeed(run, &result, &err) != RL_OK)
            fail_msg("succeed: %s", err.reason);
    } while (run_task(run)->task_id != strtoll(path + strlen("/api/v1/tasks/"), NULL, 10));
    run_free(run);
}

static void test_video_ranges(void **state)
{
    struct server *s = *state;
    char path[128], video[160], extra[256], etag[128];
    make_video(s, path, sizeof(path));
    snprintf(video, sizeof(video), "%s/video", path);
    struct answer a = call(s, "GET", video, NULL, NULL);
    assert_string_equal(answer_header(&a, "Content-Type"), "video/mp4");
    assert_string_equal(answer_header(&a, "Accept-Ranges"), "bytes");
    assert_non_null(answer_header(&a, "Last-Modified"));
    assert_non_null(strstr(answer_header(&a, "Content-Disposition"), "inline; filename=\""));
    snprintf(etag, sizeof(etag), "%s", answer_header(&a, "ETag"));
    assert_int_equal(strlen(etag), 66);
    expect(a, 200, video_bytes);
    a = call(s, "GET", video, "Range: bytes=-6\r\n", NULL);
    assert_string_equal(answer_header(&a, "Content-Range"), "bytes 30-35/36");
    assert_string_equal(a.body, "uvwxyz");
    expect(a, 206, NULL);
    a = call(s, "GET", video, "Range: bytes=30-999\r\n", NULL);
    assert_string_equal(answer_header(&a, "Content-Length"), "6");
    expect(a, 206, "uvwxyz");
    a = call(s, "GET", video, "Range: bytes=36-\r\n", NULL);
    assert_string_equal(answer_header(&a, "Content-Range"), "bytes */36");
    expect(a, 416, "RANGE_NOT_SATISFIABLE");
    snprintf(extra, sizeof(extra), "Range: bytes=1-2\r\nIf-Range: %s\r\n", etag);
    a = call(s, "GET", video, extra, NULL);
    assert_string_equal(a.body, "12");
    expect(a, 206, NULL);
    expect(call(s, "GET", video, "Range: bytes=1-2\r\nIf-Range: \"old\"\r\n", NULL), 200,
           video_bytes);
    snprintf(extra, sizeof(extra), "If-None-Match: %s\r\n", etag);
    expect(call(s, "GET", video, extra, NULL), 304, NULL);
    a = call(s, "HEAD", video, NULL, NULL);
    assert_string_equal(answer_header(&a, "Content-Length"), "36");
    expect(a, 200, NULL);
    snprintf(video, sizeof(video), "%s/video?download=1", path);
    a = call(s, "GET", video, NULL, NULL);
    assert_non_null(strstr(answer_header(&a, "Content-Disposition"), "attachment; filename=\""));
    answer_free(&a);
    snprintf(video, sizeof(video), "%s/poster", path);
    a = call(s, "GET", video, NULL, NULL);
    assert_string_equal(answer_header(&a, "Content-Type"), "image/jpeg");
    expect(a, 200, "jpeg");
    snprintf(video, sizeof(video), "%s/video?sig=AAAA", path);
    expect(call_as(s, NULL, "GET", video, NULL, NULL), 401, "UNAUTHORIZED");
    expect(call(s, "GET", video, NULL, NULL), 200, video_bytes);
    expect(call_as(s, NULL, "GET", "/api/v1/tasks/99/video?sig=AAAA", NULL, NULL), 401,
           "UNAUTHORIZED");
}

/* ---- the server itself ---- */

static void test_keys_and_backup(void **state)
{
    struct server *s = *state;
    expect(call_as(s, s->owner, "POST", "/api/v1/keys", JSON_TYPE, "{}"), 422,
           "\"field\":\"user\"");
    expect(call_as(s, s->owner, "POST", "/api/v1/keys", JSON_TYPE,
                   "{\"user\":\"u\",\"role\":\"king\"}"),
           422, "\"field\":\"role\"");
    struct answer a =
        call_as(s, s->owner, "POST", "/api/v1/keys", JSON_TYPE, "{\"user\":\"u\",\"label\":\"l\"}");
    assert_int_equal(a.status, 201);
    char key[KEY_TEXT] = "", path[64] = "/api/v1/keys/", *p = strstr(a.body, "\"key\":\"");
    assert_non_null(p);
    snprintf(key, sizeof(key), "%.*s", (int)strcspn(p + 7, "\""), p + 7);
    p = strstr(a.body, "\"key_id\":\"");
    assert_non_null(p);
    snprintf(path + strlen(path), sizeof(path) - strlen(path), "%.*s", (int)strcspn(p + 10, "\""),
             p + 10);
    answer_free(&a);
    expect(call_as(s, key, "GET", "/api/v1/session", NULL, NULL), 200, "\"user_id\":\"u\"");
    expect(call_as(s, s->owner, "DELETE", path, NULL, NULL), 204, NULL);
    expect(call_as(s, key, "GET", "/api/v1/session", NULL, NULL), 401, NULL);
    a = call_as(s, s->owner, "GET", "/api/v1/backup", NULL, NULL);
    assert_string_equal(answer_header(&a, "Content-Type"), "application/vnd.sqlite3");
    assert_true(a.body_len > 4096);
    assert_memory_equal(a.body, "SQLite format 3", 16);
    answer_free(&a);
}

static void test_readiness(void **state)
{
    struct server *s = *state;
    expect(call_as(s, NULL, "GET", "/readyz", NULL, NULL), 200, "ready");
    http_set_unready(s->http, "engine is hung");
    struct answer a = call_as(s, NULL, "GET", "/readyz", NULL, NULL);
    assert_int_equal(a.status, 503);
    assert_non_null(strstr(a.body, "engine is hung"));
    answer_free(&a);
    http_set_unready(s->http, NULL);
    expect(call_as(s, NULL, "GET", "/readyz", NULL, NULL), 200, "ready");
}

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
        cmocka_unit_test(test_auth_keys),
        cmocka_unit_test(test_auth_cookie_needs_own_origin),
        cmocka_unit_test(test_sign_in_link),
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
        cmocka_unit_test(test_submit_words),
        cmocka_unit_test(test_lists_refuse),
        cmocka_unit_test(test_task_get_etag_and_ids),
        cmocka_unit_test(test_task_cancel_words),
        cmocka_unit_test(test_video_ranges),
        cmocka_unit_test(test_keys_and_backup),
        cmocka_unit_test(test_readiness),
    };
    const struct CMUnitTest patient[] = {
        cmocka_unit_test(test_full_house_says_so),
        cmocka_unit_test(test_start_names_a_taken_port),
        cmocka_unit_test(test_stop_loses_no_answer),
    };
    int failed = cmocka_run_group_tests(tests, server_start, server_end);
    return failed + cmocka_run_group_tests(patient, server_start_patient, server_end);
}
