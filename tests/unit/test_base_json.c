/* The strict reader: what it accepts, what it refuses and at which byte. Every text is parsed from
 * an exact heap copy without a NUL behind it, so that a sanitizer sees any read past the end. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json.h"

#include <string.h>

struct text {
    const char *bytes;
    size_t len;
    const char *at; /* refused: what the reason ends with */
};
#define TEXT(s)                                                                                    \
    {                                                                                              \
        s, sizeof(s) - 1, NULL                                                                     \
    }
#define REFUSED(s, at)                                                                             \
    {                                                                                              \
        s, sizeof(s) - 1, "at byte " #at                                                           \
    }

static enum rl_rc parse(const char *bytes, size_t len, struct rl_err *err)
{
    AUTO_JSON struct rl_json *root = NULL;
    AUTO_FREE char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    if (len)
        memcpy(copy, bytes, len);
    enum rl_rc rc = rl_json_parse(copy, len, &root, err);
    assert_true((rc == RL_OK) == (root != NULL));
    return rc;
}

static void assert_accepted(const char *bytes, size_t len)
{
    struct rl_err err = {0};

    if (parse(bytes, len, &err) != RL_OK)
        fail_msg("refused: %.*s: %s", (int)(len > 80 ? 80 : len), bytes, err.reason);
}

static void assert_refused(const char *bytes, size_t len, const char *at)
{
    struct rl_err err = {0};

    if (parse(bytes, len, &err) == RL_OK)
        fail_msg("accepted: %.*s", (int)(len > 80 ? 80 : len), bytes);
    assert_int_equal(err.code, RL_MALFORMED_JSON);
    size_t n = strlen(err.reason);
    if (at && (n < strlen(at) || strcmp(err.reason + n - strlen(at), at) != 0))
        fail_msg("%.*s: '%s' instead of '%s'", (int)(len > 80 ? 80 : len), bytes, err.reason, at);
}

static const struct text good[] = {
    TEXT("null"),
    TEXT("true"),
    TEXT("false"),
    TEXT(" \t\r\n1 \t\r\n"),
    TEXT("0"),
    TEXT("-0"),
    TEXT("-0.0"),
    TEXT("10"),
    TEXT("0.5"),
    TEXT("-1.25e+10"),
    TEXT("1E5"),
    TEXT("1e-5"),
    TEXT("0e0"),
    TEXT("1e999"),
    TEXT("-1e999"),
    TEXT("1e-999"),
    TEXT("9007199254740993"),
    TEXT("123456789012345678901234567890123456789012345678901234567890123"),
    TEXT("[]"),
    TEXT("{}"),
    TEXT("[ ]"),
    TEXT("{ }"),
    TEXT("[[],{},[[]]]"),
    TEXT("[1, 2,3 ,4]"),
    TEXT("{\"a\":1 , \"b\" : [ true,false , null ]}"),
    /* strings */
    TEXT("\"\""),
    TEXT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""),
    TEXT("\"\\u0001\\u001f\\u00e9\\uFFFF\\ufffe\""),
    TEXT("\"\\ud83d\\ude00\\uD800\\uDC00\\uDBFF\\uDFFF\""),
    TEXT("\"\x7f\""),
    TEXT("\"/\""),
    /* the edges of UTF-8 */
    TEXT("\"\xc2\x80\xdf\xbf\""),
    TEXT("\"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\""),
    TEXT("\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\""),
    TEXT("\"\xef\xbb\xbf\""), /* U+FEFF as text */
    TEXT("\"\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7\""), /* ZWJ */
    TEXT("\"e\xcc\x81\xe2\x80\xae\xe2\x80\xa8\""),
    /* names that differ */
    TEXT("{\"a\":1,\"A\":2,\"aa\":3,\"\":4}"),
    TEXT("{\"a\":{\"a\":{\"a\":1}},\"b\":{\"a\":1}}"),
    TEXT("[{\"a\":1},{\"a\":1}]"),
    TEXT("{\"\xc3\xa9\":1,\"e\xcc\x81\":2}"), /* composed and decomposed */
    TEXT("{\"\\\\u0061\":1,\"a\":2}"),        /* a backslash, then u0061 */
    TEXT("{\"\\n\":1,\"n\":2}"),
};

