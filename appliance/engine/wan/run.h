/* Inside the engine: a model that is loaded, and a clip that is made with it. */
#ifndef RL_ENGINE_WAN_RUN_H
#define RL_ENGINE_WAN_RUN_H

#include "base/crypto.h"
#include "engine/engine.h"
#include "engine/wan/dit.h"
#include "engine/wan/text.h"
#include "engine/wan/vae.h"

struct engine_run {
    const struct ops *ops;
    struct ops_ctx *ctx;
    struct wan_model *model;
    struct tokenizer *tokenizer;
    struct text *text;
    struct dit *dit;
    struct vae *vae;
    uint8_t digest[RL_HASH_BYTES]; /* of the model */
    char *negative_text;           /* of `negative`, kept for the next clip; NULL: none yet */
    struct dit_prompt *negative;
};

/* What the networks make for a request: its own size, or that of a model which has only one. */
struct clip_size {
    int width, height; /* px */
    int f, h, w;       /* of the latents */
};

/* A model that was trained for one size alone makes that, and its pictures are scaled. */
bool model_has_one_size(const struct wan_config *config);
struct clip_size clip_size_of(const struct wan_config *config, int width, int height, int frames);

/* engine->generate. */
enum rl_rc wan_generate(struct engine_run *run, const struct engine_request *request,
                        const struct engine_ctl *ctl, struct rl_err *err);

#endif
