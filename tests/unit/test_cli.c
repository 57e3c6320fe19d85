/* The command table: dispatch, help, suggestions, exit statuses, and the manual page beside it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/fs.h"
#include "cli/commands.h"
#include "cli_run.h"

#define WORDS 8

static void test_main_statuses(void **state)
{
    (void)state;
    static const struct {
        const char *words[WORDS];
        int status;
        const char *out, *err; /* parts; NULL = that stream stays empty */
    } cases[] = {
        {{"reeld"}, CLI_USAGE, NULL, "usage: reeld COMMAND"},
        {{"reeld", "--help"}, CLI_OK, "commands:", NULL},
        {{"reeld", "-h"}, CLI_OK, "commands:", NULL},
        {{"reeld", "help"}, CLI_OK, "commands:", NULL},
        {{"reeld", "help", "submit"}, CLI_OK, "usage: reeld submit", NULL},
        {{"reeld", "help", "key", "add"}, CLI_OK, "usage: reeld key add", NULL},
        {{"reeld", "--version"}, CLI_OK, "reeld " REELD_VERSION "\n", NULL},
        {{"reeld", "version"}, CLI_OK, "reeld " REELD_VERSION "\n", NULL},
        {{"reeld", "sumbit", "x"}, CLI_USAGE, NULL, "did you mean 'submit'?"},
        {{"reeld", "lsit"}, CLI_USAGE, NULL, "did you mean 'list'?"},
        {{"reeld", "frobnicate"}, CLI_USAGE, NULL, "unknown command 'frobnicate'; see"},
        {{"reeld", "\033[2J"}, CLI_USAGE, NULL, "unknown command '?[2J'"},
        {{"reeld", ""}, CLI_USAGE, NULL, "unknown command ''"},
        {{"reeld", "--verison"}, CLI_USAGE, NULL, "did you mean '--version'?"},
        {{"reeld", "--url", "x", "list"}, CLI_USAGE, NULL, "options stand after the command"},
        {{"reeld", "submit", "--fames", "8"}, CLI_USAGE, NULL, "did you mean '--frames'?"},
        {{"reeld", "submit", "a", "red", "circle"},
         CLI_USAGE,
         NULL,
         "quote a text of several words"},
        {{"reeld", "submit", "-o", "x.mp4", "prompt"}, CLI_USAGE, NULL, "--output needs --wait"},
        {{"reeld", "submit", "--wait", "-o", "/dev/null", "prompt"},
         CLI_USAGE,
         NULL,
         "no ordinary file"},
        {{"reeld", "submit", "--json", "f", "prompt"}, CLI_USAGE, NULL, "--json is the whole body"},
        {{"reeld", "submit", "--json", "f", "--seed", "1"}, CLI_USAGE, NULL, "put --seed into it"},
        {{"reeld", "submit", "--idempotency-key", "caf\xc3\xa9", "x"},
         CLI_USAGE,
         NULL,
         "--idempotency-key needs"},
        {{"reeld", "get"}, CLI_USAGE, NULL, "get needs ID"},
        {{"reeld", "get", "../keys"}, CLI_USAGE, NULL, "no task id"},
        {{"reeld", "cancel", "12a"}, CLI_USAGE, NULL, "no task id"},
        {{"reeld", "list", "--limit", "0"}, CLI_USAGE, NULL, "--limit must be 1 to 200"},
        {{"reeld", "list", "--status", "A&limit=5"}, CLI_USAGE, NULL, "single words"},
        {{"reeld", "list", "--url", "ftp://x"}, CLI_USAGE, NULL, "no usable server URL"},
        {{"reeld", "list", "extra"}, CLI_USAGE, NULL, "unexpected word 'extra'"},
        {{"reeld", "key"}, CLI_USAGE, NULL, "reeld key add --user NAME"},
        {{"reeld", "key", "--help"}, CLI_OK, "reeld key revoke KEY_ID", NULL},
        {{"reeld", "key", "add"}, CLI_USAGE, NULL, "--user NAME is missing"},
        {{"reeld", "key", "revoke", "x/../1"}, CLI_USAGE, NULL, "no key id"},
        {{"reeld", "feed"}, CLI_USAGE, NULL, "  reeld feed list\n"},
        {{"reeld", "feed", "extend", "f", "1.1", "--lease", "-1"},
         CLI_USAGE,
         NULL,
         "--lease must be 0 to 43200"},
        {{"reeld", "endpoint", "rm", "1/../2"}, CLI_USAGE, NULL, "no endpoint id"},
        {{"reeld", "endpoint", "add", "caf\xc3"}, CLI_USAGE, NULL, "the URL is not UTF-8"},
        {{"reeld", "endpoint", "rotate", "1", "--grace", "x"}, CLI_USAGE, NULL, "--grace needs"},
        {{"reeld", "delivery", "list", "-e", "1&limit=5"}, CLI_USAGE, NULL, "no endpoint id"},
        {{"reeld", "delivery", "resend"}, CLI_USAGE, NULL, "name one delivery, or several"},
        {{"reeld", "delivery", "resend", "1", "-e", "2"}, CLI_USAGE, NULL, "name one delivery"},
        {{"reeld", "delivery", "resend", "x"}, CLI_USAGE, NULL, "no delivery id"},
        {{"reeld", "hook", "set", "openai"}, CLI_USAGE, NULL, "nothing to change"},
        {{"reeld", "repair", "--apply", "--dry-run"}, CLI_USAGE, NULL, "choose one"},
        {{"reeld", "repair", "--batch", "501"}, CLI_USAGE, NULL, "--batch must be 1 to 500"},
        {{"reeld", "repair", "--status", "A&dry_run=false"}, CLI_USAGE, NULL, "a single word"},
        {{"reeld", "dead-letter"}, CLI_USAGE, NULL, "reeld dead-letter replay ID... | --all"},
        {{"reeld", "dead-letter", "replay"}, CLI_USAGE, NULL, "name the tasks"},
        {{"reeld", "dead-letter", "replay", "--all", "1"}, CLI_USAGE, NULL, "name the tasks"},
        {{"reeld", "dead-letter", "replay", "1", "../2"}, CLI_USAGE, NULL, "no task id"},
        {{"reeld", "dead-letter", "discard", "x"}, CLI_USAGE, NULL, "no task id"},
        {{"reeld", "queue", "pause", "a/b"}, CLI_USAGE, NULL, "no queue name"},
        {{"reeld", "queue", "pause", "a", "b"}, CLI_USAGE, NULL, "unexpected word 'b'"},
        {{"reeld", "serve", "--set", "nonsense=1"}, CLI_USAGE, NULL, "nonsense"},
        {{"reeld", "--print-config", "--set", "http.threads=200"},
         CLI_OK,
         "http.threads = 200",
         NULL},
        {{"reeld", "--print-config", "--set", "http.threads=1"}, CLI_USAGE, NULL, "http.threads"},
        {{"reeld", "--print-config=markdown"}, CLI_OK, "| `http.threads`", NULL},
        {{"reeld", "--print-config", "--config", "/nonexistent"}, CLI_USAGE, NULL, "/nonexistent"},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        struct cli_run run;
        cli_run(&run, NULL, cases[i].words);
        if (run.status != cases[i].status)
            fail_msg("case %zu (%s): status %d, %s", i, cases[i].words[1], run.status, run.err);
        if (cases[i].out ? !strstr(run.out, cases[i].out) : *run.out != '\0')
            fail_msg("case %zu (%s): standard output '%s'", i, cases[i].words[1], run.out);
        if (cases[i].err ? !strstr(run.err, cases[i].err) : *run.err != '\0')
            fail_msg("case %zu (%s): standard error '%s'", i, cases[i].words[1], run.err);
    }
}

