/* The transformer over the operator table. struct dit owns the parameters, struct dit_clip every
 * buffer that a step touches (dit_forward allocates nothing), struct dit_prompt the keys and values
 * of one prompt. Residual stream, norms and modulation are f32, what feeds products is act. With
 * two prompts their tokens lie one after the other and share every product. One thread. */
#include "engine/wan/dit.h"

#include "engine/wan/params.h"

#include <math.h>

#define PATCH_ROWS  4    /* latents of a token: 1 × 2 × 2 */
#define FFN_ROWS    8192 /* tokens whose hidden layer is kept at once: 150 MB for 1.3B in bf16 */
#define MODULATIONS 6    /* shift, scale, gate of the self-attention, then of the feed-forward */

struct linear {
    const struct ops_weight *w;
    const float *bias;
};

struct attention {
    struct linear q, k, v, o;
    const float *norm_q, *norm_k;
};

struct block {
    const float *modulation; /* [6, dim] */
    struct attention self, cross;
    const float *norm3_weight, *norm3_bias;
    struct linear up, down;
};

struct dit {
    const struct ops *ops;
    struct ops_ctx *ctx;
    struct wan_dit_config c;
    struct params *params;
    struct linear patch, text0, text2, head;
    const float *time0, *time0_bias, *time2, *time2_bias, *project, *project_bias; /* f32 */
    const float *head_modulation;                                                  /* [2, dim] */
    struct block *blocks;
};

struct dit_clip {
    const struct dit *dit;
    struct params *params; /* the buffers */
    int f, h, w, prompts;
    int64_t tokens;      /* of one prompt */
    float *cos, *sin;    /* [tokens, head / 2] */
    float *features;     /* [freq_dim] */
    float *e, *e_silu;   /* [dim] */
    float *e0, *m;       /* [6, dim]: of the time; of a block */
    float *x;            /* [prompts · tokens, dim] */
    void *y, *q, *k, *v; /* act, of the same shape */
    void *hidden;        /* act [chunk, ffn] */
    int64_t chunk;
    float *out;    /* [tokens, 4 · channels] */
    void *patches; /* act, the same shape */
    float *host;   /* [freq_dim] */
};

struct dit_prompt {
    const struct dit *dit;
    struct params *params;
    int64_t keys;
    float last_logit;
    void **k, **v; /* per block act [keys, dim] */
};

/* ---- the network ---- */

static struct linear linear_of(const struct dit *d, int64_t rows, int64_t cols, const char *name)
{
    const struct params_shape shape = {.rows = rows, .cols = cols};
    return (struct linear){.w = params_matrix(d->params, &shape, "%s.weight", name),
                           .bias = params_vector(d->params, rows, "%s.bias", name)};
}

static struct linear block_linear(const struct dit *d, int i, const char *name, int64_t rows,
                                  int64_t cols)
{
    char full[64];
    (void)snprintf(full, sizeof full, "blocks.%d.%s", i, name); /* fits */
    return linear_of(d, rows, cols, full);
}

static struct attention attention_of(const struct dit *d, int i, const char *kind)
{
    struct linear parts[4];
    for (int k = 0; k < 4; k++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%s.%c", kind, "qkvo"[k]); /* fits */
        parts[k] = block_linear(d, i, name, d->c.dim, d->c.dim);
    }
    return (struct attention){
        .q = parts[0],
        .k = parts[1],
        .v = parts[2],
        .o = parts[3],
        .norm_q = params_vector(d->params, d->c.dim, "blocks.%d.%s.norm_q.weight", i, kind),
        .norm_k = params_vector(d->params, d->c.dim, "blocks.%d.%s.norm_k.weight", i, kind)};
}

