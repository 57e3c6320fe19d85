/* Soft cancel and reuse: the result of a soft-cancelled run serves the next identical submit of the
 * same user, by hard link. Runs inside the writer's transactions. A link whose transaction is lost
 * is a file without a row, which the next look for orphans removes. */
#include "task/internal.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool link_file(const struct tasks *tasks, const char *from, const char *to,
                      const char *ending)
{
    char old[1200], new[1200];
    const char *dir = config_text(tasks->cfg, CFG_STATE_DIR);
    (void)snprintf(old, sizeof old, "%s/results/%.*s.%s", dir, (int)strcspn(from, "."), from,
                   ending);
    (void)snprintf(new, sizeof new, "%s/results/%.*s.%s", dir, (int)strcspn(to, "."), to, ending);
    (void)unlink(new); /* of a transaction that was lost */
    /* Young again: the look for orphans must not take it for one before its row is committed. */
    return link(old, new) == 0 && utimensat(AT_FDCWD, new, NULL, 0) == 0 &&
           rl_fs_sync_parent(new, NULL) == RL_OK;
}

/* Give the twin's files a name of this task's next attempt. false: there is no kept result after
 * all. */
static bool link_result(const struct tasks *tasks, const struct task *task, const struct task *twin,
                        char *name, size_t size)
{
    if (!twin->video_file)
        return false;
    (void)snprintf(name, size, "%lld-%lld.mp4", (long long)task->task_id,
                   (long long)task->attempt + 1);
    if (link_file(tasks, twin->video_file, name, "mp4") &&
        link_file(tasks, twin->video_file, name, "jpg"))
        return true;
    rl_log(RL_LOG_WARN, "reuse_failed", "task_id=%lld status=%s twin=%lld errno=%d",
           (long long)task->task_id, task->status, (long long)twin->task_id, errno);
    return false;
}

/* A task that gets the result of its twin. */
struct reuse {
    struct tasks *tasks;
    struct task *task; /* CREATED, or QUEUED for the twin; owned, changed even when it fails */
    const struct task *twin;
    char name[64]; /* of the task's own files */
};

/* CREATED or QUEUED → PROCESSING → SUCCEEDED with the files that link_result made. */
static enum rl_rc finish_by_link(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct reuse *reuse = arg;
    struct tasks *tasks = reuse->tasks;
    struct task *task = reuse->task;
    const struct task *twin = reuse->twin;
    struct task_move enter = {.from = TASK_CREATED, .to = TASK_QUEUED};
    enum rl_rc rc =
        task_status_of(task) == TASK_CREATED ? task_move(tasks, conn, task, &enter, err) : RL_OK;
    if (rc != RL_OK)
        return rc;
    struct task_move start = {
        .from = TASK_QUEUED, .to = TASK_PROCESSING, .worker_id = "reuse", .epoch = tasks->epoch};
    task->seed = twin->seed; /* the video shown was made with this one */
    rc = task_move(tasks, conn, task, &start, err);
    if (rc != RL_OK)
        return rc;
    struct run_result result = {.file = reuse->name,
                                .bytes = twin->video_bytes,
                                .width = (int)twin->video_width,
                                .height = (int)twin->video_height,
                                .frames = (int)twin->video_frames,
                                .fps = (int)twin->video_fps};
    (void)rl_copy_str(result.sha256, sizeof result.sha256,
                      twin->video_sha256 ? twin->video_sha256 : "");
    struct task_move done = {.from = TASK_PROCESSING,
                             .to = TASK_SUCCEEDED,
                             .result = &result,
                             .reused_from = twin->task_id,
                             .reason = "the kept result of a soft-cancelled twin"};
    rc = task_move(tasks, conn, task, &done, err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *served = store_stmt(conn, SQL_TWIN_SERVED);
    store_bind_int(served, ":task_id", twin->task_id);
    return store_run(served, NULL, err);
}

/* Give a task the result of its twin, whole or not at all. *ret_taken false: it has to make its
 * own. errors: the store's own trouble only. */
static enum rl_rc take_result(struct reuse *reuse, struct store_conn *conn, bool *ret_taken,
                              struct rl_err *err)
{
    struct rl_err why = {.code = RL_OK};
    char text[300];
    *ret_taken = false;
    if (!link_result(reuse->tasks, reuse->task, reuse->twin, reuse->name, sizeof reuse->name))
        return RL_OK;
    enum rl_rc rc = store_try(conn, finish_by_link, reuse, &why);
    *ret_taken = rc == RL_OK;
    if (rc == RL_OK)
        return RL_OK;
    if (rl_transient(rc))
        return rl_fail(err, rc, "%s", why.reason);
    rl_log(RL_LOG_ERROR, "reuse_failed", "task_id=%lld status=- twin=%lld code=%s reason=%s",
           (long long)reuse->task->task_id, (long long)reuse->twin->task_id, rl_code_name(why.code),
           rl_log_quote(why.reason, text, sizeof text));
    return RL_OK; /* the files are orphans now, found later */
}

static enum rl_rc find_twin(struct store_conn *conn, const struct task *task,
                            struct task **ret_twin, struct rl_err *err)
{
    bool row;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_KEPT_TWIN);
    store_bind_text(stmt, ":user_id", task->user_id);
    store_bind_text(stmt, ":params_hash", task->params_hash);
    enum rl_rc rc = store_step(stmt, &row, err);
    return rc == RL_OK && row ? task_read_row(stmt, ret_twin, err) : rc;
}