static const struct text bad[] = {
    /* nothing, or something else */
    REFUSED("", 0),
    REFUSED(" ", 1),
    REFUSED("\xef\xbb\xbf{}", 0),
    REFUSED("\xff\xfe{\0}\0", 0),
    REFUSED("nul", 0),
    REFUSED("nulll", 4),
    REFUSED("True", 0),
    REFUSED("NaN", 0),
    REFUSED("Infinity", 0),
    REFUSED("-Infinity", 1),
    REFUSED("undefined", 0),
    REFUSED("'a'", 0),
    REFUSED("1 2", 2),
    REFUSED("{} {}", 3),
    REFUSED("[]]", 2),
    REFUSED("{}x", 2),
    REFUSED("1\0", 1),
    REFUSED("{}\0", 2),
    REFUSED("\0", 0),
    REFUSED("\v1", 0),
    REFUSED("\f1", 0),
    REFUSED("\xc2\xa0"
            "1",
            0), /* a no-break space is no white space */
    REFUSED("/* */1", 0),
    REFUSED("1//", 1),
    /* numbers */
    REFUSED("012", 0),
    REFUSED("00", 0),
    REFUSED("-012", 0),
    REFUSED("[1,-00]", 3),
    REFUSED("1.", 2),
    REFUSED("1.e5", 2),
    REFUSED(".5", 0),
    REFUSED("+1", 0),
    REFUSED("-", 1),
    REFUSED("--1", 1),
    REFUSED("1e", 2),
    REFUSED("1e+", 3),
    REFUSED("1e5.5", 3),
    REFUSED("1.2.3", 3),
    REFUSED("0x10", 1),
    REFUSED("1_000", 1),
    REFUSED("1,5", 1),
    REFUSED("1234567890123456789012345678901234567890123456789012345678901234", 0),
    REFUSED("\xd9\xa1", 0), /* an Arabic one */
    /* arrays and objects */
    REFUSED("[", 1),
    REFUSED("[1", 2),
    REFUSED("[1,", 3),
    REFUSED("[1,]", 3),
    REFUSED("[,1]", 1),
    REFUSED("[1,,2]", 3),
    REFUSED("[1 2]", 3),
    REFUSED("[1}", 2),
    REFUSED("]", 0),
    REFUSED("{", 1),
    REFUSED("}", 0),
    REFUSED("{\"a\"}", 4),
    REFUSED("{\"a\":}", 5),
    REFUSED("{\"a\":1,}", 7),
    REFUSED("{,}", 1),
    REFUSED("{\"a\":1]", 6),
    REFUSED("{\"a\" 1}", 5),
    REFUSED("{\"a\":1 \"b\":2}", 7),
    REFUSED("{\"a\",1}", 4),
    REFUSED("{a:1}", 1),
    REFUSED("{'a':1}", 1),
    REFUSED("{1:1}", 1),
    REFUSED("{null:1}", 1),
    REFUSED("[1:2]", 2),
    /* strings */
    REFUSED("\"", 1),
    REFUSED("\"a", 2),
    REFUSED("\"\\\"", 3),
    REFUSED("\"\\", 1),
    REFUSED("\"\\x41\"", 1),
    REFUSED("\"\\a\"", 1),
    REFUSED("\"\\'\"", 1),
    REFUSED("\"\\\n\"", 1),
    REFUSED("\"\\\0\"", 1),
    REFUSED("\"\\U0041\"", 1),
    REFUSED("\"\n\"", 1),
    REFUSED("\"\t\"", 1),
    REFUSED("\"\x1f\"", 1),
    REFUSED("\"a\0b\"", 2),
    REFUSED("\"a\\u0000b\"", 2),
    REFUSED("{\"a\\u0000\":1}", 3),
    REFUSED("\"\\u\"", 1),
    REFUSED("\"\\u12\"", 1),
    REFUSED("\"\\u123\"", 1),
    REFUSED("\"\\u12g4\"", 1),
    REFUSED("\"\\u 123\"", 1),
    REFUSED("\"\\u+123\"", 1),
    /* surrogates */
    REFUSED("\"\\ud800\"", 1),
    REFUSED("\"\\uDBFF\"", 1),
    REFUSED("\"\\udc00\"", 1),
    REFUSED("\"\\udfff\"", 1),
    REFUSED("\"\\ud83d\\ud83d\"", 1),
    REFUSED("\"\\ude00\\ud83d\"", 1),
    REFUSED("\"\\ud83dx\\ude00\"", 1),
    REFUSED("\"\\ud83d\\n\"", 1),
    REFUSED("\"\\ud83d\\u0041\"", 1),
    REFUSED("\"\\ud83d\\ude0\"", 1),
    REFUSED("\"\xed\xa0\x80\"", 1),             /* U+D800 */
    REFUSED("\"\xed\xbf\xbf\"", 1),             /* U+DFFF */
    REFUSED("\"\xed\xa0\xbd\xed\xb8\x80\"", 1), /* CESU-8 */
    /* UTF-8 */
    REFUSED("\"\x80\"", 1),
    REFUSED("\"\xbf\"", 1),
    REFUSED("\"\xc0\x80\"", 1),
    REFUSED("\"\xc1\xbf\"", 1),
    REFUSED("\"\xc3\"", 1),
    REFUSED("\"\xc3(\"", 1),
    REFUSED("\"\xe0\x80\x80\"", 1),
    REFUSED("\"\xe0\x9f\xbf\"", 1),
    REFUSED("\"\xe2\x82\"", 1),
    REFUSED("\"\xe2(\xa1\"", 1),
    REFUSED("\"\xf0\x80\x80\x80\"", 1),
    REFUSED("\"\xf0\x8f\xbf\xbf\"", 1),
    REFUSED("\"\xf0\x9f\x98\"", 1),
    REFUSED("\"\xf4\x90\x80\x80\"", 1), /* U+110000 */
    REFUSED("\"\xf5\x80\x80\x80\"", 1),
    REFUSED("\"\xf8\x88\x80\x80\x80\"", 1),     /* five bytes */
    REFUSED("\"\xfc\x84\x80\x80\x80\x80\"", 1), /* six */
    REFUSED("\"\xfe\"", 1),
    REFUSED("\"\xff\"", 1),
    REFUSED("\"ok\xc3\xa9\xff\"", 5),
    REFUSED("{\"\xff\":1}", 2),
    /* repeated names; the offset is that of the later one */
    REFUSED("{\"a\":1,\"a\":2}", 8),
    REFUSED("{\"a\":1,\"b\":2,\"a\":1}", 14),
    REFUSED("{\"seed\":1,\"\\u0073eed\":2}", 11),
    REFUSED("{\"\\u0073eed\":1,\"seed\":2}", 16),
    REFUSED("{\"\":1,\"\":2}", 7),
    REFUSED("{\"\\/\":1,\"/\":2}", 9),
    REFUSED("{\"\\n\":1,\"\\u000a\":2}", 9),
    REFUSED("{\"\\u000A\":1,\"\\u000a\":2}", 13),
    REFUSED("{\"\\ud83d\\ude00\":1,\"\xf0\x9f\x98\x80\":2}", 19),
    REFUSED("{\"\xc3\xa9\":1,\"\\u00e9\":2}", 9),
    REFUSED("{\"x\":{\"a\":1,\"b\":{\"a\":1},\"a\":2}}", 25),
    REFUSED("[{\"a\":1},{\"b\":1,\"b\":1}]", 17),
    REFUSED("{\"b\":1,\"a\":1,\"b\":2,\"a\":2}", 14),
    REFUSED("{\"a\":1,\"b\":1,\"a\":2,\"b\":2}", 14),
};

