/* Address predicates: what kind of place a binary socket address is. No state, any thread.
 * Invariant: an IPv6 address that only wraps an IPv4 address is never judged more kindly than the
 * IPv4 address itself, and a family this file does not know is never called a good place. */
#include "net/net.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

/* An address without its wrapping. */
struct plain {
    int family; /* AF_INET, AF_INET6, or AF_UNSPEC for anything else */
    uint32_t v4;
    uint8_t v6[16];
};

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

static bool in4(uint32_t addr, uint32_t net, unsigned bits)
{
    return ((addr ^ net) >> (32 - bits)) == 0;
}

static bool is_mapped(const uint8_t a[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* ::ffff:0:0/96, RFC 4291 */
    return memcmp(a, mapped, sizeof mapped) == 0;
}

/* The IPv4 address inside an IPv6 address, or false. */
static bool wrapped_v4(const uint8_t a[16], uint32_t *ret_v4)
{
    static const uint8_t zero[15];
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b}; /* 64:ff9b::/96, RFC 6052 */

    if (memcmp(a, zero, 15) == 0 && a[15] <= 1)
        return false; /* :: and ::1 are themselves */
    if (memcmp(a, zero, 12) == 0 || is_mapped(a) || memcmp(a, nat64, sizeof nat64) == 0) {
        *ret_v4 = be32(a + 12);
        return true;
    }
    if (a[0] == 0x20 && a[1] == 0x02) { /* 6to4, RFC 3056 */
        *ret_v4 = be32(a + 2);
        return true;
    }
    return false;
}

static struct plain unwrap(const struct sockaddr *addr)
{
    struct plain out = {.family = AF_UNSPEC};

    if (addr && addr->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, addr, sizeof in);
        out.family = AF_INET;
        out.v4 = ntohl(in.sin_addr.s_addr);
    } else if (addr && addr->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, addr, sizeof in6);
        memcpy(out.v6, &in6.sin6_addr, sizeof out.v6);
        out.family = wrapped_v4(out.v6, &out.v4) ? AF_INET : AF_INET6;
    }
    return out;
}

static bool plain_is_loopback(const struct plain *p)
{
    static const uint8_t one[16] = {[15] = 1};

    if (p->family == AF_INET)
        return in4(p->v4, 0x7f000000, 8);
    return p->family == AF_INET6 && memcmp(p->v6, one, sizeof one) == 0;
}

static bool plain_is_unspecified(const struct plain *p)
{
    static const uint8_t zero[16];

    if (p->family == AF_INET)
        return in4(p->v4, 0, 8);
    return p->family == AF_INET6 && memcmp(p->v6, zero, sizeof zero) == 0;
}

static bool plain_equal(const struct plain *a, const struct plain *b)
{
    if (a->family != b->family)
        return false;
    if (a->family == AF_INET)
        return a->v4 == b->v4;
    return a->family == AF_INET6 && memcmp(a->v6, b->v6, sizeof a->v6) == 0;
}

bool net_addr_is_link_local(const struct sockaddr *addr)
{
    struct plain p = unwrap(addr);

    if (p.family == AF_INET)
        return in4(p.v4, 0xa9fe0000, 16);
    return p.family == AF_INET6 && p.v6[0] == 0xfe && (p.v6[1] & 0xc0) == 0x80;
}

bool net_addr_is_loopback(const struct sockaddr *addr)
{
    struct plain p = unwrap(addr);

    if (addr && addr->sa_family == AF_INET6 && p.family == AF_INET && !is_mapped(p.v6))
        return false;
    return plain_is_loopback(&p);
}

bool net_addr_is_unspecified_or_multicast(const struct sockaddr *addr)
{
    struct plain p = unwrap(addr);

    if (p.family == AF_UNSPEC || plain_is_unspecified(&p))
        return true;
    if (p.family == AF_INET)
        return in4(p.v4, 0xe0000000, 3); /* 224/4 and 240/4 */
    return p.v6[0] == 0xff;
}

bool net_addr_is_local_interface(const struct sockaddr *addr)
{
    struct plain p = unwrap(addr);
    struct ifaddrs *all = NULL;
    bool found = false;

    /* Linux connects 0.0.0.0 and :: to the host itself. */
    if (plain_is_loopback(&p) || plain_is_unspecified(&p))
        return true;
    if (p.family == AF_UNSPEC)
        return false;
    if (getifaddrs(&all) != 0)
        return true;
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
        struct plain mine = unwrap(i->ifa_addr);
        found = plain_equal(&p, &mine);
    }
    freeifaddrs(all);
    return found;
}

int net_addr_port(const struct sockaddr *addr)
{
    if (addr && addr->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, addr, sizeof in);
        return ntohs(in.sin_port);
    }
    if (addr && addr->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, addr, sizeof in6);
        return ntohs(in6.sin6_port);
    }
    return -1;
}