static struct block block_of(const struct dit *d, int i)
{
    struct params *p = d->params;
    int64_t dim = d->c.dim;
    return (struct block){.modulation =
                              params_vector(p, MODULATIONS * dim, "blocks.%d.modulation", i),
                          .self = attention_of(d, i, "self_attn"),
                          .cross = attention_of(d, i, "cross_attn"),
                          .norm3_weight = params_vector(p, dim, "blocks.%d.norm3.weight", i),
                          .norm3_bias = params_vector(p, dim, "blocks.%d.norm3.bias", i),
                          .up = block_linear(d, i, "ffn.0", d->c.ffn, dim),
                          .down = block_linear(d, i, "ffn.2", dim, d->c.ffn)};
}

static void load(struct dit *d)
{
    struct params *p = d->params;
    int64_t dim = d->c.dim, patch = PATCH_ROWS * d->c.channels;
    d->patch = linear_of(d, dim, patch, "patch_embedding");
    d->text0 = linear_of(d, dim, d->c.text_dim, "text_embedding.0");
    d->text2 = linear_of(d, dim, dim, "text_embedding.2");
    d->time0 = params_vector(p, dim * d->c.freq_dim, "time_embedding.0.weight");
    d->time0_bias = params_vector(p, dim, "time_embedding.0.bias");
    d->time2 = params_vector(p, dim * dim, "time_embedding.2.weight");
    d->time2_bias = params_vector(p, dim, "time_embedding.2.bias");
    d->project = params_vector(p, MODULATIONS * dim * dim, "time_projection.1.weight");
    d->project_bias = params_vector(p, MODULATIONS * dim, "time_projection.1.bias");
    d->head = linear_of(d, patch, dim, "head.head");
    d->head_modulation = params_vector(p, 2 * dim, "head.modulation");
    for (int i = 0; i < d->c.layers; i++)
        d->blocks[i] = block_of(d, i);
}

enum rl_rc dit_new(const struct ops *ops, struct ops_ctx *ctx, const struct wan_model *model,
                   const struct watch *watch, struct dit **ret_dit, struct rl_err *err)
{
    struct dit *d = calloc(1, sizeof *d);
    if (!d)
        return rl_fail(err, RL_NO_MEMORY, "transformer");
    *d = (struct dit){.ops = ops, .ctx = ctx, .c = wan_model_config(model)->dit};
    d->blocks = calloc((size_t)d->c.layers, sizeof *d->blocks);
    d->params = params_new(ops, ctx, model, WAN_DIT, watch);
    enum rl_rc rc = RL_OK;
    if (!d->blocks || !d->params) {
        rc = rl_fail(err, RL_NO_MEMORY, "transformer");
    } else {
        load(d);
        rc = params_ok(d->params, err);
    }
    if (rc != RL_OK) {
        dit_free(d);
        return rc;
    }
    *ret_dit = d;
    return RL_OK;
}

void dit_free(struct dit *d)
{
    if (!d)
        return;
    params_free(d->params);
    free(d->blocks);
    free(d);
}

/* ---- a clip ---- */

void dit_rope(int f, int h, int w, int head, float *cos_to, float *sin_to)
{
    int side = head / 6; /* lanes of rows and of columns; time has the rest */
    const int lanes[3] = {head / 2 - 2 * side, side, side};
    for (int64_t token = 0; token < (int64_t)f * h * w; token++) {
        const int64_t at[3] = {token / ((int64_t)h * w), token / w % h, token % w};
        for (int axis = 0; axis < 3; axis++)
            for (int i = 0; i < lanes[axis]; i++) {
                double angle = (double)at[axis] * pow(10000, -(double)i / lanes[axis]);
                *cos_to++ = (float)cos(angle);
                *sin_to++ = (float)sin(angle);
            }
    }
}

