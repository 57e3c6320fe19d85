/* Feeds: named durable consumer groups over the event log. A feed belongs to a user (and, made by
 * an owner's key, shows the events of everybody); its readers share it by leased ranges. At least
 * once: a range that is not acknowledged in time goes to the next reader. */
#ifndef RL_TASK_FEED_H
#define RL_TASK_FEED_H

#include "task/task.h"

#define FEED_NAME_BYTES 64
#define FEED_MAX        1000  /* events of one range */
#define FEED_LEASE_MOST 43200 /* s: 12 hours */

/* 1 to 64 of [A-Za-z0-9._-], the first a letter or a digit; RL_INVALID_FIELD naming `name`. */
enum rl_rc feed_name_check(const char *name, struct rl_err *err) RL_NODISCARD;

/* Where reading begins. */
enum feed_start { FEED_EARLIEST, FEED_LATEST, FEED_SEQ, FEED_TIME };
struct feed_from {
    enum feed_start start;
    int64_t value;     /* a seq, the first to be read; or ms UTC */
    const char *field; /* what the client calls it, for errors */
};

/* One reader's request, kept over all of its looks. */
struct feed_ask {
    const char *name;
    struct feed_from from; /* where a feed that is not there yet begins */
    bool has_statuses;
    unsigned
        statuses; /* mask of to_status, 0 = all: of a new feed; an older one must have the same */
    int max;      /* 1..FEED_MAX events */
    int64_t lease_ms;
    bool known; /* set by the first look: from then on the feed is not made again */
};
/* The next range: an expired one as it was, else what follows. The lease is durable when this
 * returns. out (cleared first): {lease, feed, from, to, delivery, expires_at, gap, events}.
 * *ret_given false: there is nothing now, and all but `feed` and `events` is null; ask again when
 * the doorbell rings, or after *ret_wait_ms, when a lease ends.
 * errors: RL_NOT_FOUND (deleted meanwhile), RL_CONFLICT (another filter; too many feeds),
 * RL_INVALID_FIELD (from), store errors. Any thread but the writer's. */
enum rl_rc feed_next(struct tasks *tasks, const struct caller *caller, struct feed_ask *ask,
                     struct rl_buf *out, bool *ret_given, int64_t *ret_wait_ms, struct rl_err *err)
    RL_NODISCARD;

/* Acknowledge a range, or (to > 0) its part up to `to`: the rest is the next reader's at once. May
 * be repeated. out: {feed, from, to, cursor}. errors: RL_NOT_FOUND, RL_LEASE_LOST (cancelled, given
 * to somebody else, or not known any more), RL_INVALID_FIELD (to). */
enum rl_rc feed_ack(struct tasks *tasks, const struct caller *caller, const char *name,
                    const char *lease, int64_t to, struct rl_buf *out, struct rl_err *err)
    RL_NODISCARD;
/* The lease ends lease_ms from now; 0 gives the range back. out: {lease, feed, from, to,
 * expires_at}. errors: as feed_ack. */
enum rl_rc feed_extend(struct tasks *tasks, const struct caller *caller, const char *name,
                       const char *lease, int64_t lease_ms, struct rl_buf *out, struct rl_err *err)
    RL_NODISCARD;

/* ---- feed_admin.c ---- */
/* Make the feed, or find it with the same filter. out: as feed_show. errors: RL_CONFLICT (another
 * filter; feed.count), RL_INVALID_FIELD. */
enum rl_rc feed_create(struct tasks *tasks, const struct caller *caller, const char *name,
                       const struct feed_from *from, unsigned statuses, struct rl_buf *out,
                       bool *ret_made, struct rl_err *err) RL_NODISCARD;
/* {name, scope, status, cursor, head, lag (null: too much history to look at), lag_at_least,
 * leases, created_at, updated_at, ranges: [{lease, from, to, acknowledged, delivery, expires_at}]}.
 * Leases nothing. */
enum rl_rc feed_show(struct tasks *tasks, const struct caller *caller, const char *name,
                     struct rl_buf *out, struct rl_err *err) RL_NODISCARD;
/* {data: [the same without ranges], next: null}: the feeds of the caller, by name. */
enum rl_rc feed_list(struct tasks *tasks, const struct caller *caller, struct rl_buf *out,
                     struct rl_err *err) RL_NODISCARD;
/* Go on reading elsewhere; every lease is lost. out: as feed_show. */
enum rl_rc feed_seek(struct tasks *tasks, const struct caller *caller, const char *name,
                     const struct feed_from *from, struct rl_buf *out, struct rl_err *err)
    RL_NODISCARD;
enum rl_rc feed_delete(struct tasks *tasks, const struct caller *caller, const char *name,
                       struct rl_err *err) RL_NODISCARD;
/* Prometheus text: feeds, leases, the largest lag. */
enum rl_rc feed_metrics(struct tasks *tasks, struct rl_buf *out, struct rl_err *err) RL_NODISCARD;

#endif
