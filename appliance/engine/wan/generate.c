/* One clip: prompt to features, noise to latents step by step, latents to frames one by one. Owns
 * every buffer of the clip; all of them are there before the first step. Runs on the pool thread
 * that owns the device. Invariants: a beat and a look at should_stop before every layer of each
 * network; a stop in the middle of a step leaves the latents as the step found them; latents are a
 * function of model and request alone, so a run that goes on from a checkpoint ends with the bits
 * of one that was never stopped. */
#include "engine/wan/run.h"

#include "base/json.h"
#include "base/log.h"
#include "engine/wan/checkpoint.h"
#include "engine/wan/sampler.h"
#include "engine/wan/scale.h"
#include "engine/wan/tokenizer.h"

#include <math.h>
#include <string.h>

struct clip {
    struct engine_run *run;
    const struct wan_config *config;
    const struct engine_request *request;
    const struct engine_ctl *ctl;
    struct clip_size size;
    int64_t n; /* latents */
    struct checkpoint_key key;
    int saved; /* steps in the newest checkpoint; -1: none */
    /* owned */
    struct sampler *sampler;
    struct dit_clip *dit;
    struct dit_prompt *prompt;
    float *x, *v[DIT_PROMPTS]; /* device [n] */
    uint8_t *bytes;            /* a checkpoint: head, latents, sampler, tail */
    struct vae_clip *vae;
    struct scaler *scaler; /* NULL: the size is right */
    uint8_t *rgb;          /* [height, width, 3] */
    float *frame;          /* latents of one frame [h, w, c] */
    int frames;            /* handed over */
};

static bool guided(const struct clip *c)
{
    return c->request->guidance_scale != 1;
}

static bool stopped(const struct clip *c)
{
    return c->ctl->should_stop && c->ctl->should_stop(c->ctl->user);
}

static void beat(const struct clip *c, enum engine_phase phase, int done, int total)
{
    if (c->ctl->progress)
        c->ctl->progress(c->ctl->user, phase, done, total);
}

/* ---- what was asked for ---- */

bool model_has_one_size(const struct wan_config *config)
{
    /* No published model makes pictures this small: it is a starter. */
    return config->defaults.width < 256;
}

struct clip_size clip_size_of(const struct wan_config *config, int width, int height, int frames)
{
    struct clip_size s = {.width = width, .height = height};
    if (model_has_one_size(config)) {
        s.width = config->defaults.width;
        s.height = config->defaults.height;
    }
    s.f = (frames - 1) / config->vae.scale_time + 1;
    s.h = s.height / config->vae.scale_space;
    s.w = s.width / config->vae.scale_space;
    return s;
}

/* Option `name` of the request, or the model's own when it says "auto" or nothing. */
static const char *choice(const struct rl_json *options, const char *name, const char *fallback)
{
    const char *word = rl_json_text(rl_json_get(options, name));
    return word && strcmp(word, "auto") != 0 ? word : fallback;
}

static enum rl_rc new_sampler(struct clip *c, struct rl_err *err)
{
    const struct wan_defaults *d = &c->config->defaults;
    AUTO_JSON struct rl_json *options = NULL;
    const char *text = c->request->options ? c->request->options : "{}";
    enum sampler_method method;
    enum sampler_grid grid;
    enum rl_rc rc = rl_json_parse(text, strlen(text), &options, err);
    if (rc != RL_OK)
        return rc;
    if (!sampler_method_parse(choice(options, "solver", d->method), &method))
        return rl_fail_field(err, RL_INVALID_FIELD, "options.solver", "is not known");
    if (!sampler_grid_parse(choice(options, "schedule", d->grid), &grid))
        return rl_fail_field(err, RL_INVALID_FIELD, "options.schedule", "is not known");
    return sampler_new(c->run->ops, c->run->ctx, method, grid, c->request->steps,
                       c->request->flow_shift, c->n, &c->sampler, err);
}

static const char *negative_text(const struct clip *c)
{
    return *c->request->negative_prompt ? c->request->negative_prompt
                                        : c->config->defaults.negative_prompt;
}

/* All that the latents depend on. */
static void hash_request(struct clip *c)
{
    const struct engine_request *r = c->request;
    struct {
        int64_t numbers[8];
        double reals[2];
        uint8_t texts[3][RL_HASH_BYTES];
    } all = {.numbers = {c->size.width, c->size.height, c->size.f, r->steps, r->seed},
             .reals = {r->guidance_scale, r->flow_shift}};
    const char *texts[] = {r->prompt, negative_text(c), r->options ? r->options : "{}"};
    for (size_t i = 0; i < RL_ARRAY_LEN(texts); i++)
        rl_hash(texts[i], strlen(texts[i]), all.texts[i]);
    rl_hash(&all, sizeof all, c->key.request);
    memcpy(c->key.model, c->run->digest, sizeof c->key.model);
}

