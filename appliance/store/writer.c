/* The writer thread: owns the only read-write connection and commits whatever arrived during the
 * last fsync as one group (no linger timer). Each operation runs in a savepoint: its failure is its
 * own. Invariants: nobody is answered before the COMMIT of its group returned; hooks run after it,
 * in order; a transaction that SQLite threw away is replayed one operation at a time; a failed
 * fsync or a corrupt file ends the process, because what was written is then unknown. Only this
 * thread checkpoints. */
#include "store/internal.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"

#include <string.h>
#include <sys/stat.h>

#define GROUP_MAX       256   /* past 64 a larger group buys little; bounds the wait of the first */
#define WAL_IDLE_FRAMES 1024  /* 4 MiB: checkpoint when nothing waits */
#define WAL_BUSY_FRAMES 8192  /* 32 MiB: checkpoint even under load */
#define DISK_WATCH_MS   2000  /* how often a full disk is looked at again */
#define BALLAST_MS      60000 /* and whether the ballast that there was no room for is there */

static const struct rl_bounds group_bounds = {
    .upto = {1, 2, 4, 8, 16, 32, 64, 128, GROUP_MAX}, .count = 9, .unit = 1};
/* An NVMe with a capacitor takes 50 us, a good disk 1 ms, a spinning one 10 to 30 ms. */
static const struct rl_bounds commit_bounds = {
    .upto = {50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000},
    .count = 13,
    .unit = 1000000};

static int wal_hook(void *arg, sqlite3 *db, const char *name, int frames)
{
    (void)db;
    (void)name;
    struct store *store = arg;
    atomic_store(&store->wal_frames, frames);
    store->synced = true;
    return SQLITE_OK;
}

static void checkpoint(struct store *store, int mode)
{
    int log = 0, done = 0;
    int rc = sqlite3_wal_checkpoint_v2(store->writer->db, NULL, mode, &log, &done);
    if (rc == SQLITE_OK || rc == SQLITE_BUSY) {
        if (done >= log)
            atomic_store(&store->wal_frames, 0); /* the next commit starts the WAL over */
    } else if (rc != SQLITE_LOCKED) {
        rl_log(RL_LOG_WARN, "checkpoint_failed", "sqlite=%d", rc);
    }
}

static bool untrusted(int sqlite_rc)
{
    int primary = sqlite_rc & 0xff;
    return sqlite_rc == SQLITE_IOERR_FSYNC || sqlite_rc == SQLITE_IOERR_DIR_FSYNC ||
           primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB;
}

static void die(struct store *store, int sqlite_rc, const char *what)
{
    struct rl_err err;
    (void)rl_fail(&err, RL_STORE_ERROR, "%s: %s (%d)", what, sqlite3_errstr(sqlite_rc), sqlite_rc);
    pthread_mutex_lock(&store->lock);
    store->dead = true;
    pthread_mutex_unlock(&store->lock);
    store->fatal(store->fatal_user, &err);
}

enum rl_rc store_try(struct store_conn *conn, store_fn fn, void *arg, struct rl_err *err)
{
    size_t hooks = conn->hook_count;
    if (conn->lost_rc)
        return store_fail(conn, conn->lost_rc, "savepoint", err);
    enum rl_rc rc = store_exec(conn, "SAVEPOINT op", err);
    if (rc != RL_OK) {
        if (!conn->lost_rc)
            conn->lost_rc = SQLITE_ERROR;
        return rc;
    }
    rc = fn(conn, arg, err);
    if (rc != RL_OK) {
        store_drop_hooks(conn, hooks);
        if (!conn->lost_rc &&
            sqlite3_exec(conn->db, "ROLLBACK TO op", NULL, NULL, NULL) != SQLITE_OK)
            conn->lost_rc = store_code(conn);
    }
    if (!conn->lost_rc && sqlite3_exec(conn->db, "RELEASE op", NULL, NULL, NULL) != SQLITE_OK)
        conn->lost_rc = store_code(conn);
    if (sqlite3_get_autocommit(conn->db) && !conn->lost_rc)
        conn->lost_rc = SQLITE_ABORT;
    return rc == RL_OK && conn->lost_rc ? store_fail(conn, conn->lost_rc, "savepoint", err) : rc;
}

/* Run one op in a savepoint of the open transaction. false: the whole transaction is gone. */
static bool run_op(struct store *store, struct store_op *op)
{
    struct store_conn *conn = store->writer;
    struct rl_err ignored;
    struct rl_err *err = op->err ? op->err : &ignored;
    conn->lost_rc = 0;
    if (op->class == STORE_NORMAL && atomic_load(&store->disk_full)) {
        op->rc = rl_fail(err, RL_DISK_FULL, "the disk is full");
        return true;
    }
    op->rc = store_try(conn, op->fn, op->arg, err);
    return !conn->lost_rc;
}

