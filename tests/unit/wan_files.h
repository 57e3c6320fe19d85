/* Weight files made by tests: small ones with values, and full-size ones whose values are holes. */
#ifndef WAN_FILES_H
#define WAN_FILES_H

#include "base/buf.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAN_FILE_TENSORS 2048

struct wan_file_tensor {
    char name[120];
    const char *dtype;
    int ndim;
    int64_t dims[6];
    const void *data; /* borrows; NULL: a hole, which reads as zeros */
    size_t bytes;
};

struct wan_file {
    struct wan_file_tensor tensors[WAN_FILE_TENSORS];
    size_t count;
    const char *metadata; /* a JSON object, NULL: none */
};

/* Writes bytes and a hole of `hole` bytes behind them. */
static inline void wan_file_raw(const char *path, const void *bytes, size_t len, size_t hole)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    assert_int_equal(ftruncate(fd, (off_t)(len + hole)), 0);
    assert_int_equal(close(fd), 0);
}

/* A file with this header text and so many bytes of data. */
static inline void wan_file_header(const char *path, const char *header, size_t data_len)
{
    AUTO_BUF struct rl_buf b = {0};
    uint64_t len = strlen(header); /* the tests run on little-endian machines */

    rl_buf_init(&b, 1 << 24);
    rl_buf_append(&b, &len, sizeof(len));
    rl_buf_str(&b, header);
    assert_false(b.failed);
    wan_file_raw(path, b.data, b.len, data_len);
}

static inline struct wan_file_tensor *wan_file_add(struct wan_file *file, const char *dtype,
                                                   const int64_t *dims, int ndim, const void *data,
                                                   const char *name)
{
    struct wan_file_tensor *t = &file->tensors[file->count++];

    assert_true(file->count <= WAN_FILE_TENSORS);
    assert_true(rl_copy_str(t->name, sizeof(t->name), name));
    t->dtype = dtype;
    t->ndim = ndim;
    t->data = data;
    t->bytes = strstr(dtype, "32") ? 4 : strstr(dtype, "16") ? 2 : 1;
    for (int i = 0; i < ndim; i++) {
        t->dims[i] = dims[i];
        t->bytes *= (size_t)dims[i];
    }
    return t;
}

/* Tensors in the order they were added. */
static inline void wan_file_write(const struct wan_file *file, const char *path)
{
    AUTO_BUF struct rl_buf b = {0};
    struct rl_jw w;
    uint64_t len = 0;
    size_t at = 0;

    rl_buf_init(&b, 1 << 24);
    rl_buf_append(&b, &len, sizeof(len));
    rl_jw_init(&w, &b, false);
    rl_jw_object(&w, NULL);
    if (file->metadata)
        rl_jw_raw(&w, "__metadata__", file->metadata);
    for (size_t i = 0; i < file->count; i++) {
        const struct wan_file_tensor *t = &file->tensors[i];

        rl_jw_object(&w, t->name);
        rl_jw_str(&w, "dtype", t->dtype);
        rl_jw_array(&w, "shape");
        for (int k = 0; k < t->ndim; k++)
            rl_jw_i64(&w, NULL, t->dims[k]);
        rl_jw_end_array(&w);
        rl_jw_array(&w, "data_offsets");
        rl_jw_i64(&w, NULL, (int64_t)at);
        at += t->bytes;
        rl_jw_i64(&w, NULL, (int64_t)at);
        rl_jw_end_array(&w);
        rl_jw_end_object(&w);
    }
    rl_jw_end_object(&w);
    assert_false(b.failed);
    len = b.len - sizeof(len);
    memcpy(b.data, &len, sizeof(len));
    wan_file_raw(path, b.data, b.len, at);

    int fd = open(path, O_WRONLY | O_CLOEXEC);
    size_t place = b.len;
    for (size_t i = 0; i < file->count; place += file->tensors[i++].bytes) {
        const struct wan_file_tensor *t = &file->tensors[i];
        if (t->data)
            assert_int_equal(pwrite(fd, t->data, t->bytes, (off_t)place), t->bytes);
    }
    assert_int_equal(close(fd), 0);
}

/* ---- the three networks, by the published names ---- */

struct wan_sizes {
    int64_t dim, ffn, layers, channels, text_dim, freq;          /* transformer */
    int64_t vocab, inner, text_ffn, text_layers, buckets, heads; /* text encoder */
    int64_t levels, blocks, width[4], temporal[4];               /* VAE decoder */
};

static const struct wan_sizes wan_1_3b = {.dim = 1536,
                                          .ffn = 8960,
                                          .layers = 30,
                                          .channels = 16,
                                          .text_dim = 4096,
                                          .freq = 256,
                                          .vocab = 256384,
                                          .inner = 4096,
                                          .text_ffn = 10240,
                                          .text_layers = 24,
                                          .buckets = 32,
                                          .heads = 64,
                                          .levels = 4,
                                          .blocks = 3,
                                          .width = {384, 384, 192, 96},
                                          .temporal = {1, 1, 0, 0}};

