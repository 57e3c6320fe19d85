/* One SQLite connection with its prepared statements. A connection is used by one thread at a time:
 * the writer's by the writer thread, a reader by whoever took it from the pool.
 * Invariants: a statement is reset before its connection's transaction ends; the writer's are all
 * prepared at open, which proves every one of them, a reader's when it first needs them. */
#include "store/internal.h"

#include "base/clock.h"
#include "store_sql_text.h"

#include <errno.h>
#include <string.h>

_Static_assert(RL_ARRAY_LEN(store_statements) == SQL_COUNT, "one text per name");

static bool is_full(int number)
{
    return number == ENOSPC || number == EDQUOT;
}

/* Of a COMMIT the connection does not keep the errno; the log that it wrote to does. */
static int log_errno(sqlite3 *db)
{
    sqlite3_file *file = NULL;
    int number = 0;
    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file) == SQLITE_OK &&
        file && file->pMethods)
        (void)file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &number); /* else 0 */
    return number;
}

int store_code(struct store_conn *conn)
{
    int rc = sqlite3_extended_errcode(conn->db);
    if (rc != SQLITE_IOERR_WRITE && rc != SQLITE_IOERR_SHMSIZE) /* never a failed fsync */
        return rc;
    return is_full(sqlite3_system_errno(conn->db)) || is_full(log_errno(conn->db)) ? SQLITE_FULL
                                                                                   : rc;
}

enum rl_rc store_fail(struct store_conn *conn, int sqlite_rc, const char *what, struct rl_err *err)
{
    enum rl_rc code = RL_STORE_ERROR;
    if (conn && conn->db && sqlite_rc == sqlite3_extended_errcode(conn->db))
        sqlite_rc = store_code(conn);
    int primary = sqlite_rc & 0xff;
    if (primary == SQLITE_FULL)
        code = RL_DISK_FULL;
    else if (primary == SQLITE_NOMEM)
        code = RL_NO_MEMORY;
    else if (primary == SQLITE_INTERRUPT)
        code = RL_UNAVAILABLE;
    else if (primary == SQLITE_CONSTRAINT) /* a rule of the schema caught a fault of ours */
        code = RL_INTERNAL;
    if (conn && conn->writer && conn->db && sqlite3_get_autocommit(conn->db) &&
        (code == RL_DISK_FULL || code == RL_NO_MEMORY || primary == SQLITE_IOERR ||
         primary == SQLITE_CORRUPT || primary == SQLITE_BUSY || primary == SQLITE_INTERRUPT))
        conn->lost_rc = sqlite_rc;
    return rl_fail(err, code, "%s: %s (%d)", what,
                   conn && conn->db ? sqlite3_errmsg(conn->db) : sqlite3_errstr(sqlite_rc),
                   sqlite_rc);
}

const char *store_sql_text(enum store_sql sql)
{
    return store_statements[sql].text;
}

enum rl_rc store_exec(struct store_conn *conn, const char *sql, struct rl_err *err)
{
    int rc = sqlite3_exec(conn->db, sql, NULL, NULL, NULL);
    if (rc != SQLITE_OK)
        return store_fail(conn, sqlite3_extended_errcode(conn->db), "database", err);
    return RL_OK;
}

