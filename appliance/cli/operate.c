/* The commands for whoever runs the machine: queues, workers, statistics, repair. People get
 * tables, pipes get the server's JSON. One thread; no state. */
#include "base/buf.h"
#include "cli/api.h"
#include "cli/commands.h"
#include "cli/list.h"
#include "cli/send.h"
#include "cli/term.h"

#include <string.h>

#define SCAN_MS      600000 /* a repair may look at a million rows */
#define BATCH_MOST   500    /* what a parsed answer can hold */
#define REPAIR_NEXT  64     /* room for the place of the next batch */
#define REPAIR_TURNS 5      /* passes, in case that what was repaired is stuck again at once */
#define FAILED_BYTES (256u << 10) /* of ids; some 10,000 */

/* ---- queues ---- */

static void put_queue(const struct rl_json *queue)
{
    char oldest[32];
    int64_t depth = cli_member_int(queue, "depth", -1);

    cli_put_cell(cli_member(queue, "queue_name"), 24);
    cli_put_cell(cli_member(queue, "state"), 8);
    if (depth >= 0)
        printf("%7lld  ", (long long)depth);
    else
        printf("%7s  ", "> 1e5"); /* the server does not count further */
    cli_local_time(cli_member(queue, "oldest_at"), oldest);
    puts(oldest);
}

static int run_queue_list(const struct cli_call *call)
{
    return cli_list_whole(call->args, API_QUEUES,
                          "QUEUE                     STATE       DEPTH  OLDEST", "no queues",
                          put_queue);
}

static int steer_queue(const struct cli_call *call, const char *verb, const char *now)
{
    const char *name = call->args->words[0];
    char path[160];
    struct rl_err err;

    if (!*name || strlen(name) > 64 || !cli_query_word(name) || strchr(name, ',')) {
        (void)rl_fail(&err, RL_BAD_REQUEST, "'%.70s' is no queue name", name);
        return cli_usage_error(call->command->name, &err);
    }
    (void)snprintf(path, sizeof(path), API_QUEUES "/%s/%s", name, verb); /* measured above */
    return cli_steer(call, "POST", path, "queue", now);
}

static int run_queue_pause(const struct cli_call *call)
{
    return steer_queue(call, "pause", "is paused");
}

static int run_queue_resume(const struct cli_call *call)
{
    return steer_queue(call, "resume", "runs");
}

static int run_queue_drain(const struct cli_call *call)
{
    return steer_queue(call, "drain", "takes no new tasks and works off the others");
}

/* ---- workers and statistics ---- */

static void put_worker(const struct rl_json *worker)
{
    char text[64];
    const char *task = cli_member(worker, "task_id");

    cli_put_cell(cli_member(worker, "worker_id"), 8);
    cli_put_cell(rl_json_is_true(rl_json_get(worker, "alive")) ? "yes" : "no", 5);
    cli_put_cell(task ? task : "idle", 19);
    cli_put_cell(cli_member(worker, "phase"), 11);
    if (task)
        (void)snprintf(text, sizeof(text), "%lld/%lld",
                       (long long)cli_member_int(worker, "step", 0),
                       (long long)cli_member_int(worker, "total_steps", 0)); /* fits */
    cli_put_cell(task ? text : NULL, 9);
    cli_duration_text((int64_t)cli_member_real(worker, "running_seconds", 0), text);
    cli_put_cell(task ? text : NULL, 8);
    cli_local_time(cli_member(worker, "heartbeat_at"), text);
    cli_put_cell(text, 19);
    cli_put(stdout, cli_member(worker, "device"));
    putchar('\n');
}

static int run_workers(const struct cli_call *call)
{
    return cli_list_whole(call->args, API_WORKERS,
                          "WORKER    ALIVE  TASK_ID              PHASE        STEP       RUNNING   "
                          "HEARTBEAT            DEVICE",
                          "no workers", put_worker);
}

/* "0.042", "12.3", "1:02:03" seconds. */
static void put_ms(const struct rl_json *row, const char *name)
{
    char text[32];
    double ms = cli_member_real(row, name, -1);

    if (ms >= 60000)
        cli_duration_text((int64_t)(ms / 1000), text);
    else
        (void)snprintf(text, sizeof(text), ms < 1000 ? "%.3f" : "%.1f", ms / 1000); /* fits */
    printf("%9s  ", ms < 0 ? "-" : text);
}

