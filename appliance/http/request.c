/* Builds the request that the handlers see from CivetWeb's and refuses unusable ones. Runs on the
 * worker of the connection; a request dies with its answer. Invariant: nothing of CivetWeb's URL
 * decoding or file code is used. */
#include "http/request.h"

#include <string.h>

#include "base/clock.h"
#include "base/crypto.h"
#include "config/config.h"

void request_init(struct request *r, struct http *http, struct mg_connection *conn)
{
    *r = (struct request){.http = http, .conn = conn, .info = mg_get_request_info(conn)};
    r->began_us = rl_mono_us();
    r->method = r->info->request_method ? r->info->request_method : "";
    r->path = r->info->local_uri_raw;
    r->head = !strcmp(r->method, "HEAD");
    rl_buf_init(&r->headers, 4096);
    r->peer.fd = -1;
    rl_buf_init(&r->body, (size_t)config_int(http->cfg, CFG_HTTP_BODY_LIMIT));
    for (int i = 0; i < r->info->num_headers && i < HEAD_FIELDS_MAX; i++)
        r->fields[r->field_count++] =
            (struct head_field){r->info->http_headers[i].name, r->info->http_headers[i].value};
    const char *id = head_get(r->fields, r->field_count, "X-Request-Id", NULL);
    if (request_id_valid(id)) {
        (void)rl_copy_str(r->id, sizeof(r->id), id); /* at most 64 characters: fits */
    } else {
        uint8_t random[8];
        rl_random(random, sizeof(random));
        rl_hex(random, sizeof(random), r->id);
    }
    r->close = !head_keep_alive(r->fields, r->field_count, r->info->http_version);
}

/* White space behind a value is no part of it (RFC 9110, 5.5); the library leaves it there. The
 * text lies in the connection's own buffer. */
static void trim_values(struct request *r)
{
    for (size_t i = 0; i < r->field_count; i++) {
        char *value = (char *)(uintptr_t)r->fields[i].value;
        size_t len = strlen(value);
        while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
            value[--len] = '\0';
    }
}

enum rl_rc request_check(struct request *r, struct rl_err *err)
{
    enum rl_rc rc = head_check(r->fields, r->field_count, r->info->http_version, &r->facts, err);
    if (rc == RL_OK && !head_layout_ok(r->fields, r->field_count))
        rc = rl_fail(err, RL_BAD_REQUEST,
                     "a header line with a space before the colon, a bare LF or a folded value");
    if (rc == RL_OK && r->info->request_uri[0] != '/')
        rc = rl_fail(err, RL_BAD_REQUEST, "the request target must begin with a slash");
    if (rc == RL_OK)
        rc = head_check_path(r->path, err);
    if (rc != RL_OK) {
        r->close = true; /* what follows on this connection cannot be trusted to be a request */
        return rc;
    }
    trim_values(r); /* not before: head_layout_ok measures them */
    r->body_done = !r->facts.chunked && r->facts.length == 0;
    r->close = r->close || r->facts.chunked;
    if (!host_allowed(r->facts.host, r->http->listen_ip,
                      config_text(r->http->cfg, CFG_HTTP_ALLOWED_HOSTS)))
        return rl_fail(err, RL_FORBIDDEN,
                       "this Host is not served (http.allowed_hosts lists more names)");
    return query_parse(r->info->query_string, &r->query, err);
}

void request_free(struct request *r)
{
    query_free(&r->query);
    rl_buf_free(&r->body);
    rl_buf_free(&r->headers);
}

struct wire_ends request_ends(const struct request *r)
{
    return wire_ends(r->info->remote_addr, r->info->remote_port, r->info->server_port);
}

const char *request_header(const struct request *r, const char *name)
{
    return head_get(r->fields, r->field_count, name, NULL);
}

enum rl_rc request_id_param(const struct request *r, const char *what, int64_t *ret_id,
                            struct rl_err *err)
{
    if (!task_id_parse(r->param, strlen(r->param), ret_id))
        return rl_fail(err, RL_NOT_FOUND, "no such %s", what);
    return RL_OK;
}
