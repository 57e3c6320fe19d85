/* Retention: finished tasks beyond the configured age, count or bytes go, oldest first, file before
 * row; never one with an undelivered callback or a follower, and no newer one in its stead. Their
 * history goes later, and later still while a feed has not read it. Events of outside services go
 * by age and count. And files of results/ that no row knows. Scheduler thread. */
#include "task/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DAY_MS       (86400 * INT64_C(1000))
#define ORPHAN_AGE_S 3600   /* a younger file may belong to a run or to a transaction under way */
#define REPAIR_FILES 200000 /* looked at by one repair */
#define STEP_HOOKS   500    /* events of outside services removed by one write, of each kind */
#define STEP_FILES   2000 /* looked at by the scheduler in one round; the next goes on from there */

struct oldest {
    struct tasks *tasks;
    int64_t now;
    int64_t task_id; /* 0 = nothing is to go */
    int64_t finished_at;
    char user_id[64], file[64];
};

struct totals {
    int64_t count, bytes;
};

static enum rl_rc read_totals(struct store_stmt *stmt, struct totals *ret_totals,
                              struct rl_err *err)
{
    bool row;
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc == RL_OK && row)
        *ret_totals = (struct totals){store_col_int(stmt, 0), store_col_int(stmt, 1)};
    store_reset(stmt);
    return rc;
}

/* Are there too many of those that may go? What is older than the oldest of them has to stay; it
 * pushes out nothing. */
static enum rl_rc too_many(struct store_conn *conn, const struct oldest *o, bool *ret_many,
                           struct rl_err *err)
{
    int64_t most = config_int(o->tasks->cfg, CFG_RETAIN_COUNT),
            most_bytes = config_int(o->tasks->cfg, CFG_RETAIN_BYTES);
    struct totals all = {0}, stay = {0};
    *ret_many = false;
    enum rl_rc rc = read_totals(store_stmt(conn, SQL_RETAIN_TOTALS), &all, err);
    if (rc != RL_OK ||
        !((most > 0 && all.count > most) || (most_bytes > 0 && all.bytes > most_bytes)))
        return rc;
    struct store_stmt *before = store_stmt(conn, SQL_RETAIN_BEFORE);
    store_bind_int(before, ":finished_at", o->finished_at);
    store_bind_int(before, ":task_id", o->task_id);
    rc = read_totals(before, &stay, err);
    *ret_many = (most > 0 && all.count - stay.count > most) ||
                (most_bytes > 0 && all.bytes - stay.bytes > most_bytes);
    return rc;
}

static enum rl_rc find_oldest(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct oldest *o = arg;
    const struct config *cfg = o->tasks->cfg;
    int64_t days = config_int(cfg, CFG_RETAIN_DAYS);
    bool counted = config_int(cfg, CFG_RETAIN_COUNT) || config_int(cfg, CFG_RETAIN_BYTES), row;
    o->task_id = 0;
    if (days == 0 && !counted)
        return RL_OK;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_RETAIN_OLDEST);
    store_bind_int(stmt, ":after_at", o->tasks->retain_after.finished_at);
    store_bind_int(stmt, ":after_id", o->tasks->retain_after.task_id);
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc != RL_OK || !row)
        return rc;
    const char *user = store_col_text(stmt, 1), *file = store_col_text(stmt, 3);
    (void)rl_copy_str(o->user_id, sizeof o->user_id, user ? user : "");
    (void)rl_copy_str(o->file, sizeof o->file, file ? file : "");
    o->finished_at = store_col_int(stmt, 2);
    o->task_id = store_col_int(stmt, 0);
    bool goes = days > 0 && o->now - o->finished_at > days * DAY_MS;
    if (!goes && counted)
        rc = too_many(conn, o, &goes, err);
    if (!goes)
        o->task_id = 0;
    return rc;
}

/* Nothing of this is there any more when the row is gone. RL_STALE: since it was chosen the task
 * was replayed, or somebody wants something of it. */
static enum rl_rc purge(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct oldest *o = arg;
    int64_t gone = 0;
    struct store_stmt *task = store_stmt(conn, SQL_PURGE_TASK);
    store_bind_int(task, ":task_id", o->task_id);
    enum rl_rc rc = store_run(task, &gone, err);
    if (rc == RL_OK && gone == 0)
        return rl_fail(err, RL_STALE, "the task is not to be removed any more");
    struct store_stmt *note = store_stmt(conn, SQL_PURGE_NOTE);
    store_bind_int(note, ":task_id", o->task_id);
    store_bind_text(note, ":user_id", o->user_id);
    store_bind_int(note, ":now", o->now);
    if (rc == RL_OK)
        rc = store_run(note, NULL, err);
    struct store_stmt *outbox = store_stmt(conn, SQL_PURGE_OUTBOX);
    store_bind_int(outbox, ":task_id", o->task_id);
    if (rc == RL_OK)
        rc = store_run(outbox, NULL, err);
    return rc == RL_OK ? task_forget_on_commit(o->tasks, conn, o->task_id, err) : rc;
}

