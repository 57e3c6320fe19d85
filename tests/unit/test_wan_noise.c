/* The noise of a seed: Philox against the known answers of its authors, the normals against libm
 * and their moments, and their bits, which no machine may change. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "engine/wan/ops.h"
#include "engine/wan/philox.h"

#define MANY 1000003

/* source: kat_vectors of Random123 1.09, philox4x32 with 10 rounds */
static void test_philox_known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(known); i++) {
        uint32_t counter[4];
        memcpy(counter, known[i].counter, sizeof counter);
        philox_4x32(counter, known[i].key[0], known[i].key[1]);
        assert_memory_equal(counter, known[i].answer, sizeof counter);
    }
}

static void test_philox_functions_match_libm(void **state)
{
    double worst_ln = 0, worst_turn = 0;
    (void)state;
    for (uint64_t i = 0; i < 200000; i++) {
        uint32_t r[4] = {(uint32_t)i, 0, 0, 0};
        philox_4x32(r, 1, 2);
        r[0] = i == 0 ? 0 : i == 1 ? ~0U : r[0];
        double u = ((double)r[0] + 0.5) * 0x1p-32, cosine, sine;
        philox_turn(u, &cosine, &sine);
        worst_ln = fmax(worst_ln, fabs(philox_ln(u) / log(u) - 1));
        worst_turn = fmax(worst_turn, fabs(cosine - cos(2 * M_PI * u)));
        worst_turn = fmax(worst_turn, fabs(sine - sin(2 * M_PI * u)));
    }
    assert_true(worst_ln < 1e-15);
    assert_true(worst_turn < 1e-15); /* of which the product 2πu in libm's argument is the most */
}

/* FNV-1a of the bits */
static uint64_t digest(const float *y, int64_t n)
{
    const unsigned char *bytes = (const unsigned char *)y;
    uint64_t hash = 0xcbf29ce484222325U;
    for (int64_t i = 0; i < n * (int64_t)sizeof *y; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3U;
    return hash;
}

static void test_noise_moments_and_bits(const struct ops *ops, int threads)
{
    struct rl_err err;
    struct ops_ctx *ctx;
    double sum[5] = {0};
    float *y = malloc(MANY * sizeof *y);
    assert_non_null(y);
    assert_int_equal(ops->open(0, threads, &ctx, &err), RL_OK);
    ops->noise(ctx, y, 0x0123456789abcdefU, MANY);
    for (int i = 0; i < MANY; i++)
        for (int p = 1; p <= 4; p++)
            sum[p] += pow(y[i], p) / MANY;
    /* five standard errors of a million numbers: 1, √2, √15 and √96 thousandths each */
    assert_true(fabs(sum[1]) < 0.005);
    assert_true(fabs(sum[2] - 1) < 0.0071);
    assert_true(fabs(sum[3]) < 0.0194);
    assert_true(fabs(sum[4] - 3) < 0.049);
    assert_true(digest(y, MANY) == 0xf29d79c667c6d152U);
    for (int n = 1; n < 10; n++) { /* a shorter noise is the beginning of a longer one */
        float few[12] = {0};
        ops->noise(ctx, few, 0x0123456789abcdefU, n);
        assert_memory_equal(few, y, (size_t)n * sizeof *y);
        assert_true(few[n] == 0);
    }
    float other[4];
    ops->noise(ctx, other, 0x0123456789abcdeeU, 4);
    assert_memory_not_equal(other, y, sizeof other);
    ops->close(ctx);
    free(y);
}

static void test_noise_reference(void **state)
{
    (void)state;
    test_noise_moments_and_bits(ops_reference(), 1);
}

static void test_noise_cpu(void **state)
{
    (void)state;
    test_noise_moments_and_bits(ops_cpu(), 1);
    test_noise_moments_and_bits(ops_cpu(), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_philox_functions_match_libm),
        cmocka_unit_test(test_noise_reference),
        cmocka_unit_test(test_noise_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
