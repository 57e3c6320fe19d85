/* Routes of tasks: submit, list, get, history, cancel. The rules are task/'s; here are only words
 * and statuses. Runs on the worker of the connection; owns nothing beyond the request. */
#include "http/request.h"

#include <string.h>

#include "base/crypto.h"

#define TASK_ANSWER_BYTES (1u << 20)  /* a prompt, its negative and metadata, escaped */
#define LIST_ANSWER_BYTES (64u << 20) /* 200 of the largest tasks */
#define LIMIT_DEFAULT     50
#define LIMIT_MAX         200

/* ---- lists ---- */

static enum rl_rc parse_statuses(const char *text, unsigned *ret_mask, struct rl_err *err)
{
    unsigned mask = 0;
    for (const char *p = text;; p++) {
        char name[16];
        size_t len = strcspn(p, ",");
        enum task_status status;
        if (len == 0 || len >= sizeof(name))
            return rl_fail_field(err, RL_INVALID_FIELD, "status",
                                 "a list of state names, as QUEUED,FAILED");
        memcpy(name, p, len);
        name[len] = '\0';
        if (!task_status_parse(name, &status))
            return rl_fail_field(err, RL_INVALID_FIELD, "status", "no such state: %s", name);
        mask |= 1u << status;
        p += len;
        if (!*p)
            break;
    }
    *ret_mask = mask;
    return RL_OK;
}

/* The parameters of a list; `with_status` allows the filter. */
static enum rl_rc parse_page(const struct query *query, bool with_status, bool ascending,
                             struct page_query *ret_page, struct rl_err *err)
{
    static const char *const names[] = {"limit", "after", "order", "status", NULL};
    static const char *const names_plain[] = {"limit", "after", "order", NULL};
    struct page_query page = {.limit = LIMIT_DEFAULT, .ascending = ascending};
    enum rl_rc rc = query_only(query, with_status ? names : names_plain, err);
    if (rc != RL_OK)
        return rc;
    const char *text = query_get(query, "limit");
    int64_t number;
    if (text) {
        if (!task_id_parse(text, strlen(text), &number) || number > LIMIT_MAX)
            return rl_fail_field(err, RL_INVALID_FIELD, "limit", "must be a number from 1 to %d",
                                 LIMIT_MAX);
        page.limit = (int)number;
    }
    text = query_get(query, "after");
    if (text && strcmp(text, "0") != 0 && !task_id_parse(text, strlen(text), &page.after))
        return rl_fail_field(err, RL_INVALID_FIELD, "after",
                             "must be the `next` of the page before");
    text = query_get(query, "order");
    if (text) {
        page.ascending = !strcmp(text, "asc");
        if (!page.ascending && strcmp(text, "desc") != 0)
            return rl_fail_field(err, RL_INVALID_FIELD, "order", "must be asc or desc");
    }
    text = query_get(query, "status");
    if (text) {
        rc = parse_statuses(text, &page.statuses, err);
        if (rc != RL_OK)
            return rc;
    }
    *ret_page = page;
    return RL_OK;
}

enum rl_rc http_task_list(struct request *r, struct rl_err *err)
{
    struct page_query page;
    enum rl_rc rc = parse_page(&r->query, true, false, &page, err);
    if (rc != RL_OK)
        return rc;
    AUTO_BUF struct rl_buf out;
    rl_buf_init(&out, LIST_ANSWER_BYTES);
    rc = task_list(r->http->tasks, &r->caller, &page, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_task_events(struct request *r, struct rl_err *err)
{
    int64_t id;
    struct page_query page;
    enum rl_rc rc = request_id_param(r, "task", &id, err);
    if (rc == RL_OK) /* a history is read from its beginning */
        rc = parse_page(&r->query, false, true, &page, err);
    if (rc != RL_OK)
        return rc;
    AUTO_BUF struct rl_buf out;
    rl_buf_init(&out, LIST_ANSWER_BYTES);
    rc = task_history(r->http->tasks, &r->caller, id, &page, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

/* ---- one task ---- */

static enum rl_rc reply_task(struct request *r, int status, const struct task *task,
                             struct rl_err *err)
{
    AUTO_BUF struct rl_buf out;
    struct rl_jw w;
    rl_buf_init(&out, TASK_ANSWER_BYTES);
    rl_jw_init(&w, &out, false);
    task_json(r->http->tasks, task, &w, NULL);
    if (!strcmp(r->method, "GET") || r->head) {
        uint8_t hash[RL_HASH_BYTES];
        char hex[33], etag[40];
        rl_hash(out.data ? out.data : "", out.len, hash);
        rl_hex(hash, 16, hex);
        int n = snprintf(etag, sizeof(etag), "\"%s\"", hex);
        if (n > 0 && (size_t)n < sizeof(etag) && !out.failed) {
            reply_header(r, "ETag", "%s", etag);
            if (etag_listed(request_header(r, "If-None-Match"), etag))
                return reply_empty(r, 304);
        }
    }
    return reply_json(r, status, &out, err);
}

enum rl_rc http_task_get(struct request *r, struct rl_err *err)
{
    int64_t id;
    AUTO_TASK struct task *task = NULL;
    enum rl_rc rc = request_id_param(r, "task", &id, err);
    if (rc == RL_OK)
        rc = task_get(r->http->tasks, &r->caller, id, &task, err);
    return rc == RL_OK ? reply_task(r, 200, task, err) : rc;
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
    return reply_task(r, reply.replayed ? 200 : 202, task, err);
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
