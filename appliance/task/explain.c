/* In words: where a task stands and why, from its times, its queue and its worker. Any thread. */
#include "task/internal.h"

#include "base/buf.h"
#include "base/clock.h"
#include "config/config.h"
#include "engine/engine.h"

#include <string.h>

static void ago(struct rl_buf *out, int64_t ms)
{
    int64_t s = ms > 0 ? ms / 1000 : 0; /* the wall clock may have been set back */
    if (s < 120)
        rl_buf_fmt(out, "%lld s", (long long)s);
    else if (s < 7200)
        rl_buf_fmt(out, "%lld min", (long long)(s / 60));
    else
        rl_buf_fmt(out, "%lld h", (long long)(s / 3600));
}

struct queue_work {
    const struct task *task;
    char state[16];
};

static enum rl_rc queue_state(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct queue_work *work = arg;
    bool row;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_QUEUE_STATE);
    store_bind_text(stmt, ":queue_name", work->task->queue_name);
    enum rl_rc rc = store_step(stmt, &row, err);
    const char *state = rc == RL_OK && row ? store_col_text(stmt, 0) : NULL;
    (void)rl_copy_str(work->state, sizeof work->state, state ? state : "");
    return rc;
}

/* What it needs of this machine and does not find everywhere. */
static void explain_place(const struct tasks *tasks, const struct task *task, struct rl_buf *out)
{
    size_t count, fit = 0;
    const struct engine_device *devices = engines_devices(tasks->engines, &count);
    const struct engine *engine = engines_find(tasks->engines, task->engine);
    const struct engine_request request = task_request(task);
    struct rl_buf names;
    if (!engine || !engine_find_model(engine, task->model)) {
        rl_buf_fmt(out, "Model %s of engine %s is not here: it fails when its turn comes. ",
                   task->model, task->engine);
        return;
    }
    rl_buf_init(&names, 64 * count + 64);
    for (size_t i = 0; i < count; i++)
        if (engines_fit_on(tasks->engines, engine, &devices[i], &request))
            rl_buf_fmt(&names, "%s%s", fit++ ? ", " : "", devices[i].id);
    if (fit == 0 && count > 0)
        rl_buf_str(out, "No device here can hold it: it fails when its turn comes. ");
    else if (fit < count)
        rl_buf_fmt(out, "Only %.*s of %zu devices can hold it. ", (int)names.len, names.data,
                   count);
    rl_buf_free(&names);
}

static enum rl_rc explain_queued(struct tasks *tasks, const struct task *task, struct rl_buf *out,
                                 struct rl_err *err)
{
    struct queue_work work = {.task = task};
    struct store_stats stats;
    int64_t steady = store_steady_ms(tasks->store);
    rl_buf_str(out, "Waiting in queue ");
    rl_buf_fmt(out, "\"%s\" for ", task->queue_name);
    ago(out, rl_wall_ms() - task->queued_at);
    rl_buf_str(out, ". ");
    enum rl_rc rc = store_read(tasks->store, queue_state, &work, err);
    if (rc != RL_OK)
        return rc;
    store_stats(tasks->store, &stats);
    if (stats.disk_full)
        rl_buf_str(out, "The disk is full: nothing starts before there is room again. ");
    if (task->waits_for) {
        rl_buf_fmt(out,
                   "It waits for the run of task %lld, which was soft-cancelled and makes the same "
                   "video. ",
                   (long long)task->waits_for);
    } else if (task->not_before > 0) {
        rl_buf_str(out, task->retry_count > 0 ? "It is delayed after an error: "
                                              : "Its start is delayed: ");
        ago(out, task->not_before > steady ? task->not_before - steady : 0);
        rl_buf_str(out, " left. ");
    } else if (strcmp(work.state, "PAUSED") == 0) {
        rl_buf_fmt(out,
                   "The queue is PAUSED: nothing is claimed until POST /api/v1/queues/%s/resume. ",
                   task->queue_name);
    } else if (task->crash_count > 0) {
        rl_buf_fmt(out,
                   "An earlier run took the process down (%lld of %lld): it runs alone, once every "
                   "other run is done. ",
                   (long long)task->crash_count,
                   (long long)config_int(tasks->cfg, CFG_POOL_CRASH_BUDGET));
    } else if (task->queue_position > 0) {
        rl_buf_fmt(out, "It is number %lld there; %lld of the workers are busy. ",
                   (long long)task->queue_position, (long long)runs_active(tasks));
    }
    explain_place(tasks, task, out);
    if (task->requeue_count > 0)
        rl_buf_fmt(out, "Its queue time-out struck %lld time(s) already. ",
                   (long long)task->requeue_count);
    return RL_OK;
}

