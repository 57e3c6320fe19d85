/* The HTTP server over the real database, without a pool, and one-line requests to it. Header-only.
 */
#ifndef TEST_HTTP_WORLD_H
#define TEST_HTTP_WORLD_H

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

static inline void fatal(void *user, const struct rl_err *err)
{
    (void)user;
    fail_msg("fatal: %s", err->reason);
}

static inline void set(struct server *s, const char *name, const char *value)
{
    struct rl_err err;
    if (config_set(s->cfg, name, value, &err) != RL_OK)
        fail_msg("%s: %s", name, err.reason);
}

/* settings: name, value, …, NULL; over what the tests share. */
static inline int server_start_set(void **state, const char *const *settings)
{
    static const char *const shared[] = {"listen",
                                         "127.0.0.1:0",
                                         "http.threads",
                                         "12",
                                         "http.stream_threads",
                                         "4",
                                         "http.body_deadline_ms",
                                         "700",
                                         "http.request_timeout_ms",
                                         "2000",
                                         "http.body_limit",
                                         "8192",
                                         "limit.pending_tasks",
                                         "0",
                                         "store.ballast_bytes",
                                         "0",
                                         "store.min_free_bytes",
                                         "0",
                                         "engine.plugin_dir",
                                         "",
                                         "engine.default",
                                         "testpattern",
                                         NULL};
    struct server *s = calloc(1, sizeof(*s));
    struct rl_err err = {0};
    bool first;
    int64_t id;
    strcpy(s->dir, "/tmp/reeld-http-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    assert_int_equal(rl_crypto_init(&err), RL_OK);
    s->cfg = config_new();
    set(s, "state_dir", s->dir);
    for (const char *const *p = shared; *p; p += 2)
        set(s, p[0], p[1]);
    for (const char *const *p = settings; *p; p += 2)
        set(s, p[0], p[1]);
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

static inline int server_start(void **state)
{
    static const char *const none[] = {NULL};
    return server_start_set(state, none);
}

/* For tests that hold requests half sent, on however slow a machine. */
static inline int server_start_patient(void **state)
{
    static const char *const patient[] = {"http.body_deadline_ms", "60000",
                                          "http.request_timeout_ms", "30000", NULL};
    return server_start_set(state, patient);
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline int server_end(void **state)
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
static inline struct answer call_as(struct server *s, const char *key, const char *method,
                                    const char *path, const char *extra, const char *body)
{
    AUTO_BUF struct rl_buf text = {0};
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

static inline struct answer call(struct server *s, const char *method, const char *path,
                                 const char *extra, const char *body)
{
    return call_as(s, s->app, method, path, extra, body);
}

#define JSON_TYPE "Content-Type: application/json\r\n"

static inline void expect(struct answer a, int status, const char *in_body)
{
    if (a.status != status || (in_body && !strstr(a.body, in_body)))
        fail_msg("got %d, wanted %d with %s: %s%s", a.status, status, in_body ? in_body : "-",
                 a.head, a.body ? a.body : "");
    if (status >= 400 && a.body_len > 0)
        assert_string_equal(answer_header(&a, "Content-Type"), "application/problem+json");
    answer_free(&a);
}

static inline void submit(struct server *s, const char *extra, char *path, size_t size)
{
    struct answer a = call(s, "POST", "/api/v1/tasks", extra,
                           "{\"prompt\":\"a red circle\",\"idempotency\":\"off\"}");
    if (a.status != 202)
        fail_msg("submit: %d %s", a.status, a.body);
    assert_non_null(answer_header(&a, "Location"));
    assert_true(snprintf(path, size, "%s", answer_header(&a, "Location")) < (int)size);
    answer_free(&a);
}

static const char video_bytes[] = "0123456789abcdefghijklmnopqrstuvwxyz";

static inline int64_t path_id(const char *path)
{
    return strtoll(path + strlen("/api/v1/tasks/"), NULL, 10);
}

static inline struct run *claim(struct server *s)
{
    struct engine_device device = {.id = "cpu0", .name = "test", .backend = "cpu"};
    struct run *run = NULL;
    struct rl_err err;
    if (run_claim(s->tasks, &device, &run, &err) != RL_OK || !run)
        fail_msg("claim: %s", err.reason);
    return run;
}

/* Submit, and play the pool: claim, write the files, succeed. */
static inline void make_video(struct server *s, char *path, size_t size)
{
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
        run = claim(s);
        run_paths(run, part, final, poster_part, poster, sizeof(part));
        assert_int_equal(
            rl_fs_write_durable(final, video_bytes, sizeof(video_bytes) - 1, 0600, &err), RL_OK);
        assert_int_equal(rl_fs_write_durable(poster, "jpeg", 4, 0600, &err), RL_OK);
        rl_sha256(video_bytes, sizeof(video_bytes) - 1, sha);
        rl_hex(sha, sizeof(sha), result.sha256);
        result.file = strrchr(final, '/') + 1;
        if (run_succeed(run, &result, &err) != RL_OK)
            fail_msg("succeed: %s", err.reason);
    } while (run_task(run)->task_id != path_id(path));
    run_free(run);
}

/* Submit, and play the pool: claim until this task has failed for good. */
static inline void make_failed(struct server *s, char *path, size_t size)
{
    const struct rl_err why = {.code = RL_ENGINE_ERROR, .reason = "told to fail"};
    struct rl_err err;
    bool mine;
    submit(s, JSON_TYPE, path, size);
    do { /* whatever other tests left waiting is claimed first */
        struct run *run = claim(s);
        mine = run_task(run)->task_id == path_id(path);
        if (run_fail(run, &why, &err) != RL_OK)
            fail_msg("fail: %s", err.reason);
        run_free(run);
    } while (!mine);
}

#endif
