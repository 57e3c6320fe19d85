/* The small languages of a request's head: query, cookie, media type, host, origin, date, ETag
 * list. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "http/text.h"

static void test_query_parse_decodes(void **state)
{
    (void)state;
    AUTO_QUERY struct query q = {0};
    struct rl_err err;
    assert_int_equal(query_parse("a=1%2C2&b=x+y&&flag&c=%C3%A9", &q, &err), RL_OK);
    assert_int_equal(q.count, 4);
    assert_string_equal(query_get(&q, "a"), "1,2");
    assert_string_equal(query_get(&q, "b"), "x y");
    assert_string_equal(query_get(&q, "flag"), "");
    assert_string_equal(query_get(&q, "c"), "\xc3\xa9");
    assert_null(query_get(&q, "d"));
}

static void test_query_parse_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {"a=%",   "a=%2",  "a=%zz",   "a=%00",
                                      "a=%ff", "%00=1", "a=%C0%80"};
    struct rl_err err;
    struct query q;
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++)
        assert_int_equal(query_parse(bad[i], &q, &err), RL_BAD_REQUEST);
    assert_int_equal(query_parse("a=1&%61=2", &q, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "a");
    assert_int_equal(query_parse("a&b&c&d&e&f&g&h&i&j&k&l&m&n&o&p&q", &q, &err), RL_BAD_REQUEST);
}

static void test_query_only_names_the_stranger(void **state)
{
    (void)state;
    static const char *const names[] = {"limit", NULL};
    AUTO_QUERY struct query q = {0};
    struct rl_err err;
    assert_int_equal(query_parse("limit=1&lmit=2", &q, &err), RL_OK);
    assert_int_equal(query_only(&q, names, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "lmit");
}

static void test_cookie_find_exact_name(void **state)
{
    (void)state;
    char v[8];
    assert_true(cookie_find("a=1; s=abc ; t=2", "s", v, sizeof(v)));
    assert_string_equal(v, "abc");
    assert_false(cookie_find("xs=abc; s2=1", "s", v, sizeof(v)));
    assert_false(cookie_find("s=", "s", v, sizeof(v)));
    assert_false(cookie_find("s=12345678", "s", v, sizeof(v)));
    assert_true(cookie_find("s=1234567", "s", v, sizeof(v)));
    assert_false(cookie_find(NULL, "s", v, sizeof(v)));
    assert_false(cookie_find("s", "s", v, sizeof(v)));
}

static void test_bearer_token_any_case(void **state)
{
    (void)state;
    assert_string_equal(bearer_token("bearer  k"), "k");
    assert_string_equal(bearer_token("Bearer rk_1"), "rk_1");
    assert_null(bearer_token("Basic abc"));
    assert_null(bearer_token("Bearerx"));
    assert_null(bearer_token(NULL));
}

static void test_media_is_json(void **state)
{
    (void)state;
    assert_true(media_is_json("application/json"));
    assert_true(media_is_json("Application/JSON; charset=UTF-8"));
    assert_true(media_is_json("application/json ; x=y; charset=\"utf-8\""));
    assert_false(media_is_json("application/json; charset=latin1"));
    assert_false(media_is_json("application/jsonp"));
    assert_false(media_is_json("text/plain"));
    assert_false(media_is_json(""));
    assert_false(media_is_json(NULL));
}

static void test_accepts_gzip(void **state)
{
    (void)state;
    assert_true(accepts_gzip("br, gzip"));
    assert_true(accepts_gzip("gzip;q=0.5"));
    assert_true(accepts_gzip("*"));
    assert_false(accepts_gzip("gzip;q=0"));
    assert_false(accepts_gzip("gzip;q=0.000, br"));
    assert_false(accepts_gzip("gzipped"));
    assert_false(accepts_gzip(NULL));
}

static void test_idempotency_key_valid(void **state)
{
    (void)state;
    char text[300];
    memset(text, 'k', sizeof(text));
    text[255] = '\0';
    assert_true(idempotency_key_valid(text));
    text[255] = 'k';
    text[256] = '\0';
    assert_false(idempotency_key_valid(text));
    assert_false(idempotency_key_valid(""));
    assert_false(idempotency_key_valid("a b"));
    assert_false(idempotency_key_valid("\xc3\xa9"));
    assert_false(idempotency_key_valid("a\x7f"));
}

static void test_request_id_valid(void **state)
{
    (void)state;
    assert_true(request_id_valid("Az09._-"));
    assert_false(request_id_valid("a b"));
    assert_false(request_id_valid(""));
    assert_false(request_id_valid(NULL));
    assert_false(
        request_id_valid("0123456789012345678901234567890123456789012345678901234567890123x"));
}

static void test_host_allowed_against_rebinding(void **state)
{
    (void)state;
    static const char *const pass[] = {"localhost",        "LOCALHOST:8080", "localhost.:80",
                                       "127.0.0.1:1",      "127.9.9.9",      "[::1]:8080",
                                       "192.168.1.5:8080", "video.lan",      "Other.Lan.:8080"};
    static const char *const fail[] = {
        "evil.test",      "localhost.evil.test", "127.0.0.1.evil.test", "8.8.8.8",    "",
        "localhost:",     "localhost:x",         "localhost:123456",    "local host", "[::1",
        "video.lan.evil", "user@localhost",      "127.0.0.1:1:2"};
    for (size_t i = 0; i < RL_ARRAY_LEN(pass); i++)
        assert_true(host_allowed(pass[i], "192.168.1.5", "video.lan, other.lan"));
    for (size_t i = 0; i < RL_ARRAY_LEN(fail); i++)
        assert_false(host_allowed(fail[i], "192.168.1.5", "video.lan, other.lan"));
    assert_true(host_allowed("8.8.8.8", "0.0.0.0", "")); /* an address cannot be rebound */
    assert_false(host_allowed("evil.test", "0.0.0.0", ""));
    assert_false(host_allowed(NULL, "0.0.0.0", ""));
}

