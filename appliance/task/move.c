/* task_move: every change of a task's state, with its history row, its callback duty and what the
 * change means for the other fields, in the writer's transaction; the doorbell and the log line
 * follow the COMMIT. Runs on the writer thread only. */
#include "task/internal.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "events/events.h"

#include <string.h>

/* What travels from the transaction to the doorbell; one malloc. */
struct announcement {
    int64_t seq, task_id, timestamp, attempt, since, due;
    int waiting_change;
    char user_id[64], from[16], to[16], worker_id[32], reason[128];
};

static void announce(void *ctx, void *arg)
{
    struct tasks *tasks = ctx;
    const struct announcement *a = arg;
    const char *from = a->from[0] ? a->from : NULL, *worker = a->worker_id[0] ? a->worker_id : NULL;
    char text[1024];
    struct rl_buf buf;
    struct rl_jw w;
    rl_buf_init(&buf, sizeof text);
    rl_jw_init(&w, &buf, false);
    task_event_json(&w, a->seq, a->task_id, a->timestamp, from, a->to, a->attempt, worker,
                    a->reason[0] ? a->reason : NULL);
    struct hub_event event = {
        .seq = a->seq, .task_id = a->task_id, .json = buf.failed ? "" : buf.data};
    (void)rl_copy_str(event.user_id, sizeof event.user_id, a->user_id);
    (void)rl_copy_str(event.to_status, sizeof event.to_status, a->to);
    enum task_status status;
    atomic_fetch_add(&tasks->waiting, a->waiting_change);
    if (task_status_parse(a->to, &status))
        atomic_fetch_add(&tasks->entered[status], 1);
    if (task_status_parse(from, &status))
        stats_stay(tasks, status, a->since);
    if (strcmp(a->from, "FAILED") == 0 || strcmp(a->from, "TIMEOUT") == 0)
        cache_drop(tasks->cache, a->task_id); /* a replay */
    hub_publish(tasks->hub, &event);
    if (a->due)
        schedule_hint(tasks, a->due);
    rl_buf_free(&buf);
    rl_log(RL_LOG_INFO, "task_moved",
           "task_id=%lld from=%s status=%s attempt=%lld worker_id=%s after_ms=%lld reason=%s",
           (long long)a->task_id, from ? from : "-", a->to, (long long)a->attempt,
           worker ? worker : "-", (long long)a->since, rl_log_quote(a->reason, text, 200));
}

static int waits(const char *status)
{
    return status && (strcmp(status, "CREATED") == 0 || strcmp(status, "QUEUED") == 0);
}

/* The history row; returns its seq and queues the announcement. */
static enum rl_rc write_event(struct tasks *tasks, struct store_conn *conn, const struct task *task,
                              const char *from, const char *to, int64_t now, const char *worker_id,
                              const char *reason, int64_t *ret_seq, struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_EVENT_INSERT);
    store_bind_int(stmt, ":task_id", task->task_id);
    store_bind_text(stmt, ":user_id", task->user_id);
    store_bind_int(stmt, ":timestamp", now);
    store_bind_text(stmt, ":from_status", from);
    store_bind_text(stmt, ":to_status", to);
    store_bind_int(stmt, ":attempt", task->attempt);
    store_bind_text(stmt, ":worker_id", worker_id);
    store_bind_text(stmt, ":reason", reason);
    enum rl_rc rc = store_run(stmt, NULL, err);
    if (rc != RL_OK)
        return rc;
    struct announcement *a = calloc(1, sizeof *a);
    if (!a)
        return rl_fail(err, RL_NO_MEMORY, "task event");
    a->seq = store_last_rowid(conn);
    a->task_id = task->task_id;
    a->timestamp = now;
    a->attempt = task->attempt;
    a->since = task->updated_at ? now - task->updated_at : 0;
    a->due = strcmp(to, "CREATED") == 0  ? task->input_at
             : strcmp(to, "QUEUED") != 0 ? 0
             : task->not_before          ? task->not_before
                                         : task->queue_due_at;
    a->waiting_change = waits(to) - waits(from);
    (void)rl_copy_str(a->user_id, sizeof a->user_id, task->user_id);
    (void)rl_copy_str(a->from, sizeof a->from, from ? from : "");
    (void)rl_copy_str(a->to, sizeof a->to, to);
    (void)rl_copy_str(a->worker_id, sizeof a->worker_id, worker_id ? worker_id : "");
    (void)snprintf(a->reason, sizeof a->reason, "%s",
                   reason ? reason : ""); /* cut is fine: the row has it whole */
    *ret_seq = a->seq;
    return store_on_commit(conn, announce, tasks, a, err);
}

