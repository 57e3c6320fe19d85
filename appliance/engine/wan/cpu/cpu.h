/* Inside the CPU's operators: the context, a weight, and every operator's plain form. One operation
 * lives in one file, its plain form (act = f32, one thread, sums in double) next to its fast one.
 */
#ifndef RL_ENGINE_WAN_CPU_CPU_H
#define RL_ENGINE_WAN_CPU_CPU_H

#include "engine/wan/cpu/kernels.h"
#include "engine/wan/cpu/threads.h"
#include "engine/wan/ops.h"

#define CPU_ALIGN   64                      /* bytes; of every buffer */
#define CPU_SCRATCH (1 << 20)               /* bytes of each thread, at least */
#define CPU_ROWS    96                      /* of the left side of a product, worked on at a time */
#define CPU_TILE    (CPU_ROWS * BLOCK_COLS) /* results at the beginning of a thread's scratch */

struct ops_ctx {
    size_t now, peak; /* bytes */
    /* the fast forms alone */
    const struct kernels *kernels;
    struct threads *threads;
    char *scratch;        /* of all threads; grows with weight_new, never inside an operator */
    size_t scratch_bytes; /* of one */
};

struct ops_weight {
    int64_t n, k;
    float *rows;   /* [n, k]: the plain form */
    void *panels;  /* the fast ones: as kernels.h says */
    int64_t units; /* of a panel */
};

/* ---- cpu.c ---- */
/* The table over set number `level` of inner loops, best first; NULL when this machine has not got
 * it. For tests and benches: ops_cpu() takes the first there is. ret_name: NULL allowed. */
const struct ops *cpu_table(size_t level, const char **ret_name);
size_t cpu_levels(void); /* how many there are */
static inline char *cpu_scratch(const struct ops_ctx *ctx, int worker)
{
    return ctx->scratch + ctx->scratch_bytes * (size_t)worker;
}
/* task(job, first, end) for rows first … end − 1, shared out among the threads when they hold
 * enough numbers to be worth it. */
void cpu_share(const struct ops_ctx *ctx, int64_t rows, int64_t numbers_per_row,
               void (*task)(const void *job, int64_t first, int64_t end), const void *job);

/* ---- blas.c ---- */
/* The inner loops with OpenBLAS for products; NULL when it cannot be loaded. */
const struct kernels *cpu_blas(void);

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
enum rl_rc cpu_weight_new(struct ops_ctx *ctx, const struct ops_source *source,
                          struct ops_weight **ret_weight, struct rl_err *err);
void cpu_weight_free(struct ops_ctx *ctx, struct ops_weight *weight);

/* ---- product.c ---- */
/* As kernels->multiply, cut along k into pieces that stay in the cache. */
void cpu_multiply(const struct kernels *kernels, const struct product *whole);
/* A block of results of the whole y, bias and gate in `finish`, beginning at (row, col). */
void cpu_finish(const struct kernels *kernels, struct finish finish, int64_t row, int64_t col);

/* ---- gemm.c ---- */
/* What an epilogue does with one result. y: f32 */
void plain_epilogue(float *y, double r, double gate, enum ops_epilogue epilogue);
void plain_gemm(struct ops_ctx *ctx, void *y, const void *x, const struct ops_weight *w,
                const float *bias, const float *gate, int64_t m, enum ops_epilogue epilogue);
void cpu_gemm(struct ops_ctx *ctx, void *y, const void *x, const struct ops_weight *w,
              const float *bias, const float *gate, int64_t m, enum ops_epilogue epilogue);
void plain_gemm_f32(struct ops_ctx *ctx, float *y, const float *x, const float *w,
                    const float *bias, int64_t m, int64_t n, int64_t k, bool silu);
void cpu_gemm_f32(struct ops_ctx *ctx, float *y, const float *x, const float *w, const float *bias,
                  int64_t m, int64_t n, int64_t k, bool silu);

