/* The commands about the server itself: keys, sign-in link, callback secret, engines, backup. */
#include "cli/api.h"
#include "cli/commands.h"
#include "cli/download.h"
#include "cli/list.h"
#include "cli/send.h"
#include "cli/submit.h"
#include "cli/term.h"

#include <string.h>
#include <unistd.h>

/* One member of the answer, alone on a line: what a script wants. */
static int put_member(const struct cli_reply *reply, const char *name)
{
    const char *text = cli_member(reply->json, name);

    if (!text)
        return cli_not_understood();
    cli_put(stdout, text);
    putchar('\n');
    return CLI_OK;
}

/* ---- keys ---- */

static const struct cli_option key_add_options[] = {
    {"user", 'u', "NAME", "whose key: 1 to 63 of A-Z a-z 0-9 . _ @ -"},
    {"label", 'l', "TEXT", "what the key is for"},
    {"owner", 0, NULL, "an owner sees and steers everybody's tasks and makes keys"},
    {0},
};

static enum rl_rc write_key(const struct cli_args *args, struct rl_jw *w, struct rl_err *err)
{
    enum rl_rc rc = RL_OK;

    if (!cli_args_text(args, "user"))
        rc = rl_fail(err, RL_BAD_REQUEST, "--user NAME is missing");
    if (rc == RL_OK)
        rc = cli_write_text(args, "user", w, "user", err);
    if (rc == RL_OK)
        rc = cli_write_text(args, "label", w, "label", err);
    if (cli_args_has(args, "owner"))
        rl_jw_str(w, "role", "owner");
    return rc;
}

static int run_key_add(const struct cli_call *call)
{
    AUTO_REPLY struct cli_reply reply = {0};
    int status = cli_send(call, "POST", API_KEYS, write_key, &reply);

    return status == CLI_OK ? put_member(&reply, "key") : status;
}

static void put_key(const struct rl_json *key)
{
    static const struct {
        const char *name;
        size_t columns;
    } cells[] = {{"user_id", 24}, {"role", 6}, {"hint", 12}};
    char created[32], safe[256];

    const char *id = cli_member(key, "key_id");
    if (id)
        printf("%-8.20s", id);
    else
        printf("%-8lld", (long long)cli_member_int(key, "key_id", 0));
    for (size_t i = 0; i < RL_ARRAY_LEN(cells); i++) {
        const char *text = cli_member(key, cells[i].name);
        (void)cli_safe(text ? text : "-", cells[i].columns, false, safe,
                       sizeof(safe)); /* printf pads */
        printf("  %-*s", (int)cells[i].columns, safe);
    }
    cli_local_time(cli_member(key, "created_at"), created);
    printf("  %-19s  %-7s  ", created, cli_member(key, "revoked_at") ? "revoked" : "active");
    cli_put(stdout, cli_member(key, "label"));
    putchar('\n');
}

static int run_key_list(const struct cli_call *call)
{
    return cli_list_whole(call->args, API_KEYS,
                          "KEY_ID    USER                      ROLE    KEY           "
                          "CREATED              STATE    LABEL",
                          "no keys", put_key);
}

static int run_key_revoke(const struct cli_call *call)
{
    char path[128];

    if (!cli_id_path("key", API_KEYS, call->args->words[0], "", path, sizeof(path)))
        return CLI_USAGE;
    return cli_steer(call, "DELETE", path, "key", "is revoked");
}

/* ---- link, secret, engines ---- */

static int run_link(const struct cli_call *call)
{
    AUTO_REPLY struct cli_reply reply = {0};

    int status = cli_send(call, "POST", API_SESSION_LINK, NULL, &reply);
    return status == CLI_OK ? put_member(&reply, "url") : status;
}

static int run_secret(const struct cli_call *call)
{
    AUTO_REPLY struct cli_reply reply = {0};

    int status = cli_ask(call->args, &(struct cli_request){.path = API_SECRET}, &reply);
    return status == CLI_OK ? put_member(&reply, "secret") : status;
}

