/* The submit body: every field checked by name, the engine's limits applied, hashes computed.
 * Nothing here touches the database. Any thread. */
#include "task/internal.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/webhook.h"
#include "config/config.h"
#include "engine/engine.h"
#include "net/net.h"
#include "net/policy.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define QUEUE_NAME_BYTES 64
#define LABEL_BYTES      200
#define TIMEOUT_MAX_S    31536000 /* a year */

static const char *const known_fields[] = {"prompt",          "negative_prompt",
                                           "engine",          "model",
                                           "width",           "height",
                                           "frames",          "fps",
                                           "steps",           "seed",
                                           "guidance_scale",  "flow_shift",
                                           "options",         "priority",
                                           "queue_name",      "run_at",
                                           "max_retries",     "queue_timeout_s",
                                           "run_timeout_s",   "idempotency_key",
                                           "idempotency",     "callback_url",
                                           "callback_secret", "callback_events",
                                           "metadata",        "label"};

static const char *const event_types[] = {"task.succeeded", "task.failed", "task.timeout"};

void submit_clear(struct submit *submit)
{
    task_free(submit->task);
    submit->task = NULL;
}

/* A member that is there and not null. */
static const struct rl_json *given(const struct rl_json *body, const char *name)
{
    const struct rl_json *v = rl_json_get(body, name);
    return v && rl_json_type(v) != RL_JSON_NULL ? v : NULL;
}

static enum rl_rc check_known(const struct rl_json *body, struct rl_err *err)
{
    if (rl_json_type(body) != RL_JSON_OBJECT)
        return rl_fail(err, RL_INVALID_FIELD, "the body must be a JSON object");
    for (const struct rl_json *v = rl_json_child(body); v; v = rl_json_next(v)) {
        bool known = false;
        for (size_t i = 0; i < RL_ARRAY_LEN(known_fields) && !known; i++)
            known = strcmp(rl_json_name(v), known_fields[i]) == 0;
        if (!known)
            return rl_fail_field(err, RL_INVALID_FIELD, rl_json_name(v), "unknown field");
    }
    return RL_OK;
}

static enum rl_rc copy_string(const struct rl_json *body, const char *name, size_t min, size_t max,
                              const char *fallback, char **field, struct rl_err *err)
{
    const struct rl_json *v = given(body, name);
    const char *text = fallback;
    if (v) {
        enum rl_rc rc = rl_json_string(v, name, min, max, &text, err);
        if (rc != RL_OK)
            return rc;
    }
    return task_set_text(field, text, err);
}

static enum rl_rc read_int(const struct rl_json *body, const char *name, int64_t min, int64_t max,
                           int64_t fallback, int64_t *ret_value, struct rl_err *err)
{
    const struct rl_json *v = given(body, name);
    *ret_value = fallback;
    return v ? rl_json_int(v, name, min, max, ret_value, err) : RL_OK;
}

static enum rl_rc read_real(const struct rl_json *body, const char *name, double *ret_value,
                            struct rl_err *err)
{
    const struct rl_json *v = given(body, name);
    *ret_value = NAN;
    return v ? rl_json_real(v, name, -1e9, 1e9, ret_value, err) : RL_OK;
}

static bool blank(const char *text)
{
    for (; *text; text++)
        if (!isspace((unsigned char)*text))
            return false;
    return true;
}

static bool visible_ascii(const char *text, size_t max)
{
    size_t len = strlen(text);
    if (len < 1 || len > max)
        return false;
    for (; *text; text++)
        if (*text < 0x21 || *text > 0x7e)
            return false;
    return true;
}

