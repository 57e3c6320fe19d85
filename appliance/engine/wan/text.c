/* umT5: per layer a self-attention with a position bias of its own, and a gated GELU; no biases, no
 * 1/√d. Owns the parameters, of all layers or of one at a time; the embedding table stays in the
 * file, of which only the rows of the prompt are read. One thread. */
#include "engine/wan/text.h"

#include "engine/wan/params.h"

#include <math.h>

#define MAX_DISTANCE 128 /* of the logarithmic buckets */

struct layer {
    struct params *params;
    const float *norm_attn, *norm_ffn;
    const struct ops_weight *q, *k, *v, *o, *gate, *up, *down;
    const float *buckets; /* host [buckets, heads] */
};

struct text {
    const struct ops *ops;
    struct ops_ctx *ctx;
    const struct wan_model *model;
    struct wan_text_config c;
    struct params *params;
    const float *norm;
    struct layer *layers; /* NULL: streamed */
};

/* The buffers of one prompt. */
struct work {
    int n;
    float *x, *bias; /* f32 [n, dim]; [heads, n, n] */
    float *host;     /* room for one of both */
    void *h, *q, *k, *v, *a, *hidden;
};

int text_bucket(int distance, int count)
{
    int half = count / 2, exact = half / 2, far = abs(distance);
    if (far >= exact) {
        /* a little more, so that whole powers do not fall short by rounding */
        double octaves = log((double)far / exact) / log((double)MAX_DISTANCE / exact);
        far = exact + (int)(octaves * (half - exact) + 1e-6);
        if (far > half - 1)
            far = half - 1;
    }
    return far + (distance > 0 ? half : 0);
}

static enum rl_rc layer_load(const struct text *t, int i, const struct watch *watch,
                             struct layer *ret_layer, struct rl_err *err)
{
    struct params *p = params_new(t->ops, t->ctx, t->model, WAN_TEXT, watch);
    if (!p)
        return rl_fail(err, RL_NO_MEMORY, "text encoder");
    const struct params_shape in = {.rows = t->c.inner, .cols = t->c.dim},
                              out = {.rows = t->c.dim, .cols = t->c.inner},
                              up = {.rows = t->c.ffn, .cols = t->c.dim},
                              down = {.rows = t->c.dim, .cols = t->c.ffn};
#define BLOCK     "encoder.block.%d.layer."
#define ATTENTION BLOCK "0.SelfAttention."
#define FFN       BLOCK "1.DenseReluDense."
    struct layer l = {
        .params = p,
        .norm_attn = params_vector(p, t->c.dim, BLOCK "0.layer_norm.weight", i),
        .norm_ffn = params_vector(p, t->c.dim, BLOCK "1.layer_norm.weight", i),
        .q = params_matrix(p, &in, ATTENTION "q.weight", i),
        .k = params_matrix(p, &in, ATTENTION "k.weight", i),
        .v = params_matrix(p, &in, ATTENTION "v.weight", i),
        .o = params_matrix(p, &out, ATTENTION "o.weight", i),
        .gate = params_matrix(p, &up, FFN "wi_0.weight", i),
        .up = params_matrix(p, &up, FFN "wi_1.weight", i),
        .down = params_matrix(p, &down, FFN "wo.weight", i),
        .buckets = params_host(p, (int64_t)t->c.buckets * t->c.heads,
                               ATTENTION "relative_attention_bias.weight", i),
    };
#undef BLOCK
#undef ATTENTION
#undef FFN
    enum rl_rc rc = params_ok(p, err);
    if (rc != RL_OK) {
        params_free(p);
        return rc;
    }
    *ret_layer = l;
    return RL_OK;
}

enum rl_rc text_new(const struct ops *ops, struct ops_ctx *ctx, const struct wan_model *model,
                    bool resident, const struct watch *watch, struct text **ret_text,
                    struct rl_err *err)
{
    struct text *t = calloc(1, sizeof *t);
    if (!t)
        return rl_fail(err, RL_NO_MEMORY, "text encoder");
    *t = (struct text){.ops = ops, .ctx = ctx, .model = model, .c = wan_model_config(model)->text};
    t->params = params_new(ops, ctx, model, WAN_TEXT, watch);
    enum rl_rc rc = t->params ? RL_OK : rl_fail(err, RL_NO_MEMORY, "text encoder");
    if (rc == RL_OK) {
        t->norm = params_vector(t->params, t->c.dim, "encoder.final_layer_norm.weight");
        rc = params_ok(t->params, err);
    }
    if (rc == RL_OK && resident) {
        t->layers = calloc((size_t)t->c.layers, sizeof *t->layers);
        if (!t->layers)
            rc = rl_fail(err, RL_NO_MEMORY, "text encoder");
        for (int i = 0; i < t->c.layers && rc == RL_OK; i++)
            rc = layer_load(t, i, watch, &t->layers[i], err);
    }
    if (rc != RL_OK) {
        text_free(t);
        return rc;
    }
    *ret_text = t;
    return RL_OK;
}

void text_free(struct text *t)
{
    if (!t)
        return;
    for (int i = 0; t->layers && i < t->c.layers; i++)
        params_free(t->layers[i].params);
    free(t->layers);
    params_free(t->params);
    free(t);
}

/* ---- one prompt ---- */

static void *act(struct params *p, const struct text *t, int64_t n)
{
    return params_room(p, (size_t)n * t->ops->act_bytes, false);
}

