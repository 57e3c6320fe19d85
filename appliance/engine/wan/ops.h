/* The operator table: all arithmetic of the networks. The CPU implements it here, a CUDA plug-in
 * implements it again; the networks (text.c, dit.c, vae.c, sampler.c) are written over it once.
 *
 * Shapes are row-major, the last index is contiguous. Two element types occur: f32 for residual
 * streams, norms, modulation and everything of the sampler; and `act`, the type in which this
 * implementation feeds its matrix products (bf16 where the hardware multiplies it, f32 otherwise).
 * An act buffer has ops->act_bytes per element and only operators look inside. Pictures are
 * channel-last: [frames, height, width, channels].
 *
 * All calls of one context are made by one thread, in order; they may return before the work is
 * done (a GPU), except `download`, `sync` and those that say so. Buffers may not overlap unless an
 * operator says that it works in place. Sizes are checked by the caller (debug builds assert); the
 * calls that return enum rl_rc are those that can fail: memory, and a device that is lost. */
#ifndef RL_ENGINE_WAN_OPS_H
#define RL_ENGINE_WAN_OPS_H

#include "base/rl.h"

struct ops_ctx;    /* one device, one thread; owns its worker threads or stream */
struct ops_weight; /* a matrix as this implementation multiplies by it */

/* How numbers lie in a file. */
enum ops_type { OPS_F32, OPS_F16, OPS_BF16, OPS_F8_E4M3 };

/* A matrix in a file, borrowed during the call that takes it. */
struct ops_source {
    const void *data;
    enum ops_type type;
    int64_t rows, cols;
    float scale; /* F8: of the whole matrix; 1 otherwise */
};

/* What a matrix product does with its result r (bias added) before storing it. */
enum ops_epilogue {
    OPS_STORE_ACT,     /* y act = r */
    OPS_STORE_F32,     /* y f32 = r */
    OPS_GELU_ACT,      /* y act = gelu_tanh(r) */
    OPS_SILU_F32,      /* y f32 = silu(r) */
    OPS_GELU_GATE_ACT, /* y act = y · gelu_tanh(r): the gated unit of umT5 */
    OPS_ADD_F32,       /* y f32 += r */
    OPS_ADD_GATED_F32  /* y f32 += gate[n] · r */
};

/* How a convolution places its input. in [frames][h, w, ci] act, channel-last. */
struct ops_conv {
    const void *const *in; /* kt pointers, oldest frame first; NULL = a frame of zeros */
    int h, w, ci;          /* of the input; ci even */
    int co;
    int kt, kh, kw; /* odd kh, kw; zero padding of kh/2, kw/2 */
    bool upsample;  /* the input is read as if each pixel were 2 × 2 (nearest) */
};

struct ops {
    const char *name; /* "cpu", "cuda" */
    size_t act_bytes; /* 2 or 4 */

    /* ---- context ---- */
    /* threads: for the CPU; 0 = as many as cores. Returns new. */
    enum rl_rc (*open)(int device, int threads, struct ops_ctx **ret_ctx, struct rl_err *err);
    void (*close)(struct ops_ctx *ctx);                          /* NULL allowed */
    enum rl_rc (*sync)(struct ops_ctx *ctx, struct rl_err *err); /* all done; late errors here */
    /* bytes in use now, with what the context keeps for itself (its scratch), and the most since
     * the last call with reset */
    void (*memory)(struct ops_ctx *ctx, bool reset, size_t *ret_now, size_t *ret_peak);

    /* ---- memory ---- */
    enum rl_rc (*alloc)(struct ops_ctx *ctx, size_t bytes, void **ret_mem, struct rl_err *err);
    void (*free)(struct ops_ctx *ctx, void *mem); /* NULL allowed */
    enum rl_rc (*upload)(struct ops_ctx *ctx, void *mem, const void *host, size_t bytes,
                         struct rl_err *err);
    enum rl_rc (*download)(struct ops_ctx *ctx, void *host, const void *mem, size_t bytes,
                           struct rl_err *err); /* waits */
    void (*copy)(struct ops_ctx *ctx, void *to, const void *from, size_t bytes);
    void (*zero)(struct ops_ctx *ctx, void *mem, size_t bytes);
    void (*to_act)(struct ops_ctx *ctx, void *y, const float *x, int64_t n); /* [n] */
    void (*to_f32)(struct ops_ctx *ctx, float *y, const void *x, int64_t n); /* [n] */

    /* ---- weights ---- */
    /* w [rows = n, cols = k] as it multiplies from the right, transposed: y = x · wᵀ. Returns new.
     */
    enum rl_rc (*weight_new)(struct ops_ctx *ctx, const struct ops_source *source,
                             struct ops_weight **ret_weight, struct rl_err *err);
    void (*weight_free)(struct ops_ctx *ctx, struct ops_weight *weight); /* NULL allowed */

