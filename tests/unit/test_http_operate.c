/* The routes of whoever runs the machine: dead letters, queues, repair, statistics, explanations,
 * links, and what a poll costs. */
#include "http_world.h"
#include "base/json.h"
#include "task/internal.h"

/* Path of a dead letter: "/api/v1/dead-letters/<id><tail>". */
static const char *dead(const char *task_path, const char *tail)
{
    static char path[128];
    assert_true(snprintf(path, sizeof(path), "/api/v1/dead-letters/%lld%s",
                         (long long)path_id(task_path), tail) < (int)sizeof(path));
    return path;
}

static bool listed(struct server *s, const char *key, const char *task_path)
{
    char member[64];
    struct answer a = call_as(s, key, "GET", "/api/v1/dead-letters?limit=200", NULL, NULL);
    assert_int_equal(a.status, 200);
    snprintf(member, sizeof(member), "\"task_id\":\"%lld\"", (long long)path_id(task_path));
    bool found = strstr(a.body, member) != NULL;
    answer_free(&a);
    return found;
}

/* ---- dead letters ---- */

static void test_dead_letter_replay(void **state)
{
    struct server *s = *state;
    char path[128];
    make_failed(s, path, sizeof(path));
    assert_true(listed(s, s->app, path));
    assert_true(listed(s, s->owner, path));
    struct answer a = call(s, "POST", dead(path, "/replay"), NULL, NULL);
    assert_string_equal(answer_header(&a, "Location"), path);
    assert_non_null(strstr(a.body, "\"round\":2"));
    expect(a, 202, "\"status\":\"QUEUED\"");
    assert_false(listed(s, s->app, path));
    expect(call(s, "POST", dead(path, "/replay"), NULL, NULL), 409, "CONFLICT");
    expect(call(s, "POST", "/api/v1/dead-letters/99/replay", NULL, NULL), 404, "NOT_FOUND");
    expect(call(s, "POST", "/api/v1/dead-letters/x/replay", NULL, NULL), 404, "NOT_FOUND");
    expect(call_as(s, NULL, "POST", dead(path, "/replay"), NULL, NULL), 401, NULL);
    expect(call(s, "GET", "/api/v1/dead-letters?status=FAILED", NULL, NULL), 422,
           "\"field\":\"status\"");
}

static void test_dead_letter_dismiss(void **state)
{
    struct server *s = *state;
    char path[128];
    make_failed(s, path, sizeof(path));
    expect(call(s, "DELETE", dead(path, ""), NULL, NULL), 204, NULL);
    assert_false(listed(s, s->app, path));
    expect(call(s, "DELETE", dead(path, ""), NULL, NULL), 404, "NOT_FOUND");
    expect(call(s, "GET", path, NULL, NULL), 200, "\"status\":\"FAILED\"");
    expect(call(s, "DELETE", "/api/v1/dead-letters/replay", NULL, NULL), 404, NULL);
}

static void test_dead_letters_of_others_are_not_there(void **state)
{
    struct server *s = *state;
    char path[128], key[KEY_TEXT], many[96];
    struct rl_err err;
    int64_t id;
    make_failed(s, path, sizeof(path));
    assert_int_equal(key_add(s->tasks, "other", NULL, false, key, &id, &err), RL_OK);
    assert_false(listed(s, key, path));
    expect(call_as(s, key, "POST", dead(path, "/replay"), NULL, NULL), 404, "NOT_FOUND");
    expect(call_as(s, key, "DELETE", dead(path, ""), NULL, NULL), 404, "NOT_FOUND");
    snprintf(many, sizeof(many), "{\"task_ids\":[\"%lld\"]}", (long long)path_id(path));
    expect(call_as(s, key, "POST", "/api/v1/dead-letters/replay", JSON_TYPE, many), 200,
           "{\"replayed\":[],\"refused\":[{\"task_id\":");
    assert_true(listed(s, s->app, path));
}

