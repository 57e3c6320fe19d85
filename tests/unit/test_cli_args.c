/* The option parser and the suggestions. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "cli/args.h"

static const struct cli_option own[] = {
    {"frames", 'n', "N", "number"},
    {"wait", 'w', NULL, "flag"},
    {"option", 0, "NAME=VALUE", "repeatable"},
    {"output", 'o', "FILE", "file"},
    {0},
};
static const struct cli_option common[] = {{"help", 'h', NULL, "help"}, {0}};

static char line_copy[16][64];
static char *line_argv[16];

/* Words separated by '|'. */
static int split(const char *line)
{
    int argc = 0;

    while (*line && argc < 16) {
        size_t len = strcspn(line, "|");
        assert_true(len < sizeof(line_copy[0]));
        memcpy(line_copy[argc], line, len);
        line_copy[argc][len] = '\0';
        line_argv[argc] = line_copy[argc];
        argc++;
        line += len + (line[len] == '|');
    }
    return argc;
}

static enum rl_rc parse(struct cli_args *args, const char *line, struct rl_err *err)
{
    *args = (struct cli_args){.tables = {own, NULL, common}};
    memset(err, 0, sizeof(*err));
    return cli_args_parse(args, split(line), line_argv, err);
}

static void test_parse_forms(void **state)
{
    (void)state;
    static const struct {
        const char *line, *frames, *output;
        bool wait;
        size_t words;
    } cases[] = {
        {"", NULL, NULL, false, 0},
        {"--frames|81", "81", NULL, false, 0},
        {"--frames=81|a prompt", "81", NULL, false, 1},
        {"-n|81|-w", "81", NULL, true, 0},
        {"-n81|-o|-", "81", "-", false, 0},
        {"--frames|-5", "-5", NULL, false, 0},          /* a value may look like an option */
        {"--frames=1|--frames=2", "2", NULL, false, 0}, /* the last one wins */
        {"--wait|--|--frames|x", NULL, NULL, true, 2},
        {"-", NULL, NULL, false, 1},
        {"--output=", NULL, "", false, 0},
        {"--output=a=b", NULL, "a=b", false, 0},
        {"word|--wait|word", NULL, NULL, true, 2},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        struct cli_args args;
        struct rl_err err;
        assert_int_equal(parse(&args, cases[i].line, &err), RL_OK);
        const char *frames = cli_args_text(&args, "frames"),
                   *output = cli_args_text(&args, "output");
        assert_int_equal(frames != NULL, cases[i].frames != NULL);
        if (frames)
            assert_string_equal(frames, cases[i].frames);
        assert_int_equal(output != NULL, cases[i].output != NULL);
        if (output)
            assert_string_equal(output, cases[i].output);
        assert_int_equal(cli_args_has(&args, "wait"), cases[i].wait);
        assert_int_equal(args.word_count, cases[i].words);
        cli_args_free(&args);
    }
}

static void test_parse_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"--fames|8", "did you mean '--frames'"},
        {"--fraems|8", "did you mean '--frames'"}, /* two letters swapped */
        {"--fames=8", "did you mean '--frames'"},
        {"--hepl", "did you mean '--help'"},
        {"--completely-else", "unknown option '--completely-else'"},
        {"-x", "unknown option '-x'"},
        {"--frames", "needs a value"},
        {"-n", "needs a value"},
        {"--wait=yes", "takes no value"},
        {"-wyes", "takes no value"},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        struct cli_args args;
        struct rl_err err;
        assert_int_equal(parse(&args, cases[i].line, &err), RL_BAD_REQUEST);
        if (!strstr(err.reason, cases[i].says))
            fail_msg("%s: %s", cases[i].line, err.reason);
        cli_args_free(&args);
    }
}

static void test_parse_suggests_nothing_far(void **state)
{
    (void)state;
    struct cli_args args;
    struct rl_err err;

    assert_int_equal(parse(&args, "--completely-else", &err), RL_BAD_REQUEST);
    assert_null(strstr(err.reason, "mean"));
    cli_args_free(&args);
}

static void test_next_keeps_order(void **state)
{
    (void)state;
    struct cli_args args;
    struct rl_err err;
    size_t index = 0;

    assert_int_equal(parse(&args, "--option|a=1|--wait|--option=b=2", &err), RL_OK);
    assert_string_equal(cli_args_next(&args, "option", &index), "a=1");
    assert_string_equal(cli_args_next(&args, "option", &index), "b=2");
    assert_null(cli_args_next(&args, "option", &index));
    cli_args_free(&args);
}

static void test_int_range(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } cases[] = {
        {"1", true, 1},
        {"200", true, 200},
        {"0", false, 0},
        {"201", false, 0},
        {"", false, 0},
        {"5x", false, 0},
        {" 5", false, 0},
        {"-", false, 0},
        {"1e2", false, 0},
        {"+5", false, 0},
        {"99999999999999999999", false, 0},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        struct cli_args args;
        struct rl_err err;
        char line[64];
        int64_t value = -1;
        (void)snprintf(line, sizeof(line), "--frames=%s", cases[i].text);
        assert_int_equal(parse(&args, line, &err), RL_OK);
        enum rl_rc rc = cli_args_int(&args, "frames", 1, 200, 50, &value, &err);
        if ((rc == RL_OK) != cases[i].ok)
            fail_msg("'%s' gives %d", cases[i].text, (int)rc);
        assert_int_equal(value, cases[i].ok ? cases[i].value : -1);
        cli_args_free(&args);
    }
    struct cli_args none;
    struct rl_err err;
    int64_t value = -1;
    assert_int_equal(parse(&none, "", &err), RL_OK);
    assert_int_equal(cli_args_int(&none, "frames", 1, 200, 50, &value, &err), RL_OK);
    assert_int_equal(value, 50);
    cli_args_free(&none);
}

static void test_distance_known(void **state)
{
    (void)state;
    char longest[200];

    assert_int_equal(cli_distance("", ""), 0);
    assert_int_equal(cli_distance("list", "list"), 0);
    assert_int_equal(cli_distance("lits", "list"), 1);
    assert_int_equal(cli_distance("lst", "list"), 1);
    assert_int_equal(cli_distance("listt", "list"), 1);
    assert_int_equal(cli_distance("kitten", "sitting"), 3);
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(cli_distance(longest, "list"), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_forms),
        cmocka_unit_test(test_parse_refuses),
        cmocka_unit_test(test_parse_suggests_nothing_far),
        cmocka_unit_test(test_next_keeps_order),
        cmocka_unit_test(test_int_range),
        cmocka_unit_test(test_distance_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
