/* Reading a feed: ranges of the event log handed out under leases, acknowledged, extended, given
 * again. A reader connection looks whether there is anything and reads the events; the writer
 * thread alone moves feeds and leases, so that a lease is durable before anybody hears of it.
 * Invariants: ranges do not overlap and grow with `head`; the cursor stands before the oldest range
 * that is not acknowledged; a redelivered range keeps its bounds and gets a new lease text, so the
 * late reader's acknowledgement is refused. Any thread. */
#include "task/feed_parts.h"

#include "base/buf.h"
#include "base/clock.h"
#include "config/config.h"
#include "events/events.h"

#include <string.h>

#define SCAN_ROWS 4096 /* history rows looked at in one transaction */
#define SKIP_SEQS 1000 /* of nobody's interest before moving over them is worth a write */
#define TURNS     64   /* looks of one call, when others are quicker or the filter is sparse */

/* ---- shared pieces ---- */

static unsigned parse_statuses(const char *text)
{
    unsigned mask = 0;
    for (const char *p = text; p && *p;) {
        char name[16] = "";
        enum task_status status;
        size_t len = strcspn(p, ",");
        if (len < sizeof name)
            memcpy(name, p, len);
        if (task_status_parse(name, &status))
            mask |= 1u << status;
        p += len + (p[len] == ',');
    }
    return mask;
}

void feed_read_row(struct store_stmt *stmt, struct feed *ret_feed)
{
    *ret_feed = (struct feed){.feed_id = store_col_int(stmt, 0),
                              .statuses = parse_statuses(store_col_text(stmt, 1)),
                              .cursor = store_col_int(stmt, 2),
                              .head = store_col_int(stmt, 3),
                              .created_at = store_col_int(stmt, 4),
                              .updated_at = store_col_int(stmt, 5)};
}

enum rl_rc feed_load(struct store_conn *conn, const struct caller *caller, const char *name,
                     struct feed *ret_feed, struct rl_err *err)
{
    bool row;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_FEED_GET);
    store_bind_text(stmt, ":user_id", caller->user_id);
    store_bind_int(stmt, ":everybody", caller->owner);
    store_bind_text(stmt, ":name", name);
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc == RL_OK && !row)
        return rl_fail(err, RL_NOT_FOUND, "no such feed");
    if (rc == RL_OK)
        feed_read_row(stmt, ret_feed);
    return rc == RL_OK && store_col_lost(stmt) ? rl_fail(err, RL_NO_MEMORY, "feed") : rc;
}

static bool concerns(const struct feed *feed, const char *to_status)
{
    enum task_status status;
    return feed->statuses == 0 || (to_status && task_status_parse(to_status, &status) &&
                                   (feed->statuses & (1u << status)));
}

enum rl_rc feed_scan(struct store_conn *conn, const struct caller *caller, const struct feed *feed,
                     int64_t after, int64_t max, int64_t rows, struct feed_scan *ret_scan,
                     struct rl_err *err)
{
    struct feed_scan scan = {.last = after};
    int64_t newest = 0, seen = 0;
    bool row;
    enum rl_rc rc = store_int(store_stmt(conn, SQL_EVENT_LAST_SEQ), 0, &newest, err);
    if (rc != RL_OK)
        return rc;
    AUTO_STMT struct store_stmt *stmt =
        store_stmt(conn, caller->owner ? SQL_FEED_SCAN_ALL : SQL_FEED_SCAN_USER);
    if (!caller->owner)
        store_bind_text(stmt, ":user_id", caller->user_id);
    store_bind_int(stmt, ":after", after);
    store_bind_int(stmt, ":limit", rows);
    rc = store_step(stmt, &row, err);
    for (; rc == RL_OK && row && scan.count < max; rc = store_step(stmt, &row, err)) {
        seen++;
        scan.last = store_col_int(stmt, 0);
        if (!concerns(feed, store_col_text(stmt, 1)))
            continue;
        scan.count++;
        scan.end = scan.last;
    }
    if (rc != RL_OK)
        return rc;
    scan.whole = !row && seen < rows;
    if (scan.whole && newest > scan.last)
        scan.last = newest;
    *ret_scan = scan;
    return RL_OK;
}

