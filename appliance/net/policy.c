/* The address policy: a list parsed once, then only read (the own port is an atomic), so any thread
 * may judge. Invariants: the decision is about the binary address that is about to be dialled,
 * never about a spelling; IPv6 forms that wrap an IPv4 address get past no rule that the IPv4
 * address would not get past; what no rule names is refused. */
#include "net/policy.h"

#include "net/net.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define NAME_MAX_BYTES 253
#define RULES_MAX      256
#define ENTRY_MAX      384

/* A binary address for comparing: IPv4-mapped IPv6 is IPv4, which the kernel makes of it. */
struct place {
    int family;
    uint8_t bytes[16]; /* IPv4: the first 4 */
    int port;
};

struct rule {
    char name[NAME_MAX_BYTES + 1]; /* "" = for every host */
    struct place net;
    unsigned bits;
    int first_port, last_port;
};

struct net_policy {
    char key[64];
    enum net_public open;
    char loopback_off[64]; /* "" = loopback passes; else the name of the setting */
    _Atomic int own_port;
    size_t n;
    struct rule rule[];
};

/* First `bits` bits equal? */
static bool same_prefix(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;

    if (memcmp(a, b, whole) != 0)
        return false;
    return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

static struct place place_of(const struct sockaddr *addr)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct place p = {.family = AF_UNSPEC, .port = net_addr_port(addr)};

    if (addr && addr->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, addr, sizeof in);
        p.family = AF_INET;
        memcpy(p.bytes, &in.sin_addr, 4);
    } else if (addr && addr->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, addr, sizeof in6);
        bool wraps = memcmp(&in6.sin6_addr, mapped, sizeof mapped) == 0;
        p.family = wraps ? AF_INET : AF_INET6;
        memcpy(p.bytes, in6.sin6_addr.s6_addr + (wraps ? 12 : 0), wraps ? 4 : 16);
    }
    return p;
}

/* ---- the public internet ---- */

static bool public_v4(const uint8_t a[4])
{
    static const struct {
        uint8_t net[4];
        unsigned bits;
    } reserved[] = {{{0}, 8},
                    {{10}, 8},
                    {{100, 64}, 10},
                    {{127}, 8},
                    {{169, 254}, 16},
                    {{172, 16}, 12},
                    {{192, 0, 0}, 24},
                    {{192, 0, 2}, 24},
                    {{192, 88, 99}, 24},
                    {{192, 168}, 16},
                    {{198, 18}, 15},
                    {{198, 51, 100}, 24},
                    {{203, 0, 113}, 24},
                    {{224}, 4},
                    {{240}, 4}};

    for (size_t i = 0; i < RL_ARRAY_LEN(reserved); i++)
        if (same_prefix(a, reserved[i].net, reserved[i].bits))
            return false;
    return true;
}

static bool public_v6(const uint8_t a[16])
{
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b}; /* RFC 6052 */
    static const struct {
        uint8_t net[4];
        unsigned bits;
    } reserved[] = {{{0x20, 0x01}, 23}, /* IETF protocols, Teredo among them */
                    {{0x20, 0x01, 0x0d, 0xb8}, 32},
                    {{0x20, 0x02}, 16}, /* 6to4 */
                    {{0x3f, 0xff}, 20}};

    if (memcmp(a, nat64, sizeof nat64) == 0)
        return public_v4(a + 12);
    for (size_t i = 0; i < RL_ARRAY_LEN(reserved); i++)
        if (same_prefix(a, reserved[i].net, reserved[i].bits))
            return false;
    return (a[0] & 0xe0) == 0x20; /* 2000::/3, the only global unicast in use */
}

/* ---- the list ---- */

static enum rl_rc refuse_entry(const char *key, const char *entry, const char *why,
                               struct rl_err *err)
{
    return rl_fail_field(err, RL_INVALID_FIELD, key, "'%.80s' %s", entry, why);
}

/* A decimal number of at most 5 digits that is the whole text. */
static bool parse_number(const char *text, int min, int max, int *ret_value)
{
    size_t len = strlen(text);
    int value = 0;

    if (len < 1 || len > 5 || strspn(text, "0123456789") != len)
        return false;
    for (; *text; text++)
        value = value * 10 + (*text - '0');
    *ret_value = value;
    return value >= min && value <= max;
}

static bool parse_ports(char *text, struct rule *rule)
{
    rule->first_port = 1;
    rule->last_port = 65535;
    if (!text || strcmp(text, "*") == 0)
        return true;
    char *dash = strchr(text, '-');
    if (dash)
        *dash = '\0';
    if (!parse_number(text, 1, 65535, &rule->first_port))
        return false;
    return parse_number(dash ? dash + 1 : text, rule->first_port, 65535, &rule->last_port);
}

