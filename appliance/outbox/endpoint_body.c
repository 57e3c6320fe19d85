/* What a client may say about an endpoint: the JSON body, field by field. No state, any thread. */
#include "outbox/parts.h"

#include "base/json.h"
#include "base/webhook.h"
#include "net/net.h"
#include "net/policy.h"

#include <string.h>

#define DESCRIPTION_BYTES 200
#define GRACE_MOST_S      604800 /* 7 days */

static const char *const event_types[] = {"task.succeeded", "task.failed", "task.timeout"};

void outbox_wish_clear(struct outbox_wish *wish)
{
    rl_json_free(wish->root);
    free(wish->url);
    *wish = (struct outbox_wish){0};
}

static bool is_null(const struct rl_json *v)
{
    return rl_json_type(v) == RL_JSON_NULL;
}

static enum rl_rc read_url(const struct net_policy *policy, const struct rl_json *v,
                           struct outbox_wish *wish, struct rl_err *err)
{
    const char *text = NULL;
    enum rl_rc rc = rl_json_string(v, "url", 1, 2048, &text, err);

    if (rc == RL_OK)
        rc = net_url_check(text, "url", &wish->url, wish->host, sizeof wish->host, err);
    if (rc == RL_OK)
        rc = net_policy_check(policy, wish->host, "url", err);
    wish->has_url = rc == RL_OK;
    return rc;
}

static enum rl_rc read_events(const struct rl_json *v, struct outbox_wish *wish, struct rl_err *err)
{
    bool wanted[RL_ARRAY_LEN(event_types)] = {false};
    size_t len = 0;

    wish->has_events = true;
    if (is_null(v))
        return RL_OK;
    if (rl_json_type(v) != RL_JSON_ARRAY || !rl_json_child(v))
        return rl_fail_field(err, RL_INVALID_FIELD, "events",
                             "must be a list of event types, or null for all");
    for (const struct rl_json *e = rl_json_child(v); e; e = rl_json_next(e)) {
        const char *name = rl_json_text(e);
        size_t i = 0;
        while (i < RL_ARRAY_LEN(event_types) && !(name && strcmp(name, event_types[i]) == 0))
            i++;
        if (i == RL_ARRAY_LEN(event_types))
            return rl_fail_field(err, RL_INVALID_FIELD, "events",
                                 "may hold task.succeeded, task.failed and task.timeout");
        wanted[i] = true;
    }
    for (size_t i = 0; i < RL_ARRAY_LEN(event_types); i++)
        if (wanted[i]) /* all three fit */
            len += (size_t)snprintf(wish->events + len, sizeof wish->events - len, "%s%s",
                                    len ? "," : "", event_types[i]);
    return RL_OK;
}

static enum rl_rc read_secret(const struct rl_json *v, struct outbox_wish *wish, struct rl_err *err)
{
    if (is_null(v))
        return RL_OK;
    enum rl_rc rc = rl_json_string(v, "secret", 1, RL_WEBHOOK_SECRET_BYTES, &wish->secret, err);
    return rc == RL_OK ? rl_webhook_secret_check(wish->secret, "secret", err) : rc;
}

static enum rl_rc read_field(const struct net_policy *policy, const struct rl_json *v,
                             struct outbox_wish *wish, struct rl_err *err)
{
    const char *name = rl_json_name(v);

    if (strcmp(name, "url") == 0)
        return read_url(policy, v, wish, err);
    if (strcmp(name, "events") == 0)
        return read_events(v, wish, err);
    if (strcmp(name, "secret") == 0)
        return read_secret(v, wish, err);
    if (strcmp(name, "grace_s") == 0)
        return rl_json_int(v, "grace_s", 0, GRACE_MOST_S, &wish->grace_s, err);
    wish->has_description = true;
    return is_null(v)
               ? RL_OK
               : rl_json_string(v, "description", 0, DESCRIPTION_BYTES, &wish->description, err);
}

static bool listed(const char *const *fields, const char *name)
{
    for (; *fields; fields++)
        if (strcmp(*fields, name) == 0)
            return true;
    return false;
}

enum rl_rc outbox_wish_parse(const struct net_policy *policy, const char *const *fields,
                             const char *body, size_t len, struct outbox_wish *ret_wish,
                             struct rl_err *err)
{
    AUTO_WISH struct outbox_wish wish = {.grace_s = -1};
    enum rl_rc rc = RL_OK;

    if (len > 0) {
        rc = rl_json_parse(body, len, &wish.root, err);
        if (rc == RL_OK && rl_json_type(wish.root) != RL_JSON_OBJECT)
            rc = rl_fail(err, RL_INVALID_FIELD, "the body must be a JSON object");
    }
    const struct rl_json *v = rc == RL_OK && wish.root ? rl_json_child(wish.root) : NULL;
    for (; v && rc == RL_OK; v = rl_json_next(v))
        rc = listed(fields, rl_json_name(v))
                 ? read_field(policy, v, &wish, err)
                 : rl_fail_field(err, RL_INVALID_FIELD, rl_json_name(v), "unknown field");
    if (rc != RL_OK)
        return rc;
    *ret_wish = wish;
    wish = (struct outbox_wish){0};
    return RL_OK;
}
