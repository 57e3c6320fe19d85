/* Which addresses may be dialled for somebody else's URL: an allow-list, a rule for the public
 * internet, and what is refused whatever the list says. */
#ifndef RL_NET_POLICY_H
#define RL_NET_POLICY_H

#include "base/rl.h"

struct net_policy;
struct sockaddr;

/* Public addresses (global unicast, outside every reserved range). */
enum net_public { NET_PUBLIC_OFF, NET_PUBLIC_HTTPS, NET_PUBLIC_ANY };

/* list: comma-separated entries `NET[:PORTS]` or `NAME=NET[:PORTS]`. NET is an IPv4 or IPv6 address
 * or CIDR, IPv6 in brackets when ports follow ("[fd00::/8]:443"); PORTS is a port, a range
 * "3000-9999" or "*" (the default). A NAME may be dialled at its own nets and nowhere else.
 * loopback_off: NULL = 127/8 and ::1 pass without an entry; else they do not, and errors name this
 * setting. key: what errors call the list. Both are copied.
 * errors: RL_INVALID_FIELD with field = key and the entry in the reason, RL_NO_MEMORY. */
enum rl_rc net_policy_new(const char *key, const char *list, enum net_public open,
                          const char *loopback_off, struct net_policy **ret_policy,
                          struct rl_err *err) RL_NODISCARD;
void net_policy_free(struct net_policy *policy); /* NULL allowed */

/* This program's listening port, which is never dialled on an address of this host; 0 = not known.
 * Any thread. */
void net_policy_set_own_port(struct net_policy *policy, int port);

/* May this binary address (with its port) be dialled for endpoint, "scheme://host:port" as
 * net_url_check writes it? In this order: never the own port on any address of this host, 0/8,
 * link-local and metadata, multicast, reserved and broadcast, also as IPv4 inside IPv6; then the
 * list; then loopback; then the public internet; else no. Any thread. */
bool net_policy_allows(const struct net_policy *policy, const char *endpoint,
                       const struct sockaddr *addr);

/* The same for an endpoint whose host is an address, before anything is dialled: RL_INVALID_FIELD
 * naming `field`, saying why. A name passes: it is judged when dialled. */
enum rl_rc net_policy_check(const struct net_policy *policy, const char *endpoint,
                            const char *field, struct rl_err *err) RL_NODISCARD;

#endif
