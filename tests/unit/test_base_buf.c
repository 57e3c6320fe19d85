// link: -Wl,--wrap=realloc -Wl,--wrap=snprintf -Wl,--wrap=strtod -Wl,--wrap=__snprintf_chk
/* The buffer's limit and sticky failure, and the JSON writer byte for byte. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"

#include <math.h>
#include <string.h>

static bool no_memory;   /* realloc fails */
static bool comma_point; /* snprintf and strtod behave as in a locale with a decimal comma */

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
double __real_strtod(const char *text, char **end);
double __wrap_strtod(const char *text, char **end);
int __wrap_snprintf(char *out, size_t size, const char *fmt, ...) RL_PRINTF(3, 4);
int __wrap___snprintf_chk(char *out, size_t size, int flag, size_t room, const char *fmt, ...)
    RL_PRINTF(5, 6); /* what snprintf is with _FORTIFY_SOURCE */

void *__wrap_realloc(void *p, size_t size)
{
    return no_memory ? NULL : __real_realloc(p, size);
}

static void swap_chars(char *text, char from, char to)
{
    for (; *text; text++) {
        if (*text == from)
            *text = to;
    }
}

static int format(char *out, size_t size, const char *fmt, va_list args) RL_PRINTF(3, 0);

static int format(char *out, size_t size, const char *fmt, va_list args)
{
    int n = vsnprintf(out, size, fmt, args);

    if (comma_point && n > 0 && (size_t)n < size)
        swap_chars(out, '.', ',');
    return n;
}

int __wrap_snprintf(char *out, size_t size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = format(out, size, fmt, args);
    va_end(args);
    return n;
}

int __wrap___snprintf_chk(char *out, size_t size, int flag, size_t room, const char *fmt, ...)
{
    (void)flag;
    (void)room;
    va_list args;
    va_start(args, fmt);
    int n = format(out, size, fmt, args);
    va_end(args);
    return n;
}

double __wrap_strtod(const char *text, char **end)
{
    char copy[64] = "";

    if (!comma_point)
        return __real_strtod(text, end);
    memcpy(copy, text, strnlen(text, sizeof(copy) - 1));
    swap_chars(copy, '.', '!'); /* a point ends the number there */
    swap_chars(copy, ',', '.');
    return __real_strtod(copy, NULL);
}

static void test_rl_buf_append_grows(void **state)
{
    (void)state;
    AUTO_BUF struct rl_buf b = {0};

    rl_buf_init(&b, 100000);
    for (int i = 0; i < 10000; i++)
        rl_buf_append(&b, "0123456789", 10);
    assert_int_equal(rl_buf_ok(&b, NULL), RL_OK);
    assert_int_equal(b.len, 100000);
    assert_int_equal(b.data[100000], '\0');
    assert_int_equal(strlen(b.data), 100000);
    assert_memory_equal(b.data + 99990, "0123456789", 10);
}

static void test_rl_buf_limit_sticks(void **state)
{
    (void)state;
    AUTO_BUF struct rl_buf b = {0};
    struct rl_err err = {0};

    rl_buf_init(&b, 5);
    rl_buf_str(&b, "hello");
    assert_int_equal(rl_buf_ok(&b, NULL), RL_OK);
    rl_buf_str(&b, "");
    assert_int_equal(rl_buf_ok(&b, NULL), RL_OK);
    rl_buf_str(&b, "!");
    assert_int_equal(rl_buf_ok(&b, &err), RL_BODY_TOO_LARGE);
    assert_int_equal(err.code, RL_BODY_TOO_LARGE);
    assert_int_equal(b.len, 5);

    rl_buf_clear(&b);
    rl_buf_str(&b, "abcdef");
    rl_buf_str(&b, "a"); /* fits, but something before it is missing */
    rl_buf_fmt(&b, "%d", 1);
    assert_int_equal(rl_buf_ok(&b, NULL), RL_BODY_TOO_LARGE);
    assert_int_equal(b.len, 0);
    assert_null(rl_buf_take(&b));
}

static void test_rl_buf_fmt_exact_fit(void **state)
{
    (void)state;
    AUTO_BUF struct rl_buf b = {0};

    rl_buf_init(&b, 8);
    rl_buf_fmt(&b, "%s-%04d", "abc", 7);
    assert_int_equal(rl_buf_ok(&b, NULL), RL_OK);
    assert_string_equal(b.data, "abc-0007");
    rl_buf_fmt(&b, "%c", 'x');
    assert_int_equal(rl_buf_ok(&b, NULL), RL_BODY_TOO_LARGE);
}

