// link: -Wl,--wrap=malloc -Wl,--wrap=realloc -Wl,--wrap=calloc
/* What callers do with a parsed tree: walk it, read fields with ranges, make canonical bytes; and
 * what happens when any one allocation fails. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

/* Allocations left before one fails; below 0: none fails. */
static int allocations_left = -1;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static bool may_allocate(void)
{
    if (allocations_left < 0)
        return true;
    return allocations_left-- > 0;
}

void *__wrap_malloc(size_t size)
{
    return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_allocate() ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *p, size_t size)
{
    return may_allocate() ? __real_realloc(p, size) : NULL;
}

static struct rl_json *parsed(const char *text)
{
    struct rl_json *root = NULL;
    struct rl_err err = {0};

    if (rl_json_parse(text, strlen(text), &root, &err) != RL_OK)
        fail_msg("%s: %s", text, err.reason);
    return root;
}

static void assert_canonical(const char *text, const char *expected)
{
    AUTO_BUF struct rl_buf out = {0};
    AUTO_JSON struct rl_json *root = parsed(text);

    rl_buf_init(&out, 1000);
    rl_json_canonical(root, &out);
    assert_int_equal(rl_buf_ok(&out, NULL), RL_OK);
    assert_string_equal(out.data, expected);
}

static void test_rl_json_walk(void **state)
{
    (void)state;
    AUTO_JSON struct rl_json *root =
        parsed("{\"a\":null,\"A\":true,\"n\":-1.5,\"s\":\"x\\u00e9\",\"l\":[1,\"2\"],\"o\":{}}");
    const struct rl_json *list = rl_json_get(root, "l");

    assert_int_equal(rl_json_type(root), RL_JSON_OBJECT);
    assert_int_equal(rl_json_type(rl_json_get(root, "a")), RL_JSON_NULL);
    assert_int_equal(rl_json_type(rl_json_get(root, "A")), RL_JSON_BOOL);
    assert_int_equal(rl_json_type(rl_json_get(root, "o")), RL_JSON_OBJECT);
    assert_true(rl_json_is_true(rl_json_get(root, "A")));
    assert_false(rl_json_is_true(rl_json_get(root, "n")));
    assert_true(rl_json_number(rl_json_get(root, "n")) == -1.5);
    assert_true(isnan(rl_json_number(rl_json_get(root, "s"))));
    assert_string_equal(rl_json_text(rl_json_get(root, "s")), "x\xc3\xa9");
    assert_null(rl_json_text(rl_json_get(root, "n")));
    assert_null(rl_json_get(root, "absent"));
    assert_null(rl_json_get(list, "a"));
    assert_null(rl_json_child(rl_json_get(root, "o")));
    assert_string_equal(rl_json_name(rl_json_child(root)), "a");
    assert_int_equal(rl_json_type(list), RL_JSON_ARRAY);
    assert_int_equal(rl_json_type(rl_json_child(list)), RL_JSON_NUMBER);
    assert_string_equal(rl_json_text(rl_json_next(rl_json_child(list))), "2");
    assert_null(rl_json_next(rl_json_next(rl_json_child(list))));
}

static void test_rl_json_absent_value_is_safe(void **state)
{
    (void)state;
    const char *text = NULL;
    int64_t i = 7;

    assert_null(rl_json_get(NULL, "a"));
    assert_null(rl_json_child(NULL));
    assert_null(rl_json_next(NULL));
    assert_null(rl_json_name(NULL));
    assert_null(rl_json_text(NULL));
    assert_false(rl_json_is_true(NULL));
    assert_int_equal(rl_json_int(NULL, "f", 0, 9, &i, NULL), RL_INVALID_FIELD);
    assert_int_equal(rl_json_string(NULL, "f", 0, 9, &text, NULL), RL_INVALID_FIELD);
    assert_int_equal(i, 7);
    rl_json_free(NULL);
}

static enum rl_rc read_int(const char *text, int64_t min, int64_t max, int64_t *ret_value)
{
    AUTO_JSON struct rl_json *root = parsed(text);
    struct rl_err err = {0};

    enum rl_rc rc = rl_json_int(root, "seed", min, max, ret_value, &err);
    if (rc)
        assert_string_equal(err.field, "seed");
    return rc;
}

static void test_rl_json_int_exact_or_refused(void **state)
{
    (void)state;
    static const char *const refused[] = {"1.5",
                                          "1e-1",
                                          "9007199254740992",
                                          "9007199254740993",
                                          "-9007199254740992",
                                          "1e999",
                                          "-1e999",
                                          "\"1\"",
                                          "true",
                                          "null",
                                          "[1]",
                                          "1e300",
                                          "9223372036854775807"};
    static const struct {
        const char *text;
        int64_t value;
    } taken[] = {{"0", 0},
                 {"-0", 0},
                 {"1.0", 1},
                 {"1e3", 1000},
                 {"4294967296", INT64_C(4294967296)}, /* past cJSON's valueint */
                 {"9007199254740991", RL_JSON_MAX_INT},
                 {"-9007199254740991", -RL_JSON_MAX_INT}};
    int64_t v = 0;

    for (size_t i = 0; i < RL_ARRAY_LEN(taken); i++) {
        assert_int_equal(read_int(taken[i].text, INT64_MIN, INT64_MAX, &v), RL_OK);
        assert_true(v == taken[i].value);
    }
    v = 42;
    for (size_t i = 0; i < RL_ARRAY_LEN(refused); i++)
        assert_int_equal(read_int(refused[i], INT64_MIN, INT64_MAX, &v), RL_INVALID_FIELD);
    assert_int_equal(read_int("9", 10, 20, &v), RL_INVALID_FIELD);
    assert_int_equal(read_int("21", 10, 20, &v), RL_INVALID_FIELD);
    assert_int_equal(v, 42);
    assert_int_equal(read_int("10", 10, 20, &v), RL_OK);
    assert_int_equal(read_int("20", 10, 20, &v), RL_OK);
}