/* "ADDRESS" or "ADDRESS/BITS" */
static bool parse_net(char *text, struct rule *rule)
{
    char *slash = strchr(text, '/');
    int bits = 0;

    if (slash)
        *slash = '\0';
    if (inet_pton(AF_INET, text, rule->net.bytes) == 1)
        rule->net.family = AF_INET;
    else if (inet_pton(AF_INET6, text, rule->net.bytes) == 1)
        rule->net.family = AF_INET6;
    else
        return false;
    int most = rule->net.family == AF_INET ? 32 : 128;
    if (slash && !parse_number(slash + 1, 0, most, &bits))
        return false;
    rule->bits = (unsigned)(slash ? bits : most);
    return true;
}

/* Cut "[NET]:PORTS", "NET4:PORTS" or "NET" in two; *ret_ports NULL when there are none. */
static bool cut_ports(char **net, char **ret_ports)
{
    char *text = *net, *colon = strchr(text, ':');

    *ret_ports = NULL;
    if (text[0] == '[') {
        char *close = strchr(text, ']');
        if (!close || (close[1] != '\0' && close[1] != ':'))
            return false;
        *ret_ports = close[1] ? close + 2 : NULL;
        *close = '\0';
        *net = text + 1;
        return true;
    }
    if (colon && !strchr(colon + 1, ':')) { /* one colon: IPv4 with ports */
        *colon = '\0';
        *ret_ports = colon + 1;
    }
    return true;
}

static bool parse_name(const char *text, struct rule *rule)
{
    size_t len = strlen(text);

    if (len < 1 || len > NAME_MAX_BYTES)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] - 'A' + 'a') : text[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr("-_.", c)))
            return false;
        rule->name[i] = c;
    }
    return true;
}

static enum rl_rc parse_entry(const char *key, const char *text, struct rule *rule,
                              struct rl_err *err)
{
    char copy[ENTRY_MAX], *net = copy, *ports = NULL;

    if (!text[0])
        return refuse_entry(key, text, "is an empty entry", err);
    if (!rl_copy_str(copy, sizeof copy, text))
        return refuse_entry(key, text, "is too long", err);
    char *equals = strchr(copy, '=');
    if (equals) {
        *equals = '\0';
        net = equals + 1;
        if (!parse_name(copy, rule))
            return refuse_entry(key, text, "has no host name before '='", err);
    }
    if (!cut_ports(&net, &ports) || !parse_net(net, rule))
        return refuse_entry(key, text, "has no address or CIDR (IPv6 with ports: [::1]:8000)", err);
    if (!parse_ports(ports, rule))
        return refuse_entry(key, text, "has no port, range of ports or * after ':'", err);
    return RL_OK;
}

static size_t count_entries(const char *list)
{
    size_t n = list[strspn(list, " \t")] ? 1 : 0;

    for (const char *p = list; *p; p++)
        n += *p == ',';
    return n;
}

static enum rl_rc parse_list(struct net_policy *policy, const char *list, size_t n,
                             struct rl_err *err)
{
    for (const char *at = list; policy->n < n; at++) {
        char entry[ENTRY_MAX + 1] = "";
        at += strspn(at, " \t");
        size_t len = strcspn(at, ",");
        const char *end = at + len;
        while (len > 0 && (at[len - 1] == ' ' || at[len - 1] == '\t'))
            len--;
        memcpy(entry, at, len < ENTRY_MAX ? len : ENTRY_MAX); /* too long a one is refused below */
        enum rl_rc rc = parse_entry(policy->key, entry, &policy->rule[policy->n], err);
        if (rc != RL_OK)
            return rc;
        policy->n++;
        at = end;
    }
    return RL_OK;
}

enum rl_rc net_policy_new(const char *key, const char *list, enum net_public open,
                          const char *loopback_off, struct net_policy **ret_policy,
                          struct rl_err *err)
{
    size_t n = count_entries(list);

    if (n > RULES_MAX)
        return rl_fail_field(err, RL_INVALID_FIELD, key, "more than %d entries", RULES_MAX);
    struct net_policy *policy = calloc(1, sizeof *policy + n * sizeof policy->rule[0]);
    if (!policy)
        return rl_fail(err, RL_NO_MEMORY, "address policy");
    (void)rl_copy_str(policy->key, sizeof policy->key, key); /* a short constant */
    policy->open = open;
    if (loopback_off)
        (void)rl_copy_str(policy->loopback_off, sizeof policy->loopback_off, loopback_off);
    enum rl_rc rc = parse_list(policy, list, n, err);
    if (rc != RL_OK) {
        net_policy_free(policy);
        return rc;
    }
    *ret_policy = policy;
    return RL_OK;
}

void net_policy_free(struct net_policy *policy)
{
    free(policy);
}

void net_policy_set_own_port(struct net_policy *policy, int port)
{
    atomic_store(&policy->own_port, port);
}

/* ---- judging ---- */

enum verdict { ALLOWED, NEVER, OWN_PORT, NOT_LISTED, LOOPBACK_OFF, NEEDS_HTTPS };