static enum rl_rc read_prompts(struct tasks *tasks, const struct rl_json *body, struct task *task,
                               struct rl_err *err)
{
    size_t limit = (size_t)config_int(tasks->cfg, CFG_PROMPT_BYTES);
    if (!given(body, "prompt"))
        return rl_fail_field(err, RL_INVALID_FIELD, "prompt", "is required");
    enum rl_rc rc = copy_string(body, "prompt", 1, limit, NULL, &task->prompt, err);
    if (rc == RL_OK && blank(task->prompt))
        return rl_fail_field(err, RL_INVALID_FIELD, "prompt", "is empty");
    if (rc == RL_OK)
        rc = copy_string(body, "negative_prompt", 0, limit, "", &task->negative_prompt, err);
    if (rc == RL_OK)
        rc = copy_string(body, "label", 0, LABEL_BYTES, NULL, &task->label, err);
    return rc;
}

static enum rl_rc read_seed(const struct rl_json *body, struct task *task, struct rl_err *err)
{
    const struct rl_json *v = given(body, "seed");
    task->seed_given = v != NULL;
    if (!v) {
        uint64_t bits;
        rl_random(&bits, sizeof bits);
        task->seed = (int64_t)(bits & (uint64_t)RL_JSON_MAX_INT);
        return RL_OK;
    }
    const char *text = rl_json_text(v);
    if (!text)
        return rl_json_int(v, "seed", 0, RL_JSON_MAX_INT, &task->seed, err);
    char *end = NULL;
    size_t len = strlen(text);
    long long value =
        len >= 1 && len <= 16 && isdigit((unsigned char)text[0]) ? strtoll(text, &end, 10) : -1;
    if (value < 0 || !end || *end || value > RL_JSON_MAX_INT)
        return rl_fail_field(err, RL_INVALID_FIELD, "seed", "must be 0 … 9007199254740991");
    task->seed = value;
    return RL_OK;
}

static enum rl_rc read_work(struct tasks *tasks, const struct rl_json *body, struct submit *submit,
                            struct rl_err *err)
{
    struct task *task = submit->task;
    struct engine_wish wish = {.engine = NULL};
    const struct rl_json *engine = given(body, "engine"), *model = given(body, "model");
    wish.options = given(body, "options");
    enum rl_rc rc = engine ? rl_json_string(engine, "engine", 1, 64, &wish.engine, err) : RL_OK;
    if (rc == RL_OK && model)
        rc = rl_json_string(model, "model", 1, 128, &wish.model, err);
    if (rc == RL_OK)
        rc = read_int(body, "width", 1, 65536, -1, &wish.width, err);
    if (rc == RL_OK)
        rc = read_int(body, "height", 1, 65536, -1, &wish.height, err);
    if (rc == RL_OK)
        rc = read_int(body, "frames", 1, 1000000, -1, &wish.frames, err);
    if (rc == RL_OK)
        rc = read_int(body, "fps", 1, 1000, -1, &wish.fps, err);
    if (rc == RL_OK)
        rc = read_int(body, "steps", 1, 100000, -1, &wish.steps, err);
    if (rc == RL_OK)
        rc = read_real(body, "guidance_scale", &wish.guidance_scale, err);
    if (rc == RL_OK)
        rc = read_real(body, "flow_shift", &wish.flow_shift, err);
    if (rc == RL_OK)
        rc = read_seed(body, task, err);
    if (rc != RL_OK)
        return rc;
    const struct engine *found;
    struct engine_request request = {.prompt = task->prompt};
    rc = engines_resolve(tasks->engines, &wish, &found, &request, &task->options, err);
    if (rc != RL_OK)
        return rc;
    struct rl_err why;
    if (engines_fit(tasks->engines, found, &request, &why) != RL_OK)
        return rl_fail_field(err, RL_INVALID_FIELD, "model", "%s", why.reason);
    task->width = request.width;
    task->height = request.height;
    task->frames = request.frames;
    task->fps = request.fps;
    task->steps = request.steps;
    task->guidance_scale = request.guidance_scale;
    task->flow_shift = request.flow_shift;
    submit->input_wait_ms = found->input_wait_ms ? found->input_wait_ms(&request) : 0;
    rc = task_set_text(&task->engine, found->name, err);
    return rc == RL_OK ? task_set_text(&task->model, request.model, err) : rc;
}

