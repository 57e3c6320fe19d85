/* Events of outside services: verified, taken in once, handed to their consumer. Any thread but the
 * writer's. Invariants: what was answered 2xx is in processed_event, once per source and id, and
 * the first body of an id is the one that counts; an event is handed out until it was marked as
 * handled, so its consumer sees it at least once over any crash. */
#include "inbound/inbound.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/json.h"
#include "base/log.h"
#include "base/webhook.h"
#include "config/config.h"
#include "events/events.h"
#include "store/store.h"
#include "task/task.h"

#include <inttypes.h>
#include <string.h>

#define TYPE_BYTES        64
#define CORRELATION_BYTES 128

/* Signs for sources that do not exist; nobody knows it, and its verdict is not looked at. */
#define NOBODY "whsec_bm9ib2R5IGtub3dzIHRoaXMgb25lLCBzbyBpdCB2ZXJpZmllcyBub3RoaW5n"

/* ---- judging ---- */

struct find {
    const char *source;
    struct inbound_judge judge; /* set anew by every run */
};

static enum rl_rc find(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct find *find = arg;
    bool row = false;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_HOOK_FIND);

    inbound_judge_clear(&find->judge);
    store_bind_text(stmt, ":source", find->source);
    store_bind_int(stmt, ":now", rl_wall_ms());
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc != RL_OK || !row)
        return rc;
    const char *old = store_col_text(stmt, 4);
    find->judge = (struct inbound_judge){.hook_id = store_col_int(stmt, 0),
                                         .allow = rl_strdup(store_col_text(stmt, 1)),
                                         .per_minute = store_col_int(stmt, 2),
                                         .secret = rl_strdup(store_col_text(stmt, 3)),
                                         .old_secret = rl_strdup(old)};
    if (!find->judge.allow || !find->judge.secret || (old && !find->judge.old_secret) ||
        store_col_lost(stmt))
        return rl_fail(err, RL_NO_MEMORY, "source");
    return RL_OK;
}

enum rl_rc inbound_judge_find(struct tasks *tasks, const char *source,
                              struct inbound_judge *ret_judge, struct rl_err *err)
{
    struct find work = {.source = source};
    enum rl_rc rc = store_read(tasks_store(tasks), find, &work, err);

    if (rc == RL_OK)
        *ret_judge = work.judge;
    else
        inbound_judge_clear(&work.judge);
    return rc;
}

static void wipe_text(char *text)
{
    if (text)
        rl_wipe(text, strlen(text));
    free(text);
}

void inbound_judge_clear(struct inbound_judge *judge)
{
    free(judge->allow);
    wipe_text(judge->secret);
    wipe_text(judge->old_secret);
    *judge = (struct inbound_judge){.per_minute = -1};
}

bool inbound_judge_signed(const struct inbound_judge *judge, const struct rl_webhook *hook)
{
    bool known = judge->hook_id != 0;
    bool now = rl_webhook_signed_by(hook, known ? judge->secret : NOBODY);
    bool before = judge->old_secret && rl_webhook_signed_by(hook, judge->old_secret);

    return known && (now || before);
}

/* ---- taking in ---- */

struct accept {
    struct tasks *tasks;
    const char *source;
    int64_t hook_id;
    const struct rl_webhook *hook;
    const char *type, *correlation_id;
    uint8_t hash[RL_HASH_BYTES];
    bool repeated, differs; /* set anew by every run */
};

/* Is the id there already? */
static enum rl_rc look_for_repeat(struct store_conn *conn, struct accept *a, struct rl_err *err)
{
    size_t len = 0;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_INBOUND_KNOWN);

    store_bind_int(stmt, ":hook_id", a->hook_id);
    store_bind_text(stmt, ":event_id", a->hook->id);
    enum rl_rc rc = store_step(stmt, &a->repeated, err);
    if (rc != RL_OK || !a->repeated)
        return rc;
    const void *hash = store_col_blob(stmt, 0, &len);
    a->differs = len != sizeof a->hash || memcmp(hash, a->hash, len) != 0;
    return RL_OK;
}

/* Count it at its source, which must still be there, and not too far behind. */
static enum rl_rc count(struct store_conn *conn, const struct accept *a, int64_t now,
                        struct rl_err *err)
{
    int64_t there = 0, waiting = 0;
    int64_t most = config_int(tasks_config(a->tasks), CFG_HOOK_BACKLOG);
    struct store_stmt *received = store_stmt(conn, SQL_HOOK_RECEIVED);

