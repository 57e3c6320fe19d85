/* The commands about one task: get, cancel, watch, events, video, link-video. People get lines,
 * pipes get the server's JSON. */
#include "base/buf.h"
#include "base/clock.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/submit.h"
#include "cli/term.h"

#include <string.h>
#include <unistd.h>

static int get_task(const struct cli_args *args, struct cli_client *client, const char *tail,
                    struct cli_reply *reply)
{
    char path[128];

    if (!cli_task_path(args->words[0], tail, path, sizeof(path)))
        return CLI_USAGE;
    int status = cli_client_open(args, client);
    if (status != CLI_OK)
        return status;
    return cli_call(client, &(struct cli_request){.path = path}, reply);
}

/* ---- get ---- */

static const struct cli_option get_options[] = {
    {"explain", 'x', NULL, "say in words where the task stands and what it waits for"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

static int run_get(const struct cli_call *call)
{
    AUTO_CLIENT struct cli_client client = {0};
    AUTO_REPLY struct cli_reply reply = {0};
    bool explain = cli_args_has(call->args, "explain");

    int status = get_task(call->args, &client, explain ? "?explain=1" : "", &reply);
    if (status != CLI_OK)
        return status;
    if (cli_wants_json(call->args))
        cli_put_json(reply.http.body, reply.http.body_len);
    else if (reply.json)
        cli_put_task(&client, reply.json);
    else
        return cli_not_understood();
    return CLI_OK;
}

/* ---- cancel ---- */

static const struct cli_option cancel_options[] = {
    {"hard", 0, NULL,
     "stop a run within two steps and drop what it made; else its result is kept for reuse"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

static int run_cancel(const struct cli_call *call)
{
    AUTO_CLIENT struct cli_client client = {0};
    AUTO_REPLY struct cli_reply reply = {0};
    char path[128];
    bool hard = cli_args_has(call->args, "hard");

    if (!cli_task_path(call->args->words[0], "/cancel", path, sizeof(path)))
        return CLI_USAGE;
    int status = cli_client_open(call->args, &client);
    if (status != CLI_OK)
        return status;
    struct cli_request request = {.method = "POST",
                                  .path = path,
                                  .body = hard ? "{\"mode\":\"hard\"}" : "{\"mode\":\"soft\"}"};
    status = cli_call(&client, &request, &reply);
    if (status != CLI_OK)
        return status;
    if (cli_wants_json(call->args)) {
        cli_put_json(reply.http.body, reply.http.body_len);
        return CLI_OK;
    }
    printf("task %s ", call->args->words[0]);
    cli_put(stdout, reply.http.status == 202 ? "is stopping" : cli_member(reply.json, "status"));
    putchar('\n');
    return CLI_OK;
}

/* ---- events and watch ---- */

static void put_event(const struct rl_json *event)
{
    char when[32];
    const char *from = cli_member(event, "from_status");
    const char *worker = cli_member(event, "worker_id"), *reason = cli_member(event, "reason");
    int64_t attempt = cli_member_int(event, "attempt", 0);

    cli_local_time(cli_member(event, "timestamp"), when);
    printf("%s  ", when);
    if (from) {
        cli_put(stdout, from);
        printf(" -> ");
    }
    cli_put(stdout, cli_member(event, "to_status"));
    if (attempt > 0)
        printf("  attempt %lld", (long long)attempt);
    if (worker && *worker) {
        printf("  ");
        cli_put(stdout, worker);
    }
    if (reason && *reason) {
        printf("  ");
        cli_put(stdout, reason);
    }
    putchar('\n');
}

static void put_event_json(const struct rl_json *event)
{
    AUTO_BUF struct rl_buf text = {0};

    rl_buf_init(&text, (size_t)1 << 20);
    rl_json_canonical(event, &text);
    if (text.data)
        cli_put_json(text.data, text.len);
}

/* Print the events after *after, page by page, and advance it. status as of cli_poll. */
static int put_events(const struct cli_client *client, const char *id, bool json, int64_t *after,
                      int64_t *patience, bool *ret_again)
{
    char path[160], tail[96];
    bool more = true;

    while (more) {
        AUTO_REPLY struct cli_reply reply = {0};
        (void)snprintf(tail, sizeof(tail), "/events?order=asc&limit=200%s%.0lld",
                       *after ? "&after=" : "", (long long)*after); /* fits */
        if (!cli_task_path(id, tail, path, sizeof(path)))
            return CLI_USAGE;
        int status = cli_poll(client, path, patience, ret_again, &reply);
        if (status != CLI_OK)
            return status;
        const struct rl_json *data = rl_json_get(reply.json, "data");
        for (const struct rl_json *e = data ? rl_json_child(data) : NULL; e; e = rl_json_next(e)) {
            *after = cli_member_int(e, "seq", *after);
            if (json)
                put_event_json(e);
            else
                put_event(e);
        }
        more = cli_member(reply.json, "next") != NULL && data && rl_json_child(data);
    }
    fflush(stdout);
    return CLI_OK;
}

static int run_events(const struct cli_call *call)
{
    AUTO_CLIENT struct cli_client client = {0};
    AUTO_REPLY struct cli_reply reply = {0};
    int64_t after = 0, patience = 1; /* long gone: no second try */
    bool again;

    if (!cli_wants_json(call->args)) {
        int status = cli_client_open(call->args, &client);
        if (status != CLI_OK)
            return status;
        return put_events(&client, call->args->words[0], false, &after, &patience, &again);
    }
    int status = get_task(call->args, &client, "/events?order=asc&limit=200", &reply);
    if (status == CLI_OK)
        cli_put_json(reply.http.body, reply.http.body_len);
    return status;
}

static int watch(const struct cli_client *client, const char *id, bool json)
{
    char path[64];
    int64_t after = 0, patience = 0, started_ms = rl_mono_ms();
    bool again;

    if (!cli_task_path(id, "", path, sizeof(path)))
        return CLI_USAGE;
    cli_signals_hold();
    for (;;) {
        AUTO_REPLY struct cli_reply task = {0};
        /* the task first: its end is then among the events that are read afterwards */
        int status = cli_poll(client, path, &patience, &again, &task);
        cli_draw_clear();
        const char *now = status == CLI_OK ? cli_member(task.json, "status") : NULL;
        bool over = cli_is_terminal(now);
        if (status == CLI_OK)
            status = put_events(client, id, json, &after, &patience, &again);
        if (status != CLI_OK && !again)
            return status;
        if (status == CLI_OK && over)
            return strcmp(now, "SUCCEEDED") == 0 ? CLI_OK : CLI_FAILED;
        cli_draw(task.json, started_ms, again ? "the server does not answer, trying again" : NULL);
        if (cli_wait(status == CLI_OK ? cli_poll_ms(client, task.json) : 1000))
            return CLI_INTERRUPTED;
    }
}

static int run_watch(const struct cli_call *call)
{
    AUTO_CLIENT struct cli_client client = {0};
    int status = cli_client_open(call->args, &client);

    if (status != CLI_OK)
        return status;
    return watch(&client, call->args->words[0], cli_args_has(call->args, "json"));
}

/* ---- video ---- */

static const struct cli_option video_options[] = {
    {"output", 'o', "FILE", "where to save it (ID.mp4 here otherwise)"},
    {0},
};

static int run_video(const struct cli_call *call)
{
    AUTO_CLIENT struct cli_client client = {0};
    AUTO_REPLY struct cli_reply reply = {0};
    char fallback[64];
    const char *output = cli_args_text(call->args, "output");

    (void)snprintf(fallback, sizeof(fallback), "%.40s.mp4", call->args->words[0]); /* fits */
    if (!output)
        output = fallback;
    if (!cli_download_allowed(output))
        return CLI_USAGE;
    int status = get_task(call->args, &client, "", &reply);
    if (status != CLI_OK)
        return status;
    if (!reply.json)
        return cli_not_understood();
    status = cli_download_video(&client, reply.json, output);
    if (status == CLI_OK)
        fprintf(stderr, "saved %s\n", output);
    return status;
}

/* ---- link-video ---- */

static const struct cli_option link_options[] = {
    {"expires", 'x', "SECONDS", "how long it opens the video, 60 to 31536000 (86400, a day)"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

static int run_link_video(const struct cli_call *call)
{
    AUTO_REPLY struct cli_reply reply = {0};
    char path[128], body[64];
    struct rl_err err;
    int64_t expires_s;

    if (cli_args_int(call->args, "expires", 60, 31536000, 86400, &expires_s, &err))
        return cli_usage_error("link-video", &err);
    if (!cli_task_path(call->args->words[0], "/link", path, sizeof(path)))
        return CLI_USAGE;
    (void)snprintf(body, sizeof(body), "{\"expires_s\":%lld}", (long long)expires_s); /* fits */
    int status = cli_ask(
        call->args, &(struct cli_request){.method = "POST", .path = path, .body = body}, &reply);
    const char *url = status == CLI_OK ? cli_member(reply.json, "url") : NULL;
    if (status != CLI_OK)
        return status;
    if (!url)
        return cli_not_understood();
    if (cli_args_has(call->args, "json")) {
        cli_put_json(reply.http.body, reply.http.body_len);
        return CLI_OK;
    }
    cli_put(stdout, url); /* alone on a line, also for a pipe: what a script wants */
    putchar('\n');
    return CLI_OK;
}

/* ---- the table's entries ---- */

#define TASK_COMMAND(text, run_fn, option_table, words_text, help, more)                           \
    {                                                                                              \
        .name = (text), .synopsis = (words_text), .summary = (help), .details = (more),            \
        .options = (option_table), .client = true, .min_words = 1, .max_words = 1, .run = (run_fn) \
    }

const struct cli_command cli_get =
    TASK_COMMAND("get", run_get, get_options, "ID", "show one task", NULL);
const struct cli_command cli_cancel =
    TASK_COMMAND("cancel", run_cancel, cancel_options, "ID", "cancel a task", NULL);
const struct cli_command cli_watch = TASK_COMMAND(
    "watch", run_watch, cli_json_option, "ID", "print each change of a task until it ends",
    "The exit status is 0 when the task SUCCEEDED and 1 when it ended otherwise.\n");
const struct cli_command cli_events =
    TASK_COMMAND("events", run_events, cli_json_option, "ID", "print the history of a task", NULL);
const struct cli_command cli_video =
    TASK_COMMAND("video", run_video, video_options, "ID", "save the video of a task",
                 "A broken download leaves FILE.part and is resumed by the same command.\n");
const struct cli_command cli_link_video =
    TASK_COMMAND("link-video", run_link_video, link_options, "ID",
                 "print an address that opens the video without a key", NULL);
