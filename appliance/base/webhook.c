/* Standard Webhooks 1.0, both directions. No state, any thread. Invariants: key bytes are wiped
 * before a function returns; an empty key never signs; how long a comparison takes says nothing
 * about the signature that was expected. */
#include "base/webhook.h"

#include "base/crypto.h"

#include <inttypes.h>
#include <string.h>

#define SECRET_PREFIX   "whsec_"
#define VERSION         "v1,"
#define TIME_DIGITS     11   /* of seconds, until the year 5138 */
#define SIGNATURES_MOST 4096 /* bytes of the header */

void rl_webhook_secret(char *secret)
{
    uint8_t key[32];

    rl_random(key, sizeof key);
    (void)rl_copy_str(secret, RL_WEBHOOK_SECRET, SECRET_PREFIX);       /* fits */
    rl_base64(key, sizeof key, false, secret + strlen(SECRET_PREFIX)); /* 44 more characters */
    rl_wipe(key, sizeof key);
}

/* 1..most visible ASCII characters. */
static bool visible(const char *text, size_t most)
{
    size_t len = 0;

    for (; len <= most && text[len]; len++)
        if (text[len] < 0x21 || text[len] > 0x7e)
            return false;
    return len >= 1 && len <= most;
}

enum rl_rc rl_webhook_secret_check(const char *secret, const char *field, struct rl_err *err)
{
    uint8_t key[RL_WEBHOOK_SECRET_BYTES];
    size_t len = 0, prefix = strlen(SECRET_PREFIX);

    if (!visible(secret, RL_WEBHOOK_SECRET_BYTES))
        return rl_fail_field(err, RL_INVALID_FIELD, field,
                             "must be 1 to %d visible ASCII characters", RL_WEBHOOK_SECRET_BYTES);
    if (strncmp(secret, SECRET_PREFIX, prefix) != 0)
        return RL_OK;
    bool ok = rl_base64_decode(secret + prefix, false, key, sizeof key, &len) && len > 0;
    rl_wipe(key, sizeof key);
    return ok ? RL_OK
              : rl_fail_field(err, RL_INVALID_FIELD, field,
                              "whsec_ must be followed by standard base64");
}

/* ---- signing ---- */

/* The key inside a secret. ret_key: returns new, of *ret_len bytes. */
static enum rl_rc secret_key(const char *secret, uint8_t **ret_key, size_t *ret_len,
                             struct rl_err *err)
{
    size_t len = strlen(secret);
    bool encoded = strncmp(secret, SECRET_PREFIX, strlen(SECRET_PREFIX)) == 0;
    size_t key_len = len;

    if (!len)
        return rl_fail_field(err, RL_INVALID_FIELD, "callback_secret", "the secret is empty");
    AUTO_FREE uint8_t *key = malloc(len);
    if (!key)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    if (!encoded)
        memcpy(key, secret, len);
    else if (!rl_base64_decode(secret + strlen(SECRET_PREFIX), false, key, len, &key_len) ||
             !key_len) {
        rl_wipe(key, len);
        return rl_fail_field(err, RL_INVALID_FIELD, "callback_secret",
                             "no standard base64 after whsec_");
    }
    *ret_key = STEAL(key);
    *ret_len = key_len;
    return RL_OK;
}

/* The signature of id.timestamp.body, the timestamp as it is written in the header. */
static enum rl_rc sign_text(const char *secret, const struct rl_webhook *hook, char *signature,
                            struct rl_err *err)
{
    uint8_t mac[RL_SHA256_BYTES];
    AUTO_FREE uint8_t *key = NULL;
    size_t key_len = 0;
    enum rl_rc rc = secret_key(secret, &key, &key_len, err);

    if (rc)
        return rc;
    const struct rl_bytes parts[] = {{hook->id, strlen(hook->id)},
                                     {".", 1},
                                     {hook->timestamp, strlen(hook->timestamp)},
                                     {".", 1},
                                     {hook->body, hook->body_len}};
    rl_hmac_sha256(key, key_len, parts, RL_ARRAY_LEN(parts), mac);
    rl_wipe(key, key_len);
    memcpy(signature, VERSION, strlen(VERSION));
    rl_base64(mac, sizeof mac, false, signature + strlen(VERSION));
    return RL_OK;
}

