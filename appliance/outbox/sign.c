/* Standard Webhooks 1.0 signatures. No state, any thread. Invariant: key bytes are wiped before the
 * function returns; an empty key never signs. */
#include "outbox/outbox.h"

#include "base/crypto.h"

#include <inttypes.h>
#include <string.h>

#define SECRET_PREFIX "whsec_"
#define VERSION       "v1,"

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

enum rl_rc outbox_sign(const char *secret, const char *webhook_id, int64_t timestamp_s,
                       const void *body, size_t len, char *signature, struct rl_err *err)
{
    char middle[32]; /* ".<timestamp>." */
    uint8_t mac[RL_SHA256_BYTES];
    AUTO_FREE uint8_t *key = NULL;
    size_t key_len = 0;
    enum rl_rc rc = secret_key(secret, &key, &key_len, err);

    if (rc)
        return rc;
    (void)snprintf(middle, sizeof middle, ".%" PRId64 ".", timestamp_s); /* fits 20 digits */
    const struct rl_bytes parts[] = {
        {webhook_id, strlen(webhook_id)}, {middle, strlen(middle)}, {body, len}};
    rl_hmac_sha256(key, key_len, parts, RL_ARRAY_LEN(parts), mac);
    rl_wipe(key, key_len);
    memcpy(signature, VERSION, strlen(VERSION));
    rl_base64(mac, sizeof mac, false, signature + strlen(VERSION));
    return RL_OK;
}