static enum rl_rc upload_rope(struct dit_clip *c, struct rl_err *err)
{
    const struct dit *d = c->dit;
    size_t n = (size_t)c->tokens * (size_t)(d->c.dim / d->c.heads / 2);
    AUTO_FREE float *host = malloc(2 * n * sizeof(float));
    if (!host)
        return rl_fail(err, RL_NO_MEMORY, "rotary table");
    dit_rope(c->f, c->h / 2, c->w / 2, d->c.dim / d->c.heads, host, host + n);
    enum rl_rc rc = d->ops->upload(d->ctx, c->cos, host, n * sizeof(float), err);
    if (rc == RL_OK)
        rc = d->ops->upload(d->ctx, c->sin, host + n, n * sizeof(float), err);
    return rc;
}

static float *floats(struct params *p, int64_t n)
{
    return params_room(p, (size_t)n * sizeof(float), false);
}

static void *acts(const struct dit *d, struct params *p, int64_t n)
{
    return params_room(p, (size_t)n * d->ops->act_bytes, false);
}

static void make_room(struct dit_clip *c)
{
    const struct dit *d = c->dit;
    struct params *p = c->params;
    int64_t dim = d->c.dim, rows = c->tokens * c->prompts;
    int64_t lanes = c->tokens * (dim / d->c.heads / 2);
    int64_t patches = c->tokens * PATCH_ROWS * d->c.channels;
    c->chunk = rows < FFN_ROWS ? rows : FFN_ROWS;
    c->cos = floats(p, lanes);
    c->sin = floats(p, lanes);
    c->features = floats(p, d->c.freq_dim);
    c->e = floats(p, dim);
    c->e_silu = floats(p, dim);
    c->e0 = floats(p, MODULATIONS * dim);
    c->m = floats(p, MODULATIONS * dim);
    c->x = floats(p, rows * dim);
    c->y = acts(d, p, rows * dim);
    c->q = acts(d, p, rows * dim);
    c->k = acts(d, p, rows * dim);
    c->v = acts(d, p, rows * dim);
    c->hidden = acts(d, p, c->chunk * d->c.ffn);
    c->out = floats(p, patches);
    c->patches = acts(d, p, patches);
}

enum rl_rc dit_clip_new(const struct dit *d, int f, int h, int w, int prompts,
                        struct dit_clip **ret_clip, struct rl_err *err)
{
    struct dit_clip *c = calloc(1, sizeof *c);
    if (!c)
        return rl_fail(err, RL_NO_MEMORY, "transformer");
    *c = (struct dit_clip){.dit = d,
                           .params = params_new(d->ops, d->ctx, NULL, WAN_DIT, NULL),
                           .f = f,
                           .h = h,
                           .w = w,
                           .prompts = prompts,
                           .tokens = (int64_t)f * (h / 2) * (w / 2),
                           .host = calloc((size_t)d->c.freq_dim, sizeof(float))};
    enum rl_rc rc = RL_OK;
    if (!c->params || !c->host) {
        rc = rl_fail(err, RL_NO_MEMORY, "transformer");
    } else {
        make_room(c);
        rc = params_ok(c->params, err);
    }
    if (rc == RL_OK)
        rc = upload_rope(c, err);
    if (rc != RL_OK) {
        dit_clip_free(c);
        return rc;
    }
    *ret_clip = c;
    return RL_OK;
}

void dit_clip_free(struct dit_clip *c)
{
    if (!c)
        return;
    params_free(c->params);
    free(c->host);
    free(c);
}

/* ---- a prompt ---- */

/* The text [keys, text_dim] through both layers of its embedding, to act [keys, dim]. */
static void embed_text(const struct dit *d, const void *text, int64_t keys, void *hidden,
                       void *context)
{
    d->ops->gemm(d->ctx, hidden, text, d->text0.w, d->text0.bias, NULL, keys, OPS_GELU_ACT);
    d->ops->gemm(d->ctx, context, hidden, d->text2.w, d->text2.bias, NULL, keys, OPS_STORE_ACT);
}

