/* The samplers against a case whose answer is known: data that is normal in every element has an
 * exact velocity field and an exact path. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/wan/sampler.h"

#include <math.h>
#include <string.h>

#define N     64
#define MEAN  0.7
#define SIGMA 0.4 /* of the data */

static struct ops_ctx *ctx;

static int open_ctx(void **state)
{
    struct rl_err err;
    (void)state;
    return ops_reference()->open(0, 1, &ctx, &err) == RL_OK ? 0 : -1;
}

static int close_ctx(void **state)
{
    (void)state;
    ops_reference()->close(ctx);
    return 0;
}

static struct sampler *make(enum sampler_method method, enum sampler_grid grid, int steps,
                            double shift)
{
    struct sampler *s = NULL;
    struct rl_err err;
    assert_int_equal(sampler_new(ops_reference(), ctx, method, grid, steps, shift, N, &s, &err),
                     RL_OK);
    return s;
}

/* Elements at fixed places of the standard normal, −1.97 … 1.97. */
static void start(float *x)
{
    for (int i = 0; i < N; i++)
        x[i] = (float)((i - (N - 1) / 2.0) / 16);
}

static double spread(double sigma)
{
    return sqrt((1 - sigma) * (1 - sigma) * SIGMA * SIGMA + sigma * sigma);
}

/* The exact velocity at x of σ: (x − E[x0 | x]) / σ. */
static void velocity(double sigma, const float *x, float *v)
{
    double gain = (1 - sigma) * SIGMA * SIGMA / (spread(sigma) * spread(sigma));
    for (int i = 0; i < N; i++) {
        double x0 = MEAN + gain * (x[i] - (1 - sigma) * MEAN);
        v[i] = (float)((x[i] - x0) / sigma);
    }
}

static void run(struct sampler *s, float *x, int steps)
{
    float v[N];
    while (steps-- > 0) {
        velocity(sampler_sigma(s), x, v);
        sampler_advance(s, x, v);
    }
}

/* RMS distance from the exact end of the path. */
static double error_of(enum sampler_method method, int steps)
{
    float x[N];
    double sum = 0, top, exact[N];
    struct sampler *s = make(method, SAMPLER_WAN, steps, 3);
    start(x);
    top = sampler_sigma(s);
    for (int i = 0; i < N; i++)
        exact[i] = MEAN + SIGMA * (x[i] - (1 - top) * MEAN) / spread(top);
    run(s, x, steps);
    assert_int_equal(sampler_step(s), steps);
    assert_true(sampler_sigma(s) == 0);
    for (int i = 0; i < N; i++)
        sum += (x[i] - exact[i]) * (x[i] - exact[i]);
    sampler_free(s);
    return sqrt(sum / N);
}

static void test_advance_converges(void **state)
{
    (void)state;
    double euler20 = error_of(SAMPLER_EULER, 20), euler80 = error_of(SAMPLER_EULER, 80);
    double unipc20 = error_of(SAMPLER_UNIPC, 20), unipc80 = error_of(SAMPLER_UNIPC, 80);
    assert_true(euler20 / euler80 > 3 && euler20 / euler80 < 5); /* order 1 */
    assert_true(unipc20 / unipc80 > 8);                          /* order 2, and better */
    assert_true(unipc20 < euler20 / 2);
    /* the same by a separate program of the paper's formulas in double */
    assert_float_equal(unipc20, 0.0263499, 2e-5);
    assert_float_equal(unipc80, 0.0017183, 2e-5);
}

static void test_new_grids(void **state)
{
    static const int wan[] = {999, 937, 833, 624}, diffusers[] = {999, 937, 833, 625};
    float x[N] = {0}, v[N] = {0};
    (void)state;
    struct sampler *a = make(SAMPLER_UNIPC, SAMPLER_WAN, 4, 5);
    struct sampler *b = make(SAMPLER_UNIPC, SAMPLER_DIFFUSERS, 4, 5);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sampler_time(a), wan[i]);
        assert_int_equal(sampler_time(b), diffusers[i]);
        sampler_advance(a, x, v);
        sampler_advance(b, x, v);
    }
    for (int i = 0; i < N; i++)
        assert_true(isfinite(x[i]));
    sampler_free(a);
    sampler_free(b);
}

static void test_advance_one_step_is_the_prediction(void **state)
{
    float x[N], v[N], x0[N];
    (void)state;
    for (int method = 0; method < 2; method++) {
        struct sampler *s = make((enum sampler_method)method, SAMPLER_WAN, 1, 1);
        start(x);
        velocity(sampler_sigma(s), x, v);
        for (int i = 0; i < N; i++)
            x0[i] = (float)(x[i] - sampler_sigma(s) * v[i]);
        sampler_advance(s, x, v);
        for (int i = 0; i < N; i++)
            assert_float_equal(x[i], x0[i], 1e-5);
        sampler_free(s);
    }
}

static void test_restore_goes_on_with_the_same_bits(void **state)
{
    float whole[N], parts[N];
    struct rl_err err;
    (void)state;
    for (int cut = 0; cut <= 9; cut++) {
        struct sampler *one = make(SAMPLER_UNIPC, SAMPLER_WAN, 9, 3);
        start(whole);
        run(one, whole, 9);
        struct sampler *first = make(SAMPLER_UNIPC, SAMPLER_WAN, 9, 3);
        start(parts);
        run(first, parts, cut);
        char *saved = malloc(sampler_state_bytes(first));
        assert_non_null(saved);
        assert_int_equal(sampler_save(first, saved, &err), RL_OK);
        struct sampler *second = make(SAMPLER_UNIPC, SAMPLER_WAN, 9, 3);
        assert_int_equal(sampler_restore(second, cut, saved, &err), RL_OK);
        run(second, parts, 9 - cut);
        assert_memory_equal(whole, parts, sizeof whole);
        assert_int_equal(sampler_restore(second, 10, saved, &err), RL_INVALID_FIELD);
        free(saved);
        sampler_free(one);
        sampler_free(first);
        sampler_free(second);
    }
}

static void test_parse_names(void **state)
{
    enum sampler_method method;
    enum sampler_grid grid;
    (void)state;
    assert_true(sampler_method_parse("unipc", &method) && method == SAMPLER_UNIPC);
    assert_true(sampler_method_parse("euler", &method) && method == SAMPLER_EULER);
    assert_true(sampler_grid_parse("wan", &grid) && grid == SAMPLER_WAN);
    assert_true(sampler_grid_parse("diffusers", &grid) && grid == SAMPLER_DIFFUSERS);
    assert_false(sampler_method_parse("", &method) || sampler_grid_parse("karras", &grid));
}

static void test_new_refuses(void **state)
{
    struct sampler *s = NULL;
    struct rl_err err;
    (void)state;
    for (int steps = 0; steps <= SAMPLER_STEPS + 1; steps += SAMPLER_STEPS + 1) {
        assert_int_equal(
            sampler_new(ops_reference(), ctx, SAMPLER_EULER, SAMPLER_WAN, steps, 3, N, &s, &err),
            RL_INVALID_FIELD);
        assert_string_equal(err.field, "steps");
        assert_null(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_advance_converges),
        cmocka_unit_test(test_new_grids),
        cmocka_unit_test(test_advance_one_step_is_the_prediction),
        cmocka_unit_test(test_restore_goes_on_with_the_same_bits),
        cmocka_unit_test(test_parse_names),
        cmocka_unit_test(test_new_refuses),
    };
    return cmocka_run_group_tests(tests, open_ctx, close_ctx);
}
