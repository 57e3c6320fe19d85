/* Cancel: at once while waiting; soft leaves the run going and keeps its result; hard sets the stop
 * flag of exactly this (task, attempt) and the run's own finish writes CANCELED. Any thread. */
#include "task/internal.h"

#include "base/clock.h"

#include <string.h>

struct cancel_work {
    struct tasks *tasks;
    const struct caller *caller;
    int64_t task_id;
    enum cancel_mode mode;
    struct task *task; /* owned */
    bool stop;         /* afterwards: raise the stop flag of the run */
};

static enum rl_rc request_hard(struct store_conn *conn, struct task *task, struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_TASK_REQUEST_CANCEL);
    store_bind_int(stmt, ":task_id", task->task_id);
    store_bind_text(stmt, ":cancel_mode", "hard");
    store_bind_int(stmt, ":now", rl_wall_ms());
    enum rl_rc rc = store_run(stmt, NULL, err);
    return rc == RL_OK ? task_set_text(&task->cancel_mode, "hard", err) : rc;
}

static enum rl_rc cancel(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct cancel_work *work = arg;
    task_free(work->task);
    work->task = NULL;
    work->stop = false;
    enum rl_rc rc = task_load(conn, work->task_id, &work->task, err);
    if (rc != RL_OK)
        return rc == RL_NOT_FOUND ? task_missing(conn, work->caller, work->task_id, err) : rc;
    struct task *task = work->task;
    if (!work->caller->owner && strcmp(work->caller->user_id, task->user_id) != 0)
        return rl_fail(err, RL_NOT_FOUND, "no such task");
    bool hard = work->mode == CANCEL_HARD;
    enum task_status status = task_status_of(task);
    struct task_move move = {.from = status,
                             .to = TASK_CANCELED,
                             .cancel_mode = hard ? "hard" : "soft",
                             .reason = hard ? "cancel (hard)" : "cancel (soft)"};
    switch (status) {
    case TASK_CREATED:
    case TASK_QUEUED:
        return task_move(work->tasks, conn, task, &move, err);
    case TASK_PROCESSING:
        work->stop = hard;
        return hard ? request_hard(conn, task, err)
                    : task_move(work->tasks, conn, task, &move, err);
    case TASK_CANCELED:
        work->stop = hard; /* also when it was soft-cancelled before and still runs */
        return RL_OK;
    case TASK_SUCCEEDED:
    case TASK_FAILED:
    case TASK_TIMEOUT:
    case TASK_STATUS_COUNT:
        break;
    }
    return rl_fail(err, RL_TASK_FINISHED, "the task is %s", task->status);
}

enum rl_rc task_cancel(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                       enum cancel_mode mode, struct task **ret_task, struct rl_err *err)
{
    struct cancel_work work = {.tasks = tasks, .caller = caller, .task_id = task_id, .mode = mode};
    enum rl_rc rc = store_write(tasks->store, STORE_URGENT, cancel, &work, err);
    if (rc != RL_OK) {
        task_free(work.task);
        return rc;
    }
    if (work.stop) {
        pthread_mutex_lock(&tasks->live_lock);
        struct run *run = run_find_locked(tasks, task_id, work.task->attempt);
        if (run && atomic_load(&run->stop) != RUN_CANCEL) {
            atomic_store(&run->stop_ms, rl_mono_ms());
            atomic_store(&run->stop, RUN_CANCEL);
        }
        pthread_mutex_unlock(&tasks->live_lock);
    }
    *ret_task = work.task;
    return RL_OK;
}