static void test_dead_letters_replay_many(void **state)
{
    struct server *s = *state;
    char one[128], two[128], text[512], want[512];
    make_failed(s, one, sizeof(one));
    make_failed(s, two, sizeof(two));
    snprintf(text, sizeof(text), "{\"task_ids\":[\"%lld\",\"99\",\"%lld\",\"%lld\"]}",
             (long long)path_id(one), (long long)path_id(two), (long long)path_id(one));
    snprintf(want, sizeof(want),
             "{\"replayed\":[\"%lld\",\"%lld\"],\"refused\":[{\"task_id\":\"99\",\"code\":"
             "\"NOT_FOUND\"},{\"task_id\":\"%lld\",\"code\":\"CONFLICT\"}]}",
             (long long)path_id(one), (long long)path_id(two), (long long)path_id(one));
    struct answer a = call(s, "POST", "/api/v1/dead-letters/replay", JSON_TYPE, text);
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, want);
    answer_free(&a);
    expect(call(s, "GET", two, NULL, NULL), 200, "\"status\":\"QUEUED\"");
}

static void test_dead_letters_replay_many_refuses(void **state)
{
    struct server *s = *state;
    static const char *const bad[] = {"{}",
                                      "{\"task_ids\":\"1\"}",
                                      "{\"task_ids\":[]}",
                                      "{\"task_ids\":[1]}",
                                      "{\"task_ids\":[\"01\"]}",
                                      "{\"task_ids\":[\"1\",null]}",
                                      "{\"task_ids\":[\"9223372036854775808\"]}"};
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++)
        expect(call(s, "POST", "/api/v1/dead-letters/replay", JSON_TYPE, bad[i]), 422,
               "\"field\":\"task_ids\"");
    expect(call(s, "POST", "/api/v1/dead-letters/replay", JSON_TYPE, "{\"ids\":[\"1\"]}"), 422,
           "\"field\":\"ids\"");
    AUTO_BUF struct rl_buf many = {0};
    rl_buf_init(&many, 1 << 16);
    rl_buf_str(&many, "{\"task_ids\":[\"1\"");
    for (int i = 0; i < 199; i++)
        rl_buf_str(&many, ",\"1\"");
    size_t at_most = many.len;
    rl_buf_str(&many, ",\"1\"]}");
    expect(call(s, "POST", "/api/v1/dead-letters/replay", JSON_TYPE, many.data), 422,
           "at most 200");
    many.len = at_most;
    rl_buf_str(&many, "]}");
    expect(call(s, "POST", "/api/v1/dead-letters/replay", JSON_TYPE, many.data), 200, "NOT_FOUND");
}

/* ---- queues ---- */

static void test_queues_pause_resume_drain(void **state)
{
    struct server *s = *state;
    /* the longest name that a task may have */
    static const char name[] = "night.0123456789-0123456789_0123456789.0123456789-0123456789_012";
    char text[256], path[160];
    snprintf(text, sizeof(text), "{\"prompt\":\"x\",\"idempotency\":\"off\",\"queue_name\":\"%s\"}",
             name);
    assert_int_equal(strlen(name), 64);
    expect(call(s, "POST", "/api/v1/tasks", JSON_TYPE, text), 202, NULL);
    struct answer a = call(s, "GET", "/api/v1/queues", NULL, NULL);
    assert_non_null(strstr(a.body, "\"state\":\"RUNNING\""));
    expect(a, 200, name);
    snprintf(path, sizeof(path), "/api/v1/queues/%s/pause", name);
    expect(call(s, "POST", path, NULL, NULL), 403, "FORBIDDEN");
    expect(call_as(s, s->owner, "POST", path, NULL, NULL), 200, "\"state\":\"PAUSED\"");
    snprintf(path, sizeof(path), "/api/v1/queues/%s/drain", name);
    expect(call_as(s, s->owner, "POST", path, NULL, NULL), 200, "\"state\":\"DRAINING\"");
    expect(call(s, "POST", "/api/v1/tasks", JSON_TYPE, text), 409, "\"field\":\"queue_name\"");
    snprintf(path, sizeof(path), "/api/v1/queues/%s/resume", name);
    a = call_as(s, s->owner, "POST", path, NULL, NULL);
    assert_null(strstr(a.body, "DRAINING"));
    expect(a, 200, "\"state\":\"RUNNING\"");
    expect(call(s, "POST", "/api/v1/tasks", JSON_TYPE, text), 202, NULL);
    expect(call_as(s, s->owner, "POST", "/api/v1/queues/none/pause", NULL, NULL), 404, "NOT_FOUND");
    expect(call_as(s, s->owner, "POST", "/api/v1/queues/default/stop", NULL, NULL), 404, NULL);
}

