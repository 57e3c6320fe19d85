/* Inside the CPU's operators: the context, a weight, and every operator's plain form. One operation
 * lives in one file, its plain form (act = f32, one thread, sums in double) next to its fast one.
 */
#ifndef RL_ENGINE_WAN_CPU_CPU_H
#define RL_ENGINE_WAN_CPU_CPU_H

#include "engine/wan/ops.h"

#define CPU_ALIGN 64 /* bytes; of every buffer */

struct ops_ctx {
    size_t now, peak; /* bytes */
};

struct ops_weight {
    int64_t n, k;
    float *rows; /* [n, k]: the plain form */
};

/* ---- memory.c ---- */
enum rl_rc cpu_sync(struct ops_ctx *ctx, struct rl_err *err);
void cpu_memory(struct ops_ctx *ctx, bool reset, size_t *ret_now, size_t *ret_peak);
enum rl_rc cpu_alloc(struct ops_ctx *ctx, size_t bytes, void **ret_mem, struct rl_err *err);
void cpu_free(struct ops_ctx *ctx, void *mem);
enum rl_rc cpu_upload(struct ops_ctx *ctx, void *mem, const void *host, size_t bytes,
                      struct rl_err *err);
enum rl_rc cpu_download(struct ops_ctx *ctx, void *host, const void *mem, size_t bytes,
                        struct rl_err *err);
void cpu_copy(struct ops_ctx *ctx, void *to, const void *from, size_t bytes);
void cpu_zero(struct ops_ctx *ctx, void *mem, size_t bytes);

/* ---- weight.c ---- */
/* Numbers count at first of a source, as f32, scaled. */
void cpu_source_read(const struct ops_source *source, int64_t first, int64_t count, float *to);
enum rl_rc plain_weight_new(struct ops_ctx *ctx, const struct ops_source *source,
                            struct ops_weight **ret_weight, struct rl_err *err);
void cpu_weight_free(struct ops_ctx *ctx, struct ops_weight *weight);

/* ---- gemm.c ---- */
/* What an epilogue does with one result. y: f32 */
void plain_epilogue(float *y, double r, const float *gate, enum ops_epilogue epilogue);
void plain_gemm(struct ops_ctx *ctx, void *y, const void *x, const struct ops_weight *w,
                const float *bias, const float *gate, int64_t m, enum ops_epilogue epilogue);
void plain_gemm_f32(struct ops_ctx *ctx, float *y, const float *x, const float *w,
                    const float *bias, int64_t m, int64_t n, int64_t k, bool silu);

/* ---- attention.c ---- */
void plain_attention(struct ops_ctx *ctx, void *out, const void *q, const void *k, const void *v,
                     int64_t lq, int64_t lk, int heads, int hd, float scale, const float *bias,
                     float last_logit);

/* ---- conv.c ---- */
void plain_conv(struct ops_ctx *ctx, void *y, const struct ops_conv *shape,
                const struct ops_weight *w, const float *bias, enum ops_epilogue epilogue);

/* ---- norm.c ---- */
void plain_norm_modulate(struct ops_ctx *ctx, void *y, const float *x, const float *scale,
                         const float *shift, int64_t l, int64_t d);
void plain_norm_affine(struct ops_ctx *ctx, void *y, const float *x, const float *weight,
                       const float *bias, int64_t l, int64_t d);
void plain_rms_norm(struct ops_ctx *ctx, void *y, const float *x, const float *weight, int64_t l,
                    int64_t d);
void plain_channel_norm(struct ops_ctx *ctx, void *y, const float *x, const float *gamma,
                        int64_t pixels, int64_t c, bool silu);

/* ---- rope.c ---- */
void plain_rms_rope(struct ops_ctx *ctx, void *x, const float *weight, const float *cos,
                    const float *sin, int64_t l, int heads, int hd);

/* ---- elementwise.c ---- */
void plain_to_act(struct ops_ctx *ctx, void *y, const float *x, int64_t n);
void plain_to_f32(struct ops_ctx *ctx, float *y, const void *x, int64_t n);
void cpu_embed(struct ops_ctx *ctx, float *y, const float *table, const int32_t *ids, int64_t n,
               int64_t d);
void plain_combine(struct ops_ctx *ctx, float *y, const float *const *x, const float *a, int count,
                   int64_t n);

/* ---- latents.c ---- */
void plain_patchify(struct ops_ctx *ctx, void *y, const float *x, int c, int f, int h, int w);
void cpu_unpatchify(struct ops_ctx *ctx, float *y, const float *x, int c, int f, int h, int w);
enum rl_rc plain_to_rgb(struct ops_ctx *ctx, uint8_t *rgb, const void *x, int h, int w,
                        struct rl_err *err);

/* ---- noise.c ---- */
void plain_noise(struct ops_ctx *ctx, float *y, uint64_t seed, int64_t n);

#endif
