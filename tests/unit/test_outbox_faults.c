/* The outbox thread when something breaks: memory, the store, a stop in the middle. */
// link: -Wl,--wrap=store_write,--wrap=store_read,--wrap=malloc,--wrap=calloc,--wrap=realloc
#include "test_outbox_scene.h"

static _Atomic int64_t fail_at; /* calls until one fails; 0 or less = none */

static bool fails(void)
{
    return atomic_load(&fail_at) > 0 && atomic_fetch_sub(&fail_at, 1) == 1;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size)
{
    return fails() ? NULL : __real_realloc(p, size);
}

enum rl_rc __real_store_read(struct store *store, store_fn fn, void *arg, struct rl_err *err);
enum rl_rc __wrap_store_read(struct store *store, store_fn fn, void *arg, struct rl_err *err);
enum rl_rc __wrap_store_read(struct store *store, store_fn fn, void *arg, struct rl_err *err)
{
    if (fails())
        return rl_fail(err, RL_STORE_ERROR, "broken by the test");
    return __real_store_read(store, fn, arg, err);
}

/* Fail the N-th allocation or store call of a delivery, for every N until none is left to fail: the
 * duty still arrives, and requests, tries and delivery rows agree. */
static void test_outbox_failure_loop(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_200}, 1);
    int64_t n = 0;
    bool failed = true;

    start(t);
    while (failed) {
        assert_true(++n < 200);
        put(t, (struct new_duty){.task_id = n, .port = port});
        atomic_store(&fail_at, n);
        hub_ring(t->hub);
        assert_true(wait_for(t, n, "SUCCEEDED", 1, SOON_MS));
        failed = atomic_exchange(&fail_at, 0) <= 0;
        assert_requests(t, n, 1, 1);
        assert_duty(t, n, "SUCCEEDED", 1);
    }
    assert_true(n > 10); /* else nothing was tried */
}

/* The answer came, the database is full: the duty waits for its record and is not sent again. */
static void test_outbox_unrecorded_result_is_not_sent_again(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_200}, 1);

    atomic_store(&t->failing, 4); /* 50 + 100 + 200 + 400 ms */
    start(t);
    add(t, (struct new_duty){.task_id = 1, .port = port});
    for (int64_t i = 2; i <= 9; i++) /* doorbells, and more of the same host */
        add(t, (struct new_duty){.task_id = i, .port = port});
    assert_true(wait_for(t, 0, "SUCCEEDED", 9, SOON_MS));
    assert_int_equal(atomic_load(&t->failures), 4);
    assert_int_equal(receiver_count(t->receiver, 0), 9);
    for (int64_t i = 1; i <= 9; i++) {
        assert_requests(t, i, 1, 1);
        assert_duty(t, i, "SUCCEEDED", 1);
    }
}

/* One result that cannot be written does not hold those that arrived with it. */
static void test_outbox_one_bad_record_holds_no_other(void **state)
{
    struct tasks *t = *state;
    int ports[4];

    t->poisoned = 2;
    for (int i = 0; i < 4; i++) {
        ports[i] = receiver_listen(t->receiver, (enum answer[]){ANSWER_200}, 1);
        add(t, (struct new_duty){.task_id = i + 1, .port = ports[i]});
    }
    start(t);
    assert_true(wait_for(t, 0, "SUCCEEDED", 3, SOON_MS));
    assert_duty(t, 2, "PENDING", 0);
    (void)pthread_mutex_lock(&t->lock);
    t->poisoned = 0;
    (void)pthread_mutex_unlock(&t->lock);
    assert_true(wait_for(t, 2, "SUCCEEDED", 1, SOON_MS));
    assert_int_equal(receiver_count(t->receiver, 0), 4);
}

static void test_outbox_stop_records_what_ends_in_time(void **state)
{
    struct tasks *t = *state;
    int slow = receiver_listen(t->receiver, (enum answer[]){ANSWER_200_SLOW}, 1);
    int hole = receiver_listen(t->receiver, (enum answer[]){ANSWER_NEVER}, 1);

    set(t, "callback.timeout_ms=60000");
    start(t);
    add(t, (struct new_duty){.task_id = 1, .port = slow});
    add(t, (struct new_duty){.task_id = 2, .port = hole});
    assert_true(receiver_wait(t->receiver, 2, SOON_MS));
    int64_t before = rl_mono_ms();
    stop(t, 1000);
    assert_in_range(rl_mono_ms() - before, 0, in_time(2000));
    assert_duty(t, 1, "SUCCEEDED", 1);
    assert_duty(t, 2, "PENDING", 0); /* cut off: not a try, sent again by the next start */
    before = rl_mono_ms();
    start(t);
    stop(t, 0);
    assert_in_range(rl_mono_ms() - before, 0, in_time(1000));
}

static void test_outbox_stop_takes_no_new_duty(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_200}, 1);

    start(t);
    stop(t, 0);
    add(t, (struct new_duty){.task_id = 1, .port = port});
    assert_int_equal(receiver_count(t->receiver, 0), 0);
    start(t); /* what waited through the stop goes out now */
    assert_true(wait_for(t, 1, "SUCCEEDED", 1, SOON_MS));
    outbox_stop(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_outbox_failure_loop),
        TEST(test_outbox_unrecorded_result_is_not_sent_again),
        TEST(test_outbox_one_bad_record_holds_no_other),
        TEST(test_outbox_stop_records_what_ends_in_time),
        TEST(test_outbox_stop_takes_no_new_duty),
    };

    return run_scenes(tests, RL_ARRAY_LEN(tests));
}
