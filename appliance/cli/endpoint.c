/* The commands about receivers that hear of every task, and about what was sent to them. People get
 * tables and sentences, pipes the server's JSON. One thread; no state. */
#include "cli/api.h"
#include "cli/list.h"
#include "cli/send.h"
#include "cli/term.h"

#include <string.h>

static const struct cli_option add_options[] = {
    {"events", 'e', "A,B", "only these: task.succeeded, task.failed, task.timeout"},
    {"description", 0, "TEXT", "what it is for"},
    {"secret", 's', "TEXT", "signs what it gets; one is made otherwise"},
    {"secret-file", 0, "FILE", "the same from the first line of a file"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

static const struct cli_option delivery_options[] = {
    {"status", 's', "A,B", "only these: PENDING, SUCCEEDED, FAILED"},
    {"endpoint", 'e', "ID", "only of this endpoint; 0 for the callback_url of tasks"},
    {"limit", 'n', "N", "at most N of them, 1 to 200 (50)"},
    {"after", 0, "CURSOR", "the page after this cursor (`next` of the page before)"},
    {"all", 'a', NULL, "every page"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

static const struct cli_option resend_options[] = {
    {"endpoint", 'e', "ID", "every FAILED one of this endpoint"},
    {"from", 0, "TIME", "every FAILED one of an event since then (RFC 3339)"},
    {"to", 0, "TIME", "the same, until then"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

/* ---- endpoints ---- */

static enum rl_rc write_endpoint(const struct cli_args *args, struct rl_jw *w, struct rl_err *err)
{
    const char *url = args->words[0];
    enum rl_rc rc = RL_OK;

    if (!rl_utf8_valid(url, strlen(url)))
        return rl_fail(err, RL_BAD_REQUEST, "the URL is not UTF-8 text");
    rl_jw_str(w, "url", url);
    rc = cli_write_list(args, "events", w, "events", err);
    if (rc == RL_OK)
        rc = cli_write_text(args, "description", w, "description", err);
    return rc == RL_OK ? cli_write_secret(args, w, err) : rc;
}

static bool put_endpoint(const struct cli_call *call, const struct rl_json *answer)
{
    static const char *const names[] = {"endpoint_id", "url", "secret", NULL};

    (void)call;
    return cli_put_members(answer, names);
}

static int run_add(const struct cli_call *call)
{
    return cli_tell(call, "POST", API_ENDPOINTS, write_endpoint, put_endpoint);
}

static void put_row(const struct rl_json *endpoint)
{
    const struct rl_json *stats = rl_json_get(endpoint, "stats");

    cli_put_cell(cli_member(endpoint, "endpoint_id"), 19);
    cli_put_cell(cli_member(endpoint, "state"), 8);
    printf("%7lld  %9lld  %6lld  ", (long long)cli_member_int(stats, "pending", 0),
           (long long)cli_member_int(stats, "succeeded", 0),
           (long long)cli_member_int(stats, "failed", 0));
    cli_put_cell(cli_member(endpoint, "user_id"), 12);
    cli_put(stdout, cli_member(endpoint, "url"));
    putchar('\n');
}

static int run_list(const struct cli_call *call)
{
    static const struct cli_list_kind kind = {
        .base = API_ENDPOINTS,
        .header = "ENDPOINT             STATE     PENDING  SUCCEEDED  FAILED  USER          URL",
        .none = "no endpoints",
        .put_row = put_row};

    return cli_list_run(call, &kind);
}

static bool put_test(const struct cli_call *call, const struct rl_json *answer)
{
    const char *id = cli_member(answer, "delivery_id");

    if (!id)
        return false;
    printf("a test is on its way as delivery %s; `reeld delivery list --endpoint %s` tells what "
           "became of it\n",
           id, call->args->words[0]);
    return true;
}

/* The endpoint's path with this tail; false when it is no id (complains). */
static bool endpoint_path(const struct cli_call *call, const char *tail, char path[128])
{
    return cli_id_path("endpoint", API_ENDPOINTS, call->args->words[0], tail, path, 128);
}

static int run_test(const struct cli_call *call)
{
    char path[128];

    if (!endpoint_path(call, "/test", path))
        return CLI_USAGE;
    return cli_tell(call, "POST", path, NULL, put_test);
}

static int run_rotate(const struct cli_call *call)
{
    char path[128];

    if (!endpoint_path(call, "/rotate", path))
        return CLI_USAGE;
    return cli_tell(call, "POST", path, cli_write_rotation, put_endpoint);
}

static int steer(const struct cli_call *call, const char *method, const char *tail, const char *now)
{
    char path[128];

    if (!endpoint_path(call, tail, path))
        return CLI_USAGE;
    return cli_steer(call, method, path, "endpoint", now);
}

static int run_enable(const struct cli_call *call)
{
    return steer(call, "POST", "/enable", "is enabled; what waited is sent first");
}

static int run_disable(const struct cli_call *call)
{
    return steer(call, "POST", "/disable", "is disabled; what is queued waits");
}

static int run_remove(const struct cli_call *call)
{
    return steer(call, "DELETE", "", "is gone");
}

/* ---- deliveries ---- */

static void put_delivery(const struct rl_json *delivery)
{
    char created[32], tries[32];
    const char *error = cli_member(delivery, "last_error");

    cli_local_time(cli_member(delivery, "created_at"), created);
    (void)snprintf(tries, sizeof(tries), "%lld/%lld",
                   (long long)cli_member_int(delivery, "tries", 0),
                   (long long)cli_member_int(delivery, "max_tries", 0)); /* fits */
    cli_put_cell(cli_member(delivery, "delivery_id"), 8);
    cli_put_cell(created, 19);
    cli_put_cell(cli_member(delivery, "event_type"), 14);
    cli_put_cell(cli_member(delivery, "task_id"), 19);
    cli_put_cell(cli_member(delivery, "status"), 9);
    cli_put_cell(tries, 5);
    cli_put(stdout, cli_member(delivery, "host"));
    if (error) {
        fputs("  ", stdout);
        cli_put(stdout, error);
    }
    putchar('\n');
}

static int run_delivery_list(const struct cli_call *call)
{
    const char *endpoint = cli_args_text(call->args, "endpoint");
    char path[128];
    struct cli_list_kind kind = {
        .base = path,
        .header = "DELIVERY  CREATED              EVENT           TASK_ID              STATUS     "
                  "TRIES  TO",
        .none = "no deliveries",
        .put_row = put_delivery};

    if (endpoint && (!*endpoint || strlen(endpoint) > 19 || !cli_query_word(endpoint))) {
        struct rl_err err;
        (void)rl_fail(&err, RL_BAD_REQUEST, "'%.60s' is no endpoint id", endpoint);
        return cli_usage_error(call->command->name, &err);
    }
    (void)snprintf(path, sizeof(path), API_DELIVERIES "%s%s", endpoint ? "?endpoint_id=" : "",
                   endpoint ? endpoint : ""); /* measured above */
    return cli_list_run(call, &kind);
}

static bool put_one_resent(const struct cli_call *call, const struct rl_json *answer)
{
    (void)answer;
    printf("delivery %s is on its way again\n", call->args->words[0]);
    return true;
}

static bool put_resent(const struct cli_call *call, const struct rl_json *answer)
{
    (void)call;
    printf("on their way again: %lld%s\n", (long long)cli_member_int(answer, "resent", 0),
           rl_json_is_true(rl_json_get(answer, "more")) ? "; there are more, say it once more"
                                                        : "");
    return true;
}

static enum rl_rc write_choice(const struct cli_args *args, struct rl_jw *w, struct rl_err *err)
{
    enum rl_rc rc = cli_write_text(args, "endpoint", w, "endpoint_id", err);

    if (rc == RL_OK)
        rc = cli_write_text(args, "from", w, "from", err);
    return rc == RL_OK ? cli_write_text(args, "to", w, "to", err) : rc;
}

static int run_resend(const struct cli_call *call)
{
    const struct cli_args *args = call->args;
    bool several =
        cli_args_has(args, "endpoint") || cli_args_has(args, "from") || cli_args_has(args, "to");
    struct rl_err err;
    char path[128];

    if (several == (args->word_count > 0)) {
        (void)rl_fail(&err, RL_BAD_REQUEST,
                      "name one delivery, or several by --endpoint, --from and --to");
        return cli_usage_error(call->command->name, &err);
    }
    if (several)
        return cli_tell(call, "POST", API_DELIVERIES "/resend", write_choice, put_resent);
    if (!cli_id_path("delivery", API_DELIVERIES, args->words[0], "/resend", path, sizeof(path)))
        return CLI_USAGE;
    return cli_tell(call, "POST", path, NULL, put_one_resent);
}

/* ---- the table's entries ---- */

#define ENDPOINT_COMMAND(text, run_fn, option_table, help)                                         \
    {                                                                                              \
        .name = (text), .synopsis = "ID", .summary = (help), .options = (option_table),            \
        .client = true, .min_words = 1, .max_words = 1, .run = (run_fn)                            \
    }

const struct cli_command cli_endpoint_add = {
    .name = "endpoint add",
    .synopsis = "URL",
    .summary = "call this address back for every task that ends; prints the secret, once",
    .options = add_options,
    .client = true,
    .min_words = 1,
    .max_words = 1,
    .run = run_add,
};
const struct cli_command cli_endpoint_list = {
    .name = "endpoint list",
    .synopsis = "",
    .summary = "list the endpoints with their state and figures",
    .options = cli_page_options,
    .client = true,
    .run = run_list,
};
const struct cli_command cli_endpoint_test =
    ENDPOINT_COMMAND("endpoint test", run_test, cli_json_option, "send an endpoint a signed test");
const struct cli_command cli_endpoint_rotate =
    ENDPOINT_COMMAND("endpoint rotate", run_rotate, cli_rotation_options,
                     "give an endpoint a new secret; the former one signs, too, for a while");
const struct cli_command cli_endpoint_enable =
    ENDPOINT_COMMAND("endpoint enable", run_enable, cli_json_option,
                     "send again to an endpoint that was disabled, or parked after a 410");
const struct cli_command cli_endpoint_disable =
    ENDPOINT_COMMAND("endpoint disable", run_disable, cli_json_option,
                     "queue nothing new for an endpoint; what is queued waits");
const struct cli_command cli_endpoint_rm = ENDPOINT_COMMAND(
    "endpoint rm", run_remove, cli_json_option, "remove an endpoint and what waits for it");
const struct cli_command cli_delivery_list = {
    .name = "delivery list",
    .synopsis = "",
    .summary = "list the callbacks and what became of them, newest first",
    .options = delivery_options,
    .client = true,
    .run = run_delivery_list,
};
const struct cli_command cli_delivery_resend = {
    .name = "delivery resend",
    .synopsis = "ID | [--endpoint ID] [--from TIME] [--to TIME]",
    .summary = "send callbacks again, with the same webhook-id",
    .options = resend_options,
    .client = true,
    .max_words = 1,
    .run = run_resend,
};
