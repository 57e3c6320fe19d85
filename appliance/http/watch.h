/* Deadlines for reading. CivetWeb's mg_read looks at the clock only when a poll times out, so one
 * byte per second holds a thread for ever; the watch closes the reading side of such a connection
 * instead. */
#ifndef RL_HTTP_WATCH_H
#define RL_HTTP_WATCH_H

#include <netinet/in.h>

#include "base/rl.h"

struct watch;

/* One connection being read; lives on the worker's stack between add and remove. */
struct watch_entry {
    struct watch_entry *next, *prev;
    int64_t deadline_ms;     /* rl_mono_ms */
    struct sockaddr_in peer; /* unique among open connections to one port */
    int local_port;
    bool fired;
};

enum rl_rc watch_start(struct watch **ret_watch, struct rl_err *err) RL_NODISCARD;
void watch_stop(struct watch *watch); /* nobody may be reading; NULL allowed */
/* peer_ip in text; for_ms from now. */
void watch_add(struct watch *watch, struct watch_entry *entry, const char *peer_ip, int peer_port,
               int local_port, int64_t for_ms);
/* true: the deadline passed and the reading side was closed. */
bool watch_remove(struct watch *watch, struct watch_entry *entry);
/* Nearly all threads are taken: for the next seconds, connections to this port that have brought
 * no whole request head and nothing for quiet_ms are cut. Any thread. */
void watch_crowd(struct watch *watch, int port, int64_t quiet_ms);
/* Ends every connection to this port and the listening on it, so that the library's threads, which
 * would look for the end of the server every two seconds only, look now. */
void watch_hang_up(int port);

#endif
