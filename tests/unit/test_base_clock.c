// link: -Wl,--wrap=clock_gettime
/* RFC 3339 both ways, and that the clocks read clock_gettime and nothing else. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"

#include <string.h>

static struct timespec fake[16]; /* by clock id */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
    *ts = fake[clock];
    return 0;
}

static const struct {
    const char *text;
    int64_t ms;
} same[] = {
    {"1970-01-01T00:00:00.000Z", 0},
    {"1970-01-01T00:00:00.001Z", 1},
    {"1970-12-31T23:59:59.999Z", INT64_C(31535999999)},
    {"1972-02-29T00:00:00.000Z", INT64_C(68169600000)},
    {"1999-12-31T23:59:59.999Z", INT64_C(946684799999)},
    {"2000-02-29T12:00:00.000Z", INT64_C(951825600000)},
    {"2000-03-01T00:00:00.000Z", INT64_C(951868800000)},
    {"2001-09-09T01:46:40.000Z", INT64_C(1000000000000)},
    {"2024-12-31T23:59:59.000Z", INT64_C(1735689599000)},
    {"2038-01-19T03:14:08.000Z", INT64_C(2147483648000)},
    {"2100-03-01T00:00:00.000Z", INT64_C(4107542400000)},
    {"9999-12-31T23:59:59.999Z", INT64_C(253402300799999)},
};

static void test_rl_time_format_and_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(same); i++) {
        char text[RL_TIME_TEXT];
        int64_t ms = -1;

        rl_time_format(same[i].ms, text);
        assert_string_equal(text, same[i].text);
        assert_int_equal(rl_time_parse(text, &ms, NULL), RL_OK);
        assert_true(ms == same[i].ms);
    }
}

/* Every day from 1970 to 2400 against the C library's calendar. */
static void test_rl_time_format_agrees_with_gmtime(void **state)
{
    (void)state;
    for (int64_t day = 0; day < 157000; day++) {
        char text[RL_TIME_TEXT];
        char expected[RL_TIME_TEXT];
        time_t second = (time_t)(day * 86400 + 86399);
        struct tm tm;
        int64_t ms = -1;

        assert_non_null(gmtime_r(&second, &tm));
        assert_true(strftime(expected, sizeof(expected), "%Y-%m-%dT%H:%M:%S.007Z", &tm) > 0);
        rl_time_format(second * 1000 + 7, text);
        assert_string_equal(text, expected);
        assert_int_equal(rl_time_parse(text, &ms, NULL), RL_OK);
        assert_true(ms == second * 1000 + 7);
    }
}

