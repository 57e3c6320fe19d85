/* Denoise checkpoints: what the next run finds, what is refused, when the file goes, and what a
 * durable step says about earlier crashes. */
#include "checkpoint_world.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"

#include <sys/stat.h>
#include <sys/time.h>

// link: rl_pool

#define HEADER_BYTES 80

static void beat_and_save(struct run *run, int step, const char *bytes)
{
    struct rl_err err;
    run_beat(run, ENGINE_DENOISE, step, 100);
    world_ok(run_checkpoint_save(run, bytes, strlen(bytes), &err), &err);
}

/* What the run finds, "" when it finds nothing. */
static const char *found(struct run *run, char *text, size_t size)
{
    AUTO_FREE char *file = NULL;
    const void *bytes;
    size_t len;
    run_checkpoint_load(run, &file, &bytes, &len);
    assert_true((file != NULL) == (bytes != NULL));
    assert_true(len < size);
    if (len > 0)
        memcpy(text, bytes, len);
    text[len] = '\0';
    return text;
}

/* The task's run left a checkpoint and went with its process. */
static void crash(struct world *w, struct run *run)
{
    run_free(run);
    reopen(w);
}

static void test_checkpoint_load_gives_the_next_run_what_was_saved(void **state)
{
    struct world *w = *state;
    char text[64];
    task_free(world_submit(w, "{\"prompt\":\"a\",\"seed\":7}"));
    struct run *run = world_claim(w);
    assert_string_equal(found(run, text, sizeof text), "");
    beat_and_save(run, 1, "first");
    beat_and_save(run, 2, "second");
    crash(w, run);
    run = world_claim(w);
    assert_int_equal(run_task(run)->attempt, 2);
    assert_string_equal(found(run, text, sizeof text), "second");
    assert_string_equal(found(run, text, sizeof text), "second"); /* reading it does not spend it */
    run_free(run);
}

/* Every way in which the file of `task` can be other than it was written. */
static void expect_refused(struct world *w, struct run *run, const char *bytes, size_t len)
{
    char path[128], text[256];
    struct rl_err err;
    int64_t id = run_task(run)->task_id;
    world_ok(rl_fs_write_durable(file_of(w, id, path), bytes, len, 0640, &err), &err);
    assert_string_equal(found(run, text, sizeof text), "");
    assert_false(there(w, id)); /* and removed */
}

static void test_checkpoint_load_refuses_every_cut_and_every_flipped_byte(void **state)
{
    struct world *w = *state;
    char path[128], text[256];
    AUTO_FREE char *whole = NULL;
    size_t len = 0;
    struct rl_err err;
    AUTO_TASK struct task *task = world_submit(w, "{\"prompt\":\"a\",\"seed\":7}");
    struct run *run = world_claim(w);
    beat_and_save(run, 1, "sixteen bytes ok");
    world_ok(rl_fs_read(file_of(w, task->task_id, path), 4096, &whole, &len, &err), &err);
    assert_int_equal(len, HEADER_BYTES + 16);
    AUTO_FREE char *bad = calloc(1, len + 1);
    assert_non_null(bad);
    for (size_t i = 0; i < len; i++) {
        memcpy(bad, whole, len);
        expect_refused(w, run, bad, i);
        bad[i] = (char)(bad[i] ^ 1);
        expect_refused(w, run, bad, len);
    }
    memcpy(bad, whole, len);
    expect_refused(w, run, bad, len + 1); /* longer than it says */
    world_ok(rl_fs_write_durable(path, whole, len, 0640, &err), &err);
    assert_string_equal(found(run, text, sizeof text), "sixteen bytes ok");
    run_free(run);
}

static void test_checkpoint_load_refuses_one_of_other_work(void **state)
{
    struct world *w = *state;
    static const char *const others[] = {
        "{\"prompt\":\"b\",\"seed\":7}",
        "{\"prompt\":\"a\",\"seed\":8}",
        "{\"prompt\":\"a\",\"seed\":7,\"frames\":9}",
        "{\"prompt\":\"a\",\"seed\":7,\"fps\":9}",
        "{\"prompt\":\"a\",\"seed\":7,\"width\":64}",
        "{\"prompt\":\"a\",\"seed\":7,\"height\":64}",
        "{\"prompt\":\"a\",\"seed\":7,\"negative_prompt\":\"b\"}",
        "{\"prompt\":\"a\",\"seed\":7,\"options\":{\"frame_ms\":1}}",
    };
    char from[128], to[128], text[64];
    AUTO_TASK struct task *task = world_submit(w, "{\"prompt\":\"a\",\"seed\":7}");
    struct run *run = world_claim(w);
    for (size_t i = 0; i < RL_ARRAY_LEN(others); i++) {
        AUTO_TASK struct task *other = world_submit(w, others[i]);
        struct run *foreign = world_claim(w);
        assert_int_equal(run_task(foreign)->task_id, other->task_id);
        beat_and_save(foreign, 1, "foreign");
        (void)file_of(w, other->task_id, from);
        assert_int_equal(rename(from, file_of(w, task->task_id, to)), 0);
        assert_string_equal(found(run, text, sizeof text), "");
        assert_false(there(w, task->task_id));
        run_free(foreign);
    }
    run_free(run);
}

