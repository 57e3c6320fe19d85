/* Small parts of `serve`: the listening address and the service manager. */
#ifndef RL_CLI_LISTEN_H
#define RL_CLI_LISTEN_H

#include "base/rl.h"

#define CLI_LISTEN_TEXT 32 /* "255.255.255.255:65535" */

/* Split "ip:port" (IPv4, port 0..65535). RL_INVALID_FIELD naming `listen`. ip[16]. */
enum rl_rc cli_listen_parse(const char *listen, char *ip, int *ret_port, struct rl_err *err)
    RL_NODISCARD;
/* Can this address be bound now? Port 0: the free one that was found, into *ret_port.
 * RL_UNAVAILABLE when another program has it. */
enum rl_rc cli_listen_probe(const char *ip, int port, int *ret_port, struct rl_err *err)
    RL_NODISCARD;
/* "http://IP:PORT" for programs on this machine (0.0.0.0 is called 127.0.0.1) into url[64]. */
void cli_listen_url(const char *ip, int port, char *url);

/* Tell the service manager ("READY=1"); nothing without $NOTIFY_SOCKET. sd_notify(3). */
void cli_notify(const char *state);
/* ms between WATCHDOG=1 messages that $WATCHDOG_USEC asks for (half of it); 0 = none. */
int64_t cli_watchdog_ms(void);

#endif
