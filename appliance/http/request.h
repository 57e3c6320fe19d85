/* One request, and what the handlers of this module share. Private to http/. */
#ifndef RL_HTTP_REQUEST_H
#define RL_HTTP_REQUEST_H

#include <civetweb.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/json.h"
#include "http/address.h"
#include "http/head.h"
#include "http/limit.h"
#include "http/router.h"
#include "http/text.h"
#include "http/watch.h"
#include "task/task.h"

struct config;
struct outbox;
struct pool;
struct socket;

/* What became of deliveries of outside services (hooks.c). */
enum hook_result {
    HOOK_ACCEPTED,
    HOOK_REPEATED,
    HOOK_HEADERS, /* refused: a webhook-* header is missing or wrong */
    HOOK_TIME,    /* outside the window */
    HOOK_ADDRESS, /* not in the source's allow-list */
    HOOK_RATE,
    HOOK_BODY, /* too large or slow, or no JSON object */
    HOOK_SOURCE,
    HOOK_SIGNATURE,
    HOOK_BACKLOG, /* too many wait to be handled */
    HOOK_FAILED,  /* the disk is full, the store is down */
    HOOK_RESULTS
};
extern const char *const hook_result_names[HOOK_RESULTS];

/* The server: everything but the atomics is set before the first request and only read afterwards.
 */
struct http {
    const struct config *cfg;
    struct tasks *tasks;   /* borrowed */
    struct pool *pool;     /* borrowed; NULL in tests */
    struct outbox *outbox; /* borrowed; NULL in tests */
    struct mg_context *mg;
    struct watch *watch;
    struct limit *limit;
    struct address_list trusted; /* front proxies whose X-Forwarded-For counts */
    struct address_list clients; /* who may ask at all besides loopback; empty = anybody */
    int64_t began_ms;            /* rl_boot_ms of the start */
    char listen_ip[32];
    int port;
    int threads; /* ordinary requests at once */
    int workers; /* CivetWeb's threads */

    _Atomic int streams;           /* streams and long polls that wait now */
    _Atomic int sockets;           /* WebSockets open or being opened */
    _Atomic int connections;       /* connections that hold a thread now */
    _Atomic int strangers;         /* bodies being read of requests without a good key */
    _Atomic bool draining;         /* http_stop was called */
    _Atomic int64_t stops_ms;      /* rl_mono_ms of that; 0 = not yet */
    _Atomic bool backup_busy;      /* one backup at a time, until its last byte is out */
    _Atomic(const char *) unready; /* static text, NULL = ready */
    _Atomic int64_t answers[6];    /* since the start, by the first digit of the status */
    _Atomic int64_t turned_away;   /* 503 because all threads were busy */
    _Atomic int64_t limited;       /* 429 at the door */
    _Atomic int64_t hooks[HOOK_RESULTS];
    pthread_mutex_t lock; /* guards: in_flight, first_socket */
    pthread_cond_t idle;  /* in_flight became 0, or a socket has gone */
    int in_flight;        /* requests between begin_request and its return */
    struct socket *first_socket;
};

enum credential { CREDENTIAL_NONE, CREDENTIAL_KEY, CREDENTIAL_COOKIE, CREDENTIAL_SIGNATURE };

/* Lives on the worker's stack for one request. */
struct request {
    struct http *http;
    struct mg_connection *conn;
    const struct mg_request_info *info;
    const char *method; /* as sent; HEAD stays HEAD */
    const char *path;   /* verbatim, without the query */
    bool head;          /* answer without a body */
    struct head_field fields[HEAD_FIELDS_MAX];
    size_t field_count;
    struct head_facts facts;
    char id[65];             /* X-Request-Id */
    char param[ROUTE_PARAM]; /* the {…} segment of the path */
    struct query query;

    struct address client; /* who sent it, proxies set aside */
    enum credential credential;
    struct caller caller;
    int64_t session_expires_ms; /* with a cookie */

    struct rl_buf body; /* filled by body_read */
    bool body_done;     /* nothing of the body is left on the connection */
    bool body_cut;      /* the watch closed the reading side */

    struct watch_peer peer; /* between stream_enter and stream_leave; else its fd is -1 */

    int64_t retry_after_s; /* for a 429; 0 = the usual */
    struct rl_buf headers; /* extra lines of the answer's head */
    bool close;            /* the connection ends after this answer */
    bool answered;
    bool upgrade; /* CivetWeb goes on with this request: a WebSocket */
    int status;
    int64_t began_us;
};

