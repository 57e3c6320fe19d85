/* Sources: what an owner may do with the outside services that post events. Any thread but the
 * writer's. Invariants: a secret leaves by create and rotate only; a source that was removed knows
 * its events no more, also when another of its name is made. */
#include "inbound/inbound.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/webhook.h"
#include "config/config.h"
#include "store/store.h"
#include "task/task.h"

#include <inttypes.h>
#include <string.h>

#define JSON_LIMIT  ((size_t)16 << 10)
#define PURGE_SLICE 1000 /* rows a write may remove, so that none is long */

/* One request: what is asked, and the answer as text. */
struct job {
    struct tasks *tasks;
    const char *source;
    const struct inbound_wish *wish;
    const char *secret; /* a new one; NULL = none */
    int64_t hook_id;    /* set anew by every run, like purged */
    int64_t purged;
    struct rl_buf json; /* the same */
};

bool inbound_source_valid(const char *source)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t len = strspn(source, allowed);

    return len >= 1 && len < INBOUND_SOURCE_TEXT && !source[len] && source[0] != '_' &&
           source[0] != '-';
}

static void allow_json(struct rl_jw *w, const char *allow)
{
    rl_jw_array(w, "allow");
    while (allow && *allow) {
        size_t len = strcspn(allow, ",");
        rl_jw_strn(w, NULL, allow, len);
        allow += len + (allow[len] == ',');
    }
    rl_jw_end_array(w);
}

/* The source on which the statement of hook_get stands. */
static void source_json(const struct job *job, struct rl_jw *w, struct store_stmt *stmt)
{
    char url[1200];
    const char *source = store_col_text(stmt, 1);

    (void)snprintf(url, sizeof url, "%s/api/v1/hooks/%s", tasks_public_url(job->tasks),
                   source ? source : ""); /* fits */
    rl_jw_object(w, NULL);
    rl_jw_str(w, "source", source);
    rl_jw_str(w, "url", url);
    if (job->secret)
        rl_jw_str(w, "secret", store_col_text(stmt, 9));
    allow_json(w, store_col_text(stmt, 2));
    if (store_col_int(stmt, 3) >= 0)
        rl_jw_i64(w, "per_minute", store_col_int(stmt, 3));
    else
        rl_jw_null(w, "per_minute");
    rl_jw_bool(w, "enabled", store_col_int(stmt, 4));
    rl_jw_time(w, "old_secret_until", store_col_int(stmt, 11));
    rl_jw_time(w, "created_at", store_col_int(stmt, 5));
    rl_jw_time(w, "updated_at", store_col_int(stmt, 6));
    rl_jw_object(w, "stats");
    rl_jw_i64(w, "received", store_col_int(stmt, 7));
    rl_jw_i64(w, "waiting", store_col_int(stmt, 12));
    rl_jw_time(w, "last_event_at", store_col_int(stmt, 8));
    rl_jw_end_object(w);
    rl_jw_end_object(w);
}

/* Write the source into w; *ret_there: false = there is none, and nothing was written. */
static enum rl_rc write_source(struct store_conn *conn, const struct job *job, const char *source,
                               struct rl_jw *w, bool *ret_there, struct rl_err *err)
{
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_HOOK_GET);

    store_bind_text(stmt, ":source", source);
    store_bind_int(stmt, ":now", rl_wall_ms());
    enum rl_rc rc = store_step(stmt, ret_there, err);
    if (rc != RL_OK || !*ret_there)
        return rc;
    source_json(job, w, stmt);
    return store_col_lost(stmt) ? rl_fail(err, RL_NO_MEMORY, "source") : RL_OK;
}

static enum rl_rc missing(struct rl_err *err)
{
    return rl_fail(err, RL_NOT_FOUND, "no such source");
}

static enum rl_rc show(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct job *job = arg;
    struct rl_jw w;
    bool there = false;

    rl_buf_clear(&job->json);
    rl_jw_init(&w, &job->json, false);
    enum rl_rc rc = write_source(conn, job, job->source, &w, &there, err);
    if (rc == RL_OK && !there)
        rc = missing(err);
    return rc == RL_OK ? rl_buf_ok(&job->json, err) : rc;
}

/* Run fn on the writer (or, read only, a reader) and append its answer. What makes rows asks
 * store_admit itself; a source is to be switched off also when the disk is full. */
static enum rl_rc perform(struct job *job, bool writes, size_t limit, store_fn fn,
                          struct rl_buf *out, struct rl_err *err)
{
    struct store *store = tasks_store(job->tasks);

