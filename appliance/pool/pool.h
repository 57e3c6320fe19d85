/* The generation pool: one thread per device, each claims, generates, encodes and finishes. */
#ifndef RL_POOL_POOL_H
#define RL_POOL_POOL_H

#include "base/rl.h"

struct engine_device;
struct tasks;
struct pool;

/* A device's context is unusable: log it and make the process replace itself. Any pool thread. */
typedef void (*pool_replace_fn)(void *user, const struct rl_err *err);

enum rl_rc pool_start(struct tasks *tasks, pool_replace_fn replace, void *user,
                      struct pool **ret_pool, struct rl_err *err) RL_NODISCARD;
/* Asks the runs to hand their tasks back and joins the threads; gives up on threads that do not
 * answer within wait_ms (false: a hung engine; the process must end without waiting for it). */
bool pool_stop(struct pool *pool, int64_t wait_ms);

struct pool_worker_info {
    const struct engine_device *device; /* borrowed with the pool; its id is the worker_id */
    int64_t task_id;                    /* 0 = idle */
    int64_t runs;                       /* begun since the start */
    int64_t busy_us;                    /* time in them, the one under way included; only grows */
    bool alive;
};
/* One per device, in the order of the devices, at most `room`; returns how many. Any thread. */
size_t pool_workers(struct pool *pool, struct pool_worker_info *workers, size_t room);

#endif
