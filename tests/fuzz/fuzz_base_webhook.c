/* The headers of a delivery and secrets of any bytes: heads that pass hold what they promise; what
 * was signed by a secret that passes is signed by it, and no longer once a byte of it differs. */
#include "fuzz.h"

#include "base/webhook.h"

enum { ID, TIMESTAMP, SIGNATURE, SECRET, BODY, TEXTS };

static void check_head(char *const *texts)
{
    struct rl_webhook hook = {
        .id = texts[ID], .timestamp = texts[TIMESTAMP], .signature = texts[SIGNATURE]};
    struct rl_err err = {0};
    int64_t seconds = -1;
    enum rl_rc rc = rl_webhook_head(&hook, &seconds, &err);

    require(rc == RL_OK ||
            (rc == RL_UNAUTHORIZED && strncmp(err.field, "webhook-", 8) == 0 && *err.reason));
    if (rc)
        return;
    require(seconds >= 0 && strlen(hook.id) <= RL_WEBHOOK_ID_BYTES && !strchr(hook.id, '.'));
    require(rl_webhook_in_time(seconds, seconds, 0));
    /* nobody guesses 256 bits */
    require(!texts[SECRET] || !*texts[SECRET] || !rl_webhook_signed_by(&hook, "whsec_c2VjcmV0"));
}

static void check_signature(char *const *texts)
{
    char signature[RL_WEBHOOK_SIGNATURE], list[2 * RL_WEBHOOK_SIGNATURE];
    struct rl_err err = {0};

    if (!texts[SECRET] || rl_webhook_secret_check(texts[SECRET], "secret", &err))
        return;
    const char *body = texts[BODY] ? texts[BODY] : "";
    require(rl_webhook_sign(texts[SECRET], "id", 1700000000, body, strlen(body), signature, &err) ==
            RL_OK);
    (void)snprintf(list, sizeof list, "v1,AAAA %s", signature); /* fits */
    struct rl_webhook hook = {.id = "id",
                              .timestamp = "1700000000",
                              .signature = list,
                              .body = body,
                              .body_len = strlen(body)};
    require(rl_webhook_signed_by(&hook, texts[SECRET]));
    hook.id = "ie";
    require(!rl_webhook_signed_by(&hook, texts[SECRET]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *texts[TEXTS];

    fuzz_texts(data, size, texts, TEXTS);
    check_head(texts);
    check_signature(texts);
    fuzz_texts_free(texts, TEXTS);
    return 0;
}
