/* A small receiver of webhooks on loopback, for people who develop an app: no routes, no keys, no
 * state. It has nothing to do with the server but the library. */
#ifndef RL_HTTP_RECEIVER_H
#define RL_HTTP_RECEIVER_H

#include "base/webhook.h"

struct receiver;

/* One POST, borrowed for the call. Returns the status to answer, 200..599. Called on several
 * threads at once. */
typedef int (*receiver_fn)(void *user, const struct rl_webhook *hook);

/* Listens on 127.0.0.1:port (0 = a free one). Any other method is 405, a body over 1 MiB 413.
 * RL_IO_ERROR: the port is taken. */
enum rl_rc receiver_start(int port, receiver_fn fn, void *user, struct receiver **ret_receiver,
                          int *ret_port, struct rl_err *err) RL_NODISCARD;
/* Ends what is under way; no call runs when it returns. NULL allowed. */
void receiver_stop(struct receiver *receiver);

#endif