static void remove_result(const struct tasks *tasks, const char *file)
{
    static const char *const endings[] = {"mp4", "jpg"};
    for (size_t i = 0; file[0] && i < RL_ARRAY_LEN(endings); i++) {
        char path[1200];
        (void)snprintf(path, sizeof path, "%s/results/%.*s.%s",
                       config_text(tasks->cfg, CFG_STATE_DIR), (int)strcspn(file, "."), file,
                       endings[i]);
        if (unlink(path) != 0 && errno != ENOENT)
            rl_log(RL_LOG_WARN, "unlink_failed", "errno=%d", errno);
    }
}

/* May the history of this removed task go? Not while a feed has not read it, for a time. */
static enum rl_rc feeds_hold(struct store_conn *conn, const struct oldest *o, int64_t *ret_hold,
                             struct rl_err *err)
{
    int64_t days = config_int(o->tasks->cfg, CFG_RETAIN_EVENTS_DAYS) +
                   config_int(o->tasks->cfg, CFG_FEED_HOLD_DAYS);
    struct store_stmt *stmt = store_stmt(conn, SQL_FEED_HOLDS);
    store_bind_int(stmt, ":task_id", o->task_id);
    store_bind_int(stmt, ":before", o->now - days * DAY_MS);
    return store_int(stmt, 0, ret_hold, err);
}

static enum rl_rc forget_events(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct oldest *o = arg;
    struct store_stmt *find = store_stmt(conn, SQL_PURGED_OLDEST);
    store_bind_int(find, ":before",
                   o->now - config_int(o->tasks->cfg, CFG_RETAIN_EVENTS_DAYS) * DAY_MS);
    enum rl_rc rc = store_int(find, 0, &o->task_id, err);
    if (rc != RL_OK || o->task_id == 0)
        return rc;
    int64_t hold = 0;
    rc = feeds_hold(conn, o, &hold, err);
    if (rc == RL_OK && hold)
        o->task_id = 0; /* and with it all that was removed later */
    if (rc != RL_OK || hold)
        return rc;
    static const enum store_sql steps[] = {SQL_EVENTS_PRUNED_SET, SQL_PURGE_EVENTS,
                                           SQL_PURGE_FORGET};
    for (size_t i = 0; rc == RL_OK && i < RL_ARRAY_LEN(steps); i++) {
        struct store_stmt *stmt = store_stmt(conn, steps[i]);
        store_bind_int(stmt, ":task_id", o->task_id);
        rc = store_run(stmt, NULL, err);
    }
    return rc;
}

/* A wall clock that ran away from the steady one removes nobody's work. */
static bool clocks_agree(const struct tasks *tasks)
{
    int64_t drift, wait;
    if (store_wall_trusted(tasks->store, &drift, &wait))
        return true;
    rl_log(
        RL_LOG_WARN, "retain_paused",
        "drift_ms=%lld accepted_in_ms=%lld note=\"the wall clock left the steady one: nothing is "
        "removed until it is back, or has stayed there for three days\"",
        (long long)drift, (long long)wait);
    return false;
}

bool retain_round(struct tasks *tasks)
{
    struct rl_err err;
    struct oldest o = {.tasks = tasks, .now = rl_wall_ms()};
    if (!clocks_agree(tasks))
        return false;
    enum rl_rc rc = store_read(tasks->store, find_oldest, &o, &err);
    if (rc == RL_OK && o.task_id != 0) {
        rc = store_write(tasks->store, STORE_URGENT, purge, &o, &err);
        if (rc == RL_STALE)
            return true; /* the next oldest, then */
        if (rc == RL_OK) /* a file that a crash leaves here is an orphan, found later */
            remove_result(tasks, o.file);
        if (rc == RL_OK)
            rl_log(RL_LOG_INFO, "task_purged", "task_id=%lld status=-", (long long)o.task_id);
        if (rc != RL_OK) { /* its turn comes again when those after it had theirs */
            tasks->retain_after.finished_at = o.finished_at;
            tasks->retain_after.task_id = o.task_id;
        }
    } else if (rc == RL_OK) {
        tasks->retain_after.finished_at = tasks->retain_after.task_id = 0;
        rc = store_write(tasks->store, STORE_URGENT, forget_events, &o, &err);
    }
    if (rc != RL_OK)
        rl_log(RL_LOG_WARN, "retain_failed", "task_id=%lld status=- code=%s", (long long)o.task_id,
               rl_code_name(rc));
    return rc == RL_OK && o.task_id != 0;
}

struct hooks {
    const struct config *cfg;
    int64_t now;
    int64_t unhandled, handled; /* removed; set anew by every run */
};

static enum rl_rc purge_aged(struct store_conn *conn, const struct hooks *hooks, enum store_sql sql,
                             int64_t *ret_gone, struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, sql);
    store_bind_int(stmt, ":before",
                   hooks->now - config_int(hooks->cfg, CFG_RETAIN_HOOK_DAYS) * DAY_MS);
    store_bind_int(stmt, ":limit", STEP_HOOKS);
    return store_run(stmt, ret_gone, err);
}

