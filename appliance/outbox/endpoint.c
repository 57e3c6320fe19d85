/* Registered endpoints: what a user may do with its receivers. Any thread but the writer's; the
 * outbox thread hears of it by the doorbell. Invariants: a row of an endpoint that is not ENABLED
 * is held, in the transaction that changed the state; a secret leaves by create and rotate only. */
#include "outbox/outbox.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/webhook.h"
#include "config/config.h"
#include "events/events.h"
#include "outbox/parts.h"
#include "store/store.h"
#include "task/task.h"

#include <inttypes.h>
#include <string.h>

#define JSON_LIMIT ((size_t)8 << 10)
#define LIST_MOST  201 /* a page and the row that says there is a next one */
#define TESTS_KEPT 20
#define TEST_BODY  512

/* One request: what is asked, and the answer as text. */
struct job {
    struct tasks *tasks;
    const struct caller *caller;
    int64_t id;
    const struct outbox_wish *wish;
    const struct page_query *page;
    const char *secret;            /* a new one; NULL = none */
    const char *state;             /* a new one */
    const char *body, *webhook_id; /* of a test event */
    struct rl_buf json;            /* set anew by every run of the function */
};

static const char *whose(const struct caller *caller)
{
    return caller->owner ? NULL : caller->user_id;
}

static void events_json(struct rl_jw *w, const char *events)
{
    if (!events) {
        rl_jw_null(w, "events");
        return;
    }
    rl_jw_array(w, "events");
    while (*events) {
        size_t len = strcspn(events, ",");
        rl_jw_strn(w, NULL, events, len);
        events += len + (events[len] == ',');
    }
    rl_jw_end_array(w);
}

/* The endpoint on which the statement of endpoint_get stands. */
static void endpoint_json(struct rl_jw *w, struct store_stmt *stmt, bool with_secret)
{
    rl_jw_object(w, NULL);
    rl_jw_id(w, "endpoint_id", store_col_int(stmt, 0));
    rl_jw_str(w, "user_id", store_col_text(stmt, 1));
    rl_jw_str(w, "url", store_col_text(stmt, 2));
    events_json(w, store_col_text(stmt, 4));
    rl_jw_str(w, "state", store_col_text(stmt, 5));
    rl_jw_str(w, "description", store_col_text(stmt, 6));
    if (with_secret)
        rl_jw_str(w, "secret", store_col_text(stmt, 13));
    rl_jw_time(w, "old_secret_until", store_col_int(stmt, 14));
    rl_jw_time(w, "created_at", store_col_int(stmt, 7));
    rl_jw_time(w, "updated_at", store_col_int(stmt, 8));
    rl_jw_object(w, "stats");
    rl_jw_i64(w, "pending", store_col_int(stmt, 15));
    rl_jw_i64(w, "succeeded", store_col_int(stmt, 9));
    rl_jw_i64(w, "failed", store_col_int(stmt, 10));
    rl_jw_time(w, "last_success_at", store_col_int(stmt, 11));
    rl_jw_str(w, "last_error", store_col_text(stmt, 12));
    rl_jw_end_object(w);
    rl_jw_end_object(w);
}

/* Step endpoint_get to the job's endpoint. */
static enum rl_rc seek(struct store_conn *conn, const struct job *job, int64_t id,
                       struct store_stmt **ret_stmt, struct rl_err *err)
{
    bool row = false;
    struct store_stmt *stmt = store_stmt(conn, SQL_ENDPOINT_GET);

    store_bind_int(stmt, ":endpoint_id", id);
    store_bind_text(stmt, ":user_id", whose(job->caller));
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc == RL_OK && !row)
        rc = rl_fail(err, RL_NOT_FOUND, "no such endpoint");
    if (rc == RL_OK)
        *ret_stmt = stmt;
    return rc;
}

static enum rl_rc check(struct store_conn *conn, const struct job *job, struct rl_err *err)
{
    AUTO_STMT struct store_stmt *stmt = NULL;

    return seek(conn, job, job->id, &stmt, err);
}

