/* The plain loop that reeld is measured against: one task table as a careful programmer would write
 * it with SQLite in an afternoon. One connection, prepared statements, one transaction per
 * operation, the pragmas of reeld's writer (WAL, synchronous=FULL), an index for the queue and one
 * for the idempotency key. No history, no leases, no callbacks, no other users. Header-only; any
 * error ends the program. */
#ifndef BENCH_PLAIN_H
#define BENCH_PLAIN_H

#include "bench.h"

#include "base/buf.h"

enum plain_op {
    PLAIN_BEGIN,
    PLAIN_COMMIT,
    PLAIN_BY_KEY,
    PLAIN_INSERT,
    PLAIN_GET,
    PLAIN_HEAD,
    PLAIN_START,
    PLAIN_FINISH,
    PLAIN_OPS
};

static const char *const plain_sql[PLAIN_OPS] = {
    "BEGIN IMMEDIATE",
    "COMMIT",
    "SELECT task_id FROM task WHERE user_id = ?1 AND idempotency_key = ?2",
    "INSERT INTO task(user_id, idempotency_key, prompt, created_at, updated_at, queued_at) VALUES "
    "(?1, ?2, ?3, ?4, ?4, ?4)",
    "SELECT * FROM task WHERE task_id = ?1",
    "SELECT task_id FROM task WHERE status = 'QUEUED' ORDER BY priority DESC, task_id LIMIT 1",
    "UPDATE task SET status = 'PROCESSING', worker_id = ?2, attempt = attempt + 1, started_at = "
    "?3, updated_at = ?3 WHERE task_id = ?1 AND status = 'QUEUED'",
    "UPDATE task SET status = 'SUCCEEDED', video_file = ?2, video_bytes = 10, video_sha256 = ?2, "
    "finished_at = ?3, updated_at = ?3 WHERE task_id = ?1 AND status = 'PROCESSING'",
};

struct plain {
    sqlite3 *db;
    sqlite3_stmt *ops[PLAIN_OPS];
};