    rl_buf_init(&job->json, limit);
    enum rl_rc rc =
        writes ? store_write(store, STORE_URGENT, fn, job, err) : store_read(store, fn, job, err);
    if (rc == RL_OK && out) {
        rl_buf_append(out, job->json.data, job->json.len);
        rc = rl_buf_ok(out, err);
    }
    if (job->secret && job->json.data)
        rl_wipe(job->json.data, job->json.len);
    rl_buf_free(&job->json);
    return rc;
}

/* ---- create, get, list ---- */

static enum rl_rc create(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct job *job = arg;
    const struct inbound_wish *wish = job->wish;
    int64_t n = 0, made = 0, most = config_int(tasks_config(job->tasks), CFG_HOOK_SOURCES);
    enum rl_rc rc = store_admit(tasks_store(job->tasks), err);

    if (rc == RL_OK)
        rc = store_int(store_stmt(conn, SQL_HOOK_COUNT), 0, &n, err);
    if (rc == RL_OK && n >= most)
        rc = rl_fail(err, RL_CONFLICT, "there are %" PRId64 " sources, as many as allowed", n);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_HOOK_INSERT);
    store_bind_text(stmt, ":source", job->source);
    store_bind_text(stmt, ":secret", job->secret);
    store_bind_text(stmt, ":allow", wish->allow ? wish->allow : "");
    store_bind_int(stmt, ":per_minute", wish->has_per_minute ? wish->per_minute : -1);
    store_bind_int(stmt, ":enabled", wish->has_enabled ? wish->enabled : 1);
    store_bind_int(stmt, ":now", rl_wall_ms());
    rc = store_run(stmt, &made, err);
    if (rc == RL_OK && made == 0)
        rc = rl_fail(err, RL_CONFLICT, "there is a source of this name already");
    return rc == RL_OK ? show(conn, job, err) : rc;
}

enum rl_rc inbound_source_create(struct tasks *tasks, const char *source,
                                 const struct inbound_wish *wish, struct rl_buf *out,
                                 struct rl_err *err)
{
    char secret[RL_WEBHOOK_SECRET];

    if (!inbound_source_valid(source))
        return rl_fail_field(err, RL_INVALID_FIELD, "source",
                             "must be 1 to %d of a-z 0-9 _ -, the first a letter or a digit",
                             INBOUND_SOURCE_TEXT - 1);
    rl_webhook_secret(secret);
    struct job job = {.tasks = tasks,
                      .source = source,
                      .wish = wish,
                      .secret = wish->secret ? wish->secret : secret};
    enum rl_rc rc = perform(&job, true, JSON_LIMIT, create, out, err);
    rl_wipe(secret, sizeof secret);
    if (rc == RL_OK)
        rl_log(RL_LOG_INFO, "hook_added", "source=%s", source);
    return rc;
}

enum rl_rc inbound_source_get(struct tasks *tasks, const char *source, struct rl_buf *out,
                              struct rl_err *err)
{
    struct job job = {.tasks = tasks, .source = source};

    return perform(&job, false, JSON_LIMIT, show, out, err);
}

static enum rl_rc list(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct job *job = arg;
    bool row = false, there;
    struct rl_jw w;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_HOOK_LIST);
    enum rl_rc rc = store_step(stmt, &row, err);

    rl_buf_clear(&job->json);
    rl_jw_init(&w, &job->json, false);
    rl_jw_object(&w, NULL);
    rl_jw_array(&w, "data");
    while (rc == RL_OK && row) {
        const char *source = store_col_text(stmt, 0);
        rc = source ? write_source(conn, job, source, &w, &there, err)
                    : rl_fail(err, RL_NO_MEMORY, "sources");
        if (rc == RL_OK)
            rc = store_step(stmt, &row, err);
    }
    rl_jw_end_array(&w);
    rl_jw_null(&w, "next");
    rl_jw_end_object(&w);
    return rc == RL_OK ? rl_buf_ok(&job->json, err) : rc;
}

enum rl_rc inbound_source_list(struct tasks *tasks, struct rl_buf *out, struct rl_err *err)
{
    struct job job = {.tasks = tasks};
    int64_t most = config_int(tasks_config(tasks), CFG_HOOK_SOURCES);

    return perform(&job, false, JSON_LIMIT * (size_t)(most + 1), list, out, err);
}

/* ---- update, rotate, delete ---- */

/* Run a statement that must change the one source, then show it. */
static enum rl_rc change(struct store_conn *conn, struct job *job, struct store_stmt *stmt,
                         struct rl_err *err)
{
    int64_t changed = 0;
    enum rl_rc rc = store_run(stmt, &changed, err);

