/* The sockets behind the connections. CivetWeb hides them, but their two ends are public and
 * unique, so they are found among the open files of the process. No state; any thread. Each look
 * costs a system call or two per open file. */
#ifndef RL_HTTP_WIRE_H
#define RL_HTTP_WIRE_H

#include <netinet/in.h>

#include "base/rl.h"

/* The two ends of a connection: unique among the open ones. */
struct wire_ends {
    struct sockaddr_in peer;
    int local_port;
};

/* peer_ip in text, as CivetWeb gives it. */
struct wire_ends wire_ends(const char *peer_ip, int peer_port, int local_port);
/* The socket, or -1. It is the connection's as long as a worker is known to hold that. */
int wire_find(const struct wire_ends *ends);
/* Has the client of this socket closed its side? */
bool wire_left(int fd);
/* Cut what loiters: connections to this port without a whole request head that have brought nothing
 * for quiet_ms. Only those are seen that no worker has read from: what it has, the library ends. */
void wire_clear(int port, int64_t quiet_ms);
/* End every connection to this port and the listening on it. */
void wire_hang_up(int port);

#endif
