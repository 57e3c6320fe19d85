/* How SQLite runs our statements: none may walk a table that grows, and the hot ones use their
 * partial index. */
// link: PkgConfig::sqlite3
#include "store/internal.h"

#include "base/crypto.h"
#include "config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Statements that are allowed to read all of a table: seldom asked for, and bounded by the read
 * limit. */
static const enum store_sql whole[] = {SQL_STATUS_COUNTS, SQL_STATS,
                                       SQL_FEED_TOTALS}; /* small tables */

static const struct {
    enum store_sql sql;
    const char *index;
} hot[] = {
    {SQL_CLAIM_HEAD, "task_claim"},
    {SQL_NEXT_DUE, "task_wait"},
    {SQL_PROMOTE_DUE, "task_wait"},
    {SQL_NEXT_INPUT, "task_input"},
    {SQL_DUE_INPUT, "task_input"},
    {SQL_QUEUE_EXPIRED, "task_queue_due"},
    {SQL_NEXT_QUEUE_DUE, "task_queue_due"},
    {SQL_TWIN_WANTED, "task_twin"},
    {SQL_TWIN_WAITING, "task_twin"},
    {SQL_TWIN_RELEASE, "task_twin"},
    {SQL_DEAD_DESC, "task_dead"},
    {SQL_DEAD_ASC, "task_dead"},
    {SQL_DEAD_USER_DESC, "task_dead_user (user_id=? AND task_id<?)"},
    {SQL_DEAD_USER_ASC, "task_dead_user (user_id=? AND task_id>?)"},
    {SQL_QUEUE_DROP_UNUSED, "task_queue (queue_name=?)"},
    {SQL_QUEUE_POSITION, "task_claim"},
    {SQL_KEPT_TWIN, "task_kept"},
    {SQL_TASK_BY_KEY, "task_idempotency"},
    {SQL_RETAIN_OLDEST, "task_done"},
    {SQL_FOLLOW_TASK, "task_event_task"},
    {SQL_FOLLOW_USER, "task_event_user"},
    {SQL_OUTBOX_NEXT_HOST, "outbox_host"},
    {SQL_OUTBOX_HOST_DUE, "outbox_host"},
    {SQL_FEED_SCAN_USER, "task_event_user"},
    {SQL_FEED_RANGE_USER, "task_event_user"},
    {SQL_FEED_FIRST_USER, "task_event_user"},
    {SQL_FEED_LEASE_COUNT, "feed_lease_feed"},
    {SQL_FEED_LEASE_EXPIRY, "feed_lease_open"},
    {SQL_FEED_LEASE_EXPIRED, "feed_lease_open"},
    {SQL_FEED_SETTLE, "feed_lease_open"},
    {SQL_FEED_LEASE_LIST, "feed_lease_feed"},
    {SQL_OUTBOX_TIMER, "outbox_due"},
    {SQL_OUTBOX_EXPIRED, "outbox_expiry"},
    {SQL_RESEND_PAGE, "outbox_list"},
    {SQL_ORPHANS, "task_run"},
    {SQL_INBOUND_NEXT, "processed_event_waiting"},
    {SQL_INBOUND_NEXT_ABOUT, "processed_event_about"},
    {SQL_INBOUND_WAITING, "processed_event_waiting"},
    {SQL_INBOUND_LIST_DESC, "processed_event_list"},
    {SQL_INBOUND_WAITING_DESC, "processed_event_waiting"},
    {SQL_INBOUND_WAITING_ASC, "processed_event_waiting"},
    {SQL_INBOUND_LIST_ASC, "processed_event_list"},
    {SQL_INBOUND_PURGE_UNHANDLED, "processed_event_unhandled"},
    {SQL_INBOUND_PURGE_AGED, "processed_event_age"},
};

static const char *const growing[] = {
    "task",      "t", "r",        "h",      "task_event",      "e",
    "outbox",    "o", "delivery", "purged", "processed_event", "p",
    "feed_lease"};

static char dir[] = "/tmp/reeld-plans-XXXXXX";
static struct store_conn *conn;

static int setup(void **state)
{
    (void)state;
    char path[64];
    struct rl_err err;
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof path, "%s/reeld.db", dir);
    return store_conn_open(path, true, &conn, &err) == RL_OK &&
                   store_migrate(conn, &err) == RL_OK && store_conn_prepare(conn, &err) == RL_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[64];
    store_conn_close(conn);
    (void)snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

/* Calls look(detail) for every line of the plan. */
static void plan(enum store_sql sql, void (*look)(void *user, const char *detail), void *user)
{
    char *text = sqlite3_mprintf("EXPLAIN QUERY PLAN %s", store_sql_text(sql));
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_prepare_v2(conn->db, text, -1, &stmt, NULL), SQLITE_OK);
    while (sqlite3_step(stmt) == SQLITE_ROW)
        look(user, (const char *)sqlite3_column_text(stmt, 3));
    sqlite3_finalize(stmt);
    sqlite3_free(text);
}

static void look_for_scan(void *user, const char *detail)
{
    char name[64] = "";
    if (sscanf(detail, "SCAN %63s", name) != 1)
        return;
    for (size_t i = 0; i < RL_ARRAY_LEN(growing); i++)
        if (strcmp(name, growing[i]) == 0)
            *(const char **)user = growing[i];
}

static void test_store_statements_walk_no_growing_table(void **state)
{
    (void)state;
    for (int sql = 0; sql < SQL_COUNT; sql++) {
        const char *walked = NULL;
        bool allowed = sql == SQL_BACKUP;
        for (size_t i = 0; i < RL_ARRAY_LEN(whole); i++)
            allowed = allowed || whole[i] == (enum store_sql)sql;
        if (allowed)
            continue;
        plan((enum store_sql)sql, look_for_scan, &walked);
        if (walked)
            fail_msg("walks %s: %s", walked, store_sql_text((enum store_sql)sql));
    }
}

struct wanted {
    const char *index;
    bool used;
};

static void look_for_index(void *user, const char *detail)
{
    struct wanted *wanted = user;
    char text[64];
    (void)snprintf(text, sizeof text, "INDEX %s ", wanted->index);
    const char *at = strstr(detail, text);
    size_t len = strlen(detail), name = strlen(wanted->index);
    wanted->used =
        wanted->used || at || (len >= name && strcmp(detail + len - name, wanted->index) == 0);
}

static void test_store_hot_statements_use_their_index(void **state)
{
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(hot); i++) {
        struct wanted wanted = {hot[i].index, false};
        plan(hot[i].sql, look_for_index, &wanted);
        if (!wanted.used)
            fail_msg("does not use %s: %s", hot[i].index, store_sql_text(hot[i].sql));
    }
}

static void look_for_task(void *user, const char *detail)
{
    *(bool *)user = *(bool *)user || strstr(detail, " task");
}

/* Asked once for every task that retention removes: a search of an index that reads all of it is as
 * bad as a walk. */
static void test_store_retention_counts_nothing(void **state)
{
    (void)state;
    bool counts = false;
    plan(SQL_RETAIN_TOTALS, look_for_task, &counts);
    assert_false(counts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_statements_walk_no_growing_table),
        cmocka_unit_test(test_store_hot_statements_use_their_index),
        cmocka_unit_test(test_store_retention_counts_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
