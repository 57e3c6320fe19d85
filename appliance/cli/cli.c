/* The command table and its dispatch: help, version, suggestions. One thread; no state. */
#include "cli/cli.h"

#include "base/crypto.h"
#include "cli/commands.h"
#include "cli/term.h"
#include "config/config.h"
#include "net/net.h"

#include <locale.h>
#include <string.h>

const struct cli_command *const cli_commands[] = {
    &cli_serve,
    &cli_submit,
    &cli_get,
    &cli_list,
    &cli_cancel,
    &cli_watch,
    &cli_events,
    &cli_video,
    &cli_link_video,
    &cli_dead_list,
    &cli_dead_replay,
    &cli_dead_discard,
    &cli_feed_list,
    &cli_feed_read,
    &cli_feed_ack,
    &cli_feed_extend,
    &cli_feed_seek,
    &cli_feed_rm,
    &cli_queue_list,
    &cli_queue_pause,
    &cli_queue_resume,
    &cli_queue_drain,
    &cli_workers,
    &cli_stats,
    &cli_repair,
    &cli_key_add,
    &cli_key_list,
    &cli_key_revoke,
    &cli_link,
    &cli_secret,
    &cli_endpoint_add,
    &cli_endpoint_list,
    &cli_endpoint_test,
    &cli_endpoint_rotate,
    &cli_endpoint_enable,
    &cli_endpoint_disable,
    &cli_endpoint_rm,
    &cli_delivery_list,
    &cli_delivery_resend,
    &cli_hook_add,
    &cli_hook_list,
    &cli_hook_set,
    &cli_hook_rotate,
    &cli_hook_rm,
    &cli_hook_events,
    &cli_hook_handled,
    &cli_listen,
    &cli_verify_webhook,
    &cli_engines,
    &cli_model_list,
    &cli_model_add,
    &cli_model_pull,
    &cli_model_verify,
    &cli_model_rm,
    &cli_backup,
    &cli_doctor,
    NULL,
};

const struct cli_option cli_server_options[] = {
    {"url", 0, "URL", "the server; else --state-dir, REELD_URL, REELD_STATE_DIR, this machine's"},
    {"key", 'k', "KEY", "API key; else REELD_API_KEY, or the owner's key when it is readable"},
    {"state-dir", 'd', "DIR", "the server that runs on this state folder, and its owner's key"},
    {0},
};

const struct cli_option cli_common_options[] = {
    {"help", 'h', NULL, "this text"},
    {0},
};

