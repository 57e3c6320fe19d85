/* Interrupted runs that go on from their checkpoint, with a real pool, engine and encoder. */
#include "checkpoint_world.h"

#include "base/buf.h"
#include "base/clock.h"
#include "pool/pool.h"

#include <sys/stat.h>

// link: rl_pool

#define PATIENCE_MS 30000

static void on_replace(void *user, const struct rl_err *err)
{
    (void)user;
    fail_msg("the pool wants to be replaced: %s", err->reason);
}

static struct pool *start(struct world *w)
{
    struct rl_err err;
    struct pool *pool = NULL;
    world_ok(pool_start(w->tasks, on_replace, NULL, &pool, &err), &err);
    return pool;
}

static void stop(struct pool *pool)
{
    assert_true(pool_stop(pool, PATIENCE_MS));
}

/* Wait until the row has this status, or with NULL, a durable step of at least `step`. */
static struct task *until(struct world *w, int64_t id, const char *status, int64_t step)
{
    int64_t end = rl_mono_ms() + PATIENCE_MS;
    while (rl_mono_ms() < end) {
        uint64_t tick = hub_tick(w->hub);
        struct task *task = world_get(w, id);
        if (status ? strcmp(task->status, status) == 0 : task->best_step >= step)
            return task;
        task_free(task);
        (void)hub_wait(w->hub, NULL, tick, 20);
    }
    fail_msg("task %lld does not get there", (long long)id);
    return NULL;
}

#define CLIP                                                                                       \
    "\"prompt\":\"a red circle\",\"seed\":7,\"width\":64,\"height\":48,\"frames\":32,\"fps\":8"

/* The clip at 20 ms a frame, without an interruption. */
static struct task *whole_clip(struct world *w)
{
    AUTO_TASK struct task *task = world_submit(w, "{" CLIP ",\"options\":{\"frame_ms\":20}}");
    return until(w, task->task_id, "SUCCEEDED", 0);
}

static int64_t run_ms(const struct task *task)
{
    return task->finished_at - task->started_at;
}

/* Same bytes, and what was made before was not waited for again. */
static void expect_resumed(const struct task *whole, const struct task *resumed, int64_t made)
{
    assert_string_equal(resumed->video_sha256, whole->video_sha256);
    assert_int_equal(resumed->video_frames, 32);
    int64_t rest = 32 - made, saved = made * 20;
    assert_true(run_ms(whole) >= 32 * 20);
    assert_true(run_ms(resumed) >= (rest - 1) * 20);
    /* on a busy machine everything takes longer, but not the frames that are not waited for */
    assert_true(run_ms(resumed) < run_ms(whole) - saved / 2);
}

static void test_resume_after_an_engine_error(void **state)
{
    struct world *w = *state;
    struct pool *pool = start(w);
    AUTO_TASK struct task *whole = whole_clip(w);
    AUTO_TASK struct task *task = world_submit(
        w, "{" CLIP ",\"options\":{\"frame_ms\":20,\"fault\":\"fail_once\",\"fault_at\":24}}");
    AUTO_TASK struct task *done = until(w, task->task_id, "SUCCEEDED", 0);
    assert_int_equal(done->retry_count, 1);
    assert_int_equal(done->best_step, 31);
    expect_resumed(whole, done, 24);
    assert_false(there(w, task->task_id));
    stop(pool);
}

static void test_resume_after_a_drain_in_another_process(void **state)
{
    struct world *w = *state;
    struct pool *pool = start(w);
    AUTO_TASK struct task *whole = whole_clip(w);
    AUTO_TASK struct task *task =
        world_submit(w, "{" CLIP ",\"options\":{\"frame_ms\":20},\"idempotency\":\"off\"}");
    task_free(until(w, task->task_id, NULL, 16));
    stop(pool);
    AUTO_TASK struct task *waiting = world_get(w, task->task_id);
    assert_string_equal(waiting->status, "QUEUED");
    assert_true(there(w, task->task_id));
    reopen(w);
    pool = start(w);
    AUTO_TASK struct task *done = until(w, task->task_id, "SUCCEEDED", 0);
    assert_int_equal(done->crash_count, 0);
    expect_resumed(whole, done, 16);
    assert_false(there(w, task->task_id));
    stop(pool);
}

static void test_drain_saves_what_the_interval_did_not(void **state)
{
    struct world *w = *state;
    char text[64];
    world_close(w);
    world_set(w, "run.checkpoint_s", "3600");
    world_open(w);
    struct pool *pool = start(w);
    AUTO_TASK struct task *task =
        world_submit(w, "{\"prompt\":\"a\",\"options\":{\"frame_ms\":20}}");
    AUTO_TASK struct task *running = until(w, task->task_id, "PROCESSING", 0);
    int64_t end = rl_mono_ms() + PATIENCE_MS;
    AUTO_FREE char *json = NULL;
    while (rl_mono_ms() < end && !there(w, task->task_id) && !json) { /* until a frame is made */
        struct rl_buf out;
        struct rl_jw jw;
        rl_buf_init(&out, 65536);
        rl_jw_init(&jw, &out, false);
        task_json(w->tasks, running, &jw, NULL);
        if (strstr(out.data, "\"phase\":\"denoise\"") && !strstr(out.data, "\"step\":0"))
            json = rl_buf_take(&out);
        rl_buf_free(&out);
        (void)hub_wait(w->hub, NULL, hub_tick(w->hub), 10);
    }
    assert_non_null(json);
    assert_false(there(w, task->task_id));
    stop(pool);
    assert_true(there(w, task->task_id));
    reopen(w);
    struct run *run = world_claim(w);
    assert_true(run_task(run)->best_step >= 1);
    AUTO_FREE char *file = NULL;
    const void *bytes;
    size_t len;
    run_checkpoint_load(run, &file, &bytes, &len);
    assert_true(len > 0 && len < sizeof text);
    run_free(run);
}

static void test_save_that_cannot_be_written_does_not_end_the_run(void **state)
{
    struct world *w = *state;
    char path[128];
    struct pool *pool = start(w);
    AUTO_TASK struct task *task = world_submit(w, "{\"prompt\":\"a\",\"frames\":32,\"width\":64,"
                                                  "\"height\":48,\"options\":{\"frame_ms\":20}}");
    /* A folder stands where the file would go: every rename onto it fails. */
    (void)file_of(w, task->task_id, path);
    task_free(until(w, task->task_id, NULL, 1));
    assert_int_equal(unlink(path), 0);
    while (mkdir(path, 0750) != 0)
        assert_int_equal(unlink(path), 0);
    AUTO_TASK struct task *done = until(w, task->task_id, "SUCCEEDED", 0);
    assert_true(done->best_step < 31);
    stop(pool);
    assert_int_equal(rmdir(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_resume_after_an_engine_error),
        TEST(test_resume_after_a_drain_in_another_process),
        TEST(test_drain_saves_what_the_interval_did_not),
        TEST(test_save_that_cannot_be_written_does_not_end_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