static void test_origin_matches(void **state)
{
    (void)state;
    assert_true(origin_matches("http://127.0.0.1:8080", "127.0.0.1:8080"));
    assert_true(origin_matches("https://Video.lan", "video.lan"));
    assert_false(origin_matches("http://127.0.0.1:8081", "127.0.0.1:8080"));
    assert_false(origin_matches("http://evil.test", "127.0.0.1:8080"));
    assert_false(origin_matches("null", "127.0.0.1:8080"));
    assert_false(origin_matches("http://", ""));
    assert_false(origin_matches(NULL, "127.0.0.1:8080"));
}

static void test_http_date_round_trip(void **state)
{
    (void)state;
    char text[HTTP_DATE];
    int64_t s = -1;
    http_date_format(784111777, text);
    assert_string_equal(text, "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_true(http_date_parse(text, &s));
    assert_int_equal(s, 784111777);
    assert_false(http_date_parse("Sun, 06 Nov 1994 08:49:37 CET", &s));
    assert_false(http_date_parse("Sun, 06 Foo 1994 08:49:37 GMT", &s));
    assert_false(http_date_parse("yesterday", &s));
    assert_false(http_date_parse(NULL, &s));
}

static void test_etag_listed(void **state)
{
    (void)state;
    assert_true(etag_listed("\"a\"", "\"a\""));
    assert_true(etag_listed("\"b\", W/\"a\"", "\"a\""));
    assert_true(etag_listed("*", "\"a\""));
    assert_false(etag_listed("\"b\"", "\"a\""));
    assert_false(etag_listed("a", "\"a\""));
    assert_false(etag_listed("\"a", "\"a\""));
    assert_false(etag_listed(NULL, "\"a\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query_parse_decodes),
        cmocka_unit_test(test_query_parse_refuses),
        cmocka_unit_test(test_query_only_names_the_stranger),
        cmocka_unit_test(test_cookie_find_exact_name),
        cmocka_unit_test(test_bearer_token_any_case),
        cmocka_unit_test(test_media_is_json),
        cmocka_unit_test(test_accepts_gzip),
        cmocka_unit_test(test_idempotency_key_valid),
        cmocka_unit_test(test_request_id_valid),
        cmocka_unit_test(test_host_allowed_against_rebinding),
        cmocka_unit_test(test_origin_matches),
        cmocka_unit_test(test_http_date_round_trip),
        cmocka_unit_test(test_etag_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
