/* Which addresses may be dialled, as a table of numeric addresses. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

#include "outbox/parts.h"

#define OWN 8080

static bool allowed(const char *ip, int port)
{
    struct sockaddr_storage addr = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&addr;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&addr;

    if (inet_pton(AF_INET, ip, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons((uint16_t)port);
    } else {
        assert_int_equal(inet_pton(AF_INET6, ip, &in6->sin6_addr), 1);
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((uint16_t)port);
    }
    return outbox_dial_allowed((struct sockaddr *)&addr, OWN);
}

static void test_outbox_dial_allowed_table(void **state)
{
    static const struct {
        const char *ip;
        int port;
        bool want;
    } table[] = {
        /* local apps and the network */
        {"127.0.0.1", 3000, true},
        {"127.8.9.10", 3000, true},
        {"::1", 3000, true},
        {"::ffff:127.0.0.1", 3000, true},
        {"192.168.1.20", 443, true},
        {"10.0.0.7", 80, true},
        {"203.0.113.9", 443, true},
        {"2001:db8::5", 443, true},
        /* reeld's own port, on any address of this host; elsewhere it is just a port */
        {"127.0.0.1", OWN, false},
        {"127.8.9.10", OWN, false},
        {"::1", OWN, false},
        {"::ffff:127.0.0.1", OWN, false},
        {"203.0.113.9", OWN, true},
        /* unspecified: Linux connects these to itself */
        {"0.0.0.0", 3000, false},
        {"0.1.2.3", 3000, false},
        {"::", 3000, false},
        {"::ffff:0.0.0.0", 3000, false},
        /* link-local and metadata, also wrapped */
        {"169.254.169.254", 80, false},
        {"169.254.0.1", 80, false},
        {"fe80::1", 80, false},
        {"febf::1", 80, false},
        {"::ffff:169.254.169.254", 80, false},
        {"::169.254.169.254", 80, false},
        {"64:ff9b::a9fe:a9fe", 80, false},
        {"2002:a9fe:a9fe::1", 80, false},
        /* multicast, reserved and broadcast */
        {"224.0.0.1", 80, false},
        {"239.255.255.250", 80, false},
        {"255.255.255.255", 80, false},
        {"240.0.0.1", 80, false},
        {"ff02::1", 80, false},
        {"::ffff:224.0.0.1", 80, false},
    };

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(table); i++)
        if (allowed(table[i].ip, table[i].port) != table[i].want)
            fail_msg("%s port %d: want %d", table[i].ip, table[i].port, table[i].want);
}

static void test_outbox_dial_own_port_on_every_interface(void **state)
{
    struct ifaddrs *all = NULL;

    (void)state;
    assert_int_equal(getifaddrs(&all), 0);
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct sockaddr_in in;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
            continue;
        memcpy(&in, i->ifa_addr, sizeof in);
        in.sin_port = htons(OWN);
        assert_false(outbox_dial_allowed((struct sockaddr *)&in, OWN));
    }
    freeifaddrs(all);
}

static void test_outbox_dial_refuses_other_families(void **state)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "/run/x"};

    (void)state;
    assert_false(outbox_dial_allowed((struct sockaddr *)&un, OWN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outbox_dial_allowed_table),
        cmocka_unit_test(test_outbox_dial_own_port_on_every_interface),
        cmocka_unit_test(test_outbox_dial_refuses_other_families),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