static enum rl_rc show(struct store_conn *conn, struct job *job, bool with_secret,
                       struct rl_err *err)
{
    AUTO_STMT struct store_stmt *stmt = NULL;
    struct rl_jw w;
    enum rl_rc rc = seek(conn, job, job->id, &stmt, err);

    if (rc != RL_OK)
        return rc;
    rl_buf_clear(&job->json);
    rl_jw_init(&w, &job->json, false);
    endpoint_json(&w, stmt, with_secret);
    return store_col_lost(stmt) ? rl_fail(err, RL_NO_MEMORY, "endpoint")
                                : rl_buf_ok(&job->json, err);
}

/* Run fn on the writer (or, read only, a reader), append its answer, wake the outbox. What makes
 * rows asks store_admit itself; the rest frees room, or changes rows in place. */
static enum rl_rc perform(struct job *job, bool writes, store_fn fn, struct rl_buf *out,
                          struct rl_err *err)
{
    struct store *store = tasks_store(job->tasks);
    enum rl_rc rc;

    rl_buf_init(&job->json, job->page ? JSON_LIMIT * LIST_MOST : JSON_LIMIT);
    rc = writes ? store_write(store, STORE_URGENT, fn, job, err) : store_read(store, fn, job, err);
    if (rc == RL_OK && writes)
        hub_ring(tasks_hub(job->tasks));
    if (rc == RL_OK && out) {
        rl_buf_append(out, job->json.data, job->json.len);
        rc = rl_buf_ok(out, err);
    }
    if (job->secret && job->json.data)
        rl_wipe(job->json.data, job->json.len);
    rl_buf_free(&job->json);
    return rc;
}

/* ---- create ---- */

static enum rl_rc create(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct job *job = arg;
    int64_t n = 0, most = config_int(tasks_config(job->tasks), CFG_CALLBACK_ENDPOINTS);
    struct store_stmt *count = store_stmt(conn, SQL_ENDPOINT_COUNT_USER);

    store_bind_text(count, ":user_id", job->caller->user_id);
    enum rl_rc rc = store_admit(tasks_store(job->tasks), err);
    if (rc == RL_OK)
        rc = store_int(count, 0, &n, err);
    if (rc == RL_OK && n >= most)
        rc = rl_fail(err, RL_CONFLICT, "you have %" PRId64 " endpoints, as many as allowed", n);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_ENDPOINT_INSERT);
    store_bind_text(stmt, ":user_id", job->caller->user_id);
    store_bind_text(stmt, ":url", job->wish->url);
    store_bind_text(stmt, ":host", job->wish->host);
    store_bind_text(stmt, ":secret", job->secret);
    store_bind_text(stmt, ":events", job->wish->events[0] ? job->wish->events : NULL);
    store_bind_text(stmt, ":description", job->wish->description);
    store_bind_int(stmt, ":now", rl_wall_ms());
    rc = store_run(stmt, NULL, err);
    job->id = store_last_rowid(conn);
    return rc == RL_OK ? show(conn, job, true, err) : rc;
}

enum rl_rc endpoint_create(struct tasks *tasks, const struct caller *caller, const char *body,
                           size_t len, struct rl_buf *out, struct rl_err *err)
{
    static const char *const fields[] = {"url", "events", "secret", "description", NULL};
    AUTO_WISH struct outbox_wish wish = {0};
    char secret[RL_WEBHOOK_SECRET];
    enum rl_rc rc = outbox_wish_parse(tasks_policy(tasks), fields, body, len, &wish, err);

    if (rc == RL_OK && !wish.has_url)
        rc = rl_fail_field(err, RL_INVALID_FIELD, "url", "is required");
    if (rc != RL_OK)
        return rc;
    rl_webhook_secret(secret);
    struct job job = {.tasks = tasks,
                      .caller = caller,
                      .wish = &wish,
                      .secret = wish.secret ? wish.secret : secret};
    rc = perform(&job, true, create, out, err);
    rl_wipe(secret, sizeof secret);
    return rc;
}

/* ---- read ---- */

static enum rl_rc get(struct store_conn *conn, void *arg, struct rl_err *err)
{
    return show(conn, arg, false, err);
}

