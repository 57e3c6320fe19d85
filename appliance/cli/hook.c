/* The commands about sources of inbound events. People get tables and sentences, pipes the server's
 * JSON. One thread; no state. */
#include "cli/api.h"
#include "cli/list.h"
#include "cli/send.h"
#include "cli/term.h"

#include <string.h>

#define HANDLED_MOST 200 /* events that the server takes at once */

static const struct cli_option add_options[] = {
    {"secret", 's', "TEXT", "the secret that the service gave you; one is made otherwise"},
    {"secret-file", 0, "FILE", "the same from the first line of a file"},
    {"allow", 'a', "A,B", "addresses and CIDR ranges that may post; any otherwise"},
    {"per-minute", 0, "N", "deliveries from one address; 0 = no limit (hook.per_minute)"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

static const struct cli_option set_options[] = {
    {"allow", 'a', "A,B", "addresses and CIDR ranges that may post; an empty text = any"},
    {"per-minute", 0, "N", "deliveries from one address; 0 = no limit, default = hook.per_minute"},
    {"enable", 0, NULL, "take events again"},
    {"disable", 0, NULL, "answer as if there were no such source"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

static const struct cli_option events_options[] = {
    {"limit", 'n', "N", "at most N events, 1 to 200 (50)"},
    {"after", 0, "CURSOR", "the page after this cursor (`next` of the page before)"},
    {"waiting", 0, NULL, "only those that nobody has handled, oldest first"},
    {"all", 'a', NULL, "every page"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

/* "/api/v1/hooks/<source><tail>" into path[size]; false when it is no name (complains). */
static bool hook_path(const char *source, const char *tail, char *path, size_t size)
{
    if (*source && strlen(source) < 64 && cli_query_word(source) && !strpbrk(source, ",."))
        return snprintf(path, size, API_HOOKS "/%s%s", source, tail) < (int)size;
    fputs("reeld: '", stderr);
    cli_put(stderr, source);
    fputs("' is no source: 1 to 63 of a-z 0-9 _ -\n", stderr);
    return false;
}

/* The members that the options ask for. */
static enum rl_rc write_wish(const struct cli_args *args, struct rl_jw *w, struct rl_err *err)
{
    const char *rate = cli_args_text(args, "per-minute");
    bool enable = cli_args_has(args, "enable"), disable = cli_args_has(args, "disable");
    int64_t number = 0;
    enum rl_rc rc = cli_write_list(args, "allow", w, "allow", err);

    if (rc == RL_OK && rate && strcmp(rate, "default") == 0) {
        rl_jw_null(w, "per_minute");
    } else if (rc == RL_OK && rate) {
        rc = cli_args_int(args, "per-minute", 0, 1000000, 0, &number, err);
        rl_jw_i64(w, "per_minute", number);
    }
    if (rc == RL_OK && enable && disable)
        rc = rl_fail(err, RL_BAD_REQUEST, "--enable or --disable: choose one");
    if (enable || disable)
        rl_jw_bool(w, "enabled", enable);
    return rc;
}

/* What a new source's owner has to tell the service. */
static bool put_source(const struct cli_call *call, const struct rl_json *answer)
{
    static const char *const names[] = {"source", "url", "secret", NULL};

    (void)call;
    return cli_put_members(answer, names);
}

static enum rl_rc write_new(const struct cli_args *args, struct rl_jw *w, struct rl_err *err)
{
    rl_jw_str(w, "source", args->words[0]);
    enum rl_rc rc = cli_write_secret(args, w, err);
    return rc == RL_OK ? write_wish(args, w, err) : rc;
}

static enum rl_rc write_change(const struct cli_args *args, struct rl_jw *w, struct rl_err *err)
{
    static const char *const wishes[] = {"allow", "per-minute", "enable", "disable"};
    bool some = false;

    for (size_t i = 0; i < RL_ARRAY_LEN(wishes); i++)
        some = some || cli_args_has(args, wishes[i]);
    return some ? write_wish(args, w, err)
                : rl_fail(err, RL_BAD_REQUEST, "nothing to change was named");
}

static int run_add(const struct cli_call *call)
{
    char path[128];

    if (!hook_path(call->args->words[0], "", path, sizeof(path)))
        return CLI_USAGE;
    return cli_tell(call, "POST", API_HOOKS, write_new, put_source);
}

static int run_set(const struct cli_call *call)
{
    char path[128];

    if (!hook_path(call->args->words[0], "", path, sizeof(path)))
        return CLI_USAGE;
    return cli_tell(call, "PATCH", path, write_change, put_source);
}

static int run_rotate(const struct cli_call *call)
{
    char path[128];

    if (!hook_path(call->args->words[0], "/rotate", path, sizeof(path)))
        return CLI_USAGE;
    return cli_tell(call, "POST", path, cli_write_rotation, put_source);
}

static int run_remove(const struct cli_call *call)
{
    char path[128];

    if (!hook_path(call->args->words[0], "", path, sizeof(path)))
        return CLI_USAGE;
    return cli_steer(call, "DELETE", path, "source", "and its events are gone");
}

/* ---- lists ---- */

static void put_hook(const struct rl_json *hook)
{
    char last[32], allow[64] = "";
    const struct rl_json *stats = rl_json_get(hook, "stats"), *list = rl_json_get(hook, "allow"),
                         *first = list ? rl_json_child(list) : NULL;

    cli_put_cell(cli_member(hook, "source"), 24);
    cli_put_cell(rl_json_is_true(rl_json_get(hook, "enabled")) ? "on" : "off", 5);
    printf("%8lld  %7lld  ", (long long)cli_member_int(stats, "received", 0),
           (long long)cli_member_int(stats, "waiting", 0));
    cli_local_time(cli_member(stats, "last_event_at"), last);
    cli_put_cell(last, 19);
    if (first)
        (void)snprintf(allow, sizeof(allow), "%s%s", rl_json_text(first) ? rl_json_text(first) : "",
                       rl_json_next(first) ? ", ..." : ""); /* a long one is cut */
    cli_put(stdout, first ? allow : "any");
    putchar('\n');
}

static int run_list(const struct cli_call *call)
{
    return cli_list_whole(
        call->args, API_HOOKS,
        "SOURCE                    STATE  RECEIVED  WAITING  LAST EVENT           "
        "FROM",
        "no sources", put_hook);
}

static void put_event(const struct rl_json *event)
{
    char time[32];

    cli_local_time(cli_member(event, "received_at"), time);
    printf("%9s  ", cli_member(event, "event_seq") ? cli_member(event, "event_seq") : "-");
    cli_put_cell(time, 19);
    cli_put_cell(cli_member(event, "type"), 20);
    cli_put_cell(cli_member(event, "correlation_id"), 28);
    cli_put_cell(cli_member(event, "handled_at") ? "handled" : "waiting", 7);
    cli_put(stdout, cli_member(event, "event_id"));
    putchar('\n');
}

static int run_events(const struct cli_call *call)
{
    char path[160];
    const char *tail =
        cli_args_has(call->args, "waiting") ? "/events?handled=false&order=asc" : "/events";
    struct cli_list_kind kind = {
        .base = path,
        .header =
            "      SEQ  RECEIVED             TYPE                  ABOUT                         "
            "STATE    EVENT",
        .none = "no events",
        .put_row = put_event};

    if (!hook_path(call->args->words[0], tail, path, sizeof(path)))
        return CLI_USAGE;
    return cli_list_run(call, &kind);
}

/* ---- handled ---- */

/* Up to HANDLED_MOST of the words from *at on, in one request; adds those that are of the source.
 */
static int report_handled(const struct cli_call *call, const char *path, size_t *at,
                          size_t *handled)
{
    AUTO_BUF struct rl_buf body = {0};
    AUTO_REPLY struct cli_reply reply = {0};
    struct rl_jw w;
    struct rl_err err;

    rl_buf_init(&body, 65536);
    rl_jw_init(&w, &body, false);
    rl_jw_object(&w, NULL);
    rl_jw_array(&w, "event_seqs");
    for (size_t n = 0; n < HANDLED_MOST && *at < call->args->word_count; n++, ++*at)
        rl_jw_str(&w, NULL, call->args->words[*at]);
    rl_jw_end_array(&w);
    rl_jw_end_object(&w);
    if (rl_buf_ok(&body, &err))
        return cli_usage_error("hook handled", &err);
    int status =
        cli_ask(call->args,
                &(struct cli_request){.method = "POST", .path = path, .body = body.data}, &reply);
    if (status != CLI_OK)
        return status;
    if (cli_wants_json(call->args))
        cli_put_json(reply.http.body, reply.http.body_len);
    const struct rl_json *done = rl_json_get(reply.json, "handled");
    if (!done)
        return cli_not_understood();
    for (const struct rl_json *id = rl_json_child(done); id; id = rl_json_next(id))
        ++*handled;
    return CLI_OK;
}

static int run_handled(const struct cli_call *call)
{
    size_t at = 1, handled = 0, all = call->args->word_count - 1;
    int status = CLI_OK;
    char path[128];

    if (!hook_path(call->args->words[0], "/events/handled", path, sizeof(path)))
        return CLI_USAGE;
    for (size_t i = 1; i <= all; i++) {
        const char *seq = call->args->words[i];
        size_t digits = strspn(seq, "0123456789");
        if (digits > 0 && digits <= 19 && !seq[digits])
            continue;
        fputs("reeld: '", stderr);
        cli_put(stderr, seq);
        fputs("' is no event; `reeld hook events` shows their numbers\n", stderr);
        return CLI_USAGE;
    }
    while (status == CLI_OK && at <= all)
        status = report_handled(call, path, &at, &handled);
    if (status == CLI_OK && !cli_wants_json(call->args))
        printf("handled: %zu\n", handled);
    if (status != CLI_OK || handled == all)
        return status;
    fprintf(stderr, "reeld: %zu are no events of %s\n", all - handled, call->args->words[0]);
    return CLI_REFUSED;
}

/* ---- the table's entries ---- */

#define ONE_SOURCE .synopsis = "SOURCE", .client = true, .min_words = 1, .max_words = 1

const struct cli_command cli_hook_add = {
    .name = "hook add",
    .summary = "let an outside service post signed events; prints where, and the secret",
    .details = "The secret is shown this once. Needs an owner's key, as all of these do.\n",
    .options = add_options,
    ONE_SOURCE,
    .run = run_add,
};
const struct cli_command cli_hook_list = {
    .name = "hook list",
    .synopsis = "",
    .summary = "list the sources of events and how many wait to be handled",
    .options = cli_json_option,
    .client = true,
    .run = run_list,
};
const struct cli_command cli_hook_set = {
    .name = "hook set",
    .summary = "change who may post and how often, or switch a source off and on",
    .options = set_options,
    ONE_SOURCE,
    .run = run_set,
};
const struct cli_command cli_hook_rotate = {
    .name = "hook rotate",
    .summary = "give a source a new secret; the former one is valid, too, for a while",
    .options = cli_rotation_options,
    ONE_SOURCE,
    .run = run_rotate,
};
const struct cli_command cli_hook_rm = {
    .name = "hook rm",
    .summary = "remove a source and its events",
    .options = cli_json_option,
    ONE_SOURCE,
    .run = run_remove,
};
const struct cli_command cli_hook_events = {
    .name = "hook events",
    .summary = "list the events of a source, newest first",
    .options = events_options,
    ONE_SOURCE,
    .run = run_events,
};
const struct cli_command cli_hook_handled = {
    .name = "hook handled",
    .synopsis = "SOURCE SEQ...",
    .summary = "report events as handled: they do not wait any longer",
    .details = "Report one when what it brought about is durable. Its body goes; its id is\n"
               "remembered, so that a repeat changes nothing.\n",
    .options = cli_json_option,
    .client = true,
    .min_words = 2,
    .max_words = SIZE_MAX,
    .run = run_handled,
};
