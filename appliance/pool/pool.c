/* One thread per device: it waits at the doorbell, claims the head of the queue, loads the engine
 * if another is loaded, generates, and finishes. A thread owns its device's context for life.
 * Invariant: a slot is free only when its thread has returned from the run. */
#include "pool/pool.h"

#include "pool/generate.h"

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "engine/engine.h"
#include "events/events.h"
#include "task/task.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define IDLE_WAIT_MS 60000 /* a lost ring costs at most this; the doorbell is what wakes */
#define TROUBLE_MS   1000  /* after a failed claim (disk full, store down) */

struct worker {
    struct pool *pool;
    struct engine_device device;
    pthread_t thread;
    bool started;
    atomic_bool alive;

    /* guarded by pool->lock */
    bool ended;
    int64_t task_id;       /* 0 = idle */
    int64_t busy_since_us; /* monotonic: when the run under way began */
    int64_t runs, busy_us; /* begun, and time in those that are over */
};

struct pool {
    struct tasks *tasks;
    pool_replace_fn replace;
    void *user;
    atomic_bool stop;
    pthread_mutex_t lock; /* guards: in workers[] what their struct says */
    pthread_cond_t end;
    size_t count;
    struct worker workers[ENGINE_DEVICES_MAX];
};

static void log_failure(const char *event, const struct worker *worker, const struct rl_err *err)
{
    char text[300];
    rl_log(RL_LOG_WARN, event, "worker_id=%s code=%s reason=%s", worker->device.id,
           rl_code_name(err->code), rl_log_quote(err->reason, text, sizeof text));
}

static void begin_run(struct worker *worker, int64_t task_id)
{
    pthread_mutex_lock(&worker->pool->lock);
    worker->task_id = task_id;
    worker->busy_since_us = rl_mono_us();
    worker->runs++;
    pthread_mutex_unlock(&worker->pool->lock);
}

static void end_run(struct worker *worker)
{
    pthread_mutex_lock(&worker->pool->lock);
    worker->busy_us += rl_mono_us() - worker->busy_since_us;
    worker->task_id = 0;
    pthread_mutex_unlock(&worker->pool->lock);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct pool *pool = worker->pool;
    struct loaded loaded = {.engine = NULL};
    while (!atomic_load(&pool->stop)) {
        uint64_t tick = hub_tick(tasks_hub(pool->tasks)); /* before the claim looks */
        struct run *run = NULL;
        struct rl_err err;
        enum rl_rc rc = run_claim(pool->tasks, &worker->device, &run, &err);
        if (rc != RL_OK) {
            log_failure("claim_failed", worker, &err);
            (void)hub_wait(tasks_hub(pool->tasks), NULL, tick, TROUBLE_MS);
            continue;
        }
        if (!run) {
            (void)hub_wait(tasks_hub(pool->tasks), NULL, tick, IDLE_WAIT_MS);
            continue;
        }
        begin_run(worker, run_task(run)->task_id);
        rc = generate_run(pool->tasks, &worker->device, &loaded, run, &err);
        run_free(run);
        end_run(worker);
        if (rc == RL_GPU_ERROR) {
            pool->replace(pool->user, &err);
            break;
        }
    }
    generate_unload(&loaded);
    atomic_store(&worker->alive, false);
    pthread_mutex_lock(&pool->lock);
    worker->ended = true;
    pthread_cond_broadcast(&pool->end);
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static enum rl_rc start_workers(struct pool *pool, struct rl_err *err)
{
    for (size_t i = 0; i < pool->count; i++) {
        struct worker *worker = &pool->workers[i];
        worker->pool = pool;
        atomic_store(&worker->alive, true);
        int rc = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (rc != 0)
            return rl_fail(err, RL_NO_MEMORY, "pool thread: %s", strerror(rc));
        worker->started = true;
        rl_log(RL_LOG_INFO, "worker_started", "worker_id=%s backend=%s", worker->device.id,
               worker->device.backend);
    }
    return RL_OK;
}

enum rl_rc pool_start(struct tasks *tasks, pool_replace_fn replace, void *user,
                      struct pool **ret_pool, struct rl_err *err)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return rl_fail(err, RL_NO_MEMORY, "pool");
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->end, NULL);
    pool->tasks = tasks;
    pool->replace = replace;
    pool->user = user;
    const struct engine_device *devices = engines_devices(tasks_engines(tasks), &pool->count);
    for (size_t i = 0; i < pool->count; i++)
        pool->workers[i].device = devices[i];
    tasks_set_slots(tasks, (int64_t)pool->count);
    enum rl_rc rc = start_workers(pool, err);
    if (rc != RL_OK) {
        (void)pool_stop(pool, 5000); /* idle threads: they end at once */
        return rc;
    }
    *ret_pool = pool;
    return RL_OK;
}

/* Join a worker that ends before `until`; false: it does not. */
static bool join(struct pool *pool, struct worker *worker, const struct timespec *until)
{
    pthread_mutex_lock(&pool->lock);
    while (!worker->ended &&
           pthread_cond_clockwait(&pool->end, &pool->lock, CLOCK_MONOTONIC, until) == 0)
        ;
    bool ended = worker->ended;
    long long task_id = (long long)worker->task_id;
    pthread_mutex_unlock(&pool->lock);
    if (!ended) {
        rl_log(RL_LOG_ERROR, "worker_hangs", "worker_id=%s task_id=%lld", worker->device.id,
               task_id);
        return false;
    }
    pthread_join(worker->thread, NULL);
    worker->started = false; /* a second stop has nothing to join */
    return true;
}

bool pool_stop(struct pool *pool, int64_t wait_ms)
{
    if (!pool)
        return true;
    bool all = true;
    atomic_store(&pool->stop, true);
    runs_drain(pool->tasks);
    struct timespec until = rl_deadline(CLOCK_MONOTONIC, wait_ms);
    for (size_t i = 0; i < pool->count; i++) {
        struct worker *worker = &pool->workers[i];
        if (worker->started && !join(pool, worker, &until))
            all = false;
    }
    if (!all)
        return false; /* its threads still use the pool; the process ends */
    pthread_cond_destroy(&pool->end);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
    return true;
}

size_t pool_workers(struct pool *pool, struct pool_worker_info *workers, size_t room)
{
    size_t n = pool->count < room ? pool->count : room;
    pthread_mutex_lock(&pool->lock);
    for (size_t i = 0; i < n; i++) {
        struct worker *worker = &pool->workers[i];
        int64_t now = worker->task_id ? rl_mono_us() - worker->busy_since_us : 0;
        workers[i] = (struct pool_worker_info){.device = &worker->device,
                                               .task_id = worker->task_id,
                                               .runs = worker->runs,
                                               .busy_us = worker->busy_us + now,
                                               .alive = atomic_load(&worker->alive)};
    }
    pthread_mutex_unlock(&pool->lock);
    return n;
}