static enum rl_rc read_priority(const struct rl_json *body, struct task *task, struct rl_err *err)
{
    const struct rl_json *v = given(body, "priority");
    task->priority = 5;
    if (!v)
        return RL_OK;
    const char *name = rl_json_text(v);
    double number = name ? 0 : rl_json_number(v);
    if ((name && strcmp(name, "low") == 0) || (number >= 1 && number <= 1))
        task->priority = 1;
    else if ((name && strcmp(name, "high") == 0) || (number >= 10 && number <= 10))
        task->priority = 10;
    else if (!((name && strcmp(name, "normal") == 0) || (number >= 5 && number <= 5)))
        return rl_fail_field(err, RL_INVALID_FIELD, "priority",
                             "must be 1, 5, 10, \"low\", \"normal\" or \"high\"");
    return RL_OK;
}

static bool queue_name_ok(const char *name)
{
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && !strchr("._-", *name))
            return false;
    return true;
}

static enum rl_rc read_queueing(struct tasks *tasks, const struct rl_json *body, struct task *task,
                                struct rl_err *err)
{
    const struct rl_json *run_at = given(body, "run_at");
    enum rl_rc rc = read_priority(body, task, err);
    if (rc == RL_OK)
        rc =
            copy_string(body, "queue_name", 1, QUEUE_NAME_BYTES, "default", &task->queue_name, err);
    if (rc == RL_OK && !queue_name_ok(task->queue_name))
        return rl_fail_field(err, RL_INVALID_FIELD, "queue_name",
                             "may hold letters, digits, '.', '_' and '-'");
    if (rc == RL_OK)
        rc = read_int(body, "max_retries", 0, 100, config_int(tasks->cfg, CFG_TASK_MAX_RETRIES),
                      &task->max_retries, err);
    if (rc == RL_OK)
        rc = read_int(body, "queue_timeout_s", 0, TIMEOUT_MAX_S,
                      config_int(tasks->cfg, CFG_QUEUE_TIMEOUT_S), &task->queue_timeout_s, err);
    if (rc == RL_OK)
        rc = read_int(body, "run_timeout_s", 0, TIMEOUT_MAX_S, -1, &task->run_timeout_s, err);
    if (rc != RL_OK || !run_at)
        return rc;
    const char *text;
    rc = rl_json_string(run_at, "run_at", 1, 64, &text, err);
    if (rc == RL_OK && rl_time_parse(text, &task->run_at, NULL) != RL_OK)
        return rl_fail_field(err, RL_INVALID_FIELD, "run_at", "must be an RFC 3339 time");
    return rc;
}

static enum rl_rc read_events(const struct rl_json *list, struct task *task, struct rl_err *err)
{
    char text[64] = "";
    size_t len = 0;
    unsigned seen = 0;
    if (rl_json_type(list) != RL_JSON_ARRAY)
        return rl_fail_field(err, RL_INVALID_FIELD, "callback_events", "must be a list");
    for (const struct rl_json *v = rl_json_child(list); v; v = rl_json_next(v)) {
        const char *name = rl_json_text(v);
        size_t i = 0;
        while (i < RL_ARRAY_LEN(event_types) && !(name && strcmp(name, event_types[i]) == 0))
            i++;
        if (i == RL_ARRAY_LEN(event_types))
            return rl_fail_field(err, RL_INVALID_FIELD, "callback_events",
                                 "may hold task.succeeded, task.failed and task.timeout");
        if (!(seen & (1u << i)))
            len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", len ? "," : "", name);
        seen |= 1u << i;
    }
    if (!seen)
        return rl_fail_field(err, RL_INVALID_FIELD, "callback_events",
                             "is empty; leave it out for all");
    return task_set_text(&task->callback_events, text, err);
}

