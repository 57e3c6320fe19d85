/* Events of outside services, and the sources that an owner registers for them. Runs on the worker
 * of the connection; owns nothing beyond the request. Invariants: the signature alone lets a
 * delivery in; the headers and the rate are judged before the body is read; a source that does not
 * exist, an address that may not post and a wrong signature get the same answer after the same
 * work, so that nobody learns from it which sources there are (but for one with a rate of its own
 * and no allow-list: the refusals by rate, which come before the body, tell that rate). */
#include "http/request.h"

#include <string.h>

#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/webhook.h"
#include "config/config.h"
#include "inbound/inbound.h"

#define ANSWER_BYTES (64u << 10)
#define ALLOW_BYTES  2048
#define GRACE_MOST_S 604800 /* 7 days */
#define MINUTE_US    INT64_C(60000000)
#define HANDLED_MOST 200 /* events in one report */

const char *const hook_result_names[HOOK_RESULTS] = {
    [HOOK_ACCEPTED] = "accepted", [HOOK_REPEATED] = "repeated", [HOOK_HEADERS] = "headers",
    [HOOK_TIME] = "time",         [HOOK_ADDRESS] = "address",   [HOOK_RATE] = "rate",
    [HOOK_BODY] = "body",         [HOOK_SOURCE] = "source",     [HOOK_SIGNATURE] = "signature",
    [HOOK_BACKLOG] = "backlog",   [HOOK_FAILED] = "failed",
};

static void count(struct request *r, enum hook_result result)
{
    atomic_fetch_add(&r->http->hooks[result], 1);
}

/* ---- a delivery ---- */

/* The headers, and the time they name. Judges no source, so it may say what is wrong. */
static enum rl_rc check_head(struct request *r, struct rl_webhook *hook, struct rl_err *err)
{
    static const char *const names[] = {"webhook-id", "webhook-timestamp", "webhook-signature"};
    const char **values[] = {&hook->id, &hook->timestamp, &hook->signature};
    int64_t timestamp_s = 0, tolerance_s = config_int(r->http->cfg, CFG_HOOK_TOLERANCE_S);
    enum rl_rc rc = RL_OK;
    for (size_t i = 0; i < RL_ARRAY_LEN(names) && rc == RL_OK; i++) {
        size_t times = 0;
        *values[i] = head_get(r->fields, r->field_count, names[i], &times);
        if (times > 1)
            rc = rl_fail_field(err, RL_UNAUTHORIZED, names[i], "the header is there twice");
    }
    if (rc == RL_OK)
        rc = rl_webhook_head(hook, &timestamp_s, err);
    if (rc != RL_OK) {
        count(r, HOOK_HEADERS);
        return rc;
    }
    if (rl_webhook_in_time(timestamp_s, rl_wall_ms() / 1000, tolerance_s))
        return RL_OK;
    count(r, HOOK_TIME);
    return rl_fail_field(err, RL_UNAUTHORIZED, "webhook-timestamp",
                         "is more than %lld s away from this machine's clock",
                         (long long)tolerance_s);
}

/* May this address post to the source? The whole address counts, not what the limits group by. */
static enum rl_rc check_address(struct request *r, const struct inbound_judge *judge,
                                bool *ret_listed, struct rl_err *err)
{
    struct address_list allowed = {0};
    struct address client;
    *ret_listed = true;
    if (judge->hook_id == 0 || !*judge->allow)
        return RL_OK;
    enum rl_rc rc = address_list_parse(judge->allow, "allow", &allowed, err);
    if (rc != RL_OK)
        return rl_fail(err, rc == RL_NO_MEMORY ? rc : RL_INTERNAL, "the allow-list is unreadable");
    address_of_client(&r->http->trusted, r->info->remote_addr, r->fields, r->field_count, &client);
    *ret_listed = address_listed(&allowed, &client);
    address_list_free(&allowed);
    if (!*ret_listed)
        rl_log(RL_LOG_INFO, "hook_refused", "request_id=%s source=%s reason=address", r->id,
               r->param);
    return RL_OK;
}

