/* The ballast: a file that is given up when the disk is full, so that running tasks still reach a
 * terminal state; and the watch that turns new work away before that and heals afterwards. At
 * ENOSPC SQLite cannot even delete rows, so space must come from outside. Runs on the writer thread
 * (and at open). */
#include "store/internal.h"

#include "base/fs.h"
#include "base/log.h"
#include "config/config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define START_BYTES (4 << 20) /* what opening the database and a first checkpoint may need */

void store_ballast_make(struct store *store)
{
    int64_t want = config_int(store->cfg, CFG_STORE_BALLAST);
    struct stat st;
    if (want == 0 || (stat(store->ballast_path, &st) == 0 && st.st_size == want))
        return;
    int64_t free_bytes = 0;
    if (rl_fs_free_bytes(store->dir, &free_bytes, NULL) != RL_OK || free_bytes < 2 * want)
        return;
    AUTO_CLOSE int fd = open(store->ballast_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, want) != 0) {
        rl_log(RL_LOG_WARN, "ballast_failed", "bytes=%lld", (long long)want);
        (void)unlink(store->ballast_path); /* half a ballast misleads the check above */
    }
}

void store_found_full(struct store *store)
{
    if (!atomic_exchange(&store->disk_full, true))
        rl_log(RL_LOG_ERROR, "disk_full",
               "note=\"new work is refused and none begun until space returns\"");
}

bool store_ballast_drop(struct store *store)
{
    store_found_full(store);
    return unlink(store->ballast_path) == 0;
}

/* Files below the state folder whose name matches; no run and no backup is alive before the store
 * is open. */
static void remove_files(const struct store *store, const char *folder, const char *pattern)
{
    char path[1200];
    (void)snprintf(path, sizeof path, "%s/%s", store->dir, folder);
    DIR *dir = opendir(path);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        if (fnmatch(pattern, entry->d_name, 0) == 0)
            (void)unlinkat(dirfd(dir), entry->d_name, 0); /* no worse than before when it stays */
    if (dir)
        (void)closedir(dir); /* read only */
}

void store_make_room(struct store *store)
{
    int64_t free_bytes = 0;
    remove_files(store, "tmp", "backup-*"); /* http/admin.c unlinks them, unless it is killed */
    if (rl_fs_free_bytes(store->dir, &free_bytes, NULL) != RL_OK || free_bytes >= START_BYTES)
        return;
    (void)store_ballast_drop(store);           /* it may be gone already */
    remove_files(store, "results", "*.part*"); /* what stays is found as an orphan */
}

void store_disk_watch(struct store *store)
{
    int64_t free_bytes = 0;
    if (rl_fs_free_bytes(store->dir, &free_bytes, NULL) != RL_OK)
        return;
    int64_t ballast = config_int(store->cfg, CFG_STORE_BALLAST);
    int64_t floor = config_int(store->cfg, CFG_STORE_MIN_FREE);
    if (free_bytes < ballast + (floor > ballast ? floor : ballast)) /* so much is left beside it */
        return;
    store_ballast_make(store);
    atomic_store(&store->disk_full, false);
    rl_log(RL_LOG_INFO, "disk_healed", "free_bytes=%lld", (long long)free_bytes);
}

enum rl_rc store_admit(struct store *store, struct rl_err *err)
{
    if (atomic_load(&store->disk_full))
        return rl_fail(err, RL_DISK_FULL, "the disk is full");
    int64_t free_bytes = 0;
    enum rl_rc rc = rl_fs_free_bytes(store->dir, &free_bytes, err);
    if (rc != RL_OK)
        return rc;
    int64_t floor = config_int(store->cfg, CFG_STORE_MIN_FREE);
    if (free_bytes < floor)
        return rl_fail(err, RL_DISK_FULL, "%lld MiB free, store.min_free_bytes wants %lld",
                       (long long)(free_bytes >> 20), (long long)(floor >> 20));
    return RL_OK;
}
