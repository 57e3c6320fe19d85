/* Matches a method and a verbatim path against the route table. Ids stay undecoded: no id needs an
 * escape, so an escaped one is simply not found. No state; any thread. */
#include "http/router.h"

#include <string.h>

/* One pattern, one path; fills param[size] from the {…} segment. */
static bool pattern_matches(const char *pattern, const char *path, char *param, size_t size)
{
    while (*pattern) {
        if (*pattern == '{') {
            size_t len = strcspn(path, "/");
            if (len == 0 || len >= size)
                return false;
            memcpy(param, path, len);
            param[len] = '\0';
            path += len;
            pattern += strcspn(pattern, "}") + 1;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return *path == '\0';
}

static void allow_add(struct route_match *match, const char *method)
{
    size_t used = strlen(match->allow);
    /* The longest list of five methods is shorter than the array. */
    (void)snprintf(match->allow + used, sizeof(match->allow) - used, "%s%s", used ? ", " : "",
                   method);
}

void router_find(const struct route *routes, size_t count, const char *method, const char *path,
                 struct route_match *ret_match)
{
    struct route_match match = {0};
    char param[sizeof(match.param)] = "";
    bool head = !strcmp(method, "HEAD");
    for (size_t i = 0; i < count; i++) {
        const struct route *route = &routes[i];
        param[0] = '\0';
        if (!pattern_matches(route->pattern, path, param, sizeof(param)))
            continue;
        bool is_get = !strcmp(route->method, "GET");
        match.path_known = true;
        allow_add(&match, route->method);
        if (is_get && !route->no_head)
            allow_add(&match, "HEAD");
        if (!strcmp(route->method, method) || (head && is_get && !route->no_head)) {
            match.route = route;
            (void)rl_copy_str(match.param, sizeof(match.param), param); /* same size: fits */
        }
    }
    if (match.path_known)
        allow_add(&match, "OPTIONS");
    *ret_match = match;
}
