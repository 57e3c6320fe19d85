/* Routes of feeds: read (a long poll within the budget of streams), acknowledge, extend, seek, and
 * feeds as things. The rules are task/'s. Runs on the worker of the connection; owns nothing beyond
 * the request. */
#include "http/request.h"

#include <string.h>

#include "base/clock.h"
#include "config/config.h"
#include "events/events.h"
#include "task/feed.h"

#define ANSWER_BYTES (4u << 20) /* the ranges of feed.leases */
#define MAX_DEFAULT  100
#define LEASE_BYTES  47
#define ALL_STATES   ((1u << TASK_STATUS_COUNT) - 1)

/* ---- what a client may say ---- */

/* earliest, latest, a seq, or a time. */
static enum rl_rc parse_from(const char *text, struct feed_from *ret_from, struct rl_err *err)
{
    struct feed_from from = {.field = "from"};
    if (!strcmp(text, "latest"))
        from.start = FEED_LATEST;
    else if (task_id_parse(text, strlen(text), &from.value))
        from.start = FEED_SEQ;
    else if (rl_time_parse(text, &from.value, NULL) == RL_OK)
        from.start = FEED_TIME;
    else if (strcmp(text, "earliest") != 0)
        return rl_fail_field(err, RL_INVALID_FIELD, "from",
                             "must be earliest, latest, a seq or an RFC 3339 time");
    *ret_from = from;
    return RL_OK;
}

/* A number of the query, `fallback` when it is absent. */
static enum rl_rc query_number(const struct request *r, const char *name, int64_t most,
                               int64_t fallback, int64_t *ret_value, struct rl_err *err)
{
    const char *text = query_get(&r->query, name);
    *ret_value = fallback;
    if (text && (!task_id_parse(text, strlen(text), ret_value) || *ret_value > most))
        return rl_fail_field(err, RL_INVALID_FIELD, name, "must be a number from 1 to %lld",
                             (long long)most);
    return RL_OK;
}

/* One of {"from": …}, {"seq": N}, {"time": "…"}; `required`, or none of them: the earliest. */
static enum rl_rc body_from(const struct rl_json *root, bool required, struct feed_from *ret_from,
                            struct rl_err *err)
{
    const struct rl_json *from = rl_json_get(root, "from"), *seq = rl_json_get(root, "seq"),
                         *time = rl_json_get(root, "time");
    const char *text = NULL;
    int given = !!from + !!seq + !!time;
    *ret_from = (struct feed_from){.start = FEED_EARLIEST, .field = "from"};
    if (given > 1 || (required && given == 0))
        return rl_fail_field(err, RL_INVALID_FIELD, "seq",
                             "give one of seq, time and from (earliest, latest)");
    if (seq) {
        ret_from->start = FEED_SEQ;
        ret_from->field = "seq";
        return rl_json_int(seq, "seq", 1, RL_JSON_MAX_INT, &ret_from->value, err);
    }
    if (time) {
        ret_from->start = FEED_TIME;
        text = rl_json_text(time);
        if (!text || rl_time_parse(text, &ret_from->value, NULL) != RL_OK)
            return rl_fail_field(err, RL_INVALID_FIELD, "time", "must be an RFC 3339 time");
    }
    if (!from)
        return RL_OK;
    text = rl_json_text(from);
    if (!text || (strcmp(text, "earliest") != 0 && strcmp(text, "latest") != 0))
        return rl_fail_field(err, RL_INVALID_FIELD, "from", "must be earliest or latest");
    if (!strcmp(text, "latest"))
        ret_from->start = FEED_LATEST;
    return RL_OK;
}

static enum rl_rc body_statuses(const struct rl_json *list, unsigned *ret_mask, struct rl_err *err)
{
    unsigned mask = 0;
    if (!list || rl_json_type(list) == RL_JSON_NULL)
        return RL_OK;
    for (const struct rl_json *v = rl_json_child(list); v; v = rl_json_next(v)) {
        enum task_status status;
        const char *text = rl_json_text(v);
        if (!text || !task_status_parse(text, &status))
            return rl_fail_field(err, RL_INVALID_FIELD, "status", "must hold names of states");
        mask |= 1u << status;
    }
    if (rl_json_type(list) != RL_JSON_ARRAY || mask == 0)
        return rl_fail_field(err, RL_INVALID_FIELD, "status",
                             "must be a list of states, or null for all");
    *ret_mask = mask == ALL_STATES ? 0 : mask;
    return RL_OK;
}

