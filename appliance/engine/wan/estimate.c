/* The sums of what text.c, dit.c and vae.c ask for, at their longest prompt. */
#include "engine/wan/estimate.h"

/* A text encoder up to this size stays on the device; a larger one (umT5-XXL has 11 GB) is there
 * for the moment in which a prompt is read, a layer at a time. */
#define TEXT_RESIDENT_BYTES (INT64_C(1) << 30)
#define F32                 ((int64_t)sizeof(float))
#define SAMPLER_COPIES      6 /* of the latents: x, two velocities, the sampler's three */
#define FFN_ROWS            8192

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t text_buffers(const struct wan_text_config *c, int64_t n, int64_t act)
{
    return n * c->dim * (F32 + 2 * act) + c->heads * n * n * F32 +
           n * (4 * c->inner + c->ffn) * act;
}

static int64_t prompt_bytes(const struct wan_dit_config *c, int64_t act)
{
    return 2 * (int64_t)c->layers * c->text_len * c->dim * act;
}

static int64_t dit_buffers(const struct wan_dit_config *c, struct clip_size size, int64_t prompts,
                           int64_t act)
{
    int64_t tokens = (int64_t)size.f * (size.h / 2) * (size.w / 2), rows = tokens * prompts;
    int64_t chunk = rows < FFN_ROWS ? rows : FFN_ROWS;
    return rows * c->dim * (F32 + 4 * act) + chunk * c->ffn * act +
           tokens * 4 * c->channels * (F32 + act) + tokens * (c->dim / c->heads) * F32;
}

static int64_t vae_buffers(const struct wan_vae_config *c, struct clip_size size, int64_t act)
{
    int64_t bytes = 0;
    for (int level = 0; level < c->levels; level++) {
        int in = level ? c->width[level - 1] / 2 : c->width[0];
        int64_t picture =
            most(in, c->width[level]) * ((int64_t)size.h << level) * ((int64_t)size.w << level);
        int64_t pasts = 4 * (int64_t)c->blocks + (c->temporal[level] ? 3 : 0);
        if (level == 0)
            pasts += 4 * 2 + 3 + 2; /* the middle's blocks, its q, k and v, the first convolution */
        if (level + 1 == c->levels)
            pasts += 2; /* the last convolution */
        bytes += picture * (3 * F32 + (pasts + 1) * act);
        if (level == 0)
            bytes += picture * F32; /* the latents */
        if (level + 1 == c->levels)
            bytes += 3 * act * ((int64_t)size.h << level) * ((int64_t)size.w << level); /* RGB */
    }
    return bytes;
}

int64_t estimate_bytes(const struct wan_config *c, size_t act_bytes, bool resident,
                       struct clip_size size, int prompts)
{
    int64_t act = (int64_t)act_bytes, bytes = 0;
    for (int part = 0; part < WAN_PARTS; part++)
        bytes += wan_config_bytes(c, (enum wan_part)part, act_bytes, part != WAN_TEXT || resident);
    bytes += SAMPLER_COPIES * F32 * c->dit.channels * size.f * size.h * size.w;
    bytes += prompts * prompt_bytes(&c->dit, act);
    return bytes + most(most(text_buffers(&c->text, c->dit.text_len, act),
                             dit_buffers(&c->dit, size, prompts, act)),
                        vae_buffers(&c->vae, size, act));
}

bool estimate_text_stays(const struct wan_config *c, size_t act_bytes)
{
    return wan_config_bytes(c, WAN_TEXT, act_bytes, true) <= TEXT_RESIDENT_BYTES;
}

int64_t estimate_clip(const struct wan_config *c, size_t act_bytes, struct clip_size size,
                      double guidance)
{
    return estimate_bytes(c, act_bytes, estimate_text_stays(c, act_bytes), size,
                          guidance != 1 ? 2 : 1);
}

int64_t estimate_default(const struct wan_config *c, size_t act_bytes)
{
    const struct wan_defaults *d = &c->defaults;
    return estimate_clip(c, act_bytes, clip_size_of(c, d->width, d->height, d->frames),
                         d->guidance);
}