/* Words of a command's name into words[1..]. */
static void words_of(const struct cli_command *command, char first[32], const char *words[WORDS])
{
    size_t n = 1;
    const char *space = strchr(command->name, ' ');

    words[0] = "reeld";
    assert_true(rl_copy_str(first, 32, command->name));
    first[strcspn(first, " ")] = '\0';
    words[n++] = first;
    if (space)
        words[n++] = space + 1;
    words[n++] = "--help";
    words[n] = NULL;
}

static void test_help_of_every_command(void **state)
{
    (void)state;

    for (size_t i = 0; cli_commands[i]; i++) {
        struct cli_run run;
        char first[32];
        const char *words[WORDS];
        words_of(cli_commands[i], first, words);
        cli_run(&run, NULL, words);
        assert_int_equal(run.status, CLI_OK);
        assert_non_null(strstr(run.out, cli_commands[i]->summary));
        assert_string_equal(run.err, "");
        for (const struct cli_option *o = cli_commands[i]->options; o && o->name; o++)
            if (!strstr(run.out, o->name))
                fail_msg("%s: --help does not show --%s", cli_commands[i]->name, o->name);
        for (const char *line = run.out; *line; line += strcspn(line, "\n") + 1)
            if (strcspn(line, "\n") > 130)
                fail_msg("%s: a line of --help is too long", cli_commands[i]->name);
    }
}

