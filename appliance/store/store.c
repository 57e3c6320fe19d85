/* Opening and closing the state folder's database, health, backup, and the checks of `doctor`.
 * One process owns the folder: a lock file is held until the end. Any thread after open. */
#include "store/internal.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "config/config.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* f_type values of file systems whose locks or fsync cannot be trusted (statfs(2)). */
#define FS_NFS  0x6969
#define FS_CIFS 0xff534d42
#define FS_SMB2 0xfe534d42
#define FS_9P   0x01021997
#define FS_FUSE 0x65735546

const char *store_version(void)
{
    return sqlite3_libversion();
}

int64_t store_epoch(const struct store *store)
{
    return store->epoch;
}

bool store_rebooted(const struct store *store)
{
    return store->rebooted;
}

static char *join(const char *dir, const char *name)
{
    size_t size = strlen(dir) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        (void)snprintf(path, size, "%s/%s", dir, name); /* fits by construction */
    return path;
}

static enum rl_rc check_fs(const char *dir, struct rl_err *err)
{
    struct statfs fs;
    if (statfs(dir, &fs) != 0)
        return rl_fail(err, RL_IO_ERROR, "cannot look at %s", dir);
    unsigned long type = (unsigned long)fs.f_type & 0xffffffffUL;
    if (type == FS_NFS || type == FS_CIFS || type == FS_SMB2 || type == FS_9P)
        return rl_fail_field(err, RL_INVALID_FIELD, "state_dir",
                             "%s is on a network file system; SQLite needs a local one", dir);
    if (type == FS_FUSE)
        rl_log(RL_LOG_WARN, "state_dir_fuse", "note=\"durability depends on this file system\"");
    return RL_OK;
}

static enum rl_rc open_parts(struct store *store, struct rl_err *err)
{
    enum rl_rc rc = rl_fs_mkdirs(store->dir, 0750, err);
    if (rc == RL_OK)
        rc = check_fs(store->dir, err);
    AUTO_FREE char *lock_path = join(store->dir, "reeld.lock");
    if (rc == RL_OK && !lock_path)
        rc = rl_fail(err, RL_NO_MEMORY, "state folder");
    if (rc == RL_OK)
        rc = rl_fs_lock(lock_path, &store->lock_fd, err);
    if (rc == RL_OK)
        store_make_room(store);
    if (rc == RL_OK)
        rc = store_conn_open(store->db_path, true, &store->writer, err);
    if (rc == RL_OK)
        rc = store_migrate(store->writer, err);
    if (rc == RL_OK)
        rc = store_conn_prepare(store->writer, err);
    if (rc == RL_OK)
        rc = store_take_epoch(store, err);
    if (rc != RL_OK)
        return rc;
    store_ballast_make(store);
    rc = store_readers_open(store, err);
    return rc == RL_OK ? store_writer_start(store, err) : rc;
}

enum rl_rc store_open(const struct config *cfg, store_fatal_fn fatal, void *user,
                      struct store **ret_store, struct rl_err *err)
{
    struct store *store = calloc(1, sizeof *store);
    if (!store)
        return rl_fail(err, RL_NO_MEMORY, "store");
    const char *dir = config_text(cfg, CFG_STATE_DIR);
    store->cfg = cfg;
    store->fatal = fatal;
    store->fatal_user = user;
    store->lock_fd = -1;
    store->reader_limit = config_int(cfg, CFG_STORE_READERS);
    store->queue_limit = (size_t)config_int(cfg, CFG_STORE_WRITE_QUEUE);
    pthread_mutex_init(&store->lock, NULL);
    pthread_mutex_init(&store->pool_lock, NULL);
    pthread_cond_init(&store->work, NULL);
    pthread_cond_init(&store->pool_free, NULL);
    store->dir = rl_strdup(dir);
    store->db_path = join(dir, "reeld.db");
    store->ballast_path = join(dir, "ballast");
    enum rl_rc rc = store->dir && store->db_path && store->ballast_path
                        ? open_parts(store, err)
                        : rl_fail(err, RL_NO_MEMORY, "store");
    if (rc != RL_OK) {
        store_close(store);
        return rc;
    }
    *ret_store = store;
    return RL_OK;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    store_readers_close(store);
    store_writer_stop(store);
    store_conn_close(store->writer);
    if (store->lock_fd >= 0)
        close(store->lock_fd);
    pthread_cond_destroy(&store->work);
    pthread_cond_destroy(&store->pool_free);
    pthread_mutex_destroy(&store->lock);
    pthread_mutex_destroy(&store->pool_lock);
    free(store->dir);
    free(store->db_path);
    free(store->ballast_path);
    free(store);
}

