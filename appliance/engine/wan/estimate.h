/* How much memory of a device a clip needs, told before it is tried. No state; any thread. */
#ifndef RL_ENGINE_WAN_ESTIMATE_H
#define RL_ENGINE_WAN_ESTIMATE_H

#include "engine/wan/run.h"

/* Bytes at the worst moment of a clip of that size with that many prompts: parameters, then the
 * larger of what the text encoder, the transformer and the decoder keep in buffers. resident: the
 * text encoder stays. */
int64_t estimate_bytes(const struct wan_config *config, size_t act_bytes, bool resident,
                       struct clip_size size, int prompts);
/* Does the text encoder stay on the device? A larger one is there a layer at a time. */
bool estimate_text_stays(const struct wan_config *config, size_t act_bytes);
/* The same for a clip with that guidance: 1 takes one prompt, any other two. */
int64_t estimate_clip(const struct wan_config *config, size_t act_bytes, struct clip_size size,
                      double guidance);
/* The same for a clip as the model makes it when a request says nothing. */
int64_t estimate_default(const struct wan_config *config, size_t act_bytes);

#endif
