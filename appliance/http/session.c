/* Browser sessions: a key or a sign-in link becomes the cookie. Tokens are stateless and made by
 * task/; nothing is kept here. Runs on the worker. Invariants: a token stands in no log line and in
 * no body but the link's own answer; the cookie is HttpOnly and SameSite=Strict. */
#include "http/request.h"

#include <string.h>

#include "base/clock.h"
#include "config/config.h"

#define HOUR_MS   INT64_C(3600000)
#define MINUTE_MS INT64_C(60000)

static void write_session(const struct caller *caller, int64_t expires_ms, struct rl_buf *out)
{
    struct rl_jw w;
    rl_jw_init(&w, out, false);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "user_id", caller->user_id);
    rl_jw_bool(&w, "owner", caller->owner);
    rl_jw_time(&w, "expires_at", expires_ms);
    rl_jw_end_object(&w);
}

static enum rl_rc set_cookie(struct request *r, int64_t key_id, int64_t *ret_expires_ms,
                             struct rl_err *err)
{
    char token[KEY_TOKEN];
    int64_t life_ms = config_int(r->http->cfg, CFG_AUTH_SESSION_HOURS) * HOUR_MS;
    int64_t expires_ms = rl_wall_ms() + life_ms;
    enum rl_rc rc = key_token(r->http->tasks, "session", key_id, expires_ms, token, err);
    if (rc != RL_OK)
        return rc;
    reply_header(r, "Set-Cookie",
                 SESSION_COOKIE "=%s; Path=/; Max-Age=%lld; HttpOnly; SameSite=Strict", token,
                 (long long)(life_ms / 1000));
    *ret_expires_ms = expires_ms;
    return RL_OK;
}

enum rl_rc http_session_create(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"key", NULL};
    AUTO_JSON struct rl_json *root = NULL;
    const char *key = NULL;
    struct caller caller;
    enum rl_rc rc = auth_check_origin(r, false, err);
    if (rc == RL_OK)
        rc = door_may_sign_in(r, err);
    if (rc == RL_OK)
        rc = body_object(r, names, &root, err);
    if (rc != RL_OK)
        return rc;
    if (!rl_json_get(root, "key"))
        return rl_fail_field(err, RL_INVALID_FIELD, "key", "is missing");
    rc = rl_json_string(rl_json_get(root, "key"), "key", 1, 255, &key, err);
    if (rc == RL_OK)
        rc = key_authenticate(r->http->tasks, key, &caller, err);
    int64_t expires_ms = 0;
    if (rc == RL_OK)
        rc = set_cookie(r, caller.key_id, &expires_ms, err);
    if (rc != RL_OK)
        return rc;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 4096);
    write_session(&caller, expires_ms, &out);
    return reply_json(r, 200, &out, err);
}

enum rl_rc http_session_get(struct request *r, struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 4096);
    write_session(&r->caller, r->session_expires_ms, &out);
    return reply_json(r, 200, &out, err);
}

enum rl_rc http_session_delete(struct request *r, struct rl_err *err)
{
    enum rl_rc rc = auth_check_origin(r, request_header(r, "Cookie") != NULL, err);
    if (rc != RL_OK)
        return rc;
    reply_header(r, "Set-Cookie", SESSION_COOKIE "=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict");
    return reply_empty(r, 204);
}

enum rl_rc http_session_link(struct request *r, struct rl_err *err)
{
    char token[KEY_TOKEN];
    int64_t expires_ms = rl_wall_ms() + config_int(r->http->cfg, CFG_AUTH_LINK_MINUTES) * MINUTE_MS;
    enum rl_rc rc = key_token(r->http->tasks, "link", r->caller.key_id, expires_ms, token, err);
    if (rc != RL_OK)
        return rc;
    AUTO_BUF struct rl_buf out = {0}, url = {0};
    rl_buf_init(&out, 4096);
    rl_buf_init(&url, 2048);
    rl_buf_fmt(&url, "%s/sign-in?token=%s", tasks_public_url(r->http->tasks), token);
    rc = rl_buf_ok(&url, err);
    if (rc != RL_OK)
        return rc;
    struct rl_jw w;
    rl_jw_init(&w, &out, false);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "url", url.data);
    rl_jw_time(&w, "expires_at", expires_ms);
    rl_jw_end_object(&w);
    return reply_json(r, 200, &out, err);
}

enum rl_rc http_sign_in(struct request *r, struct rl_err *err)
{
    static const char refused[] =
        "This sign-in link is not valid any more.\n"
        "Ask for a new one: reeld link, or sign in on the page with your key.\n";
    const char *token = query_get(&r->query, "token");
    struct caller caller;
    int64_t expires_ms;
    enum rl_rc rc = token
                        ? key_token_check(r->http->tasks, "link", token, &caller, &expires_ms, err)
                        : rl_fail(err, RL_UNAUTHORIZED, "no token");
    if (rc == RL_UNAUTHORIZED && door_sign_in_failed(r, err) == RL_RATE_LIMITED)
        return RL_RATE_LIMITED;
    if (rc == RL_UNAUTHORIZED)
        return reply_send(r, &(struct reply){.status = 401,
                                             .type = "text/plain; charset=utf-8",
                                             .bytes = refused,
                                             .len = sizeof(refused) - 1});
    if (rc != RL_OK)
        return rc;
    rc = set_cookie(r, caller.key_id, &expires_ms, err);
    if (rc != RL_OK)
        return rc;
    reply_header(r, "Location", "/");
    return reply_empty(r, 303);
}
