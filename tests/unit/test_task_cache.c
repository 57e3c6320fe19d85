/* Finished tasks in memory: who makes room, what the bound holds, and that nothing stale is
 * answered once a replay was. */
#include "world.h"

#include "base/log.h"
#include "task/internal.h"

#include <pthread.h>
#include <stdatomic.h>

// link: rl_task

/* A finished task as far as the cache looks; `text` bytes of prompt. */
static struct task make(int64_t id, char *prompt, size_t text)
{
    memset(prompt, 'p', text);
    prompt[text] = '\0';
    return (struct task){.task_id = id, .prompt = prompt, .status = "SUCCEEDED"};
}

static void put(struct cache *cache, int64_t id, size_t text)
{
    char prompt[4096];
    struct task task = make(id, prompt, text);
    assert_true(text < sizeof prompt);
    cache_put(cache, &task, cache_generation(cache));
}

static bool has(struct cache *cache, int64_t id)
{
    AUTO_TASK struct task *task = NULL;
    bool hit = cache_get(cache, id, &task);
    assert_true(!hit || task->task_id == id);
    return hit;
}

static struct cache_stats stats_of(struct cache *cache)
{
    struct cache_stats stats;
    cache_stats(cache, &stats);
    return stats;
}

/* What one entry with so much text costs. */
static int64_t entry_bytes(size_t text)
{
    struct cache *cache = cache_new(1 << 20);
    assert_non_null(cache);
    put(cache, 1, text);
    int64_t bytes = stats_of(cache).bytes;
    cache_free(cache);
    return bytes;
}

static void test_cache_evicts_the_least_recently_read(void **state)
{
    (void)state;
    struct cache *cache = cache_new(4 * entry_bytes(10));
    for (int64_t id = 1; id <= 4; id++)
        put(cache, id, 10);
    assert_true(has(cache, 1)); /* now 2 is the oldest */
    put(cache, 5, 10);
    assert_false(has(cache, 2));
    assert_true(has(cache, 3)); /* 4, 1, 5, 3 */
    put(cache, 6, 10);
    assert_false(has(cache, 4));
    put(cache, 7, 10);
    assert_false(has(cache, 1));
    put(cache, 8, 10);
    assert_false(has(cache, 5));
    assert_true(has(cache, 3));
    assert_int_equal(stats_of(cache).evictions, 4);
    cache_free(cache);
}

static void test_cache_holds_its_bound(void **state)
{
    (void)state;
    int64_t most = 4 * entry_bytes(100);
    struct cache *cache = cache_new(most);
    for (int64_t id = 1; id <= 4; id++)
        put(cache, id, 100);
    assert_int_equal(stats_of(cache).bytes, most);
    put(cache, 5, 101); /* one byte more than there is room for after one left */
    assert_int_equal(stats_of(cache).tasks, 3);
    assert_true(stats_of(cache).bytes <= most);
    put(cache, 6, (size_t)(most - entry_bytes(0))); /* alone it fits exactly */
    assert_true(has(cache, 6));
    assert_int_equal(stats_of(cache).tasks, 1);
    put(cache, 7, (size_t)(most - entry_bytes(0) + 1)); /* never */
    assert_false(has(cache, 7));
    assert_true(has(cache, 6));
    cache_free(cache);
}

static void test_cache_of_nothing(void **state)
{
    (void)state;
    struct cache *cache = cache_new(0);
    put(cache, 1, 10);
    assert_false(has(cache, 1));
    cache_drop(cache, 1);
    assert_int_equal(stats_of(cache).tasks, 0);
    cache_free(cache);
}

static void test_cache_get_returns_a_copy(void **state)
{
    (void)state;
    struct cache *cache = cache_new(1 << 20);
    AUTO_TASK struct task *one = NULL, *two = NULL;
    put(cache, 1, 3);
    assert_true(cache_get(cache, 1, &one));
    one->prompt[0] = 'x';
    assert_true(cache_get(cache, 1, &two));
    assert_string_equal(two->prompt, "ppp");
    cache_free(cache);
}

static void test_cache_put_after_a_drop_is_refused(void **state)
{
    (void)state;
    char prompt[8];
    struct cache *cache = cache_new(1 << 20);
    struct task task = make(1, prompt, 3);
    uint64_t generation = cache_generation(cache); /* the reader looks … */
    cache_drop(cache, 1);                          /* … a replay commits … */
    cache_put(cache, &task, generation);           /* … and what it saw is old */
    assert_false(has(cache, 1));
    cache_put(cache, &task, cache_generation(cache));
    assert_true(has(cache, 1));
    cache_drop(cache, 1);
    assert_false(has(cache, 1));
    cache_free(cache);
}

