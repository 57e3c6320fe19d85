/* Denoise checkpoints: results/<task_id>.ckpt, written by a run, read by the next run of the same
 * task, removed when the task ends. A header says which work the bytes belong to and proves that
 * they are whole. Save, due and load run on the run's own thread, removal on the writer's.
 * Invariants: a checkpoint that is missing, unfit or cannot be written costs time, never a run; the
 * row's best_step is raised only after the file is durable. */
#include "task/internal.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "config/config.h"
#include "engine/engine.h"
#include "events/events.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 1200
#define WORK_BYTES ((size_t)1 << 20) /* prompts and options are bounded far below */
#define MAGIC      "RLCK"
#define VERSION    1

/* The file: this, then the payload. Little-endian; the size keeps the payload aligned. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_WORK = 8, /* BLAKE2b of what decides the work */
    AT_LENGTH = 40,
    AT_CHECKSUM = 48, /* BLAKE2b of the payload */
    HEADER_BYTES = 80
};

static void put(uint8_t *at, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | at[i];
    return v;
}

static void path_of(const struct tasks *tasks, int64_t task_id, const char *ending, char *path)
{
    (void)snprintf(path, PATH_BYTES, "%s/results/%lld.%s", config_text(tasks->cfg, CFG_STATE_DIR),
                   (long long)task_id, ending); /* state_dir is at most 1,024 bytes */
}

/* What decides the work, every text with its length: no two works share a hash by shifting bytes
 * from one field to the next. */
static enum rl_rc work_hash(const struct task *task, uint8_t hash[RL_HASH_BYTES],
                            struct rl_err *err)
{
    const char *texts[] = {task->engine, task->model, task->prompt, task->negative_prompt,
                           task->options};
    const int64_t numbers[] = {task->width, task->height, task->frames,
                               task->fps,   task->steps,  task->seed};
    AUTO_BUF struct rl_buf work = {0};
    rl_buf_init(&work, WORK_BYTES);
    for (size_t i = 0; i < RL_ARRAY_LEN(texts); i++) {
        const char *text = texts[i] ? texts[i] : "";
        rl_buf_fmt(&work, "%zu:", strlen(text));
        rl_buf_str(&work, text);
    }
    for (size_t i = 0; i < RL_ARRAY_LEN(numbers); i++)
        rl_buf_fmt(&work, "%lld,", (long long)numbers[i]);
    rl_buf_fmt(&work, "%a,%a", task->guidance_scale, task->flow_shift);
    enum rl_rc rc = rl_buf_ok(&work, err);
    if (rc == RL_OK)
        rl_hash(work.data, work.len, hash);
    return rc;
}

static void unlink_if_there(const char *path, int64_t task_id)
{
    if (unlink(path) != 0 && errno != ENOENT)
        rl_log(RL_LOG_WARN, "unlink_failed", "task_id=%lld status=- errno=%d", (long long)task_id,
               errno);
}

static void log_code(const char *event, const struct run *run, const struct rl_err *err)
{
    char text[300];
    rl_log(RL_LOG_WARN, event, "task_id=%lld status=PROCESSING attempt=%lld code=%s reason=%s",
           (long long)run->task->task_id, (long long)run->attempt, rl_code_name(err->code),
           rl_log_quote(err->reason, text, sizeof text));
}

/* Why these bytes are no checkpoint of the run's work; NULL: they are one. */
static const char *unfit(const uint8_t *file, size_t len, const uint8_t work[RL_HASH_BYTES])
{
    uint8_t hash[RL_HASH_BYTES];
    if (len < HEADER_BYTES)
        return "cut short";
    if (memcmp(file + AT_MAGIC, MAGIC, 4) != 0)
        return "no checkpoint";
    if (get(file + AT_VERSION, 4) != VERSION)
        return "another version";
    if (memcmp(file + AT_WORK, work, RL_HASH_BYTES) != 0)
        return "of other work";
    if (get(file + AT_LENGTH, 8) != len - HEADER_BYTES)
        return "another length";
    rl_hash(file + HEADER_BYTES, len - HEADER_BYTES, hash);
    return memcmp(file + AT_CHECKSUM, hash, RL_HASH_BYTES) == 0 ? NULL : "wrong checksum";
}

