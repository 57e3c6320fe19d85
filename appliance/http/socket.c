/* WebSocket /api/v1/ws: the same events as the streams, for clients that subscribe and unsubscribe.
 * CivetWeb reserves memory by the length that a frame claims, so nobody reaches its frame reader
 * unauthenticated: the router checks the key and a small cap before it lets the upgrade pass. The
 * worker of the connection reads; a thread of the socket writes. Invariants: one writer per socket;
 * a socket's state lives from the upgrade to its close; the writer has ended before CivetWeb closes
 * the connection, for it closes under the lock that every write takes; nothing is queued, a slow
 * reader is cut off and resumes by seq. */
#include "http/request.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "config/config.h"
#include "events/events.h"

#define SOCKET_TASKS    64   /* subscriptions to single tasks per socket */
#define MESSAGE_BYTES   8192 /* a client's message */
#define PROGRESS_MS     500
#define PROGRESS_RUNS   32
#define FAREWELL_MS     1000 /* for the answer to a close frame */
#define PLACE_RETRY_S   5
#define CLOSE_NORMAL    1000
#define CLOSE_GOING     1001
#define CLOSE_POLICY    1008
#define CLOSE_TOO_BIG   1009
#define CLOSE_TRY_LATER 1013

struct socket {
    struct socket *next, *prev; /* the open ones; guarded by http->lock */
    struct http *http;
    struct mg_connection *conn;
    int fd;      /* the connection's, as long as it lives */
    bool broken; /* a frame was cut; guarded by the connection's lock */
    struct caller caller;
    pthread_t writer;
    bool writing; /* the thread runs; the worker's own */

    atomic_bool wanted;   /* subscriptions changed, an answer waits, or the connection ends: the
                             writer does not wait */
    pthread_mutex_t lock; /* guards: all, tasks, task_count, seen, moves, answer, over, ended */
    bool all;
    int64_t tasks[SOCKET_TASKS];
    size_t task_count;
    int64_t seen;         /* up to here events were taken to be said */
    uint64_t moves;       /* how often the client has set `seen` */
    struct rl_buf answer; /* what the reader wants said */
    bool over;            /* the connection ends */
    bool ended;           /* the writer has no more to do */
    pthread_cond_t turn;  /* over or ended became true */

    struct event_batch batch; /* the writer's own, like what follows */
    bool behind;              /* more events may be there already */
    struct run_progress runs[PROGRESS_RUNS];
    size_t run_count;
};

/* A whole frame, or the connection ends: nothing may follow a part of one. */
static bool say_frame(struct socket *s, int opcode, const char *bytes, size_t len)
{
    int whole = len > 0 ? (int)len : 2; /* the header counts only when it is alone */
    mg_lock_connection(s->conn);        /* recursive; the other thread's frame waits */
    bool ok = !s->broken && mg_websocket_write(s->conn, opcode, bytes, len) == whole;
    if (!ok && !s->broken) {
        s->broken = true;
        (void)shutdown(s->fd, SHUT_RDWR); /* the client may have gone before */
    }
    mg_unlock_connection(s->conn);
    return ok;
}

static bool say(struct socket *s, const char *text, size_t len)
{
    return say_frame(s, MG_WEBSOCKET_OPCODE_TEXT, text, len);
}

static void say_close(struct socket *s, int code, const char *reason)
{
    char frame[125];
    size_t len = strlen(reason) < sizeof frame - 2 ? strlen(reason) : sizeof frame - 2;
    frame[0] = (char)(code >> 8);
    frame[1] = (char)(code & 0xff);
    memcpy(frame + 2, reason, len);
    (void)say_frame(s, MG_WEBSOCKET_OPCODE_CONNECTION_CLOSE, frame, len + 2); /* it ends anyway */
}

/* ---- the writer ---- */

