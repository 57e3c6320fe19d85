/* The configuration of a model from the shapes of its tensors, and from __metadata__ where shapes
 * cannot tell (heads of another width than 128, the latents' statistics, what it was trained on).
 * Files without metadata are the published Wan 2.1. No state, any thread. */
#include "engine/wan/parts.h"
#include "engine/wan/sampler.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define MAX_DIM    65536
#define MAX_LAYERS 512
#define MAX_VOCAB  4194304
#define HEAD_WIDTH 128 /* of every published Wan */
/* What the operators are made for (ops.h): lanes of a head; buckets up to the farthest of 128. */
#define MAX_HEAD    1024
#define MAX_BUCKETS 508

/* The latents' statistics of the Wan 2.1 VAE (Wan 2.1, wan/modules/vae.py). */
static const float wan_mean[16] = {-0.7571F, -0.7089F, -0.9113F, 0.1075F,  -0.1745F, 0.9653F,
                                   -0.1517F, 1.5508F,  0.4134F,  -0.0715F, 0.5517F,  -0.3632F,
                                   -0.1922F, -0.9497F, 0.2503F,  -0.2921F};
static const float wan_std[16] = {2.8184F, 1.4541F, 2.3275F, 2.6558F, 1.2196F, 1.7708F,
                                  2.6052F, 2.0743F, 3.2687F, 2.1526F, 2.8652F, 1.5579F,
                                  1.6382F, 1.1253F, 2.8251F, 1.9160F};

/* What Wan puts in place of an empty negative prompt: part of how it was tuned. */
static const char wan_negative[] =
    "色调艳丽，过曝，静态，细节模糊不清，字幕，风格，作品，画作，画面，静止，整体发灰，最差质量，"
    "低质量，JPEG压缩残留，丑陋的，残缺的，多余的手指，画得不好的手部，画得不好的脸部，畸形的，"
    "毁容的，形态畸形的肢体，手指融合，静止不动的画面，杂乱的背景，三条腿，背景人很多，倒着走";

/* ---- shapes ---- */

/* Dimension `which` of a tensor that must be there. */
static enum rl_rc dimension(const struct part *part, const char *name, int which, int max,
                            int *ret_dim, struct rl_err *err)
{
    const struct tensor *t = part_find(part, name);

    if (!t)
        return part_fail(part, name, "missing", err);
    if (t->ndim <= which || t->dims[which] < 1 || t->dims[which] > max)
        return part_fail(part, name, "a shape that no such model has", err);
    *ret_dim = (int)t->dims[which];
    return RL_OK;
}

/* How many layers there are: the first number without this tensor. */
static int count_layers(const struct part *part, const char *format)
{
    char name[WAN_NAME];
    int n = 0;

    do {
        (void)snprintf(name, sizeof(name), format, n);
    } while (part_find(part, name) && ++n < MAX_LAYERS);
    return n;
}

/* ---- metadata ---- */

static enum rl_rc fail_metadata(const struct part *part, const char *key, struct rl_err *err)
{
    return rl_fail(err, RL_INVALID_FIELD, "%.80s: __metadata__ %s is not what it should be",
                   part->label, key);
}

/* A number in min..max, of one or more separated by commas; *text moves behind it. */
static bool parse_number(const char **text, double min, double max, double *ret_value)
{
    char *end = NULL;

    errno = 0;
    double v = strtod(*text, &end); /* the locale of a daemon is "C" */
    if (end == *text || errno || !(v >= min && v <= max))
        return false;
    *text = end;
    *ret_value = v;
    return true;
}

/* Left as it is when the key is not there. */
static enum rl_rc meta_real(const struct part *part, const char *key, double min, double max,
                            double *value, struct rl_err *err)
{
    const char *text = safetensors_metadata(part->file, key);

    if (!text)
        return RL_OK;
    if (!parse_number(&text, min, max, value) || *text)
        return fail_metadata(part, key, err);
    return RL_OK;
}

static enum rl_rc meta_int(const struct part *part, const char *key, int min, int max, int *value,
                           struct rl_err *err)
{
    double v = *value;
    enum rl_rc rc = meta_real(part, key, min, max, &v, err);

    if (!rc && v != floor(v))
        rc = fail_metadata(part, key, err);
    if (!rc)
        *value = (int)v;
    return rc;
}

static enum rl_rc meta_text(const struct part *part, const char *key, char *value, size_t size,
                            struct rl_err *err)
{
    const char *text = safetensors_metadata(part->file, key);

    if (text && !rl_copy_str(value, size, text))
        return fail_metadata(part, key, err);
    return RL_OK;
}

