/* Reads addresses and decides whose word about a client's address counts. No state, any thread.
 * Invariant: a header can move a client to another address only when a trusted proxy sent it, or
 * from loopback to the stranger "::"; no text that is not an address ever becomes a loopback one.
 */
#include "http/address.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#define TEXT_BYTES 64
#define V4_BITS    96 /* of ::ffff:0:0/96, before an IPv4 address */

static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

static bool is_v4(const struct address *address)
{
    return memcmp(address->bytes, v4_prefix, sizeof(v4_prefix)) == 0;
}

static bool parse_bare(const char *text, struct address *ret_address)
{
    struct address address;
    if (inet_pton(AF_INET, text, address.bytes + sizeof(v4_prefix)) == 1)
        memcpy(address.bytes, v4_prefix, sizeof(v4_prefix));
    else if (inet_pton(AF_INET6, text, address.bytes) != 1)
        return false;
    *ret_address = address;
    return true;
}

static bool is_port(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits >= 1 && digits <= 5 && text[digits] == '\0';
}

bool address_parse(const char *text, size_t len, struct address *ret_address)
{
    char copy[TEXT_BYTES];
    if (len == 0 || len >= sizeof(copy))
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (copy[0] == '[') {
        char *end = strchr(copy, ']');
        if (!end || (end[1] && (end[1] != ':' || !is_port(end + 2))))
            return false;
        *end = '\0';
        return strchr(copy + 1, ':') && parse_bare(copy + 1, ret_address);
    }
    char *colon = strchr(copy, ':');
    if (colon && strchr(copy, '.') && strchr(copy, '.') < colon) { /* 192.0.2.1:80 */
        if (!is_port(colon + 1))
            return false;
        *colon = '\0';
    }
    return parse_bare(copy, ret_address);
}

bool address_is_loopback(const struct address *address)
{
    static const uint8_t one[16] = {[15] = 1};
    return is_v4(address) ? address->bytes[12] == 127 : !memcmp(address->bytes, one, sizeof(one));
}

void address_client(struct address *address)
{
    if (!is_v4(address) && !address_is_loopback(address))
        memset(address->bytes + 8, 0, 8);
}

static bool in_range(const struct address_range *range, const struct address *address)
{
    unsigned whole = range->bits / 8, rest = range->bits % 8;
    if (memcmp(range->base.bytes, address->bytes, whole) != 0)
        return false;
    return rest == 0 || (range->base.bytes[whole] ^ address->bytes[whole]) >> (8 - rest) == 0;
}

bool address_listed(const struct address_list *list, const struct address *address)
{
    for (size_t i = 0; i < list->count; i++)
        if (in_range(&list->ranges[i], address))
            return true;
    return false;
}

/* One "address" or "address/bits". */
static bool parse_range(const char *text, size_t len, struct address_range *ret_range)
{
    char copy[TEXT_BYTES];
    struct address_range range;
    if (len == 0 || len >= sizeof(copy))
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    char *slash = strchr(copy, '/');
    if (slash)
        *slash++ = '\0';
    if (!parse_bare(copy, &range.base))
        return false;
    unsigned most = is_v4(&range.base) && !strchr(copy, ':') ? 32 : 128;
    unsigned bits = most;
    if (slash) {
        size_t digits = strspn(slash, "0123456789");
        if (digits < 1 || digits > 3 || slash[digits])
            return false;
        bits = (unsigned)strtoul(slash, NULL, 10);
        if (bits > most)
            return false;
    }
    range.bits = most == 32 ? V4_BITS + bits : bits;
    *ret_range = range;
    return true;
}

enum rl_rc address_list_parse(const char *text, const char *field, struct address_list *ret_list,
                              struct rl_err *err)
{
    size_t most = 1;
    for (const char *p = text; *p; p++)
        most += *p == ',';
    struct address_list list = {.ranges = calloc(most, sizeof(*list.ranges))};
    if (!list.ranges)
        return rl_fail(err, RL_NO_MEMORY, "no memory for %s", field);
    for (const char *p = text; *p;) {
        p += strspn(p, " \t");
        size_t len = strcspn(p, ", \t");
        if (!*p && list.count == 0)
            break;
        const char *after = p + len + strspn(p + len, " \t");
        if (!parse_range(p, len, &list.ranges[list.count]) || (*after && *after != ',') ||
            (*after == ',' && !after[1])) {
            address_list_free(&list);
            return rl_fail_field(err, RL_INVALID_FIELD, field,
                                 "must be addresses or CIDR ranges, as 127.0.0.1,10.0.0.0/8: %.*s",
                                 (int)(len < TEXT_BYTES ? len : TEXT_BYTES), p);
        }
        list.count++;
        p = after + (*after == ',');
    }
    *ret_list = list;
    return RL_OK;
}

void address_list_free(struct address_list *list)
{
    free(list->ranges);
    *list = (struct address_list){0};
}

/* The entries of one header value from right to left, as long as they are trusted. true: *client is
 * the first that is not. */
static bool walk_left(const struct address_list *trusted, const char *value, struct address *client)
{
    size_t end = strlen(value);
    for (;;) {
        size_t from = end;
        while (from > 0 && value[from - 1] != ',')
            from--;
        const char *entry = value + from;
        size_t len = end - from;
        while (len > 0 && (*entry == ' ' || *entry == '\t')) {
            entry++;
            len--;
        }
        while (len > 0 && (entry[len - 1] == ' ' || entry[len - 1] == '\t'))
            len--;
        if (!address_parse(entry, len, client)) {
            *client = (struct address){0};
            return true;
        }
        if (!address_listed(trusted, client))
            return true;
        if (from == 0)
            return false;
        end = from - 1;
    }
}

void address_of_client(const struct address_list *trusted, const char *peer,
                       const struct head_field *fields, size_t field_count,
                       struct address *ret_client)
{
    struct address client = {0};
    bool known = address_parse(peer, strlen(peer), &client);
    bool believed = known && address_listed(trusted, &client), found = false;
    for (size_t i = field_count; i > 0 && !found; i--) { /* a list may be split over fields */
        if (strcasecmp(fields[i - 1].name, "X-Forwarded-For") != 0)
            continue;
        if (believed)
            found = walk_left(trusted, fields[i - 1].value, &client);
        else if (address_is_loopback(&client))
            client = (struct address){0}; /* a front proxy that nobody named brings a stranger */
    }
    *ret_client = client;
}