/* No two options of a command share a name or a letter. */
static void test_options_are_distinct(void **state)
{
    (void)state;

    for (size_t i = 0; cli_commands[i]; i++) {
        const struct cli_option *tables[] = {cli_commands[i]->options,
                                             cli_commands[i]->client ? cli_server_options : NULL,
                                             cli_common_options};
        const struct cli_option *seen[64];
        size_t n = 0;
        for (size_t t = 0; t < RL_ARRAY_LEN(tables); t++)
            for (const struct cli_option *o = tables[t]; o && o->name; o++) {
                for (size_t k = 0; k < n; k++)
                    if (strcmp(seen[k]->name, o->name) == 0 ||
                        (o->letter && seen[k]->letter == o->letter))
                        fail_msg("%s: --%s and --%s", cli_commands[i]->name, o->name,
                                 seen[k]->name);
                assert_true(n < RL_ARRAY_LEN(seen));
                seen[n++] = o;
            }
    }
}

/* The manual page as text without font changes and escaped dashes; returns new. */
static char *manual(void)
{
    char path[1024];
    char *text;
    size_t len;

    assert_true(rl_copy_str(path, sizeof(path), __FILE__));
    char *end = strstr(path, "tests/unit/");
    assert_non_null(end);
    (void)snprintf(end, sizeof(path) - (size_t)(end - path), "packaging/reeld.1");
    assert_int_equal(rl_fs_read(path, 1 << 20, &text, &len, NULL), RL_OK);
    char *out = text;
    for (const char *in = text; *in; in++) {
        if (in[0] == '\\' && in[1] == '-')
            in++;
        *out++ = *in;
    }
    *out = '\0';
    return text;
}

static void test_manual_has_every_command_and_option(void **state)
{
    (void)state;
    AUTO_FREE char *page = manual();

    for (size_t i = 0; cli_commands[i]; i++) {
        char heading[64];
        (void)snprintf(heading, sizeof(heading), "\n.SS %s", cli_commands[i]->name);
        const char *section = strstr(page, heading);
        while (section && !strchr(" \n", section[strlen(heading)])) /* "link" in "link-video" */
            section = strstr(section + 1, heading);
        if (!section)
            fail_msg("the manual page has no section %s", cli_commands[i]->name);
        for (const struct cli_option *o = cli_commands[i]->options; o && o->name; o++) {
            char option[64];
            (void)snprintf(option, sizeof(option), "--%s", o->name);
            if (!strstr(page, option))
                fail_msg("the manual page does not name %s", option);
        }
    }
    static const char *const rest[] = {"\n.SS version", "\n.SS help",    "--print-config",
                                       "REELD_URL",     "REELD_API_KEY", "REELD_STATE_DIR",
                                       "--url",         "--key"};
    for (size_t i = 0; i < RL_ARRAY_LEN(rest); i++)
        assert_non_null(strstr(page, rest[i]));
}

static void test_manual_has_every_status(void **state)
{
    (void)state;
    static const int statuses[] = {CLI_OK,          CLI_FAILED,      CLI_USAGE,  CLI_REFUSED,
                                   CLI_UNREACHABLE, CLI_SERVER,      CLI_LOCKED, CLI_FATAL,
                                   CLI_REPLACE,     CLI_INTERRUPTED, CLI_FORGED, CLI_OUT_OF_TIME,
                                   CLI_MALFORMED};
    AUTO_FREE char *page = manual();
    const char *section = strstr(page, ".SH EXIT STATUS");

    assert_non_null(section);
    for (size_t i = 0; i < RL_ARRAY_LEN(statuses); i++) {
        char entry[32];
        (void)snprintf(entry, sizeof(entry), "\n.B %d\n", statuses[i]);
        assert_non_null(strstr(section, entry));
    }
    assert_non_null(strstr(page, "\"reeld " REELD_VERSION "\"")); /* the page is of this version */
}

static int clear_environment(void **state)
{
    (void)state;
    return unsetenv("REELD_URL") | unsetenv("REELD_API_KEY") | unsetenv("REELD_STATE_DIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_main_statuses),
        cmocka_unit_test(test_help_of_every_command),
        cmocka_unit_test(test_options_are_distinct),
        cmocka_unit_test(test_manual_has_every_command_and_option),
        cmocka_unit_test(test_manual_has_every_status),
    };

    return cmocka_run_group_tests(tests, clear_environment, NULL);
}