static enum rl_rc work_new(const struct text *t, struct params *p, int n, struct work *ret_work,
                           struct rl_err *err)
{
    int64_t rows = n, pairs = rows * n * t->c.heads, inner = rows * t->c.inner;
    int64_t most = pairs > rows * t->c.dim ? pairs : rows * t->c.dim;
    struct work w = {.n = n,
                     .x = params_room(p, (size_t)(rows * t->c.dim) * sizeof(float), false),
                     .bias = params_room(p, (size_t)pairs * sizeof(float), false),
                     .host = malloc((size_t)most * sizeof(float)),
                     .h = act(p, t, rows * t->c.dim),
                     .q = act(p, t, inner),
                     .k = act(p, t, inner),
                     .v = act(p, t, inner),
                     .a = act(p, t, inner),
                     .hidden = act(p, t, rows * t->c.ffn)};
    enum rl_rc rc = params_ok(p, err);
    if (rc == RL_OK && !w.host)
        rc = rl_fail(err, RL_NO_MEMORY, "text encoder");
    if (rc != RL_OK)
        free(w.host);
    else
        *ret_work = w;
    return rc;
}

/* x = the table's rows of the ids. */
static enum rl_rc embed(const struct text *t, const struct work *w, const int32_t *ids,
                        struct rl_err *err)
{
    for (int i = 0; i < w->n; i++) {
        enum rl_rc rc = wan_model_row(t->model, WAN_TEXT, "shared.weight", ids[i], t->c.dim,
                                      w->host + (int64_t)i * t->c.dim, err);
        if (rc != RL_OK)
            return rc;
    }
    return t->ops->upload(t->ctx, w->x, w->host, (size_t)w->n * (size_t)t->c.dim * sizeof(float),
                          err);
}

static enum rl_rc position_bias(const struct text *t, const struct work *w, const struct layer *l,
                                struct rl_err *err)
{
    float *to = w->host;
    for (int head = 0; head < t->c.heads; head++)
        for (int query = 0; query < w->n; query++)
            for (int key = 0; key < w->n; key++)
                *to++ = l->buckets[text_bucket(key - query, t->c.buckets) * t->c.heads + head];
    return t->ops->upload(t->ctx, w->bias, w->host,
                          (size_t)t->c.heads * (size_t)w->n * (size_t)w->n * sizeof(float), err);
}

static void layer_run(const struct text *t, const struct work *w, const struct layer *l)
{
    const struct ops *ops = t->ops;
    int64_t n = w->n;
    ops->rms_norm(t->ctx, w->h, w->x, l->norm_attn, n, t->c.dim);
    ops->gemm(t->ctx, w->q, w->h, l->q, NULL, NULL, n, OPS_STORE_ACT);
    ops->gemm(t->ctx, w->k, w->h, l->k, NULL, NULL, n, OPS_STORE_ACT);
    ops->gemm(t->ctx, w->v, w->h, l->v, NULL, NULL, n, OPS_STORE_ACT);
    ops->attention(t->ctx, w->a, w->q, w->k, w->v, n, n, t->c.heads, t->c.inner / t->c.heads, 1,
                   w->bias, 0);
    ops->gemm(t->ctx, w->x, w->a, l->o, NULL, NULL, n, OPS_ADD_F32);
    ops->rms_norm(t->ctx, w->h, w->x, l->norm_ffn, n, t->c.dim);
    ops->gemm(t->ctx, w->hidden, w->h, l->up, NULL, NULL, n, OPS_STORE_ACT);
    ops->gemm(t->ctx, w->hidden, w->h, l->gate, NULL, NULL, n, OPS_GELU_GATE_ACT);
    ops->gemm(t->ctx, w->x, w->hidden, l->down, NULL, NULL, n, OPS_ADD_F32);
}

static enum rl_rc layer_step(const struct text *t, const struct work *w, int i, struct rl_err *err)
{
    struct layer streamed = {.params = NULL};
    enum rl_rc rc = t->layers ? RL_OK : layer_load(t, i, NULL, &streamed, err);
    const struct layer *l = t->layers ? &t->layers[i] : &streamed;
    if (!t->layers) {
        wan_model_want(t->model, WAN_TEXT, i, false);
        wan_model_want(t->model, WAN_TEXT, i + 1, true); /* beyond the last: of none */
    }
    if (rc == RL_OK)
        rc = position_bias(t, w, l, err);
    if (rc == RL_OK) {
        layer_run(t, w, l);
        if (!t->layers)
            rc = t->ops->sync(t->ctx, err); /* before the layer goes */
    }
    params_free(streamed.params);
    return rc;
}

enum rl_rc text_encode(struct text *t, const int32_t *ids, int n, const struct watch *watch,
                       void *y, struct rl_err *err)
{
    struct params *p = params_new(t->ops, t->ctx, t->model, WAN_TEXT, NULL);
    struct work w = {.host = NULL};
    enum rl_rc rc = p ? work_new(t, p, n, &w, err) : rl_fail(err, RL_NO_MEMORY, "text encoder");
    if (rc == RL_OK)
        rc = embed(t, &w, ids, err);
    for (int i = 0; i < t->c.layers && rc == RL_OK; i++) {
        rc = watch_beat(watch, i, t->c.layers)
                 ? layer_step(t, &w, i, err)
                 : rl_fail(err, RL_CANCELED, "stopped at layer %d", i);
    }
    if (rc == RL_OK) {
        t->ops->rms_norm(t->ctx, y, w.x, t->norm, n, t->c.dim);
        rc = t->ops->sync(t->ctx, err); /* before the buffers go */
    }
    free(w.host);
    params_free(p);
    return rc;
}