static const struct wan_sizes wan_tiny = {.dim = 256,
                                          .ffn = 48,
                                          .layers = 2,
                                          .channels = 16,
                                          .text_dim = 24,
                                          .freq = 32,
                                          .vocab = 40,
                                          .inner = 32,
                                          .text_ffn = 20,
                                          .text_layers = 2,
                                          .buckets = 8,
                                          .heads = 4,
                                          .levels = 2,
                                          .blocks = 2,
                                          .width = {12, 8},
                                          .temporal = {1, 0}};

#define WAN_DIMS(...) ((int64_t[]){__VA_ARGS__}), sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

/* A tensor by a format of its name; filled with zeros. */
static inline void wan_file_named(struct wan_file *file, const char *dtype, const int64_t *dims,
                                  size_t ndim, const char *format, ...) RL_PRINTF(5, 6);
static inline void wan_file_named(struct wan_file *file, const char *dtype, const int64_t *dims,
                                  size_t ndim, const char *format, ...)
{
    char name[120];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(name, sizeof(name), format, args);
    va_end(args);
    wan_file_add(file, dtype, dims, (int)ndim, NULL, name);
}

static inline void wan_file_dit(struct wan_file *f, const struct wan_sizes *s, const char *dtype)
{
    static const char *const kinds[] = {"self_attn", "cross_attn"};
    static const char letters[] = "qkvo";
    int64_t d = s->dim;
    const struct {
        const char *name;
        int64_t rows, cols;
    } whole[] = {{"text_embedding.0", d, s->text_dim}, {"text_embedding.2", d, d},
                 {"time_embedding.0", d, s->freq},     {"time_embedding.2", d, d},
                 {"time_projection.1", 6 * d, d},      {"head.head", 4 * s->channels, d}};

    wan_file_named(f, dtype, WAN_DIMS(d, s->channels, 1, 2, 2), "patch_embedding.weight");
    wan_file_named(f, dtype, WAN_DIMS(d), "patch_embedding.bias");
    wan_file_named(f, dtype, WAN_DIMS(1, 2, d), "head.modulation");
    for (size_t i = 0; i < RL_ARRAY_LEN(whole); i++) {
        wan_file_named(f, dtype, WAN_DIMS(whole[i].rows, whole[i].cols), "%s.weight",
                       whole[i].name);
        wan_file_named(f, dtype, WAN_DIMS(whole[i].rows), "%s.bias", whole[i].name);
    }
    for (int b = 0; b < s->layers; b++) {
        wan_file_named(f, dtype, WAN_DIMS(1, 6, d), "blocks.%d.modulation", b);
        for (int k = 0; k < 2; k++) {
            for (int i = 0; i < 4; i++) {
                wan_file_named(f, dtype, WAN_DIMS(d, d), "blocks.%d.%s.%c.weight", b, kinds[k],
                               letters[i]);
                wan_file_named(f, dtype, WAN_DIMS(d), "blocks.%d.%s.%c.bias", b, kinds[k],
                               letters[i]);
            }
            wan_file_named(f, dtype, WAN_DIMS(d), "blocks.%d.%s.norm_q.weight", b, kinds[k]);
            wan_file_named(f, dtype, WAN_DIMS(d), "blocks.%d.%s.norm_k.weight", b, kinds[k]);
        }
        wan_file_named(f, dtype, WAN_DIMS(d), "blocks.%d.norm3.weight", b);
        wan_file_named(f, dtype, WAN_DIMS(d), "blocks.%d.norm3.bias", b);
        wan_file_named(f, dtype, WAN_DIMS(s->ffn, d), "blocks.%d.ffn.0.weight", b);
        wan_file_named(f, dtype, WAN_DIMS(s->ffn), "blocks.%d.ffn.0.bias", b);
        wan_file_named(f, dtype, WAN_DIMS(d, s->ffn), "blocks.%d.ffn.2.weight", b);
        wan_file_named(f, dtype, WAN_DIMS(d), "blocks.%d.ffn.2.bias", b);
    }
}

/* matrix: the dtype of the 7 matrices of each layer. */
static inline void wan_file_text(struct wan_file *f, const struct wan_sizes *s, const char *dtype,
                                 const char *matrix)
{
    int64_t d = s->text_dim;

    wan_file_named(f, dtype, WAN_DIMS(s->vocab, d), "shared.weight");
    wan_file_named(f, dtype, WAN_DIMS(d), "encoder.final_layer_norm.weight");
    for (int b = 0; b < s->text_layers; b++) {
#define LAYER "encoder.block.%d.layer."
        wan_file_named(f, dtype, WAN_DIMS(d), LAYER "0.layer_norm.weight", b);
        wan_file_named(f, dtype, WAN_DIMS(d), LAYER "1.layer_norm.weight", b);
        for (int i = 0; i < 3; i++)
            wan_file_named(f, matrix, WAN_DIMS(s->inner, d), LAYER "0.SelfAttention.%c.weight", b,
                           "qkv"[i]);
        wan_file_named(f, matrix, WAN_DIMS(d, s->inner), LAYER "0.SelfAttention.o.weight", b);
        wan_file_named(f, dtype, WAN_DIMS(s->buckets, s->heads),
                       LAYER "0.SelfAttention.relative_attention_bias.weight", b);
        wan_file_named(f, matrix, WAN_DIMS(s->text_ffn, d), LAYER "1.DenseReluDense.wi_0.weight",
                       b);
        wan_file_named(f, matrix, WAN_DIMS(s->text_ffn, d), LAYER "1.DenseReluDense.wi_1.weight",
                       b);
        wan_file_named(f, matrix, WAN_DIMS(d, s->text_ffn), LAYER "1.DenseReluDense.wo.weight", b);
#undef LAYER
    }
}