    store_bind_int(received, ":hook_id", a->hook_id);
    store_bind_int(received, ":now", now);
    enum rl_rc rc = store_run(received, &there, err);
    if (rc == RL_OK && there == 0)
        return rl_fail(err, RL_UNAUTHORIZED, "the source was removed or disabled just now");
    struct store_stmt *stmt = store_stmt(conn, SQL_INBOUND_WAITING);
    store_bind_int(stmt, ":hook_id", a->hook_id);
    store_bind_int(stmt, ":limit", most);
    if (rc == RL_OK)
        rc = store_int(stmt, 0, &waiting, err);
    if (rc == RL_OK && waiting >= most)
        rc = rl_fail(err, RL_QUEUE_FULL, "%" PRId64 " events of this source wait to be handled",
                     waiting);
    return rc;
}

static void ring(void *ctx, void *arg)
{
    (void)arg; /* there is nothing to say: consumers look */
    hub_ring(ctx);
}

static enum rl_rc take(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct accept *a = arg;
    int64_t now = rl_wall_ms();

    a->differs = false;
    enum rl_rc rc = look_for_repeat(conn, a, err);
    if (rc == RL_OK && !a->repeated)
        rc = store_admit(tasks_store(a->tasks), err);
    if (rc == RL_OK && !a->repeated)
        rc = count(conn, a, now, err);
    if (rc != RL_OK || a->repeated)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_INBOUND_INSERT);
    store_bind_int(stmt, ":hook_id", a->hook_id);
    store_bind_text(stmt, ":event_id", a->hook->id);
    store_bind_int(stmt, ":now", now);
    store_bind_text(stmt, ":event_type", a->type);
    store_bind_text(stmt, ":correlation_id", a->correlation_id);
    store_bind_blob(stmt, ":body_hash", a->hash, sizeof a->hash);
    store_bind_blob(stmt, ":body", a->hook->body, a->hook->body_len);
    rc = store_run(stmt, NULL, err);
    return rc == RL_OK ? store_on_commit(conn, ring, tasks_hub(a->tasks), NULL, err) : rc;
}

/* A member that is a text of 1..most bytes, else NULL. */
static const char *text_member(const struct rl_json *object, const char *name, size_t most)
{
    const struct rl_json *v = object ? rl_json_get(object, name) : NULL;
    const char *text = v ? rl_json_text(v) : NULL;

    return text && *text && strlen(text) <= most ? text : NULL;
}

/* What the event is about: reeld names it task_id, OpenAI's events data.id, a bare object id. */
static const char *correlation(const struct rl_json *root)
{
    const struct rl_json *data = rl_json_get(root, "data");
    const struct {
        const struct rl_json *in;
        const char *name;
    } places[] = {{root, "task_id"}, {data, "task_id"}, {data, "id"}, {root, "id"}};

    for (size_t i = 0; i < RL_ARRAY_LEN(places); i++) {
        const char *text = text_member(places[i].in, places[i].name, CORRELATION_BYTES);
        if (text)
            return text;
    }
    return NULL;
}

static void log_accepted(const struct accept *a)
{
    char id[2 * RL_WEBHOOK_ID_BYTES + 3], type[2 * TYPE_BYTES + 3];

    rl_log(a->differs ? RL_LOG_WARN : RL_LOG_INFO,
           a->differs    ? "hook_event_differs"
           : a->repeated ? "hook_event_repeated"
                         : "hook_event",
           "source=%s event_id=%s type=%s", a->source, rl_log_quote(a->hook->id, id, sizeof id),
           rl_log_quote(a->type ? a->type : "", type, sizeof type));
}

enum rl_rc inbound_accept(struct tasks *tasks, const char *source, int64_t hook_id,
                          const struct rl_webhook *hook, bool *ret_repeated, struct rl_err *err)
{
    AUTO_JSON struct rl_json *root = NULL;
    struct accept a = {.tasks = tasks, .source = source, .hook_id = hook_id, .hook = hook};
    enum rl_rc rc = rl_json_parse(hook->body_len ? hook->body : "", hook->body_len, &root, err);

    if (rc == RL_OK && rl_json_type(root) != RL_JSON_OBJECT)
        rc = rl_fail(err, RL_INVALID_FIELD, "an event must be a JSON object");
    if (rc != RL_OK)
        return rc;
    a.type = text_member(root, "type", TYPE_BYTES);
    a.correlation_id = correlation(root);
    rl_hash(hook->body, hook->body_len, a.hash);
    rc = store_write(tasks_store(tasks), STORE_URGENT, take, &a, err); /* repeats need no room */
    if (rc != RL_OK)
        return rc;
    log_accepted(&a);
    *ret_repeated = a.repeated;
    return RL_OK;
}

