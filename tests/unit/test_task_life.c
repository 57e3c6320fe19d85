/* The life of a task: submit, claim, finish, retry, crash, cancel, delay, history. */
#include "world.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"

#include <pthread.h>

// link: rl_task

static const struct run_result clip = {
    .file = "x.mp4", .bytes = 10, .sha256 = "00", .width = 64, .height = 64, .frames = 4, .fps = 8};

static void expect_history(struct world *w, int64_t id, const char *want)
{
    struct rl_err err;
    struct rl_buf out;
    struct page_query page = {.limit = 200, .ascending = true};
    char path[512] = "";
    AUTO_JSON struct rl_json *root = NULL;
    rl_buf_init(&out, 1 << 20);
    world_ok(task_history(w->tasks, &owner, id, &page, &out, &err), &err);
    world_ok(rl_json_parse(out.data, out.len, &root, &err), &err);
    for (const struct rl_json *e = rl_json_child(rl_json_get(root, "data")); e;
         e = rl_json_next(e)) {
        (void)strncat(path, path[0] ? " " : "", 2);
        (void)strncat(path, rl_json_text(rl_json_get(e, "to_status")), 20);
    }
    assert_string_equal(path, want);
    rl_buf_free(&out);
}

static void expect_status(struct world *w, int64_t id, const char *want)
{
    AUTO_TASK struct task *task = world_get(w, id);
    assert_string_equal(task->status, want);
}

static void test_task_life_success(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    AUTO_TASK struct task *task = world_submit(w, "{\"prompt\":\"a\",\"seed\":7}");
    assert_string_equal(task->status, "QUEUED");
    assert_true(task->task_id > 0);
    struct run *run = world_claim(w);
    assert_non_null(run);
    assert_int_equal(run_task(run)->task_id, task->task_id);
    assert_int_equal(run_task(run)->attempt, 1);
    expect_status(w, task->task_id, "PROCESSING");
    assert_null(world_claim(w));
    world_ok(run_succeed(run, &clip, &err), &err);
    assert_int_equal(run_succeed(run, &clip, &err),
                     RL_STALE); /* a terminal state is written once */
    run_free(run);
    AUTO_TASK struct task *done = world_get(w, task->task_id);
    assert_string_equal(done->status, "SUCCEEDED");
    assert_string_equal(done->video_file, "x.mp4");
    assert_true(done->finished_at >= done->started_at && done->started_at >= done->queued_at);
    expect_history(w, task->task_id, "CREATED QUEUED PROCESSING SUCCEEDED");
}

static void test_task_claim_order_is_rank(void **state)
{
    struct world *w = *state;
    AUTO_TASK struct task *low = world_submit(w, "{\"prompt\":\"a\",\"priority\":\"low\"}");
    AUTO_TASK struct task *normal = world_submit(w, "{\"prompt\":\"b\"}");
    AUTO_TASK struct task *high = world_submit(w, "{\"prompt\":\"c\",\"priority\":10}");
    AUTO_TASK struct task *later = world_submit(w, "{\"prompt\":\"d\",\"priority\":10}");
    int64_t want[] = {high->task_id, later->task_id, normal->task_id, low->task_id};
    for (size_t i = 0; i < RL_ARRAY_LEN(want); i++) {
        struct run *run = world_claim(w);
        assert_non_null(run);
        assert_int_equal(run_task(run)->task_id, want[i]);
        run_free(run);
    }
}

static void test_task_retry_is_delayed_then_failed(void **state)
{
    struct world *w = *state;
    struct rl_err err, why = {.code = RL_ENGINE_ERROR, .retryable = true, .reason = "boom"};
    world_close(w);
    world_set(w, "task.retry_delay_ms", "60000");
    world_open(w);
    AUTO_TASK struct task *task = world_submit(w, "{\"prompt\":\"a\",\"max_retries\":1}");
    struct run *run = world_claim(w);
    world_ok(run_fail(run, &why, &err), &err);
    run_free(run);
    AUTO_TASK struct task *waiting = world_get(w, task->task_id);
    assert_string_equal(waiting->status, "QUEUED");
    assert_int_equal(waiting->retry_count, 1);
    assert_true(waiting->not_before >= rl_wall_ms() + 55000);
    assert_null(world_claim(w));
    world_close(w);
    world_set(w, "task.retry_delay_ms", "0");
    world_open(w);
    AUTO_TASK struct task *second = world_submit(w, "{\"prompt\":\"b\",\"max_retries\":1}");
    for (int i = 0; i < 2; i++) {
        run = world_claim(w);
        assert_int_equal(run_task(run)->task_id, second->task_id);
        world_ok(run_fail(run, &why, &err), &err);
        run_free(run);
    }
    AUTO_TASK struct task *failed = world_get(w, second->task_id);
    assert_string_equal(failed->status, "FAILED");
    assert_string_equal(failed->error_code, "ENGINE_ERROR");
    assert_string_equal(failed->error_msg, "boom");
    assert_int_equal(failed->attempt, 2);
}