/* A bucket per source and address, so that junk from elsewhere cannot use up a sender's rate. */
static enum rl_rc check_rate(struct request *r, const struct inbound_judge *judge,
                             struct rl_err *err)
{
    int64_t own = judge->per_minute;
    struct limit_rule by = {own >= 0 ? own : config_int(r->http->cfg, CFG_HOOK_PER_MINUTE),
                            MINUTE_US};
    uint8_t hash[RL_HASH_BYTES];
    char text[ROUTE_PARAM + sizeof(r->client.bytes)];
    struct limit_answer answer;
    size_t len = strlen(r->param);
    memcpy(text, r->param, len + 1);
    memcpy(text + len + 1, r->client.bytes, sizeof(r->client.bytes));
    rl_hash(text, len + 1 + sizeof(r->client.bytes), hash);
    limit_take(r->http->limit, LIMIT_HOOKS, hash, &by, rl_mono_us(), &answer);
    if (answer.ok)
        return RL_OK;
    count(r, HOOK_RATE);
    return door_refuse(r, &answer, "deliveries to this source from this address", err);
}

static enum rl_rc read_delivery(struct request *r, struct rl_webhook *hook, struct rl_err *err)
{
    r->body.limit = (size_t)config_int(r->http->cfg, CFG_HOOK_BODY_BYTES);
    enum rl_rc rc = body_require_json(r, err);
    if (rc == RL_OK)
        rc = body_read(r, err);
    if (rc != RL_OK)
        count(r, HOOK_BODY);
    hook->body = r->body.data ? r->body.data : "";
    hook->body_len = r->body.len;
    return rc;
}

static enum rl_rc check_signature(struct request *r, const struct inbound_judge *judge, bool listed,
                                  const struct rl_webhook *hook, struct rl_err *err)
{
    if (inbound_judge_signed(judge, hook))
        return RL_OK;
    if (judge->hook_id != 0)
        rl_log(RL_LOG_INFO, "hook_refused", "request_id=%s source=%s reason=signature", r->id,
               r->param);
    count(r, !listed ? HOOK_ADDRESS : judge->hook_id != 0 ? HOOK_SIGNATURE : HOOK_SOURCE);
    return rl_fail(err, RL_UNAUTHORIZED, "no signature by a secret of this source");
}

static enum hook_result failure(enum rl_rc rc)
{
    if (rc == RL_QUEUE_FULL)
        return HOOK_BACKLOG;
    if (rc == RL_UNAUTHORIZED)
        return HOOK_SOURCE;
    return rc == RL_MALFORMED_JSON || rc == RL_INVALID_FIELD ? HOOK_BODY : HOOK_FAILED;
}

static enum rl_rc take_in(struct request *r, int64_t hook_id, const struct rl_webhook *hook,
                          struct rl_err *err)
{
    bool repeated = false;
    AUTO_BUF struct rl_buf out = {0};
    struct rl_jw w;
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = inbound_accept(r->http->tasks, r->param, hook_id, hook, &repeated, err);
    if (rc != RL_OK) {
        count(r, failure(rc));
        return rc;
    }
    count(r, repeated ? HOOK_REPEATED : HOOK_ACCEPTED);
    rl_jw_init(&w, &out, false);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "event_id", hook->id);
    rl_jw_bool(&w, "repeated", repeated);
    rl_jw_end_object(&w);
    return reply_json(r, repeated ? 200 : 202, &out, err);
}

enum rl_rc http_hook_event(struct request *r, struct rl_err *err)
{
    struct rl_webhook hook = {0};
    AUTO_JUDGE struct inbound_judge judge = {.per_minute = -1};
    bool listed = true;
    enum rl_rc rc = check_head(r, &hook, err);
    if (rc != RL_OK)
        return rc;
    rc = inbound_judge_find(r->http->tasks, r->param, &judge, err);
    if (rc != RL_OK) {
        count(r, HOOK_FAILED);
        return rc;
    }
    rc = check_address(r, &judge, &listed, err);
    if (!listed)
        inbound_judge_clear(&judge); /* for this address there is no such source */
    if (rc == RL_OK)
        rc = check_rate(r, &judge, err);
    if (rc == RL_OK)
        rc = read_delivery(r, &hook, err);
    if (rc == RL_OK)
        rc = check_signature(r, &judge, listed, &hook, err);
    return rc == RL_OK ? take_in(r, judge.hook_id, &hook, err) : rc;
}