void feed_lease_text(int64_t lease_id, int64_t deliveries, char *text)
{
    (void)snprintf(text, FEED_LEASE_TEXT, "%lld.%lld", (long long)lease_id,
                   (long long)deliveries); /* 41 characters at most */
}

static bool lease_parse(const char *text, int64_t *ret_id, int64_t *ret_deliveries)
{
    size_t len = strcspn(text, ".");
    return text[len] == '.' && task_id_parse(text, len, ret_id) &&
           task_id_parse(text + len + 1, strlen(text + len + 1), ret_deliveries);
}

static enum rl_rc settle(struct store_conn *conn, int64_t feed_id, int64_t head, struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_FEED_SETTLE);
    store_bind_int(stmt, ":feed_id", feed_id);
    store_bind_int(stmt, ":head", head);
    store_bind_int(stmt, ":now", rl_wall_ms());
    return store_run(stmt, NULL, err);
}

/* May another range go out? */
static enum rl_rc has_room(const struct tasks *tasks, struct store_conn *conn,
                           const struct feed *feed, bool *ret_room, struct rl_err *err)
{
    int64_t out = 0;
    struct store_stmt *stmt = store_stmt(conn, SQL_FEED_LEASE_COUNT);
    store_bind_int(stmt, ":feed_id", feed->feed_id);
    store_bind_int(stmt, ":cursor", feed->cursor);
    enum rl_rc rc = store_int(stmt, 0, &out, err);
    *ret_room = out < config_int(tasks->cfg, CFG_FEED_LEASES);
    return rc;
}

/* Wall time at which a lease ends, for people. */
static int64_t wall_of(const struct tasks *tasks, int64_t steady)
{
    return rl_wall_ms() + (steady - store_steady_ms(tasks->store));
}

/* ---- the next range ---- */

struct range {
    int64_t lease_id, from, to, deliveries, until; /* lease_id 0 = none */
};

struct next_work {
    struct tasks *tasks;
    const struct caller *caller;
    struct feed_ask *ask;
    struct feed feed;
    int64_t now;    /* steady */
    int64_t pruned; /* the newest seq that retention removed */
    bool missing, wanted;
    int64_t expiry; /* steady: when the next lease ends; 0 = none is out */
    struct range range;
    struct rl_buf *out;
};

/* Is there an expired range, or anything behind the head? Also when the next lease ends. */
static enum rl_rc look(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct next_work *work = arg;
    bool room = false;
    struct feed_scan scan = {0};
    work->missing = work->wanted = false;
    work->expiry = 0;
    enum rl_rc rc = feed_load(conn, work->caller, work->ask->name, &work->feed, err);
    if (rc == RL_NOT_FOUND) {
        work->missing = true;
        return RL_OK;
    }
    if (rc == RL_OK && work->ask->has_statuses)
        rc = feed_same_filter(&work->feed, work->ask->statuses, err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *expiry = store_stmt(conn, SQL_FEED_LEASE_EXPIRY);
    store_bind_int(expiry, ":feed_id", work->feed.feed_id);
    rc = store_int(expiry, 0, &work->expiry, err);
    if (rc == RL_OK && work->expiry > 0 && work->expiry <= work->now) {
        work->wanted = true;
        return RL_OK;
    }
    if (rc == RL_OK)
        rc = has_room(work->tasks, conn, &work->feed, &room, err);
    if (rc == RL_OK && room)
        rc = feed_scan(conn, work->caller, &work->feed, work->feed.head, 1, SCAN_ROWS, &scan, err);
    if (rc == RL_OK)
        rc = store_int(store_stmt(conn, SQL_EVENTS_PRUNED), 0, &work->pruned, err);
    work->wanted = room && (scan.count > 0 || scan.last - work->feed.head > SKIP_SEQS ||
                            work->feed.head < work->pruned);
    return rc;
}

static enum rl_rc take_expired(struct store_conn *conn, struct next_work *work, struct rl_err *err)
{
    bool row;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_FEED_LEASE_EXPIRED);
    store_bind_int(stmt, ":feed_id", work->feed.feed_id);
    store_bind_int(stmt, ":now", work->now);
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc != RL_OK || !row)
        return rc;
    work->range = (struct range){.lease_id = store_col_int(stmt, 0),
                                 .from = store_col_int(stmt, 1),
                                 .to = store_col_int(stmt, 2),
                                 .deliveries = store_col_int(stmt, 3) + 1,
                                 .until = work->now + work->ask->lease_ms};
    struct store_stmt *again = store_stmt(conn, SQL_FEED_LEASE_AGAIN);
    store_bind_int(again, ":lease_id", work->range.lease_id);
    store_bind_int(again, ":until", work->range.until);
    return store_run(again, NULL, err);
}