static inline void plain_open(struct plain *p, const char *path)
{
    if (sqlite3_open_v2(path, &p->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK)
        bench_die(path, sqlite3_errmsg(p->db));
    bench_exec(p->db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA "
                      "cache_size=-16384; PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0; PRAGMA "
                      "foreign_keys=ON; PRAGMA wal_autocheckpoint=8192;");
    bench_exec(
        p->db,
        "CREATE TABLE IF NOT EXISTS task(task_id INTEGER PRIMARY KEY, user_id TEXT NOT NULL, "
        "idempotency_key TEXT, prompt TEXT NOT NULL, negative_prompt TEXT NOT NULL DEFAULT '', "
        "engine TEXT NOT NULL DEFAULT 'testpattern', model TEXT NOT NULL DEFAULT 'pattern', width "
        "INTEGER NOT NULL DEFAULT 320, height INTEGER NOT NULL DEFAULT 240, frames INTEGER NOT "
        "NULL DEFAULT 33, fps INTEGER NOT NULL DEFAULT 16, steps INTEGER NOT NULL DEFAULT 20, "
        "seed INTEGER NOT NULL DEFAULT 7, guidance_scale REAL NOT NULL DEFAULT 5, options TEXT "
        "NOT NULL DEFAULT '{}', status TEXT NOT NULL DEFAULT 'QUEUED', priority INTEGER NOT NULL "
        "DEFAULT 5, queue_name TEXT NOT NULL DEFAULT 'default', worker_id TEXT, attempt INTEGER "
        "NOT NULL DEFAULT 0, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, queued_at "
        "INTEGER NOT NULL, started_at INTEGER, finished_at INTEGER, error_code TEXT, error_msg "
        "TEXT, video_file TEXT, video_bytes INTEGER, video_sha256 TEXT, callback_url TEXT, label "
        "TEXT, metadata TEXT) STRICT;"
        "CREATE INDEX IF NOT EXISTS task_queue ON task(status, priority DESC, task_id);"
        "CREATE UNIQUE INDEX IF NOT EXISTS task_key ON task(user_id, idempotency_key);");
    for (int i = 0; i < PLAIN_OPS; i++)
        if (sqlite3_prepare_v3(p->db, plain_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &p->ops[i],
                               NULL) != SQLITE_OK)
            bench_die(plain_sql[i], sqlite3_errmsg(p->db));
}

static inline void plain_close(struct plain *p)
{
    for (int i = 0; i < PLAIN_OPS; i++)
        sqlite3_finalize(p->ops[i]);
    sqlite3_close(p->db);
}

/* n waiting tasks, in one transaction. */
static inline void plain_fill(struct plain *p, int64_t n)
{
    char *sql = sqlite3_mprintf(
        "PRAGMA synchronous=OFF; BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
        "FROM n WHERE i < %lld) INSERT INTO task(user_id, idempotency_key, prompt, created_at, "
        "updated_at, queued_at) SELECT 'owner', 'k' || i, 'x', i, i, i FROM n; COMMIT; PRAGMA "
        "wal_checkpoint(TRUNCATE); PRAGMA synchronous=FULL;",
        (long long)n);
    bench_exec(p->db, sql);
    sqlite3_free(sql);
}

/* Step a statement to its end; the first column of its first row, or `fallback`. */
static inline int64_t plain_run(struct plain *p, enum plain_op op, int64_t fallback)
{
    int rc = sqlite3_step(p->ops[op]);
    int64_t value = rc == SQLITE_ROW ? sqlite3_column_int64(p->ops[op], 0) : fallback;
    while (rc == SQLITE_ROW)
        rc = sqlite3_step(p->ops[op]);
    if (rc != SQLITE_DONE)
        bench_die(plain_sql[op], sqlite3_errmsg(p->db));
    (void)sqlite3_reset(p->ops[op]); /* the error was seen */
    return value;
}

static inline int64_t plain_submit(struct plain *p, const char *key, const char *prompt)
{
    int64_t now = rl_wall_ms(), id;
    (void)plain_run(p, PLAIN_BEGIN, 0);
    (void)sqlite3_bind_text(p->ops[PLAIN_BY_KEY], 1, "owner", -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(p->ops[PLAIN_BY_KEY], 2, key, -1, SQLITE_STATIC);
    id = plain_run(p, PLAIN_BY_KEY, 0);
    if (id == 0) {
        (void)sqlite3_bind_text(p->ops[PLAIN_INSERT], 1, "owner", -1, SQLITE_STATIC);
        (void)sqlite3_bind_text(p->ops[PLAIN_INSERT], 2, key, -1, SQLITE_STATIC);
        (void)sqlite3_bind_text(p->ops[PLAIN_INSERT], 3, prompt, -1, SQLITE_STATIC);
        (void)sqlite3_bind_int64(p->ops[PLAIN_INSERT], 4, now);
        (void)plain_run(p, PLAIN_INSERT, 0);
        id = sqlite3_last_insert_rowid(p->db);
    }
    (void)plain_run(p, PLAIN_COMMIT, 0);
    return id;
}

/* The head of the queue, PROCESSING durably; 0 = nothing waits. */
static inline int64_t plain_claim(struct plain *p)
{
    (void)plain_run(p, PLAIN_BEGIN, 0);
    int64_t id = plain_run(p, PLAIN_HEAD, 0);
    (void)sqlite3_bind_int64(p->ops[PLAIN_START], 1, id);
    (void)sqlite3_bind_text(p->ops[PLAIN_START], 2, "cpu0", -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(p->ops[PLAIN_START], 3, rl_wall_ms());
    (void)plain_run(p, PLAIN_START, 0);
    (void)plain_run(p, PLAIN_COMMIT, 0);
    return id;
}

static inline void plain_finish(struct plain *p, int64_t id)
{
    (void)plain_run(p, PLAIN_BEGIN, 0);
    (void)sqlite3_bind_int64(p->ops[PLAIN_FINISH], 1, id);
    (void)sqlite3_bind_text(p->ops[PLAIN_FINISH], 2, "x.mp4", -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(p->ops[PLAIN_FINISH], 3, rl_wall_ms());
    (void)plain_run(p, PLAIN_FINISH, 0);
    (void)plain_run(p, PLAIN_COMMIT, 0);
}

/* The task as JSON, a member per column: what a GET would answer. */
static inline void plain_get(struct plain *p, int64_t id, struct rl_buf *out)
{
    sqlite3_stmt *get = p->ops[PLAIN_GET];
    struct rl_jw w;
    (void)sqlite3_bind_int64(get, 1, id);
    if (sqlite3_step(get) != SQLITE_ROW)
        bench_die("plain_get", "no such task");
    rl_jw_init(&w, out, false);
    rl_jw_object(&w, NULL);
    for (int i = 0; i < sqlite3_column_count(get); i++) {
        const char *name = sqlite3_column_name(get, i);
        if (sqlite3_column_type(get, i) == SQLITE_INTEGER)
            rl_jw_i64(&w, name, sqlite3_column_int64(get, i));
        else if (sqlite3_column_type(get, i) == SQLITE_FLOAT)
            rl_jw_f64(&w, name, sqlite3_column_double(get, i));
        else
            rl_jw_str(&w, name, (const char *)sqlite3_column_text(get, i));
    }
    rl_jw_end_object(&w);
    (void)sqlite3_reset(get);
}

#endif
