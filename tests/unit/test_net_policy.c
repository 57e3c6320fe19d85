/* The address policy as tables: what is never dialled, the list, names bound to nets, the public
 * internet, and spellings of an address in a URL. */
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

#include "net/net.h"
#include "net/policy.h"

#define OWN 8080

static struct net_policy *policy(const char *list, enum net_public open, bool loopback)
{
    struct net_policy *p = NULL;
    struct rl_err err = {0};

    const char *off = loopback ? NULL : "callback.loopback";
    if (net_policy_new("callback.allow", list, open, off, &p, &err))
        fail_msg("%s: %s", list, err.reason);
    net_policy_set_own_port(p, OWN);
    return p;
}

static bool allows(const struct net_policy *p, const char *scheme, const char *name, const char *ip,
                   int port)
{
    struct sockaddr_storage addr = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&addr;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&addr;
    char endpoint[128];

    if (inet_pton(AF_INET, ip, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons((uint16_t)port);
    } else {
        assert_int_equal(inet_pton(AF_INET6, ip, &in6->sin6_addr), 1);
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((uint16_t)port);
    }
    (void)snprintf(endpoint, sizeof endpoint, "%s://%s:%d", scheme, name, port);
    return net_policy_allows(p, endpoint, (struct sockaddr *)&addr);
}

struct want {
    const char *ip;
    int port;
    bool want;
};

static void check_table(const struct net_policy *p, const char *scheme, const struct want *table,
                        size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (allows(p, scheme, "host.example", table[i].ip, table[i].port) != table[i].want)
            fail_msg("%s port %d: want %d", table[i].ip, table[i].port, table[i].want);
}

/* Nothing gets past these, not even a list that names everything. */
static void test_net_policy_never(void **state)
{
    static const struct want table[] = {
        {"127.0.0.1", 3000, true},
        {"10.0.0.7", 80, true},
        {"203.0.113.9", OWN, true}, /* elsewhere it is just a port */
        {"127.0.0.1", OWN, false},
        {"127.8.9.10", OWN, false},
        {"::1", OWN, false},
        {"::ffff:127.0.0.1", OWN, false},
        {"64:ff9b::7f00:1", OWN, false},
        {"0.0.0.0", 3000, false},
        {"0.1.2.3", 3000, false},
        {"::", 3000, false},
        {"::ffff:0.0.0.0", 3000, false},
        {"169.254.169.254", 80, false},
        {"169.254.0.1", 80, false},
        {"fe80::1", 80, false},
        {"febf::1", 80, false},
        {"::ffff:169.254.169.254", 80, false},
        {"::169.254.169.254", 80, false},
        {"64:ff9b::a9fe:a9fe", 80, false},
        {"2002:a9fe:a9fe::1", 80, false},
        {"224.0.0.1", 80, false},
        {"239.255.255.250", 80, false},
        {"255.255.255.255", 80, false},
        {"240.0.0.1", 80, false},
        {"ff02::1", 80, false},
        {"::ffff:224.0.0.1", 80, false},
    };
    struct net_policy *p = policy("0.0.0.0/0, ::/0", NET_PUBLIC_ANY, true);

    (void)state;
    check_table(p, "http", table, RL_ARRAY_LEN(table));
    net_policy_free(p);
}

static void test_net_policy_own_port_on_every_interface(void **state)
{
    struct ifaddrs *all = NULL;
    struct net_policy *p = policy("0.0.0.0/0", NET_PUBLIC_ANY, true);

    (void)state;
    assert_int_equal(getifaddrs(&all), 0);
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct sockaddr_in in;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
            continue;
        memcpy(&in, i->ifa_addr, sizeof in);
        in.sin_port = htons(OWN);
        assert_false(net_policy_allows(p, "http://x:8080", (struct sockaddr *)&in));
    }
    freeifaddrs(all);
    net_policy_free(p);
}