/* Against a list that is obviously right: ids in the order of their last reading. */
static void test_cache_against_a_model(void **state)
{
    (void)state;
    enum { ROOM = 50, IDS = 120, STEPS = 50000 };
    int64_t model[ROOM];
    size_t n = 0;
    unsigned seed = 1;
    struct cache *cache = cache_new(ROOM * entry_bytes(10));
    for (int step = 0; step < STEPS; step++) {
        int64_t id = 1 + rand_r(&seed) % IDS;
        size_t at = 0;
        while (at < n && model[at] != id)
            at++;
        bool known = at < n;
        if (known) {
            memmove(model + at, model + at + 1, (n - at - 1) * sizeof *model);
            n--;
        }
        if (rand_r(&seed) % 10 == 0) {
            cache_drop(cache, id);
            continue;
        }
        if (has(cache, id) != known)
            fail_msg("step %d: %lld was %s", step, (long long)id, known ? "lost" : "not dropped");
        if (!known) {
            put(cache, id, 10);
            if (n == ROOM)
                memmove(model, model + 1, --n * sizeof *model);
        }
        model[n++] = id;
        assert_int_equal(stats_of(cache).tasks, n);
    }
    assert_true(stats_of(cache).evictions > 1000);
    cache_free(cache);
}

struct crowd {
    struct cache *cache;
    unsigned seed;
};

static void *wander(void *arg)
{
    struct crowd *one = arg;
    for (int i = 0; i < 5000; i++) {
        int64_t id = 1 + rand_r(&one->seed) % 100;
        if (i % 16 == 0)
            cache_drop(one->cache, id);
        else if (!has(one->cache, id))
            put(one->cache, id, (size_t)rand_r(&one->seed) % 200);
    }
    return NULL;
}

static void test_cache_of_many_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    struct crowd crowd[4];
    struct cache *cache = cache_new(40 * entry_bytes(100));
    for (unsigned i = 0; i < 4; i++) {
        crowd[i] = (struct crowd){cache, i};
        assert_int_equal(pthread_create(&threads[i], NULL, wander, &crowd[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    struct cache_stats stats = stats_of(cache);
    assert_true(stats.bytes <= 40 * entry_bytes(100) && stats.tasks > 10);
    for (int64_t id = 1; id <= 100; id++)
        cache_drop(cache, id);
    assert_int_equal(stats_of(cache).tasks, 0);
    assert_int_equal(stats_of(cache).bytes, 0);
    cache_free(cache);
}

/* ---- the race with a replay ---- */

struct watcher {
    struct world *w;
    int64_t task_id;
    atomic_llong answered; /* the newest version that somebody was answered */
    atomic_bool over;
    atomic_int stale, reads;
};

static void *watch(void *arg)
{
    struct watcher *x = arg;
    while (!atomic_load(&x->over)) {
        int64_t least = atomic_load(&x->answered);
        AUTO_TASK struct task *task = world_get(x->w, x->task_id);
        atomic_fetch_add(&x->stale, task->version < least);
        atomic_fetch_add(&x->reads, 1);
    }
    return NULL;
}

/* Readers poll a task that fails and is replayed again and again: from the moment on at which a
 * replay (or an end) was answered, nobody is told of anything before it. */
static void test_no_stale_answer_after_a_replay(void **state)
{
    (void)state;
    enum { READERS = 3, REPLAYS = 150 };
    static struct world w;
    pthread_t threads[READERS];
    struct rl_err err, why = {.code = RL_ENGINE_ERROR, .reason = "boom"};
    rl_log_set_level(RL_LOG_WARN);
    world_init(&w);
    (void)world_open(&w);
    struct task *made = world_submit(&w, "{\"prompt\":\"x\"}");
    struct watcher x = {.w = &w, .task_id = made->task_id};
    atomic_store(&x.answered, made->version);
    task_free(made);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, watch, &x), 0);
    for (int i = 0; i < REPLAYS; i++) {
        struct run *run = world_claim(&w);
        assert_non_null(run);
        world_ok(run_fail(run, &why, &err), &err);
        run_free(run);
        struct task *dead = world_get(&w, x.task_id);
        assert_string_equal(dead->status, "FAILED");
        atomic_store(&x.answered, dead->version);
        task_free(dead);
        int seen = atomic_load(&x.reads); /* let somebody remember it */
        while (atomic_load(&x.reads) < seen + READERS)
            sched_yield();
        struct task *again = NULL;
        world_ok(dead_replay(w.tasks, &owner, x.task_id, &again, &err), &err);
        atomic_store(&x.answered, again->version);
        task_free(again);
    }
    atomic_store(&x.over, true);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&x.stale), 0);
    assert_true(stats_of(w.tasks->cache).hits > REPLAYS / 2); /* the memory did answer */
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_evicts_the_least_recently_read),
        cmocka_unit_test(test_cache_holds_its_bound),
        cmocka_unit_test(test_cache_of_nothing),
        cmocka_unit_test(test_cache_get_returns_a_copy),
        cmocka_unit_test(test_cache_put_after_a_drop_is_refused),
        cmocka_unit_test(test_cache_against_a_model),
        cmocka_unit_test(test_cache_of_many_threads),
        cmocka_unit_test(test_no_stale_answer_after_a_replay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
