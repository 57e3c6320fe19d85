/* The catalogue of published models: what `reeld model pull` can get, and what files that were
 * brought by hand are recognised by. Constants; any thread. */
#ifndef RL_ENGINE_WAN_PUBLISHED_H
#define RL_ENGINE_WAN_PUBLISHED_H

#include "engine/wan/model.h"

struct published_file {
    enum wan_part part;
    const char *path;   /* below a model's folder: "vae/wan_2.1_vae.safetensors" */
    const char *source; /* below the mirror */
    int64_t bytes;
    const char *sha256; /* lower-case hex; NULL: not known */
};

struct published_model {
    const char *name; /* of its folder, and in requests */
    const char *title;
    const char *licence;  /* SPDX */
    int64_t memory_bytes; /* of a clip of its default size on a GPU in bf16, weights included */
    struct published_file files[WAN_PARTS];
};

extern const struct published_model published_models[];
extern const size_t published_count;

const struct published_model *published_find(const char *name); /* NULL: none */
int64_t published_bytes(const struct published_model *model);   /* of all files */

#endif
