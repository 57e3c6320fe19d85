/* Repair: what is stuck, why, and what to do about it, in small batches. The scheduler does the
 * same by itself; this is for the person who wants to see it, and for what a bug left behind. Any
 * thread. */
#include "task/internal.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "events/events.h"

#include <string.h>

#define SWEEP_ROWS 50  /* what the scheduler repairs by itself, a minute */
#define SCAN_ROWS  500 /* per read: readers hold no long snapshots */

struct stuck {
    int64_t task_id;
    enum task_status status;
    const char *reason, *action; /* static */
};

struct scan {
    struct tasks *tasks;
    enum task_status status;
    int64_t after;
    size_t rows;
    struct stuck found[SCAN_ROWS];
    size_t count;
};

static bool alive(struct tasks *tasks, int64_t task_id, int64_t attempt)
{
    pthread_mutex_lock(&tasks->live_lock);
    bool found = run_find_locked(tasks, task_id, attempt) != NULL;
    pthread_mutex_unlock(&tasks->live_lock);
    return found;
}

/* Columns as in repair_scan. false: the task is where it should be. */
static bool judge(struct tasks *tasks, enum task_status status, struct store_stmt *stmt,
                  struct stuck *stuck)
{
    int64_t steady = store_steady_ms(tasks->store), now = rl_wall_ms(), id = store_col_int(stmt, 0);
    int64_t attempt = store_col_int(stmt, 2), epoch = store_col_int(stmt, 3),
            updated = store_col_int(stmt, 4);
    int64_t input_at = store_col_int(stmt, 5), not_before = store_col_int(stmt, 6),
            waits_for = store_col_int(stmt, 7);
    int64_t patience = config_int(tasks->cfg, CFG_TASK_CREATED_MS);
    *stuck = (struct stuck){.task_id = id, .status = status};
    if (status == TASK_CREATED && input_at <= steady && now - updated > patience) {
        stuck->reason = "its inputs are there, yet it was not enqueued";
        stuck->action = "enqueue";
    } else if (status == TASK_PROCESSING && (epoch != tasks->epoch || (!alive(tasks, id, attempt) &&
                                                                       now - updated > patience))) {
        stuck->reason = epoch != tasks->epoch ? "its run belongs to an earlier start of the program"
                                              : "no worker runs it";
        stuck->action = "requeue";
    } else if (status == TASK_QUEUED && waits_for && !alive(tasks, waits_for, 0)) {
        stuck->reason = "it waits for a run that is over";
        stuck->action = "release";
    } else if (status == TASK_QUEUED && !waits_for && not_before > 0 &&
               steady - not_before > patience) {
        stuck->reason = "its delay is over, yet it is not claimable";
        stuck->action = "release";
    }
    return stuck->reason != NULL;
}

static enum rl_rc scan_rows(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct scan *scan = arg;
    bool row;
    scan->rows = scan->count = 0;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_REPAIR_SCAN);
    store_bind_text(stmt, ":status", task_status_name(scan->status));
    store_bind_int(stmt, ":after", scan->after);
    store_bind_int(stmt, ":limit", SCAN_ROWS);
    enum rl_rc rc = store_step(stmt, &row, err);
    for (; rc == RL_OK && row; rc = store_step(stmt, &row, err)) {
        scan->after = store_col_int(stmt, 0);
        scan->rows++;
        if (judge(scan->tasks, scan->status, stmt, &scan->found[scan->count]))
            scan->count++;
    }
    return rc;
}

struct act_work {
    struct tasks *tasks;
    const struct stuck *stuck;
};

static enum rl_rc act(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct act_work *work = arg;
    struct tasks *tasks = work->tasks;
    AUTO_TASK struct task *task = NULL;
    enum rl_rc rc = task_load(conn, work->stuck->task_id, &task, err);
    if (rc != RL_OK)
        return rc;
    if (task_status_of(task) != work->stuck->status)
        return rl_fail(err, RL_STALE, "the task moved on meanwhile");
    struct task_move move = {.from = TASK_PROCESSING, .to = TASK_QUEUED, .reason = "repair"};
    switch (work->stuck->status) {
    case TASK_CREATED:
        return task_enqueue(tasks, conn, task, err);
    case TASK_PROCESSING:
        if (task->cancel_mode && strcmp(task->cancel_mode, "hard") == 0) {
            move.to = TASK_CANCELED;
            move.cancel_mode = "hard";
        }
        if (alive(tasks, task->task_id, task->attempt))
            return rl_fail(err, RL_STALE, "its worker is alive");
        return task_move(tasks, conn, task, &move, err);
    case TASK_QUEUED:
        move.from = TASK_QUEUED;
        return task_move(tasks, conn, task, &move, err);
    case TASK_SUCCEEDED:
    case TASK_FAILED:
    case TASK_TIMEOUT:
    case TASK_CANCELED:
    case TASK_STATUS_COUNT:
        break;
    }
    return rl_fail(err, RL_INTERNAL, "nothing to repair");
}

struct repair {
    struct tasks *tasks;
    bool dry_run;
    int batch, listed, acted;
    struct repair_place at; /* the last one that was judged; before: where to begin, behind it */
    bool more;              /* the batch was full before the end */
    struct rl_jw w;
};

/* List one and act on it. One that cannot be repaired is listed with the code of its error: those
 * behind it are. */
