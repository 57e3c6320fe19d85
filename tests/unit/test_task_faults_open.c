/* Failure loops over starting and stopping: the first run in an empty folder, a start that finds
 * the orphan of a killed process, and a clean stop, with the N-th allocation, read, write, truncate
 * or sync failing, and with a kill at every write. A start that failed leaves nothing behind that
 * hinders the next one: the owner's key file opens the door, the orphan is charged exactly once,
 * nothing that was committed is gone. */
// clang-format off
// link: rl_task PkgConfig::sqlite3 PkgConfig::libcjson -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=fsync
// clang-format on
#include "test_task_check.h"
#include "test_task_faults.h"

#include "base/fs.h"
#include "base/log.h"

#define LOOP_MAX 200000 /* more calls than a start makes */

enum stage { FIRST_RUN, ORPHAN, STOP };

struct trial {
    struct world w;
    char when[160];
};

static char template[64]; /* the folder of a killed process: one task PROCESSING */

static const char *const files[] = {"reeld.db", "reeld.db-wal", "owner.key", "callback.secret"};

/* world_open that may fail, then without leaving anything open. */
static enum rl_rc try_open(struct world *w, struct rl_err *err)
{
    bool first;
    enum rl_rc rc = store_open(w->cfg, world_fatal, w, &w->store, err);
    if (rc == RL_OK)
        rc = engines_open(w->cfg, &w->engines, err);
    if (rc == RL_OK && !(w->hub = hub_new(0)))
        rc = rl_fail(err, RL_NO_MEMORY, "hub");
    if (rc == RL_OK)
        rc = tasks_open(w->cfg, w->store, w->hub, w->engines, &w->tasks, &first, err);
    if (rc != RL_OK)
        world_close(w);
    return rc;
}

static void settings(struct world *w)
{
    world_init(w);
    world_set(w, "store.readers", "1");
    world_set(w, "pool.crash_budget", "1");
}

static void check_owner(struct world *w, const char *when)
{
    char path[128];
    AUTO_FREE char *key = NULL;
    size_t len;
    struct caller caller = {.owner = false};
    struct rl_err err = {.code = RL_OK};
    (void)snprintf(path, sizeof path, "%s/owner.key", w->dir);
    world_ok(rl_fs_read(path, 200, &key, &len, &err), &err);
    key[strcspn(key, "\n")] = '\0';
    if (key_authenticate(w->tasks, key, &caller, &err) != RL_OK || !caller.owner)
        fail_msg("%s: the owner's key is refused: %s", when, err.reason);
}

#define PROBE                                                                                      \
    "SELECT count(*) || ' ' || group_concat(status || ' ' || crash_count) FROM (SELECT * FROM "    \
    "task ORDER BY task_id)"

/* The world is open. */
static void check_world(struct world *w, enum stage stage, const char *when)
{
    static const char *const want[] = {
        [FIRST_RUN] = "0 null", [ORPHAN] = "2 FAILED 1,QUEUED 0", [STOP] = "2 QUEUED 0,QUEUED 0"};
    struct check check;
    char text[200];
    check_open(&check, w->dir);
    check_tables(&check, when);
    check_file(&check, when);
    (void)check_text(&check, PROBE, text, sizeof text);
    if (stage == FIRST_RUN)
        assert_int_equal(check_int(&check, "SELECT count(*) FROM task"), 0);
    else if (strcmp(text, want[stage]) != 0)
        fail_msg("%s: the rows say \"%s\"", when, text);
    check_close(&check);
    check_owner(w, when);
}

static void prepare(struct trial *t, enum stage stage)
{
    settings(&t->w);
    if (stage == ORPHAN)
        for (size_t i = 0; i < RL_ARRAY_LEN(files); i++)
            copy_file(template, t->w.dir, files[i]);
    if (stage == STOP) {
        world_open(&t->w);
        task_free(world_submit(&t->w, "{\"prompt\":\"a\"}"));
        task_free(world_submit(&t->w, "{\"prompt\":\"b\"}"));
    }
}