/* Read the file when there is one of a size that may be read. RL_NOT_FOUND: there is none;
 * *ret_reason: it is unfit. */
static enum rl_rc read_file(const struct run *run, const char *path, char **ret_file,
                            size_t *ret_len, const char **ret_reason, struct rl_err *err)
{
    struct stat st;
    uint8_t work[RL_HASH_BYTES];
    int64_t limit = config_int(run->tasks->cfg, CFG_CHECKPOINT_BYTES);
    if (stat(path, &st) != 0)
        return errno == ENOENT ? rl_fail(err, RL_NOT_FOUND, "no checkpoint")
                               : rl_fail_errno(err, "stat of the checkpoint", errno);
    if (st.st_size > limit + HEADER_BYTES) {
        *ret_reason = "larger than run.checkpoint_bytes";
        return RL_OK;
    }
    AUTO_FREE char *file = NULL;
    enum rl_rc rc = work_hash(run->task, work, err);
    if (rc == RL_OK)
        rc = rl_fs_read(path, (size_t)limit + HEADER_BYTES, &file, ret_len, err);
    if (rc != RL_OK)
        return rc;
    *ret_reason = unfit((const uint8_t *)file, *ret_len, work);
    *ret_file = STEAL(file);
    return RL_OK;
}

void run_checkpoint_load(struct run *run, char **ret_file, const void **ret_payload,
                         size_t *ret_len)
{
    char path[PATH_BYTES], tmp[PATH_BYTES];
    AUTO_FREE char *file = NULL;
    size_t len = 0;
    const char *reason = NULL;
    struct rl_err err;
    int64_t id = run->task->task_id;
    path_of(run->tasks, id, "ckpt", path);
    path_of(run->tasks, id, "ckpt.tmp", tmp);
    *ret_file = NULL;
    *ret_payload = NULL;
    *ret_len = 0;
    unlink_if_there(tmp, id); /* of a process that was killed while it saved */
    enum rl_rc rc = read_file(run, path, &file, &len, &reason, &err);
    if (rc == RL_NOT_FOUND)
        return;
    if (rc != RL_OK) { /* it may be whole: kept */
        log_code("checkpoint_unread", run, &err);
        return;
    }
    if (reason) {
        rl_log(RL_LOG_WARN, "checkpoint_unfit", "task_id=%lld status=PROCESSING reason=\"%s\"",
               (long long)id, reason);
        unlink_if_there(path, id);
        return;
    }
    rl_log(RL_LOG_INFO, "checkpoint_found", "task_id=%lld status=PROCESSING attempt=%lld bytes=%zu",
           (long long)id, (long long)run->attempt, len - HEADER_BYTES);
    run->resumed = true;
    *ret_payload = file + HEADER_BYTES;
    *ret_len = len - HEADER_BYTES;
    *ret_file = STEAL(file);
}

bool run_checkpoint_due(struct run *run)
{
    const struct config *cfg = run->tasks->cfg;
    enum run_stop stop = run_should_stop(run);
    if (config_int(cfg, CFG_CHECKPOINT_BYTES) == 0 || (stop != RUN_GO && stop != RUN_DRAIN))
        return false; /* never again, or nobody will go on from here */
    return stop == RUN_DRAIN ||
           rl_mono_ms() - run->checkpoint_ms >= config_int(cfg, CFG_CHECKPOINT_S) * 1000;
}

/* Saving must not fill the disk that running tasks need to reach their end. */
static enum rl_rc check_room(const struct run *run, const char *path, size_t len,
                             struct rl_err *err)
{
    int64_t limit = config_int(run->tasks->cfg, CFG_CHECKPOINT_BYTES), free_bytes = 0;
    if (limit == 0 || len > (uint64_t)limit)
        return rl_fail(err, RL_IO_ERROR, "%zu bytes are more than run.checkpoint_bytes", len);
    char folder[PATH_BYTES];
    (void)rl_copy_str(folder, sizeof folder, path);
    *strrchr(folder, '/') = '\0';
    enum rl_rc rc = rl_fs_free_bytes(folder, &free_bytes, err);
    if (rc == RL_OK && free_bytes - (int64_t)len < config_int(run->tasks->cfg, CFG_STORE_MIN_FREE))
        return rl_fail(err, RL_DISK_FULL, "too little free space for a checkpoint");
    return rc;
}

