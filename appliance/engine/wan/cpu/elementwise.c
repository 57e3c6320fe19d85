/* Conversions, rows of a table, and sums of a few arrays. */
#include "engine/wan/cpu/cpu.h"

#include <string.h>

void plain_to_act(struct ops_ctx *ctx, void *y, const float *x, int64_t n)
{
    cpu_copy(ctx, y, x, (size_t)n * sizeof *x);
}

void plain_to_f32(struct ops_ctx *ctx, float *y, const void *x, int64_t n)
{
    cpu_copy(ctx, y, x, (size_t)n * sizeof *y);
}

void cpu_embed(struct ops_ctx *ctx, float *y, const float *table, const int32_t *ids, int64_t n,
               int64_t d)
{
    for (int64_t i = 0; i < n; i++)
        cpu_copy(ctx, y + i * d, table + ids[i] * d, (size_t)d * sizeof *y);
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
