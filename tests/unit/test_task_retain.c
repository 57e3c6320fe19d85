/* Retention: what it does while the clocks disagree, and how a round ends. */
#include "world.h"

#include "task/internal.h"

#include <pthread.h>
#include <sqlite3.h>
#include <time.h>

// link: rl_task PkgConfig::sqlite3 -Wl,--wrap=clock_gettime -Wl,--wrap=unlink

#define DAY_MS (86400 * INT64_C(1000))

int __real_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);

static int64_t wall_s, boot_s; /* added to what the clocks say */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
    int rc = __real_clock_gettime(clock, ts);
    ts->tv_sec += clock == CLOCK_REALTIME ? wall_s : clock == CLOCK_BOOTTIME ? boot_s : 0;
    return rc;
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);

static struct tasks *stop_at_unlink; /* the scheduler is told to stop when it removes a file */

int __wrap_unlink(const char *path)
{
    if (stop_at_unlink && strstr(path, "/results/")) {
        pthread_mutex_lock(&stop_at_unlink->due_lock);
        stop_at_unlink->due_stop = true;
        pthread_mutex_unlock(&stop_at_unlink->due_lock);
    }
    return __real_unlink(path);
}

static void pass_days(int64_t days)
{
    wall_s += days * 86400;
    boot_s += days * 86400;
}

static int setup(void **state)
{
    static struct world w;
    wall_s = boot_s = 0;
    world_init(&w);
    world_set(&w, "retain.days", "1");
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    world_end(*state);
    return 0;
}