struct target {
    char host[NET_ENDPOINT_MAX]; /* without brackets and final dot */
    bool https;
    int port;
};

/* false: this is no "scheme://host:port". */
static bool parse_endpoint(const char *endpoint, struct target *target)
{
    const char *host = strstr(endpoint, "://");
    const char *colon = strrchr(endpoint, ':');

    *target = (struct target){.https = strncmp(endpoint, "https://", 8) == 0};
    if (!host || colon <= host || !parse_number(colon + 1, 1, 65535, &target->port))
        return false;
    host += 3;
    size_t len = (size_t)(colon - host);
    if (len > 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    } else if (len > 1 && host[len - 1] == '.') {
        len--;
    }
    if (len < 1 || len >= sizeof target->host)
        return false;
    memcpy(target->host, host, len);
    return true;
}

static bool rule_matches(const struct rule *rule, const struct place *place)
{
    return rule->net.family == place->family && place->port >= rule->first_port &&
           place->port <= rule->last_port && same_prefix(rule->net.bytes, place->bytes, rule->bits);
}

/* What the list says: a name with entries of its own has no others. */
static bool listed(const struct net_policy *policy, const struct target *target,
                   const struct place *place, bool *ret_bound)
{
    *ret_bound = false;
    for (size_t i = 0; i < policy->n; i++) {
        const struct rule *rule = &policy->rule[i];
        if (!rule->name[0] || strcasecmp(rule->name, target->host) != 0)
            continue;
        *ret_bound = true;
        if (rule_matches(rule, place))
            return true;
    }
    for (size_t i = 0; i < policy->n && !*ret_bound; i++)
        if (!policy->rule[i].name[0] && rule_matches(&policy->rule[i], place))
            return true;
    return false;
}

static enum verdict judge(const struct net_policy *policy, const struct target *target,
                          const struct sockaddr *addr)
{
    struct place place = place_of(addr);
    int own_port = atomic_load(&policy->own_port);
    bool bound;

    if (net_addr_is_unspecified_or_multicast(addr) || net_addr_is_link_local(addr))
        return NEVER;
    if (own_port && place.port == own_port && net_addr_is_local_interface(addr))
        return OWN_PORT;
    if (listed(policy, target, &place, &bound))
        return ALLOWED;
    if (bound)
        return NOT_LISTED;
    if (net_addr_is_loopback(addr))
        return policy->loopback_off[0] ? LOOPBACK_OFF : ALLOWED;
    bool open = place.family == AF_INET ? public_v4(place.bytes) : public_v6(place.bytes);
    if (!open || policy->open == NET_PUBLIC_OFF)
        return NOT_LISTED;
    return policy->open == NET_PUBLIC_ANY || target->https ? ALLOWED : NEEDS_HTTPS;
}

bool net_policy_allows(const struct net_policy *policy, const char *endpoint,
                       const struct sockaddr *addr)
{
    struct target target;

    return parse_endpoint(endpoint, &target) && judge(policy, &target, addr) == ALLOWED;
}

/* The address that a host spells; false for a name. */
static bool literal(const struct target *target, struct sockaddr_storage *ret_addr)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)target->port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)target->port)};

    memset(ret_addr, 0, sizeof *ret_addr);
    if (inet_pton(AF_INET, target->host, &in.sin_addr) == 1)
        memcpy(ret_addr, &in, sizeof in);
    else if (inet_pton(AF_INET6, target->host, &in6.sin6_addr) == 1)
        memcpy(ret_addr, &in6, sizeof in6);
    else
        return false;
    return true;
}

enum rl_rc net_policy_check(const struct net_policy *policy, const char *endpoint,
                            const char *field, struct rl_err *err)
{
    struct target target;
    struct sockaddr_storage addr;

    if (!parse_endpoint(endpoint, &target))
        return rl_fail_field(err, RL_INVALID_FIELD, field, "has no host and port");
    if (!literal(&target, &addr))
        return RL_OK;
    switch (judge(policy, &target, (const struct sockaddr *)&addr)) {
    case ALLOWED:
        return RL_OK;
    case NEVER:
        return rl_fail_field(
            err, RL_INVALID_FIELD, field,
            "the address %.60s is never dialled (link-local, multicast or reserved)", target.host);
    case OWN_PORT:
        return rl_fail_field(err, RL_INVALID_FIELD, field, "this is reeld's own port");
    case NEEDS_HTTPS:
        return rl_fail_field(err, RL_INVALID_FIELD, field,
                             "the public address %.60s must be reached by https", target.host);
    case LOOPBACK_OFF:
        return rl_fail_field(err, RL_INVALID_FIELD, field,
                             "the loopback address %.60s is closed to callers (%s), and port %d is "
                             "not in %s",
                             target.host, policy->loopback_off, target.port, policy->key);
    case NOT_LISTED:
        break;
    }
    return rl_fail_field(err, RL_INVALID_FIELD, field, "the address %.60s port %d is not in %s",
                         target.host, target.port, policy->key);
}
