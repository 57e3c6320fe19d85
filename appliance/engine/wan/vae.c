/* The decoder as a list of layers that a frame runs through; where the time doubles, the rest of
 * the list runs once for each of the two frames. struct vae owns the parameters, struct vae_clip
 * the buffers: per resolution the residual stream (f32), per kind of picture one spare frame that
 * takes turns with the frames that convolutions keep, so nothing is copied. One thread.
 *
 * The first-frame rule: where the time doubles, the first frame of all passes by the convolution
 * over time, and the later ones do not see it. Their past starts with zeros. */
#include "engine/wan/vae.h"

#include "engine/wan/params.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define PAST   2 /* frames that a causal convolution of three keeps */
#define COLORS 3

struct conv {
    const struct ops_weight *w;
    const float *bias;
    int ci, co;
    int kt, k; /* k × k in space */
};

struct residual {
    const float *norm1, *norm2;
    struct conv conv1, conv2, shortcut; /* shortcut.w NULL: the widths are equal */
};

struct frame_attention {
    const float *norm;
    const struct ops_weight *q, *k, *v, *proj;
    const float *q_bias, *k_bias, *v_bias, *proj_bias;
};

struct upsample {
    struct conv conv;
    struct conv time[2]; /* for the first and the second of two frames; w NULL: time stays */
};

enum layer_kind { LAYER_RESIDUAL, LAYER_ATTENTION, LAYER_UPSAMPLE };

struct layer {
    enum layer_kind kind;
    int level; /* of resolution: 0 is the latents' */
    union {
        struct residual residual;
        struct frame_attention attention;
        struct upsample upsample;
    };
};

struct vae {
    const struct ops *ops;
    struct ops_ctx *ctx;
    struct wan_vae_config c;
    struct params *params;
    struct conv unpack, first, last; /* conv2, decoder.conv1, decoder.head.2 */
    const float *last_norm;
    struct layer *layers;
    int count;
};

/* The past of one convolution. */
struct past {
    void *frames[PAST]; /* act, oldest first; NULL: before the clip */
    void *rooms[PAST];  /* not used yet */
};

/* The buffers of one resolution. */
struct level {
    int h, w;
    float *x, *other, *inner; /* f32 [h, w, widest] */
    void *spare;              /* act [h, w, widest] */
    void *q, *k, *v;          /* act, of the level with attention */
    void *doubled;            /* act, of levels where the time doubles */
};

struct vae_clip {
    const struct vae *vae;
    struct params *params;
    struct level *levels;
    struct past first, last, (*pasts)[2]; /* pasts: per layer, of its convolutions */
    bool *begun;                          /* per layer: its first frame has passed */
    float *host;                          /* [h, w, channels] */
    float *z;                             /* the same on the device */
    void *rgb;                            /* act [h', w', 3] */
};

/* ---- the network ---- */

static struct conv conv_rows(const struct vae *v, int first, int co, int of, int ci, int kt, int k,
                             const char *name)
{
    const struct params_shape shape = {
        .rows = co, .cols = ci, .taps = (int64_t)kt * k * k, .first = first, .of = of};
    const struct params_range range = {.first = first, .n = co, .of = of};
    return (struct conv){.w = params_matrix(v->params, &shape, "%s.weight", name),
                         .bias = params_part(v->params, &range, "%s.bias", name),
                         .ci = ci,
                         .co = co,
                         .kt = kt,
                         .k = k};
}

static struct conv conv_of(const struct vae *v, int co, int ci, int kt, int k, const char *name)
{
    return conv_rows(v, 0, co, co, ci, kt, k, name);
}

static struct layer residual_of(const struct vae *v, int level, int ci, int co, const char *at)
{
    struct layer l = {.kind = LAYER_RESIDUAL, .level = level};
    char name[96];
    (void)snprintf(name, sizeof name, "%s.residual.2", at); /* these fit */
    l.residual.conv1 = conv_of(v, co, ci, 3, 3, name);
    (void)snprintf(name, sizeof name, "%s.residual.6", at);
    l.residual.conv2 = conv_of(v, co, co, 3, 3, name);
    (void)snprintf(name, sizeof name, "%s.shortcut", at);
    if (ci != co)
        l.residual.shortcut = conv_of(v, co, ci, 1, 1, name);
    l.residual.norm1 = params_vector(v->params, ci, "%s.residual.0.gamma", at);
    l.residual.norm2 = params_vector(v->params, co, "%s.residual.3.gamma", at);
    return l;
}

