/* Which models there are: the starter inside this program, and the folders of model.dir (by default
 * models/ in the state folder), each a model in ComfyUI's or diffusers' layout whose name is the
 * folder's. No state: every call looks again. */
#ifndef RL_ENGINE_WAN_LIBRARY_H
#define RL_ENGINE_WAN_LIBRARY_H

#include "engine/wan/model.h"

#define LIBRARY_STARTER    "starter" /* the name of the built-in model */
#define LIBRARY_NAME_BYTES 64
#define LIBRARY_MODELS     32 /* more in one folder are left out, with a log line */

struct config;

struct library {
    char names[LIBRARY_MODELS][LIBRARY_NAME_BYTES];
    size_t count;
};

/* The names, the starter's first, the others sorted. A folder that cannot be a name is passed over.
 */
void library_list(const struct config *cfg, struct library *ret_library);
/* errors: as wan_model_open. Returns new. */
enum rl_rc library_model(const struct config *cfg, const char *name, struct wan_model **ret_model,
                         struct rl_err *err) RL_NODISCARD;

#endif