/* Snowflake: 41 bits of ms, 10 of node, 12 of sequence; only grows, whatever the clock says. */
static int64_t next_id(struct tasks *tasks)
{
    int64_t node = config_int(tasks->cfg, CFG_NODE_ID);
    int64_t clock = (rl_wall_ms() << 22) | (node << 12);
    int64_t next = tasks->last_id + 1;
    if (((next >> 12) & 0x3ff) != node) /* the sequence ran over, or the node id changed */
        next = (((next >> 22) + 1) << 22) | (node << 12);
    tasks->last_id = clock > next ? clock : next;
    return tasks->last_id;
}

#define BIND_INT(name)          store_bind_int(stmt, ":" #name, task->name);
#define BIND_REAL(name)         store_bind_real(stmt, ":" #name, task->name);
#define BIND_TEXT(name)         store_bind_text(stmt, ":" #name, task->name);
#define BIND_COLUMN(type, name) BIND_##type(name)

enum rl_rc task_create(struct tasks *tasks, struct store_conn *conn, struct task *task,
                       struct rl_err *err)
{
    task->task_id = next_id(tasks);
    task->round = 1;
    enum rl_rc rc = task_set_text(&task->status, "CREATED", err);
    if (rc == RL_OK)
        rc = task_set_text(&task->callback_status, task->callback_url ? "PENDING" : NULL, err);
    if (rc == RL_OK)
        rc = write_event(tasks, conn, task, NULL, "CREATED", task->created_at, NULL, NULL,
                         &task->version, err);
    if (rc != RL_OK)
        return rc;
    task->updated_at = task->created_at;
    struct store_stmt *stmt = store_stmt(conn, SQL_TASK_INSERT);
    TASK_COLUMNS(BIND_COLUMN)
    return store_run(stmt, NULL, err);
}

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Tasks of the same user that wait already, as far as fairness asks. */
static enum rl_rc fair_setback(struct tasks *tasks, struct store_conn *conn,
                               const struct task *task, int64_t *ret_ms, struct rl_err *err)
{
    int64_t step = config_int(tasks->cfg, CFG_QUEUE_FAIR_STEP_MS), waiting = 0;
    *ret_ms = 0;
    if (step == 0)
        return RL_OK;
    struct store_stmt *stmt = store_stmt(conn, SQL_USER_WAITING);
    store_bind_text(stmt, ":user_id", task->user_id);
    enum rl_rc rc = store_int(stmt, 0, &waiting, err);
    if (rc != RL_OK)
        return rc;
    *ret_ms = step * max_i64(0, waiting - 1); /* itself is CREATED by now */
    return RL_OK;
}

