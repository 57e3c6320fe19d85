/* Noise, the same bits on every machine: see engine/wan/philox.h. Compiled without contraction of
 * a · b + c (CMakeLists.txt). */
#include "engine/wan/cpu/cpu.h"

#include <string.h>

#include "engine/wan/philox.h"

/* Four numbers at a time; the last few by way of a copy. */
void plain_noise(struct ops_ctx *ctx, float *y, uint64_t seed, int64_t n)
{
    (void)ctx;
    for (int64_t i = 0; i < n; i += 4) {
        float four[4];
        philox_normal(four, seed, (uint64_t)i / 4);
        memcpy(y + i, four, (size_t)(n - i < 4 ? n - i : 4) * sizeof *y);
    }
}
