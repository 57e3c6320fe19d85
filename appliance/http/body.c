/* Reads request bodies: at most http.body_limit bytes, within http.body_deadline_ms however they
 * drip, in small steps on the worker of the connection. Invariants: body_done is true exactly when
 * the connection stands at the next request; in a crowd no body of a stranger's request
 * is begun while such bodies hold a quarter of the threads. */
#include "http/request.h"

#include <string.h>

#include "base/clock.h"
#include "config/config.h"

#define STEP_BYTES 4096
#define DISCARD_BYTES                                                                              \
    (1 << 20) /* after an early answer; more than this ends in a reset connection */
#define DISCARD_MS 1000

static void watch_request(struct request *r, struct watch_entry *entry, int64_t for_ms)
{
    struct wire_ends ends = request_ends(r);
    watch_add(r->http->watch, entry, &ends, for_ms);
}

bool body_pending(const struct request *r)
{
    return !r->body_done;
}

static enum rl_rc too_large(struct request *r, struct rl_err *err)
{
    return rl_fail(err, RL_BODY_TOO_LARGE, "the body may have at most %lld bytes",
                   (long long)r->body.limit);
}

/* The reading loop; *ret_short: the body ended early. */
static enum rl_rc read_steps(struct request *r, int64_t deadline_ms, bool *ret_short,
                             struct rl_err *err)
{
    AUTO_FREE char *step = malloc(STEP_BYTES);
    if (!step)
        return rl_fail(err, RL_NO_MEMORY, "no memory for the body");
    *ret_short = false;
    while (r->facts.chunked || (int64_t)r->body.len < r->facts.length) {
        int n = mg_read(r->conn, step, STEP_BYTES);
        if (n < 0 || (n == 0 && !r->facts.chunked)) {
            *ret_short = true;
            return RL_OK;
        }
        if (n == 0)
            break;
        if (r->body.len + (size_t)n > r->body.limit)
            return too_large(r, err);
        rl_buf_append(&r->body, step, (size_t)n);
        if (rl_mono_ms() >= deadline_ms) {
            *ret_short = r->facts.chunked || (int64_t)r->body.len < r->facts.length;
            return RL_OK;
        }
    }
    return RL_OK;
}

static enum rl_rc read_whole(struct request *r, struct rl_err *err)
{
    if (r->facts.expect_continue) {
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        if (mg_write(r->conn, go_on, sizeof(go_on) - 1) != (int)sizeof(go_on) - 1)
            return rl_fail(err, RL_BAD_REQUEST, "the client went away");
    }
    int64_t limit_ms = config_int(r->http->cfg, CFG_HTTP_BODY_DEADLINE_MS);
    int64_t deadline_ms = rl_mono_ms() + limit_ms;
    struct watch_entry entry;
    bool is_short = false;
    watch_request(r, &entry, limit_ms);
    enum rl_rc rc = read_steps(r, deadline_ms, &is_short, err);
    r->body_cut = watch_remove(r->http->watch, &entry);
    if (rc != RL_OK)
        return rc;
    if (is_short) {
        if (r->body_cut || rl_mono_ms() >= deadline_ms)
            return rl_fail(err, RL_REQUEST_TIMEOUT, "the body took longer than %lld ms",
                           (long long)limit_ms);
        return rl_fail(err, RL_BAD_REQUEST,
                       "the body is shorter than announced, or its chunks are broken");
    }
    r->body_done = true;
    r->close = r->close || r->body_cut;
    return rl_buf_ok(&r->body, err);
}

/* Nobody that a key or a session was found good for. */
static bool is_stranger(const struct request *r)
{
    return !r->caller.user_id[0];
}

enum rl_rc body_read(struct request *r, struct rl_err *err)
{
    struct http *http = r->http;
    enum rl_rc rc;
    if (r->body_done)
        return RL_OK;
    if (r->facts.length > (int64_t)r->body.limit)
        return too_large(r, err);
    if (!is_stranger(r))
        return read_whole(r, err);
    int strangers = atomic_fetch_add(&http->strangers, 1);
    if (strangers * 4 >= http->threads && http_crowded(http)) {
        atomic_fetch_add(&http->turned_away, 1);
        rc = rl_fail(err, RL_UNAVAILABLE, "all threads for requests without a key are busy");
    } else {
        rc = read_whole(r, err);
    }
    atomic_fetch_sub(&http->strangers, 1);
    return rc;
}

enum rl_rc body_require_json(const struct request *r, struct rl_err *err)
{
    if (!media_is_json(request_header(r, "Content-Type")))
        return rl_fail(err, RL_UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json");
    return RL_OK;
}

enum rl_rc body_object(struct request *r, const char *const *names, struct rl_json **ret_root,
                       struct rl_err *err)
{
    enum rl_rc rc = body_require_json(r, err);
    if (rc == RL_OK)
        rc = body_read(r, err);
    if (rc != RL_OK)
        return rc;
    AUTO_JSON struct rl_json *root = NULL;
    rc = rl_json_parse(r->body.data ? r->body.data : "", r->body.len, &root, err);
    if (rc != RL_OK)
        return rc;
    if (rl_json_type(root) != RL_JSON_OBJECT)
        return rl_fail(err, RL_INVALID_FIELD, "the body must be an object");
    for (const struct rl_json *v = rl_json_child(root); v; v = rl_json_next(v)) {
        const char *const *name = names;
        while (*name && strcmp(*name, rl_json_name(v)))
            name++;
        if (!*name)
            return rl_fail_field(err, RL_INVALID_FIELD, rl_json_name(v), "no such field");
    }
    *ret_root = STEAL(root);
    return RL_OK;
}

enum rl_rc body_ids(const struct rl_json *root, const char *name, int64_t *ids, size_t most,
                    size_t *ret_count, struct rl_err *err)
{
    const struct rl_json *list = rl_json_get(root, name);
    size_t count = 0;
    if (!list || rl_json_type(list) != RL_JSON_ARRAY)
        return rl_fail_field(err, RL_INVALID_FIELD, name, "must be a list of ids");
    for (const struct rl_json *v = rl_json_child(list); v; v = rl_json_next(v)) {
        const char *text = rl_json_text(v);
        if (count == most)
            return rl_fail_field(err, RL_INVALID_FIELD, name, "at most %zu ids at once", most);
        if (!text || !task_id_parse(text, strlen(text), &ids[count++]))
            return rl_fail_field(err, RL_INVALID_FIELD, name, "must hold ids as strings");
    }
    if (count == 0)
        return rl_fail_field(err, RL_INVALID_FIELD, name, "must hold at least one id");
    *ret_count = count;
    return RL_OK;
}

void body_discard(struct request *r)
{
    if (r->body_done || r->body_cut)
        return;
    /* A client that waits for 100 Continue has sent nothing and will not. */
    if (r->facts.expect_continue && r->body.len == 0)
        return;
    /* A thread that others wait for is worth more than a clean end. */
    if (is_stranger(r) && http_crowded(r->http))
        return;
    AUTO_FREE char *step = malloc(STEP_BYTES);
    if (!step)
        return;
    struct watch_entry entry;
    watch_request(r, &entry, DISCARD_MS);
    int64_t until = rl_mono_ms() + DISCARD_MS;
    size_t dropped = 0;
    int n;
    while (dropped < DISCARD_BYTES && rl_mono_ms() < until &&
           (n = mg_read(r->conn, step, STEP_BYTES)) > 0)
        dropped += (size_t)n;
    (void)watch_remove(r->http->watch, &entry); /* cut or not: the connection ends now */
}
