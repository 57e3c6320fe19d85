/* Deliveries by the outbox thread: what a receiver gets, and what its answers mean. */
// link: -Wl,--wrap=store_write
#include "test_outbox_scene.h"

static void test_outbox_delivers_a_signed_post(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_200}, 1);

    start(t);
    add(t, (struct new_duty){.task_id = 7301, .port = port});
    assert_true(wait_for(t, 7301, "SUCCEEDED", 1, SOON_MS));
    assert_requests(t, 7301, 1, 1);
    assert_duty(t, 7301, "SUCCEEDED", 1);
    assert_delivery(t, 7301, 1, 200, "", 2);
    assert_true(outbox_stalled_ms(t->outbox) < 5000);
}

/* A duty is on its way within milliseconds of its commit, idle or busy with a slow receiver. */
static void test_outbox_starts_at_once(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_200}, 1);
    int hole = receiver_listen(t->receiver, (enum answer[]){ANSWER_NEVER}, 1);

    start(t);
    for (int64_t i = 1; i <= 20; i++) {
        if (i == 11)
            add(t, (struct new_duty){.task_id = 900, .port = hole});
        add(t, (struct new_duty){.task_id = i, .port = port});
        int64_t before = rl_mono_ms();
        assert_true(wait_for(t, i, "SUCCEEDED", 1, SOON_MS));
        /* generous for a loaded machine; a missed doorbell would take a second */
        assert_in_range(rl_mono_ms() - before, 0, in_time(500));
    }
}

static void test_outbox_retries_after_500(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_500, ANSWER_500, ANSWER_200}, 3);

    start(t);
    add(t, (struct new_duty){.task_id = 1, .round = 2, .port = port});
    assert_true(wait_for(t, 1, "SUCCEEDED", 1, SOON_MS));
    assert_requests(t, 1, 2, 3);
    assert_duty(t, 1, "SUCCEEDED", 3);
    assert_delivery(t, 1, 1, 500, "HTTP 500", 0);
    assert_delivery(t, 1, 3, 200, "", 2);
    struct received first;
    struct received second;
    struct received third;
    receiver_get(t->receiver, 0, &first);
    receiver_get(t->receiver, 1, &second);
    receiver_get(t->receiver, 2, &third);
    assert_true(second.wall_ms - first.wall_ms >= 19);
    assert_true(third.wall_ms - second.wall_ms >= 59);
}

static void test_outbox_gives_up_after_max_tries(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_500}, 1);

    start(t);
    add(t, (struct new_duty){.task_id = 1, .port = port, .max_tries = 3});
    assert_true(wait_for(t, 1, "FAILED", 1, SOON_MS));
    assert_requests(t, 1, 1, 3);
    assert_duty(t, 1, "FAILED", 3);
    assert_true(wait_for(t, 1, "PENDING", 2, 0));
}

static void test_outbox_never_follows_redirects(void **state)
{
    struct tasks *t = *state;
    int other = receiver_listen(t->receiver, (enum answer[]){ANSWER_200}, 1);
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_302}, 1);

    start(t);
    receiver_redirect_to(t->receiver, other);
    add(t, (struct new_duty){.task_id = 1, .port = port, .max_tries = 2});
    assert_true(wait_for(t, 1, "FAILED", 1, SOON_MS));
    assert_int_equal(receiver_count(t->receiver, port), 2);
    assert_int_equal(receiver_count(t->receiver, other), 0);
    assert_delivery(t, 1, 2, 302, "HTTP 302", 0);
}

static void test_outbox_410_ends_at_once(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_410}, 1);

    start(t);
    add(t, (struct new_duty){.task_id = 1, .port = port});
    assert_true(wait_for(t, 1, "FAILED", 1, SOON_MS));
    assert_duty(t, 1, "FAILED", 1);
    assert_delivery(t, 1, 1, 410, "HTTP 410", 0);
}

static void test_outbox_slow_answer_times_out(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_NEVER, ANSWER_200}, 2);

    start(t);
    add(t, (struct new_duty){.task_id = 1, .port = port});
    assert_true(wait_for(t, 1, "SUCCEEDED", 1, SOON_MS));
    assert_requests(t, 1, 1, 2);
    assert_delivery(t, 1, 1, 0, "REQUEST_TIMEOUT", 0);
}

static void test_outbox_reset_is_retried(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_RESET, ANSWER_200}, 2);

    start(t);
    add(t, (struct new_duty){.task_id = 1, .port = port});
    assert_true(wait_for(t, 1, "SUCCEEDED", 1, SOON_MS));
    assert_requests(t, 1, 1, 2);
    assert_delivery(t, 1, 1, 0, "NETWORK_ERROR", 0);
}

