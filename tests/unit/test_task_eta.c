/* How long a task still takes, as its figures say: times are set back in the run, nobody waits. */
#include "world.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "task/internal.h"

// link: rl_task

#define UNKNOWN (-1.0)
#define HOUR_MS 3600000
#define BODY    "{\"prompt\":\"a\",\"width\":100,\"height\":100,\"frames\":10}" /* 0.1 units */

static int setup(void **state)
{
    (void)world_setup(state);
    ((struct world *)*state)->tasks->slots = 1;
    return 0;
}

/* Runs of this engine take so many ms for a unit. */
static void measure(struct world *w, double ms_per_unit)
{
    struct speed speed = {.engine = "testpattern", .model = "testcard", .device = "cpu0"};
    speed.ms_per_unit = ms_per_unit;
    speed_set(w->tasks, &speed);
}

static double eta_s(struct world *w, int64_t id)
{
    AUTO_TASK struct task *task = world_get(w, id);
    AUTO_BUF struct rl_buf out = {0};
    AUTO_JSON struct rl_json *root = NULL;
    struct rl_jw writer;
    rl_buf_init(&out, 4096);
    rl_jw_init(&writer, &out, false);
    rl_jw_object(&writer, NULL);
    task_write_progress(w->tasks, task, &writer);
    rl_jw_end_object(&writer);
    assert_int_equal(rl_json_parse(out.data, out.len, &root, NULL), RL_OK);
    const struct rl_json *eta = rl_json_get(root, "eta_seconds");
    return rl_json_type(eta) == RL_JSON_NULL ? UNKNOWN : rl_json_number(eta);
}

static void expect_eta(struct world *w, int64_t id, double least, double most)
{
    double eta = eta_s(w, id);
    if (eta < least || eta > most)
        fail_msg("%g is not in %g … %g", eta, least, most);
}

static int64_t submit(struct world *w, const char *body)
{
    AUTO_TASK struct task *task = world_submit(w, body);
    return task->task_id;
}

static void step_at(struct run *run, int step, int64_t ago_ms)
{
    run_beat(run, ENGINE_DENOISE, step, 50);
    atomic_store(&run->step_ms, rl_mono_ms() - ago_ms);
}

static void test_eta_of_a_run_follows_its_own_steps(void **state)
{
    struct world *w = *state;
    int64_t id = submit(w, BODY);
    struct run *run = world_claim(w);
    run_beat(run, ENGINE_DENOISE, 0, 50);
    expect_eta(w, id, UNKNOWN, UNKNOWN);
    atomic_store(&run->phase_ms, rl_mono_ms() - 2 * HOUR_MS);
    step_at(run, 4, HOUR_MS / 2 - 1); /* in an hour and a half */
    step_at(run, 4, HOUR_MS / 2);     /* a beat within the fifth step changes nothing */
    /* 46 steps of 22.5 minutes, of which 30 have passed: 16.75 h */
    expect_eta(w, id, 16.74 * 3600, 16.76 * 3600);
    step_at(run, 4, 40 * (int64_t)HOUR_MS); /* over its own pace: nobody knows */
    atomic_store(&run->phase_ms, rl_mono_ms() - 41 * (int64_t)HOUR_MS);
    expect_eta(w, id, UNKNOWN, UNKNOWN);
    run_free(run);
}

static void test_eta_of_a_resumed_run_counts_what_it_made_itself(void **state)
{
    struct world *w = *state;
    measure(w, 10.0 * 3600 * 1000 * 10); /* 10 h for the body */
    int64_t id = submit(w, BODY);
    struct run *run = world_claim(w);
    run_beat(run, ENGINE_DENOISE, 30, 50);
    expect_eta(w, id, 3.9 * 3600, 4.01 * 3600); /* 20 of 50 steps of what is expected */
    atomic_store(&run->phase_ms, rl_mono_ms() - HOUR_MS);
    step_at(run, 32, 0);
    expect_eta(w, id, 8.9 * 3600, 9.01 * 3600); /* 18 steps of half an hour */
    run_free(run);
}

static void test_eta_in_the_queue_waits_for_what_runs(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    measure(w, 1000.0 * 1000); /* 100 s for the body */
    (void)submit(w, BODY);
    struct run *run = world_claim(w);
    run->started_mono_ms -= 40000;
    (void)submit(w, "{\"prompt\":\"b\",\"width\":100,\"height\":100,\"frames\":20}");
    int64_t last = submit(w, "{\"prompt\":\"c\",\"width\":100,\"height\":100,\"frames\":10}");
    expect_eta(w, last, 358, 361); /* 60 s of what runs, 200 s before it, 100 s of its own */
    w->tasks->slots = 2;
    expect_eta(w, last, 228, 231);
    world_ok(queue_set(w->tasks, "default", QUEUE_PAUSED, &err), &err);
    expect_eta(w, last, UNKNOWN, UNKNOWN);
    world_ok(queue_set(w->tasks, "default", QUEUE_RUNNING, &err), &err);
    run->started_mono_ms -=
        100000; /* it takes longer than was expected: nobody knows for how long */
    expect_eta(w, last, UNKNOWN, UNKNOWN);
    run_free(run);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_eta_of_a_run_follows_its_own_steps),
        TEST(test_eta_of_a_resumed_run_counts_what_it_made_itself),
        TEST(test_eta_in_the_queue_waits_for_what_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
