/* Byte ranges and conditional requests. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/range.h"

static void test_range_parse_table(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t size;
        enum range_kind kind;
        int64_t first, last;
    } cases[] = {
        {"bytes=0-0", 10, RANGE_PART, 0, 0},
        {"bytes=2-5", 10, RANGE_PART, 2, 5},
        {"Bytes=5-", 10, RANGE_PART, 5, 9},
        {"bytes=-3", 10, RANGE_PART, 7, 9},
        {"bytes=-30", 10, RANGE_PART, 0, 9},
        {"bytes=8-999", 10, RANGE_PART, 8, 9},
        {"bytes=0-99999999999999999999999", 10, RANGE_PART, 0, 9},
        {"bytes=-99999999999999999999999", 10, RANGE_PART, 0, 9},
        {"bytes= 1-2 ", 10, RANGE_PART, 1, 2},
        {"bytes=10-", 10, RANGE_REFUSED, 0, 0},
        {"bytes=99999999999999999999999-", 10, RANGE_REFUSED, 0, 0},
        {"bytes=-0", 10, RANGE_REFUSED, 0, 0},
        {"bytes=0-", 0, RANGE_REFUSED, 0, 0},
        {"bytes=-1", 0, RANGE_REFUSED, 0, 0},
        {"bytes=5-2", 10, RANGE_WHOLE, 0, 0},
        {"bytes=0-1,3-4", 10, RANGE_WHOLE, 0, 0},
        {"bytes=-", 10, RANGE_WHOLE, 0, 0},
        {"bytes=", 10, RANGE_WHOLE, 0, 0},
        {"bytes=a-b", 10, RANGE_WHOLE, 0, 0},
        {"bytes=1-2x", 10, RANGE_WHOLE, 0, 0},
        {"bytes=+1-2", 10, RANGE_WHOLE, 0, 0},
        {"items=0-1", 10, RANGE_WHOLE, 0, 0},
        {NULL, 10, RANGE_WHOLE, 0, 0},
    };
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        int64_t first = -7, last = -7;
        assert_int_equal(range_parse(cases[i].text, cases[i].size, &first, &last), cases[i].kind);
        assert_int_equal(first, cases[i].kind == RANGE_PART ? cases[i].first : -7);
        assert_int_equal(last, cases[i].kind == RANGE_PART ? cases[i].last : -7);
    }
}

static const struct file_facts file = {"\"abc\"", 784111777, 100};
static const char file_date[] = "Sun, 06 Nov 1994 08:49:37 GMT";

static enum file_answer decide(struct conditions c, bool is_get)
{
    int64_t first, last;
    return file_decide(&c, &file, is_get, &first, &last);
}

static void test_file_decide_if_range(void **state)
{
    (void)state;
    assert_int_equal(decide((struct conditions){.range = "bytes=0-1"}, true), FILE_PART);
    assert_int_equal(decide((struct conditions){.range = "bytes=0-1", .if_range = "\"abc\""}, true),
                     FILE_PART);
    assert_int_equal(decide((struct conditions){.range = "bytes=0-1", .if_range = "\"old\""}, true),
                     FILE_WHOLE);
    assert_int_equal(
        decide((struct conditions){.range = "bytes=0-1", .if_range = "W/\"abc\""}, true),
        FILE_WHOLE);
    assert_int_equal(decide((struct conditions){.range = "bytes=0-1", .if_range = file_date}, true),
                     FILE_PART);
    assert_int_equal(decide((struct conditions){.range = "bytes=0-1",
                                                .if_range = "Sun, 06 Nov 1994 08:49:38 GMT"},
                            true),
                     FILE_WHOLE);
    assert_int_equal(decide((struct conditions){.range = "bytes=200-"}, true), FILE_REFUSED);
    assert_int_equal(
        decide((struct conditions){.range = "bytes=200-", .if_range = "\"old\""}, true),
        FILE_WHOLE);
    assert_int_equal(decide((struct conditions){.range = "bytes=0-1"}, false), FILE_WHOLE);
}

static void test_file_decide_not_modified(void **state)
{
    (void)state;
    assert_int_equal(
        decide((struct conditions){.if_none_match = "\"abc\"", .range = "bytes=0-1"}, true),
        FILE_NOT_MODIFIED);
    assert_int_equal(
        decide((struct conditions){.if_none_match = "\"x\"", .if_modified_since = file_date}, true),
        FILE_WHOLE); /* the tag outranks the date */
    assert_int_equal(decide((struct conditions){.if_modified_since = file_date}, false),
                     FILE_NOT_MODIFIED);
    assert_int_equal(
        decide((struct conditions){.if_modified_since = "Sun, 06 Nov 1994 08:49:36 GMT"}, true),
        FILE_WHOLE);
    assert_int_equal(decide((struct conditions){.if_modified_since = "nonsense"}, true),
                     FILE_WHOLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_range_parse_table),
        cmocka_unit_test(test_file_decide_if_range),
        cmocka_unit_test(test_file_decide_not_modified),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
