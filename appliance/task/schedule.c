/* The scheduler thread: tasks whose inputs are there go CREATED → QUEUED (which is also what
 * compensates an enqueue that failed), delays that are over become claimable, queue time-outs
 * strike, hanging runs are found, retention goes on. It sleeps until the next due time it knows of,
 * and looks again every few seconds because the machine may have been suspended. All due times are
 * in the store's steady clock: jumps of the wall clock move nothing. */
#include "task/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "events/events.h"

#include <string.h>

#define LOOK_AGAIN_MS 5000
#define STEP_ROWS     100   /* per transaction: others wait meanwhile */
#define PUT_OFF_MS    60000 /* until a row that could not be dealt with has its turn again */
#define RETAIN_ROWS   100   /* removed before other due things get their turn */
#define KEEP_CLOCK_MS 60000 /* how often the steady clock is remembered, and retention looks */

void schedule_hint(struct tasks *tasks, int64_t at)
{
    pthread_mutex_lock(&tasks->due_lock);
    if (at < tasks->due_at) {
        tasks->due_at = at;
        pthread_cond_signal(&tasks->due);
    }
    pthread_mutex_unlock(&tasks->due_lock);
}

struct round {
    struct tasks *tasks;
    int64_t now;      /* steady */
    int64_t next;     /* steady ms of the next due thing; INT64_MAX = none */
    int64_t promoted; /* rows that became claimable */
};

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static enum rl_rc look(struct store_conn *conn, void *arg, struct rl_err *err)
{
    static const enum store_sql sources[] = {SQL_NEXT_INPUT, SQL_NEXT_DUE, SQL_NEXT_QUEUE_DUE};
    struct round *round = arg;
    round->next = INT64_MAX;
    for (size_t i = 0; i < RL_ARRAY_LEN(sources); i++) {
        int64_t at = 0;
        enum rl_rc rc = store_int(store_stmt(conn, sources[i]), INT64_MAX, &at, err);
        if (rc != RL_OK)
            return rc;
        round->next = min_i64(round->next, at);
    }
    return RL_OK;
}

static enum rl_rc defer(struct store_conn *conn, enum store_sql sql, int64_t task_id, int64_t until,
                        struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, sql);
    store_bind_int(stmt, ":task_id", task_id);
    store_bind_int(stmt, ":until", until);
    return store_run(stmt, NULL, err);
}

enum rl_rc task_deal(struct tasks *tasks, struct store_conn *conn, int64_t task_id, store_fn deal,
                     void *arg, enum store_sql put_off, bool *ret_dealt, struct rl_err *err)
{
    struct rl_err why = {.code = RL_OK};
    char text[300];
    enum rl_rc rc = store_try(conn, deal, arg, &why);
    *ret_dealt = rc == RL_OK;
    if (rc == RL_OK)
        return RL_OK;
    if (rl_transient(rc))
        return rl_fail(err, rc, "%s", why.reason);
    rl_log(RL_LOG_ERROR, "task_put_off", "task_id=%lld status=- for_ms=%d code=%s reason=%s",
           (long long)task_id, PUT_OFF_MS, rl_code_name(rc),
           rl_log_quote(why.reason, text, sizeof text));
    return defer(conn, put_off, task_id, store_steady_ms(tasks->store) + PUT_OFF_MS, err);
}

/* One row that is due. */
struct due_row {
    struct tasks *tasks;
    int64_t task_id;
};

static enum rl_rc enqueue(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct due_row *row = arg;
    AUTO_TASK struct task *task = NULL;
    enum rl_rc rc = task_load(conn, row->task_id, &task, err);
    return rc == RL_OK ? task_enqueue(row->tasks, conn, task, err) : rc;
}

