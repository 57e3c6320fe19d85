/* What feed.c and feed_admin.c share. */
#ifndef RL_TASK_FEED_PARTS_H
#define RL_TASK_FEED_PARTS_H

#include "task/feed.h"
#include "task/internal.h"

/* A row of `feed`, without its name. */
struct feed {
    int64_t feed_id, cursor, head, created_at, updated_at;
    unsigned statuses; /* mask, 0 = all */
};

/* The row a statement of feed_get or feed_list stands on. */
void feed_read_row(struct store_stmt *stmt, struct feed *ret_feed);
/* By name, of this caller; RL_NOT_FOUND. */
enum rl_rc feed_load(struct store_conn *conn, const struct caller *caller, const char *name,
                     struct feed *ret_feed, struct rl_err *err) RL_NODISCARD;

/* Events after a seq that concern the feed. */
struct feed_scan {
    int64_t count;
    int64_t end;  /* seq of the last counted one */
    int64_t last; /* there are no others up to here */
    bool whole;   /* and none behind it */
};
/* Counts to `max`, looking at `rows` rows at most. */
enum rl_rc feed_scan(struct store_conn *conn, const struct caller *caller, const struct feed *feed,
                     int64_t after, int64_t max, int64_t rows, struct feed_scan *ret_scan,
                     struct rl_err *err) RL_NODISCARD;

/* "<lease_id>.<deliveries>" */
#define FEED_LEASE_TEXT 48
void feed_lease_text(int64_t lease_id, int64_t deliveries, char *text);

/* Insert the feed (writer). errors: as feed_create; an existing row is RL_OK and *ret_made false.
 */
enum rl_rc feed_make(struct tasks *tasks, struct store_conn *conn, const struct caller *caller,
                     const char *name, const struct feed_from *from, unsigned statuses,
                     bool *ret_made, struct rl_err *err) RL_NODISCARD;

/* RL_CONFLICT unless the feed has this filter. */
enum rl_rc feed_same_filter(const struct feed *feed, unsigned statuses, struct rl_err *err)
    RL_NODISCARD;

#endif
