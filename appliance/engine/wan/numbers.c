/* Numbers as they lie in weight files, to f32. Exact: every value of the four types is an f32. Any
 * alignment, any thread, no state. */
#include "engine/wan/model.h"

#include <string.h>

static float from_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* Sign, 5 bits of exponent, 10 of fraction. The bits in the place of an f32's are off by the
 * difference of the two biases, which a product by a power of two puts right, also for values below
 * the normal range. */
static float from_f16(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;

    if (magnitude >= 0x0f800000) /* infinity and NaN */
        return from_bits(sign | 0x70000000 | magnitude);
    float f = from_bits(magnitude) * 0x1p112F;
    return sign ? -f : f;
}

/* Sign, 4 bits of exponent, 3 of fraction; no infinities, all ones is NaN. */
static float from_f8_e4m3(uint8_t b)
{
    uint32_t magnitude = (uint32_t)(b & 0x7f) << 20;
    uint32_t sign = (uint32_t)(b & 0x80) << 24;

    if ((b & 0x7f) == 0x7f)
        return from_bits(sign | 0x7fc00000);
    float f = from_bits(magnitude) * 0x1p120F;
    return sign ? -f : f;
}

static float element(enum ops_type type, const unsigned char *p)
{
    uint16_t half;
    float f;

    switch (type) {
    case OPS_F32:
        memcpy(&f, p, sizeof(f));
        return f;
    case OPS_F16:
        memcpy(&half, p, sizeof(half));
        return from_f16(half);
    case OPS_BF16:
        memcpy(&half, p, sizeof(half));
        return from_bits((uint32_t)half << 16);
    case OPS_F8_E4M3:
        return from_f8_e4m3(*p);
    }
    return 0;
}

void wan_numbers(enum ops_type type, const void *data, int64_t n, float scale, float *ret_values)
{
    const unsigned char *p = data;
    int64_t size = type == OPS_F32 ? 4 : type == OPS_F8_E4M3 ? 1 : 2;

    for (int64_t i = 0; i < n; i++)
        ret_values[i] = element(type, p + i * size) * scale;
}