/* The default: this machine's apps, and the public internet by https. */
static void test_net_policy_default(void **state)
{
    static const struct want table[] = {
        {"127.0.0.1", 3000, true},
        {"127.8.9.10", 3000, true},
        {"::1", 3000, true},
        {"::ffff:127.0.0.1", 3000, true},
        {"::127.0.0.1", 3000, false},
        {"64:ff9b::7f00:1", 3000, false},
        {"2002:7f00:1::", 3000, false},
        {"10.0.0.7", 443, false},
        {"100.64.0.1", 443, false},
        {"172.16.0.1", 443, false},
        {"172.32.0.1", 443, true},
        {"192.168.1.20", 443, false},
        {"192.0.2.1", 443, false},
        {"198.18.0.1", 443, false},
        {"203.0.113.9", 443, false},
        {"::ffff:10.0.0.7", 443, false},
        {"64:ff9b::a00:7", 443, false},
        {"2002:a00:7::1", 443, false},
        {"fd00::1", 443, false},
        {"2001:db8::5", 443, false},
        {"2001::1", 443, false},
        {"93.184.216.34", 443, true},
        {"::ffff:93.184.216.34", 443, true},
        {"64:ff9b::5db8:d822", 443, true},
        {"2606:2800:220:1::1", 443, true},
    };
    struct net_policy *p = policy("", NET_PUBLIC_HTTPS, true);

    (void)state;
    check_table(p, "https", table, RL_ARRAY_LEN(table));
    assert_false(allows(p, "http", "host.example", "93.184.216.34", 80));
    assert_true(allows(p, "http", "host.example", "127.0.0.1", 80));
    net_policy_free(p);
    p = policy("", NET_PUBLIC_ANY, false);
    assert_true(allows(p, "http", "host.example", "93.184.216.34", 80));
    assert_false(allows(p, "http", "host.example", "127.0.0.1", 80));
    assert_false(allows(p, "http", "host.example", "::1", 80));
    net_policy_free(p);
    p = policy("", NET_PUBLIC_OFF, false);
    assert_false(allows(p, "https", "host.example", "93.184.216.34", 443));
    net_policy_free(p);
}

static void test_net_policy_list(void **state)
{
    static const struct want table[] = {
        {"127.0.0.1", 3000, true},         {"127.0.0.1", 9999, true},
        {"127.0.0.1", 2999, false},        {"127.0.0.1", 10000, false},
        {"127.0.0.2", 3000, false},        {"::1", 5, true},
        {"192.168.1.99", 443, true},       {"192.168.1.99", 80, false},
        {"192.168.2.1", 443, false},       {"::ffff:192.168.1.9", 443, true},
        {"64:ff9b::c0a8:109", 443, false}, {"fd00:1::5", 443, true},
        {"fd01::5", 443, false},           {"10.128.0.1", 1, true},
        {"10.127.255.255", 1, false},      {"192.168.1.20", 9, false},
        {"93.184.216.34", 80, false},
    };
    struct net_policy *p =
        policy("127.0.0.1:3000-9999,[::1]:*, 192.168.1.0/24:443 ,[fd00::/16]:443,"
               "10.128.0.0/9,hooks.lan=192.168.1.20/32",
               NET_PUBLIC_OFF, false);

    (void)state;
    check_table(p, "http", table, RL_ARRAY_LEN(table));
    net_policy_free(p);
}

/* A name with an entry leads to its nets and nowhere else, wherever it resolves. */
static void test_net_policy_names_are_bound(void **state)
{
    struct net_policy *p = policy("Hooks.LAN=192.168.1.20:8000-8999,hooks.lan=10.0.0.0/8,127.0.0.1",
                                  NET_PUBLIC_ANY, true);

    (void)state;
    assert_true(allows(p, "http", "hooks.lan", "192.168.1.20", 8000));
    assert_true(allows(p, "http", "hooks.lan.", "192.168.1.20", 8000));
    assert_true(allows(p, "http", "hooks.lan", "10.9.9.9", 80));
    assert_false(allows(p, "http", "hooks.lan", "192.168.1.20", 80));
    assert_false(allows(p, "http", "hooks.lan", "192.168.1.21", 8000));
    assert_false(allows(p, "http", "hooks.lan", "127.0.0.1", 8000));
    assert_false(allows(p, "https", "hooks.lan", "93.184.216.34", 443));
    assert_false(allows(p, "http", "hooks.lan", "169.254.169.254", 80));
    assert_false(allows(p, "http", "other.lan", "192.168.1.20", 8000));
    assert_true(allows(p, "http", "other.lan", "127.0.0.1", 8000));
    net_policy_free(p);
}

static void test_net_policy_bad_lists(void **state)
{
    static const char *const bad[] = {
        "localhost",    "10.0.0.0/33",   "::1/129",          "10.0.0.1:0", "10.0.0.1:70000",
        "10.0.0.1:9-8", "10.0.0.1:",     "10.0.0.1,",        ",",          "[::1",
        "[::1]x",       "=10.0.0.1",     "bad name=1.2.3.4", "a=",         "0x7f.1",
        "10.0.0.1/8/8", "1.2.3.4:80:90", "10.0.0.0/-1"};

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++) {
        struct net_policy *p = NULL;
        struct rl_err err = {0};
        if (net_policy_new("callback.allow", bad[i], NET_PUBLIC_OFF, NULL, &p, &err) !=
            RL_INVALID_FIELD)
            fail_msg("'%s' was accepted", bad[i]);
        assert_string_equal(err.field, "callback.allow");
        assert_null(p);
    }
}

