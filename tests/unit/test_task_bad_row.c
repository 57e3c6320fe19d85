/* One row with which something cannot be done: a trigger in the database refuses it, as a fault of
 * ours would. It is logged and put off; everybody else gets what is due, the program starts, and
 * nothing of a half-done step is left. */
#include "test_task_check.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "task/internal.h"

#include <pthread.h>

// link: rl_task PkgConfig::sqlite3

#define SOON_MS 10000

/* Every `what` with `when` fails from now on. */
static void refuse(const struct world *w, const char *what, const char *when)
{
    char path[128], sql[512], *why = NULL;
    sqlite3 *db = NULL;
    (void)snprintf(path, sizeof path, "%s/reeld.db", w->dir);
    (void)snprintf(sql, sizeof sql,
                   "CREATE TRIGGER bad BEFORE %s WHEN %s BEGIN SELECT RAISE(ABORT, 'injected'); "
                   "END",
                   what, when);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s: %s", sql, why);
    sqlite3_close(db);
}

/* Moves of this task to `status` fail. */
static void refuse_move(const struct world *w, int64_t id, const char *status)
{
    char when[128];
    (void)snprintf(when, sizeof when, "NEW.task_id = %lld AND NEW.to_status = '%s'", (long long)id,
                   status);
    refuse(w, "INSERT ON task_event", when);
}

static void expect_status(struct world *w, int64_t id, const char *want)
{
    AUTO_TASK struct task *task = world_get(w, id);
    assert_string_equal(task->status, want);
}

static void wait_status(struct world *w, int64_t id, const char *want)
{
    for (int64_t until = rl_mono_ms() + SOON_MS;;) {
        uint64_t tick = hub_tick(w->hub);
        AUTO_TASK struct task *task = world_get(w, id);
        if (strcmp(task->status, want) == 0)
            return;
        if (rl_mono_ms() > until)
            fail_msg("the task is still %s, not %s", task->status, want);
        (void)hub_wait(w->hub, NULL, tick, 1000);
    }
}

static void expect_moves(struct world *w, int64_t id, const char *want)
{
    struct check check;
    char text[256];
    check_open(&check, w->dir);
    assert_string_equal(check_text_after(&check,
                                         "SELECT group_concat(to_status, ' ') FROM (SELECT "
                                         "to_status FROM task_event WHERE task_id = ?1 ORDER BY "
                                         "seq)",
                                         id, text, sizeof text),
                        want);
    check_close(&check);
}

static int64_t submit(struct world *w, const char *body)
{
    AUTO_TASK struct task *task = world_submit(w, body);
    return task->task_id;
}

static int64_t int_of(struct world *w, const char *sql, int64_t id)
{
    struct check check;
    char text[64];
    check_open(&check, w->dir);
    int64_t value = strtoll(check_text_after(&check, sql, id, text, sizeof text), NULL, 10);
    check_close(&check);
    return value;
}

/* ---- the scheduler's loops ---- */

static void test_created_that_cannot_be_enqueued(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    int64_t bad = submit(w, "{\"prompt\":\"a\",\"options\":{\"input_ms\":20}}"),
            good = submit(w, "{\"prompt\":\"b\",\"options\":{\"input_ms\":40}}");
    refuse_move(w, bad, "QUEUED");
    int64_t before = store_steady_ms(w->store);
    world_ok(schedule_start(w->tasks, NULL, NULL, &err), &err);
    wait_status(w, good, "QUEUED");
    expect_status(w, bad, "CREATED");
    expect_moves(w, bad, "CREATED");
    assert_true(int_of(w, "SELECT input_at FROM task WHERE task_id = ?1", bad) >= before + 60000);
}

