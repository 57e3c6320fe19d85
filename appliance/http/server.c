/* Owns the CivetWeb context, its options and the thread budgets, and runs each request through one
 * router. begin_request runs on CivetWeb's workers (100 KiB stacks, one per connection), start and
 * stop on the main thread. Invariants: begin_request always answers, so none of CivetWeb's file,
 * form or CORS code is reachable; every request is counted in flight until its answer has left, so
 * that a stop loses none. */
#include "http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "events/events.h"
#include "http/request.h"

#define GOODBYE_MS    2000
#define SPARE_WORKERS 8 /* so that a full house can still be told so */

/* ---- one request ---- */

static enum rl_rc dispatch(struct request *r, struct rl_err *err)
{
    size_t count;
    const struct route *routes = http_routes(&count);
    struct route_match match;
    enum rl_rc rc = door_address(r, err);
    if (rc != RL_OK)
        return rc;
    router_find(routes, count, r->method, r->path, &match);
    (void)rl_copy_str(r->param, sizeof(r->param), match.param); /* same size: fits */
    if (match.path_known && !match.route) {
        reply_header(r, "Allow", "%s", match.allow);
        if (!strcmp(r->method, "OPTIONS"))
            return reply_empty(r, 204);
        return rl_fail(err, RL_METHOD_NOT_ALLOWED, "this path takes %s", match.allow);
    }
    if (!match.route) {
        bool known = false;
        rc = http_asset(r, &known, err);
        return known ? rc : rl_fail(err, RL_NOT_FOUND, "nothing is served at this path");
    }
    rc = auth_check(r, match.route->auth, err);
    if (rc == RL_OK)
        rc = door_key(r, match.route->handler == http_task_submit, err);
    return rc == RL_OK ? match.route->handler(r, err) : rc;
}

/* A probe must get its answer even from a full or draining server. */
static bool is_probe(const struct request *r)
{
    return !strcmp(r->path, "/healthz") || !strcmp(r->path, "/readyz");
}

bool http_crowded(struct http *http)
{
    int held = atomic_load(&http->streams) + atomic_load(&http->sockets);
    return (atomic_load(&http->connections) - held) * 4 >= http->threads * 3;
}

/* Thread budgets: in a crowd connections are not kept, beyond the budget requests are turned away.
 */
static enum rl_rc admit(struct request *r, int in_flight, struct rl_err *err)
{
    struct http *http = r->http;
    int connections = atomic_load(&http->connections);
    if (http_crowded(http))
        r->close = true;
    if (is_probe(r))
        return RL_OK;
    if (atomic_load(&http->draining))
        return rl_fail(err, RL_UNAVAILABLE, "the server is stopping");
    int ordinary = in_flight - atomic_load(&http->streams);
    if (ordinary > http->threads || connections > http->workers - SPARE_WORKERS / 2) {
        atomic_fetch_add(&http->turned_away, 1);
        return rl_fail(err, RL_UNAVAILABLE, "all threads are busy");
    }
    return RL_OK;
}

static void answer(struct request *r, int in_flight)
{
    struct rl_err err = {0};
    enum rl_rc rc = request_check(r, &err);
    if (rc == RL_OK)
        rc = admit(r, in_flight, &err);
    if (rc == RL_OK)
        rc = dispatch(r, &err);
    if (rc == RL_UNAUTHORIZED)
        rc = door_sign_in_failed(r, &err);
    if (rc != RL_OK) {
        err.code = rc;
        if (r->answered)
            reply_broken(r); /* the head is out; only ending the connection can tell */
        else
            reply_error(r, &err);
    }
    if (r->close && !r->upgrade)
        body_discard(r);
}

static void log_request(const struct request *r)
{
    char path[256];
    rl_log(RL_LOG_DEBUG, "http_request",
           "request_id=%s method=%s path=%s http_status=%d user_id=%s duration_ms=%lld", r->id,
           r->method, rl_log_quote(r->path ? r->path : "", path, sizeof(path)), r->status,
           r->caller.user_id[0] ? r->caller.user_id : "-",
           (long long)((rl_mono_us() - r->began_us) / 1000));
}

static int begin_request(struct mg_connection *conn)
{
    struct http *http = mg_get_user_data(mg_get_context(conn));
    (void)pthread_mutex_lock(&http->lock);
    int in_flight = ++http->in_flight;
    (void)pthread_mutex_unlock(&http->lock);

    struct request r;
    request_init(&r, http, conn);
    answer(&r, in_flight);
    log_request(&r);
    int status = r.upgrade ? 0 : r.status > 0 ? r.status : 500;
    request_free(&r);

    (void)pthread_mutex_lock(&http->lock);
    if (--http->in_flight == 0)
        (void)pthread_cond_broadcast(&http->idle);
    (void)pthread_mutex_unlock(&http->lock);
    return status; /* 0: CivetWeb goes on with the upgrade that the router let pass */
}

