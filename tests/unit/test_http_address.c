/* Addresses, CIDR lists, and whose X-Forwarded-For counts. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "http/address.h"

static struct address parse(const char *text)
{
    struct address a;
    if (!address_parse(text, strlen(text), &a))
        fail_msg("not taken: %s", text);
    return a;
}

static void test_address_parse_forms(void **state)
{
    (void)state;
    struct address plain = parse("192.0.2.7"), other = parse("192.0.2.7:443");
    assert_memory_equal(&plain, &other, sizeof(plain));
    other = parse("::ffff:192.0.2.7");
    assert_memory_equal(&plain, &other, sizeof(plain));
    plain = parse("2001:db8::1");
    other = parse("[2001:db8::1]:443");
    assert_memory_equal(&plain, &other, sizeof(plain));
    other = parse("[2001:DB8:0::1]");
    assert_memory_equal(&plain, &other, sizeof(plain));
    static const char *const bad[] = {"",          "unknown",   "_hidden",    "1.2.3",
                                      "1.2.3.4.5", "1.2.3.4:",  "1.2.3.4:x",  "1.2.3.4:123456",
                                      "[::1",      "[::1]x",    "[::1]:",     "[1.2.3.4]",
                                      "[]",        "01.2.3.4",  "1.2.3.4 ",   "::1%lo",
                                      "127.1",     "localhost", "0x7f.0.0.1", "\"::1\""};
    struct address a;
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++)
        if (address_parse(bad[i], strlen(bad[i]), &a))
            fail_msg("taken: %s", bad[i]);
    char longest[100];
    memset(longest, '1', sizeof(longest));
    assert_false(address_parse(longest, sizeof(longest), &a));
}

static void test_address_is_loopback(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool loopback;
    } all[] = {{"127.0.0.1", true}, {"127.255.0.9", true},      {"::1", true},
               {"::", false},       {"::ffff:127.0.0.1", true}, {"10.0.0.1", false},
               {"::2", false},      {"128.0.0.1", false},       {"0.0.0.0", false}};
    for (size_t i = 0; i < RL_ARRAY_LEN(all); i++) {
        struct address a = parse(all[i].text);
        if (address_is_loopback(&a) != all[i].loopback)
            fail_msg("%s", all[i].text);
    }
}

static void test_address_client_cuts_ipv6_to_its_network(void **state)
{
    (void)state;
    struct address a = parse("2001:db8:1:2:3:4:5:6"), b = parse("2001:db8:1:2:ffff::1");
    address_client(&a);
    address_client(&b);
    assert_memory_equal(&a, &b, sizeof(a));
    b = parse("2001:db8:1:3::1");
    address_client(&b);
    assert_memory_not_equal(&a, &b, sizeof(a));
    a = parse("192.0.2.1");
    b = a;
    address_client(&a);
    assert_memory_equal(&a, &b, sizeof(a));
}

static void test_address_list_parse(void **state)
{
    (void)state;
    struct address_list list;
    struct rl_err err = {0};
    assert_int_equal(address_list_parse("", "f", &list, &err), RL_OK);
    assert_int_equal(list.count, 0);
    address_list_free(&list);
    assert_int_equal(address_list_parse(" \t ", "f", &list, &err), RL_OK);
    assert_int_equal(list.count, 0);
    address_list_free(&list);
    assert_int_equal(
        address_list_parse("127.0.0.1 , 10.1.2.3/9,\t2001:db8::/33,0.0.0.0/0", "f", &list, &err),
        RL_OK);
    assert_int_equal(list.count, 4);
    address_list_free(&list);
    static const char *const bad[] = {"x",        "1.2.3.4/33",   "1.2.3.4/",     "1.2.3.4/-1",
                                      "::/129",   "1.2.3.4/8/8",  "10.0.0.0/0x8", "1.2.3.4,",
                                      ",1.2.3.4", "1.2.3.4,,::1", "1.2.3.4 ::1",  "1.2.3.4:80",
                                      "[::1]",    "localhost",    "/8",           "1.2.3.4/1000"};
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++) {
        err = (struct rl_err){0};
        if (address_list_parse(bad[i], "the.key", &list, &err) != RL_INVALID_FIELD)
            fail_msg("taken: %s", bad[i]);
        assert_string_equal(err.field, "the.key");
    }
}

static void test_address_listed_edges(void **state)
{
    (void)state;
    struct address_list list;
    struct rl_err err;
    assert_int_equal(
        address_list_parse("10.128.0.0/9,192.0.2.1,2001:db8:8000::/33", "f", &list, &err), RL_OK);
    static const struct {
        const char *text;
        bool in;
    } all[] = {{"10.128.0.0", true},       {"10.255.255.255", true},  {"10.127.255.255", false},
               {"11.128.0.0", false},      {"192.0.2.1", true},       {"192.0.2.0", false},
               {"::ffff:192.0.2.1", true}, {"2001:db8:8000::", true}, {"2001:db8:ffff::1", true},
               {"2001:db8:7fff::", false}, {"::10.128.0.0", false}};
    for (size_t i = 0; i < RL_ARRAY_LEN(all); i++) {
        struct address a = parse(all[i].text);
        if (address_listed(&list, &a) != all[i].in)
            fail_msg("%s", all[i].text);
    }
    address_list_free(&list);
    assert_int_equal(address_list_parse("::/0", "f", &list, &err), RL_OK);
    struct address v4 = parse("203.0.113.1");
    assert_true(address_listed(&list, &v4));
    address_list_free(&list);
}

static void check_client(const char *trusted, const char *peer, const struct head_field *fields,
                         size_t count, const char *want)
{
    struct address_list list;
    struct rl_err err;
    struct address got, wanted = parse(want);
    assert_int_equal(address_list_parse(trusted, "f", &list, &err), RL_OK);
    address_of_client(&list, peer, fields, count, &got);
    address_list_free(&list);
    if (memcmp(&got, &wanted, sizeof(got)) != 0)
        fail_msg("peer %s behind %s: not %s", peer, trusted, want);
}

static void test_forwarded_for(void **state)
{
    (void)state;
    static const struct {
        const char *trusted, *peer, *forwarded, *client;
    } all[] = {
        /* nobody is trusted: the header is only words, */
        {"", "203.0.113.9", "127.0.0.1", "203.0.113.9"},
        {"10.0.0.1", "203.0.113.9", "203.0.113.5", "203.0.113.9"},
        /* but whoever sends it from this machine does not ask for itself */
        {"", "127.0.0.1", "203.0.113.5", "::"},
        {"10.0.0.1", "127.0.0.1", "127.0.0.1", "::"},
        {"10.0.0.1", "::1", "203.0.113.5", "::"},
        {"127.0.0.2", "127.0.0.1", "", "::"},
        {"127.0.0.1", "127.0.0.1", "203.0.113.5", "203.0.113.5"},
        /* the client wrote the first entry, the proxy the last */
        {"127.0.0.1", "127.0.0.1", "127.0.0.1, 203.0.113.5", "203.0.113.5"},
        {"127.0.0.1,10.0.0.0/8", "127.0.0.1", "1.1.1.1, 203.0.113.5, 10.1.1.1", "203.0.113.5"},
        {"127.0.0.1", "127.0.0.1", "203.0.113.5:4711", "203.0.113.5"},
        {"127.0.0.1", "127.0.0.1", "[2001:db8::1]:4711", "2001:db8::1"},
        /* all trusted: the first hop */
        {"127.0.0.1,10.0.0.0/8", "127.0.0.1", "10.0.0.1, 10.0.0.2", "10.0.0.1"},
        /* no address there: a stranger, never the proxy itself */
        {"127.0.0.1", "127.0.0.1", "203.0.113.5, unknown", "::"},
        {"127.0.0.1", "127.0.0.1", "", "::"},
        {"127.0.0.1", "127.0.0.1", "203.0.113.5,", "::"},
    };
    for (size_t i = 0; i < RL_ARRAY_LEN(all); i++) {
        const struct head_field field = {"x-forwarded-for", all[i].forwarded};
        check_client(all[i].trusted, all[i].peer, &field, 1, all[i].client);
    }
}

static void test_forwarded_for_several_fields(void **state)
{
    (void)state;
    const struct head_field fields[] = {{"X-Forwarded-For", "1.1.1.1, 203.0.113.5"},
                                        {"Accept", "x"},
                                        {"X-Forwarded-For", "10.0.0.1"}};
    check_client("127.0.0.1,10.0.0.0/8", "127.0.0.1", fields, 3, "203.0.113.5");
    check_client("127.0.0.1", "127.0.0.1", fields, 3, "10.0.0.1");
    check_client("127.0.0.1", "127.0.0.1", fields, 0, "127.0.0.1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_address_parse_forms),
        cmocka_unit_test(test_address_is_loopback),
        cmocka_unit_test(test_address_client_cuts_ipv6_to_its_network),
        cmocka_unit_test(test_address_list_parse),
        cmocka_unit_test(test_address_listed_edges),
        cmocka_unit_test(test_forwarded_for),
        cmocka_unit_test(test_forwarded_for_several_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