/* ---- handing out ---- */

void inbound_event_clear(struct inbound_event *event)
{
    free(event->event_id);
    free(event->type);
    free(event->correlation_id);
    free(event->body);
    *event = (struct inbound_event){0};
}

struct next {
    const char *source, *correlation_id;
    int64_t after;
    struct inbound_event event; /* set anew by every run */
};

static enum rl_rc read_event(struct store_stmt *stmt, struct inbound_event *event,
                             struct rl_err *err)
{
    const char *type = store_col_text(stmt, 3), *about = store_col_text(stmt, 4);
    const void *body = store_col_blob(stmt, 5, &event->body_len);

    event->event_seq = store_col_int(stmt, 0);
    event->event_id = rl_strdup(store_col_text(stmt, 1));
    event->received_at = store_col_int(stmt, 2);
    event->type = rl_strdup(type);
    event->correlation_id = rl_strdup(about);
    event->body = malloc(event->body_len + 1);
    if (!event->event_id || (type && !event->type) || (about && !event->correlation_id) ||
        !event->body || (event->body_len && !body) || store_col_lost(stmt))
        return rl_fail(err, RL_NO_MEMORY, "event");
    if (event->body_len)
        memcpy(event->body, body, event->body_len);
    event->body[event->body_len] = '\0';
    return RL_OK;
}

static enum rl_rc find_next(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct next *next = arg;
    bool row = false;
    AUTO_STMT struct store_stmt *stmt =
        store_stmt(conn, next->correlation_id ? SQL_INBOUND_NEXT_ABOUT : SQL_INBOUND_NEXT);

    inbound_event_clear(&next->event);
    store_bind_text(stmt, ":source", next->source);
    if (next->correlation_id)
        store_bind_text(stmt, ":correlation_id", next->correlation_id);
    store_bind_int(stmt, ":after", next->after);
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc == RL_OK && !row)
        rc = rl_fail(err, RL_NOT_FOUND, "no event waits");
    return rc == RL_OK ? read_event(stmt, &next->event, err) : rc;
}

enum rl_rc inbound_next(struct tasks *tasks, const char *source, const char *correlation_id,
                        int64_t after, struct inbound_event *ret_event, struct rl_err *err)
{
    struct next next = {.source = source, .correlation_id = correlation_id, .after = after};
    enum rl_rc rc = store_read(tasks_store(tasks), find_next, &next, err);

    if (rc == RL_OK)
        *ret_event = next.event;
    else
        inbound_event_clear(&next.event);
    return rc;
}

enum rl_rc inbound_wait(struct tasks *tasks, const char *source, const char *correlation_id,
                        int64_t after, int64_t wait_ms, struct inbound_event *ret_event,
                        struct rl_err *err)
{
    static const struct hub_filter rings = {.task_id = -1}; /* of no task: events of tasks are none
                                                               of our business */
    int64_t until = rl_mono_ms() + wait_ms;

    for (;;) {
        uint64_t tick = hub_tick(tasks_hub(tasks));
        enum rl_rc rc = inbound_next(tasks, source, correlation_id, after, ret_event, err);
        int64_t left = until - rl_mono_ms();
        if (rc != RL_NOT_FOUND || left <= 0)
            return rc;
        (void)hub_wait(tasks_hub(tasks), &rings, tick, left); /* the tick is read again */
    }
}

static enum rl_rc mark_handled(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const int64_t *event_seq = arg;
    struct store_stmt *stmt = store_stmt(conn, SQL_INBOUND_HANDLED);

    store_bind_int(stmt, ":event_seq", *event_seq);
    store_bind_int(stmt, ":now", rl_wall_ms());
    return store_run(stmt, NULL, err);
}

enum rl_rc inbound_handled(struct tasks *tasks, int64_t event_seq, struct rl_err *err)
{
    return store_write(tasks_store(tasks), STORE_URGENT, mark_handled, &event_seq, err);
}