static enum rl_rc enqueue_ready(struct tasks *tasks, struct store_conn *conn, int64_t now,
                                struct rl_err *err)
{
    for (int n = 0; n < STEP_ROWS; n++) {
        bool dealt;
        struct due_row row = {.tasks = tasks};
        struct store_stmt *stmt = store_stmt(conn, SQL_DUE_INPUT);
        store_bind_int(stmt, ":now", now);
        enum rl_rc rc = store_int(stmt, 0, &row.task_id, err);
        if (rc == RL_OK && row.task_id != 0)
            rc = task_deal(tasks, conn, row.task_id, enqueue, &row, SQL_INPUT_DEFER, &dealt, err);
        if (rc != RL_OK || row.task_id == 0)
            return rc;
    }
    return RL_OK;
}

/* One queue time-out: back into the queue while re-queues are left, then TIMEOUT. */
static enum rl_rc expire(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct due_row *row = arg;
    struct tasks *tasks = row->tasks;
    char reason[96];
    AUTO_TASK struct task *task = NULL;
    enum rl_rc rc = task_load(conn, row->task_id, &task, err);
    if (rc != RL_OK)
        return rc;
    int64_t allowed = config_int(tasks->cfg, CFG_QUEUE_REQUEUES);
    struct task_move move = {.from = TASK_QUEUED, .charge = CHARGE_REQUEUE, .reason = reason};
    if (task->requeue_count < allowed) {
        move.to = TASK_QUEUED;
        (void)snprintf(reason, sizeof reason, "queue time-out, re-queue %lld of %lld",
                       (long long)task->requeue_count + 1, (long long)allowed);
    } else {
        move.to = TASK_TIMEOUT;
        move.charge = CHARGE_NONE;
        move.reason = move.error_code = rl_code_name(RL_QUEUE_TIMEOUT);
        move.error_msg = "waited in the queue longer than its time-out and all re-queues";
    }
    return task_move(tasks, conn, task, &move, err);
}

static enum rl_rc next_expired(struct store_conn *conn, int64_t now, int64_t *ret_id,
                               int64_t *ret_fresh, struct rl_err *err)
{
    bool row;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_QUEUE_EXPIRED);
    store_bind_int(stmt, ":now", now);
    enum rl_rc rc = store_step(stmt, &row, err);
    *ret_id = rc == RL_OK && row ? store_col_int(stmt, 0) : 0;
    *ret_fresh = rc == RL_OK && row ? store_col_int(stmt, 1) : 0;
    return rc;
}

static enum rl_rc expire_due(struct tasks *tasks, struct store_conn *conn, int64_t now,
                             struct rl_err *err)
{
    for (int n = 0; n < STEP_ROWS; n++) {
        bool dealt;
        int64_t fresh;
        struct due_row row = {.tasks = tasks};
        enum rl_rc rc = next_expired(conn, now, &row.task_id, &fresh, err);
        if (rc != RL_OK || row.task_id == 0)
            return rc;
        if (fresh > now) /* its queue was paused: its time counts anew from the resume */
            rc = defer(conn, SQL_QUEUE_DEFER, row.task_id, fresh, err);
        else
            rc = task_deal(tasks, conn, row.task_id, expire, &row, SQL_QUEUE_DEFER, &dealt, err);
        if (rc != RL_OK)
            return rc;
    }
    return RL_OK;
}

static enum rl_rc act(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct round *round = arg;
    enum rl_rc rc = enqueue_ready(round->tasks, conn, round->now, err);
    if (rc == RL_OK)
        rc = expire_due(round->tasks, conn, round->now, err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_PROMOTE_DUE);
    store_bind_int(stmt, ":steady", round->now);
    store_bind_int(stmt, ":now", rl_wall_ms());
    return store_run(stmt, &round->promoted, err);
}

static void trouble(const char *event, const struct rl_err *err)
{
    char text[300];
    rl_log(RL_LOG_WARN, event, "code=%s reason=%s", rl_code_name(err->code),
           rl_log_quote(err->reason, text, sizeof text));
}

/* What is due; returns the steady ms of the next round. */
static int64_t due_round(struct tasks *tasks)
{
    struct rl_err err;
    struct round round = {.tasks = tasks, .now = store_steady_ms(tasks->store)};
    enum rl_rc rc = store_read(tasks->store, look, &round, &err);
    if (rc == RL_OK && round.next > round.now)
        return round.next;
    if (rc == RL_OK)
        rc = store_write(tasks->store, STORE_URGENT, act, &round, &err);
    if (rc == RL_OK) {
        if (round.promoted > 0)
            hub_ring(tasks->hub);
        return round.now; /* there may be more */
    }
    trouble("schedule_failed", &err);
    return round.now + 1000; /* the store says why; try again */
}

