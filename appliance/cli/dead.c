/* The way out of the dead letter: replay and discard. One thread; no state. */
#include "base/buf.h"
#include "cli/api.h"
#include "cli/commands.h"
#include "cli/list.h"
#include "cli/send.h"
#include "cli/term.h"

#include <string.h>

#define AT_ONCE    200 /* ids that the server takes in one request */
#define LIST_BYTES ((size_t)64 << 20)

/* ---- replay ---- */

static const struct cli_option replay_options[] = {
    {"all", 'a', NULL, "every task of the dead letter"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

/* What became of the ids so far. */
struct replay {
    const struct cli_client *client;
    bool json;
    size_t replayed, refused;
    struct rl_buf replayed_json, refused_json; /* owned: elements of the two arrays */
};

static void add_element(struct rl_buf *list, const struct rl_json *element)
{
    if (list->len > 0)
        rl_buf_str(list, ",");
    rl_json_canonical(element, list);
}

static int take_answer(struct replay *replay, const struct rl_json *answer)
{
    const struct rl_json *replayed = rl_json_get(answer, "replayed"),
                         *refused = rl_json_get(answer, "refused");

    if (!replayed || !refused)
        return cli_not_understood();
    for (const struct rl_json *v = rl_json_child(replayed); v; v = rl_json_next(v)) {
        replay->replayed++;
        add_element(&replay->replayed_json, v);
    }
    for (const struct rl_json *v = rl_json_child(refused); v; v = rl_json_next(v)) {
        replay->refused++;
        add_element(&replay->refused_json, v);
        if (replay->json)
            continue;
        fputs("reeld: task ", stderr);
        cli_put(stderr, cli_member(v, "task_id"));
        fputs(" is refused: ", stderr);
        cli_put(stderr, cli_member(v, "code"));
        fputc('\n', stderr);
    }
    return CLI_OK;
}

/* One request for ids[0..count). */
static int replay_some(struct replay *replay, const char *const *ids, size_t count)
{
    AUTO_BUF struct rl_buf body = {0};
    AUTO_REPLY struct cli_reply reply = {0};
    struct rl_jw w;
    struct rl_err err;

    rl_buf_init(&body, 65536);
    rl_jw_init(&w, &body, false);
    rl_jw_object(&w, NULL);
    rl_jw_array(&w, "task_ids");
    for (size_t i = 0; i < count; i++)
        rl_jw_str(&w, NULL, ids[i]);
    rl_jw_end_array(&w);
    rl_jw_end_object(&w);
    if (rl_buf_ok(&body, &err))
        return cli_complain(CLI_FAILED, &err);
    int status =
        cli_call(replay->client,
                 &(struct cli_request){
                     .method = "POST", .path = API_DEAD_LETTERS "/replay", .body = body.data},
                 &reply);
    return status == CLI_OK ? take_answer(replay, reply.json) : status;
}

/* Every page of the list once, from the newest task to the oldest: what fails again meanwhile, or
 * is refused, is not met a second time. */
static int replay_pages(struct replay *replay)
{
    char cursor[64] = "";
    int64_t limit = CLI_PAGE;

    for (;;) {
        AUTO_REPLY struct cli_reply page = {0};
        const char *ids[CLI_PAGE];
        size_t count = 0;
        int status = cli_list_page(replay->client, API_DEAD_LETTERS, NULL, &limit,
                                   *cursor ? cursor : NULL, &page);
        const struct rl_json *data = status == CLI_OK ? rl_json_get(page.json, "data") : NULL;
        for (const struct rl_json *t = data ? rl_json_child(data) : NULL; t && count < CLI_PAGE;
             t = rl_json_next(t)) {
            const char *id = cli_member(t, "task_id");
            if (id)
                ids[count++] = id;
        }
        if (status == CLI_OK && count > 0)
            status = replay_some(replay, ids, count);
        const char *next = cli_member(page.json, "next");
        if (status != CLI_OK || count == 0 || !next)
            return status;
        if (!rl_copy_str(cursor, sizeof(cursor), next))
            return cli_not_understood();
    }
}

static int replay_words(struct replay *replay, const struct cli_args *args)
{
    for (size_t i = 0; i < args->word_count; i += AT_ONCE) {
        size_t left = args->word_count - i;
        int status = replay_some(replay, args->words + i, left < AT_ONCE ? left : AT_ONCE);
        if (status != CLI_OK)
            return status;
    }
    return CLI_OK;
}

static bool put_replayed(const struct cli_call *call, const struct rl_json *task)
{
    printf("task %s is in the queue again, round %lld\n", call->args->words[0],
           (long long)cli_member_int(task, "round", 0));
    return true;
}

static int replay_one(const struct cli_call *call)
{
    char path[128];

    if (!cli_id_path("task", API_DEAD_LETTERS, call->args->words[0], "/replay", path, sizeof(path)))
        return CLI_USAGE;
    return cli_tell(call, "POST", path, NULL, put_replayed);
}

static int replay_many(const struct cli_args *args, bool all)
{
    AUTO_CLIENT struct cli_client client = {0};
    struct replay replay = {.client = &client, .json = cli_wants_json(args)};
    struct rl_err err;

    int status = cli_client_open(args, &client);
    if (status != CLI_OK)
        return status;
    rl_buf_init(&replay.replayed_json, LIST_BYTES);
    rl_buf_init(&replay.refused_json, LIST_BYTES);
    status = all ? replay_pages(&replay) : replay_words(&replay, args);
    /* also after a failure: what was replayed stays so */
    if (!replay.json)
        printf("replayed: %zu, refused: %zu\n", replay.replayed, replay.refused);
    else if (rl_buf_ok(&replay.replayed_json, &err) || rl_buf_ok(&replay.refused_json, &err))
        status = cli_complain(CLI_FAILED, &err);
    else
        printf("{\"replayed\":[%s],\"refused\":[%s]}\n",
               replay.replayed_json.len ? replay.replayed_json.data : "",
               replay.refused_json.len ? replay.refused_json.data : "");
    rl_buf_free(&replay.replayed_json);
    rl_buf_free(&replay.refused_json);
    return status == CLI_OK && replay.refused > 0 ? CLI_REFUSED : status;
}

static int run_replay(const struct cli_call *call)
{
    const struct cli_args *args = call->args;
    bool all = cli_args_has(args, "all");
    struct rl_err err;
    char path[64];

    if (all == (args->word_count > 0)) {
        (void)rl_fail(&err, RL_BAD_REQUEST, "name the tasks, or all of them by --all");
        return cli_usage_error(call->command->name, &err);
    }
    for (size_t i = 0; i < args->word_count; i++)
        if (!cli_task_path(args->words[i], "", path, sizeof(path)))
            return CLI_USAGE;
    return args->word_count == 1 ? replay_one(call) : replay_many(args, all);
}

/* ---- discard ---- */

static int run_discard(const struct cli_call *call)
{
    char path[128];

    if (!cli_id_path("task", API_DEAD_LETTERS, call->args->words[0], "", path, sizeof(path)))
        return CLI_USAGE;
    return cli_steer(call, "DELETE", path, "task", "left the dead letter");
}

/* ---- the table's entries ---- */

const struct cli_command cli_dead_replay = {
    .name = "dead-letter replay",
    .synopsis = "ID... | --all",
    .summary = "run tasks of the dead letter again, as their next round",
    .details =
        "What was replayed stays so when another one is refused; the exit status is then 3.\n",
    .options = replay_options,
    .client = true,
    .max_words = SIZE_MAX,
    .run = run_replay,
};
const struct cli_command cli_dead_discard = {
    .name = "dead-letter discard",
    .synopsis = "ID",
    .summary = "take a task off the dead letter; the task itself stays",
    .client = true,
    .min_words = 1,
    .max_words = 1,
    .run = run_discard,
};
