/* Feeds as things: make, list, show, seek, delete. The writer thread changes them, reader
 * connections show them. Invariant: whose feed it is decides what it shows: one made by an owner's
 * key tells of everybody, any other of its user's tasks only, and the two never share a name's row.
 * Any thread. */
#include "task/feed_parts.h"

#include "base/buf.h"
#include "base/clock.h"
#include "config/config.h"
#include "events/events.h"

#include <ctype.h>
#include <string.h>

#define LAG_MOST      10000 /* rows; looking further costs more than the number is worth */
#define STATUSES_TEXT 80    /* all seven names fit */

enum rl_rc feed_name_check(const char *name, struct rl_err *err)
{
    size_t len = strlen(name);
    bool ok = len >= 1 && len <= FEED_NAME_BYTES && isalnum((unsigned char)name[0]);
    for (const char *p = name; ok && *p; p++)
        ok = isalnum((unsigned char)*p) || strchr("._-", *p);
    if (!ok)
        return rl_fail_field(err, RL_INVALID_FIELD, "name",
                             "a feed's name is 1 to %d of A-Z a-z 0-9 . _ - and begins with a "
                             "letter or a digit",
                             FEED_NAME_BYTES);
    return RL_OK;
}

enum rl_rc feed_same_filter(const struct feed *feed, unsigned statuses, struct rl_err *err)
{
    if (feed->statuses == statuses)
        return RL_OK;
    return rl_fail_field(err, RL_CONFLICT, "status",
                         "the feed exists with another filter, which is part of it");
}

/* ---- where to begin ---- */

static enum rl_rc first_in_scope(struct store_conn *conn, const struct caller *caller,
                                 int64_t fallback, int64_t *ret_seq, struct rl_err *err)
{
    struct store_stmt *stmt =
        store_stmt(conn, caller->owner ? SQL_FEED_FIRST_ALL : SQL_FEED_FIRST_USER);
    if (!caller->owner)
        store_bind_text(stmt, ":user_id", caller->user_id);
    return store_int(stmt, fallback, ret_seq, err);
}

/* The first event at or after a time, by halving: seq and time grow together, as far as the wall
 * clock did. */
static enum rl_rc seq_at_time(struct store_conn *conn, int64_t time, int64_t newest,
                              int64_t *ret_seq, struct rl_err *err)
{
    int64_t low = 1, high = newest + 1;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        bool row;
        AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_FEED_EVENT_FROM);
        store_bind_int(stmt, ":seq", mid);
        enum rl_rc rc = store_step(stmt, &row, err);
        if (rc != RL_OK)
            return rc;
        if (row && store_col_int(stmt, 1) < time)
            low = store_col_int(stmt, 0) + 1;
        else
            high = mid;
    }
    *ret_seq = low;
    return RL_OK;
}

/* The seq before the first one to be read. */
static enum rl_rc resolve(struct store_conn *conn, const struct caller *caller,
                          const struct feed_from *from, int64_t *ret_cursor, struct rl_err *err)
{
    int64_t newest = 0, seq = 0;
    enum rl_rc rc = store_int(store_stmt(conn, SQL_EVENT_LAST_SEQ), 0, &newest, err);
    if (rc != RL_OK)
        return rc;
    switch (from->start) {
    case FEED_EARLIEST:
        rc = first_in_scope(conn, caller, newest + 1, &seq, err);
        break;
    case FEED_LATEST:
        seq = newest + 1;
        break;
    case FEED_SEQ:
        seq = from->value;
        if (seq < 1 || seq > newest + 1)
            rc = rl_fail_field(err, RL_INVALID_FIELD, from->field,
                               "must be 1 to %lld: the newest event has seq %lld",
                               (long long)newest + 1, (long long)newest);
        break;
    case FEED_TIME:
        rc = seq_at_time(conn, from->value, newest, &seq, err);
        break;
    }
    *ret_cursor = seq - 1;
    return rc;
}

/* ---- JSON ---- */

static void write_statuses(struct rl_jw *w, unsigned statuses)
{
    if (!statuses) {
        rl_jw_null(w, "status");
        return;
    }
    rl_jw_array(w, "status");
    for (int s = 0; s < TASK_STATUS_COUNT; s++)
        if (statuses & (1u << s))
            rl_jw_str(w, NULL, task_status_name((enum task_status)s));
    rl_jw_end_array(w);
}