/* ---- repair, statistics, workers ---- */

static void test_repair_words(void **state)
{
    struct server *s = *state;
    expect(call(s, "POST", "/api/v1/repair", NULL, NULL), 403, "FORBIDDEN");
    struct answer a = call_as(s, s->owner, "POST", "/api/v1/repair", NULL, NULL);
    assert_non_null(strstr(a.body, "\"stuck\":["));
    assert_non_null(strstr(a.body, "\"status_counts\":{"));
    expect(a, 200, "\"dry_run\":true");
    expect(call_as(s, s->owner, "POST",
                   "/api/v1/repair?dry_run=false&batch=1000&status=CREATED,PROCESSING", NULL, NULL),
           200, "\"dry_run\":false");
    static const struct {
        const char *query, *field;
    } bad[] = {{"dry_run=1", "dry_run"}, {"dry_run=", "dry_run"}, {"batch=0", "batch"},
               {"batch=1001", "batch"},  {"batch=x", "batch"},    {"status=STUCK", "status"},
               {"status=", "status"},    {"apply=true", "apply"}};
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++) {
        char path[128], want[64];
        snprintf(path, sizeof(path), "/api/v1/repair?%s", bad[i].query);
        snprintf(want, sizeof(want), "\"field\":\"%s\"", bad[i].field);
        expect(call_as(s, s->owner, "POST", path, NULL, NULL), 422, want);
    }
}

static void test_stats_and_workers(void **state)
{
    struct server *s = *state;
    char path[128];
    make_failed(s, path, sizeof(path));
    expect(call(s, "GET", "/api/v1/stats", NULL, NULL), 403, "FORBIDDEN");
    expect(call_as(s, s->owner, "GET", "/api/v1/stats", NULL, NULL), 200, "\"p99_ms\":");
    expect(call(s, "GET", "/api/v1/workers", NULL, NULL), 200, "{\"data\":[],\"next\":null}");
}

/* ---- one task ---- */

static void test_task_explain(void **state)
{
    struct server *s = *state;
    char path[128], explain[160];
    make_failed(s, path, sizeof(path));
    snprintf(explain, sizeof(explain), "%s?explain=1", path);
    struct answer a = call(s, "GET", explain, NULL, NULL);
    assert_int_equal(a.status, 200);
    struct rl_json *root = NULL;
    struct rl_err err;
    if (rl_json_parse(a.body, a.body_len, &root, &err) != RL_OK)
        fail_msg("%s in %s", err.reason, a.body);
    const char *text = rl_json_text(rl_json_get(root, "explain"));
    assert_non_null(text);
    assert_non_null(strstr(text, "dead letter"));
    assert_int_not_equal(text[strlen(text) - 1], ' ');
    assert_string_equal(rl_json_text(rl_json_get(root, "status")), "FAILED");
    rl_json_free(root);
    answer_free(&a);
    a = call(s, "GET", path, NULL, NULL);
    assert_null(strstr(a.body, "\"explain\""));
    expect(a, 200, NULL);
    snprintf(explain, sizeof(explain), "%s?explain=yes", path);
    expect(call(s, "GET", explain, NULL, NULL), 422, "\"field\":\"explain\"");
}

/* A terminal task is answered from memory: no read of SQLite, and 304 to a client that has it. */
static void test_poll_of_a_finished_task_reads_no_database(void **state)
{
    struct server *s = *state;
    char path[128], extra[128];
    make_video(s, path, sizeof(path));
    struct answer a = call(s, "GET", path, NULL, NULL);
    assert_non_null(strstr(a.body, "\"poll_after_ms\":null"));
    snprintf(extra, sizeof(extra), "If-None-Match: %s\r\n", answer_header(&a, "ETag"));
    expect(a, 200, "SUCCEEDED");
    struct cache_stats before, after;
    cache_stats(s->tasks->cache, &before);
    for (int i = 0; i < 20; i++)
        expect(call(s, "GET", path, extra, NULL), 304, NULL);
    cache_stats(s->tasks->cache, &after);
    assert_int_equal(after.hits, before.hits + 20);
    assert_int_equal(after.misses, before.misses);
    submit(s, JSON_TYPE, path, sizeof(path));
    expect(call(s, "GET", path, NULL, NULL), 200, "\"poll_after_ms\":2000");
}