enum rl_rc endpoint_get(struct tasks *tasks, const struct caller *caller, int64_t endpoint_id,
                        struct rl_buf *out, struct rl_err *err)
{
    struct job job = {.tasks = tasks, .caller = caller, .id = endpoint_id};

    return perform(&job, false, get, out, err);
}

static enum rl_rc list_ids(struct store_conn *conn, const struct job *job, int64_t *ids,
                           size_t *ret_count, struct rl_err *err)
{
    const struct page_query *page = job->page;
    AUTO_STMT struct store_stmt *stmt =
        store_stmt(conn, page->ascending ? SQL_ENDPOINT_LIST_ASC : SQL_ENDPOINT_LIST_DESC);
    size_t n = 0;

    store_bind_text(stmt, ":user_id", whose(job->caller));
    store_bind_int(stmt, ":after", page->after ? page->after : page->ascending ? 0 : INT64_MAX);
    store_bind_int(stmt, ":limit", page->limit + 1);
    while (n < LIST_MOST) {
        bool row = false;
        enum rl_rc rc = store_step(stmt, &row, err);
        if (rc != RL_OK)
            return rc;
        if (!row)
            break;
        ids[n++] = store_col_int(stmt, 0);
    }
    *ret_count = n;
    return RL_OK;
}

static enum rl_rc list(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct job *job = arg;
    int64_t ids[LIST_MOST];
    size_t n = 0, limit = (size_t)job->page->limit;
    struct rl_jw w;
    enum rl_rc rc = list_ids(conn, job, ids, &n, err);

    rl_buf_clear(&job->json);
    rl_jw_init(&w, &job->json, false);
    rl_jw_object(&w, NULL);
    rl_jw_array(&w, "data");
    for (size_t i = 0; i < n && i < limit && rc == RL_OK; i++) {
        AUTO_STMT struct store_stmt *stmt = NULL;
        rc = seek(conn, job, ids[i], &stmt, err);
        if (rc == RL_OK)
            endpoint_json(&w, stmt, false);
    }
    rl_jw_end_array(&w);
    rl_jw_id(&w, "next", n > limit ? ids[limit - 1] : 0);
    rl_jw_end_object(&w);
    return rc == RL_OK ? rl_buf_ok(&job->json, err) : rc;
}

enum rl_rc endpoint_list(struct tasks *tasks, const struct caller *caller,
                         const struct page_query *page, struct rl_buf *out, struct rl_err *err)
{
    struct job job = {.tasks = tasks, .caller = caller, .page = page};

    return perform(&job, false, list, out, err);
}

/* ---- update ---- */

/* The row as it will be: what the wish does not name stays. Borrows from `old` until it is reset.
 */
static void bind_update(const struct job *job, struct store_stmt *stmt, struct store_stmt *old)
{
    const struct outbox_wish *wish = job->wish;
    const char *events = wish->events[0] ? wish->events : NULL;

    store_bind_int(stmt, ":endpoint_id", job->id);
    store_bind_text(stmt, ":url", wish->has_url ? wish->url : store_col_text(old, 2));
    store_bind_text(stmt, ":host", wish->has_url ? wish->host : store_col_text(old, 3));
    store_bind_text(stmt, ":events", wish->has_events ? events : store_col_text(old, 4));
    store_bind_text(stmt, ":description",
                    wish->has_description ? wish->description : store_col_text(old, 6));
    store_bind_int(stmt, ":now", rl_wall_ms());
}

static enum rl_rc update(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct job *job = arg;
    struct store_stmt *old = NULL;
    enum rl_rc rc = seek(conn, job, job->id, &old, err);

    if (rc != RL_OK)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_ENDPOINT_UPDATE);
    bind_update(job, stmt, old);
    rc = store_col_lost(old) ? rl_fail(err, RL_NO_MEMORY, "endpoint") : store_run(stmt, NULL, err);
    store_reset(old);
    if (rc == RL_OK && job->wish->has_url) {
        struct store_stmt *follow = store_stmt(conn, SQL_OUTBOX_FOLLOW);
        store_bind_int(follow, ":endpoint_id", job->id);
        store_bind_text(follow, ":url", job->wish->url);
        store_bind_text(follow, ":host", job->wish->host);
        rc = store_run(follow, NULL, err);
    }
    return rc == RL_OK ? show(conn, job, false, err) : rc;
}