/* n numbers; `fallback` when the key is not there (NULL: it must be). */
static enum rl_rc meta_list(const struct part *part, const char *key, int n, double min,
                            const float *fallback, float *values, struct rl_err *err)
{
    const char *text = safetensors_metadata(part->file, key);
    double v = 0;

    if (!text && !fallback)
        return rl_fail(err, RL_INVALID_FIELD,
                       "%.80s: no %s in its __metadata__, and the latents are not those of Wan 2.1",
                       part->label, key);
    for (int i = 0; i < n; i++) {
        if (!text) {
            values[i] = fallback[i];
            continue;
        }
        if ((i && *text++ != ',') || !parse_number(&text, min, 1e6, &v))
            return fail_metadata(part, key, err);
        values[i] = (float)v;
    }
    return text && *text ? fail_metadata(part, key, err) : RL_OK;
}

/* ---- the three networks ---- */

static enum rl_rc derive_dit(const struct part *part, struct wan_dit_config *c, struct rl_err *err)
{
    int out = 0;
    enum rl_rc rc = dimension(part, "patch_embedding.weight", 0, MAX_DIM, &c->dim, err);

    if (!rc)
        rc = dimension(part, "patch_embedding.weight", 1, MAX_DIM, &c->channels, err);
    if (!rc)
        rc = dimension(part, "head.head.weight", 0, MAX_DIM, &out, err);
    if (!rc && out != 4 * c->channels)
        return part_fail(part, "patch_embedding.weight",
                         "other channels in than out: not a text-to-video model", err);
    if (!rc)
        rc = dimension(part, "text_embedding.0.weight", 1, MAX_DIM, &c->text_dim, err);
    if (!rc)
        rc = dimension(part, "time_embedding.0.weight", 1, MAX_DIM, &c->freq_dim, err);
    if (!rc)
        rc = dimension(part, "blocks.0.ffn.0.weight", 0, MAX_DIM, &c->ffn, err);
    if (rc)
        return rc;

    c->layers = count_layers(part, "blocks.%d.modulation");
    c->heads = c->dim / HEAD_WIDTH;
    c->text_len = 512;
    rc = meta_int(part, "heads", 1, 1024, &c->heads, err);
    if (!rc)
        rc = meta_int(part, "text_len", 1, 4096, &c->text_len, err);
    if (!rc && (!c->heads || c->dim % c->heads || c->dim / c->heads % 2))
        rc = part_fail(
            part, "patch_embedding.weight",
            "its width is no multiple of the heads' (128, or by `heads` of the metadata)", err);
    else if (!rc && c->dim / c->heads > MAX_HEAD)
        rc = part_fail(part, "patch_embedding.weight", "heads of more than 1024 lanes", err);
    if (!rc && c->freq_dim % 2)
        rc = part_fail(part, "time_embedding.0.weight", "an odd number of time features", err);
    return rc;
}

static enum rl_rc derive_text(const struct part *part, struct wan_text_config *c,
                              struct rl_err *err)
{
#define LAYER "encoder.block.0.layer."
    static const char bias[] = LAYER "0.SelfAttention.relative_attention_bias.weight";
    enum rl_rc rc = dimension(part, "shared.weight", 0, MAX_VOCAB, &c->vocab, err);

    if (!rc)
        rc = dimension(part, "shared.weight", 1, MAX_DIM, &c->dim, err);
    if (!rc)
        rc = dimension(part, LAYER "0.SelfAttention.q.weight", 0, MAX_DIM, &c->inner, err);
    if (!rc)
        rc = dimension(part, LAYER "1.DenseReluDense.wi_0.weight", 0, MAX_DIM, &c->ffn, err);
    if (!rc)
        rc = dimension(part, bias, 0, MAX_BUCKETS, &c->buckets, err);
    if (!rc)
        rc = dimension(part, bias, 1, 1024, &c->heads, err);
    if (rc)
        return rc;
    c->layers = count_layers(part, "encoder.block.%d.layer.0.SelfAttention.q.weight");
    if (c->inner % c->heads || c->inner / c->heads > MAX_HEAD || c->buckets % 4)
        return part_fail(part, bias, "heads or buckets that do not fit the rest", err);
    return RL_OK;
#undef LAYER
}

/* Width and temporal of each level, as long as there are levels. */
static enum rl_rc derive_levels(const struct part *part, struct wan_vae_config *c,
                                struct rl_err *err)
{
    char name[WAN_NAME];

    c->levels = 0;
    c->scale_space = 1;
    c->scale_time = 1;
    for (int level = 0; level < WAN_VAE_LEVELS; level++) {
        int k = level * (c->blocks + 1);

        (void)snprintf(name, sizeof(name), "decoder.upsamples.%d.residual.2.weight", k);
        if (level && !part_find(part, name))
            break;
        enum rl_rc rc = dimension(part, name, 0, MAX_DIM, &c->width[level], err);
        if (rc)
            return rc;
        if (level) {
            c->scale_space *= 2;
            c->scale_time *= c->temporal[level - 1] ? 2 : 1;
        }
        /* half of them go on to the next level, and convolutions read pairs */
        if (c->width[level] % 2 || (level && c->width[level - 1] % 4))
            return part_fail(part, name, "an odd number of channels", err);
        (void)snprintf(name, sizeof(name), "decoder.upsamples.%d.time_conv.weight", k + c->blocks);
        c->temporal[level] = part_find(part, name) != NULL;
        c->levels++;
    }
    return RL_OK;
}

