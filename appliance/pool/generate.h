/* One run from claim to finish, on its worker's thread. Internal to pool/. */
#ifndef RL_POOL_GENERATE_H
#define RL_POOL_GENERATE_H

#include "base/rl.h"

struct engine;
struct engine_device;
struct engine_run;
struct run;
struct tasks;

/* What a worker has loaded: weights stay for the next task of the same model. */
struct loaded {
    const struct engine *engine; /* NULL = nothing */
    char model[128];
    struct engine_run *state;
};

/* Make the task's video and write its end. Always finishes the run (unless the store is down: then
 * it tries until it can). Returns RL_GPU_ERROR when the device must not be used again, else RL_OK.
 */
enum rl_rc generate_run(struct tasks *tasks, const struct engine_device *device,
                        struct loaded *loaded, struct run *run, struct rl_err *err);
void generate_unload(struct loaded *loaded);

#endif
