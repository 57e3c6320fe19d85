/* Owns a CivetWeb context of its own, apart from the server's. begin_request runs on its workers
 * and always answers, so that none of the library's file, form or CORS code is reachable. Every
 * connection ends with its answer. */
#include "http/receiver.h"

#include <civetweb.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"

#define BODY_LIMIT    ((size_t)1 << 20)
#define BODY_DEADLINE 10000 /* ms for a whole body, however slowly its bytes drip */

struct receiver {
    struct mg_context *mg;
    receiver_fn fn;
    void *user;
};

static void answer(struct mg_connection *conn, int status, const char *text)
{
    char head[256], length[64] = ""; /* a 204 has no body and says so by its status alone */
    if (status != 204)
        (void)snprintf(length, sizeof(length),
                       "Content-Type: text/plain\r\nContent-Length: %zu\r\n",
                       strlen(text)); /* fits */
    int n = snprintf(head, sizeof(head), "HTTP/1.1 %d %s\r\n%s%sConnection: close\r\n\r\n%s",
                     status, mg_get_response_code_text(conn, status), length,
                     status == 405 ? "Allow: POST\r\n" : "", text);
    if (n > 0 && (size_t)n < sizeof(head))
        (void)mg_write(conn, head, (size_t)n); /* a sender that is gone needs no answer */
}

/* false: answered already, it is too large, too slow or broken. */
static bool read_body(struct mg_connection *conn, struct rl_buf *body)
{
    const long long length = mg_get_request_info(conn)->content_length; /* -1 = not said */
    int64_t until = rl_mono_ms() + BODY_DEADLINE;
    char step[4096];
    int n = 0;
    bool late = false;
    while (!late && !body->failed && (length < 0 || (long long)body->len < length) &&
           (n = mg_read(conn, step, sizeof(step))) > 0) {
        rl_buf_append(body, step, (size_t)n);
        late = rl_mono_ms() > until;
    }
    bool whole = n >= 0 && !late && (length < 0 || (long long)body->len == length);
    if (body->failed)
        answer(conn, 413, "the body is too large\n");
    else if (!whole)
        answer(conn, 400, "the body is shorter than announced\n");
    return whole && !body->failed;
}

static int begin_request(struct mg_connection *conn)
{
    struct receiver *receiver = mg_get_user_data(mg_get_context(conn));
    AUTO_BUF struct rl_buf body = {0};
    rl_buf_init(&body, BODY_LIMIT);
    if (strcmp(mg_get_request_info(conn)->request_method, "POST") != 0) {
        answer(conn, 405, "this is `reeld listen`: it takes webhooks by POST\n");
        return 405;
    }
    if (!read_body(conn, &body))
        return 400;
    const struct rl_webhook hook = {.id = mg_get_header(conn, "webhook-id"),
                                    .timestamp = mg_get_header(conn, "webhook-timestamp"),
                                    .signature = mg_get_header(conn, "webhook-signature"),
                                    .body = body.data ? body.data : "",
                                    .body_len = body.len};
    int status = receiver->fn(receiver->user, &hook);
    answer(conn, status, "");
    return status;
}

static int http_error(struct mg_connection *conn, int status, const char *text)
{
    (void)text; /* the library's own words may repeat the request */
    answer(conn, status, "");
    return 0;
}

static int log_message(const struct mg_connection *conn, const char *message)
{
    (void)conn;
    (void)message; /* a broken request is the sender's matter; standard error is the user's */
    return 1;
}

enum rl_rc receiver_start(int port, receiver_fn fn, void *user, struct receiver **ret_receiver,
                          int *ret_port, struct rl_err *err)
{
    char listen[32];
    struct mg_server_port bound;
    (void)snprintf(listen, sizeof(listen), "127.0.0.1:%d", port); /* fits */
    const char *options[] = {"listening_ports",
                             listen,
                             "num_threads",
                             "8",
                             "enable_keep_alive",
                             "no",
                             "request_timeout_ms",
                             "5000",
                             "max_request_size",
                             "16384",
                             "decode_url",
                             "no",
                             "enable_directory_listing",
                             "no",
                             "access_control_allow_origin",
                             "",
                             "access_control_allow_methods",
                             "",
                             NULL};
    struct mg_callbacks callbacks = {
        .begin_request = begin_request, .http_error = http_error, .log_message = log_message};
    struct receiver *receiver = calloc(1, sizeof(*receiver));
    if (!receiver)
        return rl_fail(err, RL_NO_MEMORY, "no memory for the receiver");
    *receiver = (struct receiver){.fn = fn, .user = user};
    (void)mg_init_library(0); /* no TLS; counted, so a server beside it does not matter */
    receiver->mg = mg_start(&callbacks, receiver, options);
    if (!receiver->mg || mg_get_server_ports(receiver->mg, 1, &bound) != 1) {
        receiver_stop(receiver);
        return rl_fail(err, RL_IO_ERROR, "cannot listen on 127.0.0.1:%d; is the port taken?", port);
    }
    *ret_port = bound.port;
    *ret_receiver = receiver;
    return RL_OK;
}

void receiver_stop(struct receiver *receiver)
{
    if (!receiver)
        return;
    if (receiver->mg)
        mg_stop(receiver->mg);
    (void)mg_exit_library();
    free(receiver);
}
