/* SQLite behind one wrapper: one writer thread with group commit, a few read-only connections,
 * named statements. The only user of <sqlite3.h>. SQL lives in schema/; names become enum
 * store_sql. */
#ifndef RL_STORE_STORE_H
#define RL_STORE_STORE_H

#include "base/rl.h"
#include "store_sql.h" /* generated: enum store_sql */

struct config;
struct rl_buf;
struct store;
struct store_conn; /* a connection inside a transaction, borrowed for the call-back */
struct store_stmt; /* a prepared statement, borrowed from its connection */

/* Called on the writer thread when the database can no longer be trusted (fsync failed, corrupt):
 * log, and end the process. */
typedef void (*store_fatal_fn)(void *user, const struct rl_err *err);

/* Open (create, migrate) state_dir/reeld.db: takes the folder's lock, refuses network file systems,
 * starts the writer. Durably takes the next epoch. errors: RL_LOCKED (another instance),
 * RL_STORE_ERROR, RL_IO_ERROR, RL_DISK_FULL */
enum rl_rc store_open(const struct config *cfg, store_fatal_fn fatal, void *user,
                      struct store **ret_store, struct rl_err *err) RL_NODISCARD;
/* Finishes queued writes, checkpoints, closes. */
void store_close(struct store *store);
const char *store_version(void); /* SQLite's */
int64_t store_epoch(const struct store *store);
/* True when the machine was rebooted since the previous epoch (boot id differs). */
bool store_rebooted(const struct store *store);
/* The clock that due times are stored in: wall time as of the first start after a boot, carried on
 * by CLOCK_BOOTTIME. It counts suspend, ignores every jump of the wall clock, goes on over restarts
 * of the program, and never runs backwards over a reboot. Any thread. */
int64_t store_steady_ms(const struct store *store);
/* Remember the steady clock durably (so that a boot in 1970 goes on from here), and look at how far
 * the wall clock is from it; once a minute is enough. thread: always the same. */
enum rl_rc store_keep_clock(struct store *store, struct rl_err *err) RL_NODISCARD;
/* May ages be told by the wall clock? Not when it left its accepted distance to the steady clock by
 * more than a day; a new distance is accepted when it stood for three days of uptime. ret_drift_ms:
 * how far it left; ret_wait_ms: until that is accepted, if it stays. thread: store_keep_clock's. */
bool store_wall_trusted(const struct store *store, int64_t *ret_drift_ms, int64_t *ret_wait_ms);

/* A unit of work. May run more than once (after a lost transaction): it must set its outputs anew
 * each time, and free what an earlier run left there. Not RL_OK: its changes are rolled back,
 * nobody else's. */
typedef enum rl_rc (*store_fn)(struct store_conn *conn, void *arg, struct rl_err *err);

enum store_class {
    STORE_NORMAL, /* refused with RL_DISK_FULL while the disk is full: claims, progress, reads of
                     feeds */
    STORE_URGENT  /* may use the ballast: terminal states and deliveries, what frees room or ends
                     work, changes of rows in place; and what asked store_admit first */
};
/* Run fn on the writer thread inside the next group's transaction; returns after its COMMIT
 * (synchronous=FULL). errors: fn's own, RL_UNAVAILABLE (queue full, closing), RL_DISK_FULL,
 * RL_STORE_ERROR, RL_NO_MEMORY. thread: any but the writer's own. */
enum rl_rc store_write(struct store *store, enum store_class class, store_fn fn, void *arg,
                       struct rl_err *err) RL_NODISCARD;
/* Run fn in a read transaction on a pooled read-only connection. Keep it short: no waiting inside.
 */
enum rl_rc store_read(struct store *store, store_fn fn, void *arg, struct rl_err *err) RL_NODISCARD;

/* Inside a write: run fn so that its failure undoes what it did and no more, and the caller may go
 * on with its next row. Returns fn's code. When the transaction itself is lost (a full disk, say)
 * every further statement of this write fails, so the caller's next one tells it. */
enum rl_rc store_try(struct store_conn *conn, store_fn fn, void *arg, struct rl_err *err)
    RL_NODISCARD;

/* Inside a write: call hook(ctx, arg) on the writer thread right after COMMIT, in order. Takes arg
 * (free()d after the hook, or without calling it when the work is rolled back). */
