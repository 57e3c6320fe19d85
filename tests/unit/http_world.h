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

/* deadline_ms of a body, timeout_ms of silence. */
static inline int server_start_with(void **state, const char *deadline_ms, const char *timeout_ms)
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
    set(s, "limit.pending_tasks", "0");
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

static inline int server_start(void **state)
{
    return server_start_with(state, "700", "2000");
}

/* For tests that hold requests half sent, on however slow a machine. */
static inline int server_start_patient(void **state)
{
    return server_start_with(state, "60000", "30000");
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

#endif