static enum rl_rc enter_queue(struct tasks *tasks, struct store_conn *conn, struct task *task,
                              const struct task_move *move, int64_t now, struct rl_err *err)
{
    if (move->from == TASK_FAILED || move->from == TASK_TIMEOUT) { /* the next round */
        task->round++;
        task->retry_count = task->requeue_count = task->crash_count = task->best_step = 0;
        task->finished_at = task->dismissed_at = task->callback_retry = 0;
        enum rl_rc rc = task_set_text(&task->error_code, NULL, err);
        if (rc == RL_OK)
            rc = task_set_text(&task->error_msg, NULL, err);
        if (rc == RL_OK)
            rc = task_set_text(&task->callback_status, task->callback_url ? "PENDING" : NULL, err);
        if (rc != RL_OK)
            return rc;
    }
    if (move->from != TASK_PROCESSING && move->from != TASK_QUEUED) {
        int64_t setback;
        enum rl_rc rc = fair_setback(tasks, conn, task, &setback, err);
        if (rc != RL_OK)
            return rc;
        task->queued_at = now;
        task->rank = store_steady_ms(tasks->store) -
                     task->priority * config_int(tasks->cfg, CFG_QUEUE_STEP_MS) + setback;
    }
    task->retry_count += move->charge == CHARGE_RETRY;
    task->requeue_count += move->charge == CHARGE_REQUEUE;
    task->crash_count += move->charge == CHARGE_CRASH;
    task->attempt -= move->charge == CHARGE_REFUND;
    int64_t steady = store_steady_ms(tasks->store);
    task->not_before = move->not_before > steady ? move->not_before : 0;
    task->waits_for = move->waits_for;
    task->queue_due_at = 0;
    if (task->queue_timeout_s > 0 && !task->waits_for)
        task->queue_due_at = max_i64(steady, task->not_before) + task->queue_timeout_s * 1000;
    task->started_at = task->epoch = 0;
    return task_set_text(&task->worker_id, NULL, err);
}

static enum rl_rc enter_terminal(struct task *task, const struct task_move *move, int64_t now,
                                 struct rl_err *err)
{
    task->finished_at = now;
    task->not_before = task->waits_for = 0;
    task->crash_count += move->charge == CHARGE_CRASH;
    task->retry_count += move->charge == CHARGE_RETRY;
    task->requeue_count += move->charge == CHARGE_REQUEUE;
    enum rl_rc rc = task_set_text(&task->error_code, move->error_code, err);
    if (rc == RL_OK)
        rc = task_set_text(&task->error_msg, move->error_msg, err);
    if (rc == RL_OK && move->to == TASK_CANCELED)
        rc = task_set_text(&task->cancel_mode, move->cancel_mode, err);
    if (rc == RL_OK && move->to == TASK_CANCELED)
        rc = task_set_text(&task->callback_status, NULL, err);
    if (rc == RL_OK && move->result) {
        const struct run_result *r = move->result;
        task->video_bytes = r->bytes;
        task->video_width = r->width;
        task->video_height = r->height;
        task->video_frames = r->frames;
        task->video_fps = r->fps;
        task->reused_from = move->reused_from;
        rc = task_set_text(&task->video_file, r->file, err);
        if (rc == RL_OK)
            rc = task_set_text(&task->video_sha256, r->sha256, err);
    }
    return rc;
}

/* What entering a state means for the row. */
static enum rl_rc enter(struct tasks *tasks, struct store_conn *conn, struct task *task,
                        const struct task_move *move, int64_t now, struct rl_err *err)
{
    switch (move->to) {
    case TASK_QUEUED:
        return enter_queue(tasks, conn, task, move, now, err);
    case TASK_PROCESSING:
        task->attempt++;
        task->epoch = move->epoch;
        task->started_at = now;
        task->not_before = 0;
        return task_set_text(&task->worker_id, move->worker_id, err);
    case TASK_SUCCEEDED:
    case TASK_FAILED:
    case TASK_TIMEOUT:
    case TASK_CANCELED:
        return enter_terminal(task, move, now, err);
    case TASK_CREATED:
    case TASK_STATUS_COUNT:
        break;
    }
    return rl_fail(err, RL_INTERNAL, "no way into this state");
}