static void test_rl_buf_out_of_memory_sticks(void **state)
{
    (void)state;
    AUTO_BUF struct rl_buf b = {0};
    struct rl_err err = {0};

    rl_buf_init(&b, 1000);
    rl_buf_str(&b, "kept");
    no_memory = true;
    char big[500];
    memset(big, 'x', sizeof(big));
    rl_buf_append(&b, big, sizeof(big));
    no_memory = false;
    rl_buf_str(&b, "y");
    assert_int_equal(rl_buf_ok(&b, &err), RL_NO_MEMORY);
    assert_string_equal(b.data, "kept");
    rl_buf_clear(&b);
    rl_buf_str(&b, "again");
    assert_int_equal(rl_buf_ok(&b, NULL), RL_OK);
}

static void test_rl_buf_take_hands_over(void **state)
{
    (void)state;
    struct rl_buf b;

    rl_buf_init(&b, 10);
    AUTO_FREE char *empty = rl_buf_take(&b);
    assert_string_equal(empty, "");
    rl_buf_str(&b, "x");
    AUTO_FREE char *x = rl_buf_take(&b);
    assert_string_equal(x, "x");
    assert_null(b.data);
    assert_int_equal(b.len, 0);
    rl_buf_free(&b);
}

/* A limit of SIZE_MAX must not wrap around anywhere. */
static void test_rl_buf_huge_limit(void **state)
{
    (void)state;
    AUTO_BUF struct rl_buf b = {0};

    rl_buf_init(&b, SIZE_MAX);
    rl_buf_str(&b, "x");
    assert_int_equal(rl_buf_ok(&b, NULL), RL_OK);
    rl_buf_append(&b, "x", SIZE_MAX - 1);
    assert_int_equal(rl_buf_ok(&b, NULL), RL_BODY_TOO_LARGE);
}

static void test_rl_jw_commas_and_nesting(void **state)
{
    (void)state;
    AUTO_BUF struct rl_buf b = {0};
    struct rl_jw w;

    rl_buf_init(&b, 1000);
    rl_jw_init(&w, &b, false);
    rl_jw_object(&w, NULL);
    rl_jw_array(&w, "empty");
    rl_jw_end_array(&w);
    rl_jw_array(&w, "list");
    rl_jw_i64(&w, NULL, INT64_MIN);
    rl_jw_object(&w, NULL);
    rl_jw_end_object(&w);
    rl_jw_bool(&w, NULL, true);
    rl_jw_bool(&w, NULL, false);
    rl_jw_end_array(&w);
    rl_jw_null(&w, "n");
    rl_jw_str(&w, "s", NULL);
    rl_jw_strn(&w, "cut", "abcdef", 3);
    rl_jw_id(&w, "id", 7345678901234567890);
    rl_jw_id(&w, "no_id", 0);
    rl_jw_time(&w, "at", 1);
    rl_jw_time(&w, "never", 0);
    rl_jw_raw(&w, "raw", "{\"x\":1}");
    rl_jw_raw(&w, "no_raw", NULL);
    rl_jw_end_object(&w);
    assert_int_equal(rl_buf_ok(&b, NULL), RL_OK);
    assert_string_equal(
        b.data, "{\"empty\":[],\"list\":[-9223372036854775808,{},true,false],\"n\":null,\"s\":null,"
                "\"cut\":\"abc\",\"id\":\"7345678901234567890\",\"no_id\":null,"
                "\"at\":\"1970-01-01T00:00:00.001Z\",\"never\":null,\"raw\":{\"x\":1},"
                "\"no_raw\":null}");
}

static void assert_written(const char *text, size_t len, bool ascii, const char *expected)
{
    AUTO_BUF struct rl_buf b = {0};
    struct rl_jw w;
    struct rl_json *root = NULL;

    rl_buf_init(&b, 1000);
    rl_jw_init(&w, &b, ascii);
    rl_jw_strn(&w, NULL, text, len);
    assert_int_equal(rl_buf_ok(&b, NULL), RL_OK);
    assert_string_equal(b.data, expected);
    if (memchr(text, '\0', len)) /* the writer can say it; our own reader never takes it */
        return;
    assert_int_equal(rl_json_parse(b.data, b.len, &root, NULL), RL_OK);
    rl_json_free(root);
}

