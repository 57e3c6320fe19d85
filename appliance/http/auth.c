/* Who is asking: a key (Authorization: Bearer, X-API-Key) or the browser's session cookie. Runs on
 * the worker. Invariants: a credential that is sent and wrong is never skipped for another; with a
 * cookie, anything that changes something must come from a page of this very host (by Origin, a GET
 * by Sec-Fetch-Site, which its handler asks about); guessing costs
 * no more than the limit of failed sign-ins lets it: a forged cookie falls to its MAC, and an
 * unknown key reaches the database only while its address may still fail. */
#include "http/request.h"

#include <string.h>
#include <strings.h>

#include "config/config.h"

enum rl_rc auth_check_origin(const struct request *r, bool required, struct rl_err *err)
{
    const char *origin = request_header(r, "Origin");
    if (!origin && !required)
        return RL_OK;
    if (!origin_matches(origin, r->facts.host))
        return rl_fail(err, RL_FORBIDDEN,
                       "a session may be used by pages of this host only (Origin)");
    return RL_OK;
}

/* Browsers send a cookie along with what any page of this host name asks for, whatever its port,
 * and no Origin with a plain GET. source: W3C Fetch Metadata, section 2.3. */
enum rl_rc auth_check_fetch_site(const struct request *r, struct rl_err *err)
{
    const char *site = request_header(r, "Sec-Fetch-Site");
    if (r->credential != CREDENTIAL_COOKIE ||
        (site && (!strcmp(site, "same-origin") || !strcmp(site, "none"))))
        return RL_OK;
    return rl_fail(err, RL_FORBIDDEN,
                   site ? "a session may do this from pages of this host only (Sec-Fetch-Site)"
                        : "the browser does not say where this comes from, as over plain HTTP from "
                          "another machine: use a key");
}

static enum rl_rc by_cookie(struct request *r, const char *token, struct rl_err *err)
{
    enum rl_rc rc =
        key_token_check(r->http->tasks, "session", token, &r->caller, &r->session_expires_ms, err);
    if (rc != RL_OK)
        return rc;
    r->credential = CREDENTIAL_COOKIE;
    if (!strcmp(r->method, "GET") || r->head)
        return RL_OK;
    return auth_check_origin(r, true, err);
}

static enum rl_rc identify(struct request *r, struct rl_err *err)
{
    const char *key = bearer_token(request_header(r, "Authorization"));
    if (!key)
        key = request_header(r, "X-API-Key");
    if (key) {
        r->credential = CREDENTIAL_KEY;
        if (key_known(r->http->tasks, key, &r->caller))
            return RL_OK;
        enum rl_rc rc = door_may_sign_in(r, err);
        return rc == RL_OK ? key_authenticate(r->http->tasks, key, &r->caller, err) : rc;
    }
    char token[KEY_TOKEN];
    for (size_t i = 0; i < r->field_count; i++)
        if (!strcasecmp(r->fields[i].name, "Cookie") &&
            cookie_find(r->fields[i].value, SESSION_COOKIE, token, sizeof(token)))
            return by_cookie(r, token, err);
    return rl_fail(err, RL_UNAUTHORIZED, "send a key: Authorization: Bearer KEY");
}

enum rl_rc auth_check(struct request *r, enum route_auth auth, struct rl_err *err)
{
    if (auth == ROUTE_OPEN ||
        (auth == ROUTE_METRICS && config_on(r->http->cfg, CFG_HTTP_METRICS_OPEN)))
        return RL_OK;
    if (auth == ROUTE_SIGNED && query_get(&r->query, "sig")) {
        r->credential = CREDENTIAL_SIGNATURE; /* checked with the task in hand */
        return door_may_sign_in(r, err);
    }
    enum rl_rc rc = identify(r, err);
    if (rc != RL_OK)
        return rc;
    if (auth == ROUTE_OWNER && !r->caller.owner)
        return rl_fail(err, RL_FORBIDDEN, "only an owner's key may do this");
    return RL_OK;
}