/* Each reopening without a finish is what kill -9 leaves behind. */
static void test_task_crash_budget(void **state)
{
    struct world *w = *state;
    AUTO_TASK struct task *bad = world_submit(w, "{\"prompt\":\"bad\",\"priority\":10}");
    AUTO_TASK struct task *good = world_submit(w, "{\"prompt\":\"good\"}");
    for (int i = 0; i < 3; i++) {
        struct run *run = world_claim(w);
        assert_non_null(run);
        assert_int_equal(run_task(run)->task_id, bad->task_id);
        assert_int_equal(run_task(run)->attempt, i + 1);
        if (i > 0)
            assert_null(world_claim(w)); /* a suspect runs alone */
        run_free(run);
        world_close(w);
        world_open(w);
    }
    AUTO_TASK struct task *failed = world_get(w, bad->task_id);
    assert_string_equal(failed->status, "FAILED");
    assert_string_equal(failed->error_code, "WORKER_CRASH");
    assert_int_equal(failed->crash_count, 3);
    struct run *run = world_claim(w);
    assert_int_equal(run_task(run)->task_id, good->task_id);
    run_free(run);
}

static void test_task_drain_spends_no_attempt(void **state)
{
    struct world *w = *state;
    struct rl_err err, why = {.code = RL_CANCELED};
    AUTO_TASK struct task *task = world_submit(w, "{\"prompt\":\"a\"}");
    struct run *run = world_claim(w);
    runs_drain(w->tasks);
    assert_int_equal(run_should_stop(run), RUN_DRAIN);
    world_ok(run_fail(run, &why, &err), &err);
    run_free(run);
    world_close(w);
    world_open(w);
    AUTO_TASK struct task *back = world_get(w, task->task_id);
    assert_string_equal(back->status, "QUEUED");
    assert_int_equal(back->attempt, 0);
    assert_int_equal(back->crash_count, 0);
    run = world_claim(w);
    assert_int_equal(run_task(run)->attempt, 1);
    run_free(run);
}

static void test_task_cancel(void **state)
{
    struct world *w = *state;
    struct rl_err err, stopped = {.code = RL_CANCELED};
    AUTO_TASK struct task *a = world_submit(w, "{\"prompt\":\"a\"}");
    AUTO_TASK struct task *b = world_submit(w, "{\"prompt\":\"b\"}");
    AUTO_TASK struct task *c = world_submit(w, "{\"prompt\":\"c\"}");
    AUTO_TASK struct task *answer = NULL;
    struct run *run = world_claim(w);
    world_ok(task_cancel(w->tasks, &owner, c->task_id, CANCEL_HARD, &answer, &err), &err);
    assert_string_equal(answer->status, "CANCELED");
    assert_int_equal(run_should_stop(run), RUN_GO); /* cancelling C never touches A */
    task_free(STEAL(answer));
    world_ok(task_cancel(w->tasks, &owner, a->task_id, CANCEL_HARD, &answer, &err), &err);
    assert_string_equal(answer->status, "PROCESSING");
    assert_string_equal(answer->cancel_mode, "hard");
    assert_int_equal(run_should_stop(run), RUN_CANCEL);
    assert_int_equal(run_succeed(run, &clip, &err),
                     RL_CANCELED); /* the cancel was answered first */
    run_free(run);
    expect_status(w, a->task_id, "CANCELED");
    run = world_claim(w);
    assert_int_equal(run_task(run)->task_id, b->task_id);
    task_free(STEAL(answer));
    world_ok(task_cancel(w->tasks, &owner, b->task_id, CANCEL_SOFT, &answer, &err), &err);
    assert_string_equal(answer->status, "CANCELED");
    assert_int_equal(run_should_stop(run), RUN_GO);
    world_ok(run_succeed(run, &clip, &err), &err); /* kept for reuse, not announced */
    run_free(run);
    AUTO_TASK struct task *kept = world_get(w, b->task_id);
    assert_string_equal(kept->status, "CANCELED");
    assert_string_equal(kept->video_file, "x.mp4");
    (void)stopped;
    AUTO_TASK struct task *d = world_submit(w, "{\"prompt\":\"d\"}");
    run = world_claim(w);
    world_ok(run_succeed(run, &clip, &err), &err);
    run_free(run);
    struct task *none = NULL;
    assert_int_equal(task_cancel(w->tasks, &owner, d->task_id, CANCEL_HARD, &none, &err),
                     RL_TASK_FINISHED);
    struct caller other = {.user_id = "other"};
    assert_int_equal(task_cancel(w->tasks, &other, d->task_id, CANCEL_HARD, &none, &err),
                     RL_NOT_FOUND);
}

