/* One attempt: builds and starts the signed POST of a duty, and judges its answer. Outbox thread
 * only. Invariants: the body goes out byte for byte as it was frozen, the webhook-id is the same
 * for every attempt, timestamp and signature are fresh. */
#include "outbox/parts.h"

#include "base/clock.h"
#include "base/crypto.h"
#include "base/webhook.h"
#include "config/config.h"
#include "net/net.h"
#include "net/policy.h"
#include "outbox/outbox.h"
#include "store/store.h"

#include <inttypes.h>
#include <string.h>

#define HEADER_MAX 160

static bool dial_allowed(void *user, const struct sockaddr *addr)
{
    const struct outbox_slot *slot = user;

    return net_policy_allows(slot->post->policy, slot->host, addr);
}

static bool succeeded(int http_status)
{
    return http_status >= 200 && http_status <= 299;
}

/* Does the outcome speak against the host? 0: no, 1: yes, -1: it says nothing. */
static int host_failed(const struct outbox_result *r)
{
    if (r->http_status)
        return r->http_status >= 500;
    return r->rc == RL_NETWORK_ERROR || r->rc == RL_REQUEST_TIMEOUT ? 1 : -1;
}

/* What the outcome in slot->result means for the duty. */
static void judge(struct outbox_slot *slot, int64_t retry_after_ms)
{
    struct outbox_result *r = &slot->result;
    const struct config *cfg = slot->post->cfg;
    bool gone = r->http_status == 410;
    bool hopeless = r->rc == RL_ADDRESS_REFUSED || r->rc == RL_INVALID_FIELD || gone;
    int against_host = host_failed(r);

    slot->state = OUTBOX_DONE;
    r->wait_ms = 0;
    r->spent = 1;
    r->park = gone && r->endpoint_id;
    if (against_host >= 0)
        outbox_breaker_note(slot->post->breakers, slot->host, against_host, rl_mono_ms());
    if (succeeded(r->http_status)) {
        r->status = "SUCCEEDED";
        r->error[0] = '\0';
    } else if (r->park && r->task_id) { /* it waits until the endpoint is enabled again */
        r->status = "PENDING";
        r->spent = 0;
    } else if (hopeless || r->tries >= slot->max_tries ||
               store_steady_ms(slot->post->store) >= slot->expires_at) {
        r->status = "FAILED";
    } else {
        r->status = "PENDING";
        r->wait_ms = outbox_retry_wait(config_int(cfg, CFG_CALLBACK_WAIT_MS),
                                       config_int(cfg, CFG_CALLBACK_MAX_WAIT_MS), r->tries,
                                       retry_after_ms, rl_random_below(OUTBOX_JITTER_MAX + 1));
    }
}

void outbox_answered(struct outbox_slot *slot, const struct net_response *response)
{
    struct outbox_result *r = &slot->result;

    r->rc = response->rc;
    r->http_status = response->status;
    r->duration_ms = response->duration_ms;
    (void)rl_copy_str(r->ip, sizeof r->ip, response->ip); /* the same size */
    if (response->rc)
        (void)snprintf(r->error, sizeof r->error, "%s: %s%s", rl_code_name(response->rc),
                       response->error, /* fits: 256 bytes, a code and the hint */
                       response->rc == RL_ADDRESS_REFUSED ? " (callback.allow, callback.loopback)"
                                                          : "");
    else
        (void)snprintf(r->error, sizeof r->error, "HTTP %d%s", response->status,
                       response->status / 100 == 3 ? ", redirects are not followed" : "");
    if (response->body_len && (r->response = malloc(response->body_len))) {
        memcpy(r->response, response->body, response->body_len);
        r->response_len = response->body_len;
    } /* else the log of deliveries goes without the answer's text */
    judge(slot, response->retry_after_s >= 0 ? response->retry_after_s * 1000 : -1);
}

static void on_done(void *user, struct net_response *response)
{
    outbox_answered(user, response);
}

/* The duty can never be sent as it is: the attempt ends before it began. */
static void give_up(struct outbox_slot *slot, const struct rl_err *why)
{
    struct outbox_result *r = &slot->result;

    r->rc = RL_INVALID_FIELD;
    (void)snprintf(r->error, sizeof r->error, "%s: %s", rl_code_name(why->code), why->reason);
    judge(slot, -1);
}