enum rl_rc endpoint_update(struct tasks *tasks, const struct caller *caller, int64_t endpoint_id,
                           const char *body, size_t len, struct rl_buf *out, struct rl_err *err)
{
    static const char *const fields[] = {"url", "events", "description", NULL};
    AUTO_WISH struct outbox_wish wish = {0};
    enum rl_rc rc = outbox_wish_parse(tasks_policy(tasks), fields, body, len, &wish, err);

    if (rc != RL_OK)
        return rc;
    struct job job = {.tasks = tasks, .caller = caller, .id = endpoint_id, .wish = &wish};
    return perform(&job, true, update, out, err);
}

/* ---- delete ---- */

/* What it was to hear of its tasks stays with them; its test events have nobody else. */
static enum rl_rc erase(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct job *job = arg;
    enum rl_rc rc = check(conn, job, err);

    if (rc != RL_OK)
        return rc;
    struct store_stmt *abandon = store_stmt(conn, SQL_OUTBOX_ABANDON);
    store_bind_int(abandon, ":endpoint_id", job->id);
    store_bind_int(abandon, ":now", rl_wall_ms());
    rc = store_run(abandon, NULL, err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *tests = store_stmt(conn, SQL_OUTBOX_TRIM_TESTS);
    store_bind_int(tests, ":endpoint_id", job->id);
    store_bind_int(tests, ":keep", 0);
    rc = store_run(tests, NULL, err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_ENDPOINT_DELETE);
    store_bind_int(stmt, ":endpoint_id", job->id);
    return store_run(stmt, NULL, err);
}

enum rl_rc endpoint_delete(struct tasks *tasks, const struct caller *caller, int64_t endpoint_id,
                           struct rl_err *err)
{
    struct job job = {.tasks = tasks, .caller = caller, .id = endpoint_id};

    return perform(&job, true, erase, NULL, err);
}

/* ---- rotate ---- */

static enum rl_rc rotate(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct job *job = arg;
    int64_t grace_s = job->wish->grace_s, until = 0, now = rl_wall_ms();
    struct store_stmt *old = NULL;
    enum rl_rc rc = seek(conn, job, job->id, &old, err);

    if (rc == RL_OK)
        until = store_col_int(old, 14);
    store_reset(old);
    if (grace_s < 0)
        grace_s = config_int(tasks_config(job->tasks), CFG_CALLBACK_ROTATION_GRACE_S);
    if (rc == RL_OK && grace_s > 0 && until > now) /* two secrets sign at most */
        rc = rl_fail_field(err, RL_CONFLICT, "grace_s", RL_WEBHOOK_ROTATING);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_ENDPOINT_ROTATE);
    store_bind_int(stmt, ":endpoint_id", job->id);
    store_bind_text(stmt, ":secret", job->secret);
    store_bind_int(stmt, ":until", now + grace_s * 1000);
    store_bind_int(stmt, ":now", now);
    rc = store_run(stmt, NULL, err);
    return rc == RL_OK ? show(conn, job, true, err) : rc;
}

enum rl_rc endpoint_rotate(struct tasks *tasks, const struct caller *caller, int64_t endpoint_id,
                           const char *body, size_t len, struct rl_buf *out, struct rl_err *err)
{
    static const char *const fields[] = {"secret", "grace_s", NULL};
    AUTO_WISH struct outbox_wish wish = {0};
    char secret[RL_WEBHOOK_SECRET];
    enum rl_rc rc = outbox_wish_parse(tasks_policy(tasks), fields, body, len, &wish, err);

    if (rc != RL_OK)
        return rc;
    rl_webhook_secret(secret);
    struct job job = {.tasks = tasks,
                      .caller = caller,
                      .id = endpoint_id,
                      .wish = &wish,
                      .secret = wish.secret ? wish.secret : secret};
    rc = perform(&job, true, rotate, out, err);
    rl_wipe(secret, sizeof secret);
    return rc;
}

