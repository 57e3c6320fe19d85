/* Which outgoing URLs are taken, and what their normal form and endpoint are. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "net/net.h"

static const struct {
    const char *url;
    const char *normal; /* NULL: refused */
    const char *endpoint;
} TABLE[] = {
    {"http://example.com", "http://example.com/", "http://example.com:80"},
    {"http://example.com/", "http://example.com/", "http://example.com:80"},
    {"https://example.com/a?b=c", "https://example.com/a?b=c", "https://example.com:443"},
    {"HTTP://EXAMPLE.com/Path", "http://example.com/Path", "http://example.com:80"},
    {"hTTpS://Example.COM:8443/", "https://example.com:8443/", "https://example.com:8443"},
    {"http://example.com:80/x", "http://example.com/x", "http://example.com:80"},
    {"https://example.com:443/x", "https://example.com/x", "https://example.com:443"},
    {"http://example.com:443/x", "http://example.com:443/x", "http://example.com:443"},
    {"http://example.com:00080/", "http://example.com/", "http://example.com:80"},
    {"http://example.com:/", "http://example.com/", "http://example.com:80"},
    {"http://example.com./", "http://example.com./", "http://example.com.:80"},
    {"http://a-b_c.example/", "http://a-b_c.example/", "http://a-b_c.example:80"},
    {"http://example.com/a/../b/./c", "http://example.com/b/c", "http://example.com:80"},
    {"http://example.com/%0d%0a?x=%00", "http://example.com/%0d%0a?x=%00", "http://example.com:80"},
    {"http://example.com/x#fragment", "http://example.com/x", "http://example.com:80"},
    {"http://example.com/x?u=http://a:b@c/", "http://example.com/x?u=http://a:b@c/",
     "http://example.com:80"},
    {"http://example.com?x=1", "http://example.com/?x=1", "http://example.com:80"},
    {"http://example.com/\xc3\xa9", "http://example.com/%c3%a9", "http://example.com:80"},
    {"http://127.0.0.1:9000/hook", "http://127.0.0.1:9000/hook", "http://127.0.0.1:9000"},
    {"http://2130706433/", "http://127.0.0.1/", "http://127.0.0.1:80"},
    {"http://0x7f.1/", "http://127.0.0.1/", "http://127.0.0.1:80"},
    {"http://0177.0.0.1/", "http://127.0.0.1/", "http://127.0.0.1:80"},
    {"http://127.1/", "http://127.0.0.1/", "http://127.0.0.1:80"},
    {"http://[::1]:81/", "http://[::1]:81/", "http://[::1]:81"},
    {"http://[FE80::1]/", "http://[fe80::1]/", "http://[fe80::1]:80"},
    {"http://a.b1./", "http://a.b1./", "http://a.b1.:80"},
    {"http://localhost:65535/", "http://localhost:65535/", "http://localhost:65535"},
    {"", NULL, NULL},
    {"example.com", NULL, NULL},
    {"//example.com/", NULL, NULL},
    {"/path", NULL, NULL},
    {"http:", NULL, NULL},
    {"http://", NULL, NULL},
    {"http:///path", NULL, NULL},
    {"http:/example.com/", NULL, NULL},
    {"http:example.com", NULL, NULL},
    {"http://?x", NULL, NULL},
    {"http://:80/", NULL, NULL},
    {"ftp://example.com/", NULL, NULL},
    {"file:///etc/passwd", NULL, NULL},
    {"gopher://example.com/", NULL, NULL},
    {"httpx://example.com/", NULL, NULL},
    {" http://example.com/", NULL, NULL},
    {"http://example.com/a b", NULL, NULL},
    {"http://example.com/a\tb", NULL, NULL},
    {"http://example.com/\r\nX: y", NULL, NULL},
    {"http://example.com/\n", NULL, NULL},
    {"http://example.com/\x01", NULL, NULL},
    {"http://example.com/\x7f", NULL, NULL},
    {"http://exa%0d%0ample.com/", NULL, NULL},
    {"http://exa%6dple.com/", NULL, NULL},
    {"http://user@example.com/", NULL, NULL},
    {"http://user:pass@example.com/", NULL, NULL},
    {"http://@example.com/", NULL, NULL},
    {"http://:@example.com/", NULL, NULL},
    {"http://good.example\\@evil.example/", NULL, NULL},
    {"http://good.example\\.evil.example/", NULL, NULL},
    {"http://example.com:0/", NULL, NULL},
    {"http://example.com:00/", NULL, NULL},
    {"http://example.com:65536/", NULL, NULL},
    {"http://example.com:-1/", NULL, NULL},
    {"http://example.com:8x/", NULL, NULL},
    {"http://a..b/", NULL, NULL},
    {"http://./", NULL, NULL},
    {"http://.example.com/", NULL, NULL},
    {"http://127.0.0.1./", NULL, NULL},
    {"http://1.2.3.4.5/", NULL, NULL},
    {"http://a.1/", NULL, NULL},
    {"http://a.1./", NULL, NULL},
    {"http://exa$mple.com/", NULL, NULL},
    {"http://b\xc3\xbc"
     "cher.example/",
     NULL, NULL},
    {"http://[::1/", NULL, NULL},
    {"http://[]/", NULL, NULL},
    {"http://[::1]x/", NULL, NULL},
    {"http://[fe80::1%25eth0]/", NULL, NULL},
    {"http://[fe80::1%eth0]/", NULL, NULL},
    {"http://[12345::1]/", NULL, NULL},
};

