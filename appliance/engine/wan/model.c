/* A model's three files under one set of names. Owns the files; the configuration and every check
 * are made at open, lookups only read. Files are found in a folder by what they are called there,
 * and told apart by what they hold. Read-only after open: any thread. */
#include "engine/wan/model.h"

#include "base/fs.h"
#include "engine/wan/parts.h"
#include "engine/wan/shard.h"
#include "engine/wan/tokenizer.h"

#include <math.h>
#include <string.h>

static const char *const part_words[WAN_PARTS] = {"transformer", "text encoder", "VAE"};

enum rl_rc part_fail(const struct part *part, const char *name, const char *why, struct rl_err *err)
{
    char in_file[WAN_NAME];

    (void)shard_fail(err, part->label, names_in_file(&part->names, name, in_file) ? in_file : name,
                     why);
    return RL_INVALID_FIELD; /* what shard_fail returns */
}

const struct tensor *part_find(const struct part *part, const char *name)
{
    char in_file[WAN_NAME];
    const struct tensor *t = NULL;

    if (names_in_file(&part->names, name, in_file))
        t = safetensors_find(part->file, in_file);
    /* the table has two names in the published file's dialect */
    if (!t && part->names.part == WAN_TEXT && strcmp(in_file, "shared.weight") == 0)
        t = safetensors_find(part->file, "encoder.embed_tokens.weight");
    return t;
}

/* ---- scales of F8 ---- */

/* The scale's tensor of a weight: beside it, by one of two names. NULL: none. */
static const struct tensor *find_scale(const struct part *part, const struct tensor *weight)
{
    static const char *const ends[] = {"scale_weight", "weight_scale"};
    static const char end[] = "weight";
    size_t n = strlen(weight->name);
    char name[WAN_NAME + 16];

    if (n < sizeof(end) || strcmp(weight->name + n - (sizeof(end) - 1), end) != 0)
        return NULL;
    for (size_t i = 0; i < RL_ARRAY_LEN(ends); i++) {
        int len = snprintf(name, sizeof(name), "%.*s%s", (int)(n - (sizeof(end) - 1)), weight->name,
                           ends[i]);
        const struct tensor *scale =
            len > 0 && (size_t)len < sizeof(name) ? safetensors_find(part->file, name) : NULL;
        if (scale)
            return scale;
    }
    return NULL;
}

/* The scale of an F8 tensor, 1 of any other. A file that has scales must have this one too:
 * without it the pictures would be white, and nothing would say why. */
static enum rl_rc scale_of(const struct part *part, const struct tensor *t, float *ret_scale,
                           struct rl_err *err)
{
    float scale = 1;

    if (t->type == OPS_F8_E4M3) {
        const struct tensor *s = find_scale(part, t);
        if (!s && part->scaled)
            return shard_fail(err, part->label, t->name,
                              "F8 without its scale, in a file that says it is scaled");
        if (s &&
            (!s->numeric || s->type == OPS_F8_E4M3 || s->bytes != (s->type == OPS_F32 ? 4 : 2)))
            return shard_fail(err, part->label, s->name, "a scale must be one number");
        if (s)
            wan_numbers(s->type, s->data, 1, 1, &scale);
        if (!isfinite(scale) || scale <= 0)
            return shard_fail(err, part->label, t->name, "its scale is not a positive number");
    }
    *ret_scale = scale;
    return RL_OK;
}

/* Does the file say that its F8 matrices are scaled? */
static bool is_scaled(const struct safetensors *file)
{
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_at(file, i)->name;
        if (shard_ends_with(name, "scaled_fp8") || shard_ends_with(name, ".scale_weight") ||
            shard_ends_with(name, ".weight_scale"))
            return true;
    }
    return false;
}

/* ---- opening ---- */

/* Files that are something else than this part of a Wan 2.1 text-to-video model. */
static enum rl_rc check_kind(const struct part *part, enum wan_part which, struct rl_err *err)
{
    static const struct {
        enum wan_part part;
        const char *name, *why;
    } others[] = {
        {WAN_VAE, "decoder.upsamples.0.upsamples.0.residual.2.weight",
         "is the VAE of Wan 2.2, which is not supported"},
        {WAN_DIT, "blocks.0.cross_attn.k_img.weight",
         "is an image-to-video model; only text-to-video is supported"},
        {WAN_DIT, "vace_patch_embedding.weight", "is a VACE model, which is not supported"},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(others); i++) {
        if (others[i].part == which && safetensors_find(part->file, others[i].name))
            return rl_fail(err, RL_INVALID_FIELD, "%.80s %s", part->label, others[i].why);
    }
    return RL_OK;
}