/* The members of a feed into an open object. */
static enum rl_rc write_feed(struct store_conn *conn, const struct caller *caller, const char *name,
                             const struct feed *feed, struct rl_jw *w, struct rl_err *err)
{
    int64_t leases = 0;
    struct feed_scan scan;
    struct store_stmt *count = store_stmt(conn, SQL_FEED_LEASE_COUNT);
    store_bind_int(count, ":feed_id", feed->feed_id);
    store_bind_int(count, ":cursor", feed->cursor);
    enum rl_rc rc = store_int(count, 0, &leases, err);
    if (rc == RL_OK)
        rc = feed_scan(conn, caller, feed, feed->cursor, LAG_MOST, LAG_MOST, &scan, err);
    if (rc != RL_OK)
        return rc;
    rl_jw_str(w, "name", name);
    rl_jw_str(w, "scope", caller->owner ? "all" : "own");
    write_statuses(w, feed->statuses);
    rl_jw_i64(w, "cursor", feed->cursor);
    rl_jw_i64(w, "head", feed->head);
    if (scan.whole)
        rl_jw_i64(w, "lag", scan.count);
    else
        rl_jw_null(w, "lag");
    rl_jw_i64(w, "lag_at_least", scan.count);
    rl_jw_i64(w, "leases", leases);
    rl_jw_time(w, "created_at", feed->created_at);
    rl_jw_time(w, "updated_at", feed->updated_at);
    return RL_OK;
}

static enum rl_rc write_ranges(const struct tasks *tasks, struct store_conn *conn,
                               const struct feed *feed, struct rl_jw *w, struct rl_err *err)
{
    int64_t skew = rl_wall_ms() - store_steady_ms(tasks->store);
    bool row;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_FEED_LEASE_LIST);
    store_bind_int(stmt, ":feed_id", feed->feed_id);
    store_bind_int(stmt, ":cursor", feed->cursor);
    rl_jw_array(w, "ranges");
    enum rl_rc rc = store_step(stmt, &row, err);
    for (; rc == RL_OK && row; rc = store_step(stmt, &row, err)) {
        char lease[FEED_LEASE_TEXT];
        bool acked = store_col_int(stmt, 3) != 0;
        feed_lease_text(store_col_int(stmt, 0), store_col_int(stmt, 4), lease);
        rl_jw_object(w, NULL);
        rl_jw_str(w, "lease", lease);
        rl_jw_i64(w, "from", store_col_int(stmt, 1));
        rl_jw_i64(w, "to", store_col_int(stmt, 2));
        rl_jw_bool(w, "acknowledged", acked);
        rl_jw_i64(w, "delivery", store_col_int(stmt, 4));
        rl_jw_time(w, "expires_at", acked ? 0 : store_col_int(stmt, 5) + skew);
        rl_jw_end_object(w);
    }
    rl_jw_end_array(w);
    return rc;
}

/* ---- one feed ---- */

struct feed_work {
    struct tasks *tasks;
    const struct caller *caller;
    const char *name;
    const struct feed_from *from;
    unsigned statuses;
    bool made;
    struct rl_buf *out;
};

static enum rl_rc show(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct feed_work *work = arg;
    struct feed feed;
    struct rl_jw w;
    enum rl_rc rc = feed_load(conn, work->caller, work->name, &feed, err);
    rl_buf_clear(work->out);
    rl_jw_init(&w, work->out, false);
    rl_jw_object(&w, NULL);
    if (rc == RL_OK)
        rc = write_feed(conn, work->caller, work->name, &feed, &w, err);
    if (rc == RL_OK)
        rc = write_ranges(work->tasks, conn, &feed, &w, err);
    rl_jw_end_object(&w);
    return rc == RL_OK ? rl_buf_ok(work->out, err) : rc;
}

enum rl_rc feed_show(struct tasks *tasks, const struct caller *caller, const char *name,
                     struct rl_buf *out, struct rl_err *err)
{
    struct feed_work work = {.tasks = tasks, .caller = caller, .name = name, .out = out};
    return store_read(tasks->store, show, &work, err);
}

