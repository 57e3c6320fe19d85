/* Named queues: running, paused (nothing is claimed, no time-out strikes) or draining (nothing new
 * is taken). A name is kept while something unfinished is in its queue, and while it is not
 * running; others make room for new names. Any thread. */
#include "task/internal.h"

#include "base/buf.h"
#include "base/clock.h"
#include "config/config.h"
#include "events/events.h"

#include <string.h>

#define DEPTH_MOST 10000 /* counting further costs more than the number is worth */

static const char *const state_names[] = {
    [QUEUE_RUNNING] = "RUNNING", [QUEUE_PAUSED] = "PAUSED", [QUEUE_DRAINING] = "DRAINING"};

static enum rl_rc make_room(struct tasks *tasks, struct store_conn *conn, struct rl_err *err)
{
    int64_t count = 0, dropped = 0;
    enum rl_rc rc = store_int(store_stmt(conn, SQL_QUEUE_COUNT), 0, &count, err);
    if (rc != RL_OK || count < config_int(tasks->cfg, CFG_QUEUE_NAMES))
        return rc;
    rc = store_run(store_stmt(conn, SQL_QUEUE_DROP_UNUSED), &dropped, err);
    if (rc == RL_OK && dropped == 0)
        return rl_fail_field(err, RL_INVALID_FIELD, "queue_name",
                             "would be one queue too many (queue.names)");
    return rc;
}

enum rl_rc queue_join(struct tasks *tasks, struct store_conn *conn, const char *queue_name,
                      bool fresh, struct rl_err *err)
{
    bool row;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_QUEUE_STATE);
    store_bind_text(stmt, ":queue_name", queue_name);
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc != RL_OK)
        return rc;
    if (row) {
        const char *state = store_col_text(stmt, 0);
        return fresh && state && strcmp(state, "DRAINING") == 0
                   ? rl_fail_field(err, RL_CONFLICT, "queue_name",
                                   "the queue is draining and takes nothing new")
                   : RL_OK;
    }
    rc = make_room(tasks, conn, err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *ensure = store_stmt(conn, SQL_QUEUE_ENSURE);
    store_bind_text(ensure, ":queue_name", queue_name);
    store_bind_int(ensure, ":created_at", rl_wall_ms());
    return store_run(ensure, NULL, err);
}

struct set_work {
    struct tasks *tasks;
    const char *queue_name;
    enum queue_state state;
};

static enum rl_rc set(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct set_work *work = arg;
    int64_t changed = 0;
    struct store_stmt *stmt = store_stmt(conn, SQL_QUEUE_SET);
    store_bind_text(stmt, ":queue_name", work->queue_name);
    store_bind_text(stmt, ":state", state_names[work->state]);
    store_bind_int(stmt, ":steady", store_steady_ms(work->tasks->store));
    enum rl_rc rc = store_run(stmt, &changed, err);
    return rc == RL_OK && changed == 0 ? rl_fail(err, RL_NOT_FOUND, "no such queue") : rc;
}

enum rl_rc queue_set(struct tasks *tasks, const char *queue_name, enum queue_state state,
                     struct rl_err *err)
{
    struct set_work work = {tasks, queue_name, state};
    enum rl_rc rc = store_write(tasks->store, STORE_URGENT, set, &work, err);
    if (rc == RL_OK) {
        schedule_hint(tasks, 0);
        hub_ring(tasks->hub);
    }
    return rc;
}

static enum rl_rc list(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct rl_jw *w = arg;
    bool row;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_QUEUE_LIST);
    enum rl_rc rc = store_step(stmt, &row, err);
    for (; rc == RL_OK && row; rc = store_step(stmt, &row, err)) {
        rl_jw_object(w, NULL);
        rl_jw_str(w, "queue_name", store_col_text(stmt, 0));
        rl_jw_str(w, "state", store_col_text(stmt, 1));
        if (store_col_int(stmt, 3) > DEPTH_MOST)
            rl_jw_null(w, "depth");
        else
            rl_jw_i64(w, "depth", store_col_int(stmt, 3));
        rl_jw_time(w, "oldest_at", store_col_int(stmt, 4));
        rl_jw_time(w, "created_at", store_col_int(stmt, 2));
        rl_jw_end_object(w);
    }
    return rc;
}

enum rl_rc queue_list(struct tasks *tasks, struct rl_buf *out, struct rl_err *err)
{
    return list_whole(tasks, list, out, err);
}