static void keys_and_values(const struct dit *d, struct dit_prompt *prompt, const void *context)
{
    int head = d->c.dim / d->c.heads;
    for (int i = 0; i < d->c.layers; i++) {
        const struct attention *a = &d->blocks[i].cross;
        d->ops->gemm(d->ctx, prompt->k[i], context, a->k.w, a->k.bias, NULL, prompt->keys,
                     OPS_STORE_ACT);
        d->ops->rms_rope(d->ctx, prompt->k[i], a->norm_k, NULL, NULL, prompt->keys, d->c.heads,
                         head);
        d->ops->gemm(d->ctx, prompt->v[i], context, a->v.w, a->v.bias, NULL, prompt->keys,
                     OPS_STORE_ACT);
    }
}

static enum rl_rc prompt_fill(const struct dit *d, struct dit_prompt *prompt, const void *text,
                              int n, struct rl_err *err)
{
    struct params *work = params_new(d->ops, d->ctx, NULL, WAN_DIT, NULL);
    if (!work)
        return rl_fail(err, RL_NO_MEMORY, "prompt");
    int64_t keys = prompt->keys, dim = d->c.dim;
    size_t row = (size_t)d->c.text_dim * d->ops->act_bytes;
    void *padded = params_room(work, (size_t)keys * row, true);
    void *hidden = acts(d, work, keys * dim), *context = acts(d, work, keys * dim);
    for (int i = 0; i < d->c.layers; i++) {
        prompt->k[i] = acts(d, prompt->params, keys * dim);
        prompt->v[i] = acts(d, prompt->params, keys * dim);
    }
    enum rl_rc rc = params_ok(work, err);
    if (rc == RL_OK)
        rc = params_ok(prompt->params, err);
    if (rc == RL_OK) {
        d->ops->copy(d->ctx, padded, text, (size_t)n * row);
        embed_text(d, padded, keys, hidden, context);
        keys_and_values(d, prompt, context);
        rc = d->ops->sync(d->ctx, err); /* before the buffers go */
    }
    params_free(work);
    return rc;
}

enum rl_rc dit_prompt_new(const struct dit *d, const void *text, int n,
                          struct dit_prompt **ret_prompt, struct rl_err *err)
{
    int padding = d->c.text_len - n;
    struct dit_prompt *prompt = calloc(1, sizeof *prompt);
    if (!prompt)
        return rl_fail(err, RL_NO_MEMORY, "prompt");
    *prompt = (struct dit_prompt){.dit = d,
                                  .params = params_new(d->ops, d->ctx, NULL, WAN_DIT, NULL),
                                  .keys = padding > 0 ? n + 1 : n,
                                  .last_logit = padding > 0 ? logf((float)padding) : 0,
                                  .k = calloc((size_t)d->c.layers, sizeof *prompt->k),
                                  .v = calloc((size_t)d->c.layers, sizeof *prompt->v)};
    enum rl_rc rc = prompt->params && prompt->k && prompt->v ? prompt_fill(d, prompt, text, n, err)
                                                             : rl_fail(err, RL_NO_MEMORY, "prompt");
    if (rc != RL_OK) {
        dit_prompt_free(prompt);
        return rc;
    }
    *ret_prompt = prompt;
    return RL_OK;
}

void dit_prompt_free(struct dit_prompt *prompt)
{
    if (!prompt)
        return;
    params_free(prompt->params);
    free(prompt->k);
    free(prompt->v);
    free(prompt);
}

/* ---- a step ---- */