/* ---- server.c ---- */
/* Are three quarters of the threads for ordinary requests taken? */
bool http_crowded(struct http *http);

/* ---- request.c ---- */
/* Fill `r` from the connection; the checks come after, so that even a refused head has an id and a
 * log line. */
void request_init(struct request *r, struct http *http, struct mg_connection *conn);
/* Head, path and host checks, then the query. */
enum rl_rc request_check(struct request *r, struct rl_err *err) RL_NODISCARD;
void request_free(struct request *r);
struct wire_ends request_ends(const struct request *r);
const char *request_header(const struct request *r, const char *name); /* NULL: absent */
/* The {…} segment as an id; RL_NOT_FOUND naming `what`. */
enum rl_rc request_id_param(const struct request *r, const char *what, int64_t *ret_id,
                            struct rl_err *err) RL_NODISCARD;

/* ---- body.c ---- */
/* Read the whole body into r->body. errors: RL_BODY_TOO_LARGE, RL_REQUEST_TIMEOUT, RL_BAD_REQUEST,
 * RL_NO_MEMORY. */
enum rl_rc body_read(struct request *r, struct rl_err *err) RL_NODISCARD;
/* Read a body that must be a JSON object with members from `names` only (NULL-terminated).
 * errors: body_read's, RL_UNSUPPORTED_MEDIA_TYPE, RL_MALFORMED_JSON, RL_INVALID_FIELD naming an
 * unknown member. */
enum rl_rc body_object(struct request *r, const char *const *names, struct rl_json **ret_root,
                       struct rl_err *err) RL_NODISCARD;
/* The member `name`, a list of 1..most ids as strings, into ids[most]; else RL_INVALID_FIELD. */
enum rl_rc body_ids(const struct rl_json *root, const char *name, int64_t *ids, size_t most,
                    size_t *ret_count, struct rl_err *err) RL_NODISCARD;
/* RL_UNSUPPORTED_MEDIA_TYPE unless Content-Type is JSON. */
enum rl_rc body_require_json(const struct request *r, struct rl_err *err) RL_NODISCARD;
/* After the answer: swallow what is still coming, for a moment, so that closing does not reset the
 * connection under the answer. */
void body_discard(struct request *r);
bool body_pending(const struct request *r);

/* ---- reply.c ---- */
int reply_status(enum rl_rc code); /* the only map from codes to HTTP statuses */
/* Add a line to the answer's head; control characters are refused (the line is dropped). */
void reply_header(struct request *r, const char *name, const char *fmt, ...) RL_PRINTF(3, 4);
struct reply {
    int status;
    const char *type;  /* NULL: no Content-Type */
    const void *bytes; /* borrowed */
    size_t len;
    const char *cache; /* NULL: no-store */
    const char *csp;   /* NULL: the one for data */
};
enum rl_rc reply_send(struct request *r, const struct reply *reply);
/* The same head for a body of `length` bytes that the caller writes afterwards; false: the client
 * is gone. */
bool reply_head(struct request *r, const struct reply *reply, int64_t length);
/* JSON text from `out` (an append that was lost becomes an error). */
enum rl_rc reply_json(struct request *r, int status, const struct rl_buf *out, struct rl_err *err);
enum rl_rc reply_empty(struct request *r, int status);
/* The problem document of `err`. */
void reply_error(struct request *r, const struct rl_err *err);
/* For CivetWeb's own refusals, before there is a request. */
void reply_bare_error(struct mg_connection *conn, int status);
/* A write failed or must not go on: end the connection. */
void reply_broken(struct request *r);

/* ---- auth.c ---- */
#define SESSION_COOKIE "reeld_session"
/* Who is asking? Fills credential and caller. errors: RL_UNAUTHORIZED, RL_FORBIDDEN (not an owner;
 * a cookie from another origin). */
enum rl_rc auth_check(struct request *r, enum route_auth auth, struct rl_err *err) RL_NODISCARD;
/* RL_FORBIDDEN when an Origin is sent that is not this host (`required`: or none is sent). */
enum rl_rc auth_check_origin(const struct request *r, bool required, struct rl_err *err)
    RL_NODISCARD;
/* For a GET that changes something or costs much: RL_FORBIDDEN when a cookie signed it and the
 * browser does not say that a page of this very host, or its user, asks. */
enum rl_rc auth_check_fetch_site(const struct request *r, struct rl_err *err) RL_NODISCARD;

/* ---- door.c: the limits, before any body is read ---- */
/* Find out who the client is, and count the request of an address that is not loopback.
 * errors: RL_RATE_LIMITED (as all here: the headers and retry_after_s are set). */