static void test_outbox_huge_answer_is_a_success(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_HUGE}, 1);

    set(t, "callback.response_bytes=1000");
    start(t);
    add(t, (struct new_duty){.task_id = 1, .port = port});
    assert_true(wait_for(t, 1, "SUCCEEDED", 1, SOON_MS));
    assert_duty(t, 1, "SUCCEEDED", 1);
    assert_delivery(t, 1, 1, 200, "", 1000);
}

/* 2xx came, then the body stalls: the receiver has accepted, a second POST would be a duplicate. */
static void test_outbox_stalled_body_of_a_2xx_is_a_success(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_200_STALL}, 1);

    start(t);
    add(t, (struct new_duty){.task_id = 1, .port = port});
    assert_true(wait_for(t, 1, "SUCCEEDED", 1, SOON_MS));
    assert_requests(t, 1, 1, 1);
}

static void test_outbox_honours_retry_after(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_503_RETRY_1S, ANSWER_200}, 2);
    struct received a;
    struct received b;

    start(t);
    add(t, (struct new_duty){.task_id = 1, .port = port});
    assert_true(wait_for(t, 1, "SUCCEEDED", 1, SOON_MS));
    receiver_get(t->receiver, 0, &a);
    receiver_get(t->receiver, 1, &b);
    assert_true(b.wall_ms - a.wall_ms >= 999);
}

/* A black hole with a deep backlog, first in every order, and 20 good hosts behind it. */
static void test_outbox_black_hole_delays_nobody(void **state)
{
    struct tasks *t = *state;
    int hole = receiver_listen(t->receiver, (enum answer[]){ANSWER_NEVER}, 1);

    set(t, "callback.in_flight=4");
    set(t, "callback.timeout_ms=10000");
    for (int64_t i = 1; i <= 200; i++)
        add(t, (struct new_duty){.task_id = i, .port = hole});
    for (int64_t i = 0; i < 20; i++) {
        int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_200}, 1);
        for (int64_t k = 0; k < 3; k++)
            add(t, (struct new_duty){.task_id = 1000 + 3 * i + k, .port = port});
    }
    int64_t before = rl_mono_ms();
    start(t);
    assert_true(wait_for(t, 0, "SUCCEEDED", 60, SOON_MS));
    assert_in_range(rl_mono_ms() - before, 0, in_time(1000));
    assert_int_equal(receiver_count(t->receiver, hole), 2); /* callback.per_host */
}

static void test_outbox_refuses_own_port(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_200}, 1);

    start_on(t, port);
    add(t, (struct new_duty){.task_id = 1, .port = port});
    assert_true(wait_for(t, 1, "FAILED", 1, SOON_MS));
    assert_duty(t, 1, "FAILED", 1);
    assert_delivery(t, 1, 1, 0, "ADDRESS_REFUSED", 0);
    add(t, (struct new_duty){.task_id = 2, .port = 9, .url = "http://169.254.169.254/latest"});
    assert_true(wait_for(t, 2, "FAILED", 1, SOON_MS));
    assert_delivery(t, 2, 1, 0, "ADDRESS_REFUSED", 0);
    assert_int_equal(receiver_count(t->receiver, 0), 0);
}

static void test_outbox_bad_secret_fails_at_once(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_200}, 1);

    start(t);
    add(t, (struct new_duty){.task_id = 1, .port = port, .secret = "whsec_!"});
    assert_true(wait_for(t, 1, "FAILED", 1, SOON_MS));
    assert_delivery(t, 1, 1, 0, "INVALID_FIELD", 0);
    assert_int_equal(receiver_count(t->receiver, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_outbox_delivers_a_signed_post),
        TEST(test_outbox_starts_at_once),
        TEST(test_outbox_retries_after_500),
        TEST(test_outbox_gives_up_after_max_tries),
        TEST(test_outbox_never_follows_redirects),
        TEST(test_outbox_410_ends_at_once),
        TEST(test_outbox_slow_answer_times_out),
        TEST(test_outbox_reset_is_retried),
        TEST(test_outbox_huge_answer_is_a_success),
        TEST(test_outbox_stalled_body_of_a_2xx_is_a_success),
        TEST(test_outbox_honours_retry_after),
        TEST(test_outbox_black_hole_delays_nobody),
        TEST(test_outbox_refuses_own_port),
        TEST(test_outbox_bad_secret_fails_at_once),
    };

    return run_scenes(tests, RL_ARRAY_LEN(tests));
}
