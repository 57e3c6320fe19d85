/* Submit: parse, then one transaction that finds the task the idempotency key already stands for,
 * or inserts a new one (CREATED, and QUEUED at once when nothing is to be fetched). Any thread. */
#include "task/internal.h"

#include "base/clock.h"
#include "config/config.h"

#include <string.h>

struct submit_work {
    struct tasks *tasks;
    const struct caller *caller;
    const struct submit *submit;
    struct task *existing; /* owned: what the key stands for */
    struct task *made;     /* owned: the new task */
};

static enum rl_rc find_by_key(struct store_conn *conn, const struct task *task,
                              struct task **ret_found, struct rl_err *err)
{
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_TASK_BY_KEY);
    store_bind_text(stmt, ":user_id", task->user_id);
    store_bind_text(stmt, ":idempotency_key", task->idempotency_key);
    bool row;
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc != RL_OK || !row)
        return rc;
    return task_read_row(stmt, ret_found, err);
}

/* Does a task still answer for its derived key? */
static bool derived_matches(const struct tasks *tasks, const struct task *found)
{
    enum task_status status = task_status_of(found);
    if (!task_status_terminal(status))
        return true;
    if (status != TASK_SUCCEEDED)
        return false;
    int64_t age = rl_wall_ms() - found->finished_at; /* negative: the clock was set back */
    return found->seed_given || (age >= 0 && age < config_int(tasks->cfg, CFG_TASK_DERIVED_MS));
}

/* The key is free again: the old row's becomes <key>~<task_id>. */
static enum rl_rc release_key(struct tasks *tasks, struct store_conn *conn,
                              const struct task *found, struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_TASK_RELEASE_KEY);
    store_bind_int(stmt, ":task_id", found->task_id);
    enum rl_rc rc = store_run(stmt, NULL, err);
    return rc == RL_OK ? task_forget_on_commit(tasks, conn, found->task_id, err) : rc;
}

/* *ret_existing: the task that answers, or NULL when a new one may be made. */
static enum rl_rc resolve_key(struct tasks *tasks, struct store_conn *conn,
                              const struct submit *submit, struct task **ret_existing,
                              struct rl_err *err)
{
    const struct task *task = submit->task;
    AUTO_TASK struct task *found = NULL;
    if (!task->idempotency_key)
        return RL_OK;
    enum rl_rc rc = find_by_key(conn, task, &found, err);
    if (rc != RL_OK || !found)
        return rc;
    if (submit->derive) {
        if (!derived_matches(tasks, found))
            return release_key(tasks, conn, found, err);
    } else if (strcmp(found->request_hash, task->request_hash) != 0) {
        return rl_fail_field(err, RL_IDEMPOTENCY_KEY_REUSED, "idempotency_key",
                             "was used with other content");
    }
    *ret_existing = STEAL(found);
    return RL_OK;
}

/* Unfinished tasks of an app's user; the owner has no quota. */
static enum rl_rc check_quota(struct tasks *tasks, struct store_conn *conn,
                              const struct caller *caller, struct rl_err *err)
{
    int64_t limit = config_int(tasks->cfg, CFG_LIMIT_PENDING), pending = 0;
    if (caller->owner || limit == 0)
        return RL_OK;
    struct store_stmt *stmt = store_stmt(conn, SQL_USER_PENDING);
    store_bind_text(stmt, ":user_id", caller->user_id);
    store_bind_int(stmt, ":limit", limit);
    enum rl_rc rc = store_int(stmt, 0, &pending, err);
    if (rc == RL_OK && pending >= limit)
        return rl_fail(err, RL_TOO_MANY_PENDING_TASKS,
                       "%lld tasks of this user are unfinished, %lld are allowed",
                       (long long)pending, (long long)limit);
    return rc;
}

static enum rl_rc insert(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct submit_work *work = arg;
    struct tasks *tasks = work->tasks;
    task_free(STEAL(work->existing));
    task_free(STEAL(work->made));
    enum rl_rc rc = resolve_key(tasks, conn, work->submit, &work->existing, err);
    if (rc != RL_OK || work->existing)
        return rc;
    if (work->submit->refusal.code != RL_OK) {
        *err = work->submit->refusal;
        return err->code;
    }
    rc = check_quota(tasks, conn, work->caller, err);
    if (rc == RL_OK && atomic_load(&tasks->waiting) >= config_int(tasks->cfg, CFG_QUEUE_DEPTH))
        rc = rl_fail(err, RL_QUEUE_FULL, "the queue is full");
    if (rc == RL_OK)
        rc = queue_join(tasks, conn, work->submit->task->queue_name, true, err);
    if (rc == RL_OK)
        rc = store_admit(tasks->store, err);
    if (rc != RL_OK)
        return rc;
    work->made =
        task_clone(work->submit->task); /* this may run again: the parsed one stays as it is */
    if (!work->made)
        return rl_fail(err, RL_NO_MEMORY, "submit");
    struct task *task = work->made;
    int64_t steady = store_steady_ms(tasks->store);
    task->created_at = rl_wall_ms();
    task->input_at = work->submit->input_wait_ms > 0 ? steady + work->submit->input_wait_ms : 0;
    rc = task_create(tasks, conn, task, err);
    if (rc != RL_OK || task->input_at)
        return rc;
    return task_enqueue(tasks, conn, task, err);
}

/* run_at is the wall clock's; the queue counts by the steady one. */
static int64_t start_at(const struct tasks *tasks, const struct task *task)
{
    return task->run_at ? store_steady_ms(tasks->store) + task->run_at - rl_wall_ms() : 0;
}

enum rl_rc task_enqueue(struct tasks *tasks, struct store_conn *conn, struct task *task,
                        struct rl_err *err)
{
    bool reused = false;
    int64_t twin = 0;
    enum rl_rc rc = reuse_find(tasks, conn, task, &reused, &twin, err);
    if (rc != RL_OK || reused)
        return rc;
    struct task_move move = {.from = TASK_CREATED,
                             .to = TASK_QUEUED,
                             .waits_for = twin,
                             .not_before = twin ? NOT_BEFORE_TWIN : start_at(tasks, task),
                             .reason =
                                 twin ? "waits for the result of a soft-cancelled twin" : NULL};
    return task_move(tasks, conn, task, &move, err);
}

enum rl_rc task_submit(struct tasks *tasks, const struct caller *caller, const char *body,
                       size_t len, const char *idempotency_key, struct submit_reply *ret_reply,
                       struct rl_err *err)
{
    struct submit submit;
    if (atomic_load(&tasks->draining))
        return rl_fail(err, RL_UNAVAILABLE, "the server is stopping");
    enum rl_rc rc = submit_parse(tasks, caller, body, len, idempotency_key, &submit, err);
    if (rc != RL_OK)
        return rc;
    struct submit_work work = {.tasks = tasks, .caller = caller, .submit = &submit};
    rc = store_write(tasks->store, STORE_URGENT, insert, &work, err);
    if (rc == RL_OK) {
        ret_reply->replayed = work.existing != NULL;
        ret_reply->task = work.existing ? STEAL(work.existing) : STEAL(work.made);
    }
    task_free(work.existing);
    task_free(work.made);
    submit_clear(&submit);
    return rc;
}
