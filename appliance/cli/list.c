/* The lists that come page by page: tasks and dead letters. People get a table, pipes get the
 * server's JSON. One thread; no state. */
#include "cli/list.h"

#include "base/buf.h"
#include "cli/api.h"
#include "cli/commands.h"
#include "cli/term.h"

#include <string.h>
#include <unistd.h>

static const struct cli_option list_options[] = {
    {"status", 's', "A,B",
     "only these: CREATED, QUEUED, PROCESSING, SUCCEEDED, FAILED, TIMEOUT, CANCELED"},
    {"limit", 'n', "N", "at most N tasks, 1 to 200 (50)"},
    {"after", 0, "CURSOR", "the page after this cursor (`next` of the page before)"},
    {"all", 'a', NULL, "every page"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

const struct cli_option cli_page_options[] = {
    {"limit", 'n', "N", "at most N of them, 1 to 200 (50)"},
    {"after", 0, "CURSOR", "the page after this cursor (`next` of the page before)"},
    {"all", 'a', NULL, "every page"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

bool cli_query_word(const char *text)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_,.-";

    return text[strspn(text, plain)] == '\0';
}

/* One page's path. false: a cursor or a status that would not be one word of a query. */
static bool list_path(const char *base, const char *status, int64_t limit, const char *after,
                      char *path, size_t size)
{
    if ((status && !cli_query_word(status)) || (after && !cli_query_word(after)))
        return false;
    return snprintf(path, size, "%s%climit=%lld%s%s%s%s", base, strchr(base, '?') ? '&' : '?',
                    (long long)limit, status ? "&status=" : "", status ? status : "",
                    after ? "&after=" : "", after ? after : "") < (int)size;
}

static void put_row(const struct rl_json *task)
{
    size_t columns = cli_columns(STDOUT_FILENO);
    char created[32], safe[2048], size[32];
    const char *id = cli_member(task, "task_id");
    const struct rl_json *params = rl_json_get(task, "params");
    const struct rl_json *source = rl_json_get(task, "width") ? task : params;
    const char *text = cli_member(task, "label");
    double progress = cli_member_real(task, "progress", -1);

    cli_local_time(cli_member(task, "created_at"), created);
    (void)snprintf(size, sizeof(size), "%lldx%lld", (long long)cli_member_int(source, "width", 0),
                   (long long)cli_member_int(source, "height", 0)); /* fits */
    (void)cli_safe(id ? id : "-", 20, false, safe, sizeof(safe));   /* columns: by printf */
    printf("%-19s  ", safe);
    (void)cli_safe(cli_member(task, "status") ? cli_member(task, "status") : "-", 10, false, safe,
                   sizeof(safe));
    printf("%-10s  ", safe);
    if (progress >= 0)
        printf("%3d%%", (int)progress);
    else
        printf("   -");
    printf("  %s  %-9s  ", created, size);
    if (!text || !*text)
        text = cli_member(task, "prompt");
    (void)cli_safe(text ? text : "-", columns > 80 ? columns - 72 : 12, cli_utf8(), safe,
                   sizeof(safe));
    printf("%s\n", safe);
}

/* A task of the dead letter: what went wrong, and how often it was tried. */
static void put_dead_row(const struct rl_json *task)
{
    size_t columns = cli_columns(STDOUT_FILENO);
    char finished[32], safe[2048];
    const char *reason = cli_member(task, "error_msg");

    cli_local_time(cli_member(task, "finished_at"), finished);
    cli_put_cell(cli_member(task, "task_id"), 19);
    cli_put_cell(cli_member(task, "status"), 7);
    cli_put_cell(finished, 19);
    printf("%3lld  ", (long long)cli_member_int(task, "attempt", 0));
    cli_put_cell(cli_member(task, "error_code"), 18);
    (void)cli_safe(reason ? reason : "-", columns > 92 ? columns - 78 : 14, cli_utf8(), safe,
                   sizeof(safe));
    printf("%s\n", safe);
}

int cli_list_page(const struct cli_client *client, const char *base, const char *status_filter,
                  int64_t *limit, const char *after, struct cli_reply *ret_reply)
{
    char path[512];

    for (;;) {
        if (!list_path(base, status_filter, *limit, after, path, sizeof(path))) {
            fputs("reeld: --status and --after are single words\n", stderr);
            return CLI_USAGE;
        }
        int status = cli_call(client, &(struct cli_request){.path = path}, ret_reply);
        if (status != CLI_OK)
            return status;
        if (ret_reply->json && rl_json_get(ret_reply->json, "data"))
            return CLI_OK;
        if (*limit <= 1)
            return cli_not_understood();
        *limit /= 2;
        cli_reply_free(ret_reply);
    }
}

int cli_list_whole(const struct cli_args *args, const char *path, const char *header,
                   const char *none, void (*put)(const struct rl_json *row))
{
    AUTO_REPLY struct cli_reply reply = {0};

    int status = cli_ask(args, &(struct cli_request){.path = path}, &reply);
    if (status != CLI_OK)
        return status;
    if (cli_wants_json(args) || !reply.json) { /* also a list that is too long to be read here */
        cli_put_json(reply.http.body, reply.http.body_len);
        return CLI_OK;
    }
    const struct rl_json *data = rl_json_get(reply.json, "data");
    if (!data)
        return cli_not_understood();
    if (!rl_json_child(data))
        puts(none);
    else if (header)
        puts(header);
    for (const struct rl_json *row = rl_json_child(data); row; row = rl_json_next(row))
        put(row);
    return CLI_OK;
}

/* Rows to the terminal, or the elements of one JSON array, page by page. */
static int list_pages(const struct cli_client *client, const struct cli_list_kind *kind,
                      const char *status_filter, const char *after, int64_t left, bool json)
{
    char cursor[256] = "";
    int64_t limit = CLI_PAGE;
    bool first = true;

    if (after && !rl_copy_str(cursor, sizeof(cursor), after))
        return CLI_USAGE;
    while (left > 0) {
        AUTO_REPLY struct cli_reply reply = {0};
        int64_t ask = limit < left ? limit : left;
        int status =
            cli_list_page(client, kind->base, status_filter, &ask, *cursor ? cursor : NULL, &reply);
        if (status != CLI_OK)
            return status;
        if (ask < limit && ask < left)
            limit = ask;
        const struct rl_json *data = rl_json_get(reply.json, "data");
        for (const struct rl_json *t = rl_json_child(data); t; t = rl_json_next(t), left--) {
            if (!json) {
                if (first)
                    puts(kind->header);
                kind->put_row(t);
            } else {
                AUTO_BUF struct rl_buf text = {0};
                rl_buf_init(&text, (size_t)16 << 20);
                rl_json_canonical(t, &text);
                printf("%s", first ? "" : ",");
                fwrite(text.data, 1, text.len, stdout);
            }
            first = false;
        }
        const char *next = cli_member(reply.json, "next");
        if (!next || !rl_copy_str(cursor, sizeof(cursor), next))
            break;
    }
    if (!json && first)
        puts(kind->none);
    return CLI_OK;
}

int cli_list_run(const struct cli_call *call, const struct cli_list_kind *kind)
{
    const struct cli_args *args = call->args;
    AUTO_CLIENT struct cli_client client = {0};
    const char *filter = cli_args_text(args, "status"), *after = cli_args_text(args, "after");
    bool all = cli_args_has(args, "all"), json = cli_wants_json(args);
    struct rl_err err;
    int64_t limit;
    char path[512];

    if (cli_args_int(args, "limit", 1, 200, 50, &limit, &err))
        return cli_usage_error(call->command->name, &err);
    int status = cli_client_open(args, &client);
    if (status != CLI_OK)
        return status;
    if (json && !all) { /* one page, as the server wrote it */
        AUTO_REPLY struct cli_reply reply = {0};
        if (!list_path(kind->base, filter, limit, after, path, sizeof(path))) {
            (void)rl_fail(&err, RL_BAD_REQUEST, "--status and --after are single words");
            return cli_usage_error(call->command->name, &err);
        }
        status = cli_call(&client, &(struct cli_request){.path = path}, &reply);
        if (status == CLI_OK)
            cli_put_json(reply.http.body, reply.http.body_len);
        return status;
    }
    if (json)
        printf("{\"data\":[");
    status = list_pages(&client, kind, filter, after, all ? INT64_MAX : limit, json);
    if (json && status == CLI_OK)
        puts("],\"next\":null}");
    return status;
}

static int run_list(const struct cli_call *call)
{
    static const struct cli_list_kind kind = {
        .base = API_TASKS,
        .header = "TASK_ID              STATUS      DONE  CREATED              SIZE       LABEL OR "
                  "PROMPT",
        .none = "no tasks",
        .put_row = put_row};

    return cli_list_run(call, &kind);
}

static int run_dead_list(const struct cli_call *call)
{
    static const struct cli_list_kind kind = {
        .base = API_DEAD_LETTERS,
        .header =
            "TASK_ID              STATUS   ENDED                RUN  ERROR               REASON",
        .none = "the dead letter is empty",
        .put_row = put_dead_row};

    return cli_list_run(call, &kind);
}

const struct cli_command cli_list = {
    .name = "list",
    .synopsis = "",
    .summary = "list tasks, newest first",
    .options = list_options,
    .client = true,
    .run = run_list,
};
const struct cli_command cli_dead_list = {
    .name = "dead-letter list",
    .synopsis = "",
    .summary = "list the tasks that FAILED or ran into a TIMEOUT",
    .options = cli_page_options,
    .client = true,
    .run = run_dead_list,
};
