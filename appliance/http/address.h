/* Client addresses: text, CIDR lists, and who stands behind a front proxy. Pure, no CivetWeb. */
#ifndef RL_HTTP_ADDRESS_H
#define RL_HTTP_ADDRESS_H

#include "base/rl.h"
#include "http/head.h"

/* IPv6, or IPv4 as ::ffff:a.b.c.d. */
struct address {
    uint8_t bytes[16];
};
/* "192.0.2.1", "::1", also as "192.0.2.1:80", "[::1]", "[::1]:80". */
bool address_parse(const char *text, size_t len, struct address *ret_address);
/* 127/8 or ::1 */
bool address_is_loopback(const struct address *address);
/* What one client can choose freely is cut off: an IPv6 address becomes its /64. */
void address_client(struct address *address);

struct address_list {
    struct address_range {
        struct address base;
        unsigned bits; /* 0..128; of IPv4: 96 more than written */
    } * ranges;        /* owned */
    size_t count;
};
/* Comma separated addresses and CIDR ranges. RL_INVALID_FIELD naming `field`; RL_NO_MEMORY. */
enum rl_rc address_list_parse(const char *text, const char *field, struct address_list *ret_list,
                              struct rl_err *err) RL_NODISCARD;
void address_list_free(struct address_list *list);
bool address_listed(const struct address_list *list, const struct address *address);

/* Who sent the request: the peer; when it is a trusted proxy, the right-most X-Forwarded-For entry
 * that is not one. An entry that is no address becomes "::": one stranger, never loopback. So does
 * a loopback peer that is not trusted and sends the header: it asks for somebody elsewhere. */
void address_of_client(const struct address_list *trusted, const char *peer,
                       const struct head_field *fields, size_t field_count,
                       struct address *ret_client);

#endif
