/* What the tests of checkpoints share: a world that saves at every chance, and the file of a task.
 */
#ifndef TEST_CHECKPOINT_WORLD_H
#define TEST_CHECKPOINT_WORLD_H

#include "world.h"

static inline int setup(void **state)
{
    static struct world w;
    world_init(&w);
    world_set(&w, "run.checkpoint_s", "0");
    world_set(&w, "task.retry_delay_ms", "0");
    world_open(&w);
    *state = &w;
    return 0;
}

static inline int teardown(void **state)
{
    world_end(*state);
    return 0;
}

static inline void reopen(struct world *w)
{
    world_close(w);
    world_open(w);
}

static inline const char *file_of(const struct world *w, int64_t id, char *path)
{
    (void)snprintf(path, 128, "%s/results/%lld.ckpt", w->dir, (long long)id);
    return path;
}

static inline bool there(const struct world *w, int64_t id)
{
    char path[128];
    return access(file_of(w, id, path), F_OK) == 0;
}

#endif