static void put_stay(const struct rl_json *row)
{
    cli_put_cell(cli_member(row, "day"), 10); /* the date of a time */
    cli_put_cell(cli_member(row, "engine"), 14);
    cli_put_cell(cli_member(row, "status"), 10);
    printf("%8lld  ", (long long)cli_member_int(row, "count", 0));
    put_ms(row, "p50_ms");
    put_ms(row, "p90_ms");
    put_ms(row, "p99_ms");
    put_ms(row, "max_ms");
    putchar('\n');
}

static int run_stats(const struct cli_call *call)
{
    return cli_list_whole(
        call->args, API_STATS,
        "DAY (UTC)   ENGINE          STATE          COUNT      p50 s      p90 s      "
        "p99 s      max s",
        "no history", put_stay);
}

/* ---- repair ---- */

static const struct cli_option repair_options[] = {
    {"dry-run", 0, NULL, "only list what is stuck and why (the default)"},
    {"apply", 0, NULL, "act, batch by batch, until nothing is stuck"},
    {"batch", 'b', "N", "tasks per batch, 1 to 500 (50)"},
    {"status", 's', "A,B", "only tasks in these states: CREATED, QUEUED, PROCESSING"},
    {"json", 0, NULL, "JSON also on a terminal, one object per batch"},
    {0},
};

static void put_stuck(const struct rl_json *answer, bool dry_run)
{
    const struct rl_json *stuck = rl_json_get(answer, "stuck"),
                         *counts = rl_json_get(answer, "status_counts");
    int64_t files = cli_member_int(answer, "orphan_files", 0), listed = 0;

    for (const struct rl_json *t = rl_json_child(stuck); t; t = rl_json_next(t), listed++) {
        cli_put_cell(cli_member(t, "task_id"), 19);
        cli_put_cell(cli_member(t, "status"), 10);
        cli_put_cell(cli_member(t, "action"), 8);
        cli_put(stdout, cli_member(t, "reason"));
        const char *error = cli_member(t, "error");
        if (error && *error) {
            fputs(", but: ", stdout);
            cli_put(stdout, error);
        }
        putchar('\n');
    }
    if (files > 0)
        printf("files that belong to no task: %lld%s\n", (long long)files,
               dry_run ? "" : ", removed");
    if (dry_run)
        printf("stuck: %lld;", (long long)listed);
    else
        printf("acted on: %lld;", (long long)cli_member_int(answer, "acted", 0));
    for (const struct rl_json *c = counts ? rl_json_child(counts) : NULL; c; c = rl_json_next(c)) {
        putchar(' ');
        cli_put(stdout, rl_json_name(c));
        printf(" %.0f", rl_json_number(c));
    }
    putchar('\n');
    fflush(stdout);
}

/* One way through all that is stuck. */
struct pass {
    int64_t acted;
    struct rl_buf failed;   /* the ids of those that could not be repaired */
    char next[REPAIR_NEXT]; /* where the next batch begins; "" = there is none */
};

static int repair_batch(const struct cli_client *client, const char *path, bool dry_run, bool json,
                        struct pass *pass)
{
    AUTO_REPLY struct cli_reply reply = {0};
    struct cli_request request = {
        .method = "POST", .path = path, .body = "{}", .timeout_ms = SCAN_MS};

    int status = cli_call(client, &request, &reply);
    if (status != CLI_OK)
        return status;
    const struct rl_json *stuck = rl_json_get(reply.json, "stuck");
    const char *next = cli_member(reply.json, "next");
    if (!stuck || !rl_copy_str(pass->next, sizeof(pass->next), next ? next : "") ||
        !cli_query_word(pass->next))
        return cli_not_understood();
    if (json)
        cli_put_json(reply.http.body, reply.http.body_len);
    else
        put_stuck(reply.json, dry_run);
    pass->acted += cli_member_int(reply.json, "acted", 0);
    for (const struct rl_json *t = rl_json_child(stuck); t; t = rl_json_next(t))
        if (cli_member(t, "error") && cli_member(t, "task_id"))
            rl_buf_fmt(&pass->failed, " %s", cli_member(t, "task_id"));
    return CLI_OK;
}

static int repair_pass(const struct cli_client *client, const char *path, bool dry_run, bool json,
                       struct pass *pass)
{
    char place[264 + REPAIR_NEXT];
    int status;

