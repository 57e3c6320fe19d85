/* The engine's description, and a model's way onto a device and off it. Owns the published table of
 * models, filled once. Models are opened again at load: what is described is what is in the files.
 * wan_engine_new and wan_engine_free on the main thread, memory_bytes on any, the rest on the pool
 * thread of a device.
 */
#include "engine/wan/wan.h"

#include "base/log.h"
#include "config/config.h"
#include "engine/wan/estimate.h"
#include "engine/wan/library.h"
#include "engine/wan/run.h"
#include "engine/wan/sampler.h"
#include "engine/wan/tokenizer.h"

#include <string.h>
#include <unistd.h>

#define DOC_BYTES 600
/* The small published model is made for 480p; what is larger it was not shown. */
#define WAN_MAX_PIXELS (832 * 480)

struct listed {
    struct engine engine; /* first: the one is cast to the other */
    struct engine_model models[LIBRARY_MODELS];
    struct wan_config configs[LIBRARY_MODELS]; /* of the same */
    char docs[LIBRARY_MODELS][DOC_BYTES];
    struct library library;
};

/* ---- description ---- */

static void describe(const struct wan_model *model, char *doc)
{
    const struct wan_config *c = wan_model_config(model);
    if (!strcmp(c->name, "starter"))
        (void)rl_copy_str(
            doc, DOC_BYTES,
            "the small model that comes with reeld, to make a video at once: it knows one thing, a "
            "single coloured shape that moves. Colours: red, green, blue, yellow, orange, purple, "
            "pink, cyan; motions: moving left, right, up or down, growing, shrinking, spinning, "
            "bouncing; backgrounds: black, white, gray, navy; shapes: circle, square, triangle, "
            "star, ring. Other words are passed over. Its pictures are 64 x 64 and shown larger. "
            "It is no picture of what Wan can do: add a big model for that");
    else
        (void)snprintf(doc, DOC_BYTES,
                       "text to video by %s: %.1f billion parameters, %s, %d frames", c->name,
                       (double)wan_model_parameters(model, WAN_DIT) / 1e9,
                       model_has_one_size(c) ? "one size" : "480p", c->defaults.frames); /* fits */
}

/* A small model's pictures are shown four times larger, at most sixteen times. */
static void small_limits(const struct wan_defaults *d, struct engine_model *m)
{
    m->min_px = d->width < d->height ? d->width : d->height;
    m->max_px = 16 * (d->width > d->height ? d->width : d->height);
    m->px_step = 2;
    m->width = 4 * d->width;
    m->height = 4 * d->height;
    m->min_frames = m->max_frames = m->frames;
}

static struct engine_model limits(const struct wan_config *c)
{
    const struct wan_defaults *d = &c->defaults;
    int patch = 2 * c->vae.scale_space, pixels = d->width * d->height;
    struct engine_model m = {.min_px = 8 * patch,
                             .max_px = 80 * patch,
                             .px_step = patch,
                             .max_pixels = pixels > WAN_MAX_PIXELS ? pixels : WAN_MAX_PIXELS,
                             .min_frames = 1,
                             .max_frames = d->frames,
                             .frame_step = c->vae.scale_time,
                             .min_fps = 1,
                             .max_fps = 60,
                             .min_steps = 1,
                             .max_steps = SAMPLER_STEPS,
                             .width = d->width,
                             .height = d->height,
                             .frames = d->frames,
                             .fps = d->fps,
                             .steps = d->steps,
                             .min_guidance = 1,
                             .max_guidance = 20,
                             .guidance = d->guidance,
                             .min_shift = 0.1,
                             .max_shift = 30,
                             .shift = d->shift};
    if (model_has_one_size(c)) {
        m.max_pixels = 0;
        small_limits(d, &m);
    }
    return m;
}

/* A model that cannot be opened is left out; memory that is short is an error. */
static enum rl_rc add_model(const struct config *cfg, struct listed *l, const char *name,
                            struct rl_err *err)
{
    struct wan_model *model = NULL;
    struct rl_err why = {0};
    char text[300];
    size_t i = l->engine.model_count;
    enum rl_rc rc = library_model(cfg, name, &model, &why);
    if (rc == RL_NO_MEMORY)
        return rl_fail(err, rc, "%s", why.reason);
    if (rc != RL_OK) {
        rl_log(RL_LOG_WARN, "model_left_out", "engine=wan model=%s code=%s reason=%s", name,
               rl_code_name(rc), rl_log_quote(why.reason, text, sizeof text));
        return RL_OK;
    }
    l->configs[i] = *wan_model_config(model);
    l->models[i] = limits(&l->configs[i]);
    describe(model, l->docs[i]);
    l->models[i].name = name;
    l->models[i].doc = l->docs[i];
    if (engine_model_is_sound(&l->models[i]))
        l->engine.model_count++;
    else
        rl_log(RL_LOG_WARN, "model_left_out",
               "engine=wan model=%s reason=\"its defaults are out of bounds\"", name);
    wan_model_close(model);
    return RL_OK;
}

/* ---- loading ---- */

/* Enough of the weights to tell this model from any other training of it. */
static void digest(struct engine_run *run)
{
    static const struct {
        enum wan_part part;
        const char *name;
    } samples[] = {{WAN_DIT, "head.head.weight"},
                   {WAN_DIT, "blocks.0.self_attn.q.weight"},
                   {WAN_TEXT, "encoder.final_layer_norm.weight"},
                   {WAN_TEXT, "encoder.block.0.layer.0.SelfAttention.q.weight"},
                   {WAN_VAE, "decoder.head.2.weight"},
                   {WAN_VAE, "decoder.conv1.weight"}};
    uint8_t all[RL_ARRAY_LEN(samples) + 1][RL_HASH_BYTES] = {{0}};
    const struct wan_config *c = wan_model_config(run->model);
    const int64_t numbers[] = {wan_model_parameters(run->model, WAN_DIT), c->dit.heads,
                               c->dit.text_len, (int64_t)run->ops->act_bytes};
    for (size_t i = 0; i < RL_ARRAY_LEN(samples); i++) {
        const struct tensor *t = wan_model_find(run->model, samples[i].part, samples[i].name);
        if (t)
            rl_hash(t->data, t->bytes, all[i]);
    }
    rl_hash(numbers, sizeof numbers, all[RL_ARRAY_LEN(samples)]);
    rl_hash(all, sizeof all, run->digest);
}

