/* The tensors of the three networks, by published name and shape, as a function of the
 * configuration: what the loader checks and the estimates add up. No state, any thread. */
#include "engine/wan/parts.h"

#include <stdarg.h>
#include <string.h>

struct walk {
    const struct needs *needs;
    struct rl_err *err;
    enum rl_rc rc; /* of the first call that failed */
    char prefix[64];
    int layer;
};

struct shape {
    int ndim;
    int64_t dims[TENSOR_DIMS];
};

#define SHAPE(...)                                                                                 \
    ((struct shape){.ndim = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                    \
                    .dims = {__VA_ARGS__}})

/* prefix + name + end */
static void need(struct walk *w, enum need_kind kind, struct shape shape, const char *name,
                 const char *end)
{
    char whole[WAN_NAME];
    struct need need = {.name = whole, .kind = kind, .layer = w->layer, .ndim = shape.ndim};

    if (w->rc)
        return;
    (void)snprintf(whole, sizeof(whole), "%s%s%s", w->prefix, name, end); /* all short */
    memcpy(need.dims, shape.dims, sizeof(need.dims));
    w->rc = w->needs->each(w->needs->user, &need, w->err);
}

static void enter(struct walk *w, int layer, const char *format, int number)
{
    w->layer = layer;
    (void)snprintf(w->prefix, sizeof(w->prefix), format, number); /* all short */
}

/* A matrix or a convolution, and its bias. */
static void with_bias(struct walk *w, enum need_kind kind, struct shape shape, const char *name)
{
    need(w, kind, shape, name, ".weight");
    need(w, NEED_F32, SHAPE(shape.dims[0]), name, ".bias");
}

/* ---- transformer ---- */

static void dit_attention(struct walk *w, int64_t dim, const char *kind)
{
    static const char *const parts[] = {".q", ".k", ".v", ".o"};
    char name[32];

    for (size_t i = 0; i < RL_ARRAY_LEN(parts); i++) {
        (void)snprintf(name, sizeof(name), "%s%s", kind, parts[i]);
        with_bias(w, NEED_MATRIX, SHAPE(dim, dim), name);
    }
    need(w, NEED_F32, SHAPE(dim), kind, ".norm_q.weight");
    need(w, NEED_F32, SHAPE(dim), kind, ".norm_k.weight");
}

static void dit_needs(struct walk *w, const struct wan_dit_config *c)
{
    int64_t dim = c->dim;

    enter(w, -1, "", 0);
    with_bias(w, NEED_MATRIX, SHAPE(dim, c->channels, 1, 2, 2), "patch_embedding");
    with_bias(w, NEED_MATRIX, SHAPE(dim, c->text_dim), "text_embedding.0");
    with_bias(w, NEED_MATRIX, SHAPE(dim, dim), "text_embedding.2");
    with_bias(w, NEED_F32, SHAPE(dim, c->freq_dim), "time_embedding.0");
    with_bias(w, NEED_F32, SHAPE(dim, dim), "time_embedding.2");
    with_bias(w, NEED_F32, SHAPE(6 * dim, dim), "time_projection.1");
    need(w, NEED_F32, SHAPE(2 * dim), "head.modulation", "");
    with_bias(w, NEED_MATRIX, SHAPE(4 * c->channels, dim), "head.head");
    for (int i = 0; i < c->layers && !w->rc; i++) {
        enter(w, i, "blocks.%d.", i);
        need(w, NEED_F32, SHAPE(6 * dim), "modulation", "");
        dit_attention(w, dim, "self_attn");
        dit_attention(w, dim, "cross_attn");
        with_bias(w, NEED_F32, SHAPE(dim), "norm3");
        with_bias(w, NEED_MATRIX, SHAPE(c->ffn, dim), "ffn.0");
        with_bias(w, NEED_MATRIX, SHAPE(dim, c->ffn), "ffn.2");
    }
}

/* ---- text encoder ---- */