static enum rl_rc write_file(const struct run *run, const char *path, const void *bytes, size_t len,
                             struct rl_err *err)
{
    AUTO_FREE uint8_t *file = malloc(HEADER_BYTES + len);
    if (!file)
        return rl_fail(err, RL_NO_MEMORY, "checkpoint of %zu bytes", len);
    memcpy(file + AT_MAGIC, MAGIC, 4);
    put(file + AT_VERSION, VERSION, 4);
    put(file + AT_LENGTH, len, 8);
    if (len > 0)
        memcpy(file + HEADER_BYTES, bytes, len);
    rl_hash(file + HEADER_BYTES, len, file + AT_CHECKSUM);
    enum rl_rc rc = work_hash(run->task, file + AT_WORK, err);
    return rc == RL_OK ? rl_fs_write_durable(path, file, HEADER_BYTES + len, 0640, err) : rc;
}

struct progress_work {
    const struct run *run;
    int64_t step;
};

static enum rl_rc write_progress(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct progress_work *work = arg;
    struct store_stmt *stmt = store_stmt(conn, SQL_TASK_PROGRESSED);
    store_bind_int(stmt, ":task_id", work->run->task->task_id);
    store_bind_int(stmt, ":attempt", work->run->attempt);
    store_bind_int(stmt, ":epoch", work->run->epoch);
    store_bind_int(stmt, ":best_step", work->step);
    return store_run(stmt, NULL, err);
}

/* The run got further than any before it, durably: earlier crashes are no suspicion any more. */
static enum rl_rc note_progress(struct run *run, struct rl_err *err)
{
    struct progress_work work = {.run = run, .step = atomic_load(&run->step)};
    if (atomic_load(&run->phase) != ENGINE_DENOISE || work.step <= run->best_step)
        return RL_OK;
    enum rl_rc rc = store_write(run->tasks->store, STORE_NORMAL, write_progress, &work, err);
    if (rc != RL_OK)
        return rc;
    run->best_step = work.step;
    if (atomic_exchange(&run->suspect, false))
        hub_ring(run->tasks->hub); /* it need not run alone any more: others may start */
    return RL_OK;
}

enum rl_rc run_checkpoint_save(struct run *run, const void *bytes, size_t len, struct rl_err *err)
{
    char path[PATH_BYTES];
    struct rl_err why;
    path_of(run->tasks, run->task->task_id, "ckpt", path);
    enum rl_rc rc = check_room(run, path, len, &why);
    if (rc == RL_OK)
        rc = write_file(run, path, bytes, len, &why);
    if (rc == RL_OK)
        rc = note_progress(run, &why);
    run->checkpoint_ms = rl_mono_ms(); /* a failed save is not tried again at the next step */
    if (rc == RL_OK)
        return RL_OK;
    log_code("checkpoint_not_saved", run, &why);
    return rl_fail(err, rc, "%s", why.reason);
}

static void remove_now(void *ctx, void *arg)
{
    char path[PATH_BYTES];
    const int64_t *task_id = arg;
    path_of(ctx, *task_id, "ckpt", path);
    unlink_if_there(path, *task_id);
}

enum rl_rc checkpoint_remove_on_commit(struct tasks *tasks, struct store_conn *conn,
                                       int64_t task_id, struct rl_err *err)
{
    int64_t *id = malloc(sizeof *id);
    if (!id)
        return rl_fail(err, RL_NO_MEMORY, "checkpoint");
    *id = task_id;
    return store_on_commit(conn, remove_now, tasks, id, err);
}

struct owner {
    int64_t task_id, found;
};

static enum rl_rc find_owner(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct owner *owner = arg;
    struct store_stmt *stmt = store_stmt(conn, SQL_CHECKPOINT_OWNER);
    store_bind_int(stmt, ":task_id", owner->task_id);
    return store_int(stmt, 0, &owner->found, err);
}

bool checkpoint_orphan(struct tasks *tasks, int64_t task_id)
{
    struct owner owner = {.task_id = task_id};
    return store_read(tasks->store, find_owner, &owner, NULL) == RL_OK && owner.found == 0;
}
