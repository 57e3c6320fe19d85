/* Finished tasks answered from memory: a hash table whose entries are also a list in the order of
 * their last reading. What is read least recently makes room, so the bound in bytes holds whatever
 * the tasks are like. What changes a finished row (replay, callback result, dismissal, purge) drops
 * it after its COMMIT; a reader that looked before the drop may not put afterwards (generation).
 * Any thread: one mutex, held for a copy of one task (1 to 2 us), which 64 pollers do not feel. */
#include "task/internal.h"

#include <string.h>

#define MALLOC_COST   16   /* of each piece of memory, for the allocator */
#define BUCKET_BYTES  2048 /* about one entry per bucket when full */
#define LEAST_BUCKETS 16

struct cache_entry {
    struct task *task; /* owned */
    int64_t bytes;
    struct cache_entry *chain;         /* the next of its bucket */
    struct cache_entry *newer, *older; /* by the last reading */
};

struct cache {
    int64_t most_bytes;
    size_t bucket_count; /* a power of two */

    pthread_mutex_t lock;         /* guards: everything below */
    struct cache_entry **buckets; /* owned, [bucket_count] */
    struct cache_entry *newest, *oldest;
    uint64_t generation; /* grows with every drop */
    struct cache_stats stats;
};

struct cache *cache_new(int64_t most_bytes)
{
    struct cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return NULL;
    cache->most_bytes = most_bytes;
    cache->bucket_count = LEAST_BUCKETS;
    while ((int64_t)cache->bucket_count < most_bytes / BUCKET_BYTES)
        cache->bucket_count *= 2;
    cache->buckets = calloc(cache->bucket_count, sizeof(struct cache_entry *));
    if (!cache->buckets) {
        free(cache);
        return NULL;
    }
    pthread_mutex_init(&cache->lock, NULL);
    return cache;
}

static void entry_free(struct cache_entry *entry)
{
    if (entry)
        task_free(entry->task);
    free(entry);
}

void cache_free(struct cache *cache)
{
    if (!cache)
        return;
    for (struct cache_entry *entry = cache->newest, *older; entry; entry = older) {
        older = entry->older;
        entry_free(entry);
    }
    pthread_mutex_destroy(&cache->lock);
    free(cache->buckets);
    free(cache);
}

/* The link that points at the entry of this id, or at the end of its bucket. */
static struct cache_entry **place_locked(struct cache *cache, int64_t task_id)
{
    uint64_t hash = (uint64_t)task_id * UINT64_C(0x9e3779b97f4a7c15); /* 2^64 / golden ratio */
    struct cache_entry **at = &cache->buckets[(hash >> 32) & (cache->bucket_count - 1)];
    while (*at && (*at)->task->task_id != task_id)
        at = &(*at)->chain;
    return at;
}

static void unlink_age_locked(struct cache *cache, struct cache_entry *entry)
{
    *(entry->newer ? &entry->newer->older : &cache->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &cache->oldest) = entry->newer;
}

static void link_newest_locked(struct cache *cache, struct cache_entry *entry)
{
    entry->newer = NULL;
    entry->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = entry;
    cache->newest = entry;
}

/* Take the entry that *at points at out of the cache; the caller frees it. */
static struct cache_entry *take_locked(struct cache *cache, struct cache_entry **at)
{
    struct cache_entry *entry = *at;
    *at = entry->chain;
    unlink_age_locked(cache, entry);
    cache->stats.tasks--;
    cache->stats.bytes -= entry->bytes;
    return entry;
}

bool cache_get(struct cache *cache, int64_t task_id, struct task **ret_task)
{
    struct task *copy = NULL;
    pthread_mutex_lock(&cache->lock);
    struct cache_entry *entry = *place_locked(cache, task_id);
    if (entry)
        copy = task_clone(entry->task);
    if (copy && entry != cache->newest) {
        unlink_age_locked(cache, entry);
        link_newest_locked(cache, entry);
    }
    cache->stats.hits += copy != NULL;
    cache->stats.misses += copy == NULL;
    pthread_mutex_unlock(&cache->lock);
    if (copy)
        *ret_task = copy;
    return copy != NULL;
}

uint64_t cache_generation(struct cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    uint64_t generation = cache->generation;
    pthread_mutex_unlock(&cache->lock);
    return generation;
}

static int64_t cost(const struct task *task)
{
    size_t bytes = sizeof(struct cache_entry) + sizeof *task + 2 * MALLOC_COST;
#define COST_INT(name)
#define COST_REAL(name)
#define COST_TEXT(name)         bytes += task->name ? strlen(task->name) + 1 + MALLOC_COST : 0;
#define COST_COLUMN(type, name) COST_##type(name)
    TASK_COLUMNS(COST_COLUMN)
    return (int64_t)bytes;
}

/* NULL: not to be remembered, because it is too large or memory is short. */
static struct cache_entry *entry_new(const struct cache *cache, const struct task *task)
{
    int64_t bytes = cost(task);
    struct cache_entry *entry = bytes <= cache->most_bytes ? calloc(1, sizeof *entry) : NULL;
    if (!entry)
        return NULL;
    entry->bytes = bytes;
    entry->task = task_clone(task);
    if (!entry->task) {
        free(entry);
        return NULL;
    }
    return entry;
}

void cache_put(struct cache *cache, const struct task *task, uint64_t generation)
{
    struct cache_entry *entry = entry_new(cache, task), *gone = NULL;
    if (!entry)
        return;
    pthread_mutex_lock(&cache->lock);
    struct cache_entry **at = place_locked(cache, task->task_id);
    if (generation != cache->generation || *at) { /* a drop, or another reader, came first */
        gone = entry;
        gone->older = NULL;
    } else {
        *at = entry;
        link_newest_locked(cache, entry);
        cache->stats.tasks++;
        cache->stats.bytes += entry->bytes;
        while (cache->stats.bytes > cache->most_bytes) {
            struct cache_entry *old =
                take_locked(cache, place_locked(cache, cache->oldest->task->task_id));
            old->older = gone;
            gone = old;
            cache->stats.evictions++;
        }
    }
    pthread_mutex_unlock(&cache->lock);
    for (struct cache_entry *older; gone; gone = older) { /* outside of the lock */
        older = gone->older;
        entry_free(gone);
    }
}

void cache_drop(struct cache *cache, int64_t task_id)
{
    struct cache_entry *entry = NULL;
    pthread_mutex_lock(&cache->lock);
    cache->generation++;
    struct cache_entry **at = place_locked(cache, task_id);
    if (*at)
        entry = take_locked(cache, at);
    pthread_mutex_unlock(&cache->lock);
    entry_free(entry);
}

void cache_stats(struct cache *cache, struct cache_stats *ret_stats)
{
    pthread_mutex_lock(&cache->lock);
    *ret_stats = cache->stats;
    pthread_mutex_unlock(&cache->lock);
}
