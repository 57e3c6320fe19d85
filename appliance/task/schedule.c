/* The scheduler thread: tasks whose inputs are there go CREATED → QUEUED, delays that are over
 * become claimable. It sleeps until the next due time it knows of, and looks again every few
 * seconds because the wall clock may jump. */
#include "task/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "events/events.h"

#include <string.h>

#define LOOK_AGAIN_MS 5000

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
    int64_t now;
    int64_t next;     /* wall ms of the next due thing; INT64_MAX = none */
    int64_t promoted; /* rows that became claimable */
    bool due;
};

static enum rl_rc look(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct round *round = arg;
    int64_t input = 0, delay = 0;
    enum rl_rc rc = store_int(store_stmt(conn, SQL_NEXT_INPUT), INT64_MAX, &input, err);
    if (rc == RL_OK)
        rc = store_int(store_stmt(conn, SQL_NEXT_DUE), INT64_MAX, &delay, err);
    round->next = input < delay ? input : delay;
    round->due = round->next <= round->now;
    return rc;
}

static enum rl_rc enqueue_ready(struct tasks *tasks, struct store_conn *conn, int64_t now,
                                struct rl_err *err)
{
    for (int n = 0; n < 100; n++) { /* a bounded step; the rest comes with the next round */
        int64_t id = 0;
        AUTO_TASK struct task *task = NULL;
        struct store_stmt *stmt = store_stmt(conn, SQL_DUE_INPUT);
        store_bind_int(stmt, ":now", now);
        enum rl_rc rc = store_int(stmt, 0, &id, err);
        if (rc != RL_OK || id == 0)
            return rc;
        rc = task_load(conn, id, &task, err);
        if (rc != RL_OK)
            return rc;
        struct task_move move = {
            .from = TASK_CREATED, .to = TASK_QUEUED, .not_before = task->run_at};
        rc = task_move(tasks, conn, task, &move, err);
        if (rc != RL_OK)
            return rc;
    }
    return RL_OK;
}

static enum rl_rc act(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct round *round = arg;
    enum rl_rc rc = enqueue_ready(round->tasks, conn, round->now, err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_PROMOTE_DUE);
    store_bind_int(stmt, ":now", round->now);
    return store_run(stmt, &round->promoted, err);
}

/* One round; returns the wall ms of the next. */
static int64_t go_round(struct tasks *tasks)
{
    struct rl_err err;
    struct round round = {.tasks = tasks, .now = rl_wall_ms(), .next = INT64_MAX};
    enum rl_rc rc = store_read(tasks->store, look, &round, &err);
    if (rc == RL_OK && round.due) {
        rc = store_write(tasks->store, STORE_URGENT, act, &round, &err);
        if (rc == RL_OK && round.promoted > 0)
            hub_ring(tasks->hub);
        if (rc == RL_OK)
            return round.now; /* there may be more */
    }
    if (rc != RL_OK) {
        char text[300];
        rl_log(RL_LOG_WARN, "schedule_failed", "code=%s reason=%s", rl_code_name(rc),
               rl_log_quote(err.reason, text, sizeof text));
        return round.now + 1000; /* the store says why; try again */
    }
    return round.next;
}

static void *scheduler_main(void *arg)
{
    struct tasks *tasks = arg;
    for (;;) {
        pthread_mutex_lock(&tasks->due_lock);
        tasks->due_at = INT64_MAX; /* hints from now on are news */
        bool stop = tasks->due_stop;
        pthread_mutex_unlock(&tasks->due_lock);
        if (stop)
            return NULL;
        int64_t next = go_round(tasks);
        pthread_mutex_lock(&tasks->due_lock);
        if (next < tasks->due_at)
            tasks->due_at = next;
        int64_t wait = tasks->due_at - rl_wall_ms();
        struct timespec until = rl_deadline(
            CLOCK_MONOTONIC, wait < LOOK_AGAIN_MS ? (wait > 0 ? wait : 0) : LOOK_AGAIN_MS);
        int64_t seen = tasks->due_at;
        while (!tasks->due_stop && tasks->due_at == seen && rl_wall_ms() < seen &&
               pthread_cond_clockwait(&tasks->due, &tasks->due_lock, CLOCK_MONOTONIC, &until) == 0)
            ;
        pthread_mutex_unlock(&tasks->due_lock);
    }
}

enum rl_rc schedule_start(struct tasks *tasks, struct rl_err *err)
{
    int rc = pthread_create(&tasks->scheduler, NULL, scheduler_main, tasks);
    if (rc != 0)
        return rl_fail(err, RL_NO_MEMORY, "scheduler thread: %s", strerror(rc));
    tasks->scheduler_started = true;
    return RL_OK;
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