/* The part of an answer's url that follows the server's address. */
static void link_path(struct server *s, const char *task_path, int64_t expires_s, char *path,
                      size_t size)
{
    char link[160], text[64];
    snprintf(link, sizeof(link), "%s/link", task_path);
    snprintf(text, sizeof(text), "{\"expires_s\":%lld}", (long long)expires_s);
    struct answer a = call(s, "POST", link, JSON_TYPE, text);
    if (a.status != 200)
        fail_msg("link: %d %s", a.status, a.body);
    assert_non_null(strstr(a.body, "\"expires_at\":\"20"));
    const char *from = strstr(a.body, "/api/v1/tasks/");
    assert_non_null(from);
    assert_true(snprintf(path, size, "%.*s", (int)strcspn(from, "\""), from) < (int)size);
    answer_free(&a);
}

static void test_link_opens_video_and_poster_only(void **state)
{
    struct server *s = *state;
    char path[128], url[256], other[300];
    make_video(s, path, sizeof(path));
    link_path(s, path, 60, url, sizeof(url));
    expect(call_as(s, NULL, "GET", url, NULL, NULL), 200, video_bytes);
    const char *query = strchr(url, '?');
    assert_non_null(query);
    snprintf(other, sizeof(other), "%s/poster%s", path, query);
    expect(call_as(s, NULL, "GET", other, NULL, NULL), 200, "jpeg");
    snprintf(other, sizeof(other), "%s%s", path, query);
    expect(call_as(s, NULL, "GET", other, NULL, NULL), 401, NULL);
    char second[128];
    make_video(s, second, sizeof(second));
    snprintf(other, sizeof(other), "%s/video%s", second, query);
    expect(call_as(s, NULL, "GET", other, NULL, NULL), 401, "UNAUTHORIZED");
}

static void test_link_tampered_or_over_is_refused(void **state)
{
    struct server *s = *state;
    char path[128], url[256], other[400];
    make_video(s, path, sizeof(path));
    link_path(s, path, 31536000, url, sizeof(url));
    char *exp = strstr(url, "&exp=");
    assert_non_null(exp);
    int64_t until = strtoll(exp + 5, NULL, 10);
    assert_in_range(until, rl_wall_ms() / 1000 + 31535900, rl_wall_ms() / 1000 + 31536000);
    int head = (int)(exp - url);
    snprintf(other, sizeof(other), "%.*s&exp=%lld", head, url, (long long)until + 1);
    expect(call_as(s, NULL, "GET", other, NULL, NULL), 401, "UNAUTHORIZED");
    snprintf(other, sizeof(other), "%.*s", head, url); /* without an end it is another signature */
    expect(call_as(s, NULL, "GET", other, NULL, NULL), 401, "UNAUTHORIZED");
    static const char *const ends[] = {"", "0", "-1", "x", "9223372036854775808", "+5"};
    for (size_t i = 0; i < RL_ARRAY_LEN(ends); i++) {
        snprintf(other, sizeof(other), "%.*s&exp=%s", head, url, ends[i]);
        expect(call_as(s, NULL, "GET", other, NULL, NULL), 401, "UNAUTHORIZED");
    }
    /* rightly signed, and over since a second */
    AUTO_TASK struct task *task = NULL;
    const struct caller boss = {.owner = true};
    struct rl_err err;
    AUTO_BUF struct rl_buf signed_url = {0};
    rl_buf_init(&signed_url, 2048);
    assert_int_equal(task_get(s->tasks, &boss, path_id(path), &task, &err), RL_OK);
    task_download_url(s->tasks, task, rl_wall_ms() / 1000 - 1, &signed_url);
    expect(call_as(s, NULL, "GET", strstr(signed_url.data, "/api/v1/"), NULL, NULL), 401,
           "UNAUTHORIZED");
    rl_buf_clear(&signed_url); /* the callback's download_url has no end */
    task_download_url(s->tasks, task, 0, &signed_url);
    expect(call_as(s, NULL, "GET", strstr(signed_url.data, "/api/v1/"), NULL, NULL), 200,
           video_bytes);
    /* somebody who signed in is not stopped by it, and still gets the file to save */
    snprintf(other, sizeof(other), "%s/video?sig=AAAA&exp=1&download=1", path);
    struct answer a = call(s, "GET", other, NULL, NULL);
    assert_non_null(strstr(answer_header(&a, "Content-Disposition"), "attachment"));
    expect(a, 200, video_bytes);
}