static void test_queue_time_out_that_cannot_strike(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    world_set(w, "queue.requeues", "0");
    int64_t bad = submit(w, "{\"prompt\":\"a\",\"queue_timeout_s\":1}"),
            good = submit(w, "{\"prompt\":\"b\",\"queue_timeout_s\":1}");
    refuse_move(w, bad, "TIMEOUT");
    world_ok(schedule_start(w->tasks, NULL, NULL, &err), &err);
    wait_status(w, good, "TIMEOUT");
    expect_status(w, bad, "QUEUED");
    expect_moves(w, bad, "CREATED QUEUED");
    assert_true(int_of(w, "SELECT queue_due_at FROM task WHERE task_id = ?1", bad) >
                store_steady_ms(w->store) + 50000);
}

static void test_retention_of_a_task_that_cannot_be_removed(void **state)
{
    struct world *w = *state;
    struct rl_err err, why = {.code = RL_ENGINE_ERROR, .reason = "boom"};
    struct task *none = NULL;
    int64_t ids[3];
    char body[64], when[64];
    world_set(w, "retain.count", "1");
    for (int i = 0; i < 3; i++) {
        (void)snprintf(body, sizeof body, "{\"prompt\":\"%d\"}", i);
        ids[i] = submit(w, body);
        struct run *run = world_claim(w);
        world_ok(run_fail(run, &why, &err), &err);
        run_free(run);
    }
    (void)snprintf(when, sizeof when, "OLD.task_id = %lld", (long long)ids[0]);
    refuse(w, "DELETE ON task", when);
    assert_false(retain_round(w->tasks)); /* the oldest cannot go: later */
    assert_true(retain_round(w->tasks));  /* the next one can */
    assert_int_equal(task_get(w->tasks, &owner, ids[1], &none, &err), RL_TASK_EXPIRED);
    (void)retain_round(w->tasks);
    expect_status(w, ids[0], "FAILED");
    while (retain_round(w->tasks))
        ; /* every lap begins with it and comes to an end */
}

static void test_repair_of_a_task_that_cannot_be_moved(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    int64_t bad, good;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 1 << 20);
    world_set(w, "task.created_ms", "1000");
    bad = submit(w, "{\"prompt\":\"a\"}");
    good = submit(w, "{\"prompt\":\"b\"}");
    for (int i = 0; i < 2; i++)
        run_free(world_claim(w)); /* their runs are gone without a word */
    refuse_move(w, bad, "QUEUED");
    for (int64_t until = rl_mono_ms() + SOON_MS; !strstr(out.data ? out.data : "", "\"acted\":1");
         rl_buf_clear(&out)) {
        assert_true(rl_mono_ms() < until);
        rl_buf_clear(&out);
        world_ok(task_repair(w->tasks, false, 0, 10, NULL, &out, &err), &err);
        if (strstr(out.data, "\"acted\":1")) {
            assert_non_null(strstr(out.data, "\"error\":\"INTERNAL\""));
            assert_non_null(strstr(out.data, "\"error\":null"));
            break;
        }
        (void)hub_wait(w->hub, NULL, hub_tick(w->hub), 50);
    }
    expect_status(w, bad, "PROCESSING");
    expect_status(w, good, "QUEUED");
    world_ok(repair_sweep(w->tasks, &err), &err); /* as the scheduler does */
}

static size_t times(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, word)); p++)
        n++;
    return n;
}

