/* Live streams: Server-Sent Events of one task or of all, and long polls. Each holds the worker of
 * its connection (CivetWeb has one thread per connection), counted against a budget of their own. A
 * stream is a loop over the same rows behind the doorbell: it keeps the last seq it sent, so a slow
 * or broken reader loses nothing and resumes by Last-Event-ID. Nothing is queued per stream. */
#include "http/request.h"

#include <string.h>

#include "base/clock.h"
#include "config/config.h"
#include "engine/engine.h"
#include "events/events.h"

#define PROGRESS_MS    500 /* progress is told at most twice per second */
#define STREAM_BYTES   (4u << 20)
#define SNAPSHOT_TASKS 100 /* unfinished tasks shown when a stream of all begins */
#define RUNS_SEEN      32  /* running tasks whose progress one stream tells */
#define WAIT_MOST_S    60
#define LAST_ID_HEADER "Last-Event-ID"
#define RETRY          "retry: 2000\n\n"

/* ---- the budget ---- */

enum rl_rc stream_enter(struct request *r, struct rl_err *err)
{
    struct http *http = r->http;
    int most = (int)config_int(http->cfg, CFG_HTTP_STREAM_THREADS);
    if (atomic_fetch_add(&http->streams, 1) < most) {
        struct wire_ends ends = request_ends(r);
        watch_peer_add(http->watch, &r->peer, &ends);
        return RL_OK;
    }
    atomic_fetch_sub(&http->streams, 1);
    r->retry_after_s = 5;
    return rl_fail(err, RL_UNAVAILABLE, "all %d streams are in use (http.stream_threads)", most);
}

void stream_leave(struct request *r)
{
    watch_peer_remove(r->http->watch, &r->peer);
    atomic_fetch_sub(&r->http->streams, 1);
}

bool stream_over(const struct request *r)
{
    return atomic_load(&r->http->draining) || (r->peer.fd >= 0 && wire_left(r->peer.fd));
}

/* ---- Server-Sent Events ---- */

struct sse {
    struct request *r;
    struct event_filter filter; /* of one task: without the states, since its end must be seen */
    unsigned statuses;          /* what the client wants to hear of; 0 = all */
    struct hub_filter hub;
    int64_t seen; /* the last seq sent, or known not to concern this stream */
    struct rl_buf out;
    struct event_batch batch;
    struct run_progress runs[RUNS_SEEN];
    size_t run_count;
    int64_t beat_ms, progress_ms; /* monotonic: last bytes out, last look at progress */
    uint64_t keys;                /* key_generation when the key was last looked at */
    bool over;                    /* the one task is finished: nothing more will come */
};

static bool flush(struct sse *s)
{
    if (s->out.failed)
        return false;
    if (s->out.len == 0)
        return true;
    int n = mg_write(s->r->conn, s->out.data, s->out.len);
    bool whole = n > 0 && (size_t)n == s->out.len;
    rl_buf_clear(&s->out);
    s->beat_ms = rl_mono_ms();
    return whole;
}

static enum rl_rc send_snapshot(struct sse *s, const struct task *task, int64_t seq,
                                struct rl_err *err)
{
    struct rl_jw w;
    rl_buf_fmt(&s->out, "event: snapshot\nid: %lld\ndata: ", (long long)seq);
    rl_jw_init(&w, &s->out, false);
    task_json(s->r->http->tasks, task, &w, NULL);
    rl_buf_str(&s->out, "\n\n");
    return rl_buf_ok(&s->out, err);
}

/* The task as it is, or every unfinished task. `seen` was read before, so nothing falls in between.
 * A list that is too long becomes a gap, after which a client looks for itself: prompts of others
 * must not end anybody's stream. */
static enum rl_rc snapshot(struct sse *s, struct rl_err *err)
{
    struct tasks *tasks = s->r->http->tasks;
    if (s->filter.task_id) {
        AUTO_TASK struct task *task = NULL;
        enum rl_rc rc = task_get(tasks, &s->r->caller, s->filter.task_id, &task, err);
        return rc == RL_OK ? send_snapshot(s, task, s->seen, err) : rc;
    }
    struct page_query page = {.statuses =
                                  1u << TASK_CREATED | 1u << TASK_QUEUED | 1u << TASK_PROCESSING,
                              .limit = SNAPSHOT_TASKS};
    AUTO_BUF struct rl_buf list = {0};
    rl_buf_init(&list, LIST_ANSWER_BYTES);
    enum rl_rc rc = task_list(tasks, &s->r->caller, &page, &list, err);
    if (rc != RL_OK)
        return rc;
    rl_buf_fmt(&s->out, "event: snapshot\nid: %lld\ndata: %s\n\n", (long long)s->seen, list.data);
    if (s->out.failed) {
        rl_buf_clear(&s->out);
        rl_buf_fmt(&s->out, RETRY "event: gap\nid: %lld\ndata: {}\n\n", (long long)s->seen);
    }
    return rl_buf_ok(&s->out, err);
}

