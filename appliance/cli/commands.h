/* The command table: what each command is called, takes and does. */
#ifndef RL_CLI_COMMANDS_H
#define RL_CLI_COMMANDS_H

#include "cli/args.h"
#include "cli/cli.h"

struct cli_command;

/* One invocation, borrowed for the run. */
struct cli_call {
    const struct cli_command *command;
    const struct cli_args *args;
    int argc; /* the whole command line, for serve to start itself anew */
    char **argv;
    cli_end_fn end;
};

struct cli_command {
    const char *name;     /* "submit", or two words: "key add" */
    const char *synopsis; /* its words after the name, "[PROMPT | -]" */
    const char *summary;  /* one line */
    const char *details;  /* paragraphs for --help, lines of at most 78 columns; NULL = none */
    const struct cli_option *options;
    bool client; /* talks to a server: takes --url, --key, --state-dir */
    size_t min_words, max_words;
    int (*run)(const struct cli_call *call); /* returns an enum cli_exit */
};

extern const struct cli_command cli_serve, cli_submit, cli_get, cli_list, cli_cancel, cli_watch,
    cli_events, cli_video, cli_key_add, cli_key_list, cli_key_revoke, cli_link, cli_secret,
    cli_engines, cli_backup, cli_doctor, cli_dead_list, cli_dead_replay, cli_dead_discard,
    cli_queue_list, cli_queue_pause, cli_queue_resume, cli_queue_drain, cli_workers, cli_stats,
    cli_repair, cli_link_video, cli_feed_list, cli_feed_read, cli_feed_ack, cli_feed_extend,
    cli_feed_seek, cli_feed_rm, cli_endpoint_add, cli_endpoint_list, cli_endpoint_test,
    cli_endpoint_rotate, cli_endpoint_enable, cli_endpoint_disable, cli_endpoint_rm,
    cli_delivery_list, cli_delivery_resend, cli_hook_add, cli_hook_list, cli_hook_set,
    cli_hook_rotate, cli_hook_rm, cli_hook_events, cli_hook_handled, cli_verify_webhook, cli_listen,
    cli_model_list, cli_model_add, cli_model_pull, cli_model_verify, cli_model_rm;

/* All commands but help and version, in the order of --help; NULL ends the list. */
extern const struct cli_command *const cli_commands[];
/* The three options of every client command, --help, and --json for those that have no other. */
extern const struct cli_option cli_server_options[], cli_common_options[], cli_json_option[];

/* "reeld: <text>" with the reason of err to stderr; returns `status`. */
int cli_complain(int status, const struct rl_err *err);
/* The same for wrong words: adds where to read more. Returns CLI_USAGE. */
int cli_usage_error(const char *command, const struct rl_err *err);

/* --config FILE and --set name=value (config.c): defaults, then the file (fallback when none is
 * named: it may be absent, or not this user's to read), then --set in order. Returns new. */
struct config;
enum rl_rc cli_config(const struct cli_args *args, struct config **ret_config, struct rl_err *err)
    RL_NODISCARD;
/* The fallback file when it is there but not this user's to read; NULL: nothing was left out. */
const char *cli_config_left_out(const struct cli_args *args);

#endif