static void test_checkpoint_save_and_load_keep_the_size_limit(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    char text[64];
    AUTO_TASK struct task *task = world_submit(w, "{\"prompt\":\"a\"}");
    struct run *run = world_claim(w);
    beat_and_save(run, 1, "0123456789");
    crash(w, run);
    world_close(w);
    world_set(w, "run.checkpoint_bytes", "9");
    world_open(w);
    run = world_claim(w);
    assert_true(run_checkpoint_due(run));
    assert_int_equal(run_checkpoint_save(run, "0123456789", 10, &err), RL_IO_ERROR);
    assert_string_equal(found(run, text, sizeof text), "");
    assert_false(there(w, task->task_id));
    beat_and_save(run, 2, "012345678");
    assert_string_equal(found(run, text, sizeof text), "012345678");
    crash(w, run);
    world_close(w);
    world_set(w, "run.checkpoint_bytes", "0");
    world_open(w);
    run = world_claim(w);
    assert_false(run_checkpoint_due(run));
    assert_int_equal(run_checkpoint_save(run, "", 0, &err), RL_IO_ERROR);
    run_free(run);
}

static void test_checkpoint_save_leaves_the_disk_its_free_space(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    char text[64];
    AUTO_TASK struct task *task = world_submit(w, "{\"prompt\":\"a\"}");
    struct run *run = world_claim(w);
    beat_and_save(run, 1, "kept");
    crash(w, run);
    world_close(w);
    world_set(w, "store.min_free_bytes", "1099511627776");
    world_open(w);
    run = world_claim(w);
    run_beat(run, ENGINE_DENOISE, 2, 100);
    assert_int_equal(run_checkpoint_save(run, "x", 1, &err), RL_DISK_FULL);
    assert_string_equal(found(run, text, sizeof text), "kept"); /* the earlier one stays */
    AUTO_TASK struct task *now = world_get(w, task->task_id);
    assert_int_equal(now->best_step, 1);
    run_free(run);
}

static void test_checkpoint_due_by_time_and_at_a_drain(void **state)
{
    struct world *w = *state;
    struct task *canceled = NULL;
    struct rl_err err;
    world_close(w);
    world_set(w, "run.checkpoint_s", "3600");
    world_open(w);
    AUTO_TASK struct task *first = world_submit(w, "{\"prompt\":\"a\"}");
    struct run *run = world_claim(w);
    assert_false(run_checkpoint_due(run));
    world_ok(task_cancel(w->tasks, &owner, first->task_id, CANCEL_HARD, &canceled, &err), &err);
    task_free(canceled);
    assert_false(run_checkpoint_due(run)); /* nobody will go on from here */
    AUTO_TASK struct task *second = world_submit(w, "{\"prompt\":\"b\"}");
    struct run *other = world_claim(w);
    assert_int_equal(run_task(other)->task_id, second->task_id);
    runs_drain(w->tasks);
    assert_true(run_checkpoint_due(other));
    assert_false(run_checkpoint_due(run));
    run_free(run);
    run_free(other);
}

static void expect_counts(struct world *w, int64_t id, int64_t crashes, int64_t best)
{
    AUTO_TASK struct task *task = world_get(w, id);
    assert_int_equal(task->crash_count, crashes);
    assert_int_equal(task->best_step, best);
}

static void test_crash_count_returns_to_0_when_a_run_gets_further(void **state)
{
    struct world *w = *state;
    AUTO_TASK struct task *task = world_submit(w, "{\"prompt\":\"a\"}");
    int64_t id = task->task_id;
    struct run *run = world_claim(w);
    beat_and_save(run, 5, "x");
    expect_counts(w, id, 0, 5);
    crash(w, run);
    expect_counts(w, id, 1, 5);
    run = world_claim(w);
    beat_and_save(run, 5, "x"); /* as far as before: no news */
    expect_counts(w, id, 1, 5);
    run_beat(run, ENGINE_DECODE, 90, 100); /* steps of another phase say nothing */
    assert_int_equal(run_checkpoint_save(run, "x", 1, NULL), RL_OK);
    expect_counts(w, id, 1, 5);
    beat_and_save(run, 6, "x");
    expect_counts(w, id, 0, 6);
    crash(w, run);
    expect_counts(w, id, 1, 6);
    run = world_claim(w);
    run_free(run);
    reopen(w);
    expect_counts(w, id, 2, 6);
    run = world_claim(w);
    run_free(run);
    reopen(w);
    AUTO_TASK struct task *dead = world_get(w, id);
    assert_string_equal(dead->status, "FAILED"); /* three in a row that got nowhere */
    assert_string_equal(dead->error_code, "WORKER_CRASH");
    assert_false(there(w, id));
}