enum rl_rc dit_time(struct dit_clip *c, double time, struct rl_err *err)
{
    const struct dit *d = c->dit;
    int half = d->c.freq_dim / 2;
    for (int i = 0; i < half; i++) {
        double angle = time * pow(10000, -(double)i / half);
        c->host[i] = (float)cos(angle);
        c->host[half + i] = (float)sin(angle);
    }
    enum rl_rc rc =
        d->ops->upload(d->ctx, c->features, c->host, (size_t)d->c.freq_dim * sizeof(float), err);
    if (rc != RL_OK)
        return rc;
    /* c->m is free between steps; the last layer runs twice, because the head wants its result
     * before the SiLU and the blocks after it */
    int64_t dim = d->c.dim;
    d->ops->gemm_f32(d->ctx, c->m, c->features, d->time0, d->time0_bias, 1, dim, d->c.freq_dim,
                     true);
    d->ops->gemm_f32(d->ctx, c->e, c->m, d->time2, d->time2_bias, 1, dim, dim, false);
    d->ops->gemm_f32(d->ctx, c->e_silu, c->m, d->time2, d->time2_bias, 1, dim, dim, true);
    d->ops->gemm_f32(d->ctx, c->e0, c->e_silu, d->project, d->project_bias, 1, MODULATIONS * dim,
                     dim, false);
    return RL_OK;
}

static void *at(const struct dit_clip *c, void *buffer, int prompt)
{
    size_t bytes = (size_t)c->tokens * (size_t)c->dit->c.dim * c->dit->ops->act_bytes;
    return (char *)buffer + (size_t)prompt * bytes;
}

static bool self_attention(struct dit_clip *c, const struct block *b, const struct watch *watch)
{
    const struct dit *d = c->dit;
    const struct attention *a = &b->self;
    int head = d->c.dim / d->c.heads;
    int64_t dim = d->c.dim, rows = c->tokens * c->prompts;
    d->ops->norm_modulate(d->ctx, c->y, c->x, c->m + dim, c->m, rows, dim);
    d->ops->gemm(d->ctx, c->q, c->y, a->q.w, a->q.bias, NULL, rows, OPS_STORE_ACT);
    d->ops->gemm(d->ctx, c->k, c->y, a->k.w, a->k.bias, NULL, rows, OPS_STORE_ACT);
    d->ops->gemm(d->ctx, c->v, c->y, a->v.w, a->v.bias, NULL, rows, OPS_STORE_ACT);
    for (int p = 0; p < c->prompts; p++) {
        void *q = at(c, c->q, p), *k = at(c, c->k, p);
        if (!watch_beat(watch, p, c->prompts))
            return false;
        d->ops->rms_rope(d->ctx, q, a->norm_q, c->cos, c->sin, c->tokens, d->c.heads, head);
        d->ops->rms_rope(d->ctx, k, a->norm_k, c->cos, c->sin, c->tokens, d->c.heads, head);
        d->ops->attention(d->ctx, at(c, c->y, p), q, k, at(c, c->v, p), c->tokens, c->tokens,
                          d->c.heads, head, 1 / sqrtf((float)head), NULL, 0);
    }
    d->ops->gemm(d->ctx, c->x, c->y, a->o.w, a->o.bias, c->m + 2 * dim, rows, OPS_ADD_GATED_F32);
    return true;
}

static void cross_attention(struct dit_clip *c, int i, const struct dit_prompt *const *prompts)
{
    const struct dit *d = c->dit;
    const struct block *b = &d->blocks[i];
    const struct attention *a = &b->cross;
    int head = d->c.dim / d->c.heads;
    int64_t dim = d->c.dim, rows = c->tokens * c->prompts;
    d->ops->norm_affine(d->ctx, c->y, c->x, b->norm3_weight, b->norm3_bias, rows, dim);
    d->ops->gemm(d->ctx, c->q, c->y, a->q.w, a->q.bias, NULL, rows, OPS_STORE_ACT);
    d->ops->rms_rope(d->ctx, c->q, a->norm_q, NULL, NULL, rows, d->c.heads, head);
    for (int p = 0; p < c->prompts; p++)
        d->ops->attention(d->ctx, at(c, c->y, p), at(c, c->q, p), prompts[p]->k[i],
                          prompts[p]->v[i], c->tokens, prompts[p]->keys, d->c.heads, head,
                          1 / sqrtf((float)head), NULL, prompts[p]->last_logit);
    d->ops->gemm(d->ctx, c->x, c->y, a->o.w, a->o.bias, NULL, rows, OPS_ADD_F32);
}