/* As many as a sweep takes in that cannot be moved, and one behind them. */
static void test_repair_sweep_gets_past_what_cannot_be_moved(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    AUTO_BUF struct rl_buf out = {0};
    const char *last = NULL;
    char next[48] = "";
    rl_buf_init(&out, 1 << 20);
    world_set(w, "task.created_ms", "1000");
    int64_t good = 0;
    for (int i = 0; i < 61; i++)
        good = submit(w, "{\"prompt\":\"a\",\"idempotency\":\"off\"}");
    for (int i = 0; i < 61; i++)
        run_free(world_claim(w));
    char when[96];
    (void)snprintf(when, sizeof when, "NEW.task_id < %lld AND NEW.to_status = 'QUEUED'",
                   (long long)good);
    refuse(w, "INSERT ON task_event", when);
    int64_t until = rl_mono_ms() + SOON_MS;
    do {
        rl_buf_clear(&out);
        world_ok(task_repair(w->tasks, true, 0, 200, NULL, &out, &err), &err);
        (void)hub_wait(w->hub, NULL, hub_tick(w->hub), 50);
        assert_true(rl_mono_ms() < until);
    } while (times(out.data, "task_id") < 61);
    rl_buf_clear(&out);
    world_ok(task_repair(w->tasks, true, 0, 40, NULL, &out, &err), &err); /* each is listed once */
    assert_int_equal(times(out.data, "task_id"), 40);
    last = strstr(out.data, "\"next\":\"");
    assert_non_null(last);
    (void)snprintf(next, sizeof next, "%.*s", (int)strcspn(last + 8, "\""), last + 8);
    rl_buf_clear(&out);
    world_ok(task_repair(w->tasks, true, 0, 40, next, &out, &err), &err);
    assert_non_null(strstr(out.data, "\"next\":null"));
    assert_int_equal(times(out.data, "task_id"), 21);
    assert_int_equal(task_repair(w->tasks, true, 0, 40, "X.1", &out, &err), RL_INVALID_FIELD);
    world_ok(repair_sweep(w->tasks, &err), &err);
    world_ok(repair_sweep(w->tasks, &err), &err);
    expect_status(w, good, "QUEUED");
}

/* ---- the end ---- */

/* The video is there: its statistics are not worth a run. */
static void test_success_whose_speed_cannot_be_kept(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    const struct run_result clip = {.file = "a.mp4", .bytes = 1, .sha256 = "00", .width = 64};
    int64_t id = submit(w, "{\"prompt\":\"a\"}");
    struct run *run = world_claim(w);
    refuse(w, "INSERT ON speed", "1");
    world_ok(run_succeed(run, &clip, &err), &err);
    run_free(run);
    expect_status(w, id, "SUCCEEDED");
}

/* ---- the start ---- */

static void test_start_with_an_orphan_that_cannot_be_moved(void **state)
{
    struct world *w = *state;
    int64_t bad = submit(w, "{\"prompt\":\"a\"}"), good = submit(w, "{\"prompt\":\"b\"}");
    for (int i = 0; i < 2; i++)
        run_free(world_claim(w));
    refuse_move(w, bad, "QUEUED");
    world_close(w);
    world_open(w); /* it starts, and everybody else is taken back */
    expect_status(w, bad, "PROCESSING");
    expect_status(w, good, "QUEUED");
}

/* ---- the claim ---- */

static void test_head_that_cannot_be_claimed(void **state)
{
    struct world *w = *state;
    int64_t bad = submit(w, "{\"prompt\":\"a\"}"), good = submit(w, "{\"prompt\":\"b\"}");
    refuse_move(w, bad, "PROCESSING");
    struct run *run = world_claim(w);
    assert_non_null(run);
    assert_int_equal(run_task(run)->task_id, good);
    run_free(run);
    expect_status(w, bad, "QUEUED");
    assert_null(world_claim(w)); /* not a claim that fails once a second */
}

/* ---- reuse ---- */

/* A soft-cancelled task whose result was kept, with its files. */
static int64_t kept(struct world *w, struct run **ret_run)
{
    struct rl_err err;
    struct task *answer = NULL;
    int64_t id = submit(w, "{\"prompt\":\"a\",\"seed\":7}");
    char part[512], final[512], poster_part[512], poster[512];
    *ret_run = world_claim(w);
    run_paths(*ret_run, part, final, poster_part, poster, sizeof part);
    world_ok(rl_fs_write_durable(final, "mp4", 3, 0600, &err), &err);
    world_ok(rl_fs_write_durable(poster, "jpg", 3, 0600, &err), &err);
    world_ok(task_cancel(w->tasks, &owner, id, CANCEL_SOFT, &answer, &err), &err);
    task_free(answer);
    return id;
}

static void keep(struct world *w, struct run *run)
{
    struct rl_err err;
    char name[64];
    (void)snprintf(name, sizeof name, "%lld-1.mp4", (long long)run_task(run)->task_id);
    struct run_result clip = {
        .file = name, .bytes = 3, .sha256 = "00", .width = 64, .height = 64, .frames = 4, .fps = 8};
    (void)w;
    world_ok(run_succeed(run, &clip, &err), &err);
    run_free(run);
}

