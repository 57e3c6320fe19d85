/* The norms of the transformers and of the VAE. */
#include "engine/wan/cpu/cpu.h"

#include <math.h>

#define EPS 1e-6

/* y = (x − mean) / sqrt(variance + eps) · (one + scale) + shift */
static void plain_layer_norm(float *y, const float *x, const float *scale, double one,
                             const float *shift, int64_t l, int64_t d)
{
    for (int64_t row = 0; row < l; row++, x += d, y += d) {
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < d; i++)
            mean += x[i];
        mean /= (double)d;
        for (int64_t i = 0; i < d; i++)
            variance += (x[i] - mean) * (x[i] - mean);
        double inverse = 1 / sqrt(variance / (double)d + EPS);
        for (int64_t i = 0; i < d; i++)
            y[i] = (float)((x[i] - mean) * inverse * (one + scale[i]) + shift[i]);
    }
}

void plain_norm_modulate(struct ops_ctx *ctx, void *y, const float *x, const float *scale,
                         const float *shift, int64_t l, int64_t d)
{
    (void)ctx;
    plain_layer_norm(y, x, scale, 1, shift, l, d);
}

void plain_norm_affine(struct ops_ctx *ctx, void *y, const float *x, const float *weight,
                       const float *bias, int64_t l, int64_t d)
{
    (void)ctx;
    plain_layer_norm(y, x, weight, 0, bias, l, d);
}

static double square_sum(const float *x, int64_t d)
{
    double sum = 0;
    for (int64_t i = 0; i < d; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

void plain_rms_norm(struct ops_ctx *ctx, void *y, const float *x, const float *weight, int64_t l,
                    int64_t d)
{
    float *out = y;
    (void)ctx;
    for (int64_t row = 0; row < l; row++, x += d, out += d) {
        double inverse = 1 / sqrt(square_sum(x, d) / (double)d + EPS);
        for (int64_t i = 0; i < d; i++)
            out[i] = (float)(x[i] * inverse * weight[i]);
    }
}

void plain_channel_norm(struct ops_ctx *ctx, void *y, const float *x, const float *gamma,
                        int64_t pixels, int64_t c, bool silu)
{
    float *out = y;
    (void)ctx;
    for (int64_t pixel = 0; pixel < pixels; pixel++, x += c, out += c) {
        double inverse = sqrt((double)c) / fmax(sqrt(square_sum(x, c)), 1e-12);
        for (int64_t i = 0; i < c; i++) {
            double r = x[i] * inverse * gamma[i];
            out[i] = (float)(silu ? r / (1 + exp(-r)) : r);
        }
    }
}

struct norm_job {
    const struct kernels *kernels;
    char *y;
    const float *x, *scale, *shift;
    float one;
    int64_t d;
    bool silu;
};

static char *act_row(const struct norm_job *job, int64_t row)
{
    return job->y + row * job->d * (int64_t)job->kernels->act_bytes;
}

static void layer_norm_rows(const void *arg, int64_t first, int64_t end)
{
    const struct norm_job *job = arg;
    job->kernels->layer_norm(act_row(job, first), job->x + first * job->d, job->scale, job->one,
                             job->shift, end - first, job->d);
}

void cpu_norm_modulate(struct ops_ctx *ctx, void *y, const float *x, const float *scale,
                       const float *shift, int64_t l, int64_t d)
{
    const struct norm_job job = {
        .kernels = ctx->kernels, .y = y, .x = x, .scale = scale, .shift = shift, .one = 1, .d = d};
    cpu_share(ctx, l, d, layer_norm_rows, &job);
}

void cpu_norm_affine(struct ops_ctx *ctx, void *y, const float *x, const float *weight,
                     const float *bias, int64_t l, int64_t d)
{
    const struct norm_job job = {
        .kernels = ctx->kernels, .y = y, .x = x, .scale = weight, .shift = bias, .d = d};
    cpu_share(ctx, l, d, layer_norm_rows, &job);
}

static void rms_norm_rows(const void *arg, int64_t first, int64_t end)
{
    const struct norm_job *job = arg;
    job->kernels->rms_norm(act_row(job, first), job->x + first * job->d, job->scale, end - first,
                           job->d);
}

void cpu_rms_norm(struct ops_ctx *ctx, void *y, const float *x, const float *weight, int64_t l,
                  int64_t d)
{
    const struct norm_job job = {.kernels = ctx->kernels, .y = y, .x = x, .scale = weight, .d = d};
    cpu_share(ctx, l, d, rms_norm_rows, &job);
}

static void channel_norm_pixels(const void *arg, int64_t first, int64_t end)
{
    const struct norm_job *job = arg;
    job->kernels->channel_norm(act_row(job, first), job->x + first * job->d, job->scale,
                               end - first, job->d, job->silu);
}

void cpu_channel_norm(struct ops_ctx *ctx, void *y, const float *x, const float *gamma,
                      int64_t pixels, int64_t c, bool silu)
{
    const struct norm_job job = {
        .kernels = ctx->kernels, .y = y, .x = x, .scale = gamma, .d = c, .silu = silu};
    cpu_share(ctx, pixels, c, channel_norm_pixels, &job);
}