    if (rc == RL_OK && changed == 0)
        rc = missing(err);
    return rc == RL_OK ? show(conn, job, err) : rc;
}

static enum rl_rc update(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct job *job = arg;
    struct store_stmt *stmt = store_stmt(conn, SQL_HOOK_UPDATE);

    store_bind_text(stmt, ":source", job->source);
    store_bind_text(stmt, ":allow", job->wish->allow);
    if (job->wish->has_per_minute)
        store_bind_int(stmt, ":per_minute", job->wish->per_minute);
    if (job->wish->has_enabled)
        store_bind_int(stmt, ":enabled", job->wish->enabled);
    store_bind_int(stmt, ":now", rl_wall_ms());
    return change(conn, job, stmt, err);
}

enum rl_rc inbound_source_update(struct tasks *tasks, const char *source,
                                 const struct inbound_wish *wish, struct rl_buf *out,
                                 struct rl_err *err)
{
    struct job job = {.tasks = tasks, .source = source, .wish = wish};

    return perform(&job, true, JSON_LIMIT, update, out, err);
}

/* Two secrets are valid at most: while a former one is, only a rotation that leaves none may
 * follow.
 */
static enum rl_rc check_grace(struct store_conn *conn, const struct job *job, int64_t now,
                              struct rl_err *err)
{
    bool row = false;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_HOOK_GET);

    store_bind_text(stmt, ":source", job->source);
    store_bind_int(stmt, ":now", now);
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc == RL_OK && row && job->wish->grace_s > 0 && store_col_int(stmt, 11) > now)
        rc = rl_fail_field(err, RL_CONFLICT, "grace_s", RL_WEBHOOK_ROTATING);
    return rc;
}

static enum rl_rc rotate(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct job *job = arg;
    int64_t now = rl_wall_ms();
    enum rl_rc rc = check_grace(conn, job, now, err);

    if (rc != RL_OK)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_HOOK_ROTATE);

    store_bind_text(stmt, ":source", job->source);
    store_bind_text(stmt, ":secret", job->secret);
    store_bind_int(stmt, ":until", now + job->wish->grace_s * 1000);
    store_bind_int(stmt, ":now", now);
    return change(conn, job, stmt, err);
}

enum rl_rc inbound_source_rotate(struct tasks *tasks, const char *source,
                                 const struct inbound_wish *wish, struct rl_buf *out,
                                 struct rl_err *err)
{
    char secret[RL_WEBHOOK_SECRET];

    rl_webhook_secret(secret);
    struct job job = {.tasks = tasks,
                      .source = source,
                      .wish = wish,
                      .secret = wish->secret ? wish->secret : secret};
    enum rl_rc rc = perform(&job, true, JSON_LIMIT, rotate, out, err);
    rl_wipe(secret, sizeof secret);
    if (rc == RL_OK)
        rl_log(RL_LOG_INFO, "hook_rotated", "source=%s", source);
    return rc;
}

/* The source itself: from here on nobody sees its events. */
static enum rl_rc delete_source(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct job *job = arg;
    bool row = false;
    struct store_stmt *get = store_stmt(conn, SQL_HOOK_GET);

    store_bind_text(get, ":source", job->source);
    store_bind_int(get, ":now", 0);
    enum rl_rc rc = store_step(get, &row, err);
    job->hook_id = rc == RL_OK && row ? store_col_int(get, 0) : 0;
    store_reset(get);
    if (rc == RL_OK && !row)
        rc = missing(err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_HOOK_DELETE);
    store_bind_text(stmt, ":source", job->source);
    return store_run(stmt, NULL, err);
}

static enum rl_rc purge_slice(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct job *job = arg;
    struct store_stmt *stmt = store_stmt(conn, SQL_INBOUND_PURGE_HOOK);

    store_bind_int(stmt, ":hook_id", job->hook_id);
    store_bind_int(stmt, ":limit", PURGE_SLICE);
    return store_run(stmt, &job->purged, err);
}

enum rl_rc inbound_source_delete(struct tasks *tasks, const char *source, struct rl_err *err)
{
    struct job job = {.tasks = tasks, .source = source};
    struct store *store = tasks_store(tasks);
    enum rl_rc rc = store_write(store, STORE_URGENT, delete_source, &job, err);

    if (rc != RL_OK)
        return rc;
    rl_log(RL_LOG_INFO, "hook_removed", "source=%s", source);
    do { /* what a crash leaves here goes by its age */
        rc = store_write(store, STORE_URGENT, purge_slice, &job, err);
    } while (rc == RL_OK && job.purged == PURGE_SLICE);
    return rc;
}
