/* Live runs: claiming the head of the queue, the heartbeat figures, the stop flag. A run is made
 * and freed by one pool thread; other threads see it only under live_lock or through its atomics.
 */
#include "task/internal.h"

#include "base/clock.h"
#include "config/config.h"
#include "engine/engine.h"
#include "events/events.h"

#include <string.h>

struct run *run_find_locked(struct tasks *tasks, int64_t task_id, int64_t attempt)
{
    struct run *run = tasks->live;
    while (run && !(run->task->task_id == task_id && (attempt == 0 || run->attempt == attempt)))
        run = run->next;
    return run;
}

#define CLAIM_TRIES 8 /* heads that cannot be claimed and are put off or refused, per claim */

struct claim_work {
    struct tasks *tasks;
    const struct engine_device *device;
    int64_t task_id;   /* the head; 0 = nothing may run now */
    struct task *task; /* owned; NULL: the same */
    bool refused;      /* the head can never run: it is FAILED now, the next one is the head */
    struct run *run;   /* owned: goes live with the COMMIT */
};

static void count_live(struct tasks *tasks, int64_t *ret_live, int64_t *ret_suspects)
{
    pthread_mutex_lock(&tasks->live_lock);
    for (struct run *run = tasks->live; run; run = run->next) {
        ++*ret_live;
        *ret_suspects += atomic_load(&run->suspect);
    }
    pthread_mutex_unlock(&tasks->live_lock);
}

/* The head of the queue if it may run: a suspect (it took the process down before) runs alone, so
 * that blame is exact, and waits at the head until everything else is done. */
static enum rl_rc pick(struct store_conn *conn, struct tasks *tasks, int64_t *ret_id,
                       struct rl_err *err)
{
    int64_t cap = config_int(tasks->cfg, CFG_POOL_CAP), live = 0, suspects = 0;
    bool row;
    int64_t running = 0;
    *ret_id = 0;
    count_live(tasks, &live, &suspects); /* soft-cancelled runs, too, which still go */
    struct store_stmt *count = store_stmt(conn, SQL_RUNNING_COUNT); /* claims of this commit, too */
    enum rl_rc rc = store_step(count, &row, err);
    if (rc == RL_OK && row) {
        running = store_col_int(count, 0);
        suspects += store_col_int(count, 1);
    }
    store_reset(count);
    if (running < live)
        running = live;
    if (rc != RL_OK || suspects > 0 || (cap > 0 && running >= cap))
        return rc;
    AUTO_STMT struct store_stmt *head = store_stmt(conn, SQL_CLAIM_HEAD);
    rc = store_step(head, &row, err);
    if (rc == RL_OK && row && !(store_col_int(head, 1) > 0 && running > 0))
        *ret_id = store_col_int(head, 0);
    return rc;
}

/* Asked for, or derived from the work and the measured speed. 0 = none. The speed of another device
 * is an estimate for people; no run is ended by it. */
static void set_timeout(struct tasks *tasks, struct run *run)
{
    const struct task *task = run->task;
    bool own = false;
    run->expected_ms = speed_expect_ms(tasks, task, speed_units(task), &own);
    if (task->run_timeout_s >= 0) {
        run->timeout_ms = task->run_timeout_s * 1000;
        return;
    }
    int64_t floor = config_int(tasks->cfg, CFG_RUN_FLOOR_S) * 1000;
    int64_t derived = config_int(tasks->cfg, CFG_RUN_FACTOR) * run->expected_ms;
    run->timeout_ms = derived > floor ? derived : floor;
    run->unmeasured = !own; /* another device may be a hundred times as fast */
}

/* After the COMMIT and before anybody is answered: a cancel that comes next finds the run. */
static void go_live(void *ctx, void *arg)
{
    (void)arg;
    struct claim_work *work = ctx;
    struct tasks *tasks = work->tasks;
    struct run *run = work->run;
    run->tasks = tasks;
    run->task = work->task;
    run->attempt = work->task->attempt;
    run->epoch = work->task->epoch;
    (void)rl_copy_str(run->worker_id, sizeof run->worker_id,
                      work->device->id); /* same size: fits */
    run->started_mono_ms = rl_mono_ms();
    set_timeout(tasks, run);
    run->checkpoint_ms = run->started_mono_ms;
    run->best_step = run->task->best_step;
    atomic_store(&run->suspect, run->task->crash_count > 0);
    atomic_store(&run->beat_ms, run->started_mono_ms);
    pthread_mutex_lock(&tasks->live_lock);
    run->next = tasks->live;
    tasks->live = run;
    pthread_mutex_unlock(&tasks->live_lock);
}

/* Fails with the reason where no device of this machine can ever make it. */
static enum rl_rc runnable(const struct tasks *tasks, const struct task *task,
                           const struct engine_request *request, struct rl_err *err)
{
    const struct engine *engine = engines_find(tasks->engines, task->engine);
    if (!engine || !engine_find_model(engine, task->model))
        return rl_fail(err, RL_ENGINE_GONE,
                       "engine %s has no usable model %s here any more: `reeld model list`",
                       task->engine, task->model);
    return engines_fit(tasks->engines, engine, request, err);
}

/* What can never run costs no attempt. What this device cannot hold and another can is left for it.
 */