/* Everything after `seen`. false: the client is gone or memory is short. */
static bool send_events(struct sse *s, struct rl_err *err)
{
    do {
        if (events_after(s->r->http->tasks, &s->r->caller, &s->filter, s->seen, &s->batch, err) !=
            RL_OK)
            return false;
        if (s->batch.gap)
            rl_buf_fmt(&s->out, "event: gap\nid: %lld\ndata: {}\n\n",
                       (long long)(s->batch.count ? s->batch.events[0].seq - 1 : s->batch.last));
        for (size_t i = 0; i < s->batch.count; i++) {
            const struct hub_event *e = &s->batch.events[i];
            enum task_status status;
            bool known = task_status_parse(e->to_status, &status);
            if (s->statuses == 0 || (known && (s->statuses & 1u << status)))
                rl_buf_fmt(&s->out, "event: status\nid: %lld\ndata: %s\n\n", (long long)e->seq,
                           e->json);
            else if (s->filter.task_id) /* only the position, so that a resume begins behind it */
                rl_buf_fmt(&s->out, "id: %lld\n\n", (long long)e->seq);
            s->over = known && task_status_terminal(status);
        }
        bool more = s->batch.last > s->seen;
        s->seen = s->batch.last;
        event_batch_clear(&s->batch);
        if (!flush(s))
            return false;
        if (!more)
            return true;
    } while (!stream_over(s->r));
    return true;
}

/* The newest progress of each running task that moved since the last look. */
static bool send_progress(struct sse *s)
{
    struct run_progress now[RUNS_SEEN];
    size_t n = runs_progress(s->r->http->tasks, &s->r->caller, s->filter.task_id, now, RUNS_SEEN);
    for (size_t i = 0; i < n; i++) {
        bool known = run_progress_seen(&now[i], s->runs, s->run_count);
        AUTO_BUF struct rl_buf text = {0};
        rl_buf_init(&text, 1024);
        if (!known && task_progress_json(s->r->http->tasks, &s->r->caller, now[i].task_id, &text,
                                         NULL) == RL_OK)
            rl_buf_fmt(&s->out, "event: progress\ndata: %s\n\n", text.data);
    }
    memcpy(s->runs, now, n * sizeof now[0]);
    s->run_count = n;
    s->progress_ms = rl_mono_ms();
    return flush(s);
}

/* How long to wait for the doorbell. */
static int64_t pause_ms(const struct sse *s)
{
    int64_t now = rl_mono_ms();
    int64_t beat = s->beat_ms + config_int(s->r->http->cfg, CFG_HTTP_HEARTBEAT_MS) - now;
    int64_t progress = s->progress_ms + PROGRESS_MS - now;
    bool runs = runs_active(s->r->http->tasks) > 0;
    int64_t wait = runs && progress < beat ? progress : beat;
    return wait > 1 ? wait : 1;
}

static enum rl_rc sse_loop(struct sse *s, struct rl_err *err)
{
    struct http *http = s->r->http;
    struct hub *hub = tasks_hub(http->tasks);
    while (!stream_over(s->r)) {
        uint64_t tick = hub_tick(hub), keys = key_generation(http->tasks);
        if (keys != s->keys && key_check(http->tasks, s->r->caller.key_id, err) == RL_UNAUTHORIZED)
            return RL_OK; /* revoked meanwhile */
        s->keys = keys;
        if (!send_events(s, err))
            return RL_OK; /* the client is gone, or resumes */
        if (s->over && s->filter.task_id)
            return RL_OK;
        int64_t now = rl_mono_ms();
        if (now - s->progress_ms >= PROGRESS_MS && !send_progress(s))
            return RL_OK;
        if (now - s->beat_ms >= config_int(http->cfg, CFG_HTTP_HEARTBEAT_MS)) {
            rl_buf_str(&s->out, ": beat\n\n");
            if (!flush(s))
                return RL_OK;
        }
        (void)hub_wait(hub, &s->hub, tick, pause_ms(s));
    }
    return RL_OK;
}

