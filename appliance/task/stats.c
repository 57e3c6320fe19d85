/* Figures: time spent in each state (from the history), Prometheus text of the module's counters,
 * the live runs. Histograms are counted at each move, by the announcement after COMMIT. Any thread.
 */
#include "task/internal.h"

#include "base/buf.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "task/feed.h"

#include <string.h>

#define STATS_EVENTS 100000 /* newest history rows looked at: a bounded read */

static const struct rl_bounds stay_bounds = {
    .upto = {10, 100, 1000, 5000, 30000, 120000, 600000, 3600000, 21600000},
    .count = 9,
    .unit = 1000};

void stats_stay(struct tasks *tasks, enum task_status left, int64_t ms)
{
    rl_histogram_add(&tasks->stay_ms[left], &stay_bounds, ms);
}

static enum rl_rc read_stats(struct store_conn *conn, void *arg, struct rl_err *err)
{
    static const char *const names[] = {"p50_ms", "p90_ms", "p99_ms", "max_ms"};
    struct rl_jw *w = arg;
    bool row;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_STATS);
    store_bind_int(stmt, ":events", STATS_EVENTS);
    enum rl_rc rc = store_step(stmt, &row, err);
    for (; rc == RL_OK && row; rc = store_step(stmt, &row, err)) {
        char day[RL_TIME_TEXT];
        rl_time_format(store_col_int(stmt, 1), day);
        day[10] = '\0';
        rl_jw_object(w, NULL);
        rl_jw_str(w, "engine", store_col_text(stmt, 0));
        rl_jw_str(w, "day", day);
        rl_jw_str(w, "status", store_col_text(stmt, 2));
        rl_jw_i64(w, "count", store_col_int(stmt, 3));
        for (int i = 0; i < 4; i++)
            rl_jw_i64(w, names[i], store_col_int(stmt, 4 + i));
        rl_jw_end_object(w);
    }
    return rc;
}

enum rl_rc task_stats(struct tasks *tasks, struct rl_buf *out, struct rl_err *err)
{
    return list_whole(tasks, read_stats, out, err);
}

static enum rl_rc read_depths(struct store_conn *conn, void *arg, struct rl_err *err)
{
    static const int64_t priorities[] = {1, 5, 10};
    struct rl_buf *out = arg;
    rl_buf_str(out, "# HELP reeld_queue_depth Claimable tasks, counted to 100000.\n# TYPE "
                    "reeld_queue_depth gauge\n");
    for (size_t i = 0; i < RL_ARRAY_LEN(priorities); i++) {
        int64_t depth = 0;
        struct store_stmt *stmt = store_stmt(conn, SQL_DEPTH);
        store_bind_int(stmt, ":priority", priorities[i]);
        enum rl_rc rc = store_int(stmt, 0, &depth, err);
        if (rc != RL_OK)
            return rc;
        rl_buf_fmt(out, "reeld_queue_depth{priority=\"%lld\"} %lld\n", (long long)priorities[i],
                   (long long)depth);
    }
    rl_buf_str(out, "# HELP reeld_queue_oldest_seconds Age of the oldest claimable task.\n# TYPE "
                    "reeld_queue_oldest_seconds gauge\n");
    for (size_t i = 0; i < RL_ARRAY_LEN(priorities); i++) {
        int64_t queued_at = 0;
        struct store_stmt *stmt = store_stmt(conn, SQL_OLDEST);
        store_bind_int(stmt, ":priority", priorities[i]);
        enum rl_rc rc = store_int(stmt, 0, &queued_at, err);
        if (rc != RL_OK)
            return rc;
        int64_t age = queued_at ? rl_wall_ms() - queued_at : 0;
        rl_buf_fmt(out, "reeld_queue_oldest_seconds{priority=\"%lld\"} %.3f\n",
                   (long long)priorities[i], (double)age / 1e3);
    }
    return RL_OK;
}

static void write_stays(struct tasks *tasks, struct rl_buf *out)
{
    rl_buf_str(
        out,
        "# HELP reeld_state_seconds Time tasks stayed in a state, counted when they leave it.\n"
        "# TYPE reeld_state_seconds histogram\n");
    for (int s = 0; s < TASK_STATUS_COUNT; s++) {
        char labels[64];
        (void)snprintf(labels, sizeof labels, "status=\"%s\"",
                       task_status_name((enum task_status)s)); /* fits */
        rl_histogram_write(&tasks->stay_ms[s], &stay_bounds, "reeld_state_seconds", labels, out);
    }
}

