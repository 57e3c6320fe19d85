/* A clip made of the networks alone, without the engine: encode two prompts, denoise with guidance,
 * decode. */
#ifndef TEST_WAN_FILM_H
#define TEST_WAN_FILM_H

#include "wan_world.h"

#include "engine/wan/dit.h"
#include "engine/wan/sampler.h"
#include "engine/wan/text.h"
#include "engine/wan/vae.h"

/* Prompt k of the fixture, encoded by the encoder itself. */
static inline struct dit_prompt *film_prompt(const struct world *w, const struct dit *dit,
                                             const char *name)
{
    struct rl_err err = {0};
    struct text *text = NULL;
    struct dit_prompt *made = NULL;
    size_t n;
    int32_t *ids = values(w, name, &n);
    size_t dim = (size_t)wan_model_config(w->model)->text.dim;
    void *rows = on_device(w, NULL, n * dim * w->ops->act_bytes);
    must(text_new(w->ops, w->ctx, w->model, true, NULL, &text, &err), &err);
    must(text_encode(text, ids, (int)n, NULL, rows, &err), &err);
    must(dit_prompt_new(dit, rows, (int)n, &made, &err), &err);
    w->ops->free(w->ctx, rows);
    text_free(text);
    free(ids);
    return made;
}

/* x: dims of the latents, [c, f, h, w]. */
static inline void film_denoise(const struct world *w, enum sampler_method method,
                                const int64_t *dims, float *x)
{
    const struct wan_defaults *d = &wan_model_config(w->model)->defaults;
    int64_t n = dims[0] * dims[1] * dims[2] * dims[3];
    struct rl_err err = {0};
    struct dit *dit = NULL;
    struct dit_clip *clip = NULL;
    struct sampler *sampler = NULL;
    float *v[2];
    must(dit_new(w->ops, w->ctx, w->model, NULL, &dit, &err), &err);
    struct dit_prompt *own[] = {film_prompt(w, dit, "text0.ids"), film_prompt(w, dit, "text2.ids")};
    const struct dit_prompt *const prompts[] = {own[0], own[1]};
    for (int i = 0; i < 2; i++)
        v[i] = on_device(w, NULL, (size_t)n * sizeof *v[i]);
    must(dit_clip_new(dit, (int)dims[1], (int)dims[2], (int)dims[3], 2, &clip, &err), &err);
    must(sampler_new(w->ops, w->ctx, method, SAMPLER_WAN, d->steps, d->shift, n, &sampler, &err),
         &err);
    while (sampler_step(sampler) < d->steps) {
        const float *const both[] = {v[0], v[1]};
        const float factors[] = {(float)d->guidance, (float)(1 - d->guidance)};
        must(dit_time(clip, sampler_time(sampler), &err), &err);
        must(dit_forward(clip, x, prompts, NULL, v, &err), &err);
        w->ops->combine(w->ctx, v[0], both, factors, 2, n);
        sampler_advance(sampler, x, v[0]);
    }
    for (int i = 0; i < 2; i++) {
        w->ops->free(w->ctx, v[i]);
        dit_prompt_free(own[i]);
    }
    sampler_free(sampler);
    dit_clip_free(clip);
    dit_free(dit);
}

static inline void film_decode(const struct world *w, const int64_t *dims, const float *z,
                               const struct vae_sink *sink)
{
    struct rl_err err = {0};
    struct vae *vae = NULL;
    struct vae_clip *clip = NULL;
    int64_t channels = dims[0], pixels = dims[2] * dims[3];
    float *frame = malloc((size_t)(channels * pixels) * sizeof *frame);
    assert_non_null(frame);
    must(vae_new(w->ops, w->ctx, w->model, NULL, &vae, &err), &err);
    must(vae_clip_new(vae, (int)dims[2], (int)dims[3], &clip, &err), &err);
    for (int64_t f = 0; f < dims[1]; f++) {
        for (int64_t i = 0; i < pixels; i++)
            for (int64_t c = 0; c < channels; c++)
                frame[i * channels + c] = z[(c * dims[1] + f) * pixels + i];
        must(vae_decode(clip, frame, sink, &err), &err);
    }
    free(frame);
    vae_clip_free(clip);
    vae_free(vae);
}

#endif