static void test_crash_count_is_not_touched_by_a_run_that_lost_its_task(void **state)
{
    struct world *w = *state;
    AUTO_TASK struct task *task = world_submit(w, "{\"prompt\":\"a\"}");
    struct rl_err err, why = {.code = RL_GPU_ERROR, .reason = "lost"};
    struct run *stale = world_claim(w);
    world_ok(run_fail(stale, &why, &err), &err);
    struct run *run = world_claim(w);
    beat_and_save(stale, 50, "x");
    expect_counts(w, task->task_id, 1, 0);
    run_free(stale);
    run_free(run);
}

static void test_a_suspect_that_gets_further_lets_others_run(void **state)
{
    struct world *w = *state;
    AUTO_TASK struct task *task = world_submit(w, "{\"prompt\":\"a\"}");
    crash(w, world_claim(w));
    AUTO_TASK struct task *other = world_submit(w, "{\"prompt\":\"b\"}");
    struct run *run = world_claim(w);
    assert_int_equal(run_task(run)->task_id, task->task_id);
    assert_null(world_claim(w)); /* it runs alone */
    struct rl_err err;
    AUTO_TASK struct task *answer = NULL;
    world_ok(task_cancel(w->tasks, &owner, task->task_id, CANCEL_SOFT, &answer, &err), &err);
    assert_null(world_claim(w)); /* also when it goes on softly cancelled */
    uint64_t tick = hub_tick(w->hub);
    beat_and_save(run, 1, "x");
    assert_true(hub_tick(w->hub) != tick); /* idle workers look again */
    struct run *second = world_claim(w);
    assert_non_null(second);
    assert_int_equal(run_task(second)->task_id, other->task_id);
    run_free(second);
    run_free(run);
}

static const struct run_result clip = {
    .file = "x.mp4", .bytes = 10, .sha256 = "00", .width = 64, .height = 64, .frames = 4, .fps = 8};

/* A claimed run of a new task that has saved a checkpoint. */
static struct run *saved_run(struct world *w, const char *prompt)
{
    char body[64];
    (void)snprintf(body, sizeof body, "{\"prompt\":\"%s\"}", prompt);
    task_free(world_submit(w, body));
    struct run *run = world_claim(w);
    assert_non_null(run);
    beat_and_save(run, 1, "x");
    assert_true(there(w, run_task(run)->task_id));
    return run;
}

static void expect_gone(struct world *w, struct run *run, const char *status)
{
    AUTO_TASK struct task *task = world_get(w, run_task(run)->task_id);
    assert_string_equal(task->status, status);
    assert_false(there(w, task->task_id));
    run_free(run);
}

static void test_checkpoint_goes_when_the_run_ends_the_task(void **state)
{
    struct world *w = *state;
    struct rl_err err, why = {.code = RL_ENGINE_ERROR, .reason = "boom"};
    struct task *canceled = NULL;

    struct run *run = saved_run(w, "succeeds");
    world_ok(run_succeed(run, &clip, &err), &err);
    expect_gone(w, run, "SUCCEEDED");

    run = saved_run(w, "fails");
    world_ok(run_fail(run, &why, &err), &err);
    expect_gone(w, run, "FAILED");

    run = saved_run(w, "is cancelled");
    world_ok(task_cancel(w->tasks, &owner, run_task(run)->task_id, CANCEL_HARD, &canceled, &err),
             &err);
    task_free(canceled);
    why.code = RL_CANCELED;
    world_ok(run_fail(run, &why, &err), &err);
    expect_gone(w, run, "CANCELED");
}

static void test_checkpoint_goes_with_a_soft_cancel_and_again_with_its_run(void **state)
{
    struct world *w = *state;
    struct rl_err err, why = {.code = RL_ENGINE_ERROR, .reason = "boom"};
    for (int ends_well = 0; ends_well < 2; ends_well++) {
        struct task *canceled = NULL;
        struct run *run = saved_run(w, ends_well ? "a" : "b");
        int64_t id = run_task(run)->task_id;
        world_ok(task_cancel(w->tasks, &owner, id, CANCEL_SOFT, &canceled, &err), &err);
        task_free(canceled);
        assert_false(there(w, id));
        beat_and_save(run, 2, "x"); /* the run goes on and knows nothing of it */
        if (ends_well)
            world_ok(run_succeed(run, &clip, &err), &err);
        else
            world_ok(run_fail(run, &why, &err), &err);
        expect_gone(w, run, "CANCELED");
    }
}

