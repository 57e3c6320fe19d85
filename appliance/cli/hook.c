/* The commands about sources of inbound events. People get tables and sentences, pipes the server's
 * JSON. One thread; no state. */
#include "base/buf.h"
#include "base/crypto.h"
#include "cli/api.h"
#include "cli/commands.h"
#include "cli/list.h"
#include "cli/term.h"
#include "cli/webhook.h"

#include <string.h>

static const struct cli_option json_option[] = {
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

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

static const struct cli_option rotate_options[] = {
    {"secret", 's', "TEXT", "the new secret; one is made otherwise"},
    {"secret-file", 0, "FILE", "the same from the first line of a file"},
    {"grace", 0, "SECONDS", "how long the former one is valid, too, 0 to 604800 (a day)"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

static const struct cli_option events_options[] = {
    {"limit", 'n', "N", "at most N events, 1 to 200 (50)"},
    {"after", 0, "CURSOR", "the page after this cursor (`next` of the page before)"},
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

/* The elements of "A,B" as a JSON array. */
static void write_allow(struct rl_jw *w, const char *text)
{
    rl_jw_array(w, "allow");
    while (*text) {
        size_t len = strcspn(text, ", ");
        if (len > 0)
            rl_jw_strn(w, NULL, text, len);
        text += len;
        text += strspn(text, ", ");
    }
    rl_jw_end_array(w);
}

/* The members that the options ask for, into an open object. */
static enum rl_rc write_wish(const struct cli_args *args, struct rl_jw *w, struct rl_err *err)
{
    const char *allow = cli_args_text(args, "allow"), *rate = cli_args_text(args, "per-minute");
    int64_t number = 0;
    enum rl_rc rc = RL_OK;

    if (allow && !rl_utf8_valid(allow, strlen(allow)))
        return rl_fail(err, RL_BAD_REQUEST, "--allow is not UTF-8 text");
    if (allow)
        write_allow(w, allow);
    if (rate && strcmp(rate, "default") == 0)
        rl_jw_null(w, "per_minute");
    else if (rate) {
        rc = cli_args_int(args, "per-minute", 0, 1000000, 0, &number, err);
        rl_jw_i64(w, "per_minute", number);
    }
    if (cli_args_has(args, "enable") && cli_args_has(args, "disable"))
        return rl_fail(err, RL_BAD_REQUEST, "--enable or --disable: choose one");
    if (cli_args_has(args, "enable") || cli_args_has(args, "disable"))
        rl_jw_bool(w, "enabled", cli_args_has(args, "enable"));
    return rc;
}

static void put_field(const char *name, const char *text)
{
    printf("%-8s ", name);
    cli_put(stdout, text);
    putchar('\n');
}

/* What a new source's owner has to tell the service. */
static int put_source(const struct cli_args *args, const struct cli_reply *reply)
{
    if (cli_wants_json(args)) {
        cli_put_json(reply->http.body, reply->http.body_len);
        return CLI_OK;
    }
    if (!cli_member(reply->json, "url"))
        return cli_not_understood();
    put_field("source", cli_member(reply->json, "source"));
    put_field("url", cli_member(reply->json, "url"));
    if (cli_member(reply->json, "secret"))
        put_field("secret", cli_member(reply->json, "secret"));
    return CLI_OK;
}

/* One call with the body that was built, and its answer. */
static int send_body(const struct cli_call *call, const char *command, const char *method,
                     const char *path, struct rl_buf *body, enum rl_rc rc, struct rl_err *err)
{
    AUTO_REPLY struct cli_reply reply = {0};

    if (rc == RL_OK)
        rc = rl_buf_ok(body, err);
    if (rc != RL_OK)
        return cli_usage_error(command, err);
    int status =
        cli_ask(call->args,
                &(struct cli_request){.method = method, .path = path, .body = body->data}, &reply);
    rl_wipe(body->data, body->len);
    return status == CLI_OK ? put_source(call->args, &reply) : status;
}

static int run_add(const struct cli_call *call)
{
    AUTO_BUF struct rl_buf body;
    AUTO_FREE char *secret = NULL;
    struct rl_jw w;
    struct rl_err err;
    char path[128];

    rl_buf_init(&body, 65536);
    if (!hook_path(call->args->words[0], "", path, sizeof(path)))
        return CLI_USAGE;
    enum rl_rc rc = cli_secret_given(call->args, &secret, &err);
    rl_jw_init(&w, &body, false);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "source", call->args->words[0]);
    if (secret)
        rl_jw_str(&w, "secret", secret);
    if (rc == RL_OK)
        rc = write_wish(call->args, &w, &err);
    rl_jw_end_object(&w);
    return send_body(call, "hook add", "POST", API_HOOKS, &body, rc, &err);
}

static int run_set(const struct cli_call *call)
{
    AUTO_BUF struct rl_buf body;
    struct rl_jw w;
    struct rl_err err;
    char path[128];

    rl_buf_init(&body, 65536);
    if (!hook_path(call->args->words[0], "", path, sizeof(path)))
        return CLI_USAGE;
    rl_jw_init(&w, &body, false);
    rl_jw_object(&w, NULL);
    enum rl_rc rc = write_wish(call->args, &w, &err);
    rl_jw_end_object(&w);
    if (rc == RL_OK && body.len == 2)
        rc = rl_fail(&err, RL_BAD_REQUEST, "nothing to change was named");
    return send_body(call, "hook set", "PATCH", path, &body, rc, &err);
}

static int run_rotate(const struct cli_call *call)
{
    AUTO_BUF struct rl_buf body;
    AUTO_FREE char *secret = NULL;
    struct rl_jw w;
    struct rl_err err;
    int64_t grace_s = -1;
    char path[128];

    rl_buf_init(&body, 65536);
    if (!hook_path(call->args->words[0], "/rotate", path, sizeof(path)))
        return CLI_USAGE;
    enum rl_rc rc = cli_secret_given(call->args, &secret, &err);
    if (rc == RL_OK)
        rc = cli_args_int(call->args, "grace", 0, 604800, -1, &grace_s, &err);
    rl_jw_init(&w, &body, false);
    rl_jw_object(&w, NULL);
    if (secret)
        rl_jw_str(&w, "secret", secret);
    if (grace_s >= 0)
        rl_jw_i64(&w, "grace_s", grace_s);
    rl_jw_end_object(&w);
    return send_body(call, "hook rotate", "POST", path, &body, rc, &err);
}

static int run_remove(const struct cli_call *call)
{
    AUTO_REPLY struct cli_reply reply = {0};
    char path[128];

    if (!hook_path(call->args->words[0], "", path, sizeof(path)))
        return CLI_USAGE;
    int status =
        cli_ask(call->args, &(struct cli_request){.method = "DELETE", .path = path}, &reply);
    if (status == CLI_OK && !cli_wants_json(call->args))
        printf("source %s and its events are gone\n", call->args->words[0]);
    return status;
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
    cli_put_cell(time, 19);
    cli_put_cell(cli_member(event, "type"), 20);
    cli_put_cell(cli_member(event, "correlation_id"), 28);
    cli_put_cell(cli_member(event, "handled_at") ? "handled" : "waiting", 7);
    cli_put(stdout, cli_member(event, "event_id"));
    putchar('\n');
}

static int run_events(const struct cli_call *call)
{
    const char *after = cli_args_text(call->args, "after");
    struct rl_err err;
    int64_t limit = 0;
    char path[256], tail[128];

    enum rl_rc rc = cli_args_int(call->args, "limit", 1, 200, 50, &limit, &err);
    if (rc == RL_OK && after && (!cli_query_word(after) || strlen(after) > 64))
        rc = rl_fail(&err, RL_BAD_REQUEST, "--after is a single word");
    if (rc != RL_OK)
        return cli_usage_error("hook events", &err);
    (void)snprintf(tail, sizeof(tail), "/events?limit=%lld%s%s", (long long)limit,
                   after ? "&after=" : "", after ? after : ""); /* measured above */
    if (!hook_path(call->args->words[0], tail, path, sizeof(path)))
        return CLI_USAGE;
    return cli_list_whole(
        call->args, path,
        "RECEIVED             TYPE                  ABOUT                         "
        "STATE    EVENT",
        "no events", put_event);
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
    .options = json_option,
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
    .options = rotate_options,
    ONE_SOURCE,
    .run = run_rotate,
};
const struct cli_command cli_hook_rm = {
    .name = "hook rm",
    .summary = "remove a source and its events",
    .options = json_option,
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