/* ---- the prompt ---- */

static bool encode_beat(void *user, int done, int total)
{
    const struct clip *c = user;
    beat(c, ENGINE_ENCODE_TEXT, done, total);
    return !stopped(c);
}

static enum rl_rc encode(struct clip *c, const char *raw, struct dit_prompt **ret_prompt,
                         struct rl_err *err)
{
    const struct ops *ops = c->run->ops;
    const struct watch watch = {.user = c, .beat = encode_beat};
    size_t room = (size_t)c->config->dit.text_len, n = 0;
    AUTO_FREE char *text = prompt_clean(raw);
    AUTO_FREE int32_t *ids = malloc(room * sizeof *ids);
    void *rows = NULL;
    if (!text || !ids)
        return rl_fail(err, RL_NO_MEMORY, "prompt");
    enum rl_rc rc = tokenizer_encode(c->run->tokenizer, text, strlen(text), ids, room, &n, err);
    if (rc == RL_OK)
        rc = ops->alloc(c->run->ctx, n * (size_t)c->config->text.dim * ops->act_bytes, &rows, err);
    if (rc == RL_OK)
        rc = text_encode(c->run->text, ids, (int)n, &watch, rows, err);
    if (rc == RL_OK)
        rc = dit_prompt_new(c->run->dit, rows, (int)n, ret_prompt, err);
    ops->free(c->run->ctx, rows);
    return rc;
}

/* The negative prompt is nearly always the same: the last one is kept. */
static enum rl_rc encode_negative(struct clip *c, struct rl_err *err)
{
    struct engine_run *run = c->run;
    const char *text = negative_text(c);
    if (run->negative && strcmp(run->negative_text, text) == 0)
        return RL_OK;
    dit_prompt_free(run->negative);
    run->negative = NULL;
    free(run->negative_text);
    run->negative_text = rl_strdup(text);
    if (!run->negative_text)
        return rl_fail(err, RL_NO_MEMORY, "negative prompt");
    return encode(c, text, &run->negative, err);
}

/* ---- checkpoints ---- */

static size_t payload_bytes(const struct clip *c)
{
    return (size_t)c->n * sizeof(float) + sampler_state_bytes(c->sampler);
}

/* A checkpoint that cannot be kept costs time after a crash, not the run. */
static void save(struct clip *c)
{
    struct rl_err why = {0};
    int step = sampler_step(c->sampler);
    size_t latents = (size_t)c->n * sizeof(float), payload = payload_bytes(c);
    uint8_t *to = c->bytes + CHECKPOINT_HEAD_BYTES;
    if (step == c->saved || step == 0 || !c->ctl->checkpoint_save ||
        (c->ctl->checkpoint_due && !c->ctl->checkpoint_due(c->ctl->user)))
        return;
    enum rl_rc rc = c->run->ops->download(c->run->ctx, to, c->x, latents, &why);
    if (rc == RL_OK)
        rc = sampler_save(c->sampler, to + latents, &why);
    if (rc == RL_OK) {
        checkpoint_seal(&c->key, step, c->bytes, payload);
        rc = c->ctl->checkpoint_save(c->ctl->user, c->bytes,
                                     CHECKPOINT_HEAD_BYTES + payload + CHECKPOINT_TAIL_BYTES, &why);
    }
    if (rc != RL_OK)
        rl_log(RL_LOG_WARN, "checkpoint_not_saved", "engine=wan code=%s", rl_code_name(rc));
    c->saved = step;
}

/* Go on where an earlier attempt was, if its checkpoint is of this very work; else from noise. */
static enum rl_rc begin(struct clip *c, struct rl_err *err)
{
    int step = 0;
    const char *why = NULL;
    size_t latents = (size_t)c->n * sizeof(float);
    const uint8_t *payload = NULL;
    if (c->ctl->checkpoint)
        payload = checkpoint_open(&c->key, c->ctl->checkpoint, c->ctl->checkpoint_len,
                                  payload_bytes(c), &step, &why);
    if (why)
        rl_log(RL_LOG_INFO, "checkpoint_not_used", "engine=wan reason=\"%s\"", why);
    if (!payload) {
        c->run->ops->noise(c->run->ctx, c->x, (uint64_t)c->request->seed, c->n);
        return RL_OK;
    }
    c->saved = step;
    enum rl_rc rc = sampler_restore(c->sampler, step, payload + latents, err);
    if (rc == RL_OK)
        rc = c->run->ops->upload(c->run->ctx, c->x, payload, latents, err);
    return rc;
}

