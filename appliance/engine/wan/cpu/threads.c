/* The workers sleep on a condition; whoever finds tasks left joins the call in progress, so the
 * caller never waits for one that woke too late. Before it sleeps a worker looks for the next call
 * for some microseconds: the calls of a small network follow each other faster than a thread is
 * woken. Tasks are drawn from a counter, in order. */
#include "engine/wan/cpu/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define RELAX() _mm_pause()
#else
#define RELAX() atomic_signal_fence(memory_order_seq_cst)
#endif

#define LOOKS 1000 /* about 15 µs */

struct worker {
    struct threads *threads;
    pthread_t thread;
    int number; /* from 1; the caller is 0 */
};

struct threads {
    pthread_mutex_t lock; /* guards: open, joined, sleeping, stop, task, arg, tasks */
    pthread_cond_t work, done;
    bool open; /* a call is in progress and may be joined */
    bool stop;
    int joined;   /* workers in the call */
    int sleeping; /* workers on `work` */
    void (*task)(void *arg, int64_t i, int worker);
    void *arg;
    int64_t tasks;
    _Atomic int64_t next;   /* task */
    _Atomic uint64_t calls; /* so far; what a worker looks at before it sleeps */
    _Atomic int busy;       /* as joined; what the caller looks at before it sleeps */
    int count;              /* of the array, and the caller */
    struct worker workers[];
};

static void work(struct threads *t, void (*task)(void *, int64_t, int), void *arg, int64_t tasks,
                 int worker)
{
    for (;;) {
        int64_t i = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
        if (i >= tasks)
            return;
        task(arg, i, worker);
    }
}

/* Until another call than number `seen` begins, for a while. */
static void look(struct threads *t, uint64_t seen)
{
    for (int i = 0; i < LOOKS; i++) {
        if (atomic_load_explicit(&t->calls, memory_order_relaxed) != seen)
            return;
        RELAX();
    }
}

static void *worker_main(void *arg)
{
    const struct worker *me = arg;
    struct threads *t = me->threads;
    (void)pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        if (!t->open) {
            t->sleeping++;
            (void)pthread_cond_wait(&t->work, &t->lock); /* until the next call, or the end */
            t->sleeping--;
            continue;
        }
        void (*task)(void *, int64_t, int) = t->task;
        void *task_arg = t->arg;
        int64_t tasks = t->tasks;
        uint64_t seen = atomic_load_explicit(&t->calls, memory_order_relaxed);
        t->joined++;
        atomic_store_explicit(&t->busy, t->joined, memory_order_relaxed);
        (void)pthread_mutex_unlock(&t->lock);
        work(t, task, task_arg, tasks, me->number);
        (void)pthread_mutex_lock(&t->lock);
        t->open = false; /* no task is left to draw */
        t->joined--;
        atomic_store_explicit(&t->busy, t->joined, memory_order_relaxed);
        if (t->joined == 0)
            (void)pthread_cond_signal(&t->done);
        (void)pthread_mutex_unlock(&t->lock);
        look(t, seen);
        (void)pthread_mutex_lock(&t->lock);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return NULL;
}

enum rl_rc threads_new(int count, struct threads **ret_threads, struct rl_err *err)
{
    struct threads *t = calloc(1, sizeof *t + (size_t)count * sizeof t->workers[0]);
    if (!t)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    (void)pthread_mutex_init(&t->lock, NULL); /* cannot fail without attributes */
    (void)pthread_cond_init(&t->work, NULL);
    (void)pthread_cond_init(&t->done, NULL);
    t->count = 1;
    for (int i = 1; i < count; i++) {
        struct worker *worker = &t->workers[i - 1];
        *worker = (struct worker){.threads = t, .number = i};
        int rc = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (rc != 0) {
            threads_free(t);
            return rl_fail(err, RL_UNAVAILABLE, "cannot start thread %d: %s", i, strerror(rc));
        }
        t->count++;
    }
    *ret_threads = t;
    return RL_OK;
}

void threads_free(struct threads *t)
{
    if (!t)
        return;
    (void)pthread_mutex_lock(&t->lock);
    t->stop = true;
    (void)pthread_cond_broadcast(&t->work);
    (void)pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->count - 1; i++)
        (void)pthread_join(t->workers[i].thread, NULL); /* a thread of ours, joined once */
    (void)pthread_cond_destroy(&t->done);
    (void)pthread_cond_destroy(&t->work);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}

int threads_count(const struct threads *t)
{
    return t->count;
}

void threads_run(struct threads *t, int64_t tasks, void (*task)(void *arg, int64_t i, int worker),
                 void *arg)
{
    if (t->count == 1 || tasks <= 1) {
        for (int64_t i = 0; i < tasks; i++)
            task(arg, i, 0);
        return;
    }
    (void)pthread_mutex_lock(&t->lock);
    t->task = task;
    t->arg = arg;
    t->tasks = tasks;
    t->open = true;
    atomic_store_explicit(&t->next, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->calls, 1, memory_order_relaxed);
    for (int64_t i = 0; i < t->sleeping && i < tasks - 1; i++)
        (void)pthread_cond_signal(&t->work);
    (void)pthread_mutex_unlock(&t->lock);
    work(t, task, arg, tasks, 0);
    for (int i = 0; i < LOOKS && atomic_load_explicit(&t->busy, memory_order_relaxed) > 0; i++)
        RELAX();
    (void)pthread_mutex_lock(&t->lock);
    t->open = false;
    while (t->joined > 0)
        (void)pthread_cond_wait(&t->done, &t->lock);
    (void)pthread_mutex_unlock(&t->lock);
}