static void explain_processing(struct tasks *tasks, const struct task *task, struct rl_buf *out)
{
    pthread_mutex_lock(&tasks->live_lock);
    struct run *run = run_find_locked(tasks, task->task_id, task->attempt);
    int64_t silent = run ? rl_mono_ms() - atomic_load(&run->beat_ms) : 0,
            timeout = run ? run->timeout_ms : 0;
    bool unmeasured = run && run->unmeasured;
    int64_t ran = run ? rl_mono_ms() - run->started_mono_ms : 0;
    int phase = run ? atomic_load(&run->phase) : 0, step = run ? atomic_load(&run->step) : 0,
        total = run ? atomic_load(&run->total) : 0;
    int stop = run ? atomic_load(&run->stop) : RUN_GO;
    pthread_mutex_unlock(&tasks->live_lock);
    if (!run) {
        rl_buf_fmt(out,
                   "Said to run on worker %s, but no worker runs it: POST /api/v1/repair will put "
                   "it back. ",
                   task->worker_id ? task->worker_id : "-");
        return;
    }
    rl_buf_fmt(out, "Running on worker %s (attempt %lld) for ",
               task->worker_id ? task->worker_id : "-", (long long)task->attempt);
    ago(out, ran);
    rl_buf_fmt(out, ", phase %s, step %d of %d. ", engine_phase_name((enum engine_phase)phase),
               step, total);
    if (silent > 10000)
        rl_buf_fmt(out,
                   "The worker has been silent for %lld s; it counts as hanging after %lld s. ",
                   (long long)(silent / 1000),
                   (long long)(config_int(tasks->cfg, CFG_RUN_STALE_MS) / 1000));
    if (unmeasured)
        rl_buf_fmt(out,
                   "No such work was measured on this device yet: it has all the time it needs, "
                   "unless it is "
                   "silent for %lld s. ",
                   (long long)(timeout / 1000));
    else if (timeout > 0)
        rl_buf_fmt(out, "Its processing time-out is %lld s, with one grace as long. ",
                   (long long)(timeout / 1000));
    if (stop != RUN_GO)
        rl_buf_fmt(out, "It was asked to stop (%s). ",
                   stop == RUN_CANCEL  ? "cancel"
                   : stop == RUN_DRAIN ? "drain"
                                       : "time-out");
}

static void explain_end(const struct task *task, struct rl_buf *out)
{
    rl_buf_fmt(out, "Ended %s ", task->status);
    ago(out, rl_wall_ms() - task->finished_at);
    rl_buf_str(out, " ago");
    if (task->error_code)
        rl_buf_fmt(out, ": %s, %s", task->error_code, task->error_msg ? task->error_msg : "");
    rl_buf_str(out, ". ");
    if (strcmp(task->status, "FAILED") == 0 || strcmp(task->status, "TIMEOUT") == 0)
        rl_buf_fmt(
            out,
            task->dismissed_at
                ? "It was dismissed from the dead letter. "
                : "It is in the dead letter: POST /api/v1/dead-letters/%lld/replay runs it again. ",
            (long long)task->task_id);
    if (task->callback_status)
        rl_buf_fmt(out, "Its callback is %s after %lld tries. ", task->callback_status,
                   (long long)task->callback_retry);
}

enum rl_rc task_explain(struct tasks *tasks, const struct task *task, struct rl_buf *out,
                        struct rl_err *err)
{
    enum rl_rc rc = RL_OK;
    switch (task_status_of(task)) {
    case TASK_CREATED:
        rl_buf_str(out, task->input_at > store_steady_ms(tasks->store)
                            ? "Its inputs are still being fetched. "
                            : "Its inputs are there; the scheduler enqueues it within seconds. ");
        break;
    case TASK_QUEUED:
        rc = explain_queued(tasks, task, out, err);
        break;
    case TASK_PROCESSING:
        explain_processing(tasks, task, out);
        break;
    case TASK_SUCCEEDED:
    case TASK_FAILED:
    case TASK_TIMEOUT:
    case TASK_CANCELED:
    case TASK_STATUS_COUNT:
        explain_end(task, out);
        break;
    }
    return rc == RL_OK ? rl_buf_ok(out, err) : rc;
}