static void test_net_url_check_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(TABLE); i++) {
        char *normal = NULL;
        char endpoint[NET_ENDPOINT_MAX] = "untouched";
        struct rl_err err = {0};
        enum rl_rc rc =
            net_url_check(TABLE[i].url, "callback_url", &normal, endpoint, sizeof endpoint, &err);
        if (TABLE[i].normal) {
            if (rc)
                fail_msg("%s: refused: %s", TABLE[i].url, err.reason);
            assert_string_equal(normal, TABLE[i].normal);
            assert_string_equal(endpoint, TABLE[i].endpoint);
        } else {
            if (rc != RL_INVALID_FIELD)
                fail_msg("%s: taken as %s", TABLE[i].url, normal ? normal : "nothing");
            assert_string_equal(err.field, "callback_url");
            assert_true(strlen(err.reason) > 0);
            assert_null(normal);
            assert_string_equal(endpoint, "untouched");
        }
        free(normal);
    }
}

/* The normal form is a fixed point: storing and checking again changes nothing. */
static void test_net_url_check_is_idempotent(void **state)
{
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(TABLE); i++) {
        char *again = NULL;
        if (!TABLE[i].normal)
            continue;
        assert_int_equal(net_url_check(TABLE[i].normal, "u", &again, NULL, 0, NULL), RL_OK);
        assert_string_equal(again, TABLE[i].normal);
        free(again);
    }
}

static void test_net_url_check_length_limit(void **state)
{
    char url[4096];
    char *normal = NULL;
    int head = snprintf(url, sizeof url, "http://example.com/");

    (void)state;
    memset(url + head, 'a', sizeof url - (size_t)head);
    url[2048] = '\0';
    assert_int_equal(net_url_check(url, "u", &normal, NULL, 0, NULL), RL_OK);
    assert_string_equal(normal, url);
    free(normal);
    url[2048] = 'a';
    url[2049] = '\0';
    assert_int_equal(net_url_check(url, "u", NULL, NULL, 0, NULL), RL_INVALID_FIELD);
    /* Percent-encoding must not carry it over the limit either. */
    memset(url + head, 0xc3, 1000);
    url[head + 1000] = '\0';
    assert_int_equal(net_url_check(url, "u", NULL, NULL, 0, NULL), RL_INVALID_FIELD);
}

static void test_net_url_check_host_limits(void **state)
{
    char url[512];
    char endpoint[NET_ENDPOINT_MAX];
    char small[8] = "same";

    (void)state;
    /* 63 bytes a label at most, 253 the whole: 62.63.63.62 */
    assert_true(snprintf(url, sizeof url, "https://%.62s.%.63s.%.63s.%.62s:65535/", //
                         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                         "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
                         "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc",
                         "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd") > 0);
    assert_int_equal(net_url_check(url, "u", NULL, endpoint, sizeof endpoint, NULL), RL_OK);
    assert_int_equal(strlen(endpoint), 8 + 253 + 6);
    assert_int_equal(net_url_check(url, "u", NULL, small, sizeof small, NULL), RL_INVALID_FIELD);
    assert_string_equal(small, "same");

    memset(url, 0, sizeof url);
    memcpy(url, "http://", 7);
    memset(url + 7, 'a', 64);
    assert_int_equal(net_url_check(url, "u", NULL, NULL, 0, NULL), RL_INVALID_FIELD);
    url[70] = '\0';
    assert_int_equal(net_url_check(url, "u", NULL, NULL, 0, NULL), RL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_net_url_check_table),
        cmocka_unit_test(test_net_url_check_is_idempotent),
        cmocka_unit_test(test_net_url_check_length_limit),
        cmocka_unit_test(test_net_url_check_host_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
