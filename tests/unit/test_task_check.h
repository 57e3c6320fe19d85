/* Do the tables agree with each other? Read through a connection of its own that SQLite opens by
 * the plain "unix" VFS, so that no injected fault touches it. */
#ifndef TEST_TASK_CHECK_H
#define TEST_TASK_CHECK_H

#include "world.h"

#include <sqlite3.h>

/* A connection with the statements it has seen: most checks are asked many times. */
struct check {
    sqlite3 *db;
    size_t count;
    struct {
        const char *sql; /* borrowed: the same text is the same pointer */
        sqlite3_stmt *stmt;
    } seen[48];
};

static inline void check_open(struct check *c, const char *dir)
{
    char path[128];
    *c = (struct check){.db = NULL};
    (void)snprintf(path, sizeof path, "%s/reeld.db", dir);
    if (sqlite3_open_v2(path, &c->db, SQLITE_OPEN_READONLY, "unix") != SQLITE_OK)
        fail_msg("open %s: %s", path, sqlite3_errmsg(c->db));
    sqlite3_busy_timeout(c->db, 5000);
    sqlite3_db_config(c->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

static inline void check_close(struct check *c)
{
    for (size_t i = 0; i < c->count; i++)
        sqlite3_finalize(c->seen[i].stmt);
    sqlite3_close(c->db);
    *c = (struct check){.db = NULL};
}

static inline sqlite3_stmt *check_stmt(struct check *c, const char *sql)
{
    size_t i = 0;
    while (i < c->count && c->seen[i].sql != sql)
        i++;
    if (i == c->count) {
        assert_true(i < RL_ARRAY_LEN(c->seen));
        if (sqlite3_prepare_v2(c->db, sql, -1, &c->seen[i].stmt, NULL) != SQLITE_OK)
            fail_msg("%s: %s", sql, sqlite3_errmsg(c->db));
        c->seen[i].sql = sql;
        c->count++;
    }
    return c->seen[i].stmt;
}

/* First column of the first row as text into text[size], ?1 bound to `after`; "none" without a
 * row. */
static inline const char *check_text_after(struct check *c, const char *sql, int64_t after,
                                           char *text, size_t size)
{
    sqlite3_stmt *stmt = check_stmt(c, sql);
    if (sqlite3_bind_parameter_count(stmt))
        (void)sqlite3_bind_int64(stmt, 1, after); /* a missing value shows in the text */
    int rc = sqlite3_step(stmt);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        fail_msg("%s: %s", sql, sqlite3_errmsg(c->db));
    const char *value = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0) : "none";
    (void)snprintf(text, size, "%s", value ? value : "null");
    sqlite3_reset(stmt);
    return text;
}

static inline const char *check_text(struct check *c, const char *sql, char *text, size_t size)
{
    return check_text_after(c, sql, 0, text, size);
}

static inline int64_t check_int(struct check *c, const char *sql)
{
    char text[64];
    return strtoll(check_text(c, sql, text, sizeof text), NULL, 10);
}

struct check_rule {
    const char *what; /* must not be */
    const char *sql;  /* counts the rows for which it is */
};

static const struct check_rule check_rules[] = {
    {"history of no task",
     "SELECT count(*) FROM task_event WHERE task_id NOT IN (SELECT task_id FROM task)"},
    {"task without history",
     "SELECT count(*) FROM task WHERE task_id NOT IN (SELECT task_id FROM task_event)"},
    {"history that does not start with CREATED",
     "SELECT count(*) FROM task_event WHERE (from_status IS NULL) <> (to_status = 'CREATED')"},
    {"gap in a history",
     "SELECT count(*) FROM (SELECT from_status AS f, lag(to_status) OVER (PARTITION BY task_id "
     "ORDER BY seq) AS p FROM task_event) WHERE f IS NOT p"},
    {"status that is not the end of the history",
     "SELECT count(*) FROM task t WHERE status IS NOT (SELECT to_status FROM task_event e WHERE "
     "e.task_id = t.task_id ORDER BY seq DESC LIMIT 1)"},
    {"version that is not the last seq",
     "SELECT count(*) FROM task t WHERE version IS NOT (SELECT max(seq) FROM task_event e WHERE "
     "e.task_id = t.task_id)"},
    {"times that run backwards",
     "SELECT count(*) FROM (SELECT timestamp - lag(timestamp) OVER (PARTITION BY task_id ORDER BY "
     "seq) AS step FROM task_event) WHERE step < 0"},
    {"terminal state without exactly one callback duty",
     "SELECT count(*) FROM task t WHERE callback_url IS NOT NULL AND (status IN ('SUCCEEDED', "
     "'FAILED', 'TIMEOUT')) <> (SELECT count(*) FROM outbox o WHERE o.task_id = t.task_id AND "
     "o.round = t.round)"},
    {"callback duty of nobody",
     "SELECT count(*) FROM outbox o WHERE NOT EXISTS (SELECT 1 FROM task t WHERE t.task_id = "
     "o.task_id AND t.callback_url IS NOT NULL AND t.round >= o.round)"},
    {"callback status that differs from the duty",
     "SELECT count(*) FROM outbox o JOIN task t USING (task_id, round) WHERE o.status IS NOT "
     "t.callback_status OR o.tries <> t.callback_retry"},
    {"deliveries that were not counted",
     "SELECT count(*) FROM outbox o WHERE tries <> (SELECT count(*) FROM delivery d WHERE "
     "d.outbox_id = o.outbox_id)"},
    {"success without a result",
     "SELECT count(*) FROM task WHERE status = 'SUCCEEDED' AND (video_file IS NULL OR video_sha256 "
     "IS NULL OR video_bytes <= 0)"},
    {"result without success",
     "SELECT count(*) FROM task WHERE status NOT IN ('SUCCEEDED', 'CANCELED') AND video_file IS "
     "NOT NULL"},
    {"failure without a reason",
     "SELECT count(*) FROM task WHERE (status IN ('FAILED', 'TIMEOUT')) <> (error_code IS NOT "
     "NULL)"},
    {"run without a holder",
     "SELECT count(*) FROM task WHERE (status = 'PROCESSING') AND (epoch = 0 OR worker_id IS NULL "
     "OR started_at = 0 OR attempt = 0)"},
};

static inline void check_paths(struct check *c, const char *when)
{
    sqlite3_stmt *stmt = check_stmt(c, "SELECT DISTINCT from_status, to_status FROM task_event "
                                       "WHERE from_status IS NOT NULL");
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        enum task_status from = TASK_STATUS_COUNT, to = TASK_STATUS_COUNT;
        const char *a = (const char *)sqlite3_column_text(stmt, 0);
        const char *b = (const char *)sqlite3_column_text(stmt, 1);
        if (!task_status_parse(a, &from) || !task_status_parse(b, &to) ||
            !task_transition_allowed(from, to))
            fail_msg("%s: the history has %s to %s", when, a, b);
    }
    sqlite3_reset(stmt);
}

/* `when` names the moment in a failure. */
static inline void check_tables(struct check *c, const char *when)
{
    char text[200];
    for (size_t i = 0; i < RL_ARRAY_LEN(check_rules); i++)
        if (strcmp(check_text(c, check_rules[i].sql, text, sizeof text), "0") != 0)
            fail_msg("%s: %s (%s)", when, check_rules[i].what, text);
    check_paths(c, when);
}

/* The file itself; slower. */
static inline void check_file(struct check *c, const char *when)
{
    char text[200];
    if (strcmp(check_text(c, "PRAGMA integrity_check", text, sizeof text), "ok") != 0)
        fail_msg("%s: %s", when, text);
    if (strcmp(check_text(c, "PRAGMA foreign_key_check", text, sizeof text), "none") != 0)
        fail_msg("%s: a row of %s points nowhere", when, text);
}

#endif