static void test_rl_json_real_range(void **state)
{
    (void)state;
    AUTO_JSON struct rl_json *root = parsed("[0.5, 1e999, \"x\", 3]");
    const struct rl_json *v = rl_json_child(root);
    struct rl_err err = {0};
    double d = -1;

    assert_int_equal(rl_json_real(v, "g", 0, 1, &d, &err), RL_OK);
    assert_true(d == 0.5);
    v = rl_json_next(v);
    assert_int_equal(rl_json_real(v, "g", 0, (double)INFINITY, &d, &err), RL_INVALID_FIELD);
    v = rl_json_next(v);
    assert_int_equal(rl_json_real(v, "g", 0, 1, &d, &err), RL_INVALID_FIELD);
    v = rl_json_next(v);
    assert_int_equal(rl_json_real(v, "g", 0, 1, &d, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "g");
    assert_true(d == 0.5);
}

static void test_rl_json_string_counts_bytes(void **state)
{
    (void)state;
    AUTO_JSON struct rl_json *root = parsed("\"\\u00e9\\u00e9\"");
    const char *text = NULL;
    struct rl_err err = {0};

    assert_int_equal(rl_json_string(root, "prompt", 4, 4, &text, &err), RL_OK);
    assert_string_equal(text, "\xc3\xa9\xc3\xa9");
    text = NULL;
    assert_int_equal(rl_json_string(root, "prompt", 0, 3, &text, &err), RL_INVALID_FIELD);
    assert_int_equal(rl_json_string(root, "prompt", 5, 9, &text, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "prompt");
    assert_null(text);
}

static void test_rl_json_canonical_is_content_only(void **state)
{
    (void)state;
    assert_canonical(" { \"b\" : 1 , \"a\" : [ ] } ", "{\"a\":[],\"b\":1}");
    assert_canonical("{\"b\":{\"z\":1,\"y\":2},\"\":0,\"B\":3}",
                     "{\"\":0,\"B\":3,\"b\":{\"y\":2,\"z\":1}}");
    assert_canonical("[1.0,1e0,100e-2,1]", "[1,1,1,1]");
    assert_canonical("[-0,-0.0,0,1e-999]", "[0,0,0,0]");
    assert_canonical("[0.1,1e21,1.5,1e999,-1e999]", "[0.1,1e+21,1.5,1e999,-1e999]");
    assert_canonical("\"\\u00e9\\/\\ud83d\\ude00\\u0041\\u001f\"", "\"\xc3\xa9/\xf0\x9f\x98\x80"
                                                                   "A\\u001f\"");
    assert_canonical("[null,true,false]", "[null,true,false]");
    assert_canonical("[2,1]", "[2,1]"); /* the order of an array is content */
}

static void test_rl_json_canonical_limit_sticks(void **state)
{
    (void)state;
    AUTO_BUF struct rl_buf out = {0};
    AUTO_JSON struct rl_json *root = parsed("{\"a\":[1,2,3]}");

    rl_buf_init(&out, 5);
    rl_json_canonical(root, &out);
    assert_int_equal(rl_buf_ok(&out, NULL), RL_BODY_TOO_LARGE);
}

/* Fail allocation 0, 1, 2 … until the work succeeds; leaks are the sanitizer's to find. */
static void test_rl_json_parse_and_canonical_out_of_memory(void **state)
{
    (void)state;
    static const char text[] =
        "{\"b\":[1,\"two\",{\"c\":null}],\"a\":{\"x\":true,\"y\":\"\\u00e9\"}}";
    cJSON_Hooks hooks = {__wrap_malloc, free};
    int failures = 0;
    bool done = false;

    cJSON_InitHooks(&hooks);
    while (!done) {
        struct rl_json *root = NULL;
        struct rl_err err = {0};
        AUTO_BUF struct rl_buf out = {0};
        rl_buf_init(&out, 1000);

        allocations_left = failures;
        enum rl_rc rc = rl_json_parse(text, sizeof(text) - 1, &root, &err);
        if (rc == RL_OK) {
            rl_json_canonical(root, &out);
            rc = rl_buf_ok(&out, &err);
            done = rc == RL_OK;
        } else {
            assert_null(root);
        }
        allocations_left = -1;
        if (!done) {
            assert_int_equal(rc, RL_NO_MEMORY);
            assert_int_equal(err.code, RL_NO_MEMORY);
            failures++;
        }
        rl_json_free(root);
    }
    cJSON_InitHooks(NULL);
    assert_true(failures > 15); /* names, each node, each text, each object, the buffer */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rl_json_walk),
        cmocka_unit_test(test_rl_json_absent_value_is_safe),
        cmocka_unit_test(test_rl_json_int_exact_or_refused),
        cmocka_unit_test(test_rl_json_real_range),
        cmocka_unit_test(test_rl_json_string_counts_bytes),
        cmocka_unit_test(test_rl_json_canonical_is_content_only),
        cmocka_unit_test(test_rl_json_canonical_limit_sticks),
        cmocka_unit_test(test_rl_json_parse_and_canonical_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
