/* For `clang -Wthread-safety` only (packaging/check lint includes it before every file): the mutex
 * as a capability, so that forgotten unlocks and RL_GUARDED_BY / RL_REQUIRES are checked. glibc's
 * own type cannot carry the attribute. Nothing built with this header is ever run. */
#ifndef RL_ANALYSIS_LOCKS_H
#define RL_ANALYSIS_LOCKS_H

#include <pthread.h>

struct __attribute__((capability("mutex"))) rl_checked_mutex {
    pthread_mutex_t raw;
};

#define RL_CHECKED static inline __attribute__((no_thread_safety_analysis))

RL_CHECKED int rl_checked_lock(struct rl_checked_mutex *m) __attribute__((acquire_capability(*m)))
{
    return pthread_mutex_lock(&m->raw);
}

RL_CHECKED int rl_checked_unlock(struct rl_checked_mutex *m) __attribute__((release_capability(*m)))
{
    return pthread_mutex_unlock(&m->raw);
}

RL_CHECKED int rl_checked_trylock(struct rl_checked_mutex *m)
    __attribute__((try_acquire_capability(0, *m)))
{
    return pthread_mutex_trylock(&m->raw);
}

RL_CHECKED int rl_checked_wait(pthread_cond_t *c, struct rl_checked_mutex *m)
    __attribute__((requires_capability(*m)))
{
    return pthread_cond_wait(c, &m->raw);
}

RL_CHECKED int rl_checked_timedwait(pthread_cond_t *c, struct rl_checked_mutex *m,
                                    const struct timespec *until)
    __attribute__((requires_capability(*m)))
{
    return pthread_cond_timedwait(c, &m->raw, until);
}

RL_CHECKED int rl_checked_clockwait(pthread_cond_t *c, struct rl_checked_mutex *m, clockid_t clock,
                                    const struct timespec *until)
    __attribute__((requires_capability(*m)))
{
    return pthread_cond_clockwait(c, &m->raw, clock, until);
}

RL_CHECKED int rl_checked_init(struct rl_checked_mutex *m, const pthread_mutexattr_t *attr)
{
    return pthread_mutex_init(&m->raw, attr);
}

RL_CHECKED int rl_checked_destroy(struct rl_checked_mutex *m)
{
    return pthread_mutex_destroy(&m->raw);
}

/* all zero is what glibc's own is, too */
#undef PTHREAD_MUTEX_INITIALIZER
#define PTHREAD_MUTEX_INITIALIZER                                                                  \
    {                                                                                              \
        .raw = { {0} }                                                                             \
    }

#define pthread_mutex_t                    struct rl_checked_mutex
#define pthread_mutex_lock(m)              rl_checked_lock(m)
#define pthread_mutex_unlock(m)            rl_checked_unlock(m)
#define pthread_mutex_trylock(m)           rl_checked_trylock(m)
#define pthread_mutex_init(m, a)           rl_checked_init(m, a)
#define pthread_mutex_destroy(m)           rl_checked_destroy(m)
#define pthread_cond_wait(c, m)            rl_checked_wait(c, m)
#define pthread_cond_timedwait(c, m, t)    rl_checked_timedwait(c, m, t)
#define pthread_cond_clockwait(c, m, k, t) rl_checked_clockwait(c, m, k, t)

#endif