static enum rl_rc insert_lease(struct store_conn *conn, int64_t feed_id, struct range *range,
                               struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_FEED_LEASE_INSERT);
    store_bind_int(stmt, ":feed_id", feed_id);
    store_bind_int(stmt, ":from", range->from);
    store_bind_int(stmt, ":to", range->to);
    store_bind_int(stmt, ":deliveries", range->deliveries);
    store_bind_int(stmt, ":until", range->until);
    enum rl_rc rc = store_run(stmt, NULL, err);
    if (rc == RL_OK)
        range->lease_id = store_last_rowid(conn);
    return rc;
}

/* The next events as a range of their own. Where history was removed an empty range goes out, too:
 * a gap is something to acknowledge. What concerns nobody is only passed over. */
static enum rl_rc take_new(struct store_conn *conn, struct next_work *work, struct rl_err *err)
{
    struct feed *feed = &work->feed;
    struct feed_scan scan = {.last = feed->head};
    enum rl_rc rc = store_int(store_stmt(conn, SQL_EVENTS_PRUNED), 0, &work->pruned, err);
    if (rc == RL_OK)
        rc = feed_scan(conn, work->caller, feed, feed->head, work->ask->max, SCAN_ROWS, &scan, err);
    if (rc != RL_OK || scan.last == feed->head)
        return rc;
    int64_t to = scan.count > 0 ? scan.end : scan.last;
    if (scan.count > 0 || feed->head < work->pruned) {
        work->range = (struct range){.from = feed->head + 1,
                                     .to = to,
                                     .deliveries = 1,
                                     .until = work->now + work->ask->lease_ms};
        rc = insert_lease(conn, feed->feed_id, &work->range, err);
    }
    return rc == RL_OK ? settle(conn, feed->feed_id, to, err) : rc;
}

static enum rl_rc take(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct next_work *work = arg;
    bool room = false;
    work->range = (struct range){0};
    enum rl_rc rc = feed_load(conn, work->caller, work->ask->name, &work->feed, err);
    if (rc == RL_OK)
        rc = take_expired(conn, work, err);
    if (rc != RL_OK || work->range.lease_id)
        return rc;
    rc = has_room(work->tasks, conn, &work->feed, &room, err);
    return rc == RL_OK && room ? take_new(conn, work, err) : rc;
}

/* The events of the range, as far as they concern the feed. */
static enum rl_rc write_events(struct store_conn *conn, const struct next_work *work,
                               struct rl_jw *w, int64_t *ret_first, struct rl_err *err)
{
    bool row;
    AUTO_STMT struct store_stmt *stmt =
        store_stmt(conn, work->caller->owner ? SQL_FEED_RANGE_ALL : SQL_FEED_RANGE_USER);
    if (!work->caller->owner)
        store_bind_text(stmt, ":user_id", work->caller->user_id);
    store_bind_int(stmt, ":from", work->range.from);
    store_bind_int(stmt, ":to", work->range.to);
    enum rl_rc rc = store_step(stmt, &row, err);
    for (; rc == RL_OK && row; rc = store_step(stmt, &row, err)) {
        const char *to = store_col_text(stmt, 4);
        if (!concerns(&work->feed, to))
            continue;
        if (*ret_first == 0)
            *ret_first = store_col_int(stmt, 0);
        task_event_json(w, store_col_int(stmt, 0), store_col_int(stmt, 1), store_col_int(stmt, 2),
                        store_col_text(stmt, 3), to, store_col_int(stmt, 5),
                        store_col_text(stmt, 6), store_col_text(stmt, 7));
        if (store_col_lost(stmt))
            return rl_fail(err, RL_NO_MEMORY, "events");
    }
    return rc;
}

