/* The matrix products and what they do with a result before storing it. */
#include "engine/wan/cpu/cpu.h"

#include <assert.h>
#include <math.h>

static double silu(double r)
{
    return r / (1 + exp(-r));
}

static double gelu_tanh(double r)
{
    return 0.5 * r * (1 + tanh(0.79788456080286536 * (r + 0.044715 * r * r * r)));
}

void plain_epilogue(float *y, double r, const float *gate, enum ops_epilogue epilogue)
{
    switch (epilogue) {
    case OPS_STORE_ACT:
    case OPS_STORE_F32:
        *y = (float)r;
        break;
    case OPS_GELU_ACT:
        *y = (float)gelu_tanh(r);
        break;
    case OPS_SILU_F32:
        *y = (float)silu(r);
        break;
    case OPS_GELU_GATE_ACT:
        *y = (float)(*y * gelu_tanh(r));
        break;
    case OPS_ADD_F32:
        *y = (float)(*y + r);
        break;
    case OPS_ADD_GATED_F32:
        *y = (float)(*y + *gate * r);
        break;
    }
}

void plain_gemm(struct ops_ctx *ctx, void *y, const void *x, const struct ops_weight *w,
                const float *bias, const float *gate, int64_t m, enum ops_epilogue epilogue)
{
    const float *rows = x;
    float *out = y;
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < w->n; j++) {
            double r = bias ? bias[j] : 0;
            for (int64_t p = 0; p < w->k; p++)
                r += (double)rows[i * w->k + p] * w->rows[j * w->k + p];
            plain_epilogue(out + i * w->n + j, r, gate ? gate + j : NULL, epilogue);
        }
}

void plain_gemm_f32(struct ops_ctx *ctx, float *y, const float *x, const float *w,
                    const float *bias, int64_t m, int64_t n, int64_t k, bool with_silu)
{
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double r = bias ? bias[j] : 0;
            for (int64_t p = 0; p < k; p++)
                r += (double)x[i * k + p] * w[j * k + p];
            y[i * n + j] = (float)(with_silu ? silu(r) : r);
        }
}
