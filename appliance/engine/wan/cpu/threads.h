/* The worker threads of one context: they share out the numbered tasks of one call at a time.
 * Which thread does which task is left to chance, so a task's result must not depend on it. */
#ifndef RL_ENGINE_WAN_CPU_THREADS_H
#define RL_ENGINE_WAN_CPU_THREADS_H

#include "base/rl.h"

struct threads;

/* count: with the caller's own; at least 1. Returns new. */
enum rl_rc threads_new(int count, struct threads **ret_threads, struct rl_err *err) RL_NODISCARD;
void threads_free(struct threads *threads); /* NULL allowed */
int threads_count(const struct threads *threads);
/* Calls task(arg, i, worker) for every i below tasks and returns when all are done. worker: 0 …
 * count − 1, one call at a time for each. By the thread that made it. */
void threads_run(struct threads *threads, int64_t tasks,
                 void (*task)(void *arg, int64_t i, int worker), void *arg);

#endif