/* From memory, or by path. */
static enum rl_rc open_part(struct wan_model *model, enum wan_part which,
                            const struct safetensors_bytes *bytes, const char *path,
                            struct rl_err *err)
{
    struct part *part = &model->parts[which];
    enum rl_rc rc;

    if (!bytes && !path)
        return rl_fail(err, RL_NOT_FOUND, "no file of the %s", part_words[which]);
    part->label = rl_strdup(bytes ? bytes->name : shard_name(path));
    if (!part->label)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    rc = bytes ? safetensors_open_bytes(bytes, &part->file, err)
               : safetensors_open(path, &part->file, err);
    if (!rc)
        rc = check_kind(part, which, err);
    if (!rc && !names_detect(part->file, which, &part->names))
        rc =
            rl_fail(err, RL_INVALID_FIELD, "%.80s holds no %s of Wan: its tensors have other names",
                    part->label, part_words[which]);
    if (!rc)
        part->scaled = is_scaled(part->file);
    return rc;
}

/* A tensor that a network will ask for is there, and as it should be. */
static enum rl_rc check_need(void *user, const struct need *need, struct rl_err *err)
{
    struct part *part = user;
    const struct tensor *t = part_find(part, need->name);
    int64_t wanted = 1;
    int64_t count = 1;
    bool fits = true;
    float scale = 1;

    if (!t)
        return part_fail(part, need->name, "missing", err);
    if (!t->numeric)
        return part_fail(part, need->name, "a dtype that is not supported: F32, F16, BF16, F8_E4M3",
                         err);
    for (int i = 0; i < t->ndim; i++)
        count *= t->dims[i]; /* as many as lie in the file: checked there */
    for (int i = 0; i < need->ndim; i++) {
        wanted *= need->dims[i]; /* 2^38 at the most: derive.c has bounds */
        fits = fits && (need->ndim == 1 || (i < t->ndim && t->dims[i] == need->dims[i]));
    }
    if (!fits || count != wanted || (need->ndim > 1 && t->ndim != need->ndim))
        return part_fail(part, need->name, "a shape that does not fit the other tensors", err);
    part->parameters += wanted;
    part->used[t - safetensors_at(part->file, 0)] = true;
    return scale_of(part, t, &scale, err);
}

/* A tensor of the networks' repeated parts, in any dialect, and none of the numbers beside F8. */
static bool in_layers(const struct part *part, const char *name)
{
    static const char *const layers[] = {"blocks.", "encoder.block.", "decoder."};
    const char *last = strrchr(name, '.');
    size_t n = strlen(part->names.prefix);

    if (strncmp(name, part->names.prefix, n) != 0 || !last || strstr(last, "scale") ||
        strcmp(last, ".comfy_quant") == 0)
        return false;
    for (size_t i = 0; i < RL_ARRAY_LEN(layers); i++) {
        bool mine = part->names.part == WAN_VAE ? i == 2 : i < 2;
        if (mine && strncmp(name + n, layers[i], strlen(layers[i])) == 0)
            return true;
    }
    return false;
}

/* Nothing in the layers is left over. Their number was read from single tensors, so one that is
 * missing could otherwise end the network early; and other kinds of models have other parts. */
static enum rl_rc check_left_over(const struct part *part, struct rl_err *err)
{
    for (size_t i = 0; i < safetensors_count(part->file); i++) {
        const char *name = safetensors_at(part->file, i)->name;
        if (!part->used[i] && in_layers(part, name))
            return shard_fail(err, part->label, name,
                              "left over: others are missing, or it is another kind of model");
    }
    return RL_OK;
}

static enum rl_rc check_needs(struct wan_model *model, struct rl_err *err)
{
    enum rl_rc rc = RL_OK;

    for (int i = 0; i < WAN_PARTS && !rc; i++) {
        struct part *part = &model->parts[i];
        const struct needs needs = {.user = part, .each = check_need};

        part->used = calloc(safetensors_count(part->file), sizeof(*part->used));
        if (!part->used)
            return rl_fail(err, RL_NO_MEMORY, "out of memory");
        rc = needs_of(&model->config, (enum wan_part)i, &needs, err);
        if (!rc)
            rc = check_left_over(part, err);
        free(part->used);
        part->used = NULL;
    }
    return rc;
}