/* ---- enable, disable ---- */

static enum rl_rc set_state(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct job *job = arg;
    bool enable = strcmp(job->state, "ENABLED") == 0;
    enum rl_rc rc = check(conn, job, err);

    if (rc != RL_OK)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_ENDPOINT_STATE);
    store_bind_int(stmt, ":endpoint_id", job->id);
    store_bind_text(stmt, ":state", job->state);
    store_bind_int(stmt, ":now", rl_wall_ms());
    rc = store_run(stmt, NULL, err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *rows = store_stmt(conn, enable ? SQL_OUTBOX_RELEASE : SQL_OUTBOX_HOLD);
    store_bind_int(rows, ":endpoint_id", job->id);
    if (enable)
        store_bind_int(rows, ":steady", store_steady_ms(tasks_store(job->tasks)));
    rc = store_run(rows, NULL, err);
    return rc == RL_OK ? show(conn, job, false, err) : rc;
}

enum rl_rc endpoint_enable(struct tasks *tasks, const struct caller *caller, int64_t endpoint_id,
                           bool enable, struct rl_buf *out, struct rl_err *err)
{
    struct job job = {.tasks = tasks,
                      .caller = caller,
                      .id = endpoint_id,
                      .state = enable ? "ENABLED" : "DISABLED"};

    return perform(&job, true, set_state, out, err);
}

/* ---- test ---- */

static enum rl_rc insert_test(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct job *job = arg;
    struct store *store = tasks_store(job->tasks);
    int64_t steady = store_steady_ms(store);
    int64_t age_ms = config_int(tasks_config(job->tasks), CFG_CALLBACK_MAX_AGE_S) * 1000;
    enum rl_rc rc = check(conn, job, err);

    if (rc == RL_OK)
        rc = store_admit(store, err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_OUTBOX_INSERT_TEST);
    store_bind_int(stmt, ":endpoint_id", job->id);
    store_bind_text(stmt, ":webhook_id", job->webhook_id);
    store_bind_blob(stmt, ":body", job->body, strlen(job->body));
    store_bind_int(stmt, ":next_at", steady);
    store_bind_int(stmt, ":expires_at", steady + age_ms);
    store_bind_int(stmt, ":now", rl_wall_ms());
    rc = store_run(stmt, NULL, err);
    if (rc != RL_OK)
        return rc;
    int64_t outbox_id = store_last_rowid(conn);
    struct store_stmt *trim = store_stmt(conn, SQL_OUTBOX_TRIM_TESTS);
    store_bind_int(trim, ":endpoint_id", job->id);
    store_bind_int(trim, ":keep", TESTS_KEPT);
    rc = store_run(trim, NULL, err);
    rl_buf_clear(&job->json);
    return rc == RL_OK ? outbox_show(store, conn, whose(job->caller), outbox_id, &job->json, err)
                       : rc;
}

enum rl_rc endpoint_test(struct tasks *tasks, const struct caller *caller, int64_t endpoint_id,
                         struct rl_buf *out, struct rl_err *err)
{
    uint8_t bits[8];
    char hex[2 * sizeof bits + 1], id[64];
    struct rl_jw w;
    AUTO_BUF struct rl_buf body = {0};

    rl_random(bits, sizeof bits);
    rl_hex(bits, sizeof bits, hex);
    (void)snprintf(id, sizeof id, "evt_test_%s", hex); /* fits */
    rl_buf_init(&body, TEST_BODY);
    rl_jw_init(&w, &body, true);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "type", "endpoint.test");
    rl_jw_time(&w, "timestamp", rl_wall_ms());
    rl_jw_null(&w, "task_id");
    rl_jw_id(&w, "endpoint_id", endpoint_id);
    rl_jw_end_object(&w);
    enum rl_rc rc = rl_buf_ok(&body, err);
    if (rc != RL_OK)
        return rc;
    struct job job = {
        .tasks = tasks, .caller = caller, .id = endpoint_id, .webhook_id = id, .body = body.data};
    return perform(&job, true, insert_test, out, err);
}