static void test_checkpoint_stays_at_a_retry_a_drain_and_a_crash(void **state)
{
    struct world *w = *state;
    struct rl_err err, why = {.code = RL_ENGINE_ERROR, .retryable = true, .reason = "boom"};
    struct task *canceled = NULL;
    struct run *run = saved_run(w, "a");
    int64_t id = run_task(run)->task_id;
    world_ok(run_fail(run, &why, &err), &err);
    run_free(run);
    assert_true(there(w, id));
    reopen(w);
    crash(w, world_claim(w));
    assert_true(there(w, id));
    run = world_claim(w);
    runs_drain(w->tasks);
    why.code = RL_CANCELED;
    world_ok(run_fail(run, &why, &err), &err);
    run_free(run);
    assert_true(there(w, id));
    world_ok(task_cancel(w->tasks, &owner, id, CANCEL_SOFT, &canceled, &err), &err);
    assert_string_equal(canceled->status, "CANCELED"); /* it was waiting */
    task_free(canceled);
    assert_false(there(w, id));
}

static void test_checkpoint_goes_when_its_result_was_invalid(void **state)
{
    struct world *w = *state;
    struct rl_err err, why = {.code = RL_OUTPUT_INVALID, .retryable = true, .reason = "NaN"};
    struct run *run = saved_run(w, "a");
    world_ok(run_fail(run, &why, &err), &err);
    expect_gone(w, run, "QUEUED"); /* another try from the same numbers would be as bad */
}

static void test_replay_counts_steps_anew(void **state)
{
    struct world *w = *state;
    struct rl_err err, why = {.code = RL_ENGINE_ERROR, .reason = "boom"};
    struct task *replayed = NULL;
    struct run *run = saved_run(w, "a");
    world_ok(run_fail(run, &why, &err), &err);
    int64_t id = run_task(run)->task_id;
    run_free(run);
    expect_counts(w, id, 0, 1);
    world_ok(dead_replay(w->tasks, &owner, id, &replayed, &err), &err);
    task_free(replayed);
    expect_counts(w, id, 0, 0);
}

static void make_old(const char *path)
{
    struct timeval old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimes(path, old), 0);
}

static void leave(struct world *w, int64_t id, const char *ending)
{
    struct rl_err err;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/results/%lld.%s", w->dir, (long long)id, ending);
    world_ok(rl_fs_write_durable(path, "x", 1, 0640, &err), &err);
    make_old(path);
}

/* The process went between the commit of the task's end and the removal of the file. */
static void test_orphaned_checkpoint_is_removed(void **state)
{
    struct world *w = *state;
    struct rl_err err, why = {.code = RL_ENGINE_ERROR, .reason = "boom"};
    struct rl_buf out;
    char path[128];
    struct run *run = saved_run(w, "ended");
    int64_t ended = run_task(run)->task_id;
    world_ok(run_fail(run, &why, &err), &err);
    run_free(run);
    run = saved_run(w, "runs");
    make_old(file_of(w, run_task(run)->task_id, path));
    AUTO_TASK struct task *waits = world_submit(w, "{\"prompt\":\"waits\"}");
    leave(w, ended, "ckpt");
    leave(w, ended, "ckpt.tmp");
    leave(w, 1, "ckpt"); /* no such task */
    leave(w, waits->task_id, "ckpt");
    rl_buf_init(&out, 1 << 20);
    world_ok(task_repair(w->tasks, false, 0, 10, NULL, &out, &err), &err);
    assert_non_null(strstr(out.data, "\"orphan_files\":3"));
    rl_buf_free(&out);
    assert_false(there(w, ended));
    assert_false(there(w, 1));
    assert_true(there(w, waits->task_id));
    assert_true(there(w, run_task(run)->task_id));
    run_free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_checkpoint_load_gives_the_next_run_what_was_saved),
        TEST(test_checkpoint_load_refuses_every_cut_and_every_flipped_byte),
        TEST(test_checkpoint_load_refuses_one_of_other_work),
        TEST(test_checkpoint_save_and_load_keep_the_size_limit),
        TEST(test_checkpoint_save_leaves_the_disk_its_free_space),
        TEST(test_checkpoint_due_by_time_and_at_a_drain),
        TEST(test_crash_count_returns_to_0_when_a_run_gets_further),
        TEST(test_crash_count_is_not_touched_by_a_run_that_lost_its_task),
        TEST(test_a_suspect_that_gets_further_lets_others_run),
        TEST(test_checkpoint_goes_when_the_run_ends_the_task),
        TEST(test_checkpoint_goes_with_a_soft_cancel_and_again_with_its_run),
        TEST(test_checkpoint_stays_at_a_retry_a_drain_and_a_crash),
        TEST(test_checkpoint_goes_when_its_result_was_invalid),
        TEST(test_replay_counts_steps_anew),
        TEST(test_orphaned_checkpoint_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
