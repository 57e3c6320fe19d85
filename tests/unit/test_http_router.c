/* The route table: matching, Allow, and agreement with schema/openapi.yaml. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "http/router.h"

static struct route_match find(const char *method, const char *path)
{
    size_t count;
    const struct route *routes = http_routes(&count);
    struct route_match match;
    router_find(routes, count, method, path, &match);
    return match;
}

static void test_router_find_param(void **state)
{
    (void)state;
    struct route_match m = find("GET", "/api/v1/tasks/123/video");
    assert_non_null(m.route);
    assert_string_equal(m.route->pattern, "/api/v1/tasks/{id}/video");
    assert_string_equal(m.param, "123");
    m = find("HEAD", "/api/v1/tasks/123/video");
    assert_non_null(m.route);
}

static void test_router_find_unknown(void **state)
{
    (void)state;
    static const char *const paths[] = {"/api/v1/tasks/",
                                        "/api/v1/tasks//video",
                                        "/api/v1/tasks/1/videos",
                                        "/api/v1/tasks/1/2/video",
                                        "/api/v1",
                                        "//",
                                        "/api/v1/TASKS",
                                        "/api/v1/tasks/1/../1"};
    for (size_t i = 0; i < RL_ARRAY_LEN(paths); i++)
        assert_false(find("GET", paths[i]).path_known);
    char longest[200] = "/api/v1/tasks/";
    memset(longest + strlen(longest), '1', 100);
    assert_false(find("GET", longest).path_known);
}

static void test_router_find_allow(void **state)
{
    (void)state;
    struct route_match m = find("PUT", "/api/v1/tasks");
    assert_true(m.path_known);
    assert_null(m.route);
    assert_string_equal(m.allow, "POST, GET, HEAD, OPTIONS");
    m = find("HEAD", "/api/v1/backup"); /* a HEAD would make the whole copy for nothing */
    assert_null(m.route);
    assert_string_equal(m.allow, "GET, OPTIONS");
    assert_string_equal(find("OPTIONS", "/api/v1/session").allow,
                        "POST, GET, HEAD, DELETE, OPTIONS");
}

/* Does the description hold `method` under `pattern`? */
static bool described(const char *yaml, const char *pattern, const char *method)
{
    char head[128], verb[16];
    assert_true(snprintf(head, sizeof(head), "\n  %s:\n", pattern) < (int)sizeof(head));
    assert_true(snprintf(verb, sizeof(verb), "\n    %s:\n", method) < (int)sizeof(verb));
    for (char *p = verb; *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
    const char *from = strstr(yaml, head);
    if (!from)
        return false;
    const char *end = strstr(from + strlen(head), "\n  /");
    const char *paths_end = strstr(from, "\n\n");
    if (!end || (paths_end && paths_end < end))
        end = paths_end;
    const char *found = strstr(from, verb);
    return found && end && found < end;
}

static size_t count_methods(const char *yaml)
{
    static const char *const verbs[] = {"\n    get:\n", "\n    post:\n", "\n    delete:\n",
                                        "\n    put:\n", "\n    patch:\n"};
    const char *end = strstr(yaml, "\ncomponents:");
    assert_non_null(end);
    size_t n = 0;
    for (size_t i = 0; i < RL_ARRAY_LEN(verbs); i++)
        for (const char *p = strstr(yaml, verbs[i]); p && p < end; p = strstr(p + 1, verbs[i]))
            n++;
    return n;
}

static void test_routes_match_openapi(void **state)
{
    (void)state;
    AUTO_FREE char *yaml = NULL;
    size_t len, count;
    struct rl_err err;
    char path[1024];
    int root = (int)(sizeof(__FILE__) - sizeof("tests/unit/test_http_router.c"));
    assert_true(snprintf(path, sizeof(path), "%.*sschema/openapi.yaml", root, __FILE__) <
                (int)sizeof(path));
    assert_int_equal(rl_fs_read(path, 1 << 20, &yaml, &len, &err), RL_OK);
    const struct route *routes = http_routes(&count);
    for (size_t i = 0; i < count; i++)
        if (!described(yaml, routes[i].pattern, routes[i].method))
            fail_msg("openapi.yaml lacks %s %s", routes[i].method, routes[i].pattern);
    assert_int_equal(count_methods(yaml), count);
    for (int code = RL_OK + 1; code < RL_CODE_COUNT; code++) {
        char line[64];
        assert_true(snprintf(line, sizeof(line), "\n        - %s\n",
                             rl_code_name((enum rl_rc)code)) < (int)sizeof(line));
        if (!strstr(yaml, line))
            fail_msg("openapi.yaml lacks the code %s", rl_code_name((enum rl_rc)code));
    }
}

static void test_routes_need_credentials(void **state)
{
    (void)state;
    static const char *const open[] = {
        "/api/v1/session",       "/sign-in", "/healthz", "/readyz", "/openapi.json", "/",
        "/api/v1/hooks/{source}"};
    size_t count;
    const struct route *routes = http_routes(&count);
    for (size_t i = 0; i < count; i++) {
        bool listed = false;
        for (size_t k = 0; k < RL_ARRAY_LEN(open); k++)
            listed = listed || !strcmp(open[k], routes[i].pattern);
        assert_true(routes[i].auth != ROUTE_OPEN || listed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router_find_param),       cmocka_unit_test(test_router_find_unknown),
        cmocka_unit_test(test_router_find_allow),       cmocka_unit_test(test_routes_match_openapi),
        cmocka_unit_test(test_routes_need_credentials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
