/* Task rows between SQLite and struct task. The column order is task/columns.h. */
#include "task/internal.h"

#include "engine/engine.h"

#include <string.h>

void task_free(struct task *task)
{
    if (!task)
        return;
#define FREE_INT(name)
#define FREE_REAL(name)
#define FREE_TEXT(name)         free(task->name);
#define FREE_COLUMN(type, name) FREE_##type(name)
    TASK_COLUMNS(FREE_COLUMN)
    free(task);
}

struct task *task_clone(const struct task *from)
{
    AUTO_TASK struct task *task = calloc(1, sizeof *task);
    bool whole = task != NULL;
#define CLONE_INT(name)  task->name = from->name;
#define CLONE_REAL(name) task->name = from->name;
#define CLONE_TEXT(name)                                                                           \
    task->name = rl_strdup(from->name);                                                            \
    whole = whole && (task->name || !from->name);
#define CLONE_COLUMN(type, name) CLONE_##type(name)
    if (task) {
        TASK_COLUMNS(CLONE_COLUMN)
        task->queue_position = from->queue_position;
    }
    return whole ? STEAL(task) : NULL;
}

static bool take_text(struct store_stmt *stmt, int col, char **ret_text)
{
    if (store_col_null(stmt, col)) {
        *ret_text = NULL;
        return true;
    }
    *ret_text = rl_strdup(store_col_text(stmt, col));
    return *ret_text != NULL;
}

enum rl_rc task_read_row(struct store_stmt *stmt, struct task **ret_task, struct rl_err *err)
{
    AUTO_TASK struct task *task = calloc(1, sizeof *task);
    bool whole = task != NULL;
    int col = 0;
#define READ_INT(name)          task->name = store_col_int(stmt, col++);
#define READ_REAL(name)         task->name = store_col_real(stmt, col++);
#define READ_TEXT(name)         whole = take_text(stmt, col++, &task->name) && whole;
#define READ_COLUMN(type, name) READ_##type(name)
    if (task) {
        TASK_COLUMNS(READ_COLUMN)
    }
    if (!whole)
        return rl_fail(err, RL_NO_MEMORY, "task row");
    enum task_status status;
    if (!task_status_parse(task->status, &status))
        return rl_fail(err, RL_ROW_UNREADABLE, "task %lld has an unknown status",
                       (long long)task->task_id);
    *ret_task = STEAL(task);
    return RL_OK;
}

enum rl_rc task_load(struct store_conn *conn, int64_t task_id, struct task **ret_task,
                     struct rl_err *err)
{
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_TASK_GET);
    store_bind_int(stmt, ":task_id", task_id);
    bool row;
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc != RL_OK)
        return rc;
    if (!row)
        return rl_fail(err, RL_NOT_FOUND, "no such task");
    return task_read_row(stmt, ret_task, err);
}

enum task_status task_status_of(const struct task *task)
{
    enum task_status status = TASK_CREATED;
    (void)task_status_parse(task->status, &status); /* task_read_row refused anything else */
    return status;
}

struct engine_request task_request(const struct task *task)
{
    return (struct engine_request){.prompt = task->prompt,
                                   .negative_prompt = task->negative_prompt,
                                   .model = task->model,
                                   .width = (int)task->width,
                                   .height = (int)task->height,
                                   .frames = (int)task->frames,
                                   .fps = (int)task->fps,
                                   .steps = (int)task->steps,
                                   .seed = task->seed,
                                   .guidance_scale = task->guidance_scale,
                                   .flow_shift = task->flow_shift,
                                   .options = task->options,
                                   .attempt = (int)task->attempt,
                                   .retry_count = (int)task->retry_count};
}

enum rl_rc task_set_text(char **field, const char *text, struct rl_err *err)
{
    char *copy = rl_strdup(text);
    if (text && !copy)
        return rl_fail(err, RL_NO_MEMORY, "task row");
    free(*field);
    *field = copy;
    return RL_OK;
}