/* ---- noise to latents ---- */

static enum rl_rc make_room(struct clip *c, struct rl_err *err)
{
    const struct ops *ops = c->run->ops;
    size_t latents = (size_t)c->n * sizeof(float);
    float **buffers[] = {&c->x, &c->v[0], &c->v[1]};
    enum rl_rc rc = new_sampler(c, err);
    for (size_t i = 0; i < RL_ARRAY_LEN(buffers) && rc == RL_OK; i++) {
        void *mem = NULL;
        rc = ops->alloc(c->run->ctx, latents, &mem, err);
        *buffers[i] = mem;
    }
    if (rc != RL_OK)
        return rc;
    c->bytes = malloc(CHECKPOINT_HEAD_BYTES + payload_bytes(c) + CHECKPOINT_TAIL_BYTES);
    return c->bytes ? RL_OK : rl_fail(err, RL_NO_MEMORY, "checkpoint");
}

/* Within a step: a sign of life, no progress. */
static bool step_beat(void *user, int done, int total)
{
    const struct clip *c = user;
    (void)done;
    (void)total;
    beat(c, ENGINE_DENOISE, sampler_step(c->sampler), c->request->steps);
    return !stopped(c);
}

static enum rl_rc step(struct clip *c, struct rl_err *err)
{
    const struct watch watch = {.user = c, .beat = step_beat};
    const struct ops *ops = c->run->ops;
    const struct dit_prompt *const prompts[] = {c->prompt, c->run->negative};
    const float *const velocities[] = {c->v[0], c->v[1]};
    const float scale = (float)c->request->guidance_scale, factors[] = {scale, 1 - scale};
    enum rl_rc rc = dit_time(c->dit, sampler_time(c->sampler), err);
    if (rc != RL_OK)
        return rc;
    rc = dit_forward(c->dit, c->x, prompts, &watch, c->v, err);
    if (rc != RL_OK)
        return rc;
    if (guided(c))
        ops->combine(c->run->ctx, c->v[0], velocities, factors, 2, c->n);
    sampler_advance(c->sampler, c->x, c->v[0]);
    return ops->sync(c->run->ctx, err);
}

static enum rl_rc denoise(struct clip *c, struct rl_err *err)
{
    int total = c->request->steps;
    enum rl_rc rc = RL_OK;
    beat(c, ENGINE_DENOISE, sampler_step(c->sampler), total);
    while (sampler_step(c->sampler) < total && rc == RL_OK) {
        rc = step(c, err);
        if (rc == RL_OK) {
            beat(c, ENGINE_DENOISE, sampler_step(c->sampler), total);
            save(c);
        }
    }
    return rc;
}

static enum rl_rc make_latents(struct clip *c, struct rl_err *err)
{
    enum rl_rc rc = make_room(c, err);
    if (rc == RL_OK)
        rc = begin(c, err);
    if (rc != RL_OK || sampler_step(c->sampler) == c->request->steps)
        return rc;
    rc = encode(c, c->request->prompt, &c->prompt, err);
    if (rc == RL_OK && guided(c))
        rc = encode_negative(c, err);
    if (rc == RL_OK)
        rc = dit_clip_new(c->run->dit, c->size.f, c->size.h, c->size.w, guided(c) ? 2 : 1, &c->dit,
                          err);
    if (rc == RL_OK)
        rc = denoise(c, err);
    dit_clip_free(c->dit); /* its memory is the decoder's now */
    c->dit = NULL;
    return rc;
}

/* ---- latents to frames ---- */

static enum rl_rc on_picture(void *user, const void *picture, int h, int w, struct rl_err *err)
{
    struct clip *c = user;
    const struct engine_request *r = c->request;
    if (stopped(c))
        return rl_fail(err, RL_CANCELED, "stopped at frame %d", c->frames);
    enum rl_rc rc = c->run->ops->to_rgb(c->run->ctx, c->rgb, picture, h, w, err);
    if (rc != RL_OK)
        return rc;
    const struct engine_frame frame = {.rgb = c->scaler ? scaler_run(c->scaler, c->rgb) : c->rgb,
                                       .stride = (size_t)r->width * 3,
                                       .width = r->width,
                                       .height = r->height,
                                       .index = c->frames};
    rc = c->ctl->on_frame(c->ctl->user, &frame, err);
    if (rc == RL_OK)
        beat(c, ENGINE_DECODE, ++c->frames, r->frames);
    return rc;
}

