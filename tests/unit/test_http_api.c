/* The API over real sockets: who may ask, tasks, results, keys. */
#include "http_world.h"
#include "task/internal.h"

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

static void test_video_ranges(void **state)
{
    struct server *s = *state;
    char path[128], video[256], extra[256], etag[128];
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
    AUTO_TASK struct task *task = NULL;
    struct rl_err err;
    const struct caller boss = {.owner = true};
    char sig[64];
    assert_int_equal(task_get(s->tasks, &boss, path_id(path), &task, &err), RL_OK);
    task_download_signature(s->tasks, task, 0, sig);
    snprintf(video, sizeof(video), "%s/video?sig=%s", path, sig);
    expect(call_as(s, NULL, "GET", video, NULL, NULL), 200, video_bytes);
    snprintf(video, sizeof(video), "%s/events?sig=%s", path, sig);
    expect(call_as(s, NULL, "GET", video, NULL, NULL), 401, NULL);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auth_keys),
        cmocka_unit_test(test_auth_cookie_needs_own_origin),
        cmocka_unit_test(test_sign_in_link),
        cmocka_unit_test(test_submit_words),
        cmocka_unit_test(test_lists_refuse),
        cmocka_unit_test(test_task_get_etag_and_ids),
        cmocka_unit_test(test_task_cancel_words),
        cmocka_unit_test(test_video_ranges),
        cmocka_unit_test(test_keys_and_backup),
        cmocka_unit_test(test_readiness),
    };
    return cmocka_run_group_tests(tests, server_start, server_end);
}