static enum rl_rc derive_vae(const struct part *part, struct wan_vae_config *c, struct rl_err *err)
{
    c->blocks = part->names.blocks;
    enum rl_rc rc = dimension(part, "conv2.weight", 0, WAN_VAE_CHANNELS, &c->channels, err);

    if (!rc && c->channels % 2)
        rc = part_fail(part, "conv2.weight", "an odd number of channels", err);
    if (!rc)
        rc = derive_levels(part, c, err);
    if (!rc && c->width[0] > MAX_HEAD) /* its attention has one head */
        rc = part_fail(part, "decoder.upsamples.0.residual.2.weight",
                       "a head of more than 1024 lanes", err);
    if (rc)
        return rc;
    bool published = c->channels == (int)RL_ARRAY_LEN(wan_mean);
    rc = meta_list(part, "latents_mean", c->channels, -1e6, published ? wan_mean : NULL, c->mean,
                   err);
    if (!rc)
        rc = meta_list(part, "latents_std", c->channels, 1e-6, published ? wan_std : NULL, c->std,
                       err);
    return rc;
}

/* ---- what a request gets that does not say ---- */

static enum rl_rc derive_defaults(const struct part *part, struct wan_config *c, struct rl_err *err)
{
    struct wan_defaults *d = &c->defaults;
    const char *negative = safetensors_metadata(part->file, "negative_prompt");
    bool small = c->dit.dim == 1536 && c->dit.layers == 30;
    bool large = c->dit.dim == 5120 && c->dit.layers == 40;
    int step = 2 * c->vae.scale_space;

    (void)snprintf(c->name, sizeof(c->name), "%s",
                   small   ? "Wan2.1-T2V-1.3B"
                   : large ? "Wan2.1-T2V-14B"
                           : "custom");
    /* the published defaults; for the 1.3B its README advises other shift and guidance */
    *d = (struct wan_defaults){.width = large ? 1280 : 832,
                               .height = large ? 720 : 480,
                               .frames = 81,
                               .fps = 16,
                               .steps = 50,
                               .shift = small ? 8 : 5,
                               .guidance = small ? 6 : 5,
                               .method = "unipc",
                               .grid = "wan",
                               .negative_prompt = negative ? negative : wan_negative};
    const struct {
        const char *key;
        int min, max;
        int *value;
    } numbers[] = {{"width", step, 80 * step, &d->width},
                   {"height", step, 80 * step, &d->height},
                   {"frames", 1, 1001, &d->frames},
                   {"fps", 1, 60, &d->fps},
                   {"steps", 1, 1000, &d->steps}};
    enum rl_rc rc = meta_text(part, "model", c->name, sizeof(c->name), err);

    for (size_t i = 0; !rc && i < RL_ARRAY_LEN(numbers); i++)
        rc = meta_int(part, numbers[i].key, numbers[i].min, numbers[i].max, numbers[i].value, err);
    if (!rc)
        rc = meta_real(part, "shift", 0.1, 30, &d->shift, err);
    if (!rc)
        rc = meta_real(part, "cfg", 1, 20, &d->guidance, err);
    if (!rc)
        rc = meta_text(part, "solver", d->method, sizeof(d->method), err);
    if (!rc)
        rc = meta_text(part, "schedule", d->grid, sizeof(d->grid), err);
    enum sampler_method method;
    enum sampler_grid grid;
    if (!rc && !sampler_method_parse(d->method, &method))
        rc = fail_metadata(part, "solver", err);
    if (!rc && !sampler_grid_parse(d->grid, &grid))
        rc = fail_metadata(part, "schedule", err);
    if (!rc && (d->width % step || d->height % step))
        rc = fail_metadata(part, "width or height", err);
    if (!rc && d->frames % c->vae.scale_time != 1 % c->vae.scale_time)
        rc = fail_metadata(part, "frames", err);
    return rc;
}

enum rl_rc derive_config(struct wan_model *model, struct rl_err *err)
{
    struct wan_config *c = &model->config;
    const struct part *dit = &model->parts[WAN_DIT];
    enum rl_rc rc = derive_dit(dit, &c->dit, err);

    if (!rc)
        rc = derive_text(&model->parts[WAN_TEXT], &c->text, err);
    if (!rc)
        rc = derive_vae(&model->parts[WAN_VAE], &c->vae, err);
    if (rc)
        return rc;
    if (c->dit.text_dim != c->text.dim)
        return rl_fail(err, RL_INVALID_FIELD,
                       "%.60s takes text of width %d, %.60s gives %d: not of one model", dit->label,
                       c->dit.text_dim, model->parts[WAN_TEXT].label, c->text.dim);
    if (c->dit.channels != c->vae.channels)
        return rl_fail(err, RL_INVALID_FIELD,
                       "%.60s makes latents of %d channels, %.60s takes %d: not of one model",
                       dit->label, c->dit.channels, model->parts[WAN_VAE].label, c->vae.channels);
    return derive_defaults(dit, c, err);
}
