/* The way of a duty through the real task module: the terminal transaction writes it, the outbox
 * delivers it, and the task's callback_status says so. */
#include "world.h"

#include "base/clock.h"
#include "base/webhook.h"
#include "net/net.h"
#include "outbox/outbox.h"
#include "test_outbox_receiver.h"

#define SOON_MS 10000

struct scene {
    struct world w;
    struct receiver *receiver;
    struct outbox *outbox;
};

static const struct run_result clip = {
    .file = "x.mp4", .bytes = 10, .sha256 = "00", .width = 64, .height = 64, .frames = 4, .fps = 8};

static int setup(void **state)
{
    static struct scene s;
    struct rl_err err;

    s = (struct scene){0};
    world_init(&s.w);
    world_set(&s.w, "callback.wait_ms", "20");
    world_set(&s.w, "callback.tries", "3");
    world_open(&s.w);
    assert_non_null(s.receiver = receiver_new());
    world_ok(outbox_start(s.w.tasks, 1, &s.outbox, &err), &err);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;

    outbox_stop(s->outbox, 0);
    receiver_free(s->receiver);
    world_end(&s->w);
    return 0;
}

static struct task *submit(struct scene *s, int port)
{
    char body[256];

    (void)snprintf(body, sizeof body,
                   "{\"prompt\":\"a\",\"seed\":7,\"idempotency\":\"off\","
                   "\"callback_url\":\"http://localhost:%d/hook?x=1\"}",
                   port);
    return world_submit(&s->w, body);
}

/* Commits are not events of the task, so this looks again at every doorbell and every 20 ms. */
static void expect_callback(struct scene *s, int64_t task_id, const char *status, int64_t retry)
{
    int64_t until = rl_mono_ms() + SOON_MS;

    for (;;) {
        uint64_t tick = hub_tick(s->w.hub);
        AUTO_TASK struct task *task = world_get(&s->w, task_id);
        if (strcmp(task->callback_status, status) == 0) {
            assert_int_equal(task->callback_retry, retry);
            return;
        }
        if (rl_mono_ms() > until)
            fail_msg("callback_status is %s, want %s", task->callback_status, status);
        (void)hub_wait(s->w.hub, NULL, tick, 20);
    }
}

static void test_outbox_task_success_is_called_back(void **state)
{
    struct scene *s = *state;
    int port = receiver_listen(s->receiver, (enum answer[]){ANSWER_500, ANSWER_200}, 2);
    AUTO_TASK struct task *task = submit(s, port);
    struct rl_err err;
    struct received r;
    char secret[128];
    char signature[64];
    char id[64];

    assert_string_equal(task->callback_status, "PENDING");
    struct run *run = world_claim(&s->w);
    assert_non_null(run);
    assert_int_equal(receiver_count(s->receiver, 0), 0); /* nothing is sent before the end */
    world_ok(run_succeed(run, &clip, &err), &err);
    run_free(run);
    expect_callback(s, task->task_id, "SUCCEEDED", 2);
    assert_int_equal(receiver_count(s->receiver, 0), 2);
    receiver_get(s->receiver, 1, &r);
    (void)snprintf(id, sizeof id, "evt_%lld_1", (long long)task->task_id);
    assert_string_equal(r.id, id);
    (void)snprintf(id, sizeof id, "%lld", (long long)task->task_id);
    assert_string_equal(r.key, id);
    r.body[r.body_len] = '\0';
    assert_non_null(strstr(r.body, "task.succeeded"));
    world_ok(key_callback_secret(s->w.tasks, "owner", secret, &err), &err);
    world_ok(rl_webhook_sign(secret, r.id, strtoll(r.timestamp, NULL, 10), r.body, r.body_len,
                             signature, &err),
             &err);
    assert_string_equal(r.signature, signature);
}

static void test_outbox_task_dead_letter_shows_in_the_task(void **state)
{
    struct scene *s = *state;
    int port = receiver_listen(s->receiver, (enum answer[]){ANSWER_500}, 1);
    AUTO_TASK struct task *task = submit(s, port);
    struct rl_err err;
    struct rl_err why = {.code = RL_ENGINE_ERROR, .reason = "no"};

    struct run *run = world_claim(&s->w);
    assert_non_null(run);
    world_ok(run_fail(run, &why, &err), &err);
    run_free(run);
    expect_callback(s, task->task_id, "FAILED", 3);
    assert_int_equal(receiver_count(s->receiver, 0), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_outbox_task_success_is_called_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outbox_task_dead_letter_shows_in_the_task, setup,
                                        teardown),
    };

    if (rl_crypto_init(NULL) || net_init(NULL))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    net_cleanup();
    return failed;
}
