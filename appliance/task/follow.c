/* Following the event log from any point: the ring in memory when it reaches back that far, the
 * table otherwise. Resume is the normal path: a follower holds nothing but the last seq it has
 * seen. Any thread. */
#include "task/internal.h"

#include "base/buf.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "events/events.h"

#include <string.h>

#define EVENT_BYTES 2048 /* one rendered event: its reason is bounded */

void event_batch_clear(struct event_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        free((char *)(uintptr_t)batch->events[i].json);
    batch->count = 0;
}

struct follow_work {
    const struct caller *caller;
    const struct event_filter *filter;
    int64_t after;
    struct event_batch *batch;
};

static enum rl_rc read_row(struct store_stmt *stmt, struct hub_event *event, struct rl_err *err)
{
    AUTO_BUF struct rl_buf buf = {0};
    struct rl_jw w;
    rl_buf_init(&buf, EVENT_BYTES);
    rl_jw_init(&w, &buf, false);
    *event = (struct hub_event){.seq = store_col_int(stmt, 0), .task_id = store_col_int(stmt, 1)};
    task_event_json(&w, event->seq, event->task_id, store_col_int(stmt, 2), store_col_text(stmt, 3),
                    store_col_text(stmt, 4), store_col_int(stmt, 5), store_col_text(stmt, 6),
                    store_col_text(stmt, 7));
    const char *to = store_col_text(stmt, 4);
    (void)rl_copy_str(event->to_status, sizeof event->to_status,
                      to ? to : ""); /* the seven names fit */
    event->json = rl_buf_take(&buf);
    return event->json ? RL_OK : rl_fail(err, RL_NO_MEMORY, "event");
}

static enum rl_rc read_table(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct follow_work *work = arg;
    struct event_batch *batch = work->batch;
    int64_t pruned = 0, newest = 0;
    event_batch_clear(batch);
    enum rl_rc rc = store_int(store_stmt(conn, SQL_EVENTS_PRUNED), 0, &pruned, err);
    if (rc == RL_OK)
        rc = store_int(store_stmt(conn, SQL_EVENT_LAST_SEQ), 0, &newest, err);
    if (rc != RL_OK)
        return rc;
    batch->last = work->after;
    if (work->after >
        newest) { /* a follower of another database: one restored from a backup, say */
        batch->gap = true;
        batch->last = newest;
        return RL_OK;
    }
    /* One task's history is whole as long as the task is there. */
    batch->gap = work->after < pruned && work->filter->task_id == 0;
    bool row, one = work->filter->task_id != 0, all = work->caller->owner;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, one   ? SQL_FOLLOW_TASK
                                                         : all ? SQL_FOLLOW_ALL
                                                               : SQL_FOLLOW_USER);
    if (one)
        store_bind_int(stmt, ":task_id", work->filter->task_id);
    else if (!all)
        store_bind_text(stmt, ":user_id", work->caller->user_id);
    store_bind_int(stmt, ":after", work->after);
    store_bind_int(stmt, ":limit", EVENT_BATCH);
    rc = store_step(stmt, &row, err);
    for (; rc == RL_OK && row; rc = store_step(stmt, &row, err)) {
        rc = read_row(stmt, &batch->events[batch->count], err);
        if (rc != RL_OK)
            return rc;
        batch->last = batch->events[batch->count++].seq;
    }
    if (rc == RL_OK && batch->count < EVENT_BATCH && newest > batch->last)
        batch->last = newest; /* nothing else up to there concerns this follower */
    return rc;
}

static void keep_wanted(struct event_batch *batch, unsigned statuses)
{
    size_t kept = 0;
    for (size_t i = 0; i < batch->count; i++) {
        enum task_status status;
        bool wanted = statuses == 0 || (task_status_parse(batch->events[i].to_status, &status) &&
                                        (statuses & (1u << status)));
        if (wanted)
            batch->events[kept++] = batch->events[i];
        else
            free((char *)(uintptr_t)batch->events[i].json);
    }
    batch->count = kept;
}

struct hub_filter event_hub_filter(const struct caller *caller, const struct event_filter *filter)
{
    struct hub_filter hub = {.task_id = filter->task_id};
    if (!caller->owner)
        (void)rl_copy_str(hub.user_id, sizeof hub.user_id, caller->user_id); /* same size: fits */
    return hub;
}

enum rl_rc events_after(struct tasks *tasks, const struct caller *caller,
                        const struct event_filter *filter, int64_t after, struct event_batch *batch,
                        struct rl_err *err)
{
    struct hub_filter hub = event_hub_filter(caller, filter);
    batch->count = 0;
    batch->gap = false;
    batch->last = after;
    enum rl_rc rc = RL_OK;
    if (after > hub_last_seq(tasks->hub) || !hub_read(tasks->hub, &hub, after, batch->events,
                                                      EVENT_BATCH, &batch->count, &batch->last)) {
        struct follow_work work = {caller, filter, after, batch};
        batch->last = after;
        rc = store_read(tasks->store, read_table, &work, err);
    }
    if (rc != RL_OK) {
        event_batch_clear(batch);
        return rc;
    }
    keep_wanted(batch, filter->statuses);
    return RL_OK;
}

int64_t events_last(struct tasks *tasks)
{
    return hub_last_seq(tasks->hub);
}

/* ---- progress ---- */

size_t runs_progress(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                     struct run_progress *progress, size_t room)
{
    size_t n = 0;
    pthread_mutex_lock(&tasks->live_lock);
    for (struct run *run = tasks->live; run && n < room; run = run->next) {
        if ((task_id && run->task->task_id != task_id) ||
            (!caller->owner && strcmp(caller->user_id, run->task->user_id) != 0))
            continue;
        progress[n++] = (struct run_progress){.task_id = run->task->task_id,
                                              .attempt = run->attempt,
                                              .phase = atomic_load(&run->phase),
                                              .step = atomic_load(&run->step),
                                              .total = atomic_load(&run->total)};
    }
    pthread_mutex_unlock(&tasks->live_lock);
    return n;
}

bool run_progress_seen(const struct run_progress *now, const struct run_progress *seen,
                       size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (now->task_id == seen[i].task_id && now->attempt == seen[i].attempt &&
            now->phase == seen[i].phase && now->step == seen[i].step)
            return true;
    return false;
}

enum rl_rc task_progress_json(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                              struct rl_buf *out, struct rl_err *err)
{
    AUTO_TASK struct task *task = NULL;
    enum rl_rc rc = task_get(tasks, caller, task_id, &task, err);
    if (rc != RL_OK)
        return rc;
    struct rl_jw w;
    rl_jw_init(&w, out, false);
    rl_jw_object(&w, NULL);
    rl_jw_id(&w, "task_id", task->task_id);
    rl_jw_i64(&w, "attempt", task->attempt);
    task_write_progress(tasks, task, &w);
    rl_jw_end_object(&w);
    return rl_buf_ok(out, err);
}