/* Of [channels, f, h, w] one frame as [h, w, channels]; false: not all are numbers. */
static bool take_frame(const struct clip *c, const float *latents, int index)
{
    int64_t pixels = (int64_t)c->size.h * c->size.w;
    int channels = c->config->dit.channels;
    bool finite = true;
    for (int channel = 0; channel < channels; channel++) {
        const float *from = latents + ((int64_t)channel * c->size.f + index) * pixels;
        for (int64_t i = 0; i < pixels; i++) {
            c->frame[i * channels + channel] = from[i];
            finite = finite && isfinite(from[i]);
        }
    }
    return finite;
}

static enum rl_rc prepare_frames(struct clip *c, struct rl_err *err)
{
    const struct engine_request *r = c->request;
    size_t pixels = (size_t)c->size.width * (size_t)c->size.height;
    c->rgb = malloc(3 * pixels);
    c->frame = malloc((size_t)c->size.h * (size_t)c->size.w * (size_t)c->config->dit.channels *
                      sizeof *c->frame);
    if (!c->rgb || !c->frame)
        return rl_fail(err, RL_NO_MEMORY, "frames");
    enum rl_rc rc = RL_OK;
    if (c->size.width != r->width || c->size.height != r->height)
        rc = scaler_new(c->size.width, c->size.height, r->width, r->height, &c->scaler, err);
    if (rc == RL_OK)
        rc = vae_clip_new(c->run->vae, c->size.h, c->size.w, &c->vae, err);
    return rc;
}

static bool decode_beat(void *user, int done, int total)
{
    const struct clip *c = user;
    (void)done;
    (void)total;
    beat(c, ENGINE_DECODE, c->frames, c->request->frames);
    return !stopped(c);
}

static enum rl_rc make_frames(struct clip *c, struct rl_err *err)
{
    const struct watch watch = {.user = c, .beat = decode_beat};
    const struct vae_sink sink = {.user = c, .frame = on_picture, .watch = &watch};
    float *latents = (float *)(void *)(c->bytes + CHECKPOINT_HEAD_BYTES); /* room enough, aligned */
    enum rl_rc rc = prepare_frames(c, err);
    if (rc == RL_OK)
        rc = c->run->ops->download(c->run->ctx, latents, c->x, (size_t)c->n * sizeof *latents, err);
    beat(c, ENGINE_DECODE, 0, c->request->frames);
    for (int i = 0; i < c->size.f && rc == RL_OK; i++) {
        if (!take_frame(c, latents, i)) {
            /* a checkpoint may hold them: OUTPUT_INVALID lets the next try start from nothing */
            rc = rl_fail(err, RL_OUTPUT_INVALID, "the latents are not numbers any more");
            if (err)
                err->retryable = c->request->retry_count == 0;
        }
        if (rc == RL_OK)
            rc = vae_decode(c->vae, c->frame, &sink, err);
    }
    return rc;
}

static void clip_free(struct clip *c)
{
    sampler_free(c->sampler);
    dit_clip_free(c->dit);
    dit_prompt_free(c->prompt);
    c->run->ops->free(c->run->ctx, c->x);
    c->run->ops->free(c->run->ctx, c->v[0]);
    c->run->ops->free(c->run->ctx, c->v[1]);
    free(c->bytes);
    vae_clip_free(c->vae);
    scaler_free(c->scaler);
    free(c->rgb);
    free(c->frame);
}

enum rl_rc wan_generate(struct engine_run *run, const struct engine_request *request,
                        const struct engine_ctl *ctl, struct rl_err *err)
{
    const struct wan_config *config = wan_model_config(run->model);
    struct clip c = {.run = run, .config = config, .request = request, .ctl = ctl, .saved = -1};
    c.size = clip_size_of(config, request->width, request->height, request->frames);
    c.n = (int64_t)config->dit.channels * c.size.f * c.size.h * c.size.w;
    hash_request(&c);
    enum rl_rc rc = make_latents(&c, err);
    if (rc == RL_OK)
        rc = make_frames(&c, err);
    if (rc == RL_CANCELED)
        save(&c);
    clip_free(&c);
    return rc;
}