static struct layer attention_of(const struct vae *v, int c, const char *at)
{
    const struct ops_weight *w[3];
    const float *bias[3];
    for (int i = 0; i < 3; i++) {
        const struct params_shape rows = {.rows = c, .cols = c, .first = i * c, .of = 3 * c};
        w[i] = params_matrix(v->params, &rows, "%s.to_qkv.weight", at);
        const struct params_range range = {.first = i * c, .n = c, .of = 3 * c};
        bias[i] = params_part(v->params, &range, "%s.to_qkv.bias", at);
    }
    const struct params_shape square = {.rows = c, .cols = c};
    return (struct layer){
        .kind = LAYER_ATTENTION,
        .attention = {.norm = params_vector(v->params, c, "%s.norm.gamma", at),
                      .q = w[0],
                      .k = w[1],
                      .v = w[2],
                      .q_bias = bias[0],
                      .k_bias = bias[1],
                      .v_bias = bias[2],
                      .proj = params_matrix(v->params, &square, "%s.proj.weight", at),
                      .proj_bias = params_vector(v->params, c, "%s.proj.bias", at)}};
}

static struct layer upsample_of(const struct vae *v, int level, int c, bool temporal,
                                const char *at)
{
    struct layer l = {.kind = LAYER_UPSAMPLE, .level = level};
    char name[96];
    (void)snprintf(name, sizeof name, "%s.resample.1", at); /* these fit */
    l.upsample.conv = conv_of(v, c / 2, c, 1, 3, name);
    (void)snprintf(name, sizeof name, "%s.time_conv", at);
    for (int i = 0; temporal && i < 2; i++)
        l.upsample.time[i] = conv_rows(v, i * c, c, 2 * c, c, 3, 1, name);
    return l;
}

/* The layers in order; v->layers has room for all. */
static void load(struct vae *v)
{
    const struct wan_vae_config *c = &v->c;
    int width = c->width[0], k = 0;
    struct layer *to = v->layers;
    v->unpack = conv_of(v, c->channels, c->channels, 1, 1, "conv2");
    v->first = conv_of(v, width, c->channels, 3, 3, "decoder.conv1");
    *to++ = residual_of(v, 0, width, width, "decoder.middle.0");
    *to++ = attention_of(v, width, "decoder.middle.1");
    *to++ = residual_of(v, 0, width, width, "decoder.middle.2");
    for (int level = 0; level < c->levels; level++) {
        int out = c->width[level];
        char name[64];
        for (int i = 0; i < c->blocks; i++) {
            (void)snprintf(name, sizeof name, "decoder.upsamples.%d", k++); /* fits */
            *to++ = residual_of(v, level, width, out, name);
            width = out;
        }
        if (level + 1 == c->levels)
            break;
        (void)snprintf(name, sizeof name, "decoder.upsamples.%d", k++); /* fits */
        *to++ = upsample_of(v, level, width, c->temporal[level], name);
        width /= 2;
    }
    v->count = (int)(to - v->layers);
    v->last_norm = params_vector(v->params, width, "decoder.head.0.gamma");
    v->last = conv_of(v, COLORS, width, 3, 3, "decoder.head.2");
}

