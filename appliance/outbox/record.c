/* Writes the outcome of attempts: delivery row, duty row and the task's callback_status in one
 * transaction. Called on the outbox thread; the function inside runs on the writer's. Invariant:
 * the duty is updated first and only while it is PENDING, so a result counts once or not at all. */
#include "outbox/parts.h"

#include "base/clock.h"
#include "base/log.h"
#include "store/store.h"
#include "task/task.h"

#include <string.h>

struct batch {
    struct tasks *tasks;
    struct outbox_slot *const *done; /* borrowed */
    size_t n;
};

static enum rl_rc record_duty(struct store_conn *conn, const struct outbox_result *r,
                              int64_t steady, int64_t *ret_changes, struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_OUTBOX_RECORD);
    int64_t now = rl_wall_ms();
    bool pending = strcmp(r->status, "PENDING") == 0;

    store_bind_int(stmt, ":outbox_id", r->outbox_id);
    store_bind_text(stmt, ":status", r->status);
    store_bind_int(stmt, ":spent", r->spent);
    store_bind_int(stmt, ":next_at", steady + r->wait_ms);
    store_bind_int(stmt, ":finished_at", pending ? 0 : now);
    store_bind_text(stmt, ":last_error", r->error[0] ? r->error : NULL);
    return store_run(stmt, ret_changes, err);
}

static enum rl_rc record_delivery(struct store_conn *conn, const struct outbox_result *r,
                                  struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_DELIVERY_INSERT);

    store_bind_int(stmt, ":outbox_id", r->outbox_id);
    store_bind_int(stmt, ":timestamp", r->timestamp);
    store_bind_int(stmt, ":duration_ms", r->duration_ms);
    store_bind_int(stmt, ":http_status", r->http_status);
    store_bind_text(stmt, ":error", r->error[0] ? r->error : NULL);
    store_bind_text(stmt, ":ip", r->ip[0] ? r->ip : NULL);
    if (r->response)
        store_bind_blob(stmt, ":response", r->response, r->response_len);
    else
        store_bind_text(stmt, ":response", NULL);
    return store_run(stmt, NULL, err);
}

/* What the outcome means for the endpoint. */
static enum rl_rc record_endpoint(struct store_conn *conn, const struct outbox_result *r,
                                  struct rl_err *err)
{
    int64_t now = rl_wall_ms();
    struct store_stmt *count = store_stmt(conn, SQL_ENDPOINT_COUNT);

    store_bind_int(count, ":endpoint_id", r->endpoint_id);
    store_bind_text(count, ":status", r->status);
    store_bind_int(count, ":now", now);
    store_bind_text(count, ":error", r->error[0] ? r->error : NULL);
    enum rl_rc rc = store_run(count, NULL, err);
    if (rc || !r->park)
        return rc;
    struct store_stmt *park = store_stmt(conn, SQL_ENDPOINT_PARK);
    store_bind_int(park, ":endpoint_id", r->endpoint_id);
    store_bind_int(park, ":now", now);
    rc = store_run(park, NULL, err);
    if (rc)
        return rc;
    struct store_stmt *hold = store_stmt(conn, SQL_OUTBOX_HOLD);
    store_bind_int(hold, ":endpoint_id", r->endpoint_id);
    return store_run(hold, NULL, err);
}

/* Whom the duty was for hears of its outcome. */
static enum rl_rc tell(struct tasks *tasks, struct store_conn *conn, const struct outbox_result *r,
                       struct rl_err *err)
{
    if (r->endpoint_id)
        return record_endpoint(conn, r, err);
    return task_callback_result(tasks, conn, r->task_id, r->round, r->status, r->tries, err);
}

