/* Writes the outcome of attempts: delivery row, duty row and the task's callback_status in one
 * transaction. Called on the outbox thread; the function inside runs on the writer's. Invariant:
 * the duty is updated first and only while it is PENDING, so a result counts once or not at all. */
#include "outbox/parts.h"

#include "base/clock.h"
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
            rc = task_callback_result(batch->tasks, conn, r->task_id, r->round, r->status, r->tries,
                                      err);
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