enum rl_rc vae_new(const struct ops *ops, struct ops_ctx *ctx, const struct wan_model *model,
                   const struct watch *watch, struct vae **ret_vae, struct rl_err *err)
{
    struct vae *v = calloc(1, sizeof *v);
    if (!v)
        return rl_fail(err, RL_NO_MEMORY, "decoder");
    *v = (struct vae){.ops = ops, .ctx = ctx, .c = wan_model_config(model)->vae};
    v->params = params_new(ops, ctx, model, WAN_VAE, watch);
    v->layers = calloc(3 + (size_t)v->c.levels * ((size_t)v->c.blocks + 1), sizeof *v->layers);
    enum rl_rc rc = RL_OK;
    if (!v->params || !v->layers) {
        rc = rl_fail(err, RL_NO_MEMORY, "decoder");
    } else {
        load(v);
        rc = params_ok(v->params, err);
    }
    if (rc != RL_OK) {
        vae_free(v);
        return rc;
    }
    *ret_vae = v;
    return RL_OK;
}

void vae_free(struct vae *v)
{
    if (!v)
        return;
    params_free(v->params);
    free(v->layers);
    free(v);
}

/* ---- the buffers of a clip ---- */

static void *act(struct vae_clip *c, int64_t n)
{
    return params_room(c->params, (size_t)n * c->vae->ops->act_bytes, false);
}

/* The widest picture of a level, and so what all its act buffers hold: they take turns. */
static int64_t level_size(const struct vae *v, const struct level *levels, int level)
{
    int widest = level == 0 ? v->c.channels : 0;
    for (int i = 0; i < v->count; i++) {
        const struct layer *l = &v->layers[i];
        if (l->level == level && l->kind == LAYER_RESIDUAL) {
            int most = l->residual.conv1.ci > l->residual.conv1.co ? l->residual.conv1.ci
                                                                   : l->residual.conv1.co;
            widest = most > widest ? most : widest;
        }
    }
    return (int64_t)levels[level].h * levels[level].w * widest;
}

static void make_past(struct vae_clip *c, struct past *past, int64_t size)
{
    for (int i = 0; i < PAST; i++)
        past->rooms[i] = act(c, size);
}

static void make_level(struct vae_clip *c, int level)
{
    struct level *l = &c->levels[level];
    int64_t size = level_size(c->vae, c->levels, level);
    size_t bytes = (size_t)size * sizeof(float);
    l->x = params_room(c->params, bytes, false);
    l->other = params_room(c->params, bytes, false);
    l->inner = params_room(c->params, bytes, false);
    l->spare = act(c, size);
    for (int i = 0; i < c->vae->count; i++) {
        const struct layer *layer = &c->vae->layers[i];
        if (layer->level != level)
            continue;
        if (layer->kind == LAYER_RESIDUAL) {
            make_past(c, &c->pasts[i][0], size);
            make_past(c, &c->pasts[i][1], size);
        } else if (layer->kind == LAYER_ATTENTION) {
            l->q = act(c, size);
            l->k = act(c, size);
            l->v = act(c, size);
        } else if (layer->upsample.time[0].w) {
            make_past(c, &c->pasts[i][0], size);
            l->doubled = act(c, size);
        }
    }
}

static void make_room(struct vae_clip *c)
{
    const struct vae *v = c->vae;
    const struct level *finest = &c->levels[v->c.levels - 1];
    for (int i = 0; i < v->c.levels; i++)
        make_level(c, i);
    make_past(c, &c->first, level_size(v, c->levels, 0));
    make_past(c, &c->last, level_size(v, c->levels, v->c.levels - 1));
    c->z = params_room(c->params, (size_t)level_size(v, c->levels, 0) * sizeof(float), false);
    c->rgb = act(c, (int64_t)finest->h * finest->w * COLORS);
}

enum rl_rc vae_clip_new(const struct vae *v, int h, int w, struct vae_clip **ret_clip,
                        struct rl_err *err)
{
    struct vae_clip *c = calloc(1, sizeof *c);
    if (!c)
        return rl_fail(err, RL_NO_MEMORY, "decoder");
    *c = (struct vae_clip){
        .vae = v,
        .params = params_new(v->ops, v->ctx, NULL, WAN_VAE, NULL),
        .levels = calloc((size_t)v->c.levels, sizeof *c->levels),
        .pasts = calloc((size_t)v->count, sizeof *c->pasts),
        .begun = calloc((size_t)v->count, sizeof *c->begun),
        .host = malloc((size_t)h * (size_t)w * (size_t)v->c.channels * sizeof(float))};
    enum rl_rc rc = RL_OK;
    if (!c->params || !c->levels || !c->pasts || !c->begun || !c->host) {
        rc = rl_fail(err, RL_NO_MEMORY, "decoder");
    } else {
        for (int i = 0; i < v->c.levels; i++) {
            c->levels[i].h = h << i;
            c->levels[i].w = w << i;
        }
        make_room(c);
        rc = params_ok(c->params, err);
    }
    if (rc != RL_OK) {
        vae_clip_free(c);
        return rc;
    }
    *ret_clip = c;
    return RL_OK;
}