static void put_named(const struct rl_json *object, const char *indent)
{
    printf("%s", indent);
    cli_put(stdout, cli_member(object, "name"));
    const char *doc = cli_member(object, "doc");
    if (doc && *doc) {
        printf(": ");
        cli_put(stdout, doc);
    }
    if (rl_json_is_true(rl_json_get(object, "default")))
        printf(" (default)");
    putchar('\n');
}

static void put_engine(const struct rl_json *engine)
{
    static const char *const lists[] = {"models", "options"};

    put_named(engine, "");
    for (size_t i = 0; i < RL_ARRAY_LEN(lists); i++) {
        const struct rl_json *list = rl_json_get(engine, lists[i]);
        const struct rl_json *item = list ? rl_json_child(list) : NULL;
        if (item)
            printf("  %s\n", lists[i]);
        for (; item; item = rl_json_next(item))
            put_named(item, "    ");
    }
}

static int run_engines(const struct cli_call *call)
{
    return cli_list_whole(call->args, API_ENGINES, NULL, "no engines", put_engine);
}

/* ---- backup ---- */

static const struct cli_option backup_options[] = {
    {"force", 'f', NULL, "replace FILE when it exists"},
    {0},
};

static int run_backup(const struct cli_call *call)
{
    AUTO_CLIENT struct cli_client client = {0};
    struct cli_download download;
    const char *path = call->args->words[0];

    if (!cli_download_allowed(path))
        return CLI_USAGE;
    if (access(path, F_OK) == 0 && !cli_args_has(call->args, "force")) {
        fprintf(stderr, "reeld: '%s' exists; --force replaces it\n", path);
        return CLI_USAGE;
    }
    int status = cli_client_open(call->args, &client);
    if (status == CLI_OK)
        status = cli_download_open(&download, path, false, 0600);
    if (status != CLI_OK)
        return status;
    status = cli_download_fetch(&download, &client, API_BACKUP);
    if (status == CLI_OK)
        status = cli_download_commit(&download, path);
    else
        (void)unlink(download.part); /* half a database is worth nothing */
    cli_download_close(&download);
    return status;
}

/* ---- the table's entries ---- */

const struct cli_command cli_key_add = {
    .name = "key add",
    .synopsis = "--user NAME",
    .summary = "make an API key and print it, once",
    .options = key_add_options,
    .client = true,
    .run = run_key_add,
};
const struct cli_command cli_key_list = {
    .name = "key list",
    .synopsis = "",
    .summary = "list the keys (never the keys themselves)",
    .options = cli_json_option,
    .client = true,
    .run = run_key_list,
};
const struct cli_command cli_key_revoke = {
    .name = "key revoke",
    .synopsis = "KEY_ID",
    .summary = "make a key void at once",
    .client = true,
    .min_words = 1,
    .max_words = 1,
    .run = run_key_revoke,
};
const struct cli_command cli_link = {
    .name = "link",
    .synopsis = "",
    .summary = "print a link that signs a browser in",
    .client = true,
    .run = run_link,
};
const struct cli_command cli_secret = {
    .name = "secret",
    .synopsis = "",
    .summary = "print the secret that signs your callbacks",
    .client = true,
    .run = run_secret,
};
const struct cli_command cli_engines = {
    .name = "engines",
    .synopsis = "",
    .summary = "list the engines with their models and options",
    .options = cli_json_option,
    .client = true,
    .run = run_engines,
};
const struct cli_command cli_backup = {
    .name = "backup",
    .synopsis = "FILE",
    .summary = "save a consistent copy of the database to a file here",
    .details = "FILE is readable by its owner only: it holds prompts and secrets.\n",
    .options = backup_options,
    .client = true,
    .min_words = 1,
    .max_words = 1,
    .run = run_backup,
};
