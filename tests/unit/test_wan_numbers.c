/* The number types of model files: every value of each. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/wan/numbers.h"

#include <math.h>

static bool same(float a, float b)
{
    return isnan(b) ? isnan(a) : a == b && signbit(a) == signbit(b);
}

/* sign, exponent and fraction taken apart, the plain way */
static float plain(uint32_t bits, int exponent_bits, int fraction_bits, int special)
{
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (int)(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    int fraction = (int)bits & ((1 << fraction_bits) - 1);
    float sign = bits >> (exponent_bits + fraction_bits) ? -1.0F : 1.0F;

    if (exponent == (1 << exponent_bits) - 1 && special)
        return fraction ? NAN : sign * INFINITY;
    if (!exponent)
        return sign * ldexpf((float)fraction, 1 - bias - fraction_bits);
    return sign * ldexpf((float)(fraction + (1 << fraction_bits)), exponent - bias - fraction_bits);
}

/* Every value that the four types have. */
static void test_numbers_all_values(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x10000; i++) {
        uint16_t half = (uint16_t)i;
        float f = 0;

        wan_numbers(OPS_F16, &half, 1, 1, &f);
        assert_true(same(f, plain(i, 5, 10, true)));
        wan_numbers(OPS_BF16, &half, 1, 1, &f);
        assert_true(same(f, plain(i, 8, 7, true)));
    }
    for (uint32_t i = 0; i < 0x100; i++) {
        uint8_t byte = (uint8_t)i;
        float f = 0;

        wan_numbers(OPS_F8_E4M3, &byte, 1, 1, &f);
        assert_true(same(f, (i & 0x7f) == 0x7f ? NAN : plain(i, 4, 3, false)));
    }
    const unsigned char odd[9] = {0xff, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0};
    float two[2];
    wan_numbers(OPS_F32, odd + 1, 2, 0.5F, two);
    assert_true(two[0] == 0.5F && two[1] == -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_all_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
