/* The inner loops of the fast forms, once per instruction set: kernels.inc is compiled for each,
 * and the best that the processor has is chosen when a context opens. All are pure functions.
 *
 * The right side of a product lies in panels of `panel` columns, padded with zeros: k × panel
 * numbers in rows of k (f32), or in pairs of k, k/2 × panel × 2 (bf16). Both are arrays of 32-bit
 * units, [depth][panel] with depth = units(k). */
#ifndef RL_ENGINE_WAN_CPU_KERNELS_H
#define RL_ENGINE_WAN_CPU_KERNELS_H

#include "engine/wan/ops.h"

#define BLOCK_COLS 64 /* of the right side, worked on at a time: a multiple of every panel */

/* c f32 [rows, cols] (row stride ldc) = (or +=, with add) Σ over the runs of a [rows, k] · b [k,
 * cols]. Columns up to the end of their panel are written. */
struct product {
    const void *const *a; /* [runs] act, row stride lda */
    const void *const *b; /* [runs]: where the run begins in the first panel */
    int runs;
    int rows, cols;  /* cols <= BLOCK_COLS */
    int64_t k;       /* of each run */
    int64_t lda;     /* in numbers */
    int64_t b_panel; /* from one panel to the next, in units */
    float *c;
    int64_t ldc;
    bool add;
};

/* One step of attention: a block of keys, its logits turned into probabilities. */
struct softmax {
    float *logits;     /* [rows, ld]: q·kᵀ */
    void *p;           /* act [rows, ld]: e^(logit − top), zero from cols on */
    const float *bias; /* [rows, bias_ld] of this block, or NULL */
    float *top, *sum;  /* [rows]: of the blocks so far; top is finite */
    float *out;        /* [rows, out_ld]: what the blocks so far gave, scaled down as top rises */
    int rows, cols;
    int64_t ld, bias_ld, out_ld, out_cols;
    float scale, last_logit; /* last_logit: added to column cols − 1 */
    bool first;              /* block: top, sum and out hold nothing yet */
};

/* What to do with finished results r [rows, cols] (row stride BLOCK_COLS). */
struct finish {
    const float *r;
    void *y; /* act or f32, row stride ldy */
    int64_t ldy;
    const float *bias, *gate; /* [cols] or NULL */
    int rows, cols;
    enum ops_epilogue epilogue;
};

struct kernels {
    size_t act_bytes; /* 2: bf16, 4: f32 */
    int panel;
    bool any_cut; /* a result has the same bits however the rows of a product are cut */
    void (*multiply)(const struct product *product);
    /* act rows [count, k] (row stride in numbers) as columns of panels: y = rows transposed.
     * count <= panel */
    void (*pack_rows)(void *panel, const void *rows, int64_t stride, int count, int64_t k,
                      int width);
    /* act rows [k, cols] as they stand: panel p of them at y + p · panel_units */
    void (*pack_cols)(void *y, const void *rows, int64_t stride, int64_t k, int64_t cols,
                      int64_t panel_units, int width);
    void (*finish)(const struct finish *finish);
    void (*softmax)(const struct softmax *softmax);
    /* act out [rows, cols] = x f32 [rows, ld] / sum [rows] */
    void (*divide)(void *out, int64_t out_ld, const float *x, int64_t ld, const float *sum,
                   int rows, int64_t cols);
    void (*dots)(float *y, const float *x, const float *w, int64_t m, int64_t ldy, int64_t k);
    void (*to_act)(void *y, const float *x, int64_t n);
    void (*to_f32)(float *y, const void *x, int64_t n);
    void (*silu)(float *y, int64_t n); /* in place */
    void (*layer_norm)(void *y, const float *x, const float *scale, float one, const float *shift,
                       int64_t l, int64_t d);
    void (*rms_norm)(void *y, const float *x, const float *weight, int64_t l, int64_t d);
    void (*channel_norm)(void *y, const float *x, const float *gamma, int64_t pixels, int64_t c,
                         bool silu);
    void (*rms_rope)(void *x, const float *weight, const float *cos, const float *sin, int64_t l,
                     int heads, int hd);
    void (*combine)(float *y, const float *const *x, const float *a, int count, int64_t n);
};

extern const struct kernels kernels_lanes; /* any processor */
#if defined(__x86_64__)
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;
extern const struct kernels kernels_bf16; /* AVX512-BF16 */
#endif

#endif
