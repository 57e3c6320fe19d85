/* How a run ends: with a result, with an error, cancelled, or handed back. Each is one transaction,
 * fenced by (task_id, attempt, epoch). Pool threads. */
#include "task/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"

#include <string.h>

#define RETRY_DELAY_MAX_MS (24 * 3600 * INT64_C(1000))

struct finish_work {
    struct run *run;
    const struct run_result *result;
    const struct rl_err *why;
    bool canceled; /* a hard cancel was answered before this commit */
    bool no_room;  /* it failed for a disk that is really full */
    bool measured; /* the run says something of its device's speed */
    struct speed speed;
};

static enum rl_rc keep_result(struct run *run, struct store_conn *conn, const struct run_result *r,
                              struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_TASK_KEEP_RESULT);
    store_bind_int(stmt, ":task_id", run->task->task_id);
    store_bind_int(stmt, ":attempt", run->attempt);
    store_bind_int(stmt, ":epoch", run->epoch);
    store_bind_text(stmt, ":video_file", r->file);
    store_bind_int(stmt, ":video_bytes", r->bytes);
    store_bind_text(stmt, ":video_sha256", r->sha256);
    store_bind_int(stmt, ":video_width", r->width);
    store_bind_int(stmt, ":video_height", r->height);
    store_bind_int(stmt, ":video_frames", r->frames);
    store_bind_int(stmt, ":video_fps", r->fps);
    store_bind_int(stmt, ":now", rl_wall_ms());
    int64_t changed = 0;
    enum rl_rc rc = store_run(stmt, &changed, err);
    if (rc == RL_OK && changed != 1)
        return rl_fail(err, RL_STALE, "the run lost its task");
    AUTO_TASK struct task *twin = NULL;
    if (rc == RL_OK)
        rc = checkpoint_remove_on_commit(run->tasks, conn, run->task->task_id, err);
    if (rc == RL_OK)
        rc = task_forget_on_commit(run->tasks, conn, run->task->task_id, err);
    if (rc == RL_OK)
        rc = task_load(conn, run->task->task_id, &twin, err);
    return rc == RL_OK ? reuse_settle(run->tasks, conn, twin, err) : rc;
}

static struct task_move fenced(const struct run *run, enum task_status to)
{
    return (struct task_move){.from = TASK_PROCESSING,
                              .to = to,
                              .fence_attempt = run->attempt,
                              .fence_epoch = run->epoch};
}

static enum rl_rc put_speed(struct store_conn *conn, void *arg, struct rl_err *err)
{
    return speed_put(conn, arg, err);
}

/* The statistics of a run that is done: when they cannot be kept, the run is done all the same. */
static void keep_speed(struct store_conn *conn, struct finish_work *work)
{
    struct rl_err why;
    char text[300];
    if (!work->measured || store_try(conn, put_speed, &work->speed, &why) == RL_OK)
        return;
    rl_log(RL_LOG_WARN, "speed_not_kept", "task_id=%lld status=PROCESSING code=%s reason=%s",
           (long long)work->run->task->task_id, rl_code_name(why.code),
           rl_log_quote(why.reason, text, sizeof text));
}

static enum rl_rc succeed(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct finish_work *work = arg;
    struct run *run = work->run;
    AUTO_TASK struct task *task = NULL;
    work->canceled = false;
    enum rl_rc rc = task_load(conn, run->task->task_id, &task, err);
    if (rc != RL_OK)
        return rc;
    atomic_store(&run->ended, true);
    keep_speed(conn, work);
    if (strcmp(task->status, "CANCELED") == 0)
        return keep_result(run, conn, work->result, err);
    if (task->cancel_mode && strcmp(task->cancel_mode, "hard") == 0) {
        /* The cancel was answered before this commit: it wins, the file goes. */
        struct task_move move = fenced(run, TASK_CANCELED);
        move.cancel_mode = "hard";
        move.reason = "cancel (hard)";
        work->canceled = true;
        return task_move(run->tasks, conn, task, &move, err);
    }
    struct task_move move = fenced(run, TASK_SUCCEEDED);
    move.result = work->result;
    return task_move(run->tasks, conn, task, &move, err);
}

