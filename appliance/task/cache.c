/* Finished tasks answered from memory: a direct-mapped table by id, so its size is its bound and
 * the newest of a slot wins. What changes a finished row (replay, callback result, dismissal,
 * purge) drops it first; a reader that looked before the drop may not put afterwards (generation).
 * Any thread. */
#include "task/internal.h"

#include "config/config.h"

#include <string.h>

#define ENTRY_BYTES                                                                                \
    14336 /* a larger task is read from SQLite: the table's memory stays bounded                   \
           */

struct cache_slot {
    struct task *task; /* owned; NULL = empty */
};

static struct cache_slot *slot_locked(struct tasks *tasks, int64_t task_id)
{
    uint64_t hash = (uint64_t)task_id * UINT64_C(0x9e3779b97f4a7c15);
    return &tasks->cache[(hash >> 20) % tasks->cache_size];
}

bool cache_get(struct tasks *tasks, int64_t task_id, struct task **ret_task)
{
    struct task *copy = NULL;
    pthread_mutex_lock(&tasks->cache_lock);
    if (tasks->cache) {
        const struct cache_slot *slot = slot_locked(tasks, task_id);
        if (slot->task && slot->task->task_id == task_id)
            copy = task_clone(slot->task);
    }
    pthread_mutex_unlock(&tasks->cache_lock);
    atomic_fetch_add(copy ? &tasks->cache_hits : &tasks->cache_misses, 1);
    if (copy)
        *ret_task = copy;
    return copy != NULL;
}

uint64_t cache_generation(struct tasks *tasks)
{
    pthread_mutex_lock(&tasks->cache_lock);
    uint64_t generation = tasks->cache_seq;
    pthread_mutex_unlock(&tasks->cache_lock);
    return generation;
}

void cache_put(struct tasks *tasks, const struct task *task, uint64_t generation)
{
    size_t bytes = strlen(task->prompt) + strlen(task->negative_prompt) + strlen(task->options) +
                   (task->metadata ? strlen(task->metadata) : 0);
    if (bytes > ENTRY_BYTES)
        return;
    struct task *copy = task_clone(task); /* NULL: not remembered, no harm */
    struct task *old = NULL;
    pthread_mutex_lock(&tasks->cache_lock);
    if (!tasks->cache && config_int(tasks->cfg, CFG_CACHE_TASKS) > 0) {
        tasks->cache_size = (size_t)config_int(tasks->cfg, CFG_CACHE_TASKS);
        tasks->cache = calloc(tasks->cache_size, sizeof *tasks->cache);
    }
    if (copy && tasks->cache && generation == tasks->cache_seq) {
        struct cache_slot *slot = slot_locked(tasks, task->task_id);
        old = slot->task;
        slot->task = copy;
        copy = NULL;
    }
    pthread_mutex_unlock(&tasks->cache_lock);
    task_free(old);
    task_free(copy);
}

void cache_drop(struct tasks *tasks, int64_t task_id)
{
    struct task *old = NULL;
    pthread_mutex_lock(&tasks->cache_lock);
    tasks->cache_seq++;
    if (tasks->cache) {
        struct cache_slot *slot = slot_locked(tasks, task_id);
        if (slot->task && slot->task->task_id == task_id) {
            old = slot->task;
            slot->task = NULL;
        }
    }
    pthread_mutex_unlock(&tasks->cache_lock);
    task_free(old);
}

void cache_free(struct tasks *tasks)
{
    for (size_t i = 0; tasks->cache && i < tasks->cache_size; i++)
        task_free(tasks->cache[i].task);
    free(tasks->cache);
    tasks->cache = NULL;
}