static void write_cache(struct tasks *tasks, struct rl_buf *out)
{
    struct cache_stats stats;
    cache_stats(tasks->cache, &stats);
    const struct {
        const char *name, *type, *help;
        int64_t value;
    } figures[] = {
        {"hits_total", "counter", "Task reads answered from memory.", stats.hits},
        {"misses_total", "counter", "Task reads that asked the database.", stats.misses},
        {"evictions_total", "counter", "Tasks that made room for others.", stats.evictions},
        {"tasks", "gauge", "Finished tasks in memory.", stats.tasks},
        {"bytes", "gauge", "Memory they take.", stats.bytes},
    };
    for (size_t i = 0; i < RL_ARRAY_LEN(figures); i++)
        rl_buf_fmt(out,
                   "# HELP reeld_task_cache_%s %s\n# TYPE reeld_task_cache_%s %s\n"
                   "reeld_task_cache_%s %lld\n",
                   figures[i].name, figures[i].help, figures[i].name, figures[i].type,
                   figures[i].name, (long long)figures[i].value);
}

enum rl_rc task_metrics(struct tasks *tasks, struct rl_buf *out, struct rl_err *err)
{
    enum rl_rc rc = store_read(tasks->store, read_depths, out, err);
    if (rc == RL_OK)
        rc = feed_metrics(tasks, out, err);
    if (rc != RL_OK)
        return rc;
    rl_buf_str(out,
               "# HELP reeld_tasks_entered_total Times tasks entered a state since the start.\n"
               "# TYPE reeld_tasks_entered_total counter\n");
    for (int s = 0; s < TASK_STATUS_COUNT; s++)
        rl_buf_fmt(out, "reeld_tasks_entered_total{status=\"%s\"} %lld\n",
                   task_status_name((enum task_status)s),
                   (long long)atomic_load(&tasks->entered[s]));
    write_stays(tasks, out);
    rl_buf_fmt(out,
               "# HELP reeld_tasks_waiting CREATED and QUEUED tasks.\n# TYPE reeld_tasks_waiting "
               "gauge\nreeld_tasks_waiting %lld\n",
               (long long)atomic_load(&tasks->waiting));
    rl_buf_fmt(out,
               "# HELP reeld_runs_active Runs under way.\n# TYPE reeld_runs_active "
               "gauge\nreeld_runs_active %lld\n",
               (long long)runs_active(tasks));
    rl_buf_fmt(out,
               "# HELP reeld_workers Runs that can go at once.\n# TYPE reeld_workers "
               "gauge\nreeld_workers %lld\n",
               (long long)tasks->slots);
    write_cache(tasks, out);
    return rl_buf_ok(out, err);
}

void runs_json(struct tasks *tasks, const struct caller *caller, const char *worker_id,
               struct rl_jw *w)
{
    int64_t now = rl_mono_ms();
    pthread_mutex_lock(&tasks->live_lock);
    const struct run *run = tasks->live;
    while (run && strcmp(run->worker_id, worker_id) != 0)
        run = run->next;
    if (run && !caller->owner && strcmp(caller->user_id, run->task->user_id) != 0)
        run = NULL;
    rl_jw_id(w, "task_id", run ? run->task->task_id : 0);
    if (run) {
        rl_jw_i64(w, "attempt", run->attempt);
        rl_jw_str(w, "phase", engine_phase_name((enum engine_phase)atomic_load(&run->phase)));
        rl_jw_i64(w, "step", atomic_load(&run->step));
        rl_jw_i64(w, "total_steps", atomic_load(&run->total));
        rl_jw_time(w, "heartbeat_at", rl_wall_ms() - (now - atomic_load(&run->beat_ms)));
        rl_jw_f64(w, "running_seconds", (double)(now - run->started_mono_ms) / 1e3);
    } else {
        static const char *const none[] = {"attempt",     "phase",        "step",
                                           "total_steps", "heartbeat_at", "running_seconds"};
        for (size_t i = 0; i < RL_ARRAY_LEN(none); i++)
            rl_jw_null(w, none[i]);
    }
    pthread_mutex_unlock(&tasks->live_lock);
}

void tasks_set_slots(struct tasks *tasks, int64_t slots)
{
    tasks->slots = slots;
}