void store_stats(struct store *store, struct store_stats *ret_stats)
{
    pthread_mutex_lock(&store->lock);
    *ret_stats = (struct store_stats){
        .disk_full = atomic_load(&store->disk_full),
        .queue = (int64_t)store->queued,
        .stalled_ms = store->group_since ? rl_mono_ms() - store->group_since : 0,
        .commits = store->commits,
        .ops = store->ops,
        .commit_us_max = store->commit_us_max,
        .wal_bytes = (int64_t)atomic_load(&store->wal_frames) * 4120,
    };
    pthread_mutex_unlock(&store->lock);
}

static enum rl_rc fsync_file(const char *path, struct rl_err *err)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        return rl_fail(err, RL_IO_ERROR, "fsync of the copy failed");
    return RL_OK;
}

enum rl_rc store_backup(struct store *store, const char *path, struct rl_err *err)
{
    struct store_conn *conn = NULL;
    enum rl_rc rc = store_conn_open(store->db_path, false, &conn, err);
    if (rc != RL_OK)
        return rc;
    sqlite3_stmt *stmt = NULL;
    int sq = sqlite3_prepare_v2(conn->db, store_sql_text(SQL_BACKUP), -1, &stmt, NULL);
    if (sq == SQLITE_OK)
        sq = sqlite3_bind_text(stmt, 1, path, -1, SQLITE_STATIC);
    if (sq == SQLITE_OK)
        sq = sqlite3_step(stmt);
    if (sq != SQLITE_DONE)
        rc = store_fail(conn, sq, "backup", err);
    sqlite3_finalize(stmt);
    store_conn_close(conn);
    if (rc == RL_OK)
        rc = fsync_file(path, err);
    if (rc != RL_OK)
        (void)unlink(path); /* a part of a copy is worth nothing */
    return rc;
}

enum rl_rc store_check_file(const char *path, char *text, size_t size, struct rl_err *err)
{
    struct store_conn *conn = NULL;
    enum rl_rc rc = store_conn_open(path, false, &conn, err);
    if (rc != RL_OK)
        return rc;
    sqlite3_stmt *stmt = NULL;
    int sq = sqlite3_prepare_v2(conn->db, "PRAGMA integrity_check(1)", -1, &stmt, NULL);
    if (sq == SQLITE_OK)
        sq = sqlite3_step(stmt);
    if (sq == SQLITE_ROW)
        (void)snprintf(text, size, "%s",
                       (const char *)sqlite3_column_text(stmt, 0)); /* cut is fine */
    else
        rc = store_fail(conn, sq, "integrity check", err);
    sqlite3_finalize(stmt);
    store_conn_close(conn);
    return rc;
}

/* One durable commit after another into a database of our own shape. */
static enum rl_rc measure_commits(struct store_conn *conn, int64_t for_ms, double *ret_per_s,
                                  struct rl_err *err)
{
    enum rl_rc rc = store_migrate(conn, err);
    if (rc == RL_OK)
        rc = store_conn_prepare(conn, err);
    int64_t begun = rl_mono_us(), commits = 0, spent = 0;
    while (rc == RL_OK && spent < for_ms * 1000) {
        struct store_stmt *stmt = store_stmt(conn, SQL_META_SET);
        store_bind_text(stmt, ":name", "measure");
        char value[32]; /* another each time: what does not change is not written */
        (void)snprintf(value, sizeof value, "%lld", (long long)commits);
        store_bind_text(stmt, ":value", value);
        rc = store_run(stmt, NULL, err);
        commits++;
        spent = rl_mono_us() - begun;
    }
    if (rc == RL_OK)
        *ret_per_s = (double)commits * 1e6 / (double)spent;
    return rc;
}

enum rl_rc store_measure(const char *dir, int64_t for_ms, double *ret_per_s, struct rl_err *err)
{
    static const char *const endings[] = {"", "-wal", "-shm"};
    char path[1100];
    int n = snprintf(path, sizeof path, "%s/measure-%d.db", dir, (int)getpid());
    if (n < 0 || (size_t)n >= sizeof path)
        return rl_fail(err, RL_INVALID_FIELD, "the path of the state folder is too long");
    struct store_conn *conn = NULL;
    enum rl_rc rc = store_conn_open(path, true, &conn, err);
    if (rc == RL_OK)
        rc = measure_commits(conn, for_ms, ret_per_s, err);
    store_conn_close(conn);
    for (size_t i = 0; i < RL_ARRAY_LEN(endings); i++) {
        char file[1120];
        (void)snprintf(file, sizeof file, "%s%s", path, endings[i]); /* fits: 20 bytes more room */
        (void)unlink(file);                                          /* may never have existed */
    }
    return rc;
}
