/* The processing time-out. A run that is over its time but beats gets one grace as long as the
 * time-out, then the stop flag. Of work that was never measured here nobody knows how long it
 * takes: its time is the longest silence, whatever it takes in all. One that is silent, or does not
 * follow the stop flag, hangs: a thread cannot be killed, so its task is charged and the process
 * replaces itself. Every other run is asked to hand its task back; from one that does not in time
 * it is taken, uncharged. Scheduler thread (runs_hand_back: the thread that ends the program); runs
 * are seen under live_lock. */
#include "task/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define LOOK_MS      1000
#define REPLACING_MS 100  /* between looks while the process is being replaced */
#define HAND_BACK_MS 1500 /* the replacement waits a little longer than this for the runs */
#define FAR_FUTURE   60000
#define PATH_BYTES   1200

enum judgement { LEAVE, HANGS, HAND_BACK };

/* What is to be done about one run. */
struct verdict {
    enum judgement what;
    int64_t task_id, attempt;
    char files[4][PATH_BYTES]; /* what it was writing */
};

static int64_t stale_ms(const struct tasks *tasks, const struct run *run)
{
    int64_t floor = config_int(tasks->cfg, CFG_RUN_STALE_MS);
    int64_t slow =
        4 * atomic_load(&((struct run *)(uintptr_t)run)
                             ->slowest_ms[atomic_load(&((struct run *)(uintptr_t)run)->phase) & 7]);
    return slow > floor ? slow : floor;
}

static void judge_locked(struct run *run, enum judgement what, struct verdict *verdict)
{
    run->written_off = true;
    verdict->what = what;
    verdict->task_id = run->task->task_id;
    verdict->attempt = run->attempt;
    run_paths(run, verdict->files[0], verdict->files[1], verdict->files[2], verdict->files[3],
              PATH_BYTES);
}

/* What to do about one run now. */
static void look_locked(struct tasks *tasks, struct run *run, struct verdict *verdict)
{
    int64_t now = rl_mono_ms(), stale = stale_ms(tasks, run);
    int64_t silent = now - atomic_load(&run->beat_ms), ran = now - run->started_mono_ms;
    int64_t stop_ms = atomic_load(&run->stop_ms);
    int stop = atomic_load(&run->stop);
    int64_t took = run->unmeasured ? silent : ran;
    bool over = run->timeout_ms > 0 && took > run->timeout_ms * (run->grace ? 2 : 1);
    /* one that has ended waits for the store, which may refuse for long */
    bool disobeys = (stop == RUN_CANCEL || stop == RUN_TIMEOUT) && stop_ms &&
                    now - stop_ms > stale && !atomic_load(&run->ended);
    if (run->written_off)
        return;
    if (stop == RUN_DRAIN) {
        if (tasks->hang_ms > 0 && now - tasks->hang_ms > HAND_BACK_MS)
            judge_locked(run, HAND_BACK, verdict);
        return;
    }
    if (disobeys || (over && silent > stale)) {
        judge_locked(run, HANGS, verdict);
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
    bool taken; /* the run lost its task: its files are nobody's */
};

/* Take the task away from a run that does not answer. */
static enum rl_rc write_off(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct hang_work *work = arg;
    struct tasks *tasks = work->tasks;
    AUTO_TASK struct task *task = NULL;
    work->taken = false;
    enum rl_rc rc = task_load(conn, work->verdict.task_id, &task, err);
    if (rc != RL_OK || strcmp(task->status, "PROCESSING") != 0)
        return rc;
    struct task_move move = {.from = TASK_PROCESSING,
                             .fence_attempt = work->verdict.attempt,
                             .fence_epoch = tasks->epoch};
    if (task->cancel_mode && strcmp(task->cancel_mode, "hard") == 0) {
        move.to = TASK_CANCELED;
        move.cancel_mode = "hard";
        move.reason = "cancel (hard), the run hung";
    } else if (work->verdict.what == HAND_BACK) {
        move.to = TASK_QUEUED;
        move.charge = CHARGE_REFUND;
        move.reason = "drain";
    } else {
        task_crash_move(tasks, task, &move);
        move.reason = "the run hung";
        if (move.to == TASK_FAILED) {
            move.to = TASK_TIMEOUT;
            move.error_code = rl_code_name(RL_PROCESSING_TIMEOUT);
            move.error_msg = "the run hung, and the crash budget is spent";
        }
    }
    rc = task_move(tasks, conn, task, &move, err);
    work->taken = rc == RL_OK;
    return rc;
}

static void take_task(struct hang_work *work)
{
    struct tasks *tasks = work->tasks;
    struct verdict *verdict = &work->verdict;
    long long id = (long long)verdict->task_id;
    struct rl_err err;
    rl_log(RL_LOG_ERROR, verdict->what == HANGS ? "run_hangs" : "run_left_behind",
           "task_id=%lld status=PROCESSING", id);
    runs_drain(tasks); /* first: nobody may claim what the next lines put back */
    if (store_write(tasks->store, STORE_URGENT, write_off, work, &err) != RL_OK) {
        work->taken = false; /* the start-up sweep charges it then */
        rl_log(RL_LOG_ERROR, "write_off_failed", "task_id=%lld status=PROCESSING code=%s", id,
               rl_code_name(err.code));
    }
    for (size_t i = 0; work->taken && i < RL_ARRAY_LEN(verdict->files); i++)
        if (unlink(verdict->files[i]) != 0 && errno != ENOENT)
            rl_log(RL_LOG_WARN, "unlink_failed", "task_id=%lld status=- errno=%d", id, errno);
}

void runs_hand_back(struct tasks *tasks)
{
    struct hang_work work;
    do {
        work = (struct hang_work){.tasks = tasks};
        pthread_mutex_lock(&tasks->live_lock);
        struct run *run = tasks->live;
        while (run && run->written_off)
            run = run->next;
        if (run) /* one that is silent hangs, whatever its time-out is: a restart must not refund it
                  */
            judge_locked(run,
                         rl_mono_ms() - atomic_load(&run->beat_ms) > stale_ms(tasks, run)
                             ? HANGS
                             : HAND_BACK,
                         &work.verdict);
        pthread_mutex_unlock(&tasks->live_lock);
        if (work.verdict.what != LEAVE)
            take_task(&work);
    } while (work.verdict.what != LEAVE);
}

static void replace(struct tasks *tasks)
{
    struct rl_err err;
    if (tasks->hang_ms == 0)
        tasks->hang_ms = rl_mono_ms();
    (void)rl_fail(&err, RL_PROCESSING_TIMEOUT, "a run hangs");
    if (tasks->replace)
        tasks->replace(tasks->replace_user, &err);
}

int64_t watchdog_round(struct tasks *tasks)
{
    struct hang_work work = {.tasks = tasks};
    pthread_mutex_lock(&tasks->live_lock);
    bool any = tasks->live != NULL;
    for (struct run *run = tasks->live; run && work.verdict.what == LEAVE; run = run->next)
        look_locked(tasks, run, &work.verdict);
    pthread_mutex_unlock(&tasks->live_lock);
    if (work.verdict.what != LEAVE)
        take_task(&work);
    if (work.verdict.what == HANGS)
        replace(tasks);
    if (tasks->hang_ms > 0)
        return REPLACING_MS;
    int64_t look = config_int(tasks->cfg, CFG_RUN_STALE_MS) / 4;
    return any ? (look < LOOK_MS ? look + 1 : LOOK_MS) : FAR_FUTURE;
}