enum rl_rc rl_webhook_sign(const char *secret, const char *webhook_id, int64_t timestamp_s,
                           const void *body, size_t len, char *signature, struct rl_err *err)
{
    char timestamp[24];
    const struct rl_webhook hook = {
        .id = webhook_id, .timestamp = timestamp, .body = body, .body_len = len};

    (void)snprintf(timestamp, sizeof timestamp, "%" PRId64, timestamp_s); /* fits 20 digits */
    return sign_text(secret, &hook, signature, err);
}

/* ---- verifying ---- */

static enum rl_rc check_id(const char *id, struct rl_err *err)
{
    static const char name[] = "webhook-id";

    if (!id)
        return rl_fail_field(err, RL_UNAUTHORIZED, name, "the header is missing");
    if (!visible(id, RL_WEBHOOK_ID_BYTES))
        return rl_fail_field(err, RL_UNAUTHORIZED, name, "must be 1 to %d visible ASCII characters",
                             RL_WEBHOOK_ID_BYTES);
    if (strchr(id, '.'))
        return rl_fail_field(err, RL_UNAUTHORIZED, name,
                             "must not hold a dot, which separates what is signed");
    return RL_OK;
}

static enum rl_rc check_time(const char *timestamp, int64_t *ret_s, struct rl_err *err)
{
    static const char name[] = "webhook-timestamp";
    size_t digits = timestamp ? strspn(timestamp, "0123456789") : 0;

    if (!timestamp)
        return rl_fail_field(err, RL_UNAUTHORIZED, name, "the header is missing");
    if (digits == 13 && !timestamp[digits])
        return rl_fail_field(err, RL_UNAUTHORIZED, name,
                             "must be in seconds; this looks like milliseconds");
    if (digits < 1 || digits > TIME_DIGITS || timestamp[digits] ||
        (timestamp[0] == '0' && digits > 1))
        return rl_fail_field(err, RL_UNAUTHORIZED, name,
                             "must be the unix time in whole seconds, in digits only");
    *ret_s = strtoll(timestamp, NULL, 10);
    return RL_OK;
}

static enum rl_rc check_signature(const char *signature, struct rl_err *err)
{
    static const char name[] = "webhook-signature";
    size_t len = 0;

    if (!signature)
        return rl_fail_field(err, RL_UNAUTHORIZED, name, "the header is missing");
    if (strlen(signature) > SIGNATURES_MOST)
        return rl_fail_field(err, RL_UNAUTHORIZED, name, "has more than %d characters",
                             SIGNATURES_MOST);
    for (const char *p = signature; *p; p += len) {
        p += strspn(p, " ");
        len = strcspn(p, " ");
        if (len > strlen(VERSION) && strncmp(p, VERSION, strlen(VERSION)) == 0)
            return RL_OK;
    }
    return rl_fail_field(err, RL_UNAUTHORIZED, name,
                         strstr(signature, "v1a,")
                             ? "holds only v1a (ed25519) signatures; v1, the one by a secret, is "
                               "missing"
                             : "holds no v1 signature; it must be v1, and the base64 of the HMAC");
}

enum rl_rc rl_webhook_head(const struct rl_webhook *hook, int64_t *ret_timestamp_s,
                           struct rl_err *err)
{
    int64_t seconds = 0;
    enum rl_rc rc = check_id(hook->id, err);

    if (rc == RL_OK)
        rc = check_time(hook->timestamp, &seconds, err);
    if (rc == RL_OK)
        rc = check_signature(hook->signature, err);
    if (rc == RL_OK)
        *ret_timestamp_s = seconds;
    return rc;
}

bool rl_webhook_signed_by(const struct rl_webhook *hook, const char *secret)
{
    char want[RL_WEBHOOK_SIGNATURE];
    size_t len = 0;
    bool found = false;

    if (sign_text(secret, hook, want, NULL) != RL_OK)
        return false;
    size_t want_len = strlen(want);
    for (const char *p = hook->signature; *p; p += len) {
        p += strspn(p, " ");
        len = strcspn(p, " ");
        if (len == want_len && rl_equal(p, want, len))
            found = true;
    }
    return found;
}

bool rl_webhook_in_time(int64_t timestamp_s, int64_t now_s, int64_t tolerance_s)
{
    int64_t off_s = now_s > timestamp_s ? now_s - timestamp_s : timestamp_s - now_s;

    return off_s <= tolerance_s;
}
