/* The transition table, and the SQL trigger that repeats it: all 49 pairs by both. */
#include "world.h"

#include <sqlite3.h>

// link: rl_task PkgConfig::sqlite3

static const char *const allowed[] = {
    "CREATED>QUEUED",       "CREATED>FAILED",    "CREATED>CANCELED",  "QUEUED>PROCESSING",
    "QUEUED>QUEUED",        "QUEUED>TIMEOUT",    "QUEUED>FAILED",     "QUEUED>CANCELED",
    "PROCESSING>SUCCEEDED", "PROCESSING>QUEUED", "PROCESSING>FAILED", "PROCESSING>TIMEOUT",
    "PROCESSING>CANCELED",  "FAILED>QUEUED",     "TIMEOUT>QUEUED"};

static bool in_design(const char *from, const char *to)
{
    char pair[40];
    (void)snprintf(pair, sizeof pair, "%s>%s", from, to);
    for (size_t i = 0; i < RL_ARRAY_LEN(allowed); i++)
        if (strcmp(pair, allowed[i]) == 0)
            return true;
    return false;
}

static void test_task_transition_allowed_is_the_design(void **state)
{
    (void)state;
    for (int from = 0; from < TASK_STATUS_COUNT; from++)
        for (int to = 0; to < TASK_STATUS_COUNT; to++)
            assert_int_equal(task_transition_allowed((enum task_status)from, (enum task_status)to),
                             in_design(task_status_name((enum task_status)from),
                                       task_status_name((enum task_status)to)));
}

/* Put a row into state `from` by a legal path with the trigger away, then try the pair with it. */
static void test_task_transition_trigger_agrees(void **state)
{
    (void)state;
    struct world w;
    char path[128], sql[512];
    sqlite3 *db;
    world_init(&w);
    world_open(&w);
    struct task *task = world_submit(&w, "{\"prompt\":\"x\"}");
    long long id = (long long)task->task_id;
    task_free(task);
    world_close(&w);
    (void)snprintf(path, sizeof path, "%s/reeld.db", w.dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    char *trigger = NULL;
    sqlite3_stmt *stmt;
    assert_int_equal(
        sqlite3_prepare_v2(db, "SELECT sql FROM sqlite_master WHERE name = 'task_transition'", -1,
                           &stmt, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    trigger = rl_strdup((const char *)sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    for (int from = 0; from < TASK_STATUS_COUNT; from++) {
        for (int to = 0; to < TASK_STATUS_COUNT; to++) {
            const char *f = task_status_name((enum task_status)from),
                       *t = task_status_name((enum task_status)to);
            assert_int_equal(
                sqlite3_exec(db, "PRAGMA ignore_check_constraints=1; DROP TRIGGER task_transition",
                             NULL, NULL, NULL),
                SQLITE_OK);
            (void)snprintf(sql, sizeof sql, "UPDATE task SET status = '%s' WHERE task_id = %lld", f,
                           id);
            assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
            assert_int_equal(sqlite3_exec(db, trigger, NULL, NULL, NULL), SQLITE_OK);
            (void)snprintf(sql, sizeof sql, "UPDATE task SET status = '%s' WHERE task_id = %lld", t,
                           id);
            int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
            assert_int_equal(rc == SQLITE_OK,
                             task_transition_allowed((enum task_status)from, (enum task_status)to));
        }
    }
    free(trigger);
    sqlite3_close(db);
    world_end(&w);
}

static enum rl_rc columns(struct store_conn *conn, void *arg, struct rl_err *err)
{
    static const char *const names[] = {
#define COLUMN_NAME(type, name) #name,
        TASK_COLUMNS(COLUMN_NAME)
    };
    (void)arg;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_TASK_GET);
    store_bind_int(stmt, ":task_id", 1);
    bool row;
    enum rl_rc rc = store_step(stmt, &row, err);
    assert_int_equal(store_col_count(stmt), RL_ARRAY_LEN(names));
    for (int i = 0; i < store_col_count(stmt); i++)
        assert_string_equal(store_col_name(stmt, i), names[i]);
    return rc;
}

static void test_task_columns_are_the_view(void **state)
{
    (void)state;
    struct world w;
    struct rl_err err;
    world_init(&w);
    world_open(&w);
    world_ok(store_read(w.store, columns, NULL, &err), &err);
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_task_transition_allowed_is_the_design),
        cmocka_unit_test(test_task_transition_trigger_agrees),
        cmocka_unit_test(test_task_columns_are_the_view),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