void vae_clip_free(struct vae_clip *c)
{
    if (!c)
        return;
    params_free(c->params);
    free(c->levels);
    free(c->pasts);
    free(c->begun);
    free(c->host);
    free(c);
}

/* ---- a frame ---- */

static int64_t pixels(const struct level *l)
{
    return (int64_t)l->h * l->w;
}

/* One convolution of the picture in `now` and, with kt = 3, of the two before it. */
static void convolve(const struct vae_clip *c, const struct level *l, const struct conv *conv,
                     const void *now, const struct past *past, bool upsample, void *y,
                     enum ops_epilogue epilogue)
{
    const void *in[PAST + 1] = {now};
    if (conv->kt > 1) {
        assert(past);
        memcpy(in, past->frames, sizeof past->frames);
        in[PAST] = now;
    }
    const struct ops_conv shape = {.in = in,
                                   .h = l->h,
                                   .w = l->w,
                                   .ci = conv->ci,
                                   .co = conv->co,
                                   .kt = conv->kt,
                                   .kh = conv->k,
                                   .kw = conv->k,
                                   .upsample = upsample};
    c->vae->ops->conv(c->vae->ctx, y, &shape, conv->w, conv->bias, epilogue);
}

/* The level's spare picture becomes the newest of the past, the oldest becomes the spare one. */
static void keep(struct level *l, struct past *past)
{
    void *oldest = past->frames[0] ? past->frames[0] : past->rooms[0];
    if (!past->frames[0] && past->frames[1])
        oldest = past->rooms[1];
    past->frames[0] = past->frames[1];
    past->frames[1] = l->spare;
    l->spare = oldest;
}

static void residual(struct vae_clip *c, int i)
{
    const struct vae *v = c->vae;
    const struct residual *r = &v->layers[i].residual;
    struct level *l = &c->levels[v->layers[i].level];
    float *sum = l->x;
    if (r->shortcut.w) {
        v->ops->to_act(v->ctx, l->spare, l->x, pixels(l) * r->shortcut.ci);
        v->ops->gemm(v->ctx, l->other, l->spare, r->shortcut.w, r->shortcut.bias, NULL, pixels(l),
                     OPS_STORE_F32);
        sum = l->other;
    }
    v->ops->channel_norm(v->ctx, l->spare, l->x, r->norm1, pixels(l), r->conv1.ci, true);
    convolve(c, l, &r->conv1, l->spare, &c->pasts[i][0], false, l->inner, OPS_STORE_F32);
    keep(l, &c->pasts[i][0]);
    v->ops->channel_norm(v->ctx, l->spare, l->inner, r->norm2, pixels(l), r->conv2.ci, true);
    convolve(c, l, &r->conv2, l->spare, &c->pasts[i][1], false, sum, OPS_ADD_F32);
    keep(l, &c->pasts[i][1]);
    if (sum == l->other) {
        l->other = l->x;
        l->x = sum;
    }
}

