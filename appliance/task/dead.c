/* The dead letter: FAILED and TIMEOUT tasks that nobody dismissed. Replay starts the next round of
 * the same task. Any thread. */
#include "task/internal.h"

#include "base/clock.h"

#include <string.h>

struct dead_work {
    struct tasks *tasks;
    const struct caller *caller;
    int64_t task_id;
    struct task *task; /* owned */
};

static enum rl_rc load_own(struct store_conn *conn, struct dead_work *work, struct rl_err *err)
{
    task_free(STEAL(work->task));
    enum rl_rc rc = task_load(conn, work->task_id, &work->task, err);
    if (rc != RL_OK)
        return rc == RL_NOT_FOUND ? task_missing(conn, work->caller, work->task_id, err) : rc;
    if (!work->caller->owner && strcmp(work->caller->user_id, work->task->user_id) != 0)
        return rl_fail(err, RL_NOT_FOUND, "no such task");
    return RL_OK;
}

static enum rl_rc replay(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct dead_work *work = arg;
    enum rl_rc rc = load_own(conn, work, err);
    if (rc != RL_OK)
        return rc;
    enum task_status status = task_status_of(work->task);
    if (status != TASK_FAILED && status != TASK_TIMEOUT)
        return rl_fail(err, RL_CONFLICT, "the task is %s, not in the dead letter",
                       work->task->status);
    rc = store_admit(work->tasks->store, err); /* a round is new work */
    if (rc == RL_OK)
        rc = queue_join(work->tasks, conn, work->task->queue_name, false, err);
    if (rc != RL_OK)
        return rc;
    struct task_move move = {
        .from = status, .to = TASK_QUEUED, .reason = "replayed from the dead letter"};
    return task_move(work->tasks, conn, work->task, &move, err);
}

enum rl_rc dead_replay(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                       struct task **ret_task, struct rl_err *err)
{
    struct dead_work work = {tasks, caller, task_id, NULL};
    enum rl_rc rc = store_write(tasks->store, STORE_NORMAL, replay, &work, err);
    if (rc == RL_OK)
        *ret_task = work.task;
    else
        task_free(work.task);
    return rc;
}

static enum rl_rc dismiss(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct dead_work *work = arg;
    enum rl_rc rc = load_own(conn, work, err);
    if (rc != RL_OK)
        return rc;
    int64_t changed = 0;
    struct store_stmt *stmt = store_stmt(conn, SQL_DEAD_DISMISS);
    store_bind_int(stmt, ":task_id", work->task_id);
    store_bind_int(stmt, ":now", rl_wall_ms());
    rc = store_run(stmt, &changed, err);
    if (rc == RL_OK && changed == 0)
        return rl_fail(err, RL_NOT_FOUND, "the task is not in the dead letter");
    return rc == RL_OK ? task_forget_on_commit(work->tasks, conn, work->task_id, err) : rc;
}

enum rl_rc dead_dismiss(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                        struct rl_err *err)
{
    struct dead_work work = {tasks, caller, task_id, NULL};
    enum rl_rc rc = store_write(tasks->store, STORE_URGENT, dismiss, &work, err);
    task_free(work.task);
    return rc;
}
