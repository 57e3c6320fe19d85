/* What the watchdog makes of a run, by its signs of life: times are set back in the run, nobody
 * waits. */
#include "world.h"

#include "base/clock.h"
#include "task/internal.h"

// link: rl_task

#define HOUR_MS 3600000

/* A run of a task with this body, started `ran_ms` ago and silent for `silent_ms`. */
static struct run *running(struct world *w, const char *body, int64_t ran_ms, int64_t silent_ms)
{
    task_free(world_submit(w, body));
    struct run *run = world_claim(w);
    assert_non_null(run);
    run->started_mono_ms -= ran_ms;
    atomic_store(&run->beat_ms, rl_mono_ms() - silent_ms);
    return run;
}

static void expect_status(struct world *w, const struct run *run, const char *status)
{
    AUTO_TASK struct task *task = world_get(w, run->task->task_id);
    assert_string_equal(task->status, status);
}

static void hang_over(struct world *w)
{
    w->tasks->hang_ms = 0;
    atomic_store(&w->tasks->draining, false);
}

static void test_watchdog_leaves_a_first_run_its_time(void **state)
{
    struct world *w = *state;
    struct run *run = running(w, "{\"prompt\":\"a\"}", 20 * HOUR_MS, 200000);
    assert_true(run->unmeasured);
    (void)watchdog_round(w->tasks);
    assert_int_equal(atomic_load(&run->stop), RUN_GO);
    assert_false(run->grace);
    assert_int_equal(w->tasks->hang_ms, 0);
    expect_status(w, run, "PROCESSING");

    atomic_store(&run->beat_ms, rl_mono_ms() - 301000); /* run.timeout_floor_s of silence */
    (void)watchdog_round(w->tasks);
    assert_true(w->tasks->hang_ms > 0);
    expect_status(w, run, "QUEUED");
    run_free(run);
    hang_over(w);
}

/* A fast device's speed is no reason to end a slow one's run. */
static void test_watchdog_judges_a_device_by_its_own_speed(void **state)
{
    struct world *w = *state;
    struct speed speed = {.engine = "testpattern", .model = "testcard", .device = "gpu0"};
    speed.ms_per_unit = 1;
    speed_set(w->tasks, &speed);
    struct run *run = running(w, "{\"prompt\":\"a\"}", HOUR_MS, 100);
    assert_true(run->expected_ms > 0); /* good enough for an estimate */
    assert_true(run->unmeasured);
    (void)watchdog_round(w->tasks);
    assert_false(run->grace);
    runs_hand_back(w->tasks);
    run_free(run);
    hang_over(w);

    (void)rl_copy_str(speed.device, sizeof speed.device, "cpu0");
    speed_set(w->tasks, &speed);
    run = world_claim(w);
    assert_non_null(run);
    assert_false(run->unmeasured);
    run->started_mono_ms -= HOUR_MS;
    (void)watchdog_round(w->tasks);
    assert_true(run->grace);
    run_free(run);
    hang_over(w);
}

static void test_watchdog_counts_the_time_that_was_asked_for(void **state)
{
    struct world *w = *state;
    struct run *run = running(w, "{\"prompt\":\"a\",\"run_timeout_s\":600}", 700000, 100);
    assert_false(run->unmeasured);
    (void)watchdog_round(w->tasks);
    assert_true(run->grace);
    assert_int_equal(atomic_load(&run->stop), RUN_GO);
    run->started_mono_ms -= 600000;
    (void)watchdog_round(w->tasks);
    assert_int_equal(atomic_load(&run->stop), RUN_TIMEOUT);
    assert_int_equal(w->tasks->hang_ms, 0); /* it still has the time to obey */
    runs_hand_back(w->tasks);
    expect_status(w, run, "QUEUED");
    run_free(run);
    hang_over(w);
}

static void test_watchdog_knows_waiting_for_the_store_from_disobeying(void **state)
{
    struct world *w = *state;
    struct run *run = running(w, "{\"prompt\":\"a\"}", 1000, 100);
    atomic_store(&run->stop, RUN_CANCEL);
    atomic_store(&run->stop_ms, rl_mono_ms() - HOUR_MS);
    atomic_store(&run->ended, true); /* it has told its end; the store refuses it */
    (void)watchdog_round(w->tasks);
    assert_int_equal(w->tasks->hang_ms, 0);
    expect_status(w, run, "PROCESSING");
    atomic_store(&run->ended, false);
    (void)watchdog_round(w->tasks);
    assert_true(w->tasks->hang_ms > 0);
    expect_status(w, run, "QUEUED");
    run_free(run);
    hang_over(w);
}

/* A stop refunds a long step, not a hang: else a restart would start it again and again. */
static void test_watchdog_charges_at_a_stop_what_hangs(void **state)
{
    struct world *w = *state;
    struct run *run = running(w, "{\"prompt\":\"a\",\"run_timeout_s\":0}", HOUR_MS, 50000);
    runs_hand_back(w->tasks);
    AUTO_TASK struct task *busy = world_get(w, run->task->task_id);
    assert_string_equal(busy->status, "QUEUED");
    assert_int_equal(busy->crash_count, 0);
    run_free(run);
    hang_over(w);

    run = world_claim(w);
    assert_non_null(run);
    atomic_store(&run->beat_ms, rl_mono_ms() - 61000); /* run.stale_ms */
    runs_hand_back(w->tasks);
    AUTO_TASK struct task *hung = world_get(w, run->task->task_id);
    assert_string_equal(hung->status, "QUEUED");
    assert_int_equal(hung->crash_count, 1);
    assert_int_equal(w->tasks->hang_ms, 0); /* nothing is replaced: the program ends anyway */
    run_free(run);
    hang_over(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_watchdog_leaves_a_first_run_its_time),
        WORLD_TEST(test_watchdog_judges_a_device_by_its_own_speed),
        WORLD_TEST(test_watchdog_counts_the_time_that_was_asked_for),
        WORLD_TEST(test_watchdog_knows_waiting_for_the_store_from_disobeying),
        WORLD_TEST(test_watchdog_charges_at_a_stop_what_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