static bool is_over(struct socket *s)
{
    pthread_mutex_lock(&s->lock);
    bool over = s->over;
    pthread_mutex_unlock(&s->lock);
    return over;
}

static bool subscribed_locked(const struct socket *s, int64_t task_id)
{
    bool found = s->all;
    for (size_t i = 0; i < s->task_count && !found; i++)
        found = s->tasks[i] == task_id;
    return found;
}

static bool say_wrapped(struct socket *s, const char *kind, const char *json)
{
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 1 << 20);
    rl_buf_fmt(&out, "{\"event\":\"%s\",\"data\":%s}", kind, json);
    return !out.failed && say(s, out.data, out.len);
}

/* What the reader left to say. */
static bool say_answers(struct socket *s)
{
    pthread_mutex_lock(&s->lock);
    bool ok = !s->answer.failed; /* else the client says more than it listens */
    char *text = ok && s->answer.len ? rl_buf_take(&s->answer) : NULL;
    rl_buf_free(&s->answer);
    rl_buf_init(&s->answer, MESSAGE_BYTES * 4);
    atomic_store(&s->wanted, s->over);
    pthread_mutex_unlock(&s->lock);
    for (char *line = text; ok && line && *line && !is_over(s);) {
        char *end = strchr(line, '\n');
        size_t len = end ? (size_t)(end - line) : strlen(line);
        ok = say(s, line, len);
        line += len + (end != NULL);
    }
    free(text);
    return ok;
}

/* The next events. `seen` moves as soon as they are taken: whoever subscribes while they are said
 * is told what comes after them, or sets its own position, and what is left of them is dropped
 * then: it comes again from there. */
static bool say_events(struct socket *s)
{
    struct event_filter any = {.task_id = 0};
    pthread_mutex_lock(&s->lock);
    int64_t after = s->seen;
    uint64_t moves = s->moves;
    pthread_mutex_unlock(&s->lock);
    if (events_after(s->http->tasks, &s->caller, &any, after, &s->batch, NULL) != RL_OK)
        return false;
    pthread_mutex_lock(&s->lock);
    bool stayed = s->moves == moves;
    if (stayed)
        s->seen = s->batch.last;
    pthread_mutex_unlock(&s->lock);
    bool ok = !stayed || !s->batch.gap || say_wrapped(s, "gap", "{}");
    for (size_t i = 0; ok && stayed && i < s->batch.count; i++) {
        pthread_mutex_lock(&s->lock);
        stayed = s->moves == moves;
        bool wanted = stayed && !s->over && subscribed_locked(s, s->batch.events[i].task_id);
        pthread_mutex_unlock(&s->lock);
        ok = !wanted || say_wrapped(s, "status", s->batch.events[i].json);
    }
    s->behind = !stayed || s->batch.last > after;
    event_batch_clear(&s->batch);
    return ok;
}

static bool say_progress(struct socket *s)
{
    struct run_progress now[PROGRESS_RUNS];
    size_t n = runs_progress(s->http->tasks, &s->caller, 0, now, PROGRESS_RUNS);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        bool known = run_progress_seen(&now[i], s->runs, s->run_count);
        pthread_mutex_lock(&s->lock);
        bool wanted = !s->over && subscribed_locked(s, now[i].task_id);
        pthread_mutex_unlock(&s->lock);
        AUTO_BUF struct rl_buf text = {0};
        rl_buf_init(&text, 1024);
        if (!known && wanted &&
            task_progress_json(s->http->tasks, &s->caller, now[i].task_id, &text, NULL) == RL_OK)
            ok = say_wrapped(s, "progress", text.data);
    }
    memcpy(s->runs, now, n * sizeof now[0]);
    s->run_count = n;
    return ok;
}

/* Nothing more will be said: the client has a moment to close, then the worker stops reading, for
 * the place is not the client's to keep. */