enum rl_rc door_address(struct request *r, struct rl_err *err) RL_NODISCARD;
/* Has this address failed to sign in too often just now? Counts nothing. */
enum rl_rc door_may_sign_in(struct request *r, struct rl_err *err) RL_NODISCARD;
/* A sign-in failed: count it, and return err's code, or RL_RATE_LIMITED from the last one on. */
enum rl_rc door_sign_in_failed(struct request *r, struct rl_err *err) RL_NODISCARD;
/* Count the request of the key that r->caller signed in with, a submit or anything else. */
enum rl_rc door_key(struct request *r, bool submit, struct rl_err *err) RL_NODISCARD;

/* The 429 of a limit that said no, with its headers: RL_RATE_LIMITED. */
enum rl_rc door_refuse(struct request *r, const struct limit_answer *answer, const char *what,
                       struct rl_err *err);

/* ---- paging.c ---- */
/* "QUEUED,FAILED" as a mask of states; RL_INVALID_FIELD naming status. */
enum rl_rc statuses_parse(const char *text, unsigned *ret_mask, struct rl_err *err) RL_NODISCARD;
/* The parameters of a list, and no others; `with_status` allows the filter, `ascending` is the
 * order when none is asked for. */
enum rl_rc page_parse(const struct query *query, bool with_status, bool ascending,
                      struct page_query *ret_page, struct rl_err *err) RL_NODISCARD;
/* limit, after and order only, whatever else the query holds. */
enum rl_rc page_common(const struct query *query, bool ascending, struct page_query *ret_page,
                       struct rl_err *err) RL_NODISCARD;
#define LIST_ANSWER_BYTES (64u << 20) /* 200 of the largest tasks */

/* ---- tasks.c ---- */
/* The task as the answer; with an ETag for GET. */
enum rl_rc reply_task(struct request *r, int status, const struct task *task, struct rl_err *err);

/* ---- stream.c ---- */
/* Take a place in the budget of streams and long polls. RL_UNAVAILABLE with Retry-After when all
 * are taken. */
enum rl_rc stream_enter(struct request *r, struct rl_err *err) RL_NODISCARD;
void stream_leave(struct request *r);
/* Has the client left (known from stream_enter on), or is the server stopping? Either rings the
 * hub, the first within a second. */
bool stream_over(const struct request *r);
bool stream_wanted(const struct request *r); /* Accept: text/event-stream */
/* The events of one task as a stream; answers until the task is finished or the client is gone. */
enum rl_rc stream_task(struct request *r, int64_t task_id, struct rl_err *err);
/* "0".."60" of `field`. */
enum rl_rc stream_wait_seconds(const char *text, const char *field, int64_t *ret_s,
                               struct rl_err *err) RL_NODISCARD;
/* Wait until the task's version passes `after`, or (until_end) until it is finished, at most
 * wait_s. Returns new: the task as it is then. */
enum rl_rc stream_wait_task(struct request *r, int64_t task_id, int64_t after, bool until_end,
                            int64_t wait_s, struct task **ret_task, struct rl_err *err)
    RL_NODISCARD;
enum rl_rc event_page(struct request *r, struct rl_err *err);

/* ---- socket.c ---- */
void socket_register(struct http *http);               /* after the server's start */
void socket_release(const struct mg_connection *conn); /* when a connection closes */

/* ---- files.c ---- */
/* Write bytes [from, from + len) of fd after reply_head. */
void file_stream(struct request *r, int fd, int64_t from, int64_t len);