static int64_t int_of(const struct world *w, const char *sql)
{
    char path[128];
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    (void)snprintf(path, sizeof path, "%s/reeld.db", w->dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_busy_timeout(db, 5000), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    int64_t value = sqlite3_step(stmt) == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
    assert_int_equal(sqlite3_finalize(stmt), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return value;
}

static int64_t left(const struct world *w)
{
    return int_of(w, "SELECT count(*) FROM task");
}

static void finish(struct world *w, const char *body)
{
    struct rl_err err, why = {.code = RL_ENGINE_ERROR, .reason = "boom"};
    task_free(world_submit(w, body));
    struct run *run = world_claim(w);
    world_ok(run_fail(run, &why, &err), &err);
    run_free(run);
}

/* What the scheduler does once a minute. */
static bool minute(struct world *w)
{
    struct rl_err err;
    world_ok(store_keep_clock(w->store, &err), &err);
    return retain_round(w->tasks);
}

/* Off for so long, then on with this much between the real wall clock and the machine's. */
static void reboot(struct world *w, int64_t wall_days)
{
    world_close(w);
    wall_s = wall_days * 86400;
    boot_s = 0;
    (void)int_of(w, "UPDATE meta SET value = 'another' WHERE name = 'boot_id'");
    world_open(w);
}

/* Nothing goes for three days, then all that is old goes. */
static void expect_settles(struct world *w)
{
    assert_false(minute(w));
    pass_days(2);
    assert_false(minute(w));
    assert_int_equal(left(w), 1);
    pass_days(2);
    assert_true(minute(w));
    assert_int_equal(left(w), 0);
}

static void test_retain_goes_on_after_the_wall_clock_was_set(void **state)
{
    struct world *w = *state;
    world_open(w);
    finish(w, "{\"prompt\":\"a\"}");
    assert_false(minute(w));
    wall_s += 400 * INT64_C(86400);
    expect_settles(w);
}

static void test_retain_waits_anew_for_a_clock_that_moves_again(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    world_open(w);
    finish(w, "{\"prompt\":\"a\"}");
    for (int i = 0; i < 4; i++) { /* it never stands for three days */
        wall_s += 400 * INT64_C(86400);
        assert_false(minute(w));
        pass_days(2);
        assert_false(minute(w));
        wall_s -= i % 2 ? 402 * INT64_C(86400) : 0; /* and at times it is right in between */
        if (i % 2)
            world_ok(store_keep_clock(w->store, &err), &err);
    }
    assert_int_equal(left(w), 1);
}

/* Longer off than is believed: the clocks stay apart, and that must not be for ever. */
static void test_retain_goes_on_after_a_long_time_off(void **state)
{
    struct world *w = *state;
    world_open(w);
    finish(w, "{\"prompt\":\"a\"}");
    reboot(w, 35);
    int64_t before = store_steady_ms(w->store);
    expect_settles(w);
    finish(w, "{\"prompt\":\"b\"}");
    reboot(w, 35 + 4 + 20);
    assert_in_range(store_steady_ms(w->store) - before, 23 * DAY_MS, 25 * DAY_MS);
    assert_true(minute(w)); /* the accepted distance is known over the reboot */
    assert_int_equal(left(w), 0);
}

/* The days off are no time in which somebody could have noticed. */
static void test_retain_counts_no_time_off(void **state)
{
    struct world *w = *state;
    world_open(w);
    finish(w, "{\"prompt\":\"a\"}");
    wall_s += 400 * INT64_C(86400);
    assert_false(minute(w));
    reboot(w, 410);
    assert_false(minute(w));
    pass_days(2);
    assert_false(minute(w));
    assert_int_equal(left(w), 1);
    pass_days(2);
    assert_true(minute(w));
}

static void test_retain_goes_on_after_a_first_start_in_1970(void **state)
{
    struct world *w = *state;
    struct timespec now;
    assert_int_equal(__real_clock_gettime(CLOCK_REALTIME, &now), 0);
    wall_s = 60 - now.tv_sec;
    world_open(w);
    finish(w, "{\"prompt\":\"a\"}");
    assert_false(minute(w));
    wall_s = 0;
    expect_settles(w);
}

/* No battery: every boot starts in 1970, and the right time comes later. */
static void test_retain_goes_on_without_a_clock_battery(void **state)
{
    struct world *w = *state;
    struct timespec now;
    assert_int_equal(__real_clock_gettime(CLOCK_REALTIME, &now), 0);
    world_open(w);
    finish(w, "{\"prompt\":\"a\"}");
    reboot(w, -(int64_t)now.tv_sec / 86400);
    assert_false(minute(w));
    wall_s = 5 * 86400; /* off for five days */
    expect_settles(w);
}

static void succeed(struct world *w, const char *body, int64_t bytes)
{
    struct rl_err err;
    const struct run_result clip = {.file = "x.mp4",
                                    .bytes = bytes,
                                    .sha256 = "00",
                                    .width = 64,
                                    .height = 64,
                                    .frames = 4,
                                    .fps = 8};
    task_free(world_submit(w, body));
    struct run *run = world_claim(w);
    world_ok(run_succeed(run, &clip, &err), &err);
    run_free(run);
}

static void expect_totals(const struct world *w, int64_t tasks, int64_t bytes)
{
    assert_int_equal(int_of(w, "SELECT tasks FROM finished"), tasks);
    assert_int_equal(int_of(w, "SELECT bytes FROM finished"), bytes);
    assert_int_equal(int_of(w, "SELECT count(*) FROM task WHERE finished_at > 0"), tasks);
    assert_int_equal(int_of(w, "SELECT sum(video_bytes) FROM task WHERE finished_at > 0"), bytes);
}

/* The totals are what a count would say, whichever way a task ends, goes on and goes. */
static void test_retain_totals_are_kept(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    struct task *none = NULL;
    const struct run_result kept = {
        .file = "y.mp4", .bytes = 7, .sha256 = "00", .width = 64, .height = 64, .fps = 8};
    world_set(w, "retain.days", "0");
    world_set(w, "retain.bytes", "150");
    world_open(w);
    succeed(w, "{\"prompt\":\"a\"}", 100);
    finish(w, "{\"prompt\":\"b\"}");
    expect_totals(w, 2, 100);
    AUTO_TASK struct task *soft = world_submit(w, "{\"prompt\":\"c\"}");
    struct run *run = world_claim(w);
    world_ok(task_cancel(w->tasks, &owner, soft->task_id, CANCEL_SOFT, &none, &err), &err);
    task_free(none);
    expect_totals(w, 3, 100);
    world_ok(run_succeed(run, &kept, &err), &err); /* a result of a task that ended before it */
    run_free(run);
    expect_totals(w, 3, 107);
    int64_t failed = int_of(w, "SELECT task_id FROM task WHERE status = 'FAILED'");
    world_ok(dead_replay(w->tasks, &owner, failed, &none, &err), &err);
    task_free(none);
    expect_totals(w, 2, 107);
    world_close(w);
    world_open(w);
    assert_false(minute(w));
    succeed(w, "{\"prompt\":\"d\"}", 100); /* runs the replayed one */
    expect_totals(w, 3, 207);
    assert_true(minute(w));
    expect_totals(w, 2, 107);
    assert_false(minute(w));
}

/* A stop does not wait until a hundred are removed. */
static void test_retain_stops_between_two_tasks(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    char body[64];
    world_open(w);
    for (int i = 0; i < 5; i++) {
        (void)snprintf(body, sizeof body, "{\"prompt\":\"%d\"}", i);
        succeed(w, body, 10);
    }
    pass_days(2);
    stop_at_unlink = w->tasks;
    world_ok(schedule_start(w->tasks, NULL, NULL, &err), &err);
    assert_int_equal(pthread_join(w->tasks->scheduler, NULL), 0);
    w->tasks->scheduler_started = false;
    stop_at_unlink = NULL;
    assert_int_equal(left(w), 4);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_retain_goes_on_after_the_wall_clock_was_set),
        TEST(test_retain_waits_anew_for_a_clock_that_moves_again),
        TEST(test_retain_goes_on_after_a_long_time_off),
        TEST(test_retain_counts_no_time_off),
        TEST(test_retain_goes_on_after_a_first_start_in_1970),
        TEST(test_retain_goes_on_without_a_clock_battery),
        TEST(test_retain_totals_are_kept),
        TEST(test_retain_stops_between_two_tasks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
