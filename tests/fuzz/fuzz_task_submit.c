/* The body of a submit, of any bytes: refused by name, or a task that any reader of JSON can read,
 * with every number inside its limits. Nothing of it touches the database. */
// link: rl_task -lpthread
#include "fuzz.h"

#include "task/internal.h"

#include "base/buf.h"
#include "base/crypto.h"
#include "base/json.h"
#include "config/config.h"
#include "engine/engine.h"
#include "net/policy.h"

static struct tasks tasks;

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct config *cfg = config_new();
    struct engines *engines = NULL;
    struct rl_err err = {0};

    (void)argc;
    (void)argv;
    require(rl_crypto_init(&err) == RL_OK);
    require(cfg && config_set(cfg, "engine.plugin_dir", "", &err) == RL_OK);
    require(config_set(cfg, "state_dir", "/nonexistent", &err) == RL_OK);
    require(config_set(cfg, "testpattern.faults", "on", &err) == RL_OK);
    require(engines_open(cfg, &engines, &err) == RL_OK);
    tasks.cfg = cfg;
    tasks.engines = engines;
    require(net_policy_new("callback.allow", "", NET_PUBLIC_ANY, NULL, &tasks.policy, &err) ==
            RL_OK);
    return 0;
}

static void check_task(const struct submit *submit)
{
    const struct task *task = submit->task;
    AUTO_BUF struct rl_buf out = {0};
    AUTO_JSON struct rl_json *root = NULL;
    struct rl_jw w;

    /* what no engine of this machine makes passes with a key: it may be a repeat of what was made
     */
    if (submit->refusal.code != RL_OK)
        require(task->idempotency_key && *submit->refusal.reason);
    else
        require(task->width >= 1 && task->height >= 1 && task->frames >= 1 && task->fps >= 1);
    require(task->seed >= 0 && task->seed <= RL_JSON_MAX_INT);
    require(task->priority == 1 || task->priority == 5 || task->priority == 10);
    require(strlen(task->prompt) >= 1 && rl_utf8_valid(task->prompt, strlen(task->prompt)));
    require(!task->callback_secret || task->callback_url);
    require(submit->derive ==
            (task->idempotency_kind && strcmp(task->idempotency_kind, "derived") == 0));
    rl_buf_init(&out, 1 << 22);
    rl_jw_init(&w, &out, true);
    rl_jw_array(&w, NULL);
    if (task->options)
        rl_jw_raw(&w, NULL, task->options);
    if (task->metadata)
        rl_jw_raw(&w, NULL, task->metadata);
    rl_jw_end_array(&w);
    require(rl_buf_ok(&out, NULL) == RL_OK);
    require(rl_json_parse(out.data, out.len, &root, NULL) == RL_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct caller owner = {.user_id = "owner", .key_id = 1, .owner = true};
    struct submit submit = {0}, again = {0};
    struct rl_err err = {0};
    const char *body = (const char *)data;
    enum rl_rc rc = submit_parse(&tasks, &owner, body, size, NULL, &submit, &err);

    if (rc) {
        require(rc == RL_MALFORMED_JSON || rc == RL_INVALID_FIELD);
        require(*err.reason);
        return 0;
    }
    check_task(&submit);
    require(submit_parse(&tasks, &owner, body, size, NULL, &again, &err) == RL_OK);
    require(strcmp(submit.task->request_hash, again.task->request_hash) == 0);
    require(strcmp(submit.task->params_hash, again.task->params_hash) == 0);
    submit_clear(&submit);
    submit_clear(&again);
    return 0;
}