static enum rl_rc read_range(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct next_work *work = arg;
    const struct range *range = &work->range;
    int64_t pruned = 0, first = 0;
    char lease[FEED_LEASE_TEXT];
    struct rl_jw w;
    rl_buf_clear(work->out);
    rl_jw_init(&w, work->out, false);
    rl_jw_object(&w, NULL);
    feed_lease_text(range->lease_id, range->deliveries, lease);
    rl_jw_str(&w, "lease", lease);
    rl_jw_str(&w, "feed", work->ask->name);
    rl_jw_i64(&w, "from", range->from);
    rl_jw_i64(&w, "to", range->to);
    rl_jw_i64(&w, "delivery", range->deliveries);
    rl_jw_time(&w, "expires_at", wall_of(work->tasks, range->until));
    rl_jw_array(&w, "events");
    enum rl_rc rc = write_events(conn, work, &w, &first, err);
    rl_jw_end_array(&w);
    if (rc == RL_OK)
        rc = store_int(store_stmt(conn, SQL_EVENTS_PRUNED), 0, &pruned, err);
    if (rc != RL_OK)
        return rc;
    if (range->from <= pruned) {
        rl_jw_object(&w, "gap");
        rl_jw_i64(&w, "from_seq", range->from);
        if (first)
            rl_jw_i64(&w, "first_retained", first);
        else
            rl_jw_null(&w, "first_retained");
        rl_jw_end_object(&w);
    } else {
        rl_jw_null(&w, "gap");
    }
    rl_jw_end_object(&w);
    return rl_buf_ok(work->out, err);
}

static enum rl_rc nothing(const struct next_work *work, struct rl_err *err)
{
    static const char *const none[] = {"from", "to", "delivery", "expires_at"};
    struct rl_jw w;
    rl_buf_clear(work->out);
    rl_jw_init(&w, work->out, false);
    rl_jw_object(&w, NULL);
    rl_jw_null(&w, "lease");
    rl_jw_str(&w, "feed", work->ask->name);
    for (size_t i = 0; i < RL_ARRAY_LEN(none); i++)
        rl_jw_null(&w, none[i]);
    rl_jw_array(&w, "events");
    rl_jw_end_array(&w);
    rl_jw_null(&w, "gap");
    rl_jw_end_object(&w);
    return rl_buf_ok(work->out, err);
}

static enum rl_rc make(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct next_work *work = arg;
    bool made;
    return feed_make(work->tasks, conn, work->caller, work->ask->name, &work->ask->from,
                     work->ask->statuses, &made, err);
}

enum rl_rc feed_next(struct tasks *tasks, const struct caller *caller, struct feed_ask *ask,
                     struct rl_buf *out, bool *ret_given, int64_t *ret_wait_ms, struct rl_err *err)
{
    struct next_work work = {.tasks = tasks, .caller = caller, .ask = ask, .out = out};
    *ret_given = false;
    *ret_wait_ms = 0; /* after so many turns: at once */
    for (int turn = 0; turn < TURNS; turn++) {
        work.now = store_steady_ms(tasks->store);
        enum rl_rc rc = store_read(tasks->store, look, &work, err);
        if (rc == RL_OK && work.missing && ask->known)
            return rl_fail(err, RL_NOT_FOUND, "the feed was deleted");
        if (rc == RL_OK && work.missing)
            rc = store_write(tasks->store, STORE_URGENT, make, &work, err);
        else if (rc == RL_OK && work.wanted)
            rc = store_write(tasks->store, STORE_NORMAL, take, &work, err);
        if (rc != RL_OK)
            return rc;
        ask->known = true;
        if (work.range.lease_id) {
            *ret_given = true;
            return store_read(tasks->store, read_range, &work, err);
        }
        if (!work.missing && !work.wanted) {
            *ret_wait_ms = work.expiry ? work.expiry - work.now : INT64_MAX;
            break;
        }
    }
    return nothing(&work, err);
}

