/* Inside of the catalogue, shared by its files only. */
#ifndef RL_ENGINE_CATALOGUE_H
#define RL_ENGINE_CATALOGUE_H

#include "engine/engine.h"

#define ENGINES_MAX 32 /* a plug-in folder with more engines is a mistake */

struct engines {
    const struct engine *list[ENGINES_MAX]; /* built-in or inside a handle */
    size_t count;
    struct engine *wan;         /* owned; in the list, unless there is no model */
    void *handles[ENGINES_MAX]; /* dlopen handles, owned */
    size_t handle_count;
    char *default_name; /* owned; "" = the first */
    bool unlocked;      /* hidden options may be used */
    int cpu_slots;
    struct engine_device devices[ENGINE_DEVICES_MAX];
    size_t device_count;
    int64_t host_bytes; /* each device's share of the memory that the process may use */
};

/* devices.c: fill in the devices, when all engines are listed. One that cannot be asked is logged.
 */
void engines_probe(struct engines *engines);

/* Add an engine; RL_CONFLICT for a taken name, RL_ENGINE_ERROR for a description that contradicts
 * itself or another ABI. */
enum rl_rc engines_add(struct engines *engines, const struct engine *engine, struct rl_err *err)
    RL_NODISCARD;
/* Load every *.so of `folder` in name order; what cannot be loaded is logged and left out. */
enum rl_rc engines_load_plugins(struct engines *engines, const char *folder, struct rl_err *err)
    RL_NODISCARD;

/* The model has such a knob at all; when not, any sane value is taken and only recorded. */
bool engine_uses_steps(const struct engine_model *model);
bool engine_uses_guidance(const struct engine_model *model);
bool engine_uses_shift(const struct engine_model *model);

/* Is `word` one of the words of "a|b|c"? */
bool engine_choice_has(const char *choices, const char *word);

#endif
