/* A world with a pool in it: waiting for a task's status, and the files against the rows. */
#ifndef TEST_POOL_WORLD_H
#define TEST_POOL_WORLD_H

#include "test_task_check.h"

#include "base/clock.h"
#include "base/fs.h"
#include "pool/pool.h"

#include <dirent.h>

#define WAIT_MS 30000 /* nothing here takes long; a loaded machine may */

static inline void no_replace(void *user, const struct rl_err *err)
{
    (void)user;
    fail_msg("the process was to be replaced: %s", err->reason);
}

static inline void status_of(struct check *c, int64_t id, char *text, size_t size)
{
    (void)check_text_after(c, "SELECT status FROM task WHERE task_id = ?1", id, text, size);
}

/* Wait for one of `wanted` (comma separated). Rings while it waits when `ring`: pool threads then
 * do not sit out the pauses they make after trouble. */
static inline void wait_status(struct world *w, struct check *c, int64_t id, const char *wanted,
                               bool ring)
{
    char text[32];
    for (int64_t until = rl_mono_ms() + WAIT_MS;;) {
        uint64_t tick = hub_tick(w->hub);
        status_of(c, id, text, sizeof text);
        if (strstr(wanted, text))
            return;
        if (rl_mono_ms() > until)
            fail_msg("the task is still %s, not %s", text, wanted);
        (void)hub_wait(w->hub, NULL, tick, ring ? 5 : 1000);
        if (ring)
            hub_ring(w->hub);
    }
}

static inline int count_results(const struct world *w)
{
    char path[128];
    int n = 0;
    (void)snprintf(path, sizeof path, "%s/results", w->dir);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* Every result that a row names is there, whole, with its poster; returns how many files that
 * makes.
 */
static inline int check_results(const struct world *w, struct check *c, const char *when)
{
    sqlite3_stmt *stmt = check_stmt(
        c, "SELECT video_file, video_bytes, video_sha256 FROM task WHERE video_file IS NOT NULL");
    int n = 0;
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        char path[256], hex[2 * RL_SHA256_BYTES + 1];
        uint8_t hash[RL_SHA256_BYTES];
        int64_t bytes = 0;
        struct rl_err err;
        const char *file = (const char *)sqlite3_column_text(stmt, 0);
        (void)snprintf(path, sizeof path, "%s/results/%s", w->dir, file);
        if (rl_sha256_file(path, hash, &bytes, &err) != RL_OK)
            fail_msg("%s: %s", when, err.reason);
        rl_hex(hash, sizeof hash, hex);
        if (bytes != sqlite3_column_int64(stmt, 1) ||
            strcmp(hex, (const char *)sqlite3_column_text(stmt, 2)) != 0)
            fail_msg("%s: %s is not what the row says", when, file);
        (void)snprintf(path, sizeof path, "%s/results/%.*s.jpg", w->dir, (int)strlen(file) - 4,
                       file);
        if (access(path, R_OK) != 0)
            fail_msg("%s: no poster %s", when, path);
        n += 2;
    }
    sqlite3_reset(stmt);
    return n;
}

#endif