static void test_task_inputs_and_delays_become_due(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    AUTO_TASK struct task *input =
        world_submit(w, "{\"prompt\":\"a\",\"options\":{\"input_ms\":30}}");
    assert_string_equal(input->status, "CREATED");
    char at[RL_TIME_TEXT], body[128];
    rl_time_format(rl_wall_ms() + 60, at);
    (void)snprintf(body, sizeof body, "{\"prompt\":\"b\",\"run_at\":\"%s\"}", at);
    AUTO_TASK struct task *delayed = world_submit(w, body);
    assert_string_equal(delayed->status, "QUEUED");
    assert_null(world_claim(w));
    world_ok(schedule_start(w->tasks, NULL, NULL, &err), &err);
    int64_t seen[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        struct run *run = NULL;
        for (int64_t begun = rl_mono_ms(); !run && rl_mono_ms() - begun < 10000;) {
            uint64_t tick = hub_tick(w->hub);
            run = world_claim(w);
            if (!run)
                (void)hub_wait(w->hub, NULL, tick, 1000);
        }
        assert_non_null(run);
        seen[i] = run_task(run)->task_id;
        run_free(run);
    }
    /* On a slow machine both are due at the first look. */
    assert_true((seen[0] == input->task_id && seen[1] == delayed->task_id) ||
                (seen[0] == delayed->task_id && seen[1] == input->task_id));
    expect_history(w, input->task_id, "CREATED QUEUED PROCESSING");
}

static enum rl_rc set_clock(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_META_SET);
    store_bind_text(stmt, ":name", "steady_clock");
    store_bind_text(stmt, ":value", arg);
    return store_run(stmt, NULL, err);
}

/* Due by the steady clock, stamped by the wall clock: here a year apart. */
static void test_task_promote_is_stamped_by_the_wall_clock(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    char at[RL_TIME_TEXT], text[128];
    (void)snprintf(text, sizeof text, "%lld %lld",
                   (long long)rl_wall_ms() + 365 * INT64_C(86400000), (long long)rl_boot_ms());
    world_ok(store_write(w->store, STORE_NORMAL, set_clock, text, &err), &err);
    world_close(w);
    world_open(w);
    rl_time_format(rl_wall_ms() + 60, at);
    (void)snprintf(text, sizeof text, "{\"prompt\":\"a\",\"run_at\":\"%s\"}", at);
    task_free(world_submit(w, text));
    world_ok(schedule_start(w->tasks, NULL, NULL, &err), &err);
    struct run *run = NULL;
    for (int64_t begun = rl_mono_ms(); !run && rl_mono_ms() - begun < 10000;) {
        uint64_t tick = hub_tick(w->hub);
        run = world_claim(w);
        if (!run)
            (void)hub_wait(w->hub, NULL, tick, 1000);
    }
    assert_non_null(run);
    assert_true(run_task(run)->updated_at <= rl_wall_ms());
    run_free(run);
}

static enum rl_rc submit_in(struct world *w, const char *queue, struct task **ret_task)
{
    char body[128];
    struct rl_err err;
    struct submit_reply reply;
    (void)snprintf(body, sizeof body,
                   "{\"prompt\":\"a\",\"idempotency\":\"off\",\"queue_name\":\"%s\"}", queue);
    enum rl_rc rc = task_submit(w->tasks, &owner, body, strlen(body), NULL, &reply, &err);
    if (rc == RL_OK)
        *ret_task = reply.task;
    return rc;
}

static void fail_head(struct world *w)
{
    struct rl_err err, why = {.code = RL_ENGINE_ERROR, .reason = "boom"};
    struct run *run = world_claim(w);
    assert_non_null(run);
    world_ok(run_fail(run, &why, &err), &err);
    run_free(run);
}