static inline void wan_file_residual(struct wan_file *f, const char *dtype, const char *at,
                                     int64_t in, int64_t out)
{
    wan_file_named(f, dtype, WAN_DIMS(in, 1, 1, 1), "%s.residual.0.gamma", at);
    wan_file_named(f, dtype, WAN_DIMS(out, in, 3, 3, 3), "%s.residual.2.weight", at);
    wan_file_named(f, dtype, WAN_DIMS(out), "%s.residual.2.bias", at);
    wan_file_named(f, dtype, WAN_DIMS(out, 1, 1, 1), "%s.residual.3.gamma", at);
    wan_file_named(f, dtype, WAN_DIMS(out, out, 3, 3, 3), "%s.residual.6.weight", at);
    wan_file_named(f, dtype, WAN_DIMS(out), "%s.residual.6.bias", at);
    if (in != out) {
        wan_file_named(f, dtype, WAN_DIMS(out, in, 1, 1, 1), "%s.shortcut.weight", at);
        wan_file_named(f, dtype, WAN_DIMS(out), "%s.shortcut.bias", at);
    }
}

static inline void wan_file_upsample(struct wan_file *f, const char *dtype, const char *at,
                                     int64_t width, bool temporal)
{
    wan_file_named(f, dtype, WAN_DIMS(width / 2, width, 3, 3), "%s.resample.1.weight", at);
    wan_file_named(f, dtype, WAN_DIMS(width / 2), "%s.resample.1.bias", at);
    if (temporal) {
        wan_file_named(f, dtype, WAN_DIMS(2 * width, width, 3, 1, 1), "%s.time_conv.weight", at);
        wan_file_named(f, dtype, WAN_DIMS(2 * width), "%s.time_conv.bias", at);
    }
}

static inline void wan_file_vae(struct wan_file *f, const struct wan_sizes *s, const char *dtype)
{
    int64_t z = s->channels;
    int64_t first = s->width[0];
    int64_t last = s->width[s->levels - 1];
    char at[64];

    wan_file_named(f, dtype, WAN_DIMS(z, z, 1, 1, 1), "conv2.weight");
    wan_file_named(f, dtype, WAN_DIMS(z), "conv2.bias");
    wan_file_named(f, dtype, WAN_DIMS(first, z, 3, 3, 3), "decoder.conv1.weight");
    wan_file_named(f, dtype, WAN_DIMS(first), "decoder.conv1.bias");
    wan_file_residual(f, dtype, "decoder.middle.0", first, first);
    wan_file_named(f, dtype, WAN_DIMS(first, 1, 1), "decoder.middle.1.norm.gamma");
    wan_file_named(f, dtype, WAN_DIMS(3 * first, first, 1, 1), "decoder.middle.1.to_qkv.weight");
    wan_file_named(f, dtype, WAN_DIMS(3 * first), "decoder.middle.1.to_qkv.bias");
    wan_file_named(f, dtype, WAN_DIMS(first, first, 1, 1), "decoder.middle.1.proj.weight");
    wan_file_named(f, dtype, WAN_DIMS(first), "decoder.middle.1.proj.bias");
    wan_file_residual(f, dtype, "decoder.middle.2", first, first);
    for (int l = 0; l < s->levels; l++) {
        int64_t k = l * (s->blocks + 1);
        for (int64_t i = 0; i < s->blocks; i++) {
            int64_t in = i || !l ? s->width[l] : s->width[l - 1] / 2;
            (void)snprintf(at, sizeof(at), "decoder.upsamples.%d", (int)(k + i));
            wan_file_residual(f, dtype, at, in, s->width[l]);
        }
        (void)snprintf(at, sizeof(at), "decoder.upsamples.%d", (int)(k + s->blocks));
        if (l + 1 < s->levels)
            wan_file_upsample(f, dtype, at, s->width[l], s->temporal[l]);
    }
    wan_file_named(f, dtype, WAN_DIMS(last, 1, 1, 1), "decoder.head.0.gamma");
    wan_file_named(f, dtype, WAN_DIMS(3, last, 3, 3, 3), "decoder.head.2.weight");
    wan_file_named(f, dtype, WAN_DIMS(3), "decoder.head.2.bias");
}

#endif
