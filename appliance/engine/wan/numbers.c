/* One loop per type without branches, so that the compiler makes vectors of them: a model of a
 * billion numbers passes through here at load. */
#include "engine/wan/numbers.h"

#include <string.h>

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Sign, 5 bits of exponent, 10 of fraction. The bits in the place of an f32's are off by the
 * difference of the two biases, which a product by a power of two puts right, also for values below
 * the normal range. */
static float from_f16(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fff), sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t special = magnitude >= 0x7c00 ? 0x7f800000 : 0; /* infinity and NaN */
    return from_bits(to_bits(from_bits(magnitude << 13) * 0x1p112f) | special | sign);
}

/* Sign, 4 bits of exponent, 3 of fraction; no infinities, all ones is NaN. */
static float from_f8_e4m3(uint8_t b)
{
    uint32_t magnitude = (uint32_t)(b & 0x7f), sign = (uint32_t)(b & 0x80) << 24;
    uint32_t special = magnitude == 0x7f ? 0x7fc00000 : 0;
    return from_bits(to_bits(from_bits(magnitude << 20) * 0x1p120f) | special | sign);
}

size_t wan_number_bytes(enum ops_type type)
{
    switch (type) {
    case OPS_F32:
        return 4;
    case OPS_F16:
    case OPS_BF16:
        return 2;
    case OPS_F8_E4M3:
        break;
    }
    return 1;
}

void wan_numbers(enum ops_type type, const void *data, int64_t n, float scale, float *ret_values)
{
    const unsigned char *p = data;
    uint16_t half;
    float f;
    switch (type) {
    case OPS_F32:
        for (int64_t i = 0; i < n; i++) {
            memcpy(&f, p + 4 * i, sizeof f);
            ret_values[i] = f * scale;
        }
        break;
    case OPS_F16:
        for (int64_t i = 0; i < n; i++) {
            memcpy(&half, p + 2 * i, sizeof half);
            ret_values[i] = from_f16(half) * scale;
        }
        break;
    case OPS_BF16:
        for (int64_t i = 0; i < n; i++) {
            memcpy(&half, p + 2 * i, sizeof half);
            ret_values[i] = from_bits((uint32_t)half << 16) * scale;
        }
        break;
    case OPS_F8_E4M3:
        for (int64_t i = 0; i < n; i++)
            ret_values[i] = from_f8_e4m3(p[i]) * scale;
        break;
    }
}