static enum rl_rc check_count(struct tasks *tasks, struct store_conn *conn,
                              const struct caller *caller, struct rl_err *err)
{
    int64_t n = 0, most = config_int(tasks->cfg, CFG_FEED_COUNT);
    struct store_stmt *stmt = store_stmt(conn, SQL_FEED_COUNT_USER);
    store_bind_text(stmt, ":user_id", caller->user_id);
    enum rl_rc rc = store_int(stmt, 0, &n, err);
    if (rc == RL_OK && n >= most)
        rc = rl_fail(err, RL_CONFLICT, "you have %lld feeds, as many as allowed (feed.count)",
                     (long long)n);
    return rc;
}

enum rl_rc feed_make(struct tasks *tasks, struct store_conn *conn, const struct caller *caller,
                     const char *name, const struct feed_from *from, unsigned statuses,
                     bool *ret_made, struct rl_err *err)
{
    struct feed feed;
    int64_t cursor = 0;
    char text[STATUSES_TEXT] = "";
    *ret_made = false;
    enum rl_rc rc = feed_load(conn, caller, name, &feed, err);
    if (rc != RL_NOT_FOUND)
        return rc;
    rc = store_admit(tasks->store, err);
    if (rc == RL_OK)
        rc = check_count(tasks, conn, caller, err);
    if (rc == RL_OK)
        rc = resolve(conn, caller, from, &cursor, err);
    if (rc != RL_OK)
        return rc;
    for (int s = 0, len = 0; s < TASK_STATUS_COUNT; s++)
        if (statuses & (1u << s))
            len += snprintf(text + len, sizeof text - (size_t)len, "%s%s", len ? "," : "",
                            task_status_name((enum task_status)s)); /* all seven fit */
    struct store_stmt *stmt = store_stmt(conn, SQL_FEED_INSERT);
    store_bind_text(stmt, ":user_id", caller->user_id);
    store_bind_int(stmt, ":everybody", caller->owner);
    store_bind_text(stmt, ":name", name);
    store_bind_text(stmt, ":statuses", statuses ? text : NULL);
    store_bind_int(stmt, ":cursor", cursor);
    store_bind_int(stmt, ":now", rl_wall_ms());
    rc = store_run(stmt, NULL, err);
    *ret_made = rc == RL_OK;
    return rc;
}

static enum rl_rc create(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct feed_work *work = arg;
    struct feed feed;
    enum rl_rc rc = feed_make(work->tasks, conn, work->caller, work->name, work->from,
                              work->statuses, &work->made, err);
    if (rc == RL_OK)
        rc = feed_load(conn, work->caller, work->name, &feed, err);
    if (rc == RL_OK)
        rc = feed_same_filter(&feed, work->statuses, err);
    return rc == RL_OK ? show(conn, work, err) : rc;
}

enum rl_rc feed_create(struct tasks *tasks, const struct caller *caller, const char *name,
                       const struct feed_from *from, unsigned statuses, struct rl_buf *out,
                       bool *ret_made, struct rl_err *err)
{
    struct feed_work work = {.tasks = tasks,
                             .caller = caller,
                             .name = name,
                             .from = from,
                             .statuses = statuses,
                             .out = out};
    enum rl_rc rc = store_write(tasks->store, STORE_URGENT, create, &work, err);
    *ret_made = work.made;
    return rc;
}