static void test_rl_json_parse_accepts(void **state)
{
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(good); i++)
        assert_accepted(good[i].bytes, good[i].len);
}

static void test_rl_json_parse_refuses_at_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++)
        assert_refused(bad[i].bytes, bad[i].len, bad[i].at);
}

static void test_rl_json_parse_refuses_every_prefix(void **state)
{
    (void)state;
    static const char whole[] = "{\"a\":[1.5e-3,true,null,\"\\ud83d\\ude00\xc3\xa9\"],"
                                "\"b\\u0041\":{\"c\":false}}";

    for (size_t len = 0; len < sizeof(whole) - 1; len++)
        assert_refused(whole, len, NULL);
    assert_accepted(whole, sizeof(whole) - 1);
}

/* `n` times the text, returns new. */
static char *repeat(const char *text, size_t n, size_t *ret_len)
{
    size_t len = strlen(text);
    char *all = malloc(len * n + 1);
    assert_non_null(all);
    for (size_t i = 0; i < n; i++)
        memcpy(all + i * len, text, len);
    all[len * n] = '\0';
    *ret_len = len * n;
    return all;
}

static void test_rl_json_parse_depth_limit(void **state)
{
    (void)state;
    char text[2 * 33 + 1];

    memset(text, '[', 33);
    memset(text + 33, ']', 33);
    assert_accepted(text + 1, 64);
    assert_refused(text, 66, "nested deeper than 32 at byte 32");
    assert_accepted("{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]],"
                    "\"b\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
                    strlen("{\"a\":,\"b\":}") + 4 * 31);
}