/* What a client writes, through the one URL parser, to a verdict. */
static void test_net_policy_check_spellings(void **state)
{
    static const struct {
        const char *url;
        const char *why; /* NULL = accepted */
    } table[] = {
        {"http://127.0.0.1:3000/x", NULL},
        {"http://2130706433:3000/", NULL}, /* decimal 127.0.0.1 */
        {"http://localhost:3000/", NULL},
        {"http://[::1]:3000/", NULL},
        {"http://hooks.example/", NULL}, /* names are judged when dialled */
        {"http://127.0.0.1:8080/", "own port"},
        {"http://localhost:8080/", NULL}, /* a name */
        {"http://2130706433:8080/", "own port"},
        {"http://0177.0.0.1:8080/", "own port"},
        {"http://0x7f000001:8080/", "own port"},
        {"http://127.1:8080/", "own port"},
        {"http://[::ffff:127.0.0.1]:8080/", "own port"},
        {"http://[::ffff:7f00:1]:8080/", "own port"},
        {"http://2852039166/latest", "never dialled"}, /* 169.254.169.254 */
        {"http://0251.0376.0251.0376/", "never dialled"},
        {"http://[::ffff:169.254.169.254]/", "never dialled"},
        {"http://[64:ff9b::a9fe:a9fe]/", "never dialled"},
        {"http://0/", "never dialled"},
        {"http://10.1:443/", "not in callback.allow"},
        {"https://192.168.1.1/", "not in callback.allow"},
        {"http://93.184.216.34/", "https"},
        {"https://93.184.216.34/", NULL},
    };
    struct net_policy *p = policy("", NET_PUBLIC_HTTPS, true);

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(table); i++) {
        char endpoint[NET_ENDPOINT_MAX];
        struct rl_err err = {0};
        assert_int_equal(
            net_url_check(table[i].url, "callback_url", NULL, endpoint, sizeof endpoint, &err),
            RL_OK);
        enum rl_rc rc = net_policy_check(p, endpoint, "callback_url", &err);
        if ((rc == RL_OK) != !table[i].why)
            fail_msg("%s: %s", table[i].url, rc ? err.reason : "accepted");
        if (rc) {
            assert_int_equal(rc, RL_INVALID_FIELD);
            assert_string_equal(err.field, "callback_url");
            if (!strstr(err.reason, table[i].why))
                fail_msg("%s: %s", table[i].url, err.reason);
        }
    }
    net_policy_free(p);
}

/* Loopback that is closed is refused by the name of the setting; a listed port is open all the
 * same.
 */
static void test_net_policy_closed_loopback(void **state)
{
    struct net_policy *p = policy("127.0.0.1:3000", NET_PUBLIC_ANY, false);
    struct rl_err err = {0};

    (void)state;
    assert_int_equal(net_policy_check(p, "http://127.0.0.1:3000", "callback_url", &err), RL_OK);
    assert_int_equal(net_policy_check(p, "http://127.0.0.1:3001", "callback_url", &err),
                     RL_INVALID_FIELD);
    assert_non_null(strstr(err.reason, "callback.loopback"));
    assert_non_null(strstr(err.reason, "callback.allow"));
    assert_int_equal(net_policy_check(p, "http://[::1]:3000", "callback_url", &err),
                     RL_INVALID_FIELD);
    assert_non_null(strstr(err.reason, "callback.loopback"));
    net_policy_free(p);
}

static void test_net_policy_refuses_other_families(void **state)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "/run/x"};
    struct net_policy *p = policy("0.0.0.0/0", NET_PUBLIC_ANY, true);

    (void)state;
    assert_false(net_policy_allows(p, "http://x:80", (struct sockaddr *)&un));
    net_policy_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_net_policy_never),
        cmocka_unit_test(test_net_policy_own_port_on_every_interface),
        cmocka_unit_test(test_net_policy_default),
        cmocka_unit_test(test_net_policy_list),
        cmocka_unit_test(test_net_policy_names_are_bound),
        cmocka_unit_test(test_net_policy_bad_lists),
        cmocka_unit_test(test_net_policy_check_spellings),
        cmocka_unit_test(test_net_policy_closed_loopback),
        cmocka_unit_test(test_net_policy_refuses_other_families),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