const struct cli_option cli_json_option[] = {
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

static const struct cli_option print_options[] = {
    {"print-config", 0, NULL, "the effective configuration, as a file"},
    {"config", 'c', "FILE", "with it: the file to read"},
    {"set", 0, "KEY=VALUE", "with it: one key; may be repeated"},
    {0},
};

int cli_complain(int status, const struct rl_err *err)
{
    fputs("reeld: ", stderr);
    if (*err->field) {
        cli_put(stderr, err->field);
        fputs(": ", stderr);
    }
    cli_put(stderr, err->reason);
    fputc('\n', stderr);
    return status;
}

int cli_usage_error(const char *command, const struct rl_err *err)
{
    (void)cli_complain(CLI_USAGE, err);
    fprintf(stderr, "reeld: see `reeld%s%s --help`\n", *command ? " " : "", command);
    return CLI_USAGE;
}

static void put_options(const struct cli_option *table)
{
    for (const struct cli_option *o = table; o && o->name; o++) {
        char left[64], letter[4] = "  ";
        if (o->letter)
            (void)snprintf(letter, sizeof(letter), "-%c", o->letter); /* fits */
        (void)snprintf(left, sizeof(left), "%s%s --%s%s%s", letter, o->letter ? "," : " ", o->name,
                       o->value ? " " : "", o->value ? o->value : ""); /* a long one is cut */
        printf("  %-32s %s\n", left, o->help);
    }
}

static void put_command_help(const struct cli_command *command)
{
    printf("usage: reeld %s%s%s [OPTION]...\n\n%s\n", command->name, *command->synopsis ? " " : "",
           command->synopsis, command->summary);
    if (command->details)
        printf("\n%s", command->details);
    printf("\noptions:\n");
    put_options(command->options);
    if (command->client)
        put_options(cli_server_options);
    put_options(cli_common_options);
}

static int put_help(void)
{
    printf("usage: reeld COMMAND [OPTION]...\n\n"
           "reeld turns prompts into videos on this machine's GPU.\n\ncommands:\n");
    for (size_t i = 0; cli_commands[i]; i++)
        printf("  %-19s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    printf("  %-19s %s\n  %-19s %s\n", "version", "print the version", "help",
           "this text, or `help COMMAND`");
    printf("\n`reeld COMMAND --help` tells more, reeld(1) everything.\n"
           "`reeld --print-config` prints the effective configuration, `--print-config=markdown` "
           "the table.\n");
    return CLI_OK;
}

static int put_version(void)
{
    puts("reeld " REELD_VERSION);
    return CLI_OK;
}

/* Is `name` argv[0], or "argv[0] argv[1]"? Returns how many words it takes, 0 = no. */
static int names(const char *name, int argc, char **argv)
{
    const char *space = strchr(name, ' ');

    if (!space)
        return strcmp(name, argv[0]) == 0;
    size_t len = (size_t)(space - name);
    if (argc < 2 || strlen(argv[0]) != len || memcmp(name, argv[0], len) != 0 ||
        strcmp(space + 1, argv[1]) != 0)
        return 0;
    return 2;
}

static const struct cli_command *find_command(int argc, char **argv, int *ret_words)
{
    for (size_t i = 0; cli_commands[i]; i++) {
        int words = names(cli_commands[i]->name, argc, argv);
        if (words > 0) {
            *ret_words = words;
            return cli_commands[i];
        }
    }
    return NULL;
}

/* "key" alone, or with a word that is none of its commands. */
static bool is_group(const char *word)
{
    size_t len = strlen(word);

    for (size_t i = 0; cli_commands[i]; i++)
        if (strncmp(cli_commands[i]->name, word, len) == 0 && cli_commands[i]->name[len] == ' ')
            return true;
    return false;
}

static int group(const char *word, int argc, char **argv)
{
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    FILE *out = help ? stdout : stderr;

    fprintf(out, "usage:\n");
    for (size_t i = 0; cli_commands[i]; i++)
        if (strncmp(cli_commands[i]->name, word, strlen(word)) == 0 &&
            cli_commands[i]->name[strlen(word)] == ' ')
            fprintf(out, "  reeld %s%s%s\n      %s\n", cli_commands[i]->name,
                    *cli_commands[i]->synopsis ? " " : "", cli_commands[i]->synopsis,
                    cli_commands[i]->summary);
    return help ? CLI_OK : CLI_USAGE;
}

static int unknown_command(const char *word)
{
    static const char *const extra[] = {"help", "version"};
    const char *meant = NULL;
    size_t best = SIZE_MAX;

    for (size_t i = 0; cli_commands[i]; i++)
        if (cli_nearer(word, cli_commands[i]->name, &best))
            meant = cli_commands[i]->name;
    for (size_t i = 0; i < RL_ARRAY_LEN(extra); i++)
        if (cli_nearer(word, extra[i], &best))
            meant = extra[i];
    fputs("reeld: unknown command '", stderr);
    cli_put(stderr, word);
    if (meant)
        fprintf(stderr, "'; did you mean '%s'?\n", meant);
    else
        fputs("'; see `reeld --help`\n", stderr);
    return CLI_USAGE;
}

/* A client command, with the network library up around it. */
static int run_connected(const struct cli_command *command, const struct cli_call *call)
{
    struct rl_err err = {0};

    if (!command->client)
        return command->run(call);
    if (net_init(&err))
        return cli_complain(CLI_FAILED, &err);
    int status = command->run(call);
    net_cleanup();
    return status;
}

static int run_command(const struct cli_command *command, int words, int argc, char **argv,
                       cli_end_fn end)
{
    struct cli_args args = {.tables = {command->options,
                                       command->client ? cli_server_options : NULL,
                                       cli_common_options}};
    struct cli_call call = {
        .command = command, .args = &args, .argc = argc, .argv = argv, .end = end};
    struct rl_err err = {0};
    int status;

    enum rl_rc rc = cli_args_parse(&args, argc - 1 - words, argv + 1 + words, &err);
    if (rc == RL_OK && cli_args_has(&args, "help")) {
        put_command_help(command);
        status = CLI_OK;
    } else if (rc == RL_OK && args.word_count < command->min_words) {
        (void)rl_fail(&err, RL_BAD_REQUEST, "%s needs %s", command->name, command->synopsis);
        status = cli_usage_error(command->name, &err);
    } else if (rc == RL_OK && args.word_count > command->max_words) {
        (void)rl_fail(&err, RL_BAD_REQUEST, "unexpected word '%.80s'%s",
                      args.words[command->max_words],
                      command->max_words ? " (quote a text of several words)" : "");
        status = cli_usage_error(command->name, &err);
    } else if (rc == RL_OK) {
        status = run_connected(command, &call);
    } else {
        status = cli_usage_error(command->name, &err);
    }
    cli_args_free(&args);
    return status;
}

/* reeld --print-config[=markdown] [--config F] [--set k=v]… */
static int print_config(int argc, char **argv)
{
    struct cli_args args = {.tables = {print_options, NULL, NULL}};
    struct config *cfg = NULL;
    struct rl_err err = {0};
    bool markdown = strcmp(argv[1], "--print-config=markdown") == 0;

    enum rl_rc rc = cli_args_parse(&args, argc - 2, argv + 2, &err);
    if (rc == RL_OK && args.word_count > 0)
        rc = rl_fail(&err, RL_BAD_REQUEST, "unexpected word '%.80s'", args.words[0]);
    if (rc == RL_OK && !markdown)
        rc = cli_config(&args, &cfg, &err);
    if (rc == RL_OK && markdown)
        config_print_markdown(stdout);
    else if (rc == RL_OK)
        config_print(cfg, stdout);
    config_free(cfg);
    cli_args_free(&args);
    return rc == RL_OK ? CLI_OK : cli_usage_error("", &err);
}

/* Words before any command: --help, --version, --print-config. */
static int first_option(int argc, char **argv)
{
    static const char *const known[] = {"help", "version", "print-config"};
    const char *word = argv[1], *meant = NULL;
    size_t best = SIZE_MAX;

    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return put_help();
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
        return put_version();
    if (strcmp(word, "--print-config") == 0 || strcmp(word, "--print-config=markdown") == 0)
        return print_config(argc, argv);
    for (size_t i = 0; i < RL_ARRAY_LEN(known); i++)
        if (cli_nearer(word + strspn(word, "-"), known[i], &best))
            meant = known[i];
    fputs("reeld: unknown option '", stderr);
    cli_put(stderr, word);
    if (meant)
        fprintf(stderr, "'; did you mean '--%s'?\n", meant);
    else
        fputs("'; options stand after the command\n", stderr);
    return CLI_USAGE;
}

static int dispatch(int argc, char **argv, cli_end_fn end)
{
    int words = 0;

    if (argc < 2) {
        fputs("usage: reeld COMMAND [OPTION]...\nreeld: see `reeld --help`\n", stderr);
        return CLI_USAGE;
    }
    if (argv[1][0] == '-')
        return first_option(argc, argv);
    if (strcmp(argv[1], "version") == 0)
        return put_version();
    if (strcmp(argv[1], "help") == 0 && argc == 2)
        return put_help();
    bool help = strcmp(argv[1], "help") == 0;
    int skip = help ? 2 : 1;
    const struct cli_command *command = find_command(argc - skip, argv + skip, &words);
    if (command && help) {
        put_command_help(command);
        return CLI_OK;
    }
    if (command)
        return run_command(command, words, argc, argv, end);
    if (is_group(argv[skip]))
        return group(argv[skip], argc - skip, argv + skip);
    return unknown_command(argv[skip]);
}

int cli_main(int argc, char **argv, cli_end_fn end)
{
    struct rl_err err;

    (void)setlocale(LC_CTYPE, ""); /* without it everything is ASCII */
    if (rl_crypto_init(&err))
        return cli_complain(CLI_FAILED, &err);
    int status = dispatch(argc, argv, end);
    if (fflush(stdout) != 0 && status == CLI_OK) {
        fputs("reeld: standard output cannot be written\n", stderr);
        return CLI_FAILED;
    }
    return status;
}