/* Last-Event-ID: the header, or `after` in the query (a browser's EventSource cannot set headers).
 * -1: none. */
static enum rl_rc read_last_id(const struct request *r, int64_t *ret_last, struct rl_err *err)
{
    const char *text = request_header(r, LAST_ID_HEADER);
    const char *field = LAST_ID_HEADER;
    if (!text) {
        text = query_get(&r->query, "after");
        field = "after";
    }
    *ret_last = -1;
    if (!text)
        return RL_OK;
    if (!strcmp(text, "0"))
        *ret_last = 0;
    else if (!task_id_parse(text, strlen(text), ret_last))
        return rl_fail_field(err, RL_INVALID_FIELD, field, "must be a sequence number");
    return RL_OK;
}

/* Is anything after `seen` that the client wants to hear of? */
static enum rl_rc wanted_left(struct sse *s, bool *ret_left, struct rl_err *err)
{
    struct event_filter filter = s->filter;
    int64_t at = s->seen;
    bool left = false, more = true;
    filter.statuses = s->statuses;
    while (more && !left) {
        enum rl_rc rc = events_after(s->r->http->tasks, &s->r->caller, &filter, at, &s->batch, err);
        if (rc != RL_OK)
            return rc;
        left = s->batch.count > 0 || s->batch.gap;
        more = s->batch.last > at;
        at = s->batch.last;
        event_batch_clear(&s->batch);
    }
    *ret_left = left;
    return RL_OK;
}

/* A finished task with nothing after `last`: 204 tells an EventSource to stop. Events that its
 * filter leaves out do not count: not every client takes a position that comes without data. */
static enum rl_rc nothing_more(struct sse *s, bool *ret_over, struct rl_err *err)
{
    AUTO_TASK struct task *task = NULL;
    enum task_status status;
    enum rl_rc rc = task_get(s->r->http->tasks, &s->r->caller, s->filter.task_id, &task, err);
    if (rc != RL_OK)
        return rc;
    bool ended = task_status_parse(task->status, &status) && task_status_terminal(status);
    bool left = ended && s->seen < task->version;
    if (left && s->statuses)
        rc = wanted_left(s, &left, err);
    if (rc == RL_OK)
        *ret_over = ended && !left;
    return rc;
}

static enum rl_rc sse_begin(struct sse *s, int64_t last, struct rl_err *err)
{
    static const struct reply reply = {.status = 200, .type = "text/event-stream"};
    s->seen = last >= 0 ? last : events_last(s->r->http->tasks);
    bool over = false;
    enum rl_rc rc = RL_OK;
    if (s->filter.task_id && last >= 0)
        rc = nothing_more(s, &over, err);
    if (rc == RL_OK && over) {
        s->over = true;
        return reply_empty(s->r, 204);
    }
    rl_buf_str(&s->out, RETRY);
    if (rc == RL_OK && last < 0)
        rc = snapshot(s, err); /* before the head: its errors are answers */
    if (rc != RL_OK)
        return rc;
    if (s->filter.task_id && last < 0) {
        rc = nothing_more(s, &s->over, err);
        if (rc != RL_OK)
            return rc;
    }
    s->r->close = true;
    reply_header(s->r, "X-Accel-Buffering", "no");
    if (reply_head(s->r, &reply, -1) && flush(s) && !(s->over && s->filter.task_id))
        rc = sse_loop(s, err);
    return rc;
}

static enum rl_rc sse(struct request *r, int64_t task_id, struct rl_err *err)
{
    int64_t last;
    AUTO_FREE struct sse *s = calloc(1, sizeof *s); /* too large for a worker's stack */
    if (!s)
        return rl_fail(err, RL_NO_MEMORY, "stream");
    s->r = r;
    s->filter.task_id = task_id;
    enum rl_rc rc = read_last_id(r, &last, err);
    const char *statuses = query_get(&r->query, "status");
    if (rc == RL_OK && statuses)
        rc = statuses_parse(statuses, &s->statuses, err);
    if (task_id == 0)
        s->filter.statuses = s->statuses;
    if (rc == RL_OK)
        rc = stream_enter(r, err);
    if (rc != RL_OK)
        return rc;
    s->hub = event_hub_filter(&r->caller, &s->filter);
    rl_buf_init(&s->out, STREAM_BYTES);
    s->beat_ms = s->progress_ms = rl_mono_ms();
    rc = sse_begin(s, last, err);
    event_batch_clear(&s->batch);
    rl_buf_free(&s->out);
    stream_leave(r);
    return rc;
}

