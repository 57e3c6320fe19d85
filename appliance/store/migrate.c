/* Schema versions and the epoch. Each migration runs in its own transaction and raises
 * user_version; a database from a newer reeld is refused. Runs before the writer thread starts. */
#include "store/internal.h"

#include "base/clock.h"
#include "base/fs.h"
#include "store_sql_text.h"

#include <string.h>

static enum rl_rc user_version(struct store_conn *conn, int *ret_version, struct rl_err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(conn->db, "PRAGMA user_version", -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        *ret_version = sqlite3_column_int(stmt, 0);
    sqlite3_finalize(stmt);
    return rc == SQLITE_ROW ? RL_OK : store_fail(conn, rc, "user_version", err);
}

enum rl_rc store_migrate(struct store_conn *conn, struct rl_err *err)
{
    int have = 0;
    enum rl_rc rc = user_version(conn, &have, err);
    if (rc != RL_OK)
        return rc;
    int known = (int)RL_ARRAY_LEN(store_migrations);
    if (have > known)
        return rl_fail(
            err, RL_STORE_ERROR,
            "the database has schema %d, this reeld knows up to %d: install a newer reeld", have,
            known);
    for (int v = have; v < known; v++) {
        char bump[48];
        (void)snprintf(bump, sizeof bump, "PRAGMA user_version = %d", v + 1);
        rc = store_exec(conn, "BEGIN IMMEDIATE", err);
        if (rc == RL_OK)
            rc = store_exec(conn, store_migrations[v], err);
        if (rc == RL_OK)
            rc = store_exec(conn, bump, err);
        if (rc == RL_OK)
            rc = store_exec(conn, "COMMIT", err);
        if (rc != RL_OK) {
            if (!sqlite3_get_autocommit(conn->db))
                (void)sqlite3_exec(conn->db, "ROLLBACK", NULL, NULL,
                                   NULL); /* the first error is the one to tell */
            return rc;
        }
    }
    return RL_OK;
}

/* Reads meta[name] into value[size], "" when absent. */
static enum rl_rc meta_get(struct store_conn *conn, const char *name, char *value, size_t size,
                           struct rl_err *err)
{
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_META_GET);
    store_bind_text(stmt, ":name", name);
    bool row;
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc != RL_OK)
        return rc;
    value[0] = '\0';
    if (row && !rl_copy_str(value, size, store_col_text(stmt, 0)))
        return rl_fail(err, RL_STORE_ERROR, "meta %s is unreadable", name);
    return RL_OK;
}

static enum rl_rc meta_set(struct store_conn *conn, const char *name, const char *value,
                           struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_META_SET);
    store_bind_text(stmt, ":name", name);
    store_bind_text(stmt, ":value", value);
    return store_run(stmt, NULL, err);
}

static enum rl_rc write_epoch(struct store *store, const char *boot, struct rl_err *err)
{
    struct store_conn *conn = store->writer;
    char text[64], was[64];
    enum rl_rc rc = meta_get(conn, "epoch", text, sizeof text, err);
    if (rc == RL_OK)
        rc = meta_get(conn, "boot_id", was, sizeof was, err);
    if (rc != RL_OK)
        return rc;
    store->epoch = strtoll(text, NULL, 10) + 1;
    store->rebooted = was[0] != '\0' && boot[0] != '\0' && strcmp(was, boot) != 0;
    (void)snprintf(text, sizeof text, "%lld", (long long)store->epoch);
    rc = meta_set(conn, "epoch", text, err);
    if (rc == RL_OK)
        rc = meta_set(conn, "boot_id", boot, err);
    return rc;
}

enum rl_rc store_take_epoch(struct store *store, struct rl_err *err)
{
    char boot[64] = "";
    AUTO_FREE char *text = NULL;
    size_t len = 0;
    if (rl_fs_read("/proc/sys/kernel/random/boot_id", 256, &text, &len, NULL) == RL_OK) {
        text[strcspn(text, "\n")] = '\0';
        (void)rl_copy_str(boot, sizeof boot,
                          text); /* "" = not known: then nothing counts as a reboot */
    }
    enum rl_rc rc = store_exec(store->writer, "BEGIN IMMEDIATE", err);
    if (rc != RL_OK)
        return rc;
    rc = write_epoch(store, boot, err);
    if (rc == RL_OK)
        rc = store_exec(store->writer, "COMMIT", err);
    if (rc != RL_OK && !sqlite3_get_autocommit(store->writer->db))
        (void)sqlite3_exec(store->writer->db, "ROLLBACK", NULL, NULL,
                           NULL); /* the first error is the one to tell */
    return rc;
}
