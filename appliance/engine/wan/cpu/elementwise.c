/* Conversions, rows of a table, and sums of a few arrays. */
#include "engine/wan/cpu/cpu.h"

#include <assert.h>

#define TERMS 6 /* of combine, at most */

void plain_to_act(struct ops_ctx *ctx, void *y, const float *x, int64_t n)
{
    cpu_copy(ctx, y, x, (size_t)n * sizeof *x);
}

void plain_to_f32(struct ops_ctx *ctx, float *y, const void *x, int64_t n)
{
    cpu_copy(ctx, y, x, (size_t)n * sizeof *y);
}

void plain_combine(struct ops_ctx *ctx, float *y, const float *const *x, const float *a, int count,
                   int64_t n)
{
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int t = 0; t < count; t++)
            sum += (double)a[t] * x[t][i];
        y[i] = (float)sum;
    }
}

/* An array is shared out in rows of this many numbers, the last one shorter. */
#define ROW 4096

struct array_job {
    const struct kernels *kernels;
    void *y;
    const void *x;
    const float *const *terms;
    const float *a;
    int count;
    int64_t n;
};

static void share_array(const struct ops_ctx *ctx, const struct array_job *job,
                        void (*task)(const void *job, int64_t first, int64_t end))
{
    cpu_share(ctx, (job->n + ROW - 1) / ROW, ROW, task, job);
}

/* Numbers of rows first … end − 1. */
static int64_t numbers(const struct array_job *job, int64_t first, int64_t end)
{
    return (end * ROW < job->n ? end * ROW : job->n) - first * ROW;
}

static void to_act_rows(const void *arg, int64_t first, int64_t end)
{
    const struct array_job *job = arg;
    job->kernels->to_act((char *)job->y + first * ROW * (int64_t)job->kernels->act_bytes,
                         (const float *)job->x + first * ROW, numbers(job, first, end));
}

void cpu_to_act(struct ops_ctx *ctx, void *y, const float *x, int64_t n)
{
    const struct array_job job = {.kernels = ctx->kernels, .y = y, .x = x, .n = n};
    share_array(ctx, &job, to_act_rows);
}

static void to_f32_rows(const void *arg, int64_t first, int64_t end)
{
    const struct array_job *job = arg;
    job->kernels->to_f32((float *)job->y + first * ROW,
                         (const char *)job->x + first * ROW * (int64_t)job->kernels->act_bytes,
                         numbers(job, first, end));
}

void cpu_to_f32(struct ops_ctx *ctx, float *y, const void *x, int64_t n)
{
    const struct array_job job = {.kernels = ctx->kernels, .y = y, .x = x, .n = n};
    share_array(ctx, &job, to_f32_rows);
}

static void combine_rows(const void *arg, int64_t first, int64_t end)
{
    const struct array_job *job = arg;
    const float *x[TERMS];
    for (int i = 0; i < job->count; i++)
        x[i] = job->terms[i] + first * ROW;
    job->kernels->combine((float *)job->y + first * ROW, x, job->a, job->count,
                          numbers(job, first, end));
}

void cpu_combine(struct ops_ctx *ctx, float *y, const float *const *x, const float *a, int count,
                 int64_t n)
{
    const struct array_job job = {
        .kernels = ctx->kernels, .y = y, .terms = x, .a = a, .count = count, .n = n};
    assert(count <= TERMS);
    share_array(ctx, &job, combine_rows);
}