static enum rl_rc seek(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct feed_work *work = arg;
    struct feed feed;
    int64_t cursor = 0;
    enum rl_rc rc = feed_load(conn, work->caller, work->name, &feed, err);
    if (rc == RL_OK)
        rc = resolve(conn, work->caller, work->from, &cursor, err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *cancel = store_stmt(conn, SQL_FEED_LEASE_CANCEL);
    store_bind_int(cancel, ":feed_id", feed.feed_id);
    rc = store_run(cancel, NULL, err);
    struct store_stmt *move = store_stmt(conn, SQL_FEED_SEEK);
    store_bind_int(move, ":feed_id", feed.feed_id);
    store_bind_int(move, ":cursor", cursor);
    store_bind_int(move, ":now", rl_wall_ms());
    if (rc == RL_OK)
        rc = store_run(move, NULL, err);
    return rc == RL_OK ? show(conn, work, err) : rc;
}

enum rl_rc feed_seek(struct tasks *tasks, const struct caller *caller, const char *name,
                     const struct feed_from *from, struct rl_buf *out, struct rl_err *err)
{
    struct feed_work work = {
        .tasks = tasks, .caller = caller, .name = name, .from = from, .out = out};
    enum rl_rc rc = store_write(tasks->store, STORE_URGENT, seek, &work, err);
    if (rc == RL_OK)
        hub_ring(tasks->hub); /* for readers that wait at the former end */
    return rc;
}

static enum rl_rc delete_feed(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct feed_work *work = arg;
    struct feed feed;
    enum rl_rc rc = feed_load(conn, work->caller, work->name, &feed, err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_FEED_DELETE); /* its leases go with it */
    store_bind_int(stmt, ":feed_id", feed.feed_id);
    return store_run(stmt, NULL, err);
}

enum rl_rc feed_delete(struct tasks *tasks, const struct caller *caller, const char *name,
                       struct rl_err *err)
{
    struct feed_work work = {.tasks = tasks, .caller = caller, .name = name};
    enum rl_rc rc = store_write(tasks->store, STORE_URGENT, delete_feed, &work, err);
    if (rc == RL_OK)
        hub_ring(tasks->hub);
    return rc;
}

/* ---- all of them ---- */

static enum rl_rc list(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct feed_work *work = arg;
    struct rl_jw w;
    bool row;
    rl_buf_clear(work->out);
    rl_jw_init(&w, work->out, false);
    rl_jw_object(&w, NULL);
    rl_jw_array(&w, "data");
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_FEED_LIST);
    store_bind_text(stmt, ":user_id", work->caller->user_id);
    store_bind_int(stmt, ":everybody", work->caller->owner);
    enum rl_rc rc = store_step(stmt, &row, err);
    while (rc == RL_OK && row) {
        struct feed feed;
        feed_read_row(stmt, &feed);
        rl_jw_object(&w, NULL);
        rc = write_feed(conn, work->caller, store_col_text(stmt, 6), &feed, &w, err);
        rl_jw_end_object(&w);
        if (rc == RL_OK && store_col_lost(stmt))
            rc = rl_fail(err, RL_NO_MEMORY, "feeds");
        if (rc == RL_OK)
            rc = store_step(stmt, &row, err);
    }
    rl_jw_end_array(&w);
    rl_jw_null(&w, "next");
    rl_jw_end_object(&w);
    return rc == RL_OK ? rl_buf_ok(work->out, err) : rc;
}

enum rl_rc feed_list(struct tasks *tasks, const struct caller *caller, struct rl_buf *out,
                     struct rl_err *err)
{
    struct feed_work work = {.tasks = tasks, .caller = caller, .out = out};
    return store_read(tasks->store, list, &work, err);
}

static enum rl_rc write_totals(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct rl_buf *out = arg;
    int64_t newest = 0;
    bool row;
    enum rl_rc rc = store_int(store_stmt(conn, SQL_EVENT_LAST_SEQ), 0, &newest, err);
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_FEED_TOTALS);
    if (rc == RL_OK)
        rc = store_step(stmt, &row, err);
    if (rc != RL_OK)
        return rc;
    const struct {
        const char *name, *help;
        int64_t value;
    } figures[] = {
        {"reeld_feeds", "Named consumer groups over the event log.", store_col_int(stmt, 0)},
        {"reeld_feed_leases", "Ranges of feeds that are handed out and not acknowledged.",
         store_col_int(stmt, 1)},
        {"reeld_feed_lag_max", "How many seqs the slowest feed is behind.",
         store_col_null(stmt, 2) ? 0 : newest - store_col_int(stmt, 2)},
    };
    for (size_t i = 0; i < RL_ARRAY_LEN(figures); i++)
        rl_buf_fmt(out, "# HELP %s %s\n# TYPE %s gauge\n%s %lld\n", figures[i].name,
                   figures[i].help, figures[i].name, figures[i].name, (long long)figures[i].value);
    return RL_OK;
}

enum rl_rc feed_metrics(struct tasks *tasks, struct rl_buf *out, struct rl_err *err)
{
    return store_read(tasks->store, write_totals, out, err);
}