/* COMMIT of so many writes; on failure everything is rolled back and SQLite's code returned. */
static int commit(struct store *store, int64_t writes)
{
    struct store_conn *conn = store->writer;
    store->synced = false;
    int64_t begun = rl_mono_us();
    int rc = sqlite3_exec(conn->db, "COMMIT", NULL, NULL, NULL);
    if (rc != SQLITE_OK) {
        rc = store_code(conn);
        if (!sqlite3_get_autocommit(conn->db))
            (void)sqlite3_exec(conn->db, "ROLLBACK", NULL, NULL,
                               NULL); /* nothing of it is promised */
        return rc;
    }
    int64_t us = rl_mono_us() - begun;
    pthread_mutex_lock(&store->lock);
    store->commits++;
    if (us > store->commit_us_max)
        store->commit_us_max = us;
    pthread_mutex_unlock(&store->lock);
    if (store->synced) { /* a group that changed nothing costs no fsync and says nothing of one */
        rl_histogram_add(&store->group_writes, &group_bounds, writes);
        rl_histogram_add(&store->commit_us, &commit_bounds, us);
    }
    return SQLITE_OK;
}

static void call_hooks(struct store_conn *conn)
{
    for (size_t i = 0; i < conn->hook_count; i++) {
        conn->hooks[i].fn(conn->hooks[i].ctx, conn->hooks[i].arg);
        free(conn->hooks[i].arg);
    }
    conn->hook_count = 0;
}

static void abandon(struct store_conn *conn)
{
    store_drop_hooks(conn, 0);
    if (!sqlite3_get_autocommit(conn->db))
        (void)sqlite3_exec(conn->db, "ROLLBACK", NULL, NULL, NULL); /* it is lost anyway */
}

static int begin(struct store *store)
{
    store->writer->lost_rc = 0;
    return store_begin(store->writer, "BEGIN IMMEDIATE");
}

/* Try a group as one transaction. Returns SQLITE_OK when every op has its verdict and all is
 * durable. */
static int try_group(struct store *store, struct store_op *ops)
{
    int64_t writes = 0;
    int rc = begin(store);
    if (rc != SQLITE_OK)
        return rc;
    for (struct store_op *op = ops; op; op = op->next) {
        if (!run_op(store, op)) {
            rc = store->writer->lost_rc;
            abandon(store->writer);
            return rc;
        }
        writes += op->rc == RL_OK;
    }
    rc = commit(store, writes);
    if (rc != SQLITE_OK) {
        abandon(store->writer);
        return rc;
    }
    call_hooks(store->writer);
    return SQLITE_OK;
}

static void refuse(struct store *store, struct store_op *op, int sqlite_rc)
{
    if (op->rc == RL_OK || (sqlite_rc & 0xff) == SQLITE_FULL)
        op->rc = store_fail(store->writer, sqlite_rc, "commit", op->err);
    if ((sqlite_rc & 0xff) == SQLITE_BUSY)
        rl_log(RL_LOG_ERROR, "database_busy",
               "hint=\"another program holds a write lock on reeld.db\"");
}

/* The group's transaction was lost: give every op a transaction of its own. */
static void replay(struct store *store, struct store_op *ops, int why)
{
    struct store_op *next;
    for (struct store_op *op = ops; op; op = next) {
        next = op->next;
        op->next = NULL;
        int rc = why;
        for (int tries = 0; tries < 2; tries++) {
            if ((rc & 0xff) == SQLITE_FULL) {
                bool freed = store_ballast_drop(store);
                if (tries > 0 && !freed)
                    break;
            }
            rc = try_group(store, op);
            if (rc == SQLITE_OK || untrusted(rc))
                break;
        }
        if (rc != SQLITE_OK) {
            if (untrusted(rc))
                die(store, rc, "write");
            refuse(store, op, rc);
        }
        op->next = next;
    }
}

static struct store_op *take_group(struct store *store, bool *ret_closing)
{
    pthread_mutex_lock(&store->lock);
    while (!store->head && !store->closing) {
        struct timespec until = rl_deadline(CLOCK_MONOTONIC, DISK_WATCH_MS);
        if (pthread_cond_clockwait(&store->work, &store->lock, CLOCK_MONOTONIC, &until) != 0)
            break;
    }
    struct store_op *first = store->head, *last = first;
    size_t n = first ? 1 : 0;
    while (last && last->next && n < GROUP_MAX) {
        last = last->next;
        n++;
    }
    if (first) {
        store->head = last->next;
        if (!store->head)
            store->tail = NULL;
        last->next = NULL;
        store->queued -= n;
        store->ops += (int64_t)n;
        store->group_since = rl_mono_ms();
    }
    *ret_closing = store->closing && !first;
    pthread_mutex_unlock(&store->lock);
    return first;
}