/* ---- acknowledge, extend ---- */

struct lease_work {
    struct tasks *tasks;
    const struct caller *caller;
    const char *name, *lease;
    int64_t to;       /* ack: 0 = all of it */
    int64_t lease_ms; /* extend */
    struct feed feed;
    struct range range;
    struct rl_buf *out;
    bool acked, partial;
    bool ring;      /* others have something to hear */
    int64_t cursor; /* afterwards */
};

static enum rl_rc lost(struct rl_err *err)
{
    return rl_fail(err, RL_LEASE_LOST,
                   "the lease is not known here: its time was over and another reader has the "
                   "range, or the feed was moved");
}

/* The feed and the range that `lease` stands for. */
static enum rl_rc find_lease(struct store_conn *conn, struct lease_work *work, struct rl_err *err)
{
    bool row;
    struct range range = {0};
    enum rl_rc rc = feed_load(conn, work->caller, work->name, &work->feed, err);
    if (rc != RL_OK)
        return rc;
    if (!lease_parse(work->lease, &range.lease_id, &range.deliveries))
        return lost(err);
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_FEED_LEASE_GET);
    store_bind_int(stmt, ":lease_id", range.lease_id);
    store_bind_int(stmt, ":feed_id", work->feed.feed_id);
    store_bind_int(stmt, ":deliveries", range.deliveries);
    rc = store_step(stmt, &row, err);
    if (rc != RL_OK || !row)
        return rc == RL_OK ? lost(err) : rc;
    range.from = store_col_int(stmt, 0);
    range.to = store_col_int(stmt, 1);
    work->acked = store_col_int(stmt, 2) != 0;
    range.until = store_col_int(stmt, 3);
    work->partial = store_col_int(stmt, 4) != 0;
    work->range = range;
    return RL_OK;
}

/* What was not acknowledged of the range goes to the next reader. */
static enum rl_rc split(struct store_conn *conn, struct lease_work *work, struct rl_err *err)
{
    struct range rest = {.from = work->to + 1,
                         .to = work->range.to,
                         .deliveries = work->range.deliveries,
                         .until = store_steady_ms(work->tasks->store)};
    work->range.to = work->to;
    work->ring = true;
    return insert_lease(conn, work->feed.feed_id, &rest, err);
}

static enum rl_rc trim(struct store_conn *conn, const struct lease_work *work, struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_FEED_LEASE_TRIM);
    store_bind_int(stmt, ":feed_id", work->feed.feed_id);
    store_bind_int(stmt, ":cursor", work->cursor);
    store_bind_int(stmt, ":keep", config_int(work->tasks->cfg, CFG_FEED_LEASES));
    return store_run(stmt, NULL, err);
}

/* The first acknowledgement of a range. */
static enum rl_rc ack_range(struct store_conn *conn, struct lease_work *work, struct rl_err *err)
{
    enum rl_rc rc = RL_OK;
    bool partial = work->to > 0 && work->to < work->range.to;
    if (work->to > 0 && (work->to < work->range.from || work->to > work->range.to))
        return rl_fail_field(err, RL_INVALID_FIELD, "to",
                             "must be a seq of the range, %lld to %lld",
                             (long long)work->range.from, (long long)work->range.to);
    if (partial)
        rc = split(conn, work, err);
    struct store_stmt *ack = store_stmt(conn, SQL_FEED_LEASE_ACK);
    store_bind_int(ack, ":lease_id", work->range.lease_id);
    store_bind_int(ack, ":to", work->range.to);
    store_bind_int(ack, ":partial", partial);
    if (rc == RL_OK)
        rc = store_run(ack, NULL, err);
    return rc == RL_OK ? settle(conn, work->feed.feed_id, work->feed.head, err) : rc;
}