static enum rl_rc purge_hooks(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct hooks *hooks = arg;
    int64_t beyond = 0;
    hooks->handled = 0;
    enum rl_rc rc = purge_aged(conn, hooks, SQL_INBOUND_PURGE_UNHANDLED, &hooks->unhandled, err);
    if (rc != RL_OK || hooks->unhandled == STEP_HOOKS)
        return rc; /* the others when none of these is left among them */
    rc = purge_aged(conn, hooks, SQL_INBOUND_PURGE_AGED, &hooks->handled, err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_INBOUND_PURGE_BEYOND);
    store_bind_int(stmt, ":keep", config_int(hooks->cfg, CFG_RETAIN_HOOK_EVENTS));
    store_bind_int(stmt, ":limit", STEP_HOOKS);
    rc = store_run(stmt, &beyond, err);
    hooks->handled += beyond;
    return rc;
}

bool retain_hooks(struct tasks *tasks)
{
    struct rl_err err;
    struct hooks hooks = {.cfg = tasks->cfg, .now = rl_wall_ms()};
    if (!clocks_agree(tasks))
        return false;
    enum rl_rc rc = store_write(tasks->store, STORE_URGENT, purge_hooks, &hooks, &err);
    if (rc != RL_OK) {
        rl_log(RL_LOG_WARN, "retain_failed", "code=%s", rl_code_name(rc));
        return false;
    }
    if (hooks.unhandled > 0)
        rl_log(RL_LOG_WARN, "hook_events_expired", "count=%lld note=\"nobody handled them\"",
               (long long)hooks.unhandled);
    return hooks.unhandled + hooks.handled > 0;
}

struct known {
    int64_t task_id;
    const char *file;
    int64_t found;
};

static enum rl_rc is_known(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct known *known = arg;
    struct store_stmt *stmt = store_stmt(conn, SQL_RESULT_KNOWN);
    store_bind_int(stmt, ":task_id", known->task_id);
    store_bind_text(stmt, ":video_file", known->file);
    return store_int(stmt, 0, &known->found, err);
}

/* Is this file of results/ one that no row and no live run knows? */
static bool orphan(struct tasks *tasks, int dir, const char *name)
{
    struct stat st;
    long long id = 0, attempt = 0;
    char ending[16] = "", file[64];
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode) ||
        st.st_mtime > rl_wall_ms() / 1000 - ORPHAN_AGE_S)
        return false;
    bool checkpoint =
        sscanf(name, "%19lld.%15s", &id, ending) == 2 && strncmp(ending, "ckpt", 4) == 0;
    if (!checkpoint && sscanf(name, "%19lld-%9lld.%15s", &id, &attempt, ending) != 3)
        return false;
    pthread_mutex_lock(&tasks->live_lock);
    bool live = run_find_locked(tasks, id, 0) != NULL;
    pthread_mutex_unlock(&tasks->live_lock);
    if (live || checkpoint)
        return !live && checkpoint_orphan(tasks, id);
    if (strstr(ending, ".part"))
        return true;
    (void)snprintf(file, sizeof file, "%lld-%lld.mp4", id, attempt);
    struct known known = {.task_id = id, .file = file};
    return store_read(tasks->store, is_known, &known, NULL) == RL_OK && known.found == 0;
}

/* Look at the next files of `dir`, at most `most`. Returns the orphans among them; *ret_end: that
 * was all. */
static int64_t look_at_files(struct tasks *tasks, DIR *dir, int64_t most, bool dry_run,
                             bool *ret_end)
{
    int64_t orphans = 0;
    const struct dirent *entry = NULL;
    for (int64_t n = 0; n < most && (entry = readdir(dir)); n++) {
        if (entry->d_name[0] == '.' || !orphan(tasks, dirfd(dir), entry->d_name))
            continue;
        orphans++;
        if (!dry_run && unlinkat(dirfd(dir), entry->d_name, 0) == 0)
            rl_log(RL_LOG_INFO, "orphan_removed", "file=%s", entry->d_name);
    }
    *ret_end = !entry;
    return orphans;
}

static DIR *open_results(const struct tasks *tasks)
{
    char path[1200];
    (void)snprintf(path, sizeof path, "%s/results", config_text(tasks->cfg, CFG_STATE_DIR));
    return opendir(path);
}

int64_t retain_orphans(struct tasks *tasks, bool dry_run)
{
    bool end;
    DIR *dir = open_results(tasks);
    if (!dir)
        return 0;
    int64_t orphans = look_at_files(tasks, dir, REPAIR_FILES, dry_run, &end);
    (void)closedir(dir); /* read only */
    return orphans;
}

void retain_orphans_step(struct tasks *tasks)
{
    bool end;
    if (!tasks->orphan_dir)
        tasks->orphan_dir = open_results(tasks);
    if (!tasks->orphan_dir)
        return;
    (void)look_at_files(tasks, tasks->orphan_dir, STEP_FILES, false, &end); /* logged one by one */
    if (end)
        retain_orphans_end(tasks);
}

void retain_orphans_end(struct tasks *tasks)
{
    if (tasks->orphan_dir)
        (void)closedir(tasks->orphan_dir); /* read only */
    tasks->orphan_dir = NULL;
}