    /* ---- products ---- */
    /* x act [m, k], w [n, k], bias f32 [n] or NULL, gate f32 [n] (ADD_GATED only), y [m, n] */
    void (*gemm)(struct ops_ctx *ctx, void *y, const void *x, const struct ops_weight *w,
                 const float *bias, const float *gate, int64_t m, enum ops_epilogue epilogue);
    /* q act [lq, heads · hd], k and v act [lk, heads · hd], out act [lq, heads · hd]:
     * softmax(scale · q·kᵀ + bias) · v per head. bias f32 [heads, lq, lk] or NULL. last_logit is
     * added to the logits of the last key (ln of how many equal keys it stands for; else 0). lk is
     * at least 1, hd at most 1024; logits are finite. */
    void (*attention)(struct ops_ctx *ctx, void *out, const void *q, const void *k, const void *v,
                      int64_t lq, int64_t lk, int heads, int hd, float scale, const float *bias,
                      float last_logit);
    /* The same in f32 throughout, for few rows: x f32 [m, k], w f32 [n, k], y f32 [m, n]. */
    void (*gemm_f32)(struct ops_ctx *ctx, float *y, const float *x, const float *w,
                     const float *bias, int64_t m, int64_t n, int64_t k, bool silu);
    /* One output frame y [h', w', co] (h' = 2h with upsample) of a convolution over kt input
     * frames; w [co, kt·kh·kw·ci] with ci fastest, bias f32 [co]. epilogue: STORE_ACT, STORE_F32 or
     * ADD_F32. */
    void (*conv)(struct ops_ctx *ctx, void *y, const struct ops_conv *shape,
                 const struct ops_weight *w, const float *bias, enum ops_epilogue epilogue);

    /* ---- norms and element-wise ---- */
    /* y act [l, d] = layer_norm(x f32 [l, d]) · (1 + scale[d]) + shift[d]; eps 1e-6, no affine of
     * its own. */
    void (*norm_modulate)(struct ops_ctx *ctx, void *y, const float *x, const float *scale,
                          const float *shift, int64_t l, int64_t d);
    /* y act [l, d] = layer_norm(x f32) · weight[d] + bias[d] */
    void (*norm_affine)(struct ops_ctx *ctx, void *y, const float *x, const float *weight,
                        const float *bias, int64_t l, int64_t d);
    /* y act [l, d] = x f32 / sqrt(mean(x²) + 1e-6) · weight[d] */
    void (*rms_norm)(struct ops_ctx *ctx, void *y, const float *x, const float *weight, int64_t l,
                     int64_t d);
    /* In place, act x [l, heads · hd]: RMS norm over the whole row with weight[heads · hd], then,
     * if cos is not NULL, rotation of the pairs (2i, 2i+1) of each head by cos/sin f32 [l, hd/2].
     */
    void (*rms_rope)(struct ops_ctx *ctx, void *x, const float *weight, const float *cos,
                     const float *sin, int64_t l, int heads, int hd);
    /* The VAE's norm: y act [pixels, c] = x f32 / ‖x‖₂ · √c · gamma[c] (‖x‖ at least 1e-12), then
     * SiLU if asked. */
    void (*channel_norm)(struct ops_ctx *ctx, void *y, const float *x, const float *gamma,
                         int64_t pixels, int64_t c, bool silu);
    /* y f32 [n] = Σ a[i] · x[i], count ≤ 6 terms; y may be one of the x */
    void (*combine)(struct ops_ctx *ctx, float *y, const float *const *x, const float *a, int count,
                    int64_t n);

    /* ---- latents and pictures ---- */
    /* y act [f·(h/2)·(w/2), 4c] from x f32 [c, f, h, w]; columns ordered (c, r, q) */
    void (*patchify)(struct ops_ctx *ctx, void *y, const float *x, int c, int f, int h, int w);
    /* y f32 [c, f, h, w] from x f32 [f·(h/2)·(w/2), 4c]; columns ordered (r, q, c) */
    void (*unpatchify)(struct ops_ctx *ctx, float *y, const float *x, int c, int f, int h, int w);
    /* y f32 [n]: N(0, 1) from Philox4x32-10 (key = seed, counter = index / 4) by Box-Muller in
     * double with additions, multiplications, divisions and square roots alone (no libm, no fused
     * multiply-add), so that every implementation gives the same bits: philox.h. */
    void (*noise)(struct ops_ctx *ctx, float *y, uint64_t seed, int64_t n);
    /* host rgb [h, w, 3] from x act [h, w, 3] in −1..1; waits */
    enum rl_rc (*to_rgb)(struct ops_ctx *ctx, uint8_t *rgb, const void *x, int h, int w,
                         struct rl_err *err);
};

/* The CPU's table: act bf16 where the processor multiplies bf16, else f32. */
const struct ops *ops_cpu(void);
/* The plain forms of the same, one thread, act f32: what the fast ones are tested against. */
const struct ops *ops_reference(void);

#endif