struct headers {
    char id[HEADER_MAX], timestamp[HEADER_MAX], signature[HEADER_MAX], key[HEADER_MAX];
};

/* "v1,…", and a second one by the former secret while a rotation is under way. */
static enum rl_rc sign(const struct outbox_duty *duty, int64_t now_s, char *signature, size_t size,
                       struct rl_err *err)
{
    char current[64], old[64] = "";
    enum rl_rc rc = rl_webhook_sign(duty->secret, duty->webhook_id, now_s, duty->body,
                                    duty->body_len, current, err);

    if (rc == RL_OK && duty->old_secret)
        rc = rl_webhook_sign(duty->old_secret, duty->webhook_id, now_s, duty->body, duty->body_len,
                             old, err);
    if (rc == RL_OK) /* fits: two signatures of 47 bytes */
        (void)snprintf(signature, size, "%s%s%s", current, old[0] ? " " : "", old);
    return rc;
}

static enum rl_rc make_headers(struct headers *h, const struct outbox_duty *duty, int64_t now_s,
                               struct rl_err *err)
{
    char signature[128];
    char round[24] = "";
    enum rl_rc rc = sign(duty, now_s, signature, sizeof signature, err);

    if (rc)
        return rc;
    if (duty->round > 1) /* a receiver that remembers keys still hears of a replayed task */
        (void)snprintf(round, sizeof round, "-%" PRId64, duty->round);
    /* all of these fit: ids are shorter than 64 bytes */
    (void)snprintf(h->id, HEADER_MAX, "webhook-id: %s", duty->webhook_id);
    (void)snprintf(h->timestamp, HEADER_MAX, "webhook-timestamp: %" PRId64, now_s);
    (void)snprintf(h->signature, HEADER_MAX, "webhook-signature: %s", signature);
    if (duty->task_id)
        (void)snprintf(h->key, HEADER_MAX, "Idempotency-Key: %" PRId64 "%s", duty->task_id, round);
    else /* a test event */
        (void)snprintf(h->key, HEADER_MAX, "Idempotency-Key: %s", duty->webhook_id);
    return RL_OK;
}

static enum rl_rc start(const struct outbox_post *post, struct outbox_slot *slot,
                        const struct outbox_duty *duty, struct rl_err *err)
{
    struct headers h;
    enum rl_rc rc = make_headers(&h, duty, slot->result.timestamp / 1000, err);

    if (rc)
        return rc;
    const char *const headers[] = {"Content-Type: application/json",
                                   "User-Agent: reeld/" REELD_VERSION,
                                   h.id,
                                   h.timestamp,
                                   h.signature,
                                   h.key,
                                   NULL};
    struct net_request request = {
        .method = "POST",
        .url = duty->url,
        .headers = headers,
        .body = duty->body,
        .body_len = duty->body_len,
        .timeout_ms = config_int(post->cfg, CFG_CALLBACK_TIMEOUT_MS),
        .connect_timeout_ms = config_int(post->cfg, CFG_CALLBACK_CONNECT_MS),
        .response_limit = (size_t)config_int(post->cfg, CFG_CALLBACK_RESPONSE_BYTES),
        .allow = dial_allowed,
        .user = slot,
    };
    return net_multi_add(post->multi, &request, on_done, slot, err);
}

enum rl_rc outbox_send(const struct outbox_post *post, struct outbox_slot *slot,
                       const struct outbox_duty *duty, struct rl_err *err)
{
    struct outbox_result *r = &slot->result;
    struct rl_err why = {0};

    slot->host = rl_strdup(duty->host);
    if (!slot->host)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    slot->post = post;
    slot->max_tries = duty->max_tries;
    slot->expires_at = duty->expires_at;
    r->outbox_id = duty->outbox_id;
    r->task_id = duty->task_id;
    r->round = duty->round;
    r->endpoint_id = duty->endpoint_id;
    r->tries = duty->tries + 1;
    r->timestamp = rl_wall_ms();
    (void)rl_copy_str(r->webhook_id, sizeof r->webhook_id, duty->webhook_id); /* for the log */
    slot->state = OUTBOX_FLYING;
    enum rl_rc rc = start(post, slot, duty, &why);
    if (rc == RL_INVALID_FIELD) {
        give_up(slot, &why);
        return RL_OK;
    }
    if (rc) {
        outbox_slot_clear(slot);
        return rl_fail(err, rc, "%s", why.reason);
    }
    return RL_OK;
}