/* ---- CivetWeb's other call-backs ---- */

static int http_error(struct mg_connection *conn, int status, const char *text)
{
    (void)text; /* CivetWeb's own words may repeat the request */
    reply_bare_error(conn, status);
    return 0;
}

static int log_message(const struct mg_connection *conn, const char *message)
{
    char text[512];
    rl_log(conn ? RL_LOG_DEBUG : RL_LOG_WARN, "civetweb", "message=%s",
           rl_log_quote(message, text, sizeof(text)));
    return 1;
}

static int init_connection(const struct mg_connection *conn, void **conn_data)
{
    struct http *http = mg_get_user_data(mg_get_context(conn));
    (void)conn_data; /* nothing is kept per connection */
    atomic_fetch_add(&http->connections, 1);
    if (http_crowded(http))
        watch_crowd(http->watch, http->port,
                    config_int(http->cfg, CFG_HTTP_REQUEST_TIMEOUT_MS) / 2);
    return 0;
}

static void connection_close(const struct mg_connection *conn)
{
    struct http *http = mg_get_user_data(mg_get_context(conn));
    socket_release(conn);
    atomic_fetch_sub(&http->connections, 1);
}

/* The watch's thread: streams look whether it is their client that has left. */
static void on_left(void *user)
{
    struct http *http = user;
    hub_ring(tasks_hub(http->tasks));
}

/* ---- start and stop ---- */

static enum rl_rc parse_listen(struct http *http, const char *listen, struct rl_err *err)
{
    const char *colon = strrchr(listen, ':');
    struct in_addr addr;
    char *end = NULL;
    size_t len = colon ? (size_t)(colon - listen) : 0;
    long port = colon && colon[1] >= '0' && colon[1] <= '9' ? strtol(colon + 1, &end, 10) : -1;
    if (len == 0 || len >= sizeof(http->listen_ip) || port < 0 || port > 65535 || *end)
        return rl_fail_field(err, RL_INVALID_FIELD, "listen",
                             "must be an IPv4 address and a port, as 127.0.0.1:8080");
    memcpy(http->listen_ip, listen, len);
    http->listen_ip[len] = '\0';
    if (inet_pton(AF_INET, http->listen_ip, &addr) != 1)
        return rl_fail_field(err, RL_INVALID_FIELD, "listen",
                             "%s is not an IPv4 address (IPv6 and names belong to a front proxy)",
                             http->listen_ip);
    http->port = (int)port;
    return RL_OK;
}

/* CivetWeb does not say why it could not listen; binding once more does. */
static enum rl_rc bind_error(const struct http *http, const char *text, struct rl_err *err)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)http->port)};
    (void)inet_pton(AF_INET, http->listen_ip, &addr.sin_addr); /* checked by parse_listen */
    AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); /* as CivetWeb does */
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 || listen(fd, 1) != 0)
        return rl_fail(err, RL_IO_ERROR, "cannot listen on %s:%d: %s", http->listen_ip, http->port,
                       strerror(errno));
    return rl_fail(err, RL_IO_ERROR, "cannot start the HTTP server on %s:%d: %s", http->listen_ip,
                   http->port, *text ? text : "no reason given");
}

static enum rl_rc start_civetweb(struct http *http, struct rl_err *err)
{
    char listen[64], workers[16], request_ms[16], idle_ms[16], text[256] = "";
    int n1 = snprintf(listen, sizeof(listen), "%s:%d", http->listen_ip, http->port);
    int n2 = snprintf(workers, sizeof(workers), "%d", http->workers);
    int n3 = snprintf(request_ms, sizeof(request_ms), "%lld",
                      (long long)config_int(http->cfg, CFG_HTTP_REQUEST_TIMEOUT_MS));
    int n4 = snprintf(idle_ms, sizeof(idle_ms), "%lld",
                      (long long)config_int(http->cfg, CFG_HTTP_KEEP_ALIVE_MS));
    if (n1 < 0 || n2 < 0 || n3 < 0 || n4 < 0)
        return rl_fail(err, RL_INTERNAL, "cannot format the server's options");
    const char *options[] = {"listening_ports",
                             listen,
                             "num_threads",
                             workers,
                             "connection_queue",
                             "1024",
                             "listen_backlog",
                             "1024",
                             "enable_keep_alive",
                             "yes",
                             "keep_alive_timeout_ms",
                             idle_ms,
                             "request_timeout_ms",
                             request_ms,
                             "max_request_size",
                             "16384",
                             "tcp_nodelay",
                             "1",
                             "decode_url",
                             "no",
                             "enable_directory_listing",
                             "no",
                             "access_control_allow_origin",
                             "",
                             "access_control_allow_methods",
                             "",
                             NULL};
    /* No log_access: the library would format a line with the query in it, by localtime(), which is
     * not thread-safe; log_request does it. */
    struct mg_callbacks callbacks = {.begin_request = begin_request,
                                     .http_error = http_error,
                                     .log_message = log_message,
                                     .init_connection = init_connection,
                                     .connection_close = connection_close};
    struct mg_init_data init = {&callbacks, http, options};
    struct mg_error_data error = {NULL, text, sizeof(text)};
    (void)mg_init_library(0); /* no TLS: it cannot work in this library */
    http->mg = mg_start2(&init, &error);
    if (!http->mg) {
        (void)mg_exit_library();
        return bind_error(http, text, err);
    }
    return RL_OK;
}

