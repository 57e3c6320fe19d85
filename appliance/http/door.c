/* The limits at the door: requests of an address that is not loopback, failed sign-ins of any
 * address, submits and reads of an app's key. Runs on the worker, after the head and before the
 * body. Invariants: nothing here allocates, reads a body or touches the database; the owner is
 * never limited; a key in use keeps working while its address fails to sign in with another. */
#include "http/request.h"

#include <string.h>

#include "base/clock.h"
#include "config/config.h"

#define SECOND_US INT64_C(1000000)
#define MINUTE_US (60 * SECOND_US)

static struct limit_rule rule(const struct request *r, enum config_key key, int64_t period_us)
{
    return (struct limit_rule){config_int(r->http->cfg, key), period_us};
}

static void rate_headers(struct request *r, const struct limit_answer *answer)
{
    reply_header(r, "x-ratelimit-limit", "%lld", (long long)answer->limit);
    reply_header(r, "x-ratelimit-remaining", "%lld", (long long)answer->remaining);
    reply_header(r, "x-ratelimit-reset", "%lld", (long long)answer->reset_s);
}

enum rl_rc door_refuse(struct request *r, const struct limit_answer *answer, const char *what,
                       struct rl_err *err)
{
    rate_headers(r, answer);
    r->retry_after_s = answer->wait_s;
    atomic_fetch_add(&r->http->limited, 1);
    return rl_fail(err, RL_RATE_LIMITED, "too many %s; the next may come in %lld s", what,
                   (long long)answer->wait_s);
}

enum rl_rc door_address(struct request *r, struct rl_err *err)
{
    struct limit_rule by = rule(r, CFG_LIMIT_ADDRESS, SECOND_US);
    struct limit_answer answer;
    address_of_client(&r->http->trusted, r->info->remote_addr, r->fields, r->field_count,
                      &r->client);
    if (address_is_loopback(&r->client))
        return RL_OK;
    if (r->http->clients.count > 0 && !address_listed(&r->http->clients, &r->client))
        return rl_fail(err, RL_FORBIDDEN, "this address is not in limit.clients");
    address_client(&r->client);
    limit_take(r->http->limit, LIMIT_ADDRESS, r->client.bytes, &by, rl_mono_us(), &answer);
    return answer.ok ? RL_OK : door_refuse(r, &answer, "requests from this address", err);
}

enum rl_rc door_may_sign_in(struct request *r, struct rl_err *err)
{
    struct limit_rule by = rule(r, CFG_LIMIT_ADDRESS, SECOND_US);
    struct limit_answer answer;
    limit_look(r->http->limit, LIMIT_FAILED, r->client.bytes, &by, rl_mono_us(), &answer);
    return answer.ok ? RL_OK : door_refuse(r, &answer, "failed sign-ins from this address", err);
}

enum rl_rc door_sign_in_failed(struct request *r, struct rl_err *err)
{
    struct limit_rule by = rule(r, CFG_LIMIT_ADDRESS, SECOND_US);
    struct limit_answer answer;
    limit_take(r->http->limit, LIMIT_FAILED, r->client.bytes, &by, rl_mono_us(), &answer);
    return answer.ok ? err->code
                     : door_refuse(r, &answer, "failed sign-ins from this address", err);
}

enum rl_rc door_key(struct request *r, bool submit, struct rl_err *err)
{
    struct limit_rule by = rule(r, submit ? CFG_LIMIT_SUBMITS : CFG_LIMIT_READS, MINUTE_US);
    struct limit_answer answer;
    uint8_t id[LIMIT_ID_BYTES] = {0};
    if (by.count == 0 || r->caller.owner || r->caller.key_id == 0)
        return RL_OK;
    memcpy(id, &r->caller.key_id, sizeof(r->caller.key_id));
    limit_take(r->http->limit, submit ? LIMIT_SUBMITS : LIMIT_READS, id, &by, rl_mono_us(),
               &answer);
    if (!answer.ok)
        return door_refuse(r, &answer, submit ? "submits of this key" : "requests of this key",
                           err);
    rate_headers(r, &answer);
    return RL_OK;
}