/* ---- attention.c ---- */
void plain_attention(struct ops_ctx *ctx, void *out, const void *q, const void *k, const void *v,
                     int64_t lq, int64_t lk, int heads, int hd, float scale, const float *bias,
                     float last_logit);
void cpu_attention(struct ops_ctx *ctx, void *out, const void *q, const void *k, const void *v,
                   int64_t lq, int64_t lk, int heads, int hd, float scale, const float *bias,
                   float last_logit);

/* ---- conv.c ---- */
void plain_conv(struct ops_ctx *ctx, void *y, const struct ops_conv *shape,
                const struct ops_weight *w, const float *bias, enum ops_epilogue epilogue);
void cpu_conv(struct ops_ctx *ctx, void *y, const struct ops_conv *shape,
              const struct ops_weight *w, const float *bias, enum ops_epilogue epilogue);

/* ---- norm.c ---- */
void plain_norm_modulate(struct ops_ctx *ctx, void *y, const float *x, const float *scale,
                         const float *shift, int64_t l, int64_t d);
void cpu_norm_modulate(struct ops_ctx *ctx, void *y, const float *x, const float *scale,
                       const float *shift, int64_t l, int64_t d);
void plain_norm_affine(struct ops_ctx *ctx, void *y, const float *x, const float *weight,
                       const float *bias, int64_t l, int64_t d);
void cpu_norm_affine(struct ops_ctx *ctx, void *y, const float *x, const float *weight,
                     const float *bias, int64_t l, int64_t d);
void plain_rms_norm(struct ops_ctx *ctx, void *y, const float *x, const float *weight, int64_t l,
                    int64_t d);
void cpu_rms_norm(struct ops_ctx *ctx, void *y, const float *x, const float *weight, int64_t l,
                  int64_t d);
void plain_channel_norm(struct ops_ctx *ctx, void *y, const float *x, const float *gamma,
                        int64_t pixels, int64_t c, bool silu);
void cpu_channel_norm(struct ops_ctx *ctx, void *y, const float *x, const float *gamma,
                      int64_t pixels, int64_t c, bool silu);

/* ---- rope.c ---- */
void plain_rms_rope(struct ops_ctx *ctx, void *x, const float *weight, const float *cos,
                    const float *sin, int64_t l, int heads, int hd);
void cpu_rms_rope(struct ops_ctx *ctx, void *x, const float *weight, const float *cos,
                  const float *sin, int64_t l, int heads, int hd);

/* ---- elementwise.c ---- */
void plain_to_act(struct ops_ctx *ctx, void *y, const float *x, int64_t n);
void cpu_to_act(struct ops_ctx *ctx, void *y, const float *x, int64_t n);
void plain_to_f32(struct ops_ctx *ctx, float *y, const void *x, int64_t n);
void cpu_to_f32(struct ops_ctx *ctx, float *y, const void *x, int64_t n);
void plain_combine(struct ops_ctx *ctx, float *y, const float *const *x, const float *a, int count,
                   int64_t n);
void cpu_combine(struct ops_ctx *ctx, float *y, const float *const *x, const float *a, int count,
                 int64_t n);

/* ---- latents.c ---- */
void plain_patchify(struct ops_ctx *ctx, void *y, const float *x, int c, int f, int h, int w);
void cpu_patchify(struct ops_ctx *ctx, void *y, const float *x, int c, int f, int h, int w);
void cpu_unpatchify(struct ops_ctx *ctx, float *y, const float *x, int c, int f, int h, int w);
enum rl_rc plain_to_rgb(struct ops_ctx *ctx, uint8_t *rgb, const void *x, int h, int w,
                        struct rl_err *err);
enum rl_rc cpu_to_rgb(struct ops_ctx *ctx, uint8_t *rgb, const void *x, int h, int w,
                      struct rl_err *err);

/* ---- noise.c ---- */
void plain_noise(struct ops_ctx *ctx, float *y, uint64_t seed, int64_t n);
void cpu_noise(struct ops_ctx *ctx, float *y, uint64_t seed, int64_t n);

#endif