static void test_submit_whose_reuse_fails_makes_its_own(void **state)
{
    struct world *w = *state;
    struct run *run;
    (void)kept(w, &run);
    keep(w, run);
    refuse(w, "INSERT ON task_event", "NEW.to_status = 'SUCCEEDED' AND NEW.worker_id = 'reuse'");
    int64_t id = submit(w, "{\"prompt\":\"a\",\"seed\":7}");
    expect_status(w, id, "QUEUED");
    expect_moves(w, id, "CREATED QUEUED"); /* nothing of the try is left */
    run = world_claim(w);
    assert_int_equal(run_task(run)->task_id, id);
    assert_int_equal(run_task(run)->attempt, 1);
    run_free(run);
}

/* What the issue was: the reuse failed inside the scheduler's round, and the round with it. */
static void test_scheduler_goes_on_past_a_reuse_that_fails(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    struct run *run;
    static const char body[] = "{\"prompt\":\"a\",\"seed\":7,\"options\":{\"input_ms\":20}}";
    AUTO_TASK struct task *first = world_submit(w, body);
    world_ok(schedule_start(w->tasks, NULL, NULL, &err), &err);
    wait_status(w, first->task_id, "QUEUED");
    schedule_stop(w->tasks);
    run = world_claim(w);
    assert_non_null(run);
    char part[512], final[512], poster_part[512], poster[512];
    struct task *answer = NULL;
    run_paths(run, part, final, poster_part, poster, sizeof part);
    world_ok(rl_fs_write_durable(final, "mp4", 3, 0600, &err), &err);
    world_ok(rl_fs_write_durable(poster, "jpg", 3, 0600, &err), &err);
    world_ok(task_cancel(w->tasks, &owner, first->task_id, CANCEL_SOFT, &answer, &err), &err);
    task_free(answer);
    keep(w, run);
    refuse(w, "INSERT ON task_event", "NEW.worker_id = 'reuse'");
    int64_t twin = submit(w, body),
            other = submit(w, "{\"prompt\":\"b\",\"options\":{\"input_ms\":30}}");
    expect_status(w, twin, "CREATED");
    w->tasks->due_stop = false;
    world_ok(schedule_start(w->tasks, NULL, NULL, &err), &err);
    wait_status(w, other, "QUEUED");
    expect_moves(w, twin, "CREATED QUEUED");
}

/* The run of the twin ends although its follower cannot have the result. */
static void test_run_ends_past_a_follower_that_fails(void **state)
{
    struct world *w = *state;
    struct run *run;
    (void)kept(w, &run);
    int64_t id = submit(w, "{\"prompt\":\"a\",\"seed\":7}");
    expect_status(w, id, "QUEUED");
    assert_null(world_claim(w)); /* it waits for the run */
    refuse(w, "INSERT ON task_event", "NEW.to_status = 'SUCCEEDED'");
    keep(w, run);
    expect_status(w, id, "QUEUED");
    run = world_claim(w); /* it makes its own */
    assert_non_null(run);
    assert_int_equal(run_task(run)->task_id, id);
    run_free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_created_that_cannot_be_enqueued),
        WORLD_TEST(test_queue_time_out_that_cannot_strike),
        WORLD_TEST(test_retention_of_a_task_that_cannot_be_removed),
        WORLD_TEST(test_success_whose_speed_cannot_be_kept),
        WORLD_TEST(test_repair_sweep_gets_past_what_cannot_be_moved),
        WORLD_TEST(test_repair_of_a_task_that_cannot_be_moved),
        WORLD_TEST(test_start_with_an_orphan_that_cannot_be_moved),
        WORLD_TEST(test_head_that_cannot_be_claimed),
        WORLD_TEST(test_submit_whose_reuse_fails_makes_its_own),
        WORLD_TEST(test_scheduler_goes_on_past_a_reuse_that_fails),
        WORLD_TEST(test_run_ends_past_a_follower_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