/* false: the fault was not reached. */
static bool try_start(enum stage stage, enum fault_kind kind, int at, bool sticky)
{
    static const char *const names[] = {"first run", "start with an orphan", "stop"};
    struct trial trial, *t = &trial;
    struct world image;
    struct rl_err err = {.code = RL_OK};
    enum rl_rc rc = RL_OK;
    bool crash = kind == FAULT_CRASH || kind == FAULT_SYNC;
    (void)snprintf(t->when, sizeof t->when, "%s, %s %d%s", names[stage], fault_names[kind], at,
                   sticky ? " and on" : "");
    prepare(t, stage);
    if (crash) {
        settings(&image);
        fault.from = t->w.dir;
        fault.to = image.dir;
    }
    fault_arm(kind, at, sticky);
    if (stage == STOP)
        world_close(&t->w);
    else
        rc = try_open(&t->w, &err);
    bool hit = fault_disarm();
    if (rc != RL_OK && err.code != rc)
        fail_msg("%s: answered %s, the error says %s", t->when, rl_code_name(rc),
                 rl_code_name(err.code));
    if (stage == STOP || rc != RL_OK)
        world_open(&t->w);
    check_world(&t->w, stage, t->when);
    if (crash && hit) {
        world_open(&image);
        check_world(&image, stage, t->when);
    }
    if (crash)
        world_end(&image);
    world_end(&t->w);
    return hit;
}

static void loop(enum fault_kind kind, bool sticky, int step)
{
    for (enum stage stage = FIRST_RUN; stage <= STOP; stage++) {
        int at = 1, tried = 0;
        while (try_start(stage, kind, at, sticky) && at < LOOP_MAX) {
            at = fault_next(at, 8, step);
            tried++;
        }
        assert_true(at < LOOP_MAX);
        print_message("stage %d: %s%s: %d calls failed\n", (int)stage, fault_names[kind],
                      sticky ? " and on" : "", tried);
    }
}

static void test_task_faults_open_malloc(void **state)
{
    (void)state;
    loop(FAULT_MALLOC, false, 3);
    loop(FAULT_MALLOC, true, 5);
}

static void test_task_faults_open_sqlite_malloc(void **state)
{
    (void)state;
    loop(FAULT_SQLITE_MALLOC, false, 1009);
    loop(FAULT_SQLITE_MALLOC, true, 1511);
}

static void test_task_faults_open_files(void **state)
{
    (void)state;
    loop(FAULT_READ, false, 7);
    loop(FAULT_WRITE, false, 7);
    loop(FAULT_WRITE, true, 11);
    loop(FAULT_WRITE_SHORT, false, 7);
    loop(FAULT_WRITE_FULL, false, 7);
    loop(FAULT_TRUNCATE, false, 1);
}

static void test_task_faults_open_sync_and_kill(void **state)
{
    (void)state;
    loop(FAULT_SYNC, false, 1);
    loop(FAULT_CRASH, false, 7);
}

static int make_template(void **state)
{
    static struct world w, killed;
    *state = &killed;
    settings(&w);
    world_open(&w);
    task_free(world_submit(&w, "{\"prompt\":\"a\",\"callback_url\":\"http://127.0.0.1:9/cb\"}"));
    task_free(world_submit(&w, "{\"prompt\":\"b\"}"));
    struct run *run = world_claim(&w);
    settings(&killed);
    for (size_t i = 0; i < RL_ARRAY_LEN(files); i++)
        copy_file(w.dir, killed.dir, files[i]);
    (void)rl_copy_str(template, sizeof template, killed.dir);
    run_free(run);
    world_end(&w);
    return 0;
}

static int remove_template(void **state)
{
    world_end(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_task_faults_open_malloc),
        cmocka_unit_test(test_task_faults_open_sqlite_malloc),
        cmocka_unit_test(test_task_faults_open_files),
        cmocka_unit_test(test_task_faults_open_sync_and_kill),
    };
    rl_log_set_level(RL_LOG_ERROR);
    fault_install();
    return cmocka_run_group_tests(tests, make_template, remove_template);
}
