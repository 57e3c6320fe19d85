/* What CivetWeb does not look after: deadlines for reading (mg_read looks at the clock only when a
 * poll times out, so one byte per second holds a thread for ever), clients that leave while their
 * worker waits for events, and a crowd that says nothing. */
#ifndef RL_HTTP_WATCH_H
#define RL_HTTP_WATCH_H

#include <stdatomic.h>

#include "base/rl.h"
#include "http/wire.h"

struct watch;

/* One connection being read; lives on the worker's stack between add and remove. */
struct watch_entry {
    struct watch_entry *next, *prev;
    int64_t deadline_ms; /* rl_mono_ms */
    struct wire_ends ends;
    bool fired;
};

/* One connection whose worker waits for something else; lives between add and remove. */
struct watch_peer {
    struct watch_peer *next, *prev;
    int fd; /* -1: was not found, and never leaves */
    atomic_bool left;
};

/* on_left: called by the watch's thread, without its lock, after it has marked clients as left. */
enum rl_rc watch_start(void (*on_left)(void *user), void *user, struct watch **ret_watch,
                       struct rl_err *err) RL_NODISCARD;
void watch_stop(struct watch *watch); /* nobody may be reading; NULL allowed */

/* for_ms from now. */
void watch_add(struct watch *watch, struct watch_entry *entry, const struct wire_ends *ends,
               int64_t for_ms);
/* true: the deadline passed and the reading side was closed. */
bool watch_remove(struct watch *watch, struct watch_entry *entry);

/* Looks once a second whether this client has closed its side. */
void watch_peer_add(struct watch *watch, struct watch_peer *peer, const struct wire_ends *ends);
void watch_peer_remove(struct watch *watch, struct watch_peer *peer);

/* Nearly all threads are taken: for the next seconds, connections to this port that have brought
 * no whole request head and nothing for quiet_ms are cut. Any thread. */
void watch_crowd(struct watch *watch, int port, int64_t quiet_ms);

#endif