/* The parts from memory, or by their paths. */
static enum rl_rc open_model(const struct safetensors_bytes *bytes, const struct wan_files *files,
                             struct wan_model **ret_model, struct rl_err *err)
{
    struct wan_model *model = calloc(1, sizeof(*model));
    enum rl_rc rc = RL_OK;

    if (!model)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    for (int i = 0; i < WAN_PARTS && !rc; i++)
        rc = open_part(model, (enum wan_part)i, bytes ? &bytes[i] : NULL,
                       files ? files->part[i] : NULL, err);
    if (!rc && files && files->tokenizer) {
        model->tokenizer = rl_strdup(files->tokenizer);
        if (!model->tokenizer)
            rc = rl_fail(err, RL_NO_MEMORY, "out of memory");
    }
    if (!rc)
        rc = derive_config(model, err);
    if (!rc)
        rc = check_needs(model, err);
    if (rc) {
        wan_model_close(model);
        return rc;
    }
    *ret_model = model;
    return RL_OK;
}

enum rl_rc wan_model_open_files(const struct wan_files *files, struct wan_model **ret_model,
                                struct rl_err *err)
{
    return open_model(NULL, files, ret_model, err);
}

enum rl_rc wan_model_open_bytes(const struct safetensors_bytes parts[WAN_PARTS],
                                struct wan_model **ret_model, struct rl_err *err)
{
    return open_model(parts, NULL, ret_model, err);
}

void wan_model_close(struct wan_model *model)
{
    if (!model)
        return;
    for (int i = 0; i < WAN_PARTS; i++) {
        safetensors_close(model->parts[i].file);
        free(model->parts[i].label);
    }
    free(model->tokenizer);
    free(model);
}

const struct wan_config *wan_model_config(const struct wan_model *model)
{
    return &model->config;
}

/* ---- lookups ---- */

const struct tensor *wan_model_find(const struct wan_model *model, enum wan_part part,
                                    const char *name)
{
    return part_find(&model->parts[part], name);
}

/* A numeric tensor of that many elements, with its scale. */
static enum rl_rc find_numbers(const struct part *part, const char *name, int64_t count,
                               const struct tensor **ret_tensor, float *ret_scale,
                               struct rl_err *err)
{
    const struct tensor *t = part_find(part, name);
    int64_t n = 1;

    if (!t)
        return part_fail(part, name, "missing", err);
    for (int i = 0; i < t->ndim; i++)
        n *= t->dims[i];
    if (!t->numeric || n != count)
        return part_fail(part, name, "not the dtype or the size that is asked for", err);
    *ret_tensor = t;
    return scale_of(part, t, ret_scale, err);
}

enum rl_rc wan_model_matrix(const struct wan_model *model, enum wan_part part, const char *name,
                            int64_t rows, int64_t cols, struct ops_source *ret_source,
                            struct rl_err *err)
{
    const struct tensor *t = NULL;
    float scale = 1;
    enum rl_rc rc = find_numbers(&model->parts[part], name, rows * cols, &t, &scale, err);

    if (rc)
        return rc;
    if (t->ndim < 1 || t->dims[0] != rows)
        return part_fail(&model->parts[part], name, "not the rows that are asked for", err);
    *ret_source = (struct ops_source){
        .data = t->data, .type = t->type, .rows = rows, .cols = cols, .scale = scale};
    return RL_OK;
}

enum rl_rc wan_model_values(const struct wan_model *model, enum wan_part part, const char *name,
                            int64_t total, int64_t first, int64_t n, float *ret_values,
                            struct rl_err *err)
{
    const struct tensor *t = NULL;
    float scale = 1;
    enum rl_rc rc = find_numbers(&model->parts[part], name, total, &t, &scale, err);

    if (rc)
        return rc;
    if (first < 0 || n < 0 || first > total || n > total - first)
        return part_fail(&model->parts[part], name, "asked for beyond its end", err);
    size_t size = t->type == OPS_F32 ? 4 : t->type == OPS_F8_E4M3 ? 1 : 2;
    wan_numbers(t->type, (const char *)t->data + (size_t)first * size, n, scale, ret_values);
    return RL_OK;
}