static enum rl_rc take_head(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct claim_work *work = arg;
    enum rl_rc rc = task_load(conn, work->task_id, &work->task, err);
    if (rc != RL_OK)
        return rc;
    struct rl_err why;
    struct engine_request request = task_request(work->task);
    struct task_move move = {.from = TASK_QUEUED,
                             .to = TASK_PROCESSING,
                             .worker_id = work->device->id,
                             .epoch = work->tasks->epoch};
    work->refused = runnable(work->tasks, work->task, &request, &why) != RL_OK;
    if (work->refused) {
        move.to = TASK_FAILED;
        move.reason = move.error_code = rl_code_name(why.code);
        move.error_msg = why.reason;
        return task_move(work->tasks, conn, work->task, &move, err);
    }
    const struct engine *engine = engines_find(work->tasks->engines, work->task->engine);
    if (!engines_fit_on(work->tasks->engines, engine, work->device, &request)) {
        task_free(STEAL(work->task));
        return RL_OK;
    }
    rc = task_move(work->tasks, conn, work->task, &move, err);
    return rc == RL_OK ? store_on_commit(conn, go_live, work, NULL, err) : rc;
}

static enum rl_rc claim(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct claim_work *work = arg;
    for (int n = 0; n < CLAIM_TRIES; n++) {
        task_free(STEAL(work->task));
        enum rl_rc rc = pick(conn, work->tasks, &work->task_id, err);
        if (rc != RL_OK || work->task_id == 0)
            return rc;
        bool dealt;
        rc = task_deal(work->tasks, conn, work->task_id, take_head, work, SQL_CLAIM_DEFER, &dealt,
                       err);
        if (rc != RL_OK || (dealt && !work->refused))
            return rc;
    }
    task_free(STEAL(work->task));
    return RL_OK;
}

enum rl_rc run_claim(struct tasks *tasks, const struct engine_device *device, struct run **ret_run,
                     struct rl_err *err)
{
    struct claim_work work = {.tasks = tasks, .device = device};
    *ret_run = NULL;
    if (atomic_load(&tasks->draining) || atomic_load(&tasks->waiting) == 0)
        return RL_OK;
    work.run = calloc(1, sizeof *work.run); /* before the claim: afterwards nothing may fail */
    if (!work.run)
        return rl_fail(err, RL_NO_MEMORY, "run");
    enum rl_rc rc = store_write(tasks->store, STORE_NORMAL, claim, &work, err);
    if (rc != RL_OK || !work.task) {
        task_free(work.task);
        free(work.run);
        return rc;
    }
    int go = RUN_GO;
    if (atomic_load(&tasks->draining)) /* it began between the claim and the list */
        atomic_compare_exchange_strong(&work.run->stop, &go, RUN_DRAIN);
    *ret_run = work.run;
    return RL_OK;
}

const struct task *run_task(const struct run *run)
{
    return run->task;
}

void run_free(struct run *run)
{
    if (!run)
        return;
    pthread_mutex_lock(&run->tasks->live_lock);
    struct run **at = &run->tasks->live;
    while (*at && *at != run)
        at = &(*at)->next;
    if (*at)
        *at = run->next;
    pthread_mutex_unlock(&run->tasks->live_lock);
    if (atomic_load(&run->suspect)) /* it need not run alone any more: others may start */
        hub_ring(run->tasks->hub);
    task_free(run->task);
    free(run);
}

void run_beat(struct run *run, int phase, int step, int total)
{
    int64_t now = rl_mono_ms();
    int64_t since = now - atomic_load(&run->beat_ms);
    bool begins = atomic_load(&run->phase) != phase || atomic_load(&run->phase_ms) == 0;
    if (begins) {
        atomic_store(&run->phase_ms, now);
        atomic_store(&run->first_step, step);
    } else if (since > atomic_load(&run->slowest_ms[phase & 7])) {
        atomic_store(&run->slowest_ms[phase & 7], since);
    }
    if (begins || atomic_load(&run->step) != step)
        atomic_store(&run->step_ms, now);
    atomic_store(&run->phase, phase);
    atomic_store(&run->step, step);
    atomic_store(&run->total, total);
    atomic_store(&run->beat_ms, now);
}

enum run_stop run_should_stop(const struct run *run)
{
    return (enum run_stop)atomic_load(&((struct run *)(uintptr_t)run)->stop);
}

void run_paths(const struct run *run, char *part, char *final, char *poster_part, char *poster,
               size_t size)
{
    const char *dir = config_text(run->tasks->cfg, CFG_STATE_DIR);
    long long id = (long long)run->task->task_id, attempt = (long long)run->attempt;
    (void)snprintf(part, size, "%s/results/%lld-%lld.mp4.part", dir, id, attempt);
    (void)snprintf(final, size, "%s/results/%lld-%lld.mp4", dir, id, attempt);
    (void)snprintf(poster_part, size, "%s/results/%lld-%lld.jpg.part", dir, id, attempt);
    (void)snprintf(poster, size, "%s/results/%lld-%lld.jpg", dir, id, attempt);
}

void runs_drain(struct tasks *tasks)
{
    atomic_store(&tasks->draining, true);
    pthread_mutex_lock(&tasks->live_lock);
    for (struct run *run = tasks->live; run; run = run->next) {
        int go = RUN_GO;
        atomic_compare_exchange_strong(&run->stop, &go, RUN_DRAIN);
    }
    pthread_mutex_unlock(&tasks->live_lock);
    hub_ring(tasks->hub);
}

int64_t runs_active(struct tasks *tasks)
{
    int64_t live = 0, suspects = 0;
    count_live(tasks, &live, &suspects);
    return live;
}
