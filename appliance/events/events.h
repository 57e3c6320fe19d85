/* The doorbell: the newest global seq, a ring of the last rendered events, and threads that wait.
 * It knows sequence numbers and opaque texts only; the rows in task_event are the truth. */
#ifndef RL_EVENTS_EVENTS_H
#define RL_EVENTS_EVENTS_H

#include "base/rl.h"

#include <stdatomic.h>

struct hub;

#define HUB_RING 4096 /* events kept in memory; whoever is further behind reads SQLite */

/* One committed event as it travels. `json` is the rendered event object. */
struct hub_event {
    int64_t seq; /* global, only grows */
    int64_t task_id;
    char user_id[64]; /* whose task it is */
    char to_status[16];
    const char *json; /* owned by the ring, or by the copy handed out */
};

/* first_seq: the newest seq already in the database. Returns new; NULL when memory is short. */
struct hub *hub_new(int64_t first_seq);
/* Start after seq (before anybody waits or publishes). */
void hub_set_last(struct hub *hub, int64_t seq);
void hub_free(struct hub *hub); /* nobody may be waiting */

/* Add an event and wake everybody whom it concerns. Called in seq order by the writer thread after
 * COMMIT. A failed copy of the text empties the ring (readers fall back to SQLite), never the
 * event. */
void hub_publish(struct hub *hub, const struct hub_event *event);
/* Wake everybody without an event (something became due, progress, shutdown). */
void hub_ring(struct hub *hub);

/* Wake the waiters of this flag and nobody else; it was set before. The tick stays. */
void hub_wake(struct hub *hub, const atomic_bool *flag);

/* Who is waiting for what: 0 / "" = anything. */
struct hub_filter {
    int64_t task_id;
    char user_id[64];
    const atomic_bool *flag; /* NULL, or: does not wait while it is true (hub_wake) */
};
/* A count that grows with every publish and ring; read it before looking at the database. */
uint64_t hub_tick(struct hub *hub);
/* Block until a publish that matches `filter` (NULL = any), or a ring, came after `tick`, until its
 * flag is true, or until wait_ms (CLOCK_MONOTONIC) passed. Returns the tick now. Any thread. */
uint64_t hub_wait(struct hub *hub, const struct hub_filter *filter, uint64_t tick, int64_t wait_ms);

int64_t hub_last_seq(struct hub *hub);
/* Copy the matching events with seq > after, oldest first, at most `room`, into events[] (each json
 * returns new: free it). false when the ring does not reach back to `after`: read SQLite instead.
 * ret_last: the seq up to which this answer is complete. */
bool hub_read(struct hub *hub, const struct hub_filter *filter, int64_t after,
              struct hub_event *events, size_t room, size_t *ret_count, int64_t *ret_last);

#endif
