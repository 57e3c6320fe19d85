/* The processing time-out. A run that is over its time but beats gets one grace as long as the
 * time-out, then the stop flag; one that is silent, or does not follow the stop flag, hangs: a
 * thread cannot be killed, so its task is charged and the process replaces itself. Scheduler thread
 * only; runs are seen under live_lock. */
#include "task/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"

#include <string.h>

#define LOOK_MS    1000
#define FAR_FUTURE 60000

struct verdict {
    int64_t task_id, attempt;
    bool hangs, canceled;
};

static int64_t stale_ms(const struct tasks *tasks, const struct run *run)
{
    int64_t floor = config_int(tasks->cfg, CFG_RUN_STALE_MS);
    int64_t slow =
        4 * atomic_load(&((struct run *)(uintptr_t)run)
                             ->slowest_ms[atomic_load(&((struct run *)(uintptr_t)run)->phase) & 7]);
    return slow > floor ? slow : floor;
}

/* What to do about one run now. */
static void look_locked(struct tasks *tasks, struct run *run, struct verdict *verdict)
{
    int64_t now = rl_mono_ms(), stale = stale_ms(tasks, run);
    int64_t silent = now - atomic_load(&run->beat_ms), ran = now - run->started_mono_ms;
    int64_t stop_ms = atomic_load(&run->stop_ms);
    int stop = atomic_load(&run->stop);
    bool over = run->timeout_ms > 0 && ran > run->timeout_ms * (run->grace ? 2 : 1);
    bool disobeys = (stop == RUN_CANCEL || stop == RUN_TIMEOUT) && stop_ms && now - stop_ms > stale;
    if (run->written_off || stop == RUN_DRAIN)
        return;
    if (disobeys || (over && silent > stale)) {
        run->written_off = true;
        *verdict = (struct verdict){run->task->task_id, run->attempt, true, stop == RUN_CANCEL};
    } else if (over && stop == RUN_GO && !run->grace) {
        run->grace = true;
        rl_log(RL_LOG_WARN, "run_grace",
               "task_id=%lld status=PROCESSING ran_ms=%lld timeout_ms=%lld",
               (long long)run->task->task_id, (long long)ran, (long long)run->timeout_ms);
    } else if (over && stop == RUN_GO) {
        atomic_store(&run->stop_ms, now);
        atomic_store(&run->stop, RUN_TIMEOUT);
        rl_log(RL_LOG_WARN, "run_timeout", "task_id=%lld status=PROCESSING ran_ms=%lld",
               (long long)run->task->task_id, (long long)ran);
    }
}

struct hang_work {
    struct tasks *tasks;
    struct verdict verdict;
};

/* Take the task away from the hanging run. */
static enum rl_rc write_off(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct hang_work *work = arg;
    struct tasks *tasks = work->tasks;
    AUTO_TASK struct task *task = NULL;
    enum rl_rc rc = task_load(conn, work->verdict.task_id, &task, err);
    if (rc != RL_OK || strcmp(task->status, "PROCESSING") != 0)
        return rc;
    struct task_move move = {.from = TASK_PROCESSING,
                             .fence_attempt = work->verdict.attempt,
                             .fence_epoch = tasks->epoch};
    if (work->verdict.canceled) {
        move.to = TASK_CANCELED;
        move.cancel_mode = "hard";
        move.reason = "cancel (hard), the run hung";
    } else {
        task_crash_move(tasks, task, &move);
        move.reason = "the run hung";
        if (move.to == TASK_FAILED) {
            move.to = TASK_TIMEOUT;
            move.error_code = rl_code_name(RL_PROCESSING_TIMEOUT);
            move.error_msg = "the run hung, and the crash budget is spent";
        }
    }
    return task_move(tasks, conn, task, &move, err);
}

int64_t watchdog_round(struct tasks *tasks)
{
    struct hang_work work = {.tasks = tasks};
    struct rl_err err;
    pthread_mutex_lock(&tasks->live_lock);
    bool any = tasks->live != NULL;
    for (struct run *run = tasks->live; run && !work.verdict.hangs; run = run->next)
        look_locked(tasks, run, &work.verdict);
    pthread_mutex_unlock(&tasks->live_lock);
    if (work.verdict.hangs) {
        rl_log(RL_LOG_ERROR, "run_hangs", "task_id=%lld status=PROCESSING",
               (long long)work.verdict.task_id);
        if (store_write(tasks->store, STORE_URGENT, write_off, &work, &err) != RL_OK)
            rl_log(RL_LOG_ERROR, "write_off_failed", "task_id=%lld status=PROCESSING code=%s",
                   (long long)work.verdict.task_id,
                   rl_code_name(err.code)); /* the start-up sweep charges it then */
        (void)rl_fail(&err, RL_PROCESSING_TIMEOUT, "a run hangs");
        if (tasks->replace)
            tasks->replace(tasks->replace_user, &err);
    }
    int64_t look = config_int(tasks->cfg, CFG_RUN_STALE_MS) / 4;
    return any ? (look < LOOK_MS ? look + 1 : LOOK_MS) : FAR_FUTURE;
}