static enum rl_rc read_callback(struct tasks *tasks, const struct rl_json *body, struct task *task,
                                struct rl_err *err)
{
    const struct rl_json *events = given(body, "callback_events"),
                         *url = given(body, "callback_url");
    const char *text = NULL;
    char host[320];
    enum rl_rc rc = RL_OK;
    if (url) {
        rc = rl_json_string(url, "callback_url", 1, 2048, &text, err);
        if (rc == RL_OK)
            rc = net_url_check(text, "callback_url", &task->callback_url, host, sizeof host, err);
        if (rc == RL_OK)
            rc = net_policy_check(tasks->policy, host, "callback_url", err);
    }
    if (rc == RL_OK)
        rc = copy_string(body, "callback_secret", 1, RL_WEBHOOK_SECRET_BYTES, NULL,
                         &task->callback_secret, err);
    if (rc == RL_OK && task->callback_secret)
        rc = rl_webhook_secret_check(task->callback_secret, "callback_secret", err);
    if (rc == RL_OK && events)
        rc = read_events(events, task, err);
    if (rc == RL_OK && !url && (task->callback_secret || events))
        return rl_fail_field(err, RL_INVALID_FIELD, "callback_url",
                             "is required with callback_secret or callback_events");
    return rc;
}

/* Metadata travels ASCII-escaped in every callback, so that form is what the limit counts. */
static enum rl_rc read_metadata(struct tasks *tasks, const struct rl_json *body, struct task *task,
                                struct rl_err *err)
{
    const struct rl_json *v = given(body, "metadata");
    if (!v)
        return RL_OK;
    if (rl_json_type(v) != RL_JSON_OBJECT)
        return rl_fail_field(err, RL_INVALID_FIELD, "metadata", "must be an object");
    size_t limit = (size_t)config_int(tasks->cfg, CFG_TASK_METADATA_BYTES);
    AUTO_BUF struct rl_buf plain = {0}, escaped = {0};
    struct rl_jw w;
    rl_buf_init(&plain, 1 << 20);
    rl_buf_init(&escaped, limit);
    rl_json_canonical(v, &plain);
    bool over = plain.failed && !plain.no_memory;
    task->metadata = rl_buf_take(&plain);
    if (!task->metadata && !over)
        return rl_fail(err, RL_NO_MEMORY, "metadata");
    rl_jw_init(&w, &escaped, true);
    if (task->metadata)
        rl_jw_raw(&w, NULL, task->metadata);
    if (over || escaped.failed)
        return rl_fail_field(err, RL_INVALID_FIELD, "metadata",
                             "is over %zu bytes of ASCII-escaped JSON", limit);
    return RL_OK;
}

static enum rl_rc read_key(struct tasks *tasks, const struct rl_json *body, const char *header_key,
                           struct submit *submit, struct rl_err *err)
{
    const struct rl_json *mode = given(body, "idempotency");
    const char *off = mode ? rl_json_text(mode) : NULL;
    if (mode && (!off || strcmp(off, "off") != 0))
        return rl_fail_field(err, RL_INVALID_FIELD, "idempotency", "may only be \"off\"");
    struct task *task = submit->task;
    enum rl_rc rc =
        copy_string(body, "idempotency_key", 1, 255, header_key, &task->idempotency_key, err);
    if (rc != RL_OK)
        return rc;
    const char *key = task->idempotency_key;
    if (key && !visible_ascii(key, 255))
        return rl_fail_field(err, RL_INVALID_FIELD, "idempotency_key",
                             "must be 1 to 255 visible ASCII characters");
    if (key && header_key && strcmp(key, header_key) != 0)
        return rl_fail_field(err, RL_INVALID_FIELD, "idempotency_key",
                             "differs from the Idempotency-Key header");
    if (key && off)
        return rl_fail_field(err, RL_INVALID_FIELD, "idempotency", "is off, yet a key is given");
    submit->derive = !key && !off && config_on(tasks->cfg, CFG_TASK_DERIVE_KEYS);
    return key ? task_set_text(&task->idempotency_kind, "client", err) : RL_OK;
}