static bool runs_still(struct tasks *tasks, const struct task *twin)
{
    pthread_mutex_lock(&tasks->live_lock);
    struct run *run = run_find_locked(tasks, twin->task_id, twin->attempt);
    bool going = run && atomic_load(&run->stop) == RUN_GO && !atomic_load(&run->ended);
    pthread_mutex_unlock(&tasks->live_lock);
    return going;
}

enum rl_rc reuse_find(struct tasks *tasks, struct store_conn *conn, struct task *task,
                      bool *ret_reused, int64_t *ret_twin, struct rl_err *err)
{
    AUTO_TASK struct task *twin = NULL;
    *ret_reused = false;
    *ret_twin = 0;
    enum rl_rc rc = task->run_at ? RL_OK : find_twin(conn, task, &twin, err);
    if (rc != RL_OK || !twin)
        return rc;
    if (!twin->video_file) {
        *ret_twin = runs_still(tasks, twin) ? twin->task_id : 0;
        return RL_OK;
    }
    struct reuse reuse = {.tasks = tasks, .task = task_clone(task), .twin = twin};
    if (!reuse.task)
        return rl_fail(err, RL_NO_MEMORY, "reuse");
    rc = take_result(&reuse, conn, ret_reused, err);
    if (*ret_reused) { /* the caller's task is what became of it */
        struct task before = *task;
        *task = *reuse.task;
        *reuse.task = before;
    }
    task_free(reuse.task);
    return rc;
}

enum rl_rc reuse_settle(struct tasks *tasks, struct store_conn *conn, const struct task *twin,
                        struct rl_err *err)
{
    enum rl_rc rc = RL_OK;
    while (twin->video_file) {
        int64_t id = 0;
        AUTO_TASK struct task *task = NULL;
        struct store_stmt *stmt = store_stmt(conn, SQL_TWIN_WAITING);
        store_bind_int(stmt, ":task_id", twin->task_id);
        rc = store_int(stmt, 0, &id, err);
        if (rc != RL_OK || id == 0)
            return rc;
        rc = task_load(conn, id, &task, err);
        if (rc != RL_OK)
            return rc;
        struct reuse reuse = {.tasks = tasks, .task = task, .twin = twin};
        bool taken;
        rc = take_result(&reuse, conn, &taken, err);
        if (rc != RL_OK)
            return rc;
        if (!taken)
            break; /* it and those behind it make their own */
    }
    struct store_stmt *stmt = store_stmt(conn, SQL_TWIN_RELEASE);
    store_bind_int(stmt, ":task_id", twin->task_id);
    store_bind_int(stmt, ":now", rl_wall_ms());
    store_bind_int(stmt, ":steady", store_steady_ms(tasks->store));
    return store_run(stmt, NULL, err);
}