enum rl_rc wan_model_row(const struct wan_model *model, enum wan_part part, const char *name,
                         int64_t row, int64_t cols, float *ret_values, struct rl_err *err)
{
    const struct tensor *t = part_find(&model->parts[part], name);

    if (!t || t->ndim != 2 || t->dims[1] != cols || row < 0 || row >= t->dims[0])
        return part_fail(&model->parts[part], name, "has no such row", err);
    return wan_model_values(model, part, name, t->dims[0] * cols, row * cols, cols, ret_values,
                            err);
}

static enum rl_rc tokenizer_of_file(const char *path, struct tokenizer **ret_tokenizer,
                                    struct rl_err *err)
{
    AUTO_FREE char *bytes = NULL;
    size_t len = 0;
    enum rl_rc rc = rl_fs_read(path, (size_t)64 << 20, &bytes, &len, err);

    return rc ? rc : tokenizer_new(bytes, len, ret_tokenizer, err);
}

enum rl_rc wan_model_tokenizer(const struct wan_model *model, struct tokenizer **ret_tokenizer,
                               struct rl_err *err)
{
    const struct part *part = &model->parts[WAN_TEXT];
    const struct tensor *t = safetensors_find(part->file, "spiece_model");
    struct tokenizer *tokenizer = NULL;
    enum rl_rc rc;

    if (model->tokenizer)
        rc = tokenizer_of_file(model->tokenizer, &tokenizer, err);
    else if (t && strcmp(t->dtype, "U8") == 0)
        rc = tokenizer_new(t->data, t->bytes, &tokenizer, err);
    else
        rc = rl_fail(err, RL_NOT_FOUND,
                     "%.80s: no tokenizer (spiece_model) in it, and no spiece.model", part->label);
    if (rc)
        return rc;
    if (tokenizer_vocab(tokenizer) > model->config.text.vocab) {
        tokenizer_free(tokenizer);
        return rl_fail(err, RL_INVALID_FIELD, "%.80s: the tokenizer has more pieces than the table",
                       part->label);
    }
    *ret_tokenizer = tokenizer;
    return RL_OK;
}

/* ---- estimates ---- */

int64_t wan_model_parameters(const struct wan_model *model, enum wan_part part)
{
    return model->parts[part].parameters;
}

struct estimate {
    int64_t act_bytes;
    bool layered; /* count the largest layer instead of all */
    int layer;
    int64_t bytes, layer_bytes, largest;
};

static enum rl_rc add_need(void *user, const struct need *need, struct rl_err *err)
{
    struct estimate *e = user;
    int64_t bytes = need->kind == NEED_MATRIX ? e->act_bytes
                    : need->kind == NEED_F32  ? (int64_t)sizeof(float)
                                              : 0;

    (void)err;
    for (int i = 0; i < need->ndim; i++)
        bytes *= need->dims[i];
    if (!e->layered || need->layer < 0) {
        e->bytes += bytes;
        return RL_OK;
    }
    e->layer_bytes = need->layer == e->layer ? e->layer_bytes + bytes : bytes;
    e->layer = need->layer;
    if (e->layer_bytes > e->largest)
        e->largest = e->layer_bytes;
    return RL_OK;
}

struct wanted {
    const struct part *part;
    int layer;
    bool soon;
};

static enum rl_rc want_need(void *user, const struct need *need, struct rl_err *err)
{
    const struct wanted *w = user;
    bool meant = w->layer == WAN_WHOLE_PART || need->layer == w->layer;
    const struct tensor *t = meant ? part_find(w->part, need->name) : NULL;
    (void)err;
    if (t)
        safetensors_want(t, w->soon);
    return RL_OK;
}

void wan_model_want(const struct wan_model *model, enum wan_part part, int layer, bool soon)
{
    struct wanted w = {.part = &model->parts[part], .layer = layer, .soon = soon};
    const struct needs needs = {.user = &w, .each = want_need};
    (void)needs_of(&model->config, part, &needs, NULL); /* want_need cannot fail */
}

int64_t wan_config_bytes(const struct wan_config *config, enum wan_part part, size_t act_bytes,
                         bool resident)
{
    struct estimate e = {
        .act_bytes = (int64_t)act_bytes, .layered = part == WAN_TEXT && !resident, .layer = -1};
    const struct needs needs = {.user = &e, .each = add_need};

    (void)needs_of(config, part, &needs, NULL); /* add_need cannot fail */
    return e.bytes + e.largest;
}