static enum rl_rc write_row(struct store_conn *conn, const struct task *task, const char *from,
                            struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_TASK_MOVE);
    store_bind_int(stmt, ":task_id", task->task_id);
    TASK_MUTABLE(BIND_COLUMN)
    store_bind_text(stmt, ":from_status", from);
    int64_t changed = 0;
    enum rl_rc rc = store_run(stmt, &changed, err);
    if (rc == RL_OK && changed != 1)
        return rl_fail(err, RL_STALE, "the task is not %s any more", from);
    return rc;
}

static enum rl_rc check_move(const struct task *task, const struct task_move *move,
                             struct rl_err *err)
{
    const char *from = task_status_name(move->from);
    if (!task_transition_allowed(move->from, move->to))
        return rl_fail(err, RL_INTERNAL, "%s to %s is no transition", from,
                       task_status_name(move->to));
    if (strcmp(task->status, from) != 0)
        return rl_fail(err, RL_STALE, "the task is %s, not %s", task->status, from);
    if (move->fence_epoch &&
        (task->attempt != move->fence_attempt || task->epoch != move->fence_epoch))
        return rl_fail(err, RL_STALE, "attempt %lld does not hold the task any more",
                       (long long)move->fence_attempt);
    return RL_OK;
}

enum rl_rc task_move(struct tasks *tasks, struct store_conn *conn, struct task *task,
                     const struct task_move *move, struct rl_err *err)
{
    enum rl_rc rc = check_move(task, move, err);
    if (rc != RL_OK)
        return rc;
    int64_t now = max_i64(rl_wall_ms(), task->updated_at); /* a history never runs backwards */
    const char *from = task_status_name(move->from), *type = task_callback_type(move->to);
    AUTO_FREE char *worker =
        rl_strdup(task->worker_id); /* leaving PROCESSING, the history names who ran it */
    if (task->worker_id && !worker)
        return rl_fail(err, RL_NO_MEMORY, "task row");
    if (task_status_terminal(move->to))
        rc = checkpoint_remove_on_commit(tasks, conn, task->task_id, err);
    if (rc == RL_OK)
        rc = enter(tasks, conn, task, move, now, err);
    if (rc == RL_OK)
        rc = task_set_text(&task->status, task_status_name(move->to), err);
    if (rc == RL_OK && type && task->callback_url)
        rc = task_set_text(&task->callback_status,
                           task_callback_wanted(task, type) ? "PENDING" : NULL, err);
    if (rc == RL_OK)
        rc = write_event(tasks, conn, task, from, task->status, now,
                         worker ? worker : task->worker_id, move->reason, &task->version, err);
    task->updated_at = now;
    if (rc == RL_OK)
        rc = write_row(conn, task, from, err);
    if (rc == RL_OK && type)
        rc = task_write_duties(tasks, conn, task, type, now, err);
    return rc;
}

static void forget(void *ctx, void *arg)
{
    const struct tasks *tasks = ctx;
    const int64_t *task_id = arg;
    cache_drop(tasks->cache, *task_id);
}

enum rl_rc task_forget_on_commit(struct tasks *tasks, struct store_conn *conn, int64_t task_id,
                                 struct rl_err *err)
{
    int64_t *id = malloc(sizeof *id);
    if (!id)
        return rl_fail(err, RL_NO_MEMORY, "cache");
    *id = task_id;
    return store_on_commit(conn, forget, tasks, id, err);
}

enum rl_rc task_callback_result(struct tasks *tasks, struct store_conn *conn, int64_t task_id,
                                int64_t round, const char *callback_status, int64_t tries,
                                struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_TASK_CALLBACK_RESULT);
    store_bind_int(stmt, ":task_id", task_id);
    store_bind_int(stmt, ":round", round);
    store_bind_text(stmt, ":callback_status", callback_status);
    store_bind_int(stmt, ":callback_retry", tries);
    enum rl_rc rc = store_run(stmt, NULL, err);
    return rc == RL_OK ? task_forget_on_commit(tasks, conn, task_id, err) : rc;
}
