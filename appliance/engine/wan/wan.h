/* The wan engine: Wan 2.x text-to-video, from safetensors, in this process. */
#ifndef RL_ENGINE_WAN_WAN_H
#define RL_ENGINE_WAN_WAN_H

#include "engine/engine.h"

/* The engine with the models that the library has now; *ret_engine NULL when it has none. A model
 * that cannot be opened is logged and left out. errors: RL_NO_MEMORY. Returns new. */
enum rl_rc wan_engine_new(const struct config *cfg, struct engine **ret_engine, struct rl_err *err)
    RL_NODISCARD;
void wan_engine_free(struct engine *engine); /* NULL allowed */

#endif
