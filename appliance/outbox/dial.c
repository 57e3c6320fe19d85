/* Which addresses a callback may be dialled at. Pure but for the list of this host's own addresses,
 * which the kernel is asked for when the port is reeld's. Loopback and private networks are allowed
 * on purpose: the apps of this workstation live there. Invariant: the decision is about the binary
 * address that is about to be dialled, never about a name. */
#include "outbox/parts.h"

#include "net/net.h"

bool outbox_dial_allowed(const struct sockaddr *addr, int own_port)
{
    if (net_addr_is_unspecified_or_multicast(addr) || net_addr_is_link_local(addr))
        return false;
    return net_addr_port(addr) != own_port || !net_addr_is_local_interface(addr);
}