enum rl_rc store_on_commit(struct store_conn *conn, void (*hook)(void *ctx, void *arg), void *ctx,
                           void *arg, struct rl_err *err) RL_NODISCARD;

/* Statements. Bind by name (":task_id"); a missing name or a bind error is reported by the next
 * step. */
struct store_stmt *store_stmt(struct store_conn *conn, enum store_sql sql); /* reset and unbound */
void store_bind_int(struct store_stmt *stmt, const char *name, int64_t value);
void store_bind_real(struct store_stmt *stmt, const char *name, double value);
void store_bind_text(struct store_stmt *stmt, const char *name,
                     const char *text); /* NULL binds null; borrowed until reset */
void store_bind_blob(struct store_stmt *stmt, const char *name, const void *bytes, size_t len);
/* ret_row: true = a row is there, false = done. Resets on done and on error. */
enum rl_rc store_step(struct store_stmt *stmt, bool *ret_row, struct rl_err *err) RL_NODISCARD;
/* Step to the end, reset. ret_changes (may be NULL): rows changed. */
enum rl_rc store_run(struct store_stmt *stmt, int64_t *ret_changes, struct rl_err *err)
    RL_NODISCARD;
/* One integer from the first column of the first row; fallback without a row or for NULL. Resets.
 */
enum rl_rc store_int(struct store_stmt *stmt, int64_t fallback, int64_t *ret_value,
                     struct rl_err *err) RL_NODISCARD;
void store_reset(struct store_stmt *stmt); /* NULL allowed */
static inline void store_reset_ptr(struct store_stmt **stmt)
{
    store_reset(*stmt);
}
#define AUTO_STMT __attribute__((cleanup(store_reset_ptr)))

bool store_col_null(struct store_stmt *stmt, int col);
int64_t store_col_int(struct store_stmt *stmt, int col); /* 0 for NULL */
double store_col_real(struct store_stmt *stmt, int col);
const char *store_col_text(struct store_stmt *stmt,
                           int col); /* borrowed until step/reset; NULL for NULL */
const void *store_col_blob(struct store_stmt *stmt, int col, size_t *ret_len);
const char *store_col_name(struct store_stmt *stmt, int col);
int store_col_count(struct store_stmt *stmt);
/* true: the value could not be fetched because memory was short (a NULL that is not NULL). */
bool store_col_lost(struct store_stmt *stmt);

int64_t store_last_rowid(struct store_conn *conn);

/* Health and figures; any thread. */
struct store_stats {
    bool disk_full;        /* writes of class NORMAL are refused */
    int64_t queue;         /* writes waiting */
    int64_t stalled_ms;    /* age of the oldest unfinished group, 0 = none */
    int64_t commits, ops;  /* since the start: groups and writes in them */
    int64_t commit_us_max; /* the slowest COMMIT */
    int64_t wal_bytes;
};
void store_stats(struct store *store, struct store_stats *ret_stats);
/* Append two Prometheus histograms: writes per group that was committed, and the time of its
 * COMMIT, which is the fsync of the log. */
void store_histograms(struct store *store, struct rl_buf *out);
/* To be asked before rows are made that stay (tasks, rounds, events, feeds, sources, endpoints,
 * keys): RL_DISK_FULL when free space is below store.min_free_bytes or writes are refused. Any
 * thread, the writer's too. */
enum rl_rc store_admit(struct store *store, struct rl_err *err) RL_NODISCARD;
/* A file beside the database met a full disk: writes of class NORMAL are refused until there is
 * room again (the ballast stays, it is for the database). Any thread. */
void store_found_full(struct store *store);

/* A consistent copy of the database at path (must not exist), fsynced. Blocking; any thread. */
enum rl_rc store_backup(struct store *store, const char *path, struct rl_err *err) RL_NODISCARD;

/* For doctor, without a running store: integrity check of a database file opened read-only. "ok" or
 * the first complaint into text[size]. */
enum rl_rc store_check_file(const char *path, char *text, size_t size, struct rl_err *err)
    RL_NODISCARD;
/* For doctor: durable commits per second of this folder's disk, one writer, in a scratch database.
 */
enum rl_rc store_measure(const char *dir, int64_t for_ms, double *ret_per_s, struct rl_err *err)
    RL_NODISCARD;

#endif
