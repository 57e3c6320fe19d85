/* Noise, the same bits on every machine: see engine/wan/philox.h. Compiled without contraction of
 * a · b + c (CMakeLists.txt). */
#include "engine/wan/cpu/cpu.h"

#include <string.h>

#include "engine/wan/philox.h"

/* Numbers from … end − 1; from is the first of a block. The last few by way of a copy. */
static void fill(float *y, uint64_t seed, int64_t from, int64_t end)
{
    for (int64_t i = from; i < end; i += 4) {
        float four[4];
        philox_normal(four, seed, (uint64_t)i / 4);
        memcpy(y + i, four, (size_t)(end - i < 4 ? end - i : 4) * sizeof *y);
    }
}

void plain_noise(struct ops_ctx *ctx, float *y, uint64_t seed, int64_t n)
{
    (void)ctx;
    fill(y, seed, 0, n);
}

#define ROW 1024 /* numbers, shared out together */

struct noise_job {
    float *y;
    uint64_t seed;
    int64_t n;
};

static void noise_rows(const void *arg, int64_t first, int64_t end)
{
    const struct noise_job *job = arg;
    fill(job->y, job->seed, first * ROW, end * ROW < job->n ? end * ROW : job->n);
}

void cpu_noise(struct ops_ctx *ctx, float *y, uint64_t seed, int64_t n)
{
    const struct noise_job job = {.y = y, .seed = seed, .n = n};
    cpu_share(ctx, (n + ROW - 1) / ROW, ROW, noise_rows, &job);
}
