/* What the benchmarks share: a scratch state folder with the modules over it, bulk rows, figures,
 * and the one line per result that tests/bench/run collects. Header-only; any error ends the
 * program. */
#ifndef BENCH_H
#define BENCH_H

#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/rl.h"
#include "config/config.h"
#include "engine/engine.h"
#include "events/events.h"
#include "store/store.h"
#include "task/task.h"

#include <ftw.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

struct bench {
    char dir[512];
    struct config *cfg;
    struct store *store;
    struct hub *hub;
    struct engines *engines;
    struct tasks *tasks;
};

static inline void bench_die(const char *what, const char *why)
{
    (void)fprintf(stderr, "%s: %s\n", what, why);
    exit(2);
}

static inline void bench_ok(enum rl_rc rc, const struct rl_err *err)
{
    if (rc != RL_OK)
        bench_die(rl_code_name(rc), err->reason);
}

/* ---- figures ---- */

static inline int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts values; q in 0..1. */
static inline double bench_quantile(double *values, size_t n, double q)
{
    if (n == 0)
        bench_die("bench", "nothing was measured");
    qsort(values, n, sizeof *values, bench_compare);
    size_t at = (size_t)(q * (double)(n - 1) + 0.5);
    return values[at];
}

static inline double bench_median(double *values, size_t n)
{
    return bench_quantile(values, n, 0.5);
}

/* name|figures|target|PASS or MISS */
static inline void bench_line(const char *name, const char *target, bool pass, const char *fmt, ...)
    RL_PRINTF(4, 5);
static inline void bench_line(const char *name, const char *target, bool pass, const char *fmt, ...)
{
    va_list args;
    printf("%s|", name);
    va_start(args, fmt);
    (void)vprintf(fmt, args);
    va_end(args);
    printf("|%s|%s\n", target, pass ? "PASS" : "MISS");
    (void)fflush(stdout); /* the next measurement takes a while */
}

static inline double bench_rss_mib(pid_t pid)
{
    char path[64], line[200];
    long kib = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %ld kB", &kib) == 1)
            break;
    if (f)
        (void)fclose(f); /* only read */
    return (double)kib / 1024;
}

/* ---- the scratch folder ---- */

static inline void bench_set(struct bench *b, const char *name, const char *value)
{
    struct rl_err err;
    bench_ok(config_set(b->cfg, name, value, &err), &err);
}

/* A new folder under `under`, all limits out of the way. */
static inline void bench_new(struct bench *b, const char *under)
{
    struct rl_err err;
    *b = (struct bench){.cfg = config_new()};
    rl_log_set_level(RL_LOG_ERROR);
    bench_ok(rl_crypto_init(&err), &err);
    (void)snprintf(b->dir, sizeof b->dir, "%s/scratch-XXXXXX", under);
    if (!b->cfg || !mkdtemp(b->dir))
        bench_die(b->dir, "cannot make a scratch folder");
    bench_set(b, "state_dir", b->dir);
    bench_set(b, "engine.plugin_dir", "");
    bench_set(b, "store.min_free_bytes", "0");
    bench_set(b, "queue.depth", "100000000");
    bench_set(b, "limit.pending_tasks", "0");
}

static inline void bench_fatal(void *user, const struct rl_err *err)
{
    (void)user;
    bench_die("database", err->reason);
}

static inline void bench_open(struct bench *b)
{
    struct rl_err err;
    bool first;
    bench_ok(store_open(b->cfg, bench_fatal, NULL, &b->store, &err), &err);
    bench_ok(engines_open(b->cfg, &b->engines, &err), &err);
    b->hub = hub_new(0);
    if (!b->hub)
        bench_die("hub", "out of memory");
    bench_ok(tasks_open(b->cfg, b->store, b->hub, b->engines, &b->tasks, &first, &err), &err);
}

