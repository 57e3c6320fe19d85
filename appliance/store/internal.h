/* What the files of store/ share. */
#ifndef RL_STORE_INTERNAL_H
#define RL_STORE_INTERNAL_H

#include "store/store.h"

#include "base/histogram.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

struct store_hook {
    void (*fn)(void *ctx, void *arg);
    void *ctx;
    void *arg; /* owned */
};

struct store_stmt {
    sqlite3_stmt *raw; /* NULL on a reader for statements that write */
    struct store_conn *conn;
    int bind_rc; /* first bind error since the last reset */
};

struct store_conn {
    sqlite3 *db;
    bool writer;
    struct store_stmt stmts[SQL_COUNT];
    struct store_hook *hooks; /* writer: to call after COMMIT */
    size_t hook_count, hook_room;
    int lost_rc;             /* SQLite's code when a statement killed the transaction, else 0 */
    struct store_conn *next; /* reader pool */
    int64_t deadline_ms;     /* readers: monotonic time after which a statement is interrupted */
};

/* One submitted write, on its caller's stack. */
struct store_op {
    store_fn fn;
    void *arg;
    enum store_class class;
    enum rl_rc rc;
    struct rl_err *err;
    bool done;
    pthread_cond_t cond;
    struct store_op *next;
};

/* How far the wall clock is ahead of the steady one. */
struct store_offset {
    int64_t accepted;    /* what it is believed to be */
    int64_t seen, since; /* another one, and the steady time it is seen since; since 0 = none */
};

struct store {
    const struct config *cfg;
    char *dir, *db_path, *ballast_path;
    int lock_fd;
    int64_t epoch;
    bool rebooted;
    char boot_id[64];                   /* "" = not known */
    int64_t anchor_steady, anchor_boot; /* steady = anchor_steady + (boottime - anchor_boot) */
    struct store_offset offset; /* whoever keeps the clock only: store_open, then one thread */
    store_fatal_fn fatal;
    void *fatal_user;

    struct store_conn *writer; /* the writer thread's, after open */
    pthread_t thread;
    bool thread_started;
    atomic_int wal_frames; /* set by the WAL hook on the writer thread */
    bool synced;           /* writer thread only: the COMMIT under way wrote to the WAL */

    pthread_mutex_t
        lock; /* guards: head, tail, queued, closing, group_since, dead and the figures */
    pthread_cond_t work; /* writer waits for ops */
    struct store_op *head, *tail;
    size_t queued, queue_limit;
    bool closing;
    bool dead;           /* fatal error: every write fails */
    int64_t group_since; /* monotonic ms at which the group under way began, 0 = idle */
    int64_t commits, ops, commit_us_max;

    struct rl_histogram group_writes, commit_us; /* of the groups that were committed */

    atomic_bool disk_full;

    int64_t reader_limit;
    pthread_mutex_t pool_lock; /* guards: readers, reader_count */
    pthread_cond_t pool_free;
    struct store_conn *readers; /* the idle ones */
    int64_t reader_count;       /* open or being opened */
};

/* conn.c */
enum rl_rc store_conn_open(const char *path, bool writer, struct store_conn **ret_conn,
                           struct rl_err *err) RL_NODISCARD;
enum rl_rc store_conn_prepare(struct store_conn *conn, struct rl_err *err) RL_NODISCARD;
void store_conn_close(struct store_conn *conn);
enum rl_rc store_exec(struct store_conn *conn, const char *sql, struct rl_err *err) RL_NODISCARD;
/* Begin a transaction with `how`, after ending one whose ROLLBACK failed (memory was short).
 * Returns SQLite's code. */
int store_begin(struct store_conn *conn, const char *how);
/* SQLite's extended code of the call that failed; a used-up quota is a full disk, too. */
int store_code(struct store_conn *conn);
/* The code for a SQLite result: RL_DISK_FULL, RL_NO_MEMORY, RL_STORE_ERROR …, with SQLite's words.
 */
enum rl_rc store_fail(struct store_conn *conn, int sqlite_rc, const char *what, struct rl_err *err);
const char *store_sql_text(enum store_sql sql);
void store_drop_hooks(struct store_conn *conn, size_t keep);

/* readers.c */
enum rl_rc store_readers_open(struct store *store, struct rl_err *err) RL_NODISCARD;
void store_readers_close(struct store *store);

/* migrate.c */
enum rl_rc store_migrate(struct store_conn *conn, struct rl_err *err) RL_NODISCARD;
enum rl_rc store_take_epoch(struct store *store, struct rl_err *err) RL_NODISCARD;

/* ballast.c */
void store_ballast_make(struct store *store);
bool store_ballast_drop(struct store *store);
void store_disk_watch(struct store *store);
/* Before the database is opened: remove the copies that interrupted backups left; on a full disk
 * give up the ballast, and what interrupted runs left, as well. */
void store_make_room(struct store *store);

/* writer.c */
enum rl_rc store_writer_start(struct store *store, struct rl_err *err) RL_NODISCARD;
void store_writer_stop(struct store *store);

#endif
