/* Histograms: where a value is counted, and how they are written. */
#include "base/histogram.h"

#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct rl_bounds pieces = {.upto = {1, 2, 4}, .count = 3, .unit = 1};
static const struct rl_bounds us = {.upto = {250, 1000000}, .count = 2, .unit = 1000000};

static void expect(const struct rl_histogram *h, const struct rl_bounds *bounds, const char *labels,
                   const char *want)
{
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 4096);
    rl_histogram_write(h, bounds, "n", labels, &out);
    assert_int_equal(rl_buf_ok(&out, NULL), RL_OK);
    assert_string_equal(out.data, want);
}

static void test_histogram_counts_up_to_and_with_the_bound(void **state)
{
    (void)state;
    struct rl_histogram h = {0};
    static const int64_t values[] = {-3, 0, 1, 2, 3, 4, 5, 1000};
    for (size_t i = 0; i < RL_ARRAY_LEN(values); i++)
        rl_histogram_add(&h, &pieces, values[i]);
    expect(&h, &pieces, "",
           "n_bucket{le=\"1\"} 3\nn_bucket{le=\"2\"} 4\nn_bucket{le=\"4\"} 6\n"
           "n_bucket{le=\"+Inf\"} 8\nn_sum 1015\nn_count 8\n");
}

static void test_histogram_shows_its_unit_and_labels(void **state)
{
    (void)state;
    struct rl_histogram h = {0};
    rl_histogram_add(&h, &us, 250);
    rl_histogram_add(&h, &us, 1500000);
    expect(&h, &us, "a=\"b\"",
           "n_bucket{a=\"b\",le=\"0.00025\"} 1\nn_bucket{a=\"b\",le=\"1\"} 1\n"
           "n_bucket{a=\"b\",le=\"+Inf\"} 2\nn_sum{a=\"b\"} 1.500250\nn_count{a=\"b\"} 2\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histogram_counts_up_to_and_with_the_bound),
        cmocka_unit_test(test_histogram_shows_its_unit_and_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
