/* Writes answers: the one map from result codes to HTTP statuses, problem documents (RFC 9457), and
 * the head that every answer carries. Runs on the worker of the connection. Invariants: one answer
 * per request; head and body leave in one write unless the body is large; no header value holds a
 * control character. */
#include "http/request.h"

#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"

#define ONE_WRITE_BYTES (1u << 20) /* a body up to this size is copied behind its head */
#define FULL_RETRY_S    10         /* a quota, a queue, a disk: they empty by finished tasks */
#define DATA_CSP        "default-src 'none'; frame-ancestors 'none'"

int reply_status(enum rl_rc code)
{
    switch (code) {
    case RL_OK:
        return 200;
    case RL_MALFORMED_JSON:
    case RL_BAD_REQUEST:
        return 400;
    case RL_UNAUTHORIZED:
        return 401;
    case RL_FORBIDDEN:
        return 403;
    case RL_NOT_FOUND:
    case RL_TASK_EXPIRED:
    case RL_VIDEO_NOT_READY:
        return 404;
    case RL_METHOD_NOT_ALLOWED:
        return 405;
    case RL_REQUEST_TIMEOUT:
        return 408;
    case RL_TASK_FINISHED:
    case RL_CONFLICT:
    case RL_LEASE_LOST:
        return 409;
    case RL_BODY_TOO_LARGE:
        return 413;
    case RL_UNSUPPORTED_MEDIA_TYPE:
        return 415;
    case RL_RANGE_NOT_SATISFIABLE:
        return 416;
    case RL_INVALID_FIELD:
    case RL_IDEMPOTENCY_KEY_REUSED:
    case RL_INPUT_ERROR:
    case RL_ADDRESS_REFUSED:
        return 422;
    case RL_RATE_LIMITED:
    case RL_TOO_MANY_PENDING_TASKS:
    case RL_QUEUE_FULL:
        return 429;
    case RL_UNAVAILABLE:
    case RL_NO_MEMORY:
        return 503;
    case RL_DISK_FULL:
        return 507;
    case RL_STALE:
    case RL_CANCELED:
    case RL_ENGINE_ERROR:
    case RL_ENGINE_GONE:
    case RL_OUTPUT_INVALID:
    case RL_ENCODER_ERROR:
    case RL_GPU_ERROR:
    case RL_OUT_OF_GPU_MEMORY:
    case RL_QUEUE_TIMEOUT:
    case RL_PROCESSING_TIMEOUT:
    case RL_WORKER_CRASH:
    case RL_ROW_UNREADABLE:
    case RL_IO_ERROR:
    case RL_STORE_ERROR:
    case RL_NETWORK_ERROR:
    case RL_LOCKED:
    case RL_INTERNAL:
    case RL_CODE_COUNT:
        break;
    }
    return 500;
}

static const char *status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } texts[] = {{200, "OK"},
                 {201, "Created"},
                 {202, "Accepted"},
                 {204, "No Content"},
                 {206, "Partial Content"},
                 {303, "See Other"},
                 {304, "Not Modified"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {409, "Conflict"},
                 {413, "Content Too Large"},
                 {415, "Unsupported Media Type"},
                 {416, "Range Not Satisfiable"},
                 {422, "Unprocessable Content"},
                 {429, "Too Many Requests"},
                 {500, "Internal Server Error"},
                 {503, "Service Unavailable"},
                 {507, "Insufficient Storage"}};
    for (size_t i = 0; i < RL_ARRAY_LEN(texts); i++)
        if (texts[i].status == status)
            return texts[i].text;
    return "Unknown";
}

void reply_header(struct request *r, const char *name, const char *fmt, ...)
{
    char value[1024];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(value, sizeof(value), fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(value))
        return;
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return;
    rl_buf_fmt(&r->headers, "%s: %s\r\n", name, value);
}

/* A body of `length` bytes follows, or for HEAD would; -1: the status has none. */
static void write_head(struct request *r, const struct reply *reply, int64_t length,
                       struct rl_buf *out)
{
    char date[HTTP_DATE];
    http_date_format(rl_wall_ms() / 1000, date);
    r->close = r->close || body_pending(r) || atomic_load(&r->http->draining);
    rl_buf_fmt(out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", reply->status, status_text(reply->status),
               date);
    if (reply->type)
        rl_buf_fmt(out, "Content-Type: %s\r\n", reply->type);
    if (length >= 0)
        rl_buf_fmt(out, "Content-Length: %lld\r\n", (long long)length);
    rl_buf_fmt(out,
               "Connection: %s\r\nCache-Control: %s\r\nX-Request-Id: %s\r\n"
               "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
               "Content-Security-Policy: %s\r\n",
               r->close ? "close" : "keep-alive", reply->cache ? reply->cache : "no-store", r->id,
               reply->csp ? reply->csp : DATA_CSP);
    rl_buf_append(out, r->headers.data, r->headers.len);
    rl_buf_str(out, "\r\n");
}

void reply_broken(struct request *r)
{
    r->close = true;
    mg_disable_connection_keep_alive(r->conn);
}

static bool write_all(struct request *r, const void *bytes, size_t len)
{
    bool ok = len <= INT32_MAX && mg_write(r->conn, bytes, len) == (int)len;
    if (!ok)
        reply_broken(r);
    return ok;
}