static void test_rl_jw_str_escapes(void **state)
{
    (void)state;
    assert_written("\"\\/\b\f\n\r\t", 8, false, "\"\\\"\\\\/\\b\\f\\n\\r\\t\"");
    assert_written("\x01\x1f\x7f", 3, false, "\"\\u0001\\u001f\x7f\"");
    assert_written("a\0b", 3, false, "\"a\\u0000b\"");
    assert_written("", 0, false, "\"\"");
    assert_written("\xc3\xa9\xf0\x9f\x98\x80", 6, false, "\"\xc3\xa9\xf0\x9f\x98\x80\"");
}

static void test_rl_jw_str_ascii_pairs(void **state)
{
    (void)state;
    assert_written("\xc2\x80\xc3\xa9", 4, true, "\"\\u0080\\u00e9\"");
    assert_written("\xef\xbf\xbf", 3, true, "\"\\uffff\"");
    assert_written("\xf0\x90\x80\x80\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf", 12, true,
                   "\"\\ud800\\udc00\\ud83d\\ude00\\udbff\\udfff\"");
}

static void test_rl_jw_str_replaces_bad_utf8(void **state)
{
    (void)state;
    assert_written("a\xff"
                   "b\xc0\x80",
                   5, true, "\"a\\ufffdb\\ufffd\\ufffd\"");
    assert_written("\xed\xa0\x80", 3, false, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    assert_written("\xf0\x9f\x98", 3, true, "\"\\ufffd\\ufffd\\ufffd\"");
}

/* Stored JSON (a task's metadata, say) goes into the ASCII bodies of callbacks as well. */
static void test_rl_jw_raw_obeys_ascii(void **state)
{
    (void)state;
    static const char raw[] = "{\"k\\n\": [\"\xc3\xa9\xf0\x9f\x98\x80\\\"\",\n1]}";
    static const char *const expected[] = {raw, "{\"k\\n\": [\"\\u00e9\\ud83d\\ude00\\\"\",\n1]}"};

    for (int ascii = 0; ascii < 2; ascii++) {
        AUTO_BUF struct rl_buf b = {0};
        struct rl_jw w;

        rl_buf_init(&b, 100);
        rl_jw_init(&w, &b, ascii != 0);
        rl_jw_raw(&w, NULL, raw);
        assert_int_equal(rl_buf_ok(&b, NULL), RL_OK);
        assert_string_equal(b.data, expected[ascii]);
    }
}

static void assert_double(double v, const char *expected)
{
    AUTO_BUF struct rl_buf b = {0};
    struct rl_jw w;

    rl_buf_init(&b, 100);
    rl_jw_init(&w, &b, false);
    rl_jw_f64(&w, NULL, v);
    assert_int_equal(rl_buf_ok(&b, NULL), RL_OK);
    assert_string_equal(b.data, expected);
}

static void test_rl_jw_f64_shortest(void **state)
{
    (void)state;
    assert_double(0, "0");
    assert_double(-0.0, "-0");
    assert_double(100, "100");
    assert_double(-5, "-5");
    assert_double(0.1, "0.1");
    assert_double(7.5, "7.5");
    assert_double(-1234.0625, "-1234.0625");
    assert_double(0.1 + 0.2, "0.30000000000000004");
    assert_double(1.0 / 3, "0.3333333333333333");
    assert_double(9007199254740991.0, "9007199254740991");
    assert_double(1e21, "1e+21");
    assert_double(5e-324, "5e-324");
    assert_double(1.7976931348623157e308, "1.7976931348623157e+308");
    assert_double((double)NAN, "null");
    assert_double((double)INFINITY, "null");
    assert_double(-(double)INFINITY, "null");
}

static void test_rl_jw_f64_ignores_locale(void **state)
{
    (void)state;
    comma_point = true;
    assert_double(0.1, "0.1");
    assert_double(-1.25e-7, "-1.25e-07");
    comma_point = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rl_buf_append_grows),
        cmocka_unit_test(test_rl_buf_limit_sticks),
        cmocka_unit_test(test_rl_buf_fmt_exact_fit),
        cmocka_unit_test(test_rl_buf_out_of_memory_sticks),
        cmocka_unit_test(test_rl_buf_take_hands_over),
        cmocka_unit_test(test_rl_buf_huge_limit),
        cmocka_unit_test(test_rl_jw_commas_and_nesting),
        cmocka_unit_test(test_rl_jw_str_escapes),
        cmocka_unit_test(test_rl_jw_str_ascii_pairs),
        cmocka_unit_test(test_rl_jw_str_replaces_bad_utf8),
        cmocka_unit_test(test_rl_jw_raw_obeys_ascii),
        cmocka_unit_test(test_rl_jw_f64_shortest),
        cmocka_unit_test(test_rl_jw_f64_ignores_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