static bool stopping(struct tasks *tasks)
{
    pthread_mutex_lock(&tasks->due_lock);
    bool stop = tasks->due_stop;
    pthread_mutex_unlock(&tasks->due_lock);
    return stop;
}

/* true: there is more to remove at once. */
static bool keep_round(struct tasks *tasks)
{
    struct rl_err err;
    if (store_keep_clock(tasks->store, &err) != RL_OK)
        trouble("clock_not_kept", &err);
    int removed = 0;
    while (removed < RETAIN_ROWS && !stopping(tasks) && retain_round(tasks))
        removed++;
    while (removed < RETAIN_ROWS && !stopping(tasks) && retain_hooks(tasks))
        removed++;
    if (removed == RETAIN_ROWS || stopping(tasks))
        return true;
    if (repair_sweep(tasks, &err) != RL_OK)
        trouble("repair_failed", &err);
    retain_orphans_step(tasks);
    return false;
}

static bool sleep_until(struct tasks *tasks, int64_t next, int64_t most_ms)
{
    pthread_mutex_lock(&tasks->due_lock);
    if (next < tasks->due_at)
        tasks->due_at = next;
    int64_t seen = tasks->due_at, wait = seen - store_steady_ms(tasks->store);
    wait = min_i64(wait > 0 ? wait : 0, min_i64(most_ms, LOOK_AGAIN_MS));
    struct timespec until = rl_deadline(CLOCK_MONOTONIC, wait);
    while (wait > 0 && !tasks->due_stop && tasks->due_at == seen &&
           pthread_cond_clockwait(&tasks->due, &tasks->due_lock, CLOCK_MONOTONIC, &until) == 0)
        ;
    tasks->due_at = INT64_MAX; /* hints from now on are news */
    bool stop = tasks->due_stop;
    pthread_mutex_unlock(&tasks->due_lock);
    return !stop;
}

static void *scheduler_main(void *arg)
{
    struct tasks *tasks = arg;
    int64_t kept = rl_mono_ms() - KEEP_CLOCK_MS; /* a start looks at once */
    int64_t next = 0, watch = 0;
    while (sleep_until(tasks, next, watch)) {
        next = due_round(tasks);
        watch = watchdog_round(tasks);
        if (rl_mono_ms() - kept >= KEEP_CLOCK_MS) {
            if (keep_round(tasks))
                watch = 0;
            else
                kept = rl_mono_ms();
        }
        atomic_store(&tasks->scheduler_beat_ms, rl_mono_ms());
    }
    return NULL;
}

enum rl_rc schedule_start(struct tasks *tasks, tasks_replace_fn replace, void *user,
                          struct rl_err *err)
{
    tasks->replace = replace;
    tasks->replace_user = user;
    tasks->due_at = INT64_MAX;
    atomic_store(&tasks->scheduler_beat_ms, rl_mono_ms());
    int rc = pthread_create(&tasks->scheduler, NULL, scheduler_main, tasks);
    if (rc != 0)
        return rl_fail(err, RL_NO_MEMORY, "scheduler thread: %s", strerror(rc));
    tasks->scheduler_started = true;
    return RL_OK;
}

int64_t schedule_stalled_ms(struct tasks *tasks)
{
    return tasks->scheduler_started ? rl_mono_ms() - atomic_load(&tasks->scheduler_beat_ms) : 0;
}

void schedule_stop(struct tasks *tasks)
{
    if (!tasks->scheduler_started)
        return;
    pthread_mutex_lock(&tasks->due_lock);
    tasks->due_stop = true;
    pthread_cond_signal(&tasks->due);
    pthread_mutex_unlock(&tasks->due_lock);
    pthread_join(tasks->scheduler, NULL);
    tasks->scheduler_started = false;
}