static enum rl_rc ack(struct store_conn *conn, struct lease_work *work, struct rl_err *err)
{
    bool room = true;
    work->ring = false;
    enum rl_rc rc = find_lease(conn, work, err);
    if (rc == RL_OK && work->acked && (work->to > work->range.to || (!work->to && work->partial)))
        return rl_fail(err, RL_LEASE_LOST,
                       "only events up to %lld were acknowledged by it, and the rest went to the "
                       "next reader",
                       (long long)work->range.to);
    if (rc == RL_OK && !work->acked)
        rc = has_room(work->tasks, conn, &work->feed, &room, err);
    if (rc == RL_OK && !work->acked)
        rc = ack_range(conn, work, err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *cursor = store_stmt(conn, SQL_FEED_CURSOR);
    store_bind_int(cursor, ":feed_id", work->feed.feed_id);
    rc = store_int(cursor, 0, &work->cursor, err);
    if (rc != RL_OK || work->acked)
        return rc;
    work->ring = work->ring || !room; /* readers that waited for it */
    return trim(conn, work, err);
}

/* The answer is written before the COMMIT: if it cannot be, nothing happened. */
static enum rl_rc ack_and_tell(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct lease_work *work = arg;
    struct rl_jw w;
    enum rl_rc rc = ack(conn, work, err);
    if (rc != RL_OK)
        return rc;
    rl_buf_clear(work->out);
    rl_jw_init(&w, work->out, false);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "feed", work->name);
    rl_jw_i64(&w, "from", work->range.from);
    rl_jw_i64(&w, "to", work->range.to);
    rl_jw_i64(&w, "cursor", work->cursor);
    rl_jw_end_object(&w);
    return rl_buf_ok(work->out, err);
}

enum rl_rc feed_ack(struct tasks *tasks, const struct caller *caller, const char *name,
                    const char *lease, int64_t to, struct rl_buf *out, struct rl_err *err)
{
    struct lease_work work = {
        .tasks = tasks, .caller = caller, .name = name, .lease = lease, .to = to, .out = out};
    enum rl_rc rc = store_write(tasks->store, STORE_URGENT, ack_and_tell, &work, err);
    if (rc == RL_OK && work.ring)
        hub_ring(tasks->hub);
    return rc;
}

static enum rl_rc extend(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct lease_work *work = arg;
    enum rl_rc rc = find_lease(conn, work, err);
    if (rc == RL_OK && work->acked)
        return rl_fail(err, RL_LEASE_LOST, "the range is acknowledged");
    if (rc != RL_OK)
        return rc;
    int64_t until = store_steady_ms(work->tasks->store) + work->lease_ms;
    work->ring = until < work->range.until;
    work->range.until = until;
    struct store_stmt *stmt = store_stmt(conn, SQL_FEED_LEASE_UNTIL);
    store_bind_int(stmt, ":lease_id", work->range.lease_id);
    store_bind_int(stmt, ":until", work->range.until);
    rc = store_run(stmt, NULL, err);
    if (rc != RL_OK)
        return rc;
    struct rl_jw w;
    rl_buf_clear(work->out);
    rl_jw_init(&w, work->out, false);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "lease", work->lease);
    rl_jw_str(&w, "feed", work->name);
    rl_jw_i64(&w, "from", work->range.from);
    rl_jw_i64(&w, "to", work->range.to);
    rl_jw_time(&w, "expires_at", wall_of(work->tasks, work->range.until));
    rl_jw_end_object(&w);
    return rl_buf_ok(work->out, err);
}

enum rl_rc feed_extend(struct tasks *tasks, const struct caller *caller, const char *name,
                       const char *lease, int64_t lease_ms, struct rl_buf *out, struct rl_err *err)
{
    struct lease_work work = {.tasks = tasks,
                              .caller = caller,
                              .name = name,
                              .lease = lease,
                              .lease_ms = lease_ms,
                              .out = out};
    enum rl_rc rc = store_write(tasks->store, STORE_URGENT, extend, &work, err);
    if (rc == RL_OK && work.ring) /* it ends sooner than a waiting reader thinks */
        hub_ring(tasks->hub);
    return rc;
}