static void answer(struct store *store, struct store_op *ops)
{
    pthread_mutex_lock(&store->lock);
    struct store_op *next;
    for (struct store_op *op = ops; op; op = next) {
        next = op->next; /* op is gone once its owner wakes */
        op->done = true;
        pthread_cond_signal(&op->cond);
    }
    store->group_since = 0;
    pthread_mutex_unlock(&store->lock);
}

/* *at: monotonic time of the last look. */
static void watch_disk(struct store *store, int64_t *at)
{
    bool full = atomic_load(&store->disk_full);
    int64_t now = rl_mono_ms();
    if (now - *at < (full ? DISK_WATCH_MS : BALLAST_MS))
        return;
    *at = now;
    if (full)
        store_disk_watch(store);
    else
        store_ballast_make(store);
}

static void *writer_main(void *arg)
{
    struct store *store = arg;
    bool closing = false;
    int64_t watched = rl_mono_ms() - DISK_WATCH_MS; /* a full disk at once, the ballast later */
    while (!closing) {
        struct store_op *ops = take_group(store, &closing);
        if (ops) {
            int rc = try_group(store, ops);
            if (untrusted(rc)) {
                die(store, rc, "write");
                for (struct store_op *op = ops; op; op = op->next)
                    refuse(store, op, rc);
            } else if (rc != SQLITE_OK) {
                replay(store, ops, rc);
            }
            answer(store, ops);
        }
        int frames = atomic_load(&store->wal_frames);
        pthread_mutex_lock(&store->lock);
        bool idle = !store->head;
        pthread_mutex_unlock(&store->lock);
        if (frames > WAL_BUSY_FRAMES || (idle && frames > WAL_IDLE_FRAMES))
            checkpoint(store, SQLITE_CHECKPOINT_PASSIVE);
        watch_disk(store, &watched);
    }
    checkpoint(store, SQLITE_CHECKPOINT_TRUNCATE);
    return NULL;
}

/* What a killed process left; a short WAL is no reason to start later. */
static bool wal_is_long(const struct store *store)
{
    char path[1100];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s-wal", store->db_path);
    return n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0 &&
           st.st_size > WAL_IDLE_FRAMES * INT64_C(4120);
}

enum rl_rc store_writer_start(struct store *store, struct rl_err *err)
{
    sqlite3_wal_hook(store->writer->db, wal_hook, store);
    if (wal_is_long(store))
        checkpoint(store, SQLITE_CHECKPOINT_TRUNCATE);
    int rc = pthread_create(&store->thread, NULL, writer_main, store);
    if (rc != 0)
        return rl_fail(err, RL_NO_MEMORY, "writer thread: %s", strerror(rc));
    store->thread_started = true;
    return RL_OK;
}

void store_writer_stop(struct store *store)
{
    if (!store->thread_started)
        return;
    pthread_mutex_lock(&store->lock);
    store->closing = true;
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->lock);
    pthread_join(store->thread, NULL);
    store->thread_started = false;
}

enum rl_rc store_write(struct store *store, enum store_class class, store_fn fn, void *arg,
                       struct rl_err *err)
{
    struct store_op op = {.fn = fn, .arg = arg, .class = class, .err = err};
    pthread_mutex_lock(&store->lock);
    if (store->dead || store->closing || store->queued >= store->queue_limit) {
        bool full = !store->dead && !store->closing;
        pthread_mutex_unlock(&store->lock);
        return rl_fail(err, RL_UNAVAILABLE,
                       full ? "too many writes are waiting" : "the store is closing");
    }
    pthread_cond_init(&op.cond, NULL);
    if (store->tail)
        store->tail->next = &op;
    else
        store->head = &op;
    store->tail = &op;
    store->queued++;
    pthread_cond_signal(&store->work);
    while (!op.done)
        pthread_cond_wait(&op.cond, &store->lock);
    pthread_mutex_unlock(&store->lock);
    pthread_cond_destroy(&op.cond);
    return op.rc;
}

void store_histograms(struct store *store, struct rl_buf *out)
{
    rl_buf_str(out, "# HELP reeld_store_group_writes Writes that one COMMIT made durable.\n"
                    "# TYPE reeld_store_group_writes histogram\n");
    rl_histogram_write(&store->group_writes, &group_bounds, "reeld_store_group_writes", "", out);
    rl_buf_str(out, "# HELP reeld_store_commit_seconds Time in COMMIT: the fsync of the log.\n"
                    "# TYPE reeld_store_commit_seconds histogram\n");
    rl_histogram_write(&store->commit_us, &commit_bounds, "reeld_store_commit_seconds", "", out);
}