enum rl_rc run_succeed(struct run *run, const struct run_result *result, struct rl_err *err)
{
    struct finish_work work = {.run = run, .result = result};
    if (!run->resumed) /* of a part of the work nothing is to be learnt */
        work.measured = speed_measure(run->tasks, run->task, run->worker_id,
                                      rl_mono_ms() - run->started_mono_ms, &work.speed);
    enum rl_rc rc = store_write(run->tasks->store, STORE_URGENT, succeed, &work, err);
    if (rc == RL_OK && work.canceled)
        return rl_fail(err, RL_CANCELED, "cancelled at the end");
    if (rc == RL_OK && work.measured)
        speed_set(run->tasks, &work.speed);
    return rc;
}

/* retry_delay doubled per retry so far. */
static int64_t retry_at(const struct tasks *tasks, const struct task *task)
{
    int64_t delay = config_int(tasks->cfg, CFG_TASK_RETRY_DELAY_MS);
    for (int64_t i = 0; i < task->retry_count && delay < RETRY_DELAY_MAX_MS; i++)
        delay *= 2;
    return store_steady_ms(tasks->store) +
           (delay < RETRY_DELAY_MAX_MS ? delay : RETRY_DELAY_MAX_MS);
}

static enum rl_rc fail(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct finish_work *work = arg;
    struct run *run = work->run;
    const struct rl_err *why = work->why;
    AUTO_TASK struct task *task = NULL;
    enum rl_rc rc = task_load(conn, run->task->task_id, &task, err);
    if (rc != RL_OK)
        return rc;
    atomic_store(&run->ended, true);
    bool canceled = strcmp(task->status, "CANCELED") == 0;
    if (canceled || why->code == RL_OUTPUT_INVALID) /* the next try starts from nothing */
        rc = checkpoint_remove_on_commit(run->tasks, conn, task->task_id, err);
    if (rc != RL_OK)
        return rc;
    if (canceled) /* soft-cancelled meanwhile: there is nothing to keep */
        return reuse_settle(run->tasks, conn, task, err);
    char reason[320];
    (void)snprintf(reason, sizeof reason, "%s: %s", rl_code_name(why->code),
                   why->reason); /* cut is fine */
    bool hard = task->cancel_mode && strcmp(task->cancel_mode, "hard") == 0;
    struct task_move move = fenced(run, TASK_FAILED);
    move.reason = reason;
    if (hard) {
        move.to = TASK_CANCELED;
        move.cancel_mode = "hard";
        move.reason = "cancel (hard)";
    } else if (why->code == RL_CANCELED && run_should_stop(run) == RUN_TIMEOUT) {
        move.to = TASK_TIMEOUT;
        move.reason = move.error_code = rl_code_name(RL_PROCESSING_TIMEOUT);
        move.error_msg = "the run took longer than its time-out and one grace";
    } else if (why->code == RL_CANCELED) {
        move.to = TASK_QUEUED;
        move.charge = CHARGE_REFUND;
        move.reason = "drain";
    } else if (why->code == RL_GPU_ERROR) {
        task_crash_move(run->tasks, task, &move);
    } else if (work->no_room) { /* no claim succeeds before there is room */
        move.to = TASK_QUEUED;
        move.not_before = retry_at(run->tasks, task);
    } else if (why->retryable && task->retry_count < task->max_retries) {
        move.to = TASK_QUEUED;
        move.charge = CHARGE_RETRY;
        move.not_before = retry_at(run->tasks, task);
    } else {
        move.error_code = rl_code_name(why->code);
        move.error_msg = why->reason;
    }
    return task_move(run->tasks, conn, task, &move, err);
}

enum rl_rc run_fail(struct run *run, const struct rl_err *why, struct rl_err *err)
{
    struct finish_work work = {.run = run, .why = why};
    struct rl_err full;
    /* Of a quota or a disk of its own below results/ the store does not see the end: a retry. */
    work.no_room =
        why->code == RL_DISK_FULL && store_admit(run->tasks->store, &full) == RL_DISK_FULL;
    if (work.no_room)
        store_found_full(run->tasks->store);
    return store_write(run->tasks->store, STORE_URGENT, fail, &work, err);
}