static void test_link_refuses(void **state)
{
    struct server *s = *state;
    char path[128], link[160];
    submit(s, JSON_TYPE, path, sizeof(path));
    snprintf(link, sizeof(link), "%s/link", path);
    expect(call(s, "POST", link, JSON_TYPE, "{\"expires_s\":60}"), 404, "VIDEO_NOT_READY");
    static const char *const bad[] = {"{}", "{\"expires_s\":59}", "{\"expires_s\":31536001}",
                                      "{\"expires_s\":60.5}", "{\"expires_s\":\"60\"}"};
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++)
        expect(call(s, "POST", link, JSON_TYPE, bad[i]), 422, "\"field\":\"expires_s\"");
    expect(call(s, "POST", "/api/v1/tasks/99/link", JSON_TYPE, "{\"expires_s\":60}"), 404,
           "NOT_FOUND");
    expect(call_as(s, NULL, "POST", link, JSON_TYPE, "{\"expires_s\":60}"), 401, NULL);
}

/* ---- backup ---- */

/* Fill the database until a copy of it fits no socket buffer. */
static void fill(struct server *s)
{
    const struct caller boss = {.user_id = "boss", .owner = true};
    AUTO_FREE char *text = malloc(32768);
    assert_non_null(text);
    for (int i = 0; i < 500; i++) {
        struct submit_reply reply;
        struct rl_err err;
        int n = snprintf(text, 64, "{\"idempotency\":\"off\",\"prompt\":\"");
        memset(text + n, 'x', 30000);
        memcpy(text + n + 30000, "\"}", 3);
        if (task_submit(s->tasks, &boss, text, (size_t)n + 30002, NULL, &reply, &err) != RL_OK)
            fail_msg("submit: %s", err.reason);
        task_free(reply.task);
    }
}

static int ask_backup(struct server *s)
{
    char text[256];
    int fd = client_open(s->port);
    int few = 4096;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &few, sizeof(few));
    snprintf(text, sizeof(text),
             "GET /api/v1/backup HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n",
             s->owner);
    assert_true(client_send(fd, text, strlen(text)));
    return fd;
}

/* The promise "one at a time" holds until the last byte is out, not only while the copy is made. */
static void test_backup_one_at_a_time_while_it_streams(void **state)
{
    struct server *s = *state;
    fill(s);
    int fd = ask_backup(s);
    struct answer a = client_read(fd, true); /* it is being sent; nobody reads on */
    expect(a, 200, NULL);
    for (int i = 0; i < 3; i++) {
        int other = ask_backup(s);
        expect(client_read(other, true), 409, NULL);
        close(other);
    }
    close(fd); /* the server notices at its next write */
    for (int tries = 0;; tries++) {
        fd = ask_backup(s);
        a = client_read(fd, true);
        close(fd);
        if (a.status == 200 || tries == 500)
            break;
        answer_free(&a);
    }
    expect(a, 200, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dead_letter_replay),
        cmocka_unit_test(test_dead_letter_dismiss),
        cmocka_unit_test(test_dead_letters_of_others_are_not_there),
        cmocka_unit_test(test_dead_letters_replay_many),
        cmocka_unit_test(test_dead_letters_replay_many_refuses),
        cmocka_unit_test(test_queues_pause_resume_drain),
        cmocka_unit_test(test_repair_words),
        cmocka_unit_test(test_stats_and_workers),
        cmocka_unit_test(test_task_explain),
        cmocka_unit_test(test_poll_of_a_finished_task_reads_no_database),
        cmocka_unit_test(test_link_opens_video_and_poster_only),
        cmocka_unit_test(test_link_tampered_or_over_is_refused),
        cmocka_unit_test(test_link_refuses),
    };
    const struct CMUnitTest patient[] = {
        cmocka_unit_test(test_backup_one_at_a_time_while_it_streams),
    };
    int failed = cmocka_run_group_tests(tests, server_start, server_end);
    return failed + cmocka_run_group_tests(patient, server_start_patient, server_end);
}