static enum rl_rc body_lease(const struct rl_json *root, const char **ret_lease, struct rl_err *err)
{
    const struct rl_json *lease = rl_json_get(root, "lease");
    if (!lease)
        return rl_fail_field(err, RL_INVALID_FIELD, "lease", "is missing");
    return rl_json_string(lease, "lease", 1, LEASE_BYTES, ret_lease, err);
}

/* ---- read ---- */

static enum rl_rc parse_ask(const struct request *r, struct feed_ask *ret_ask, int64_t *ret_wait_s,
                            struct rl_err *err)
{
    static const char *const names[] = {"max", "wait", "from", "status", "lease_s", NULL};
    struct feed_ask ask = {.name = r->param, .from = {.field = "from"}};
    int64_t max = MAX_DEFAULT, lease_s = 0;
    const char *wait = query_get(&r->query, "wait"), *from = query_get(&r->query, "from"),
               *status = query_get(&r->query, "status");
    *ret_wait_s = 0;
    enum rl_rc rc = query_only(&r->query, names, err);
    if (rc == RL_OK)
        rc = feed_name_check(r->param, err);
    if (rc == RL_OK)
        rc = query_number(r, "max", FEED_MAX, MAX_DEFAULT, &max, err);
    if (rc == RL_OK)
        rc = query_number(r, "lease_s", FEED_LEASE_MOST, config_int(r->http->cfg, CFG_FEED_LEASE_S),
                          &lease_s, err);
    if (rc == RL_OK && wait)
        rc = stream_wait_seconds(wait, "wait", ret_wait_s, err);
    if (rc == RL_OK && from)
        rc = parse_from(from, &ask.from, err);
    if (rc == RL_OK && status)
        rc = statuses_parse(status, &ask.statuses, err);
    if (rc != RL_OK)
        return rc;
    ask.has_statuses = status != NULL;
    if (ask.statuses == ALL_STATES)
        ask.statuses = 0;
    ask.max = (int)max;
    ask.lease_ms = lease_s * 1000;
    *ret_ask = ask;
    return RL_OK;
}

/* Was the key revoked while its request waited? */
static enum rl_rc still_valid(struct request *r, uint64_t *keys, struct rl_err *err)
{
    uint64_t now = key_generation(r->http->tasks);
    enum rl_rc rc = now == *keys ? RL_OK : key_check(r->http->tasks, r->caller.key_id, err);
    *keys = now;
    return rc;
}

/* Look until there is a range or the time is over; waiting takes a place among the streams. */
static enum rl_rc read_or_wait(struct request *r, struct feed_ask *ask, int64_t wait_s,
                               struct rl_buf *out, struct rl_err *err)
{
    struct http *http = r->http;
    struct hub *hub = tasks_hub(http->tasks);
    struct event_filter filter = {.task_id = 0};
    struct hub_filter wake = event_hub_filter(&r->caller, &filter);
    int64_t until = rl_mono_ms() + wait_s * 1000, pause = 0;
    uint64_t keys = key_generation(http->tasks);
    bool entered = false, given = false;
    enum rl_rc rc = RL_OK;
    for (;;) {
        uint64_t tick = hub_tick(hub);
        if (entered && stream_over(r))
            break; /* nothing is leased to a client that has left */
        rc = still_valid(r, &keys, err);
        if (rc == RL_OK)
            rc = feed_next(http->tasks, &r->caller, ask, out, &given, &pause, err);
        int64_t left = until - rl_mono_ms();
        if (rc != RL_OK || given || left <= 0 || stream_over(r))
            break;
        if (!entered) {
            rc = stream_enter(r, err);
            if (rc != RL_OK)
                break;
            entered = true;
        }
        (void)hub_wait(hub, &wake, tick, pause < left ? pause : left);
    }
    if (entered)
        stream_leave(r);
    return rc;
}

