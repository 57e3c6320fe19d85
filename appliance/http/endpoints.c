/* Routes of registered endpoints and of deliveries. The rules are the outbox's. Runs on the worker
 * of the connection; owns nothing beyond the request. */
#include "http/request.h"

#include <string.h>

#include "outbox/outbox.h"

#define ANSWER_BYTES (64u << 10)

/* The body as text for the rules to parse; an empty one needs no Content-Type. */
static enum rl_rc read_body(struct request *r, bool required, struct rl_err *err)
{
    enum rl_rc rc = required ? body_require_json(r, err) : RL_OK;
    if (rc == RL_OK)
        rc = body_read(r, err);
    if (rc == RL_OK && !required && r->body.len > 0)
        rc = body_require_json(r, err);
    return rc;
}

static const char *body_text(const struct request *r)
{
    return r->body.data ? r->body.data : "";
}

/* ---- endpoints ---- */

enum rl_rc http_endpoint_list(struct request *r, struct rl_err *err)
{
    struct page_query page;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, LIST_ANSWER_BYTES);
    enum rl_rc rc = page_parse(&r->query, false, false, &page, err);
    if (rc == RL_OK)
        rc = endpoint_list(r->http->tasks, &r->caller, &page, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_endpoint_create(struct request *r, struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    AUTO_JSON struct rl_json *made = NULL;
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = read_body(r, true, err);
    if (rc == RL_OK)
        rc = endpoint_create(r->http->tasks, &r->caller, body_text(r), r->body.len, &out, err);
    if (rc == RL_OK)
        rc = rl_json_parse(out.data, out.len, &made, err);
    if (rc != RL_OK)
        return rc;
    reply_header(r, "Location", "/api/v1/endpoints/%s",
                 rl_json_text(rl_json_get(made, "endpoint_id")));
    return reply_json(r, 201, &out, err);
}

enum rl_rc http_endpoint_get(struct request *r, struct rl_err *err)
{
    int64_t id;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = request_id_param(r, "endpoint", &id, err);
    if (rc == RL_OK)
        rc = endpoint_get(r->http->tasks, &r->caller, id, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_endpoint_update(struct request *r, struct rl_err *err)
{
    int64_t id;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = request_id_param(r, "endpoint", &id, err);
    if (rc == RL_OK)
        rc = read_body(r, true, err);
    if (rc == RL_OK)
        rc = endpoint_update(r->http->tasks, &r->caller, id, body_text(r), r->body.len, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_endpoint_delete(struct request *r, struct rl_err *err)
{
    int64_t id;
    enum rl_rc rc = request_id_param(r, "endpoint", &id, err);
    if (rc == RL_OK)
        rc = endpoint_delete(r->http->tasks, &r->caller, id, err);
    return rc == RL_OK ? reply_empty(r, 204) : rc;
}

enum rl_rc http_endpoint_rotate(struct request *r, struct rl_err *err)
{
    int64_t id;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = request_id_param(r, "endpoint", &id, err);
    if (rc == RL_OK)
        rc = read_body(r, false, err);
    if (rc == RL_OK)
        rc = endpoint_rotate(r->http->tasks, &r->caller, id, body_text(r), r->body.len, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_endpoint_test(struct request *r, struct rl_err *err)
{
    int64_t id;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = request_id_param(r, "endpoint", &id, err);
    if (rc == RL_OK)
        rc = endpoint_test(r->http->tasks, &r->caller, id, &out, err);
    return rc == RL_OK ? reply_json(r, 202, &out, err) : rc;
}

static enum rl_rc set_enabled(struct request *r, bool enable, struct rl_err *err)
{
    int64_t id;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = request_id_param(r, "endpoint", &id, err);
    if (rc == RL_OK)
        rc = endpoint_enable(r->http->tasks, &r->caller, id, enable, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_endpoint_enable(struct request *r, struct rl_err *err)
{
    return set_enabled(r, true, err);
}

enum rl_rc http_endpoint_disable(struct request *r, struct rl_err *err)
{
    return set_enabled(r, false, err);
}

/* ---- deliveries ---- */

static enum rl_rc parse_statuses(const char *text, unsigned *ret_mask, struct rl_err *err)
{
    unsigned mask = 0;
    for (const char *p = text;; p++) {
        enum delivery_status status;
        size_t len = strcspn(p, ",");
        if (!delivery_status_parse(p, len, &status))
            return rl_fail_field(err, RL_INVALID_FIELD, "status",
                                 "a list of PENDING, SUCCEEDED and FAILED");
        mask |= 1u << status;
        p += len;
        if (!*p)
            break;
    }
    *ret_mask = mask;
    return RL_OK;
}

enum rl_rc http_delivery_list(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"limit", "after", "order", "status", "endpoint_id", NULL};
    struct page_query page = {0};
    int64_t endpoint_id = -1;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, LIST_ANSWER_BYTES);
    enum rl_rc rc = query_only(&r->query, names, err);
    if (rc == RL_OK)
        rc = page_common(&r->query, false, &page, err);
    const char *status = query_get(&r->query, "status"),
               *endpoint = query_get(&r->query, "endpoint_id");
    if (rc == RL_OK && status)
        rc = parse_statuses(status, &page.statuses, err);
    if (rc == RL_OK && endpoint && strcmp(endpoint, "0") == 0)
        endpoint_id = 0; /* the tasks' own callback_urls */
    else if (rc == RL_OK && endpoint && !task_id_parse(endpoint, strlen(endpoint), &endpoint_id))
        rc = rl_fail_field(err, RL_INVALID_FIELD, "endpoint_id", "must be an endpoint's id or 0");
    if (rc == RL_OK)
        rc = delivery_list(r->http->tasks, &r->caller, endpoint_id, &page, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_task_deliveries(struct request *r, struct rl_err *err)
{
    int64_t id;
    struct page_query page;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, LIST_ANSWER_BYTES);
    enum rl_rc rc = request_id_param(r, "task", &id, err);
    if (rc == RL_OK)
        rc = page_parse(&r->query, false, true, &page, err);
    if (rc == RL_OK)
        rc = delivery_attempts(r->http->tasks, &r->caller, id, &page, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_delivery_resend(struct request *r, struct rl_err *err)
{
    int64_t id;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = request_id_param(r, "delivery", &id, err);
    if (rc == RL_OK)
        rc = delivery_resend(r->http->tasks, &r->caller, id, &out, err);
    return rc == RL_OK ? reply_json(r, 202, &out, err) : rc;
}

enum rl_rc http_deliveries_resend(struct request *r, struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = read_body(r, true, err);
    if (rc == RL_OK)
        rc = delivery_resend_failed(r->http->tasks, &r->caller, body_text(r), r->body.len, &out,
                                    err);
    return rc == RL_OK ? reply_json(r, 202, &out, err) : rc;
}