static void see_off(struct socket *s)
{
    struct timespec until = rl_deadline(CLOCK_MONOTONIC, FAREWELL_MS);
    pthread_mutex_lock(&s->lock);
    while (!s->over &&
           pthread_cond_clockwait(&s->turn, &s->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
        ;
    bool stays = !s->over;
    s->over = true; /* on_data looks at it: what has arrived can still be read */
    pthread_mutex_unlock(&s->lock);
    if (stays)
        (void)shutdown(s->fd, SHUT_RD); /* the client may go at this moment */
    pthread_mutex_lock(&s->lock);
    s->ended = true;
    (void)pthread_cond_signal(&s->turn);
    pthread_mutex_unlock(&s->lock);
}

static void *writer_main(void *arg)
{
    struct socket *s = arg;
    struct hub *hub = tasks_hub(s->http->tasks);
    struct hub_filter mine = event_hub_filter(&s->caller, &(struct event_filter){.task_id = 0});
    mine.flag = &s->wanted;
    int64_t beat_ms = rl_mono_ms(), progress_ms = 0;
    uint64_t keys = 0; /* key_generation when the key was last looked at */
    bool ok = true;
    for (;;) {
        uint64_t tick = hub_tick(hub);
        if (!ok || is_over(s))
            break;
        if (atomic_load(&s->http->draining)) {
            say_close(s, CLOSE_GOING, "the server is stopping");
            break;
        }
        uint64_t now_keys = key_generation(s->http->tasks);
        if (now_keys != keys &&
            key_check(s->http->tasks, s->caller.key_id, NULL) == RL_UNAUTHORIZED) {
            say_close(s, CLOSE_POLICY, "the key was revoked");
            break;
        }
        keys = now_keys;
        ok = say_answers(s) && say_events(s);
        int64_t now = rl_mono_ms();
        if (ok && now - progress_ms >= PROGRESS_MS) {
            ok = say_progress(s);
            progress_ms = now;
        }
        if (ok && now - beat_ms >= config_int(s->http->cfg, CFG_HTTP_HEARTBEAT_MS)) {
            ok = say_frame(s, MG_WEBSOCKET_OPCODE_PING, "", 0);
            beat_ms = now;
        }
        if (ok && !s->behind)
            (void)hub_wait(hub, &mine, tick, runs_active(s->http->tasks) > 0 ? PROGRESS_MS : 1000);
    }
    if (!ok && !is_over(s))
        say_close(s, CLOSE_TRY_LATER, "connect again and resume by seq");
    see_off(s);
    return NULL;
}

/* ---- the reader: what clients say ---- */

static void answer_locked(struct socket *s, const char *op, const char *code, const char *detail)
{
    struct rl_jw w;
    rl_jw_init(&w, &s->answer, false);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "event", code ? "error" : op);
    rl_jw_object(&w, "data");
    if (code) {
        rl_jw_str(&w, "code", code);
        rl_jw_str(&w, "detail", detail);
    } else {
        rl_jw_i64(&w, "seq", s->seen);
        rl_jw_bool(&w, "all", s->all);
        rl_jw_i64(&w, "tasks", (int64_t)s->task_count);
    }
    rl_jw_end_object(&w);
    rl_jw_end_object(&w);
    rl_buf_str(&s->answer, "\n");
    atomic_store(&s->wanted, true);
}

static void drop_task_locked(struct socket *s, int64_t task_id)
{
    for (size_t i = 0; i < s->task_count; i++)
        if (s->tasks[i] == task_id)
            s->tasks[i--] = s->tasks[--s->task_count];
}

/* What a client's message asks for. */
struct wish {
    const char *op;
    bool all;
    bool has_after;
    int64_t after;
    const struct rl_json *task_ids; /* checked; NULL = none given */
};

static enum rl_rc check_ids(const struct rl_json *ids, struct rl_err *err)
{
    int64_t id;
    if (rl_json_type(ids) != RL_JSON_ARRAY)
        return rl_fail_field(err, RL_INVALID_FIELD, "task_ids", "must be a list of task ids");
    for (const struct rl_json *v = rl_json_child(ids); v; v = rl_json_next(v)) {
        const char *text = rl_json_text(v);
        if (!text || !task_id_parse(text, strlen(text), &id))
            return rl_fail_field(err, RL_INVALID_FIELD, "task_ids",
                                 "holds something that is no task id");
    }
    return RL_OK;
}

static enum rl_rc parse_wish(const struct rl_json *root, struct wish *ret_wish, struct rl_err *err)
{
    struct wish wish = {.op = rl_json_text(rl_json_get(root, "op"))};
    bool ping = wish.op && !strcmp(wish.op, "ping");
    bool has_all = false;
    if (!wish.op ||
        (!ping && strcmp(wish.op, "subscribe") != 0 && strcmp(wish.op, "unsubscribe") != 0))
        return rl_fail_field(err, RL_INVALID_FIELD, "op", "must be subscribe, unsubscribe or ping");
    for (const struct rl_json *v = rl_json_child(root); v; v = rl_json_next(v)) {
        const char *name = rl_json_name(v);
        enum rl_rc rc = RL_OK;
        if (!strcmp(name, "op"))
            continue;
        if (!ping && !strcmp(name, "task_ids")) {
            wish.task_ids = v;
            rc = check_ids(v, err);
        } else if (!ping && !strcmp(name, "after")) {
            wish.has_after = true;
            rc = rl_json_int(v, "after", 0, RL_JSON_MAX_INT, &wish.after, err);
        } else if (!ping && !strcmp(name, "all")) {
            has_all = true;
            wish.all = rl_json_is_true(v);
            if (rl_json_type(v) != RL_JSON_BOOL)
                rc = rl_fail_field(err, RL_INVALID_FIELD, "all", "must be true or false");
        } else {
            rc = rl_fail_field(err, RL_INVALID_FIELD, name, "unknown field");
        }
        if (rc != RL_OK)
            return rc;
    }
    if (!ping && !has_all && !wish.task_ids)
        return rl_fail_field(err, RL_INVALID_FIELD, "task_ids", "or all is required");
    *ret_wish = wish;
    return RL_OK;
}

/* All of a wish, or nothing of it. */
static enum rl_rc apply_locked(struct socket *s, const struct wish *wish, struct rl_err *err)
{
    bool add = wish->op[0] == 's';
    size_t before = s->task_count;
    int64_t id;
    for (const struct rl_json *v = rl_json_child(wish->task_ids); v; v = rl_json_next(v)) {
        const char *text = rl_json_text(v);
        (void)task_id_parse(text, strlen(text), &id); /* checked */
        if (!add) {
            drop_task_locked(s, id);
        } else if (!subscribed_locked(s, id)) {
            if (s->task_count == SOCKET_TASKS) {
                s->task_count = before;
                return rl_fail_field(err, RL_INVALID_FIELD, "task_ids",
                                     "at most %d tasks per socket; subscribe to all", SOCKET_TASKS);
            }
            s->tasks[s->task_count++] = id;
        }
    }
    if (wish->has_after) {
        s->seen = wish->after;
        s->moves++;
    }
    if (wish->all)
        s->all = add;
    if (wish->all && !add)
        s->task_count = 0;
    return RL_OK;
}

/* {"op": "subscribe" | "unsubscribe", "task_ids"?: […], "all"?: true, "after"?: seq} or {"op":
 * "ping"} */
static void understand(struct socket *s, const char *text, size_t len)
{
    AUTO_JSON struct rl_json *root = NULL;
    struct rl_err err = {.code = RL_OK};
    struct wish wish = {.op = ""};
    enum rl_rc rc = rl_json_parse(text, len, &root, &err);
    if (rc == RL_OK)
        rc = parse_wish(root, &wish, &err);
    pthread_mutex_lock(&s->lock);
    if (rc == RL_OK && !strcmp(wish.op, "ping"))
        answer_locked(s, "pong", NULL, NULL);
    else if (rc == RL_OK && (rc = apply_locked(s, &wish, &err)) == RL_OK)
        answer_locked(s, wish.op[0] == 's' ? "subscribed" : "unsubscribed", NULL, NULL);
    else
        answer_locked(s, NULL, rl_code_name(rc), err.reason);
    pthread_mutex_unlock(&s->lock);
    hub_wake(tasks_hub(s->http->tasks), &s->wanted);
}

/* ---- places ---- */

/* A place among all sockets, and among those of an app's key: one app must not have them all.
 * errors: RL_RATE_LIMITED, RL_UNAVAILABLE. */
static enum rl_rc take_place(struct request *r, struct socket *s, struct rl_err *err)
{
    struct http *http = r->http;
    int most = (int)config_int(http->cfg, CFG_HTTP_SOCKETS);
    int64_t most_of_key = config_int(http->cfg, CFG_HTTP_SOCKETS_PER_KEY), of_key = 0;
    (void)pthread_mutex_lock(&http->lock);
    for (const struct socket *other = http->first_socket; other; other = other->next)
        of_key += other->caller.key_id == s->caller.key_id;
    bool key_full = !s->caller.owner && of_key >= most_of_key;
    bool full = atomic_load(&http->sockets) >= most;
    if (!key_full && !full) {
        s->next = http->first_socket;
        if (s->next)
            s->next->prev = s;
        http->first_socket = s;
        atomic_fetch_add(&http->sockets, 1);
    }
    (void)pthread_mutex_unlock(&http->lock);
    const struct limit_answer answer = {
        .limit = most_of_key, .reset_s = PLACE_RETRY_S, .wait_s = PLACE_RETRY_S};
    if (key_full)
        return door_refuse(r, &answer, "sockets of this key (http.sockets_per_key)", err);
    if (full)
        return rl_fail(err, RL_UNAVAILABLE, "all %d sockets are in use (http.sockets)", most);
    return RL_OK;
}

static void leave_place(struct socket *s)
{
    struct http *http = s->http;
    (void)pthread_mutex_lock(&http->lock);
    if (s->next)
        s->next->prev = s->prev;
    if (s->prev)
        s->prev->next = s->next;
    else
        http->first_socket = s->next;
    atomic_fetch_sub(&http->sockets, 1);
    (void)pthread_cond_broadcast(&http->idle);
    (void)pthread_mutex_unlock(&http->lock);
}

/* ---- CivetWeb's call-backs ---- */

static int on_connect(const struct mg_connection *conn, void *data)
{
    (void)data;
    return mg_get_user_connection_data(conn) ? 0 : 1; /* only what the router let pass */
}

static void on_ready(struct mg_connection *conn, void *data)
{
    (void)data;
    struct socket *s = mg_get_user_connection_data(conn);
    s->conn = conn;
    s->writing = pthread_create(&s->writer, NULL, writer_main, s) == 0;
    if (!s->writing) {
        say_close(s, CLOSE_TRY_LATER, "no thread for this socket");
        mg_disable_connection_keep_alive(conn); /* here it ends the reading before it begins */
    }
}

static int on_data(struct mg_connection *conn, int bits, char *text, size_t len, void *data)
{
    (void)data;
    struct socket *s = mg_get_user_connection_data(conn);
    int opcode = bits & 0xf;
    if (is_over(s) || opcode == MG_WEBSOCKET_OPCODE_CONNECTION_CLOSE)
        return 0;
    if (opcode == MG_WEBSOCKET_OPCODE_PING)
        return say_frame(s, MG_WEBSOCKET_OPCODE_PONG, text, len);
    if (opcode == MG_WEBSOCKET_OPCODE_PONG)
        return 1;
    if (len > MESSAGE_BYTES) {
        say_close(s, CLOSE_TOO_BIG, "a message is at most 8192 bytes");
        return 0;
    }
    if (opcode != MG_WEBSOCKET_OPCODE_TEXT || !(bits & 0x80)) {
        say_close(s, CLOSE_POLICY, "whole text messages only");
        return 0;
    }
    understand(s, text, len);
    return 1;
}

/* CivetWeb calls this after every on_ready, when the worker has stopped reading, and without the
 * connection's lock: here the writer can still finish what it writes. */
static void on_close(const struct mg_connection *conn, void *data)
{
    (void)data;
    struct socket *s = mg_get_user_connection_data(conn);
    if (!s->writing)
        return;
    pthread_mutex_lock(&s->lock);
    s->over = true;
    atomic_store(&s->wanted, true);
    (void)pthread_cond_signal(&s->turn);
    pthread_mutex_unlock(&s->lock);
    hub_wake(tasks_hub(s->http->tasks), &s->wanted);
    struct timespec until = rl_deadline(CLOCK_MONOTONIC, FAREWELL_MS);
    pthread_mutex_lock(&s->lock);
    while (!s->ended &&
           pthread_cond_clockwait(&s->turn, &s->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
        ;
    bool stuck = !s->ended;
    pthread_mutex_unlock(&s->lock);
    if (stuck)
        (void)shutdown(s->fd, SHUT_RDWR); /* its write ends: the client does not take it */
    pthread_join(s->writer, NULL);
    s->writing = false;
}

/* Runs under the connection's lock, also when the upgrade failed half-way: then no writer was ever
 * started. Nothing here may wait for a write. */
void socket_release(const struct mg_connection *conn)
{
    struct socket *s = mg_get_user_connection_data(conn);
    if (!s)
        return;
    event_batch_clear(&s->batch);
    rl_buf_free(&s->answer);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->turn);
    leave_place(s);
    free(s);
}

void socket_register(struct http *http)
{
    mg_set_websocket_handler(http->mg, "/api/v1/ws$", on_connect, on_ready, on_data, on_close,
                             http);
}

/* ---- the door ---- */

static bool is_upgrade(const struct request *r)
{
    const char *upgrade = request_header(r, "Upgrade"),
               *connection = request_header(r, "Connection");
    return upgrade && connection && !strcasecmp(upgrade, "websocket") &&
           strcasestr(connection, "upgrade") && request_header(r, "Sec-WebSocket-Key");
}

enum rl_rc http_socket(struct request *r, struct rl_err *err)
{
    const char *version = request_header(r, "Sec-WebSocket-Version");
    if (!is_upgrade(r))
        return rl_fail(err, RL_BAD_REQUEST, "this path speaks WebSocket");
    if (!version || strcmp(version, "13") != 0)
        return rl_fail_field(err, RL_BAD_REQUEST, "Sec-WebSocket-Version", "must be 13");
    enum rl_rc rc = auth_check_origin(r, r->credential == CREDENTIAL_COOKIE, err);
    if (rc != RL_OK)
        return rc;
    AUTO_FREE struct socket *s = calloc(1, sizeof *s);
    if (!s)
        return rl_fail(err, RL_NO_MEMORY, "socket");
    s->http = r->http;
    s->caller = r->caller;
    rc = take_place(r, s, err);
    if (rc != RL_OK)
        return rc;
    struct wire_ends ends = request_ends(r);
    s->fd = wire_find(&ends);
    if (s->fd < 0) {
        leave_place(s);
        return rl_fail(err, RL_UNAVAILABLE, "too many files are open");
    }
    s->seen = events_last(r->http->tasks);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->turn, NULL);
    rl_buf_init(&s->answer, MESSAGE_BYTES * 4);
    mg_set_user_connection_data(r->conn, STEAL(s));
    r->upgrade = true; /* begin_request lets CivetWeb go on */
    return RL_OK;
}