static enum rl_rc record_batch(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct batch *batch = arg;
    int64_t steady = store_steady_ms(tasks_store(batch->tasks));

    for (size_t i = 0; i < batch->n; i++) {
        const struct outbox_result *r = &batch->done[i]->result;
        int64_t changes = 0;
        enum rl_rc rc = record_duty(conn, r, steady, &changes, err);
        if (!rc && changes == 0)
            continue; /* purged or decided elsewhere meanwhile: nothing to add */
        if (!rc)
            rc = record_delivery(conn, r, err);
        if (!rc)
            rc = tell(batch->tasks, conn, r, err);
        if (rc)
            return rc;
    }
    return RL_OK;
}

enum rl_rc outbox_record(struct tasks *tasks, struct outbox_slot *const *done, size_t n,
                         struct rl_err *err)
{
    struct batch batch = {.tasks = tasks, .done = done, .n = n};

    return store_write(tasks_store(tasks), STORE_URGENT, record_batch, &batch, err);
}

#define EXPIRE_MOST 256

struct expired {
    struct tasks *tasks;
    const struct outbox_slots *slots; /* borrowed */
    int64_t now;
    struct outbox_result row[EXPIRE_MOST];
    size_t n;
    size_t at, given_up; /* the row at hand; how many were. Set anew by every run */
};

/* Rows whose time is over. Those under way are left to their result, which knows it, too. */
static enum rl_rc read_expired(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct expired *x = arg;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_OUTBOX_EXPIRED);

    x->n = 0;
    store_bind_int(stmt, ":now", x->now);
    store_bind_int(stmt, ":limit", (int64_t)(EXPIRE_MOST + x->slots->n));
    while (x->n < EXPIRE_MOST) {
        bool row = false;
        enum rl_rc rc = store_step(stmt, &row, err);
        if (rc || !row)
            return rc;
        struct outbox_result *r = &x->row[x->n];
        *r = (struct outbox_result){.status = "FAILED"};
        r->outbox_id = store_col_int(stmt, 0);
        r->task_id = store_col_int(stmt, 1);
        r->round = store_col_int(stmt, 2);
        r->endpoint_id = store_col_int(stmt, 3);
        r->tries = store_col_int(stmt, 4);
        (void)rl_copy_str(r->error, sizeof r->error, "older than callback.max_age_s"); /* fits */
        x->n += !outbox_slots_hold(x->slots, r->outbox_id);
    }
    return RL_OK;
}

static enum rl_rc expire_one(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct expired *x = arg;
    int64_t changes = 0;
    enum rl_rc rc = record_duty(conn, &x->row[x->at], x->now, &changes, err);

    return !rc && changes ? tell(x->tasks, conn, &x->row[x->at], err) : rc;
}

/* A row that cannot be given up is logged, and those behind it are given up. */
static enum rl_rc write_expired(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct expired *x = arg;
    char text[300];

    x->given_up = 0;
    for (x->at = 0; x->at < x->n; x->at++) {
        struct rl_err why = {.code = RL_OK};
        enum rl_rc rc = store_try(conn, expire_one, x, &why);
        if (rl_transient(rc))
            return rl_fail(err, rc, "%s", why.reason);
        x->given_up += !rc;
        if (rc)
            rl_log(RL_LOG_ERROR, "callback_not_expired",
                   "task_id=%lld status=- outbox_id=%lld code=%s reason=%s",
                   (long long)x->row[x->at].task_id, (long long)x->row[x->at].outbox_id,
                   rl_code_name(rc), rl_log_quote(why.reason, text, sizeof text));
    }
    return RL_OK;
}

enum rl_rc outbox_expire(struct tasks *tasks, const struct outbox_slots *slots, size_t *ret_count,
                         struct rl_err *err)
{
    struct store *store = tasks_store(tasks);
    AUTO_FREE struct expired *x = calloc(1, sizeof *x); /* too large for a stack */

    if (!x)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    x->tasks = tasks;
    x->slots = slots;
    x->now = store_steady_ms(store);
    enum rl_rc rc = store_read(store, read_expired, x, err);
    if (!rc && x->n)
        rc = store_write(store, STORE_URGENT, write_expired, x, err);
    if (!rc)
        *ret_count = x->given_up;
    return rc;
}