static inline void bench_close(struct bench *b)
{
    tasks_close(b->tasks);
    engines_close(b->engines);
    store_close(b->store);
    hub_free(b->hub);
    b->tasks = NULL;
    b->engines = NULL;
    b->store = NULL;
    b->hub = NULL;
}

static inline int bench_remove_one(const char *path, const struct stat *st, int type,
                                   struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static inline void bench_end(struct bench *b)
{
    if (b->store)
        bench_close(b);
    config_free(b->cfg);
    if (nftw(b->dir, bench_remove_one, 8, FTW_DEPTH | FTW_PHYS) != 0)
        (void)fprintf(stderr, "leftovers in %s\n", b->dir);
}

static const struct caller bench_caller = {.user_id = "owner", .key_id = 1, .owner = true};

static inline struct task *bench_submit(struct bench *b, const char *body, const char *key)
{
    struct rl_err err;
    struct submit_reply reply;
    bench_ok(task_submit(b->tasks, &bench_caller, body, strlen(body), key, &reply, &err), &err);
    return reply.task;
}

/* ---- rows in bulk, past the rules, while nothing else has the database open ---- */

static inline sqlite3 *bench_db(const struct bench *b)
{
    char path[600];
    sqlite3 *db = NULL;
    (void)snprintf(path, sizeof path, "%s/reeld.db", b->dir);
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        bench_die(path, sqlite3_errmsg(db));
    return db;
}

static inline void bench_exec(sqlite3 *db, const char *sql)
{
    char *why = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        bench_die(sql, why);
}

/* Copies of the newest task, `n` of them, with ids and keys of their own; `set` is a list of
 * assignments for them ("status = 'QUEUED', …"). Each gets `events` rows of history. */
static inline void bench_fill(struct bench *b, int64_t n, const char *set, int events)
{
    char *sql = sqlite3_mprintf(
        "CREATE TEMP TABLE many AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
        "WHERE i < %lld) SELECT one.* FROM n CROSS JOIN one;"
        "UPDATE many SET task_id = task_id + rowid * 4096, idempotency_key = 'k' || (task_id + "
        "rowid), rank = rank + rowid, %s;",
        (long long)n, set);
    sqlite3 *db = bench_db(b);
    bench_exec(db, "PRAGMA synchronous=OFF; PRAGMA cache_size=-262144; BEGIN;"
                   "CREATE TEMP TABLE kept AS SELECT sql FROM sqlite_master WHERE type = "
                   "'trigger' AND name IN ('task_birth', 'task_transition');"
                   "DROP TRIGGER task_birth; DROP TRIGGER task_transition;"
                   "CREATE TEMP TABLE one AS SELECT * FROM task ORDER BY task_id DESC LIMIT 1;");
    bench_exec(db, sql);
    bench_exec(db, "INSERT INTO task SELECT * FROM many;");
    for (int i = 0; i < events; i++)
        bench_exec(db, "INSERT INTO task_event(task_id, user_id, timestamp, to_status, attempt) "
                       "SELECT task_id, user_id, updated_at, 'CREATED', 0 FROM many;");
    bench_exec(db, "DROP TABLE many; DROP TABLE one;");
    sqlite3_free(sql);
    for (;;) { /* the triggers again */
        sqlite3_stmt *stmt = NULL;
        char *create = NULL;
        (void)sqlite3_prepare_v2(db, "SELECT sql FROM kept LIMIT 1", -1, &stmt, NULL);
        if (sqlite3_step(stmt) == SQLITE_ROW)
            create = sqlite3_mprintf("%s", sqlite3_column_text(stmt, 0));
        sqlite3_finalize(stmt);
        if (!create)
            break;
        bench_exec(db, create);
        bench_exec(db, "DELETE FROM kept WHERE rowid = (SELECT min(rowid) FROM kept)");
        sqlite3_free(create);
    }
    bench_exec(db, "DROP TABLE kept; COMMIT; PRAGMA wal_checkpoint(TRUNCATE);");
    sqlite3_close(db);
}

#endif
