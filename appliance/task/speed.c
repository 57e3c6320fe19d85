/* Measured speed of engines: one moving average per (engine, model, device), for time-outs and
 * estimates. In memory under speed_lock; the row is written with the end of the
 * run, in the same transaction. */
#include "task/internal.h"

#include <string.h>

#define NEWEST_WEIGHT 0.3 /* of the moving average: follows a changed machine within a few runs */

double speed_units(const struct task *task)
{
    double steps = task->steps > 1 ? (double)task->steps : 1;
    return (double)task->width * (double)task->height * (double)task->frames * steps / 1e6;
}

static struct speed *find_locked(struct tasks *tasks, const char *engine, const char *model,
                                 const char *device)
{
    for (size_t i = 0; i < tasks->speed_count; i++) {
        struct speed *s = &tasks->speeds[i];
        if (strcmp(s->engine, engine) == 0 && strcmp(s->model, model) == 0 &&
            (!device || strcmp(s->device, device) == 0))
            return s;
    }
    return NULL;
}

static struct speed *make_locked(struct tasks *tasks, const char *engine, const char *model,
                                 const char *device)
{
    if (tasks->speed_count == tasks->speed_room) {
        size_t room = tasks->speed_room ? 2 * tasks->speed_room : 8;
        struct speed *speeds = realloc(tasks->speeds, room * sizeof *speeds);
        if (!speeds)
            return NULL; /* not known until the next run */
        tasks->speeds = speeds;
        tasks->speed_room = room;
    }
    struct speed *s = &tasks->speeds[tasks->speed_count];
    if (!rl_copy_str(s->engine, sizeof s->engine, engine) ||
        !rl_copy_str(s->model, sizeof s->model, model) ||
        !rl_copy_str(s->device, sizeof s->device, device))
        return NULL;
    tasks->speed_count++;
    return s;
}

bool speed_measure(struct tasks *tasks, const struct task *task, const char *device, int64_t ms,
                   struct speed *ret_speed)
{
    double units = speed_units(task);
    struct speed speed = {.ms_per_unit = units > 0 ? (double)ms / units : 0};
    if (units <= 0 || !rl_copy_str(speed.engine, sizeof speed.engine, task->engine) ||
        !rl_copy_str(speed.model, sizeof speed.model, task->model) ||
        !rl_copy_str(speed.device, sizeof speed.device, device))
        return false;
    pthread_mutex_lock(&tasks->speed_lock);
    const struct speed *s = find_locked(tasks, task->engine, task->model, device);
    if (s)
        speed.ms_per_unit = s->ms_per_unit + NEWEST_WEIGHT * (speed.ms_per_unit - s->ms_per_unit);
    pthread_mutex_unlock(&tasks->speed_lock);
    *ret_speed = speed;
    return true;
}

enum rl_rc speed_put(struct store_conn *conn, const struct speed *speed, struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_SPEED_PUT);
    store_bind_text(stmt, ":engine", speed->engine);
    store_bind_text(stmt, ":model", speed->model);
    store_bind_text(stmt, ":device", speed->device);
    store_bind_real(stmt, ":ms_per_unit", speed->ms_per_unit);
    return store_run(stmt, NULL, err);
}

void speed_set(struct tasks *tasks, const struct speed *speed)
{
    pthread_mutex_lock(&tasks->speed_lock);
    struct speed *s = find_locked(tasks, speed->engine, speed->model, speed->device);
    if (s || (s = make_locked(tasks, speed->engine, speed->model, speed->device)))
        s->ms_per_unit = speed->ms_per_unit;
    pthread_mutex_unlock(&tasks->speed_lock);
}

int64_t speed_expect_ms(struct tasks *tasks, const struct task *task, double units, bool *ret_own)
{
    pthread_mutex_lock(&tasks->speed_lock);
    const struct speed *s = find_locked(tasks, task->engine, task->model, task->worker_id);
    if (ret_own)
        *ret_own = s != NULL;
    if (!s)
        s = find_locked(tasks, task->engine, task->model, NULL);
    double ms = s ? s->ms_per_unit * units : 0;
    pthread_mutex_unlock(&tasks->speed_lock);
    return ms > 0 && ms < 1e15 ? (int64_t)ms + 1 : 0;
}

static enum rl_rc load(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct tasks *tasks = arg;
    bool row;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_SPEED_ALL);
    enum rl_rc rc = store_step(stmt, &row, err);
    for (; rc == RL_OK && row; rc = store_step(stmt, &row, err)) {
        const char *engine = store_col_text(stmt, 0), *model = store_col_text(stmt, 1),
                   *device = store_col_text(stmt, 2);
        pthread_mutex_lock(&tasks->speed_lock);
        struct speed *s =
            engine && model && device ? make_locked(tasks, engine, model, device) : NULL;
        if (s)
            s->ms_per_unit = store_col_real(stmt, 3);
        pthread_mutex_unlock(&tasks->speed_lock);
    }
    return rc;
}

enum rl_rc speed_load(struct tasks *tasks, struct rl_err *err)
{
    return store_read(tasks->store, load, tasks, err);
}