static void test_rl_json_parse_survives_hostile_nesting(void **state)
{
    (void)state;
    static const char *const units[] = {"[", "{\"a\":", "[{\"\":", "[1,"};

    for (size_t i = 0; i < RL_ARRAY_LEN(units); i++) {
        size_t len = 0;
        AUTO_FREE char *text = repeat(units[i], 100000, &len);
        assert_refused(text, len, NULL);
    }
}

static void test_rl_json_parse_value_limit(void **state)
{
    (void)state;
    size_t len = 0;
    AUTO_FREE char *text = repeat("1,", RL_JSON_MAX_VALUES, &len); /* 4096 values and the array */

    AUTO_FREE char *array = malloc(len + 2);
    assert_non_null(array);
    array[0] = '[';
    memcpy(array + 1, text, len);
    array[len] = ']'; /* over the last comma */
    assert_refused(array, len + 1, "more than 4096 values at byte 8191");
    array[len - 2] = ']';
    assert_accepted(array, len - 1);
}

static void test_rl_json_parse_long_string(void **state)
{
    (void)state;
    size_t len = 0;
    AUTO_FREE char *text = repeat("\xf0\x9f\x98\x80", 65536 / 4 + 1, &len);
    struct rl_json *root = NULL;

    text[0] = ' ';
    text[1] = ' ';
    text[2] = ' ';
    text[3] = '"';
    text[len - 4] = 'x'; /* 65532 bytes of emoji and these four */
    text[len - 3] = 'y';
    text[len - 2] = 'z';
    text[len - 1] = '"';
    assert_int_equal(rl_json_parse(text, len, &root, NULL), RL_OK);
    assert_int_equal(strlen(rl_json_text(root)), 65535);
    rl_json_free(root);
}

/* 4000 names that share all but their last bytes: the sort compares long texts, not n^2 of them. */
static void test_rl_json_parse_many_long_names(void **state)
{
    (void)state;
    const size_t n = 4000;
    const size_t each = 64 + strlen(",\"0000\":1");
    size_t len = 1;
    AUTO_FREE char *text = malloc(n * each + 16);

    assert_non_null(text);
    text[0] = '{';
    for (size_t i = 0; i < n; i++) {
        int wrote = snprintf(text + len, each + 1, "%s\"%064d%04zu\":1", i ? "," : "", 0, i);
        assert_true(wrote > 0);
        len += (size_t)wrote;
    }
    text[len++] = '}';
    assert_accepted(text, len);
    memcpy(text + len - strlen("3999\":1}"), "1234", 4);
    assert_refused(text, len, "repeated member name at byte 291929");
}

static void test_rl_utf8_valid_edges(void **state)
{
    (void)state;
    assert_true(rl_utf8_valid("", 0));
    assert_true(rl_utf8_valid("a\n\xc3\xa9\xf4\x8f\xbf\xbf", 8));
    assert_false(rl_utf8_valid("a\0b", 3));
    assert_false(rl_utf8_valid("\xc0\x80", 2));
    assert_false(rl_utf8_valid("\xed\xa0\x80", 3));
    assert_false(rl_utf8_valid("\xc3\xa9", 1));
    assert_false(rl_utf8_valid("\xf4\x90\x80\x80", 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rl_json_parse_accepts),
        cmocka_unit_test(test_rl_json_parse_refuses_at_byte),
        cmocka_unit_test(test_rl_json_parse_refuses_every_prefix),
        cmocka_unit_test(test_rl_json_parse_depth_limit),
        cmocka_unit_test(test_rl_json_parse_survives_hostile_nesting),
        cmocka_unit_test(test_rl_json_parse_value_limit),
        cmocka_unit_test(test_rl_json_parse_long_string),
        cmocka_unit_test(test_rl_json_parse_many_long_names),
        cmocka_unit_test(test_rl_utf8_valid_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