static void http_free(struct http *http)
{
    watch_stop(http->watch);
    limit_free(http->limit);
    address_list_free(&http->trusted);
    address_list_free(&http->clients);
    (void)pthread_mutex_destroy(&http->lock);
    (void)pthread_cond_destroy(&http->idle);
    free(http);
}

enum rl_rc http_start(struct tasks *tasks, struct pool *pool, struct outbox *outbox,
                      struct http **ret_http, int *ret_port, struct rl_err *err)
{
    struct http *http = calloc(1, sizeof(*http));
    if (!http)
        return rl_fail(err, RL_NO_MEMORY, "no memory for the HTTP server");
    http->tasks = tasks;
    http->pool = pool;
    http->outbox = outbox;
    http->cfg = tasks_config(tasks);
    http->threads = (int)config_int(http->cfg, CFG_HTTP_THREADS);
    http->workers = http->threads + (int)config_int(http->cfg, CFG_HTTP_STREAM_THREADS) +
                    (int)config_int(http->cfg, CFG_HTTP_SOCKETS) + SPARE_WORKERS;
    (void)pthread_mutex_init(&http->lock, NULL); /* cannot fail with default attributes */
    (void)pthread_cond_init(&http->idle, NULL);
    http->began_ms = rl_boot_ms();
    http->limit = limit_new();
    enum rl_rc rc = http->limit ? RL_OK : rl_fail(err, RL_NO_MEMORY, "no memory for the limits");
    if (rc == RL_OK)
        rc = parse_listen(http, config_text(http->cfg, CFG_LISTEN), err);
    if (rc == RL_OK)
        rc = address_list_parse(config_text(http->cfg, CFG_TRUSTED_PROXIES),
                                "limit.trusted_proxies", &http->trusted, err);
    if (rc == RL_OK)
        rc = address_list_parse(config_text(http->cfg, CFG_LIMIT_CLIENTS), "limit.clients",
                                &http->clients, err);
    if (rc == RL_OK)
        rc = watch_start(on_left, http, &http->watch, err);
    if (rc == RL_OK)
        rc = start_civetweb(http, err);
    if (rc != RL_OK) {
        http_free(http);
        return rc;
    }
    socket_register(http);
    struct mg_server_port port;
    if (mg_get_server_ports(http->mg, 1, &port) == 1)
        http->port = port.port;
    if (strcmp(mg_version(), "1.15") != 0)
        rl_log(RL_LOG_WARN, "http_library", "version=%s expected=1.15", mg_version());
    *ret_port = http->port;
    *ret_http = http;
    return RL_OK;
}

void http_set_unready(struct http *http, const char *reason)
{
    atomic_store(&http->unready, reason);
}

void http_stop(struct http *http, int64_t wait_ms)
{
    if (!http)
        return;
    atomic_store(&http->stops_ms, rl_mono_ms());
    atomic_store(&http->draining, true);
    hub_ring(tasks_hub(http->tasks)); /* streams end */
    struct timespec until = rl_deadline(CLOCK_MONOTONIC, wait_ms);
    (void)pthread_mutex_lock(&http->lock);
    while (http->in_flight > 0 &&
           pthread_cond_clockwait(&http->idle, &http->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
        ;
    int left = http->in_flight;
    /* Sockets say goodbye before the library cuts them; who does not answer is not waited for. */
    until = rl_deadline(CLOCK_MONOTONIC, wait_ms < GOODBYE_MS ? wait_ms : GOODBYE_MS);
    while (atomic_load(&http->sockets) > 0 &&
           pthread_cond_clockwait(&http->idle, &http->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
        ;
    (void)pthread_mutex_unlock(&http->lock);
    if (left > 0)
        rl_log(RL_LOG_WARN, "http_stop", "requests_cut=%d waited_ms=%lld", left,
               (long long)wait_ms);
    wire_hang_up(http->port); /* the library's threads would look every two seconds only */
    mg_stop(http->mg);
    (void)mg_exit_library();
    http_free(http);
}

const char *http_version(void)
{
    return mg_version();
}