    do {
        (void)snprintf(place, sizeof(place), "%s%s%s", path, *pass->next ? "&after=" : "",
                       pass->next); /* fits */
        status = repair_batch(client, place, dry_run, json, pass);
    } while (status == CLI_OK && *pass->next);
    return status;
}

/* Until a pass has nothing to act on: one repair can free the way for another. */
static int repair(const struct cli_client *client, const char *path, bool dry_run, bool json)
{
    for (int turn = 0; turn < REPAIR_TURNS; turn++) {
        struct pass pass = {0};
        rl_buf_init(&pass.failed, FAILED_BYTES);
        int status = repair_pass(client, path, dry_run, json, &pass);
        bool over = status != CLI_OK || dry_run || pass.acted == 0;
        if (over && status == CLI_OK && pass.failed.len > 0) {
            fputs("reeld: not repaired:", stderr);
            cli_put(stderr, pass.failed.data);
            fputs("; see `reeld get ID --explain` and the server's log\n", stderr);
            status = CLI_FAILED;
        }
        rl_buf_free(&pass.failed);
        if (over)
            return status;
    }
    fputs("reeld: tasks are stuck again at once; see `reeld get ID --explain`\n", stderr);
    return CLI_FAILED;
}

static int run_repair(const struct cli_call *call)
{
    const struct cli_args *args = call->args;
    AUTO_CLIENT struct cli_client client = {0};
    const char *filter = cli_args_text(args, "status");
    bool apply = cli_args_has(args, "apply");
    struct rl_err err;
    int64_t batch;
    char path[256];

    enum rl_rc rc = cli_args_int(args, "batch", 1, BATCH_MOST, 50, &batch, &err);
    if (rc == RL_OK && apply && cli_args_has(args, "dry-run"))
        rc = rl_fail(&err, RL_BAD_REQUEST, "--apply acts, --dry-run does not: choose one");
    if (rc == RL_OK && filter && (!cli_query_word(filter) || strlen(filter) > 100))
        rc = rl_fail(&err, RL_BAD_REQUEST, "--status is a single word");
    if (rc != RL_OK)
        return cli_usage_error("repair", &err);
    int status = cli_client_open(args, &client);
    if (status != CLI_OK)
        return status;
    (void)snprintf(path, sizeof(path), API_REPAIR "?dry_run=%s&batch=%lld%s%s",
                   apply ? "false" : "true", (long long)batch, filter ? "&status=" : "",
                   filter ? filter : ""); /* measured above */
    return repair(&client, path, !apply, cli_wants_json(args));
}

/* ---- the table's entries ---- */

#define QUEUE_COMMAND(text, run_fn, help)                                                          \
    {                                                                                              \
        .name = (text), .synopsis = "NAME", .summary = (help), .options = cli_json_option,         \
        .client = true, .min_words = 1, .max_words = 1, .run = (run_fn)                            \
    }
#define LIST_COMMAND(text, run_fn, help)                                                           \
    {                                                                                              \
        .name = (text), .synopsis = "", .summary = (help), .options = cli_json_option,             \
        .client = true, .run = (run_fn)                                                            \
    }

const struct cli_command cli_queue_list =
    LIST_COMMAND("queue list", run_queue_list, "list the queues with their state and depth");
const struct cli_command cli_queue_pause = QUEUE_COMMAND(
    "queue pause", run_queue_pause, "start nothing from a queue; running tasks go on");
const struct cli_command cli_queue_resume =
    QUEUE_COMMAND("queue resume", run_queue_resume, "let a paused or draining queue run");
const struct cli_command cli_queue_drain =
    QUEUE_COMMAND("queue drain", run_queue_drain, "take no new tasks into a queue");
const struct cli_command cli_workers =
    LIST_COMMAND("workers", run_workers, "list the workers: task, phase, heartbeat");
const struct cli_command cli_stats =
    LIST_COMMAND("stats", run_stats, "how long tasks stay in each state, per engine and day");
const struct cli_command cli_repair = {
    .name = "repair",
    .synopsis = "[--dry-run | --apply]",
    .summary = "list what is stuck and why, or put it right",
    .details = "The server does the same by itself every few seconds; this shows it, and\n"
               "acts on what a bug left behind. Tasks whose worker is alive are left alone.\n",
    .options = repair_options,
    .client = true,
    .run = run_repair,
};
