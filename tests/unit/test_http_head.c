/* Refusing request heads that two parsers could read differently. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "http/head.h"

#define CHECK(version, facts, err, ...)                                                            \
    head_check((const struct head_field[]){__VA_ARGS__},                                           \
               sizeof((const struct head_field[]){__VA_ARGS__}) / sizeof(struct head_field),       \
               version, facts, err)

static void test_head_check_accepts(void **state)
{
    (void)state;
    struct head_facts f;
    struct rl_err err;
    assert_int_equal(
        CHECK("1.1", &f, &err, {"host", "a"}, {"content-length", "12"}, {"Expect", "100-Continue"}),
        RL_OK);
    assert_string_equal(f.host, "a");
    assert_int_equal(f.length, 12);
    assert_true(f.expect_continue);
    assert_int_equal(CHECK("1.1", &f, &err, {"Host", "a"}, {"Transfer-Encoding", "Chunked"}),
                     RL_OK);
    assert_true(f.chunked);
    assert_int_equal(CHECK("1.0", &f, &err, {"Host", "a"}), RL_OK);
    assert_int_equal(f.length, 0);
}

static void test_head_check_smuggling(void **state)
{
    (void)state;
    struct head_facts f;
    struct rl_err err;
    static const char *const lengths[] = {"",     "-1",  "+3",          "3abc", "3 3",
                                          "0x10", "3,3", "12345678901", " 3"};
    for (size_t i = 0; i < RL_ARRAY_LEN(lengths); i++)
        assert_int_equal(CHECK("1.1", &f, &err, {"Host", "a"}, {"Content-Length", lengths[i]}),
                         RL_BAD_REQUEST);
    assert_int_equal(
        CHECK("1.1", &f, &err, {"Host", "a"}, {"Content-Length", "3"}, {"content-length", "3"}),
        RL_BAD_REQUEST);
    assert_int_equal(CHECK("1.1", &f, &err, {"Host", "a"}, {"Content-Length", "3"},
                           {"Transfer-Encoding", "chunked"}),
                     RL_BAD_REQUEST);
    assert_int_equal(CHECK("1.1", &f, &err, {"Host", "a"}, {"Transfer-Encoding", "identity"}),
                     RL_BAD_REQUEST);
    assert_int_equal(CHECK("1.1", &f, &err, {"Host", "a"}, {"Transfer-Encoding", "gzip, chunked"}),
                     RL_BAD_REQUEST);
    assert_int_equal(CHECK("1.0", &f, &err, {"Host", "a"}, {"Transfer-Encoding", "chunked"}),
                     RL_BAD_REQUEST);
}

static void test_head_check_host_once(void **state)
{
    (void)state;
    struct head_facts f;
    struct rl_err err;
    assert_int_equal(CHECK("1.1", &f, &err, {"Accept", "*/*"}), RL_BAD_REQUEST);
    assert_int_equal(CHECK("1.1", &f, &err, {"Host", "a"}, {"HOST", "a"}), RL_BAD_REQUEST);
}

static void test_head_check_too_many_fields(void **state)
{
    (void)state;
    struct head_field fields[HEAD_FIELDS_MAX];
    struct head_facts f;
    struct rl_err err;
    fields[0] = (struct head_field){"Host", "a"};
    for (size_t i = 1; i < HEAD_FIELDS_MAX; i++)
        fields[i] = (struct head_field){"X", "y"};
    assert_int_equal(head_check(fields, HEAD_FIELDS_MAX - 1, "1.1", &f, &err), RL_OK);
    assert_int_equal(head_check(fields, HEAD_FIELDS_MAX, "1.1", &f, &err), RL_BAD_REQUEST);
}

/* Parse `text` in place the way the library does; returns the number of fields. */
static size_t parse_like_library(char *text, struct head_field *fields)
{
    size_t n = 0;
    for (char *p = text; *p && *p != '\r' && *p != '\n';) {
        char *name = p;
        while (*p > ' ' && *p != ':')
            p++;
        if (p == name)
            break; /* a folded line looks like the end */
        while (*p == ' ')
            *p++ = '\0';
        *p++ = '\0';
        p += strspn(p, " \t");
        fields[n].name = name;
        fields[n++].value = p;
        p += strcspn(p, "\r\n");
        if (*p == '\r')
            *p++ = '\0';
        *p++ = '\0';
    }
    return n;
}

static bool layout_ok(const char *head)
{
    char text[256];
    struct head_field fields[8];
    strncpy(text, head, sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    size_t n = parse_like_library(text, fields);
    return head_layout_ok(fields, n);
}

static void test_head_layout_shows_hidden_headers(void **state)
{
    (void)state;
    assert_true(layout_ok("Host: a\r\nContent-Length:3\r\nX-Empty:\r\n\r\n"));
    assert_true(layout_ok("Host:\r\n\r\n"));
    assert_true(layout_ok("Host: a \r\nB: \t c\r\n\r\n"));
    assert_false(layout_ok("Host: a\r\nContent-Length : 3\r\n\r\n"));
    assert_false(layout_ok("Host: a\nContent-Length: 3\r\n\r\n"));
    assert_false(layout_ok("Host: a\r\nContent-Length: 3\n\n"));
    assert_false(layout_ok("Host: a\r\nX: 1\r\n folded\r\nContent-Length: 3\r\n\r\n"));
    assert_false(layout_ok("Host: a\r\n\tfolded\r\n\r\n"));
}

static void test_head_check_path(void **state)
{
    (void)state;
    static const char *const bad[] = {"",       "*",      "x",      "http://a/", "/a%00b",
                                      "/a%0ab", "/a%0Db", "/a\x01", "/a\x7f",    "/a b"};
    struct rl_err err;
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++)
        assert_int_equal(head_check_path(bad[i], &err), RL_BAD_REQUEST);
    assert_int_equal(head_check_path(NULL, &err), RL_BAD_REQUEST);
    assert_int_equal(head_check_path("/a%20b/%C3%A9", &err), RL_OK);
}

static void test_head_keep_alive(void **state)
{
    (void)state;
    assert_true(head_keep_alive(NULL, 0, "1.1"));
    assert_false(head_keep_alive(NULL, 0, "1.0"));
    assert_false(head_keep_alive(&(struct head_field){"connection", "close"}, 1, "1.1"));
    assert_true(head_keep_alive(&(struct head_field){"Connection", "TE, Keep-Alive"}, 1, "1.0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_check_accepts),
        cmocka_unit_test(test_head_check_smuggling),
        cmocka_unit_test(test_head_check_host_once),
        cmocka_unit_test(test_head_check_too_many_fields),
        cmocka_unit_test(test_head_layout_shows_hidden_headers),
        cmocka_unit_test(test_head_check_path),
        cmocka_unit_test(test_head_keep_alive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
