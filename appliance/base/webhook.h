/* Standard Webhooks 1.0: secrets, signatures, and the three headers of a delivery. What reeld
 * sends, what it takes in and what the command line checks go through here. No state, any thread.
 */
#ifndef RL_BASE_WEBHOOK_H
#define RL_BASE_WEBHOOK_H

#include "base/rl.h"

#define RL_WEBHOOK_SECRET       64  /* room for a new secret */
#define RL_WEBHOOK_SECRET_BYTES 256 /* longest secret that is taken */
#define RL_WEBHOOK_SIGNATURE    64  /* room for one signature */
#define RL_WEBHOOK_ID_BYTES     128 /* longest webhook-id that is taken */
/* Why a second rotation is refused. */
#define RL_WEBHOOK_ROTATING                                                                        \
    "the former secret is valid until old_secret_until; wait, or rotate with grace_s 0, which "    \
    "leaves the new one alone"

/* A new secret, "whsec_" and 32 random bytes in base64, into secret[RL_WEBHOOK_SECRET]. */
void rl_webhook_secret(char *secret);
/* 1..RL_WEBHOOK_SECRET_BYTES visible ASCII characters; after "whsec_" standard base64. Else
 * RL_INVALID_FIELD naming `field`. */
enum rl_rc rl_webhook_secret_check(const char *secret, const char *field, struct rl_err *err)
    RL_NODISCARD;
/* Signature "v1,<base64>" of id.timestamp.body into signature[RL_WEBHOOK_SIGNATURE]. secret:
 * "whsec_<base64>", or any other text (then its bytes are the key). RL_INVALID_FIELD: empty or bad
 * base64. */
enum rl_rc rl_webhook_sign(const char *secret, const char *webhook_id, int64_t timestamp_s,
                           const void *body, size_t len, char *signature, struct rl_err *err)
    RL_NODISCARD;

/* A delivery as it came in; everything borrowed. */
struct rl_webhook {
    const char *id, *timestamp, *signature; /* values of the webhook-* headers; NULL = not sent */
    const void *body;
    size_t body_len;
};
/* The headers alone: an id of 1..RL_WEBHOOK_ID_BYTES visible ASCII characters without a dot (what
 * is signed could be cut in two ways), a time in whole seconds, at least one "v1," signature.
 * RL_UNAUTHORIZED naming the header and saying what is wrong with it. Looks at no body. */
enum rl_rc rl_webhook_head(const struct rl_webhook *hook, int64_t *ret_timestamp_s,
                           struct rl_err *err) RL_NODISCARD;
/* Is one of its v1 signatures by this secret? Tries all of them; constant time but for their
 * number. */
bool rl_webhook_signed_by(const struct rl_webhook *hook, const char *secret);
/* At most tolerance_s before or after now_s. */
bool rl_webhook_in_time(int64_t timestamp_s, int64_t now_s, int64_t tolerance_s);

#endif