/* ---- sources ---- */

/* ["10.0.0.0/8", …] or null as one text that address_list_parse takes. */
static enum rl_rc read_allow(const struct rl_json *v, struct rl_buf *out, struct rl_err *err)
{
    struct address_list list;
    bool null = rl_json_type(v) == RL_JSON_NULL;
    if (!null && rl_json_type(v) != RL_JSON_ARRAY)
        return rl_fail_field(err, RL_INVALID_FIELD, "allow",
                             "must be a list of addresses and CIDR ranges, or null for any");
    for (const struct rl_json *e = null ? NULL : rl_json_child(v); e; e = rl_json_next(e)) {
        const char *text = NULL;
        enum rl_rc rc = rl_json_string(e, "allow", 1, 64, &text, err);
        if (rc == RL_OK && strpbrk(text, ", \t"))
            rc = rl_fail_field(err, RL_INVALID_FIELD, "allow", "one address or range per element");
        if (rc != RL_OK)
            return rc;
        rl_buf_fmt(out, "%s%s", out->len ? "," : "", text);
    }
    rl_buf_str(out, ""); /* terminated, also when it is empty */
    if (rl_buf_ok(out, NULL) != RL_OK)
        return rl_fail_field(err, RL_INVALID_FIELD, "allow", "is longer than %d bytes in all",
                             ALLOW_BYTES);
    enum rl_rc rc = address_list_parse(out->data, "allow", &list, err);
    if (rc == RL_OK)
        address_list_free(&list);
    return rc;
}

/* What a body may say about a source. */
struct said {
    struct rl_json *root; /* owned; the wish borrows from it and from `allow` */
    struct rl_buf allow;
    const char *source;
    struct inbound_wish wish;
};

static void said_clear(struct said *said)
{
    rl_json_free(said->root);
    rl_buf_free(&said->allow);
}
#define AUTO_SAID __attribute__((cleanup(said_clear)))

static enum rl_rc read_secret(const struct rl_json *v, struct inbound_wish *wish,
                              struct rl_err *err)
{
    if (rl_json_type(v) == RL_JSON_NULL)
        return RL_OK;
    enum rl_rc rc = rl_json_string(v, "secret", 1, RL_WEBHOOK_SECRET_BYTES, &wish->secret, err);
    return rc == RL_OK ? rl_webhook_secret_check(wish->secret, "secret", err) : rc;
}

static enum rl_rc read_member(const struct rl_json *v, struct said *said, struct rl_err *err)
{
    const char *name = rl_json_name(v);
    struct inbound_wish *wish = &said->wish;
    enum rl_rc rc = RL_OK;
    if (!strcmp(name, "source"))
        return rl_json_string(v, name, 1, INBOUND_SOURCE_TEXT - 1, &said->source, err);
    if (!strcmp(name, "secret"))
        return read_secret(v, wish, err);
    if (!strcmp(name, "grace_s"))
        return rl_json_int(v, name, 0, GRACE_MOST_S, &wish->grace_s, err);
    if (!strcmp(name, "allow")) {
        rc = read_allow(v, &said->allow, err);
        wish->allow = said->allow.data;
        return rc;
    }
    if (!strcmp(name, "per_minute")) {
        wish->has_per_minute = true;
        wish->per_minute = -1;
        return rl_json_type(v) == RL_JSON_NULL
                   ? RL_OK
                   : rl_json_int(v, name, 0, 1000000, &wish->per_minute, err);
    }
    if (rl_json_type(v) != RL_JSON_BOOL)
        return rl_fail_field(err, RL_INVALID_FIELD, "enabled", "must be true or false");
    wish->has_enabled = true;
    wish->enabled = rl_json_is_true(v);
    return RL_OK;
}

