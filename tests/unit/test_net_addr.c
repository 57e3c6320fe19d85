/* What the address helpers say about every range that a policy cares about. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "net/net.h"

#define LINK  1u /* link-local */
#define LOOP  2u /* loopback */
#define NONE  4u /* unspecified, multicast, reserved */
#define LOCAL 8u /* an address of this host */

static const struct {
    const char *text;
    unsigned expected;
} TABLE[] = {
    {"0.0.0.0", NONE | LOCAL},
    {"0.1.2.3", NONE | LOCAL},
    {"1.0.0.0", 0},
    {"8.8.8.8", 0},
    {"10.0.0.1", 0},
    {"100.64.0.1", 0},
    {"126.255.255.255", 0},
    {"127.0.0.1", LOOP | LOCAL},
    {"127.255.255.254", LOOP | LOCAL},
    {"128.0.0.0", 0},
    {"169.253.255.255", 0},
    {"169.254.0.0", LINK},
    {"169.254.169.254", LINK},
    {"169.254.255.255", LINK},
    {"169.255.0.0", 0},
    {"172.16.0.1", 0},
    {"223.255.255.255", 0},
    {"224.0.0.0", NONE},
    {"239.255.255.255", NONE},
    {"240.0.0.1", NONE},
    {"255.255.255.255", NONE},
    {"::", NONE | LOCAL},
    {"::1", LOOP | LOCAL},
    {"::2", NONE | LOCAL}, /* ::0.0.0.2 */
    {"fe80::1", LINK},
    {"febf::1", LINK},
    {"fe7f::1", 0},
    {"fec0::1", 0},
    {"fc00::1", 0},
    {"ff00::", NONE},
    {"ff02::1", NONE},
    {"2001:db8::1", 0},
    {"2606:4700::1111", 0},
    /* mapped: the kernel dials the IPv4 address */
    {"::ffff:127.0.0.1", LOOP | LOCAL},
    {"::ffff:169.254.169.254", LINK},
    {"::ffff:8.8.8.8", 0},
    {"::ffff:0.0.0.0", NONE | LOCAL},
    {"::ffff:224.0.0.1", NONE},
    /* compatible */
    {"::169.254.169.254", LINK},
    {"::127.0.0.1", LOCAL},
    {"::8.8.8.8", 0},
    /* NAT64 */
    {"64:ff9b::169.254.169.254", LINK},
    {"64:ff9b::127.0.0.1", LOCAL},
    {"64:ff9b::8.8.8.8", 0},
    {"64:ff9b::255.255.255.255", NONE},
    {"64:ff9b:1::169.254.169.254", 0}, /* another prefix */
    /* 6to4 */
    {"2002:a9fe:a9fe::1", LINK},
    {"2002:7f00:1::1", LOCAL},
    {"2002:808:808::1", 0},
    {"2002:e000:1::", NONE},
};

static struct sockaddr_storage address(const char *text, uint16_t port)
{
    struct sockaddr_storage out = {0};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

    if (inet_pton(AF_INET, text, &in.sin_addr) == 1) {
        memcpy(&out, &in, sizeof in);
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
        memcpy(&out, &in6, sizeof in6);
    }
    return out;
}

static unsigned judge(const struct sockaddr *sa)
{
    return (net_addr_is_link_local(sa) ? LINK : 0) | (net_addr_is_loopback(sa) ? LOOP : 0) |
           (net_addr_is_unspecified_or_multicast(sa) ? NONE : 0) |
           (net_addr_is_local_interface(sa) ? LOCAL : 0);
}

static void test_net_addr_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(TABLE); i++) {
        struct sockaddr_storage addr = address(TABLE[i].text, 80);
        unsigned got = judge((const struct sockaddr *)&addr);
        if (got != TABLE[i].expected)
            fail_msg("%s: got %u, expected %u", TABLE[i].text, got, TABLE[i].expected);
    }
}

static void test_net_addr_other_family_is_no_place(void **state)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};

    (void)state;
    assert_int_equal(judge((const struct sockaddr *)&un), NONE);
    assert_int_equal(judge(NULL), NONE);
    assert_int_equal(net_addr_port((const struct sockaddr *)&un), -1);
    assert_int_equal(net_addr_port(NULL), -1);
}

static void test_net_addr_port_both_families(void **state)
{
    struct sockaddr_storage v4 = address("192.0.2.1", 8080);
    struct sockaddr_storage v6 = address("2001:db8::1", 65535);

    (void)state;
    assert_int_equal(net_addr_port((const struct sockaddr *)&v4), 8080);
    assert_int_equal(net_addr_port((const struct sockaddr *)&v6), 65535);
}

/* Every address of every interface, whatever they are on this machine, also wrapped. */
static void test_net_addr_is_local_interface_finds_all(void **state)
{
    struct ifaddrs *all = NULL;
    size_t seen = 0;

    (void)state;
    assert_int_equal(getifaddrs(&all), 0);
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr ||
            (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
            continue;
        assert_true(net_addr_is_local_interface(i->ifa_addr));
        seen++;
        if (i->ifa_addr->sa_family == AF_INET) {
            char dotted[INET_ADDRSTRLEN];
            char mapped[64];
            struct sockaddr_in in;
            memcpy(&in, i->ifa_addr, sizeof in);
            assert_non_null(inet_ntop(AF_INET, &in.sin_addr, dotted, sizeof dotted));
            assert_true(snprintf(mapped, sizeof mapped, "::ffff:%s", dotted) > 0);
            struct sockaddr_storage wrapped = address(mapped, 1);
            assert_true(net_addr_is_local_interface((const struct sockaddr *)&wrapped));
        }
    }
    freeifaddrs(all);
    assert_true(seen > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_net_addr_table),
        cmocka_unit_test(test_net_addr_other_family_is_no_place),
        cmocka_unit_test(test_net_addr_port_both_families),
        cmocka_unit_test(test_net_addr_is_local_interface_finds_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