static bool send_answer(struct request *r, const struct reply *reply, int64_t length,
                        const void *bytes, size_t len)
{
    AUTO_BUF struct rl_buf out = {0};
    bool together = len <= ONE_WRITE_BYTES;
    rl_buf_init(&out, 16384 + ONE_WRITE_BYTES);
    r->answered = true;
    r->status = reply->status;
    /* Counted before it leaves: whoever has the answer finds it in the metrics. */
    if (r->status >= 100 && r->status < 600)
        atomic_fetch_add(&r->http->answers[r->status / 100], 1);
    write_head(r, reply, length, &out);
    if (together && len > 0)
        rl_buf_append(&out, bytes, len);
    if (r->close)
        mg_disable_connection_keep_alive(r->conn);
    if (rl_buf_ok(&out, NULL) != RL_OK) {
        reply_broken(r); /* no memory even for the head: closing is all that is left */
        return false;
    }
    return write_all(r, out.data, out.len) && (together || write_all(r, bytes, len));
}

enum rl_rc reply_send(struct request *r, const struct reply *reply)
{
    bool no_body = reply->status == 204 || reply->status == 304;
    bool write_body = !no_body && !r->head;
    (void)send_answer(r, reply, no_body ? -1 : (int64_t)reply->len, reply->bytes,
                      write_body ? reply->len : 0); /* a client that left is no error of ours */
    return RL_OK;
}

bool reply_head(struct request *r, const struct reply *reply, int64_t length)
{
    return send_answer(r, reply, length, NULL, 0) && !r->head;
}

enum rl_rc reply_json(struct request *r, int status, const struct rl_buf *out, struct rl_err *err)
{
    enum rl_rc rc = rl_buf_ok(out, err);
    if (rc != RL_OK)
        return rc == RL_NO_MEMORY ? rc : rl_fail(err, RL_INTERNAL, "the answer is too large");
    return reply_send(
        r, &(struct reply){
               .status = status, .type = "application/json", .bytes = out->data, .len = out->len});
}

enum rl_rc reply_empty(struct request *r, int status)
{
    return reply_send(r, &(struct reply){.status = status});
}

/* Text for a client: what may be cut in the middle of a character is made ASCII. */
static const char *clean_text(char *text)
{
    if (!rl_utf8_valid(text, strlen(text)))
        for (char *p = text; *p; p++)
            if ((unsigned char)*p >= 0x80)
                *p = '?';
    return text;
}

static void problem_json(const struct rl_err *err, const char *request_id, struct rl_buf *out)
{
    struct rl_err copy = *err;
    int status = reply_status(err->code);
    if (status == 500) { /* the reason may name files; it is in the log under this id */
        copy.field[0] = '\0';
        int n =
            snprintf(copy.reason, sizeof(copy.reason),
                     "something failed inside the server; its log names request_id %s", request_id);
        if (n < 0)
            copy.reason[0] = '\0';
    }
    struct rl_jw w;
    rl_jw_init(&w, out, false);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "type", "about:blank");
    rl_jw_str(&w, "title", status_text(status));
    rl_jw_i64(&w, "status", status);
    rl_jw_str(&w, "detail", clean_text(copy.reason));
    rl_jw_str(&w, "code", rl_code_name(err->code));
    rl_jw_array(&w, "errors");
    if (copy.field[0]) {
        rl_jw_object(&w, NULL);
        rl_jw_str(&w, "field", clean_text(copy.field));
        rl_jw_str(&w, "code", rl_code_name(err->code));
        rl_jw_str(&w, "detail", copy.reason);
        rl_jw_end_object(&w);
    }
    rl_jw_end_array(&w);
    rl_jw_end_object(&w);
}

void reply_error(struct request *r, const struct rl_err *err)
{
    int status = reply_status(err->code);
    if (status >= 500) {
        char reason[512];
        rl_log(status == 500 ? RL_LOG_ERROR : RL_LOG_WARN, "http_error",
               "request_id=%s code=%s http_status=%d reason=%s", r->id, rl_code_name(err->code),
               status, rl_log_quote(err->reason, reason, sizeof(reason)));
    }
    if (err->code == RL_UNAUTHORIZED)
        reply_header(r, "WWW-Authenticate", "Bearer realm=\"reeld\"");
    if (status == 503)
        reply_header(r, "Retry-After", "%lld",
                     (long long)(r->retry_after_s > 0 ? r->retry_after_s : 1));
    if (status == 429 || status == 507)
        reply_header(r, "Retry-After", "%lld",
                     (long long)(r->retry_after_s > 0 ? r->retry_after_s : FULL_RETRY_S));
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 8192);
    problem_json(err, r->id, &out);
    if (rl_buf_ok(&out, NULL) != RL_OK)
        rl_buf_clear(&out); /* the status line still says it */
    (void)reply_send(r, &(struct reply){.status = status,
                                        .type = "application/problem+json",
                                        .bytes = out.data,
                                        .len = out.len});
}

void reply_bare_error(struct mg_connection *conn, int status)
{
    struct rl_err err = {.code = status == 408                   ? RL_REQUEST_TIMEOUT
                                 : status < 500 || status == 505 ? RL_BAD_REQUEST
                                                                 : RL_INTERNAL};
    (void)rl_copy_str(err.reason, sizeof(err.reason),
                      "the request head is not usable HTTP/1.1"); /* fits */
    AUTO_BUF struct rl_buf out = {0}, body = {0};
    rl_buf_init(&out, 8192);
    rl_buf_init(&body, 4096);
    problem_json(&err, "-", &body);
    int answer = reply_status(err.code);
    char date[HTTP_DATE];
    http_date_format(rl_wall_ms() / 1000, date);
    rl_buf_fmt(&out,
               "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: application/problem+json\r\n"
               "Content-Length: %zu\r\nConnection: close\r\nCache-Control: no-store\r\n"
               "X-Content-Type-Options: nosniff\r\n\r\n%s",
               answer, status_text(answer), date, body.len, body.data ? body.data : "");
    mg_disable_connection_keep_alive(conn);
    if (rl_buf_ok(&out, NULL) == RL_OK)
        (void)mg_write(conn, out.data, out.len); /* the connection ends either way */
}