static void unload(struct engine_run *run)
{
    if (!run)
        return;
    free(run->negative_text);
    dit_prompt_free(run->negative);
    vae_free(run->vae);
    dit_free(run->dit);
    text_free(run->text);
    tokenizer_free(run->tokenizer);
    wan_model_close(run->model);
    if (run->ctx)
        run->ops->close(run->ctx);
    free(run);
}

/* The CPU's cores are shared by its slots. */
static int threads_of(const struct config *cfg)
{
    int64_t slots = config_int(cfg, CFG_POOL_CPU_SLOTS);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return slots > 1 ? (int)(cores > slots ? cores / slots : 1) : 0;
}

static bool load_beat(void *user, int done, int total)
{
    const struct engine_ctl *ctl = user;
    (void)done;
    (void)total;
    if (ctl->progress)
        ctl->progress(ctl->user, ENGINE_LOAD, 0, 1);
    return !ctl->should_stop || !ctl->should_stop(ctl->user);
}

static enum rl_rc load_networks(struct engine_run *run, const struct engine_ctl *ctl,
                                struct rl_err *err)
{
    const struct watch watch = {.user = (void *)(uintptr_t)ctl, .beat = load_beat};
    enum rl_rc rc = wan_model_tokenizer(run->model, &run->tokenizer, err);
    if (rc == RL_OK)
        rc = text_new(run->ops, run->ctx, run->model,
                      estimate_text_stays(wan_model_config(run->model), run->ops->act_bytes),
                      &watch, &run->text, err);
    if (rc == RL_OK)
        rc = dit_new(run->ops, run->ctx, run->model, &watch, &run->dit, err);
    if (rc == RL_OK)
        rc = vae_new(run->ops, run->ctx, run->model, &watch, &run->vae, err);
    return rc;
}

static enum rl_rc load(const struct config *cfg, const struct engine_device *device,
                       const char *model, const struct engine_ctl *ctl, struct engine_run **ret_run,
                       struct rl_err *err)
{
    struct engine_run *run = calloc(1, sizeof *run);
    if (!run)
        return rl_fail(err, RL_NO_MEMORY, "load %s", model);
    run->ops = ops_cpu();
    enum rl_rc rc = library_model(cfg, model, &run->model, err);
    if (rc == RL_OK)
        rc = run->ops->open(device->index, threads_of(cfg), &run->ctx, err);
    if (rc == RL_OK)
        rc = load_networks(run, ctl, err);
    if (rc != RL_OK) {
        unload(run);
        return rc;
    }
    digest(run);
    /* of a small one the pages are worth less than the faults of the next load */
    bool large = !estimate_text_stays(wan_model_config(run->model), run->ops->act_bytes);
    for (int part = 0; large && part < WAN_PARTS; part++)
        wan_model_want(run->model, (enum wan_part)part, WAN_WHOLE_PART, false);
    *ret_run = run;
    return RL_OK;
}

static int64_t memory_bytes(const struct engine *engine, const struct engine_request *request)
{
    const struct listed *l = (const struct listed *)engine; /* its first member */
    const struct engine_model *model = engine_find_model(engine, request->model);
    if (!model)
        return 0;
    const struct wan_config *c = &l->configs[model - l->models];
    return estimate_clip(c, ops_cpu()->act_bytes,
                         clip_size_of(c, request->width, request->height, request->frames),
                         request->guidance_scale);
}

/* ---- the engine ---- */

enum rl_rc wan_engine_new(const struct config *cfg, struct engine **ret_engine, struct rl_err *err)
{
    static const struct engine_option options[] = {
        {.name = "solver",
         .type = ENGINE_OPTION_CHOICE,
         .choices = "auto|unipc|euler",
         .doc = "how the steps follow the flow; auto is what the model was published with"},
        {.name = "schedule",
         .type = ENGINE_OPTION_CHOICE,
         .choices = "auto|wan|diffusers",
         .doc = "the noise levels of the steps: Wan's from 0.999, diffusers' from 1 (models that "
                "need few steps expect these)"}};
    struct listed *l = calloc(1, sizeof *l);
    if (!l)
        return rl_fail(err, RL_NO_MEMORY, "wan");
    l->engine = (struct engine){.abi = ENGINE_ABI,
                                .name = "wan",
                                .doc = "text to video: Wan 2.1's architecture, run by reeld itself",
                                .models = l->models,
                                .options = options,
                                .option_count = RL_ARRAY_LEN(options),
                                .load = load,
                                .generate = wan_generate,
                                .unload = unload,
                                .memory_bytes = memory_bytes};
    library_list(cfg, &l->library);
    enum rl_rc rc = RL_OK;
    for (size_t i = 0; i < l->library.count && rc == RL_OK; i++)
        rc = add_model(cfg, l, l->library.names[i], err);
    if (rc != RL_OK || l->engine.model_count == 0) {
        free(l);
        l = NULL;
    }
    if (rc == RL_OK)
        *ret_engine = l ? &l->engine : NULL;
    return rc;
}

void wan_engine_free(struct engine *engine)
{
    free(engine); /* the first member of its struct listed */
}