int store_begin(struct store_conn *conn, const char *how)
{
    int rc = SQLITE_OK;
    if (!sqlite3_get_autocommit(conn->db))
        rc = sqlite3_exec(conn->db, "ROLLBACK", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(conn->db, how, NULL, NULL, NULL);
    return rc == SQLITE_OK ? rc : store_code(conn);
}

static int read_limit(void *arg)
{
    struct store_conn *conn = arg;
    return conn->deadline_ms && rl_mono_ms() > conn->deadline_ms;
}

enum rl_rc store_conn_open(const char *path, bool writer, struct store_conn **ret_conn,
                           struct rl_err *err)
{
    struct store_conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return rl_fail(err, RL_NO_MEMORY, "database connection");
    conn->writer = writer;
    int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
                (writer ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY);
    int rc = sqlite3_open_v2(path, &conn->db, flags, NULL);
    if (rc != SQLITE_OK) {
        (void)store_fail(conn, rc, "open database", err);
        store_conn_close(conn);
        return err ? err->code : RL_STORE_ERROR;
    }
    sqlite3_busy_timeout(conn->db, 5000);
    sqlite3_limit(conn->db, SQLITE_LIMIT_LENGTH, 4 << 20);
    sqlite3_db_config(conn->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    /* Only the writer may ever checkpoint: SQLite before 3.51.3 can lose commits otherwise. */
    if (!writer)
        sqlite3_db_config(conn->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    const char *pragmas =
        writer ? "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0;"
                 "PRAGMA journal_size_limit=67108864; PRAGMA cache_size=-16384; PRAGMA "
                 "temp_store=MEMORY;"
                 "PRAGMA mmap_size=0; PRAGMA foreign_keys=ON; PRAGMA trusted_schema=OFF;"
               : "PRAGMA cache_size=-2048; PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0;"
                 "PRAGMA trusted_schema=OFF;";
    enum rl_rc result = store_exec(conn, pragmas, err);
    if (result != RL_OK) {
        store_conn_close(conn);
        return result;
    }
    if (!writer)
        sqlite3_progress_handler(conn->db, 10000, read_limit, conn);
    *ret_conn = conn;
    return RL_OK;
}

static int prepare(struct store_conn *conn, enum store_sql sql)
{
    conn->stmts[sql].conn = conn;
    return sqlite3_prepare_v3(conn->db, store_statements[sql].text, -1, SQLITE_PREPARE_PERSISTENT,
                              &conn->stmts[sql].raw, NULL);
}

enum rl_rc store_conn_prepare(struct store_conn *conn, struct rl_err *err)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        int rc = prepare(conn, (enum store_sql)i);
        if (rc != SQLITE_OK)
            return store_fail(conn, rc, store_statements[i].name, err);
    }
    return RL_OK;
}

void store_drop_hooks(struct store_conn *conn, size_t keep)
{
    while (conn->hook_count > keep)
        free(conn->hooks[--conn->hook_count].arg);
}

void store_conn_close(struct store_conn *conn)
{
    if (!conn)
        return;
    for (int i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(conn->stmts[i].raw);
    store_drop_hooks(conn, 0);
    free(conn->hooks);
    sqlite3_close_v2(conn->db);
    free(conn);
}

struct store_stmt *store_stmt(struct store_conn *conn, enum store_sql sql)
{
    struct store_stmt *stmt = &conn->stmts[sql];
    stmt->conn = conn;
    store_reset(stmt);
    if (!stmt->raw)
        stmt->bind_rc = store_statements[sql].reads ? prepare(conn, sql) : SQLITE_READONLY;
    return stmt;
}

void store_reset(struct store_stmt *stmt)
{
    if (!stmt || !stmt->raw)
        return;
    (void)sqlite3_reset(stmt->raw); /* repeats the error that step already gave */
    (void)sqlite3_clear_bindings(stmt->raw);
    stmt->bind_rc = SQLITE_OK;
}

static int param(struct store_stmt *stmt, const char *name)
{
    if (stmt->bind_rc != SQLITE_OK)
        return 0;
    int index = sqlite3_bind_parameter_index(stmt->raw, name);
    if (!index)
        stmt->bind_rc = SQLITE_RANGE;
    return index;
}

static void bound(struct store_stmt *stmt, int rc)
{
    if (rc != SQLITE_OK)
        stmt->bind_rc = rc;
}

void store_bind_int(struct store_stmt *stmt, const char *name, int64_t value)
{
    int i = param(stmt, name);
    if (i)
        bound(stmt, sqlite3_bind_int64(stmt->raw, i, value));
}

void store_bind_real(struct store_stmt *stmt, const char *name, double value)
{
    int i = param(stmt, name);
    if (i)
        bound(stmt, sqlite3_bind_double(stmt->raw, i, value));
}

void store_bind_text(struct store_stmt *stmt, const char *name, const char *text)
{
    int i = param(stmt, name);
    if (i)
        bound(stmt, text ? sqlite3_bind_text(stmt->raw, i, text, -1, SQLITE_STATIC)
                         : sqlite3_bind_null(stmt->raw, i));
}

void store_bind_blob(struct store_stmt *stmt, const char *name, const void *bytes, size_t len)
{
    int i = param(stmt, name);
    if (i)
        bound(stmt, bytes ? sqlite3_bind_blob64(stmt->raw, i, bytes, len, SQLITE_STATIC)
                          : sqlite3_bind_null(stmt->raw, i));
}

enum rl_rc store_step(struct store_stmt *stmt, bool *ret_row, struct rl_err *err)
{
    const char *name = store_statements[stmt - stmt->conn->stmts].name;
    if (stmt->conn->lost_rc) { /* a statement would commit by itself now */
        int rc = stmt->conn->lost_rc;
        store_reset(stmt);
        return store_fail(stmt->conn, rc, name, err);
    }
    if (stmt->bind_rc != SQLITE_OK) {
        int rc = stmt->bind_rc;
        store_reset(stmt);
        if (!stmt->raw && rc != SQLITE_READONLY)
            return store_fail(stmt->conn, rc, name, err);
        if (rc == SQLITE_NOMEM)
            return rl_fail(err, RL_NO_MEMORY, "%s: bind", name);
        return rl_fail(err, RL_INTERNAL, "%s: %s", name,
                       rc == SQLITE_RANGE ? "no such parameter" : sqlite3_errstr(rc));
    }
    int rc = sqlite3_step(stmt->raw);
    if (rc == SQLITE_ROW) {
        *ret_row = true;
        return RL_OK;
    }
    if (rc != SQLITE_DONE) {
        enum rl_rc code = store_fail(stmt->conn, rc, name, err);
        store_reset(stmt);
        return code;
    }
    store_reset(stmt);
    *ret_row = false;
    return RL_OK;
}

enum rl_rc store_run(struct store_stmt *stmt, int64_t *ret_changes, struct rl_err *err)
{
    bool row = true;
    while (row) {
        enum rl_rc rc = store_step(stmt, &row, err);
        if (rc != RL_OK)
            return rc;
    }
    if (ret_changes)
        *ret_changes = sqlite3_changes64(stmt->conn->db);
    return RL_OK;
}

enum rl_rc store_int(struct store_stmt *stmt, int64_t fallback, int64_t *ret_value,
                     struct rl_err *err)
{
    bool row = false;
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc != RL_OK)
        return rc;
    *ret_value = row && !store_col_null(stmt, 0) ? store_col_int(stmt, 0) : fallback;
    store_reset(stmt);
    return RL_OK;
}

bool store_col_null(struct store_stmt *stmt, int col)
{
    return sqlite3_column_type(stmt->raw, col) == SQLITE_NULL;
}

int64_t store_col_int(struct store_stmt *stmt, int col)
{
    return sqlite3_column_int64(stmt->raw, col);
}

double store_col_real(struct store_stmt *stmt, int col)
{
    return sqlite3_column_double(stmt->raw, col);
}

const char *store_col_text(struct store_stmt *stmt, int col)
{
    return (const char *)sqlite3_column_text(stmt->raw, col);
}

const void *store_col_blob(struct store_stmt *stmt, int col, size_t *ret_len)
{
    const void *bytes = sqlite3_column_blob(stmt->raw, col);
    *ret_len = (size_t)sqlite3_column_bytes(stmt->raw, col);
    return bytes;
}

const char *store_col_name(struct store_stmt *stmt, int col)
{
    return sqlite3_column_name(stmt->raw, col);
}

int store_col_count(struct store_stmt *stmt)
{
    return sqlite3_column_count(stmt->raw);
}

bool store_col_lost(struct store_stmt *stmt)
{
    return sqlite3_errcode(stmt->conn->db) == SQLITE_NOMEM;
}

int64_t store_last_rowid(struct store_conn *conn)
{
    return sqlite3_last_insert_rowid(conn->db);
}

enum rl_rc store_on_commit(struct store_conn *conn, void (*hook)(void *ctx, void *arg), void *ctx,
                           void *arg, struct rl_err *err)
{
    if (conn->hook_count == conn->hook_room) {
        size_t room = conn->hook_room ? conn->hook_room * 2 : 64;
        struct store_hook *grown = realloc(conn->hooks, room * sizeof *grown);
        if (!grown) {
            free(arg);
            return rl_fail(err, RL_NO_MEMORY, "commit hook");
        }
        conn->hooks = grown;
        conn->hook_room = room;
    }
    conn->hooks[conn->hook_count++] = (struct store_hook){hook, ctx, arg};
    return RL_OK;
}
