/* Attention. */
#include "engine/wan/cpu/cpu.h"

#include <math.h>

/* One query of one head against one key. */
static double logit(const float *q, const float *k, int hd, double scale)
{
    double sum = 0;
    for (int i = 0; i < hd; i++)
        sum += (double)q[i] * k[i];
    return sum * scale;
}

/* One row of one head: the logits are worked out twice, so that no row of them need be kept. */
static void plain_row(float *out, const float *q, const float *k, const float *v, int64_t lk,
                      int64_t stride, int hd, double scale, const float *bias, double last_logit)
{
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < lk; j++) {
        double s = logit(q, k + j * stride, hd, scale) + (bias ? bias[j] : 0) +
                   (j == lk - 1 ? last_logit : 0);
        top = s > top ? s : top;
    }
    for (int i = 0; i < hd; i++)
        out[i] = 0;
    for (int64_t j = 0; j < lk; j++) {
        double s = logit(q, k + j * stride, hd, scale) + (bias ? bias[j] : 0) +
                   (j == lk - 1 ? last_logit : 0);
        double p = exp(s - top);
        sum += p;
        for (int i = 0; i < hd; i++)
            out[i] = (float)(out[i] + p * v[j * stride + i]);
    }
    for (int i = 0; i < hd; i++)
        out[i] = (float)(out[i] / sum);
}

void plain_attention(struct ops_ctx *ctx, void *out, const void *q, const void *k, const void *v,
                     int64_t lq, int64_t lk, int heads, int hd, float scale, const float *bias,
                     float last_logit)
{
    const float *queries = q, *keys = k, *values = v;
    float *results = out;
    int64_t stride = (int64_t)heads * hd;
    (void)ctx;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < lq; i++)
            plain_row(results + i * stride + h * hd, queries + i * stride + h * hd, keys + h * hd,
                      values + h * hd, lk, stride, hd, scale,
                      bias ? bias + (h * lq + i) * lk : NULL, last_logit);
}