static void repair_one(struct repair *repair, const struct stuck *stuck)
{
    struct act_work work = {repair->tasks, stuck};
    struct rl_err why = {.code = RL_OK};
    char text[300];
    if (!repair->dry_run) {
        enum rl_rc rc = store_write(repair->tasks->store, STORE_URGENT, act, &work, &why);
        if (rc == RL_STALE)
            return; /* it moved on by itself: the best repair */
        repair->acted += rc == RL_OK;
        if (rc != RL_OK)
            rl_log(RL_LOG_ERROR, "repair_failed", "task_id=%lld status=%s code=%s reason=%s",
                   (long long)stuck->task_id, task_status_name(stuck->status), rl_code_name(rc),
                   rl_log_quote(why.reason, text, sizeof text));
    }
    repair->listed++;
    rl_jw_object(&repair->w, NULL);
    rl_jw_id(&repair->w, "task_id", stuck->task_id);
    rl_jw_str(&repair->w, "status", task_status_name(stuck->status));
    rl_jw_str(&repair->w, "reason", stuck->reason);
    rl_jw_str(&repair->w, "action", stuck->action);
    rl_jw_str(&repair->w, "error", why.code == RL_OK ? NULL : rl_code_name(why.code));
    rl_jw_end_object(&repair->w);
}

static enum rl_rc repair_status(struct repair *repair, struct scan *scan, enum task_status status,
                                struct rl_err *err)
{
    scan->status = status;
    scan->after = status == repair->at.status ? repair->at.task_id : 0;
    do {
        enum rl_rc rc = store_read(repair->tasks->store, scan_rows, scan, err);
        if (rc != RL_OK)
            return rc;
        for (size_t i = 0; i < scan->count && !repair->more; i++) {
            repair_one(repair, &scan->found[i]);
            repair->at = (struct repair_place){status, scan->found[i].task_id};
            repair->more = repair->listed == repair->batch;
        }
    } while (scan->rows == SCAN_ROWS && !repair->more);
    return RL_OK;
}

static enum rl_rc counts(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct rl_jw *w = arg;
    bool row;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_STATUS_COUNTS);
    enum rl_rc rc = store_step(stmt, &row, err);
    for (; rc == RL_OK && row; rc = store_step(stmt, &row, err))
        rl_jw_i64(w, store_col_text(stmt, 0), store_col_int(stmt, 1));
    return rc;
}

/* The stuck tasks from repair->at on as an array in repair->w; acted upon unless it is a dry run.
 */
static enum rl_rc repair_all(struct repair *repair, unsigned statuses, struct rl_err *err)
{
    AUTO_FREE struct scan *scan = calloc(1, sizeof *scan); /* too large for a worker's stack */
    if (!scan)
        return rl_fail(err, RL_NO_MEMORY, "repair");
    scan->tasks = repair->tasks;
    rl_jw_array(&repair->w, "stuck");
    enum rl_rc rc = RL_OK;
    for (int s = (int)repair->at.status; rc == RL_OK && s <= TASK_PROCESSING && !repair->more; s++)
        if (statuses == 0 || (statuses & (1u << s)))
            rc = repair_status(repair, scan, (enum task_status)s, err);
    rl_jw_end_array(&repair->w);
    if (repair->acted > 0)
        hub_ring(repair->tasks->hub);
    return rc;
}

/* Each sweep goes on where the one before it ended, so that what cannot be repaired holds up none
 * behind it. */
enum rl_rc repair_sweep(struct tasks *tasks, struct rl_err *err)
{
    struct repair repair = {.tasks = tasks, .batch = SWEEP_ROWS, .at = tasks->swept};
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 1 << 20);
    rl_jw_init(&repair.w, &out, false);
    rl_jw_object(&repair.w, NULL);
    enum rl_rc rc = repair_all(&repair, 1u << TASK_CREATED | 1u << TASK_PROCESSING, err);
    tasks->swept = repair.more ? repair.at : (struct repair_place){TASK_CREATED, 0};
    if (repair.acted > 0)
        rl_log(RL_LOG_WARN, "repaired", "tasks=%d", repair.acted);
    return rc;
}

/* "PROCESSING.7533133402459865088" */
static enum rl_rc parse_place(const char *text, struct repair_place *ret_place, struct rl_err *err)
{
    char name[16] = "";
    size_t len = strcspn(text, ".");
    if (len < sizeof name)
        memcpy(name, text, len);
    if (!task_status_parse(name, &ret_place->status) || !text[len] ||
        !task_id_parse(text + len + 1, strlen(text + len + 1), &ret_place->task_id))
        return rl_fail_field(err, RL_INVALID_FIELD, "after",
                             "must be the `next` of the answer before");
    return RL_OK;
}

enum rl_rc task_repair(struct tasks *tasks, bool dry_run, unsigned statuses, int batch,
                       const char *after, struct rl_buf *out, struct rl_err *err)
{
    char next[48];
    struct repair repair = {.tasks = tasks, .dry_run = dry_run, .batch = batch};
    if (after && parse_place(after, &repair.at, err) != RL_OK)
        return RL_INVALID_FIELD;
    rl_jw_init(&repair.w, out, false);
    rl_jw_object(&repair.w, NULL);
    rl_jw_bool(&repair.w, "dry_run", dry_run);
    enum rl_rc rc = repair_all(&repair, statuses, err);
    if (rc != RL_OK)
        return rc;
    (void)snprintf(next, sizeof next, "%s.%lld", task_status_name(repair.at.status),
                   (long long)repair.at.task_id); /* fits */
    rl_jw_str(&repair.w, "next", repair.more ? next : NULL);
    rl_jw_i64(&repair.w, "acted", repair.acted);
    rl_jw_i64(&repair.w, "orphan_files", retain_orphans(tasks, dry_run));
    rl_jw_object(&repair.w, "status_counts");
    rc = store_read(tasks->store, counts, &repair.w, err);
    if (rc != RL_OK)
        return rc;
    rl_jw_end_object(&repair.w);
    rl_jw_end_object(&repair.w);
    return rl_buf_ok(out, err);
}
