/* Weights: the number formats of files, and matrices in the layout that the products read. */
#include "engine/wan/cpu/cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* IEEE binary16 */
static float from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 1023;
    if (exponent == 0) { /* subnormal: fraction · 2⁻²⁴ */
        float f = (float)fraction * 0x1p-24f;
        return sign ? -f : f;
    }
    if (exponent == 31)
        return from_bits(sign | 0x7f800000 | fraction << 13);
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* 4 bits of exponent (bias 7), 3 of fraction; no infinities, 0x7f and 0xff are not numbers.
 * source: Micikevicius et al., FP8 formats for deep learning, table 1 */
static float from_f8(uint8_t h)
{
    uint32_t sign = (uint32_t)(h & 0x80) << 24, exponent = (h >> 3) & 15, fraction = h & 7;
    if ((h & 0x7f) == 0x7f)
        return NAN;
    if (exponent == 0) {
        float f = (float)fraction * 0x1p-9f;
        return sign ? -f : f;
    }
    return from_bits(sign | (exponent + 120) << 23 | fraction << 20);
}

void cpu_source_read(const struct ops_source *source, int64_t first, int64_t count, float *to)
{
    const unsigned char *bytes = source->data; /* of any alignment */
    uint16_t half;
    switch (source->type) {
    case OPS_F32:
        memcpy(to, bytes + 4 * first, (size_t)count * sizeof *to);
        break;
    case OPS_F16:
        for (int64_t i = 0; i < count; i++) {
            memcpy(&half, bytes + 2 * (first + i), sizeof half);
            to[i] = from_f16(half);
        }
        break;
    case OPS_BF16:
        for (int64_t i = 0; i < count; i++) {
            memcpy(&half, bytes + 2 * (first + i), sizeof half);
            to[i] = from_bits((uint32_t)half << 16);
        }
        break;
    case OPS_F8_E4M3:
        for (int64_t i = 0; i < count; i++)
            to[i] = from_f8(bytes[first + i]) * source->scale;
        break;
    }
}

enum rl_rc plain_weight_new(struct ops_ctx *ctx, const struct ops_source *source,
                            struct ops_weight **ret_weight, struct rl_err *err)
{
    void *head = NULL, *rows = NULL;
    enum rl_rc rc = cpu_alloc(ctx, sizeof(struct ops_weight), &head, err);
    if (rc != RL_OK)
        return rc;
    rc = cpu_alloc(ctx, (size_t)source->rows * (size_t)source->cols * sizeof(float), &rows, err);
    if (rc != RL_OK) {
        cpu_free(ctx, head);
        return rc;
    }
    cpu_source_read(source, 0, source->rows * source->cols, rows);
    struct ops_weight *weight = head;
    *weight = (struct ops_weight){.n = source->rows, .k = source->cols, .rows = rows};
    *ret_weight = weight;
    return RL_OK;
}

void cpu_weight_free(struct ops_ctx *ctx, struct ops_weight *weight)
{
    if (!weight)
        return;
    cpu_free(ctx, weight->rows);
    cpu_free(ctx, weight);
}