static void attention(struct vae_clip *c, const struct layer *layer)
{
    const struct vae *v = c->vae;
    const struct frame_attention *a = &layer->attention;
    const struct level *l = &c->levels[layer->level];
    int64_t n = pixels(l);
    int width = v->c.width[0];
    v->ops->channel_norm(v->ctx, l->spare, l->x, a->norm, n, width, false);
    v->ops->gemm(v->ctx, l->q, l->spare, a->q, a->q_bias, NULL, n, OPS_STORE_ACT);
    v->ops->gemm(v->ctx, l->k, l->spare, a->k, a->k_bias, NULL, n, OPS_STORE_ACT);
    v->ops->gemm(v->ctx, l->v, l->spare, a->v, a->v_bias, NULL, n, OPS_STORE_ACT);
    v->ops->attention(v->ctx, l->spare, l->q, l->k, l->v, n, n, 1, width, 1 / sqrtf((float)width),
                      NULL, 0);
    v->ops->gemm(v->ctx, l->x, l->spare, a->proj, a->proj_bias, NULL, n, OPS_ADD_F32);
}

static enum rl_rc emit(struct vae_clip *c, const struct vae_sink *sink, struct rl_err *err)
{
    const struct vae *v = c->vae;
    struct level *l = &c->levels[v->c.levels - 1];
    v->ops->channel_norm(v->ctx, l->spare, l->x, v->last_norm, pixels(l), v->last.ci, true);
    convolve(c, l, &v->last, l->spare, &c->last, false, c->rgb, OPS_STORE_ACT);
    keep(l, &c->last);
    return sink->frame(sink->user, c->rgb, l->h, l->w, err);
}

/* The layers from i on, and the frame that comes out of them. Recurses once per doubling of time.
 */
static enum rl_rc run_from(struct vae_clip *c, int i, const struct vae_sink *sink,
                           struct rl_err *err)
{
    const struct vae *v = c->vae;
    for (; i < v->count; i++) {
        const struct layer *layer = &v->layers[i];
        const struct upsample *up = &layer->upsample;
        struct level *l = &c->levels[layer->level], *next = l + 1;
        if (!watch_beat(sink->watch, i, v->count))
            return rl_fail(err, RL_CANCELED, "stopped at layer %d of the decoder", i);
        if (layer->kind == LAYER_RESIDUAL) {
            residual(c, i);
        } else if (layer->kind == LAYER_ATTENTION) {
            attention(c, layer);
        } else {
            v->ops->to_act(v->ctx, l->spare, l->x, pixels(l) * up->conv.ci);
            if (up->time[0].w && c->begun[i])
                break;
            c->begun[i] = true;
            convolve(c, l, &up->conv, l->spare, NULL, true, next->x, OPS_STORE_F32);
        }
    }
    if (i == v->count)
        return emit(c, sink, err);
    const struct upsample *up = &v->layers[i].upsample;
    struct level *l = &c->levels[v->layers[i].level], *next = l + 1;
    enum rl_rc rc = RL_OK;
    for (int half = 0; half < 2 && rc == RL_OK; half++) {
        convolve(c, l, &up->time[half], l->spare, &c->pasts[i][0], false, l->doubled,
                 OPS_STORE_ACT);
        convolve(c, l, &up->conv, l->doubled, NULL, true, next->x, OPS_STORE_F32);
        rc = run_from(c, i + 1, sink, err);
    }
    keep(l, &c->pasts[i][0]);
    return rc;
}

enum rl_rc vae_decode(struct vae_clip *c, const float *z, const struct vae_sink *sink,
                      struct rl_err *err)
{
    const struct vae *v = c->vae;
    struct level *l = &c->levels[0];
    int64_t n = pixels(l) * v->c.channels;
    for (int64_t i = 0; i < n; i++)
        c->host[i] = z[i] * v->c.std[i % v->c.channels] + v->c.mean[i % v->c.channels];
    enum rl_rc rc = v->ops->upload(v->ctx, c->z, c->host, (size_t)n * sizeof(float), err);
    if (rc != RL_OK)
        return rc;
    /* the middle's buffers are free until the first layer */
    v->ops->to_act(v->ctx, l->q, c->z, n);
    v->ops->gemm(v->ctx, l->spare, l->q, v->unpack.w, v->unpack.bias, NULL, pixels(l),
                 OPS_STORE_ACT);
    convolve(c, l, &v->first, l->spare, &c->first, false, l->x, OPS_STORE_F32);
    keep(l, &c->first);
    return run_from(c, 0, sink, err);
}