bool stream_wanted(const struct request *r)
{
    const char *accept = request_header(r, "Accept");
    return accept && strstr(accept, "text/event-stream");
}

enum rl_rc stream_task(struct request *r, int64_t task_id, struct rl_err *err)
{
    AUTO_TASK struct task *task = NULL;
    enum rl_rc rc = task_get(r->http->tasks, &r->caller, task_id, &task, err); /* may it be seen? */
    return rc == RL_OK ? sse(r, task_id, err) : rc;
}

enum rl_rc http_events(struct request *r, struct rl_err *err)
{
    if (stream_wanted(r))
        return sse(r, 0, err);
    return event_page(r, err);
}

/* ---- long polls ---- */

enum rl_rc stream_wait_seconds(const char *text, const char *field, int64_t *ret_s,
                               struct rl_err *err)
{
    size_t len = strlen(text);
    int64_t value = 0;
    bool ok = len >= 1 && len <= 4;
    for (size_t i = 0; ok && i < len; i++) {
        ok = text[i] >= '0' && text[i] <= '9';
        value = value * 10 + (text[i] - '0');
    }
    if (!ok || value > WAIT_MOST_S)
        return rl_fail_field(err, RL_INVALID_FIELD, field, "must be 0 to %d seconds", WAIT_MOST_S);
    *ret_s = value;
    return RL_OK;
}

/* Has what the poll waits for come? until_end: the task is finished; else: its version passed
 * `after`. */
static bool arrived(const struct task *task, int64_t after, bool until_end)
{
    enum task_status status;
    bool terminal = task_status_parse(task->status, &status) && task_status_terminal(status);
    return terminal || (!until_end && task->version > after);
}

enum rl_rc stream_wait_task(struct request *r, int64_t task_id, int64_t after, bool until_end,
                            int64_t wait_s, struct task **ret_task, struct rl_err *err)
{
    struct http *http = r->http;
    struct hub *hub = tasks_hub(http->tasks);
    struct event_filter filter = {.task_id = task_id};
    struct hub_filter wake = event_hub_filter(&r->caller, &filter);
    int64_t until = rl_mono_ms() + wait_s * 1000;
    bool entered = false;
    enum rl_rc rc = RL_OK;
    for (;;) {
        AUTO_TASK struct task *task = NULL;
        uint64_t tick = hub_tick(hub);
        rc = task_get(http->tasks, &r->caller, task_id, &task, err);
        int64_t left = until - rl_mono_ms();
        if (rc != RL_OK || arrived(task, after, until_end) || left <= 0 || stream_over(r)) {
            if (rc == RL_OK)
                *ret_task = STEAL(task);
            break;
        }
        if (!entered) {
            rc = stream_enter(r, err);
            if (rc != RL_OK)
                break;
            entered = true;
        }
        (void)hub_wait(hub, &wake, tick, left);
    }
    if (entered)
        stream_leave(r);
    return rc;
}

/* ---- the log as pages, for whoever does not stream ---- */

enum rl_rc event_page(struct request *r, struct rl_err *err)
{
    AUTO_FREE struct event_batch *batch =
        calloc(1, sizeof *batch); /* too large for a worker's stack */
    struct event_filter filter = {.task_id = 0};
    int64_t last = 0;
    if (!batch)
        return rl_fail(err, RL_NO_MEMORY, "events");
    enum rl_rc rc = read_last_id(r, &last, err);
    const char *statuses = query_get(&r->query, "status");
    if (rc == RL_OK && statuses)
        rc = statuses_parse(statuses, &filter.statuses, err);
    if (rc == RL_OK)
        rc = events_after(r->http->tasks, &r->caller, &filter, last > 0 ? last : 0, batch, err);
    if (rc != RL_OK)
        return rc;
    AUTO_BUF struct rl_buf out = {0};
    struct rl_jw w;
    rl_buf_init(&out, LIST_ANSWER_BYTES);
    rl_jw_init(&w, &out, false);
    rl_jw_object(&w, NULL);
    rl_jw_bool(&w, "gap", batch->gap);
    rl_jw_array(&w, "data");
    for (size_t i = 0; i < batch->count; i++)
        rl_jw_raw(&w, NULL, batch->events[i].json);
    rl_jw_end_array(&w);
    rl_jw_id(&w, "next", batch->last > last ? batch->last : 0); /* null: nothing newer yet */
    rl_jw_end_object(&w);
    event_batch_clear(batch);
    return reply_json(r, 200, &out, err);
}