static void text_needs(struct walk *w, const struct wan_text_config *c)
{
    enter(w, -1, "", 0);
    need(w, NEED_TABLE, SHAPE(c->vocab, c->dim), "shared", ".weight");
    need(w, NEED_F32, SHAPE(c->dim), "encoder.final_layer_norm", ".weight");
    for (int i = 0; i < c->layers && !w->rc; i++) {
        enter(w, i, "encoder.block.%d.layer.", i);
        need(w, NEED_F32, SHAPE(c->dim), "0.layer_norm", ".weight");
        need(w, NEED_MATRIX, SHAPE(c->inner, c->dim), "0.SelfAttention.q", ".weight");
        need(w, NEED_MATRIX, SHAPE(c->inner, c->dim), "0.SelfAttention.k", ".weight");
        need(w, NEED_MATRIX, SHAPE(c->inner, c->dim), "0.SelfAttention.v", ".weight");
        need(w, NEED_MATRIX, SHAPE(c->dim, c->inner), "0.SelfAttention.o", ".weight");
        need(w, NEED_F32, SHAPE(c->buckets, c->heads), "0.SelfAttention.relative_attention_bias",
             ".weight");
        need(w, NEED_F32, SHAPE(c->dim), "1.layer_norm", ".weight");
        need(w, NEED_MATRIX, SHAPE(c->ffn, c->dim), "1.DenseReluDense.wi_0", ".weight");
        need(w, NEED_MATRIX, SHAPE(c->ffn, c->dim), "1.DenseReluDense.wi_1", ".weight");
        need(w, NEED_MATRIX, SHAPE(c->dim, c->ffn), "1.DenseReluDense.wo", ".weight");
    }
}

/* ---- VAE decoder ---- */

/* One residual block, from `in` channels to `out`. */
static void vae_residual(struct walk *w, int64_t in, int64_t out)
{
    need(w, NEED_F32, SHAPE(in), "residual.0.gamma", "");
    with_bias(w, NEED_MATRIX, SHAPE(out, in, 3, 3, 3), "residual.2");
    need(w, NEED_F32, SHAPE(out), "residual.3.gamma", "");
    with_bias(w, NEED_MATRIX, SHAPE(out, out, 3, 3, 3), "residual.6");
    if (in != out)
        with_bias(w, NEED_MATRIX, SHAPE(out, in, 1, 1, 1), "shortcut");
}

static void vae_level(struct walk *w, const struct wan_vae_config *c, int level)
{
    int64_t width = c->width[level];
    int64_t in = level == 0 ? width : c->width[level - 1] / 2;
    int k = level * (c->blocks + 1);

    for (int i = 0; i < c->blocks && !w->rc; i++, in = width) {
        enter(w, level, "decoder.upsamples.%d.", k + i);
        vae_residual(w, in, width);
    }
    if (level + 1 == c->levels)
        return;
    enter(w, level, "decoder.upsamples.%d.", k + c->blocks);
    with_bias(w, NEED_MATRIX, SHAPE(width / 2, width, 3, 3), "resample.1");
    if (c->temporal[level])
        with_bias(w, NEED_MATRIX, SHAPE(2 * width, width, 3, 1, 1), "time_conv");
}

static void vae_needs(struct walk *w, const struct wan_vae_config *c)
{
    int64_t first = c->width[0];
    int64_t last = c->width[c->levels - 1];

    enter(w, -1, "", 0);
    with_bias(w, NEED_MATRIX, SHAPE(c->channels, c->channels, 1, 1, 1), "conv2");
    with_bias(w, NEED_MATRIX, SHAPE(first, c->channels, 3, 3, 3), "decoder.conv1");
    need(w, NEED_F32, SHAPE(first), "decoder.middle.1.norm.gamma", "");
    with_bias(w, NEED_MATRIX, SHAPE(3 * first, first, 1, 1), "decoder.middle.1.to_qkv");
    with_bias(w, NEED_MATRIX, SHAPE(first, first, 1, 1), "decoder.middle.1.proj");
    need(w, NEED_F32, SHAPE(last), "decoder.head.0.gamma", "");
    with_bias(w, NEED_MATRIX, SHAPE(3, last, 3, 3, 3), "decoder.head.2");
    for (int i = 0; i <= 2; i += 2) {
        enter(w, -1, "decoder.middle.%d.", i);
        vae_residual(w, first, first);
    }
    for (int level = 0; level < c->levels; level++)
        vae_level(w, c, level);
}

enum rl_rc needs_of(const struct wan_config *config, enum wan_part part, const struct needs *needs,
                    struct rl_err *err)
{
    struct walk w = {.needs = needs, .err = err};

    switch (part) {
    case WAN_DIT:
        dit_needs(&w, &config->dit);
        break;
    case WAN_TEXT:
        text_needs(&w, &config->text);
        break;
    case WAN_VAE:
        vae_needs(&w, &config->vae);
        break;
    case WAN_PARTS:
        break;
    }
    return w.rc;
}