enum rl_rc http_feed_read(struct request *r, struct rl_err *err)
{
    struct feed_ask ask;
    int64_t wait_s;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, LIST_ANSWER_BYTES);
    enum rl_rc rc = auth_check_fetch_site(r, err); /* a read takes a lease, and may make the feed */
    if (rc == RL_OK)
        rc = parse_ask(r, &ask, &wait_s, err);
    if (rc == RL_OK)
        rc = read_or_wait(r, &ask, wait_s, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

/* ---- acknowledge, extend, seek ---- */

enum rl_rc http_feed_ack(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"lease", "to", NULL};
    const char *lease = NULL;
    int64_t to = 0;
    AUTO_JSON struct rl_json *root = NULL;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = feed_name_check(r->param, err);
    if (rc == RL_OK)
        rc = body_object(r, names, &root, err);
    if (rc == RL_OK)
        rc = body_lease(root, &lease, err);
    if (rc == RL_OK && rl_json_get(root, "to"))
        rc = rl_json_int(rl_json_get(root, "to"), "to", 1, RL_JSON_MAX_INT, &to, err);
    if (rc == RL_OK)
        rc = feed_ack(r->http->tasks, &r->caller, r->param, lease, to, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_feed_extend(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"lease", "lease_s", NULL};
    const char *lease = NULL;
    int64_t lease_s = config_int(r->http->cfg, CFG_FEED_LEASE_S);
    AUTO_JSON struct rl_json *root = NULL;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = feed_name_check(r->param, err);
    if (rc == RL_OK)
        rc = body_object(r, names, &root, err);
    if (rc == RL_OK)
        rc = body_lease(root, &lease, err);
    if (rc == RL_OK && rl_json_get(root, "lease_s"))
        rc =
            rl_json_int(rl_json_get(root, "lease_s"), "lease_s", 0, FEED_LEASE_MOST, &lease_s, err);
    if (rc == RL_OK)
        rc = feed_extend(r->http->tasks, &r->caller, r->param, lease, lease_s * 1000, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_feed_seek(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"from", "seq", "time", NULL};
    struct feed_from from;
    AUTO_JSON struct rl_json *root = NULL;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = feed_name_check(r->param, err);
    if (rc == RL_OK)
        rc = body_object(r, names, &root, err);
    if (rc == RL_OK)
        rc = body_from(root, true, &from, err);
    if (rc == RL_OK)
        rc = feed_seek(r->http->tasks, &r->caller, r->param, &from, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

/* ---- feeds as things ---- */

enum rl_rc http_feed_list(struct request *r, struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = feed_list(r->http->tasks, &r->caller, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_feed_state(struct request *r, struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = feed_name_check(r->param, err);
    if (rc == RL_OK)
        rc = feed_show(r->http->tasks, &r->caller, r->param, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

/* An empty body makes a feed of everything from the earliest event on. */
enum rl_rc http_feed_create(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"from", "seq", "time", "status", NULL};
    struct feed_from from = {.start = FEED_EARLIEST, .field = "from"};
    unsigned statuses = 0;
    bool made;
    AUTO_JSON struct rl_json *root = NULL;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = feed_name_check(r->param, err);
    if (rc == RL_OK)
        rc = body_read(r, err);
    if (rc == RL_OK && r->body.len > 0)
        rc = body_object(r, names, &root, err);
    if (rc == RL_OK && root)
        rc = body_from(root, false, &from, err);
    if (rc == RL_OK && root)
        rc = body_statuses(rl_json_get(root, "status"), &statuses, err);
    if (rc == RL_OK)
        rc = feed_create(r->http->tasks, &r->caller, r->param, &from, statuses, &out, &made, err);
    return rc == RL_OK ? reply_json(r, made ? 201 : 200, &out, err) : rc;
}

enum rl_rc http_feed_delete(struct request *r, struct rl_err *err)
{
    enum rl_rc rc = feed_name_check(r->param, err);
    if (rc == RL_OK)
        rc = feed_delete(r->http->tasks, &r->caller, r->param, err);
    return rc == RL_OK ? reply_empty(r, 204) : rc;
}