static bool feed_forward(struct dit_clip *c, const struct block *b, const struct watch *watch)
{
    const struct dit *d = c->dit;
    int64_t dim = d->c.dim, rows = c->tokens * c->prompts;
    d->ops->norm_modulate(d->ctx, c->y, c->x, c->m + 4 * dim, c->m + 3 * dim, rows, dim);
    for (int64_t from = 0; from < rows; from += c->chunk) {
        int64_t n = rows - from < c->chunk ? rows - from : c->chunk;
        const void *y = (const char *)c->y + (size_t)(from * dim) * d->ops->act_bytes;
        if (!watch_beat(watch, (int)(from / c->chunk), (int)(rows / c->chunk)))
            return false;
        d->ops->gemm(d->ctx, c->hidden, y, b->up.w, b->up.bias, NULL, n, OPS_GELU_ACT);
        d->ops->gemm(d->ctx, c->x + from * dim, c->hidden, b->down.w, b->down.bias, c->m + 5 * dim,
                     n, OPS_ADD_GATED_F32);
    }
    return true;
}

/* The velocity of each prompt from its tokens. */
static void head(struct dit_clip *c, float *const *v)
{
    const struct dit *d = c->dit;
    int64_t dim = d->c.dim;
    const float *const shift_and_e[] = {d->head_modulation, c->e};
    const float *const scale_and_e[] = {d->head_modulation + dim, c->e};
    const float one[] = {1, 1};
    d->ops->combine(d->ctx, c->m, shift_and_e, one, 2, dim);
    d->ops->combine(d->ctx, c->m + dim, scale_and_e, one, 2, dim);
    d->ops->norm_modulate(d->ctx, c->y, c->x, c->m + dim, c->m, c->tokens * c->prompts, dim);
    for (int p = 0; p < c->prompts; p++) {
        d->ops->gemm(d->ctx, c->out, at(c, c->y, p), d->head.w, d->head.bias, NULL, c->tokens,
                     OPS_STORE_F32);
        d->ops->unpatchify(d->ctx, v[p], c->out, d->c.channels, c->f, c->h, c->w);
    }
}

/* false: the watch said stop. */
static bool run_block(struct dit_clip *c, int i, const struct dit_prompt *const *prompts,
                      const struct watch *watch)
{
    const struct dit *d = c->dit;
    const struct block *b = &d->blocks[i];
    const float *const terms[] = {b->modulation, c->e0};
    const float ones[] = {1, 1};
    d->ops->combine(d->ctx, c->m, terms, ones, 2, MODULATIONS * d->c.dim);
    if (!self_attention(c, b, watch) || !watch_beat(watch, i, d->c.layers))
        return false;
    cross_attention(c, i, prompts);
    return feed_forward(c, b, watch);
}

enum rl_rc dit_forward(struct dit_clip *c, const float *x, const struct dit_prompt *const *prompts,
                       const struct watch *watch, float *const *v, struct rl_err *err)
{
    const struct dit *d = c->dit;
    int64_t dim = d->c.dim, one = c->tokens * dim;
    d->ops->patchify(d->ctx, c->patches, x, d->c.channels, c->f, c->h, c->w);
    d->ops->gemm(d->ctx, c->x, c->patches, d->patch.w, d->patch.bias, NULL, c->tokens,
                 OPS_STORE_F32);
    for (int p = 1; p < c->prompts; p++)
        d->ops->copy(d->ctx, c->x + p * one, c->x, (size_t)one * sizeof(float));
    for (int i = 0; i < d->c.layers; i++)
        if (!run_block(c, i, prompts, watch))
            return rl_fail(err, RL_CANCELED, "stopped at block %d", i);
    head(c, v);
    return RL_OK;
}