/* A name comes back when nothing unfinished is in its queue, and nobody paused it. */
static void test_task_queue_names_come_back(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    struct task *task = NULL;
    world_set(w, "queue.names", "3");
    world_set(w, "task.max_retries", "0");
    world_ok(submit_in(w, "default", &task), &err);
    task_free(task);
    fail_head(w);
    world_ok(submit_in(w, "held", &task), &err);
    task_free(task);
    fail_head(w);
    world_ok(queue_set(w->tasks, "held", QUEUE_PAUSED, &err), &err);
    world_ok(submit_in(w, "one", &task), &err);
    int64_t replayed = task->task_id;
    task_free(STEAL(task));
    assert_int_equal(submit_in(w, "two", &task), RL_INVALID_FIELD); /* `one` is in use */
    fail_head(w);
    world_ok(submit_in(w, "two", &task), &err);
    task_free(STEAL(task));
    assert_int_equal(dead_replay(w->tasks, &owner, replayed, &task, &err), RL_INVALID_FIELD);
    expect_status(w, replayed, "FAILED");
    fail_head(w);
    world_ok(dead_replay(w->tasks, &owner, replayed, &task, &err), &err);
    task_free(STEAL(task));
    struct run *run = world_claim(w); /* its queue is there again */
    assert_non_null(run);
    assert_int_equal(run_task(run)->task_id, replayed);
    run_free(run);
}

static void test_task_ids_only_grow(void **state)
{
    struct world *w = *state;
    int64_t last = 0;
    for (int i = 0; i < 200; i++) {
        char body[64];
        (void)snprintf(body, sizeof body, "{\"prompt\":\"p%d\"}", i);
        AUTO_TASK struct task *task = world_submit(w, body);
        assert_true(task->task_id > last);
        last = task->task_id;
        if (i == 100) {
            world_close(w);
            world_open(w);
        }
    }
    assert_int_equal((last >> 12) & 0x3ff, 0); /* node id */
    assert_true(((last >> 22) - rl_wall_ms()) < 1000);
}

struct poster {
    struct world *w;
    int64_t id;
    bool replayed, ok;
};

static void *post_main(void *arg)
{
    struct poster *p = arg;
    struct submit_reply reply;
    struct rl_err err;
    const char *body = "{\"prompt\":\"same\"}";
    p->ok = task_submit(p->w->tasks, &owner, body, strlen(body), "key-1", &reply, &err) == RL_OK;
    if (p->ok) {
        p->id = reply.task->task_id;
        p->replayed = reply.replayed;
        task_free(reply.task);
    }
    return NULL;
}

static void test_task_submit_200_parallel_posts_make_one_task(void **state)
{
    struct world *w = *state;
    enum { POSTS = 200 };
    static pthread_t threads[POSTS];
    static struct poster posters[POSTS];
    int fresh = 0;
    for (int i = 0; i < POSTS; i++) {
        posters[i] = (struct poster){.w = w};
        assert_int_equal(pthread_create(&threads[i], NULL, post_main, &posters[i]), 0);
    }
    for (int i = 0; i < POSTS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < POSTS; i++) {
        assert_true(posters[i].ok);
        assert_int_equal(posters[i].id, posters[0].id);
        fresh += !posters[i].replayed;
    }
    assert_int_equal(fresh, 1);
}

/* Whatever lies between the members. */
static void test_task_progress_is_compared_by_its_members(void **state)
{
    (void)state;
    struct run_progress seen[2], now;
    memset(seen, 0x11, sizeof seen);
    memset(&now, 0xee, sizeof now);
    seen[0].task_id = 1;
    seen[1].task_id = now.task_id = 2;
    seen[1].attempt = now.attempt = 3;
    seen[1].phase = now.phase = 2;
    seen[1].step = now.step = 5;
    assert_true(run_progress_seen(&now, seen, 2));
    assert_false(run_progress_seen(&now, seen, 1));
    now.step = 6;
    assert_false(run_progress_seen(&now, seen, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_task_life_success),
        WORLD_TEST(test_task_claim_order_is_rank),
        WORLD_TEST(test_task_retry_is_delayed_then_failed),
        WORLD_TEST(test_task_crash_budget),
        WORLD_TEST(test_task_drain_spends_no_attempt),
        WORLD_TEST(test_task_cancel),
        WORLD_TEST(test_task_inputs_and_delays_become_due),
        WORLD_TEST(test_task_promote_is_stamped_by_the_wall_clock),
        WORLD_TEST(test_task_queue_names_come_back),
        WORLD_TEST(test_task_ids_only_grow),
        WORLD_TEST(test_task_submit_200_parallel_posts_make_one_task),
        cmocka_unit_test(test_task_progress_is_compared_by_its_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