/* A body with members of these names only. An absent one is {} unless `required`. */
static enum rl_rc read_said(struct request *r, const char *const *names, bool required,
                            struct said *said, struct rl_err *err)
{
    said->wish.grace_s = config_int(r->http->cfg, CFG_CALLBACK_ROTATION_GRACE_S);
    rl_buf_init(&said->allow, ALLOW_BYTES);
    if (!required && !body_pending(r))
        return RL_OK;
    enum rl_rc rc = body_object(r, names, &said->root, err);
    const struct rl_json *v = rc == RL_OK ? rl_json_child(said->root) : NULL;
    for (; v && rc == RL_OK; v = rl_json_next(v))
        rc = read_member(v, said, err);
    return rc;
}

enum rl_rc http_hook_list(struct request *r, struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, LIST_ANSWER_BYTES);
    enum rl_rc rc = inbound_source_list(r->http->tasks, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_hook_create(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"source", "secret", "allow", "per_minute", "enabled", NULL};
    AUTO_SAID struct said said = {0};
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = read_said(r, names, true, &said, err);
    if (rc == RL_OK && !said.source)
        rc = rl_fail_field(err, RL_INVALID_FIELD, "source", "is missing");
    if (rc == RL_OK)
        rc = inbound_source_create(r->http->tasks, said.source, &said.wish, &out, err);
    if (rc != RL_OK)
        return rc;
    reply_header(r, "Location", "/api/v1/hooks/%s", said.source);
    return reply_json(r, 201, &out, err);
}

enum rl_rc http_hook_get(struct request *r, struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = inbound_source_get(r->http->tasks, r->param, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_hook_update(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"allow", "per_minute", "enabled", NULL};
    AUTO_SAID struct said said = {0};
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = read_said(r, names, true, &said, err);
    if (rc == RL_OK)
        rc = inbound_source_update(r->http->tasks, r->param, &said.wish, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_hook_rotate(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"secret", "grace_s", NULL};
    AUTO_SAID struct said said = {0};
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = read_said(r, names, false, &said, err);
    if (rc == RL_OK)
        rc = inbound_source_rotate(r->http->tasks, r->param, &said.wish, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_hook_delete(struct request *r, struct rl_err *err)
{
    enum rl_rc rc = inbound_source_delete(r->http->tasks, r->param, err);
    return rc == RL_OK ? reply_empty(r, 204) : rc;
}

/* ---- events, for whoever consumes them ---- */

enum rl_rc http_hook_events(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"limit", "after", "order", "handled", NULL};
    struct page_query page;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, LIST_ANSWER_BYTES);
    enum rl_rc rc = query_only(&r->query, names, err);
    if (rc == RL_OK)
        rc = page_common(&r->query, false, &page, err);
    const char *handled = query_get(&r->query, "handled");
    if (rc == RL_OK && handled && strcmp(handled, "false") != 0)
        rc = rl_fail_field(err, RL_INVALID_FIELD, "handled", "must be false, or left out");
    if (rc == RL_OK)
        rc = inbound_event_list(r->http->tasks, r->param, &page, handled != NULL, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

static void write_ids(struct rl_jw *w, const char *name, const int64_t *ids, const bool *known,
                      bool which, size_t count)
{
    rl_jw_array(w, name);
    for (size_t i = 0; i < count; i++)
        if (known[i] == which)
            rl_jw_id(w, NULL, ids[i]);
    rl_jw_end_array(w);
}

enum rl_rc http_hook_handled(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"event_seqs", NULL};
    int64_t ids[HANDLED_MOST];
    bool known[HANDLED_MOST];
    size_t count = 0;
    AUTO_JSON struct rl_json *root = NULL;
    AUTO_BUF struct rl_buf out = {0};
    struct rl_jw w;
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = body_object(r, names, &root, err);
    if (rc == RL_OK)
        rc = body_ids(root, "event_seqs", ids, HANDLED_MOST, &count, err);
    if (rc == RL_OK)
        rc = inbound_events_handled(r->http->tasks, r->param, ids, count, known, err);
    if (rc != RL_OK)
        return rc;
    rl_jw_init(&w, &out, false);
    rl_jw_object(&w, NULL);
    write_ids(&w, "handled", ids, known, true, count);
    write_ids(&w, "unknown", ids, known, false, count);
    rl_jw_end_object(&w);
    return reply_json(r, 200, &out, err);
}