static void test_rl_time_format_clamps(void **state)
{
    (void)state;
    char text[RL_TIME_TEXT];

    rl_time_format(INT64_MIN, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    rl_time_format(INT64_MAX, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999Z");
}

static void test_rl_time_parse_forms(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } forms[] = {
        {"1970-01-01T00:00:01Z", 1000},
        {"1970-01-01t00:00:01z", 1000},
        {"1970-01-01 00:00:01Z", 1000},
        {"1970-01-01T00:00:01.5Z", 1500},
        {"1970-01-01T00:00:01.0009Z", 1000},
        {"1970-01-01T00:00:01.123456789Z", 1123},
        {"1970-01-01T00:00:01+00:00", 1000},
        {"1970-01-01T00:00:01-00:00", 1000},
        {"1970-01-01T01:00:01+01:00", 1000},
        {"1970-01-01T05:30:00+05:30", 0},
        {"1969-12-31T16:00:00-08:00", 0},
        {"2026-11-30T23:30:00-01:00", INT64_C(1796085000000)},
        {"2024-02-29T23:59:59+23:59", INT64_C(1709164859000)},
        {"2016-12-31T23:59:60Z", INT64_C(1483228800000)}, /* leap second */
        {"2017-01-01T08:59:60+09:00", INT64_C(1483228800000)},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(forms); i++) {
        int64_t ms = -1;
        struct rl_err err = {0};
        if (rl_time_parse(forms[i].text, &ms, &err) != RL_OK || ms != forms[i].ms)
            fail_msg("%s -> %lld %s", forms[i].text, (long long)ms, err.reason);
    }
}

static void test_rl_time_parse_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "now",
                                      "2026",
                                      "2026-11-30",
                                      "2026-11-30T06:42:16",
                                      "2026-11-30T06:42Z",
                                      "2026-11-30T06:42:16.Z",
                                      "2026-11-30T06:42:16,5Z",
                                      "2026-11-30T06:42:16Zx",
                                      "2026-11-30T06:42:16 Z",
                                      " 2026-11-30T06:42:16Z",
                                      "2026-11-30X06:42:16Z",
                                      "2026-00-30T06:42:16Z",
                                      "2026-13-30T06:42:16Z",
                                      "2026-11-00T06:42:16Z",
                                      "2026-11-31T06:42:16Z",
                                      "2026-02-29T06:42:16Z",
                                      "2100-02-29T06:42:16Z",
                                      "2024-02-30T06:42:16Z",
                                      "2026-11-30T24:00:00Z",
                                      "2026-11-30T06:60:00Z",
                                      "2026-11-30T06:42:61Z",
                                      "2026-11-30T06:42:60Z",
                                      "2026-11-30T23:59:60+01:00",
                                      "2026-11-30T06:42:16+1:00",
                                      "2026-11-30T06:42:16+0100",
                                      "2026-11-30T06:42:16+24:00",
                                      "2026-11-30T06:42:16+01:60",
                                      "2026-11-30T06:42:16+",
                                      "+026-11-30T06:42:16Z",
                                      "12026-11-30T06:42:16Z",
                                      "2026-1-30T06:42:16Z",
                                      "0000-01-01T00:00:00Z",
                                      "1969-12-31T23:59:59.999Z",
                                      "1970-01-01T00:00:00+00:01",
                                      "9999-12-31T23:59:59-00:01",
                                      "9999-12-31T23:59:60Z",
                                      "2026-11-30T06:42:16\xc3\xa9"};

    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++) {
        int64_t ms = 42;
        struct rl_err err = {.field = "x"};
        if (rl_time_parse(bad[i], &ms, &err) != RL_INVALID_FIELD)
            fail_msg("accepted: %s", bad[i]);
        assert_true(ms == 42);
        assert_string_equal(err.field, "");
    }
}

static void test_clocks_read_their_clock(void **state)
{
    (void)state;
    fake[CLOCK_REALTIME] = (struct timespec){1764484936, 123999999};
    fake[CLOCK_MONOTONIC] = (struct timespec){5, 6007999};
    fake[CLOCK_BOOTTIME] = (struct timespec){9, 1000000};
    assert_true(rl_wall_ms() == INT64_C(1764484936123));
    assert_true(rl_mono_ms() == 5006);
    assert_true(rl_mono_us() == 5006007);
    assert_true(rl_boot_ms() == 9001);
}

static void test_rl_deadline_carries_and_clamps(void **state)
{
    (void)state;
    fake[CLOCK_MONOTONIC] = (struct timespec){10, 999000000};

    struct timespec ts = rl_deadline(CLOCK_MONOTONIC, 2001);
    assert_true(ts.tv_sec == 13 && ts.tv_nsec == 0);
    ts = rl_deadline(CLOCK_MONOTONIC, -5);
    assert_true(ts.tv_sec == 10 && ts.tv_nsec == 999000000);
    ts = rl_deadline(CLOCK_MONOTONIC, INT64_MAX);
    assert_true(ts.tv_sec > 86400 * 365 && ts.tv_nsec >= 0 && ts.tv_nsec < 1000000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rl_time_format_and_back),
        cmocka_unit_test(test_rl_time_format_agrees_with_gmtime),
        cmocka_unit_test(test_rl_time_format_clamps),
        cmocka_unit_test(test_rl_time_parse_forms),
        cmocka_unit_test(test_rl_time_parse_refuses),
        cmocka_unit_test(test_clocks_read_their_clock),
        cmocka_unit_test(test_rl_deadline_carries_and_clamps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
