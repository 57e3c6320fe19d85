/* The norm of queries and keys with the rotary position embedding. */
#include "engine/wan/cpu/cpu.h"

#include <math.h>

void plain_rms_rope(struct ops_ctx *ctx, void *x, const float *weight, const float *cos,
                    const float *sin, int64_t l, int heads, int hd)
{
    int64_t d = (int64_t)heads * hd, half = hd / 2;
    float *row = x;
    (void)ctx;
    for (int64_t i = 0; i < l; i++, row += d) {
        double sum = 0;
        for (int64_t j = 0; j < d; j++)
            sum += (double)row[j] * row[j];
        double inverse = 1 / sqrt(sum / (double)d + 1e-6);
        if (!cos) {
            for (int64_t j = 0; j < d; j++)
                row[j] = (float)(row[j] * inverse * weight[j]);
            continue;
        }
        for (int64_t j = 0; j < d; j += 2) {
            int64_t pair = i * half + j % hd / 2;
            double a = row[j] * inverse * weight[j], b = row[j + 1] * inverse * weight[j + 1];
            row[j] = (float)(a * cos[pair] - b * sin[pair]);
            row[j + 1] = (float)(a * sin[pair] + b * cos[pair]);
        }
    }
}

struct rope_job {
    const struct kernels *kernels;
    char *x;
    const float *weight, *cos, *sin;
    int heads, hd;
};

static void rope_rows(const void *arg, int64_t first, int64_t end)
{
    const struct rope_job *job = arg;
    int64_t d = (int64_t)job->heads * job->hd, at = first * job->hd / 2;
    job->kernels->rms_rope(job->x + first * d * (int64_t)job->kernels->act_bytes, job->weight,
                           job->cos ? job->cos + at : NULL, job->cos ? job->sin + at : NULL,
                           end - first, job->heads, job->hd);
}

void cpu_rms_rope(struct ops_ctx *ctx, void *x, const float *weight, const float *cos,
                  const float *sin, int64_t l, int heads, int hd)
{
    const struct rope_job job = {.kernels = ctx->kernels,
                                 .x = x,
                                 .weight = weight,
                                 .cos = cos,
                                 .sin = sin,
                                 .heads = heads,
                                 .hd = hd};
    cpu_share(ctx, l, (int64_t)heads * hd, rope_rows, &job);
}
