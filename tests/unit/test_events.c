/* The doorbell. */
#include "events/events.h"

#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void publish(struct hub *hub, int64_t seq, int64_t task, const char *user)
{
    char json[32];
    (void)snprintf(json, sizeof json, "{\"seq\":%lld}", (long long)seq);
    struct hub_event event = {.seq = seq, .task_id = task, .json = json};
    (void)rl_copy_str(event.user_id, sizeof event.user_id, user);
    hub_publish(hub, &event);
}

static size_t drain(struct hub *hub, const struct hub_filter *filter, int64_t after, int64_t *last,
                    bool *reaches)
{
    struct hub_event events[64];
    size_t n = 0;
    *reaches = hub_read(hub, filter, after, events, 64, &n, last);
    for (size_t i = 0; i < n; i++) {
        char want[32];
        (void)snprintf(want, sizeof want, "{\"seq\":%lld}", (long long)events[i].seq);
        assert_string_equal(events[i].json, want);
        free((char *)(uintptr_t)events[i].json);
    }
    return n;
}

static void test_hub_read_filters_and_resumes(void **state)
{
    (void)state;
    struct hub *hub = hub_new(10);
    int64_t last;
    bool reaches;
    for (int64_t i = 11; i <= 30; i++)
        publish(hub, i, i % 2 ? 1 : 2, i % 3 ? "a" : "b");
    assert_int_equal(drain(hub, NULL, 10, &last, &reaches), 20);
    assert_true(reaches);
    assert_int_equal(last, 30);
    struct hub_filter one = {.task_id = 1};
    assert_int_equal(drain(hub, &one, 20, &last, &reaches), 5);
    assert_int_equal(last, 30);
    struct hub_filter user = {.user_id = "b"};
    assert_int_equal(drain(hub, &user, 10, &last, &reaches), 7);
    assert_int_equal(drain(hub, NULL, 9, &last, &reaches), 0);
    assert_false(reaches); /* the ring begins after 10 */
    hub_free(hub);
}

static void test_hub_read_after_the_ring_ran_over(void **state)
{
    (void)state;
    struct hub *hub = hub_new(0);
    int64_t last;
    bool reaches;
    for (int64_t i = 1; i <= HUB_RING + 5; i++)
        publish(hub, i, 1, "a");
    (void)drain(hub, NULL, 4, &last, &reaches);
    assert_false(reaches);
    assert_int_equal(drain(hub, NULL, HUB_RING, &last, &reaches), 5);
    assert_true(reaches);
    assert_int_equal(hub_last_seq(hub), HUB_RING + 5);
    hub_free(hub);
}

struct waiter {
    struct hub *hub;
    struct hub_filter filter;
    uint64_t tick, woke;
};

static void *wait_main(void *arg)
{
    struct waiter *w = arg;
    w->woke = hub_wait(w->hub, &w->filter, w->tick, 20000);
    return NULL;
}

static void test_hub_wait_wakes_whom_it_concerns(void **state)
{
    (void)state;
    struct hub *hub = hub_new(0);
    struct waiter mine = {.hub = hub, .filter = {.task_id = 7}, .tick = hub_tick(hub)};
    pthread_t thread;
    int64_t begun = rl_mono_ms();
    assert_int_equal(pthread_create(&thread, NULL, wait_main, &mine), 0);
    for (int64_t i = 1; i <= 100; i++) /* whether the thread waits yet or not, these are others' */
        publish(hub, i, 8, "a");
    publish(hub, 101, 7, "a");
    pthread_join(thread, NULL);
    assert_true(mine.woke > mine.tick);
    assert_true(rl_mono_ms() - begun < 15000);
    hub_free(hub);
}

static void test_hub_wait_times_out_and_rings(void **state)
{
    (void)state;
    struct hub *hub = hub_new(0);
    uint64_t tick = hub_tick(hub);
    assert_int_equal(hub_wait(hub, NULL, tick, 5), tick);
    hub_ring(hub);
    assert_true(hub_wait(hub, NULL, tick, 20000) > tick); /* rang before: no wait at all */
    hub_free(hub);
}

struct flagged {
    struct hub *hub;
    atomic_bool flag;
    atomic_int woke; /* times its wait ended */
};

static void *flag_main(void *arg)
{
    struct flagged *f = arg;
    struct hub_filter filter = {.flag = &f->flag, .task_id = 99};
    (void)hub_wait(f->hub, &filter, hub_tick(f->hub), 20000);
    atomic_fetch_add(&f->woke, 1);
    return NULL;
}

/* However the wake and the beginning of the wait meet, and nobody else hears of it. */
static void test_hub_wake_ends_the_wait_of_its_flag(void **state)
{
    (void)state;
    struct hub *hub = hub_new(0);
    struct flagged other = {.hub = hub};
    pthread_t beside, thread;
    uint64_t tick = hub_tick(hub);
    int64_t begun = rl_mono_ms();
    assert_int_equal(pthread_create(&beside, NULL, flag_main, &other), 0);
    for (int i = 0; i < 200; i++) {
        struct flagged mine = {.hub = hub};
        assert_int_equal(pthread_create(&thread, NULL, flag_main, &mine), 0);
        if (i % 2)
            sched_yield();
        atomic_store(&mine.flag, true);
        hub_wake(hub, &mine.flag);
        pthread_join(thread, NULL);
        assert_int_equal(atomic_load(&mine.woke), 1);
    }
    assert_true(rl_mono_ms() - begun < 15000);
    assert_int_equal(atomic_load(&other.woke), 0);
    assert_int_equal(hub_tick(hub), tick);
    atomic_store(&other.flag, true);
    hub_wake(hub, &other.flag);
    pthread_join(beside, NULL);
    hub_free(hub);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hub_read_filters_and_resumes),
        cmocka_unit_test(test_hub_read_after_the_ring_ran_over),
        cmocka_unit_test(test_hub_wait_wakes_whom_it_concerns),
        cmocka_unit_test(test_hub_wait_times_out_and_rings),
        cmocka_unit_test(test_hub_wake_ends_the_wait_of_its_flag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
