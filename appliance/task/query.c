/* Reading tasks: one, lists by keyset pages, histories, the files of a result. Read-only
 * connections; any thread. */
#include "task/internal.h"

#include "base/buf.h"
#include "config/config.h"

#include <string.h>

#define ONE_POSITION   10000 /* how far back a queue position is counted, for one task */
#define LIST_POSITIONS 1000  /* and for each of a list */

struct get_work {
    const struct caller *caller;
    int64_t task_id;
    struct task *task; /* owned */
};

static bool may_see(const struct caller *caller, const struct task *task)
{
    return caller->owner || strcmp(caller->user_id, task->user_id) == 0;
}

/* Is nothing taken from this queue? */
static enum rl_rc paused(struct store_conn *conn, const char *queue_name, bool *ret_paused,
                         struct rl_err *err)
{
    bool row;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_QUEUE_STATE);
    store_bind_text(stmt, ":queue_name", queue_name);
    enum rl_rc rc = store_step(stmt, &row, err);
    const char *state = rc == RL_OK && row ? store_col_text(stmt, 0) : NULL;
    *ret_paused = state && strcmp(state, "PAUSED") == 0;
    return rc;
}

/* Place in the queue and the work before it. Further back than `most` a number
 * helps nobody and costs a scan. */
static enum rl_rc fill_position(struct store_conn *conn, struct task *task, int64_t most,
                                struct rl_err *err)
{
    bool row;
    task->queue_position = 0;
    task->units_before = 0;
    if (strcmp(task->status, "QUEUED") != 0 || task->not_before)
        return RL_OK;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_QUEUE_POSITION);
    store_bind_text(stmt, ":queue_name", task->queue_name);
    store_bind_int(stmt, ":rank", task->rank);
    store_bind_int(stmt, ":task_id", task->task_id);
    store_bind_int(stmt, ":limit", most + 1);
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc == RL_OK && row && store_col_int(stmt, 0) <= most) {
        task->queue_position = store_col_int(stmt, 0) + 1;
        task->units_before = store_col_real(stmt, 1);
    }
    bool stands = false;
    if (rc == RL_OK && task->queue_position > 0)
        rc = paused(conn, task->queue_name, &stands, err);
    if (stands)
        task->units_before = -1;
    return rc;
}

enum rl_rc task_missing(struct store_conn *conn, const struct caller *caller, int64_t task_id,
                        struct rl_err *err)
{
    bool row;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_PURGED_USER);
    store_bind_int(stmt, ":task_id", task_id);
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc != RL_OK)
        return rc;
    const char *user = row ? store_col_text(stmt, 0) : NULL;
    if (user && (caller->owner || strcmp(caller->user_id, user) == 0))
        return rl_fail(err, RL_TASK_EXPIRED, "the task was removed by retention");
    return rl_fail(err, RL_NOT_FOUND, "no such task");
}

static enum rl_rc get(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct get_work *work = arg;
    enum rl_rc rc = task_load(conn, work->task_id, &work->task, err);
    if (rc == RL_NOT_FOUND)
        return task_missing(conn, work->caller, work->task_id, err);
    return rc == RL_OK ? fill_position(conn, work->task, ONE_POSITION, err) : rc;
}

enum rl_rc task_get(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                    struct task **ret_task, struct rl_err *err)
{
    AUTO_TASK struct task *task = NULL;
    if (!cache_get(tasks->cache, task_id, &task)) {
        struct get_work work = {caller, task_id, NULL};
        uint64_t generation = cache_generation(tasks->cache);
        enum rl_rc rc = store_read(tasks->store, get, &work, err);
        task = work.task;
        if (rc != RL_OK)
            return rc;
        if (task_status_terminal(task_status_of(task)))
            cache_put(tasks->cache, task, generation);
    }
    if (!may_see(caller, task))
        return rl_fail(err, RL_NOT_FOUND, "no such task");
    *ret_task = STEAL(task);
    return RL_OK;
}

bool task_id_parse(const char *text, size_t len, int64_t *ret_id)
{
    int64_t id = 0;
    if (len < 1 || len > 19 || text[0] == '0')
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || id > (INT64_MAX - (text[i] - '0')) / 10)
            return false;
        id = id * 10 + (text[i] - '0');
    }
    *ret_id = id;
    return true;
}

struct list_work {
    struct tasks *tasks;
    const struct caller *caller;
    const struct page_query *page;
    int64_t task_id; /* of a history */
    struct rl_jw w;
    int64_t next; /* cursor of the next page, 0 = this is the last */
};

static int64_t first_cursor(const struct page_query *page)
{
    return page->after ? page->after : page->ascending ? 0 : INT64_MAX;
}

/* Rows are asked for one more than shown: the extra one says that there is a next page. */
static void bind_page(struct store_stmt *stmt, const struct page_query *page)
{
    store_bind_int(stmt, ":after", first_cursor(page));
    store_bind_int(stmt, ":limit", page->limit + 1);
}

/* Write one page of the tasks that the bound statement gives. */
static enum rl_rc list_rows(struct list_work *work, struct store_conn *conn,
                            struct store_stmt *stmt, struct rl_err *err)
{
    bool row;
    int64_t last = 0;
    enum rl_rc rc = store_step(stmt, &row, err);
    for (int n = 0; rc == RL_OK && row; n++) {
        AUTO_TASK struct task *task = NULL;
        if (n == work->page->limit) {
            work->next = last;
            break;
        }
        rc = task_read_row(stmt, &task, err);
        if (rc == RL_OK)
            rc = fill_position(conn, task, LIST_POSITIONS, err);
        if (rc != RL_OK)
            break;
        task_json(work->tasks, task, &work->w, NULL);
        last = task->task_id;
        rc = store_step(stmt, &row, err);
    }
    return rc;
}

