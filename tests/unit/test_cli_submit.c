/* The body of a submit: types, escaping, contradictions. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "cli/submit.h"

#define WORDS 12

/* Body of these words, or the reason of the refusal; returns new. */
static char *body_of(enum rl_rc want, const char *prompt, const char *const words[WORDS])
{
    struct cli_args args = {.tables = {cli_submit_options, NULL, NULL}};
    char copies[WORDS][128], *argv[WORDS];
    int argc = 0;
    struct rl_err err = {0};
    struct rl_buf out;

    for (; argc < WORDS && words[argc]; argc++) {
        assert_true(rl_copy_str(copies[argc], sizeof(copies[0]), words[argc]));
        argv[argc] = copies[argc];
    }
    assert_int_equal(cli_args_parse(&args, argc, argv, &err), RL_OK);
    rl_buf_init(&out, 65536);
    enum rl_rc rc = cli_submit_body(&args, prompt, &out, &err);
    if (rc != want)
        fail_msg("%s: rc %d, %s", words[0] ? words[0] : "-", (int)rc, err.reason);
    char *text = rc ? rl_strdup(err.reason) : rl_buf_take(&out);
    rl_buf_free(&out);
    cli_args_free(&args);
    return text;
}

static void test_body_values(void **state)
{
    (void)state;
    static const struct {
        const char *words[WORDS];
        const char *want; /* after the prompt */
    } cases[] = {
        {{NULL}, ""},
        {{"--size", "832x480"}, ",\"width\":832,\"height\":480"},
        {{"--width=640", "--height", "360"}, ",\"width\":640,\"height\":360"},
        {{"--seed", "9007199254740991"}, ",\"seed\":9007199254740991"},
        {{"--guidance-scale", "5.5", "--flow-shift", "3"},
         ",\"guidance_scale\":5.5,\"flow_shift\":3"},
        {{"--priority", "high"}, ",\"priority\":\"high\""},
        {{"-p", "10"}, ",\"priority\":10"},
        {{"--queue", "night", "--label", "a \"b\""},
         ",\"queue_name\":\"night\",\"label\":\"a \\\"b\\\"\""},
        {{"--metadata", "{\"a\": [1, null]}"}, ",\"metadata\":{\"a\": [1, null]}"},
        {{"--max-retries", "0", "--run-timeout", "60"}, ",\"max_retries\":0,\"run_timeout_s\":60"},
        {{"--option", "frame_ms=5"}, ",\"options\":{\"frame_ms\":5}"},
        {{"--option", "a=1.5e3", "--option", "b=-2"}, ",\"options\":{\"a\":1.5e3,\"b\":-2}"},
        /* what only looks like a number stays a text */
        {{"--option", "a=007", "--option", "b=0x1", "--option", "c=inf"},
         ",\"options\":{\"a\":\"007\",\"b\":\"0x1\",\"c\":\"inf\"}"},
        {{"--option", "a= 5", "--option", "b=5 ", "--option", "c="},
         ",\"options\":{\"a\":\" 5\",\"b\":\"5 \",\"c\":\"\"}"},
        {{"--option", "a=true", "--option", "b={}", "--option", "c=x=y"},
         ",\"options\":{\"a\":\"true\",\"b\":\"{}\",\"c\":\"x=y\"}"},
        {{"--option", "a\"b=\"}"}, ",\"options\":{\"a\\\"b\":\"\\\"}\"}"},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        char want[512];
        (void)snprintf(want, sizeof(want), "{\"prompt\":\"p\"%s}", cases[i].want);
        AUTO_FREE char *body = body_of(RL_OK, "p", cases[i].words);
        assert_string_equal(body, want);
    }
}

static void test_body_escapes_prompt(void **state)
{
    (void)state;
    static const char *const none[WORDS] = {NULL};
    static const char prompt[] = "\"quoted\" \\ \x01 line\nend caf\xc3\xa9 </script>";

    AUTO_FREE char *body = body_of(RL_OK, prompt, none);
    AUTO_JSON struct rl_json *v = NULL;
    assert_int_equal(rl_json_parse(body, strlen(body), &v, NULL), RL_OK);
    assert_string_equal(cli_member(v, "prompt"), prompt);
}

static void test_body_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *words[WORDS];
        const char *says;
    } cases[] = {
        {{"--frames", "many"}, "--frames needs a whole number"},
        {{"--frames", "8.5"}, "--frames needs a whole number"},
        {{"--guidance-scale", "nan"}, "--guidance-scale needs a number"},
        {{"--size", "832"}, "--size needs"},
        {{"--size", "832x"}, "--size needs"},
        {{"--size", "x480"}, "--size needs"},
        {{"--size", "832x480x2"}, "--size needs"},
        {{"--size", "-1x480"}, "--size needs"},
        {{"--size", "832x480", "--width", "10"}, "--size already says"},
        {{"--metadata", "{"}, "--metadata is no JSON"},
        {{"--metadata", "[1]"}, "--metadata needs a JSON object"},
        {{"--metadata", "{\"a\":1,\"a\":2}"}, "--metadata is no JSON"},
        {{"--option", "novalue"}, "--option needs NAME=VALUE"},
        {{"--option", "=5"}, "--option needs NAME=VALUE"},
        {{"--option", "a=1", "--option", "ab=1", "--option", "a=2"}, "--option a is given twice"},
        {{"--label", "\xff"}, "--label is not UTF-8"},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        AUTO_FREE char *reason = body_of(RL_BAD_REQUEST, "p", cases[i].words);
        if (!strstr(reason, cases[i].says))
            fail_msg("%s %s: %s", cases[i].words[0], cases[i].words[1], reason);
    }
    static const char *const none[WORDS] = {NULL};
    AUTO_FREE char *reason = body_of(RL_BAD_REQUEST, "\xc3", none);
    assert_non_null(strstr(reason, "not UTF-8"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_body_values),
        cmocka_unit_test(test_body_escapes_prompt),
        cmocka_unit_test(test_body_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
