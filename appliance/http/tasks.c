/* Routes of tasks: submit, list, get, history, cancel, links. The rules are task/'s; here are only
 * words and statuses. Runs on the worker of the connection; owns nothing beyond the request. */
#include "http/request.h"

#include <string.h>

#include "base/clock.h"
#include "base/crypto.h"

#define TASK_ANSWER_BYTES (1u << 20) /* a prompt, its negative and metadata, escaped */
#define EXPLAIN_BYTES     4096
#define LINK_LEAST_S      60
#define LINK_MOST_S       31536000

/* ---- lists ---- */

enum rl_rc http_task_list(struct request *r, struct rl_err *err)
{
    struct page_query page;
    enum rl_rc rc = page_parse(&r->query, true, false, &page, err);
    if (rc != RL_OK)
        return rc;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, LIST_ANSWER_BYTES);
    rc = task_list(r->http->tasks, &r->caller, &page, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_task_events(struct request *r, struct rl_err *err)
{
    int64_t id;
    struct page_query page;
    enum rl_rc rc = request_id_param(r, "task", &id, err);
    if (rc == RL_OK && stream_wanted(r))
        return stream_task(r, id, err);
    if (rc == RL_OK) /* a history is read from its beginning */
        rc = page_parse(&r->query, false, true, &page, err);
    if (rc != RL_OK)
        return rc;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, LIST_ANSWER_BYTES);
    rc = task_history(r->http->tasks, &r->caller, id, &page, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

/* ---- one task ---- */

/* The ETag of a body; true: the client has it, and 304 was answered. */
static bool not_modified(struct request *r, const struct rl_buf *out)
{
    uint8_t hash[RL_HASH_BYTES];
    char hex[33], etag[40];
    if (out->failed || !out->data)
        return false;
    rl_hash(out->data, out->len, hash);
    rl_hex(hash, 16, hex);
    int n = snprintf(etag, sizeof(etag), "\"%s\"", hex);
    if (n < 0 || (size_t)n >= sizeof(etag))
        return false;
    reply_header(r, "ETag", "%s", etag);
    if (!etag_listed(request_header(r, "If-None-Match"), etag))
        return false;
    (void)reply_empty(r, 304); /* always RL_OK */
    return true;
}

/* `explain`: one member more, NULL = none. */
static enum rl_rc reply_task_with(struct request *r, int status, const struct task *task,
                                  const char *explain, struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    struct rl_jw w;
    rl_buf_init(&out, TASK_ANSWER_BYTES);
    rl_jw_init(&w, &out, false);
    task_json(r->http->tasks, task, &w, NULL);
    if (explain && out.len > 0 && !out.failed) {
        out.len--; /* the object is opened again: its last byte was the brace */
        rl_jw_str(&w, "explain", explain);
        rl_jw_end_object(&w);
    }
    if ((!strcmp(r->method, "GET") || r->head) && not_modified(r, &out))
        return RL_OK;
    return reply_json(r, status, &out, err);
}

enum rl_rc reply_task(struct request *r, int status, const struct task *task, struct rl_err *err)
{
    return reply_task_with(r, status, task, NULL, err);
}

/* ?wait=S: not before the version passes after_version, the task is finished, or S seconds are
 * over. */
static enum rl_rc get_or_wait(struct request *r, int64_t id, struct task **ret_task,
                              struct rl_err *err)
{
    const char *wait = query_get(&r->query, "wait"),
               *version = query_get(&r->query, "after_version");
    int64_t wait_s = 0, after = 0;
    enum rl_rc rc = wait ? stream_wait_seconds(wait, "wait", &wait_s, err) : RL_OK;
    if (rc == RL_OK && version && strcmp(version, "0") != 0 &&
        !task_id_parse(version, strlen(version), &after))
        rc = rl_fail_field(err, RL_INVALID_FIELD, "after_version", "must be a version");
    if (rc == RL_OK && (!wait || version))
        return wait ? stream_wait_task(r, id, after, false, wait_s, ret_task, err)
                    : task_get(r->http->tasks, &r->caller, id, ret_task, err);
    if (rc != RL_OK)
        return rc;
    AUTO_TASK struct task *now = NULL; /* no version given: what is there now is known */
    rc = task_get(r->http->tasks, &r->caller, id, &now, err);
    return rc == RL_OK ? stream_wait_task(r, id, now->version, false, wait_s, ret_task, err) : rc;
}

enum rl_rc http_task_get(struct request *r, struct rl_err *err)
{
    int64_t id;
    AUTO_TASK struct task *task = NULL;
    AUTO_BUF struct rl_buf explain = {0};
    rl_buf_init(&explain, EXPLAIN_BYTES);
    const char *wanted = query_get(&r->query, "explain");
    enum rl_rc rc = request_id_param(r, "task", &id, err);
    if (rc == RL_OK && wanted && strcmp(wanted, "1") != 0)
        rc = rl_fail_field(err, RL_INVALID_FIELD, "explain", "must be 1");
    if (rc == RL_OK)
        rc = get_or_wait(r, id, &task, err);
    if (rc == RL_OK && wanted)
        rc = task_explain(r->http->tasks, task, &explain, err);
    if (rc != RL_OK)
        return rc;
    while (explain.len > 0 && explain.data[explain.len - 1] == ' ')
        explain.data[--explain.len] = '\0';
    return reply_task_with(r, 200, task, explain.data, err);
}

/* Prefer: wait=S (RFC 7240): the finished task when it ends in time. false: no such preference. */
static bool prefer_wait(struct request *r, int64_t *ret_s)
{
    const char *prefer = request_header(r, "Prefer"),
               *wait = prefer ? strstr(prefer, "wait=") : NULL;
    char text[8] = "";
    size_t len = wait ? strspn(wait + 5, "0123456789") : 0;
    if (!wait || len == 0 || len > 2)
        return false; /* an unusable preference is no error */
    memcpy(text, wait + 5, len);
    return stream_wait_seconds(text, "Prefer", ret_s, NULL) == RL_OK;
}

/* The answer to a submit; it exists by now, so waiting can only fail to wait. */
static enum rl_rc reply_submitted(struct request *r, struct task *task, bool replayed,
                                  struct rl_err *err)
{
    AUTO_TASK struct task *later = NULL;
    int64_t wait_s;
    bool ended = false;
    if (prefer_wait(r, &wait_s) &&
        stream_wait_task(r, task->task_id, 0, true, wait_s, &later, NULL) == RL_OK) {
        enum task_status status;
        ended = task_status_parse(later->status, &status) && task_status_terminal(status);
        reply_header(r, "Preference-Applied", "wait=%lld", (long long)wait_s);
    }
    return reply_task(r, replayed || ended ? 200 : 202, later ? later : task, err);
}

enum rl_rc http_task_submit(struct request *r, struct rl_err *err)
{
    size_t keys;
    const char *key = head_get(r->fields, r->field_count, "Idempotency-Key", &keys);
    enum rl_rc rc = body_require_json(r, err);
    if (rc != RL_OK)
        return rc;
    if (keys > 1 || (key && !idempotency_key_valid(key)))
        return rl_fail_field(err, RL_INVALID_FIELD, "Idempotency-Key",
                             "must be given once, as 1 to 255 visible ASCII characters");
    rc = body_read(r, err);
    if (rc != RL_OK)
        return rc;
    struct submit_reply reply = {0};
    rc = task_submit(r->http->tasks, &r->caller, r->body.data ? r->body.data : "", r->body.len, key,
                     &reply, err);
    if (rc != RL_OK)
        return rc;
    AUTO_TASK struct task *task = reply.task;
    reply_header(r, "Location", "/api/v1/tasks/%lld", (long long)task->task_id);
    if (reply.replayed)
        reply_header(r, "Idempotency-Replayed", "true");
    return reply_submitted(r, task, reply.replayed, err);
}

/* Empty, or {"mode": "soft" | "hard"}. */
static enum rl_rc parse_cancel_mode(struct request *r, enum cancel_mode *ret_mode,
                                    struct rl_err *err)
{
    static const char *const names[] = {"mode", NULL};
    *ret_mode = CANCEL_SOFT;
    bool announced = r->facts.chunked || r->facts.length > 0;
    if (!announced)
        return RL_OK;
    enum rl_rc rc = body_read(r, err);
    if (rc != RL_OK || r->body.len == 0)
        return rc;
    AUTO_JSON struct rl_json *root = NULL;
    rc = body_object(r, names, &root, err);
    if (rc != RL_OK)
        return rc;
    const struct rl_json *mode = rl_json_get(root, "mode");
    if (!mode)
        return RL_OK;
    const char *text = rl_json_text(mode);
    if (text && !strcmp(text, "hard"))
        *ret_mode = CANCEL_HARD;
    else if (!text || strcmp(text, "soft") != 0)
        return rl_fail_field(err, RL_INVALID_FIELD, "mode", "must be soft or hard");
    return RL_OK;
}

enum rl_rc http_task_cancel(struct request *r, struct rl_err *err)
{
    int64_t id;
    enum cancel_mode mode;
    AUTO_TASK struct task *task = NULL;
    enum rl_rc rc = request_id_param(r, "task", &id, err);
    if (rc == RL_OK)
        rc = parse_cancel_mode(r, &mode, err);
    if (rc == RL_OK)
        rc = task_cancel(r->http->tasks, &r->caller, id, mode, &task, err);
    if (rc != RL_OK)
        return rc;
    bool canceled = !strcmp(task->status, task_status_name(TASK_CANCELED));
    return reply_task(r, canceled ? 200 : 202, task, err);
}

/* ---- a link to the video, for somebody without a key ---- */

enum rl_rc http_task_link(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"expires_s", NULL};
    int64_t id, life_s = 0;
    char path[4096];
    AUTO_TASK struct task *task = NULL;
    AUTO_JSON struct rl_json *root = NULL;
    enum rl_rc rc = request_id_param(r, "task", &id, err);
    if (rc == RL_OK)
        rc = body_object(r, names, &root, err);
    if (rc == RL_OK && !rl_json_get(root, "expires_s"))
        rc = rl_fail_field(err, RL_INVALID_FIELD, "expires_s", "is missing");
    if (rc == RL_OK)
        rc = rl_json_int(rl_json_get(root, "expires_s"), "expires_s", LINK_LEAST_S, LINK_MOST_S,
                         &life_s, err);
    if (rc == RL_OK)
        rc = task_get(r->http->tasks, &r->caller, id, &task, err);
    if (rc == RL_OK) /* a link names one attempt's file: there must be one */
        rc = task_video_path(r->http->tasks, task, false, path, sizeof(path), err);
    if (rc != RL_OK)
        return rc;
    int64_t expires_s = rl_wall_ms() / 1000 + life_s;
    AUTO_BUF struct rl_buf out = {0}, url = {0};
    struct rl_jw w;
    rl_buf_init(&out, 4096);
    rl_buf_init(&url, 2048);
    task_download_url(r->http->tasks, task, expires_s, &url);
    rc = rl_buf_ok(&url, err);
    if (rc != RL_OK)
        return rc;
    rl_jw_init(&w, &out, false);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "url", url.data);
    rl_jw_time(&w, "expires_at", expires_s * 1000);
    rl_jw_end_object(&w);
    return reply_json(r, 200, &out, err);
}
