/* Schema versions, the epoch and the steady clock. Each migration runs in its own transaction and
 * raises user_version; a database from a newer reeld is refused. Runs before the writer thread
 * starts. */
#include "store/internal.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "store_sql_text.h"

#include <string.h>

#define DAY_MS        (86400 * INT64_C(1000))
#define CLOCK_LEAP_MS (30 * DAY_MS) /* a longer time off is taken for a broken clock */
#define OFFSET_MS     DAY_MS        /* the wall clock is set by less without anybody's harm */
#define SETTLE_MS     (3 * DAY_MS)  /* until another wall clock is believed: time to notice it */

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

int64_t store_steady_ms(const struct store *store)
{
    return store->anchor_steady + rl_boot_ms() - store->anchor_boot;
}

static bool near(int64_t a, int64_t b)
{
    return a - b <= OFFSET_MS && b - a <= OFFSET_MS;
}

/* A wall clock that was set, or was wrong at a boot, is believed again when it stood for a while.
 */
static void judge_offset(struct store *store)
{
    struct store_offset *o = &store->offset;
    int64_t steady = store_steady_ms(store), now = rl_wall_ms() - steady;
    if (near(now, o->accepted)) {
        o->since = 0;
    } else if (o->since == 0 || !near(now, o->seen)) {
        o->seen = now;
        o->since = steady;
    } else if (steady - o->since >= SETTLE_MS) {
        rl_log(RL_LOG_WARN, "clock_accepted", "offset_ms=%lld was_ms=%lld", (long long)now,
               (long long)o->accepted);
        o->accepted = now;
        o->since = 0;
    }
}

bool store_wall_trusted(const struct store *store, int64_t *ret_drift_ms, int64_t *ret_wait_ms)
{
    const struct store_offset *o = &store->offset;
    int64_t steady = store_steady_ms(store), now = rl_wall_ms() - steady;
    bool stands = o->since != 0 && near(now, o->seen);
    int64_t wait = stands ? o->since + SETTLE_MS - steady : SETTLE_MS;
    *ret_drift_ms = now - o->accepted;
    *ret_wait_ms = wait > 0 ? wait : 0;
    return near(now, o->accepted);
}

static enum rl_rc write_clock(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct store *store = arg;
    const struct store_offset *o = &store->offset;
    char text[96];
    (void)snprintf(text, sizeof text, "%lld %lld", (long long)store_steady_ms(store),
                   (long long)rl_boot_ms());
    enum rl_rc rc = meta_set(conn, "steady_clock", text, err);
    (void)snprintf(text, sizeof text, "%lld %lld %lld", (long long)o->accepted, (long long)o->seen,
                   (long long)o->since);
    return rc == RL_OK ? meta_set(conn, "clock_offset", text, err) : rc;
}

enum rl_rc store_keep_clock(struct store *store, struct rl_err *err)
{
    judge_offset(store);
    return store_write(store, STORE_NORMAL, write_clock, store, err);
}

/* Over a reboot: how long the machine was off, by a wall clock that is as far from the steady one
 * as it was accepted or last seen to be. Both can fit; then the shorter time is the safe one: it
 * ends no wait. -1: neither can be believed, the clock lies before what was already seen, or
 * absurdly far ahead. */
static int64_t time_off(const struct store_offset *o, int64_t wall, int64_t steady)
{
    int64_t off = wall - o->accepted - steady, other = wall - o->seen - steady;
    if (o->since != 0 && other >= 0 && (off < 0 || other < off))
        off = other;
    return off > CLOCK_LEAP_MS ? -1 : off;
}

static enum rl_rc read_offset(struct store *store, struct rl_err *err)
{
    char text[96];
    long long accepted = 0, seen = 0, since = 0;
    enum rl_rc rc = meta_get(store->writer, "clock_offset", text, sizeof text, err);
    if (rc == RL_OK && sscanf(text, "%lld %lld %lld", &accepted, &seen, &since) == 3)
        store->offset = (struct store_offset){accepted, seen, since};
    return rc;
}

/* Go on from the remembered clock. Over a reboot the wall clock is believed, within bounds: outside
 * of them the time off does not count. */
static enum rl_rc read_clock(struct store *store, bool same_boot, struct rl_err *err)
{
    char text[64];
    long long steady = 0, boot = 0;
    enum rl_rc rc = meta_get(store->writer, "steady_clock", text, sizeof text, err);
    if (rc == RL_OK)
        rc = read_offset(store, err);
    if (rc != RL_OK)
        return rc;
    bool known = sscanf(text, "%lld %lld", &steady, &boot) == 2;
    int64_t wall = rl_wall_ms();
    store->anchor_boot = rl_boot_ms();
    store->anchor_steady = known ? steady : wall;
    if (known && same_boot && boot <= store->anchor_boot) {
        store->anchor_steady += store->anchor_boot - boot;
    } else if (known) {
        int64_t off = time_off(&store->offset, wall, steady);
        if (off < 0)
            rl_log(RL_LOG_WARN, "clock_suspect", "wall_ms=%lld last_ms=%lld", (long long)wall,
                   steady);
        store->anchor_steady += off > 0 ? off : 0;
        if (store->offset.since != 0 && off > 0)
            store->offset.since += off; /* nobody could notice anything meanwhile */
    }
    return RL_OK;
}

static enum rl_rc write_epoch(struct store *store, struct rl_err *err)
{
    struct store_conn *conn = store->writer;
    char text[64], was[64];
    enum rl_rc rc = meta_get(conn, "epoch", text, sizeof text, err);
    if (rc == RL_OK)
        rc = meta_get(conn, "boot_id", was, sizeof was, err);
    if (rc != RL_OK)
        return rc;
    store->epoch = strtoll(text, NULL, 10) + 1;
    bool same_boot = was[0] != '\0' && strcmp(was, store->boot_id) == 0;
    store->rebooted = was[0] != '\0' && store->boot_id[0] != '\0' && !same_boot;
    (void)snprintf(text, sizeof text, "%lld", (long long)store->epoch);
    rc = meta_set(conn, "epoch", text, err);
    if (rc == RL_OK)
        rc = meta_set(conn, "boot_id", store->boot_id, err);
    if (rc == RL_OK)
        rc = read_clock(store, same_boot, err);
    return rc == RL_OK ? write_clock(conn, store, err) : rc;
}

enum rl_rc store_take_epoch(struct store *store, struct rl_err *err)
{
    AUTO_FREE char *text = NULL;
    size_t len = 0;
    if (rl_fs_read("/proc/sys/kernel/random/boot_id", 256, &text, &len, NULL) == RL_OK) {
        text[strcspn(text, "\n")] = '\0';
        (void)rl_copy_str(store->boot_id, sizeof store->boot_id,
                          text); /* "" = not known: nothing counts as a reboot */
    }
    enum rl_rc rc = store_exec(store->writer, "BEGIN IMMEDIATE", err);
    if (rc != RL_OK)
        return rc;
    rc = write_epoch(store, err);
    if (rc == RL_OK)
        rc = store_exec(store->writer, "COMMIT", err);
    if (rc != RL_OK && !sqlite3_get_autocommit(store->writer->db))
        (void)sqlite3_exec(store->writer->db, "ROLLBACK", NULL, NULL,
                           NULL); /* the first error is the one to tell */
    return rc;
}