static enum rl_rc hash_text(const struct rl_buf *text, char **field, struct rl_err *err)
{
    uint8_t hash[RL_HASH_BYTES];
    char hex[2 * RL_HASH_BYTES + 1];
    enum rl_rc rc = rl_buf_ok(text, err);
    if (rc != RL_OK)
        return rc;
    rl_hash(text->data, text->len, hash);
    rl_hex(hash, sizeof hash, hex);
    return task_set_text(field, hex, err);
}

static enum rl_rc compute_hashes(const struct rl_json *body, struct submit *submit,
                                 struct rl_err *err)
{
    struct task *task = submit->task;
    AUTO_BUF struct rl_buf text = {0};
    struct rl_jw w;
    rl_buf_init(&text, 2 << 20);
    rl_json_canonical(body, &text); /* members sorted: their order must not matter */
    enum rl_rc rc = hash_text(&text, &task->request_hash, err);
    if (rc != RL_OK)
        return rc;
    rl_buf_clear(&text);
    rl_jw_init(&w, &text, false);
    rl_jw_array(&w, NULL);
    rl_jw_str(&w, NULL, task->user_id);
    rl_jw_str(&w, NULL, task->prompt);
    rl_jw_str(&w, NULL, task->negative_prompt);
    rl_jw_str(&w, NULL, task->engine);
    rl_jw_str(&w, NULL, task->model);
    rl_jw_i64(&w, NULL, task->width);
    rl_jw_i64(&w, NULL, task->height);
    rl_jw_i64(&w, NULL, task->frames);
    rl_jw_i64(&w, NULL, task->fps);
    rl_jw_i64(&w, NULL, task->steps);
    rl_jw_f64(&w, NULL, task->guidance_scale);
    rl_jw_f64(&w, NULL, task->flow_shift);
    rl_jw_raw(&w, NULL, task->options);
    rl_jw_i64(&w, NULL, task->seed_given ? task->seed : -1);
    rl_jw_end_array(&w);
    rc = hash_text(&text, &task->params_hash, err);
    if (rc != RL_OK || !submit->derive)
        return rc;
    char key[16 + 2 * RL_HASH_BYTES];
    (void)snprintf(key, sizeof key, "derived-%s", task->params_hash); /* fits by construction */
    rc = task_set_text(&task->idempotency_key, key, err);
    return rc == RL_OK ? task_set_text(&task->idempotency_kind, "derived", err) : rc;
}

enum rl_rc submit_parse(struct tasks *tasks, const struct caller *caller, const char *body,
                        size_t len, const char *header_key, struct submit *ret_submit,
                        struct rl_err *err)
{
    AUTO_JSON struct rl_json *root = NULL;
    struct submit submit = {.task = calloc(1, sizeof(struct task))};
    enum rl_rc rc =
        submit.task ? rl_json_parse(body, len, &root, err) : rl_fail(err, RL_NO_MEMORY, "submit");
    if (rc == RL_OK)
        rc = check_known(root, err);
    if (rc == RL_OK)
        rc = task_set_text(&submit.task->user_id, caller->user_id, err);
    if (rc == RL_OK)
        rc = read_prompts(tasks, root, submit.task, err);
    if (rc == RL_OK && read_work(tasks, root, &submit, &submit.refusal) == RL_NO_MEMORY)
        rc = rl_fail(err, RL_NO_MEMORY, "submit");
    if (rc == RL_OK)
        rc = read_queueing(tasks, root, submit.task, err);
    if (rc == RL_OK)
        rc = read_callback(tasks, root, submit.task, err);
    if (rc == RL_OK)
        rc = read_metadata(tasks, root, submit.task, err);
    if (rc == RL_OK)
        rc = read_key(tasks, root, header_key, &submit, err);
    /* with a key it may be a repeat of what could be made then: insert looks */
    if (rc == RL_OK && submit.refusal.code != RL_OK && !submit.task->idempotency_key) {
        *err = submit.refusal;
        rc = err->code;
    }
    if (rc == RL_OK)
        rc = compute_hashes(root, &submit, err);
    if (rc != RL_OK) {
        submit_clear(&submit);
        return rc;
    }
    *ret_submit = submit;
    return RL_OK;
}