/* ---- handlers ---- */
enum rl_rc http_task_submit(struct request *r, struct rl_err *err); /* tasks.c */
enum rl_rc http_task_list(struct request *r, struct rl_err *err);
enum rl_rc http_task_get(struct request *r, struct rl_err *err);
enum rl_rc http_task_events(struct request *r, struct rl_err *err);
enum rl_rc http_task_cancel(struct request *r, struct rl_err *err);
enum rl_rc http_task_link(struct request *r, struct rl_err *err);
enum rl_rc http_events(struct request *r, struct rl_err *err);     /* stream.c */
enum rl_rc http_socket(struct request *r, struct rl_err *err);     /* socket.c */
enum rl_rc http_task_video(struct request *r, struct rl_err *err); /* files.c */
enum rl_rc http_task_poster(struct request *r, struct rl_err *err);
enum rl_rc http_dead_list(struct request *r, struct rl_err *err); /* dead.c */
enum rl_rc http_dead_replay(struct request *r, struct rl_err *err);
enum rl_rc http_dead_replay_many(struct request *r, struct rl_err *err);
enum rl_rc http_dead_dismiss(struct request *r, struct rl_err *err);
enum rl_rc http_endpoint_list(struct request *r, struct rl_err *err); /* endpoints.c */
enum rl_rc http_endpoint_create(struct request *r, struct rl_err *err);
enum rl_rc http_endpoint_get(struct request *r, struct rl_err *err);
enum rl_rc http_endpoint_update(struct request *r, struct rl_err *err);
enum rl_rc http_endpoint_delete(struct request *r, struct rl_err *err);
enum rl_rc http_endpoint_rotate(struct request *r, struct rl_err *err);
enum rl_rc http_endpoint_test(struct request *r, struct rl_err *err);
enum rl_rc http_endpoint_enable(struct request *r, struct rl_err *err);
enum rl_rc http_endpoint_disable(struct request *r, struct rl_err *err);
enum rl_rc http_delivery_list(struct request *r, struct rl_err *err);
enum rl_rc http_task_deliveries(struct request *r, struct rl_err *err);
enum rl_rc http_delivery_resend(struct request *r, struct rl_err *err);
enum rl_rc http_deliveries_resend(struct request *r, struct rl_err *err);
enum rl_rc http_feed_list(struct request *r, struct rl_err *err); /* feeds.c */
enum rl_rc http_feed_read(struct request *r, struct rl_err *err);
enum rl_rc http_feed_create(struct request *r, struct rl_err *err);
enum rl_rc http_feed_delete(struct request *r, struct rl_err *err);
enum rl_rc http_feed_state(struct request *r, struct rl_err *err);
enum rl_rc http_feed_ack(struct request *r, struct rl_err *err);
enum rl_rc http_feed_extend(struct request *r, struct rl_err *err);
enum rl_rc http_feed_seek(struct request *r, struct rl_err *err);
enum rl_rc http_hook_event(struct request *r, struct rl_err *err); /* hooks.c */
enum rl_rc http_hook_list(struct request *r, struct rl_err *err);
enum rl_rc http_hook_create(struct request *r, struct rl_err *err);
enum rl_rc http_hook_get(struct request *r, struct rl_err *err);
enum rl_rc http_hook_update(struct request *r, struct rl_err *err);
enum rl_rc http_hook_delete(struct request *r, struct rl_err *err);
enum rl_rc http_hook_rotate(struct request *r, struct rl_err *err);
enum rl_rc http_hook_events(struct request *r, struct rl_err *err);
enum rl_rc http_hook_handled(struct request *r, struct rl_err *err);
enum rl_rc http_queue_list(struct request *r, struct rl_err *err); /* operate.c */
enum rl_rc http_queue_pause(struct request *r, struct rl_err *err);
enum rl_rc http_queue_resume(struct request *r, struct rl_err *err);
enum rl_rc http_queue_drain(struct request *r, struct rl_err *err);
enum rl_rc http_workers(struct request *r, struct rl_err *err);
enum rl_rc http_repair(struct request *r, struct rl_err *err);
enum rl_rc http_stats(struct request *r, struct rl_err *err);
enum rl_rc http_metrics(struct request *r, struct rl_err *err); /* metrics.c */
enum rl_rc http_engines(struct request *r, struct rl_err *err); /* admin.c */
enum rl_rc http_key_list(struct request *r, struct rl_err *err);
enum rl_rc http_key_add(struct request *r, struct rl_err *err);
enum rl_rc http_key_revoke(struct request *r, struct rl_err *err);
enum rl_rc http_callback_secret(struct request *r, struct rl_err *err);
enum rl_rc http_backup(struct request *r, struct rl_err *err);
enum rl_rc http_session_create(struct request *r, struct rl_err *err); /* session.c */
enum rl_rc http_session_get(struct request *r, struct rl_err *err);
enum rl_rc http_session_delete(struct request *r, struct rl_err *err);
enum rl_rc http_session_link(struct request *r, struct rl_err *err);
enum rl_rc http_sign_in(struct request *r, struct rl_err *err);
enum rl_rc http_health(struct request *r, struct rl_err *err); /* health.c */
enum rl_rc http_ready(struct request *r, struct rl_err *err);
enum rl_rc http_openapi(struct request *r, struct rl_err *err); /* page.c */
enum rl_rc http_index(struct request *r, struct rl_err *err);
/* An embedded asset at r->path; *ret_known false when there is none. */
enum rl_rc http_asset(struct request *r, bool *ret_known, struct rl_err *err);

#endif