static enum rl_rc list(struct store_conn *conn, void *arg, struct rl_err *err)
{
    static const enum store_sql sqls[2][2] = {{SQL_TASK_LIST_USER_DESC, SQL_TASK_LIST_USER_ASC},
                                              {SQL_TASK_LIST_DESC, SQL_TASK_LIST_ASC}};
    struct list_work *work = arg;
    const struct page_query *page = work->page;
    AUTO_STMT struct store_stmt *stmt =
        store_stmt(conn, sqls[work->caller->owner][page->ascending]);
    if (!work->caller->owner)
        store_bind_text(stmt, ":user_id", work->caller->user_id);
    store_bind_int(stmt, ":statuses",
                   page->statuses ? page->statuses : (1u << TASK_STATUS_COUNT) - 1);
    bind_page(stmt, page);
    return list_rows(work, conn, stmt, err);
}

static enum rl_rc list_dead(struct store_conn *conn, void *arg, struct rl_err *err)
{
    static const enum store_sql sqls[2][2] = {{SQL_DEAD_USER_DESC, SQL_DEAD_USER_ASC},
                                              {SQL_DEAD_DESC, SQL_DEAD_ASC}};
    struct list_work *work = arg;
    AUTO_STMT struct store_stmt *stmt =
        store_stmt(conn, sqls[work->caller->owner][work->page->ascending]);
    if (!work->caller->owner)
        store_bind_text(stmt, ":user_id", work->caller->user_id);
    bind_page(stmt, work->page);
    return list_rows(work, conn, stmt, err);
}

static enum rl_rc history(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct list_work *work = arg;
    const struct page_query *page = work->page;
    AUTO_TASK struct task *task = NULL;
    enum rl_rc rc = task_load(conn, work->task_id, &task, err);
    if (rc != RL_OK)
        return rc == RL_NOT_FOUND ? task_missing(conn, work->caller, work->task_id, err) : rc;
    if (!may_see(work->caller, task))
        return rl_fail(err, RL_NOT_FOUND, "no such task");
    AUTO_STMT struct store_stmt *stmt =
        store_stmt(conn, page->ascending ? SQL_HISTORY_ASC : SQL_HISTORY_DESC);
    store_bind_int(stmt, ":task_id", work->task_id);
    bind_page(stmt, page);
    bool row;
    int64_t last = 0;
    rc = store_step(stmt, &row, err);
    for (int n = 0; rc == RL_OK && row; n++) {
        if (n == page->limit) {
            work->next = last;
            break;
        }
        last = store_col_int(stmt, 0);
        task_event_json(&work->w, last, store_col_int(stmt, 1), store_col_int(stmt, 2),
                        store_col_text(stmt, 3), store_col_text(stmt, 4), store_col_int(stmt, 5),
                        store_col_text(stmt, 6), store_col_text(stmt, 7));
        rc = store_step(stmt, &row, err);
    }
    return rc;
}

static enum rl_rc run_list(struct list_work *work, store_fn fn, struct rl_buf *out,
                           struct rl_err *err)
{
    rl_jw_init(&work->w, out, false);
    rl_jw_object(&work->w, NULL);
    rl_jw_array(&work->w, "data");
    enum rl_rc rc = store_read(work->tasks->store, fn, work, err);
    if (rc != RL_OK)
        return rc;
    rl_jw_end_array(&work->w);
    rl_jw_id(&work->w, "next", work->next);
    rl_jw_end_object(&work->w);
    return rl_buf_ok(out, err);
}

enum rl_rc task_list(struct tasks *tasks, const struct caller *caller,
                     const struct page_query *page, struct rl_buf *out, struct rl_err *err)
{
    struct list_work work = {.tasks = tasks, .caller = caller, .page = page};
    return run_list(&work, list, out, err);
}

enum rl_rc dead_list(struct tasks *tasks, const struct caller *caller,
                     const struct page_query *page, struct rl_buf *out, struct rl_err *err)
{
    struct list_work work = {.tasks = tasks, .caller = caller, .page = page};
    return run_list(&work, list_dead, out, err);
}

enum rl_rc task_history(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                        const struct page_query *page, struct rl_buf *out, struct rl_err *err)
{
    struct list_work work = {.tasks = tasks, .caller = caller, .page = page, .task_id = task_id};
    return run_list(&work, history, out, err);
}

enum rl_rc task_video_path(struct tasks *tasks, const struct task *task, bool poster, char *path,
                           size_t size, struct rl_err *err)
{
    if (strcmp(task->status, "SUCCEEDED") != 0 || !task->video_file)
        return rl_fail(err, RL_VIDEO_NOT_READY, "the task is %s", task->status);
    int stem = (int)strcspn(task->video_file, ".");
    int n = snprintf(path, size, "%s/results/%.*s.%s", config_text(tasks->cfg, CFG_STATE_DIR), stem,
                     task->video_file, poster ? "jpg" : "mp4");
    if (n < 0 || (size_t)n >= size)
        return rl_fail(err, RL_INTERNAL, "path of the result is too long");
    return RL_OK;
}

enum rl_rc list_whole(struct tasks *tasks, store_fn fn, struct rl_buf *out, struct rl_err *err)
{
    struct rl_jw w;
    rl_jw_init(&w, out, false);
    rl_jw_object(&w, NULL);
    rl_jw_array(&w, "data");
    enum rl_rc rc = store_read(tasks->store, fn, &w, err);
    if (rc != RL_OK)
        return rc;
    rl_jw_end_array(&w);
    rl_jw_null(&w, "next");
    rl_jw_end_object(&w);
    return rl_buf_ok(out, err);
}
