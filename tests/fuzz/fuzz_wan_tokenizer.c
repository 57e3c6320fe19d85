/* A tokenizer model of any bytes with a text of any bytes: every
 * id is in the vocabulary and the last one is the end; cleaned prompts do not grow. The first two
 * bytes say where the model ends and the text begins. */
#include "fuzz.h"

#include "engine/wan/tokenizer.h"

static void check_encode(const struct tokenizer *t, const char *text, size_t len)
{
    int32_t ids[64];
    size_t count = 0;
    struct rl_err err = {0};
    enum rl_rc rc = tokenizer_encode(t, text, len, ids, 64, &count, &err);

    require(rc == RL_OK || rc == RL_INVALID_FIELD);
    if (rc)
        return;
    require(count >= 1 && count <= 64 && ids[count - 1] == 1);
    for (size_t i = 0; i < count; i++)
        require(ids[i] >= 0 && ids[i] < tokenizer_vocab(t));
}

static void check_clean(const char *bytes, size_t len)
{
    char *text = malloc(len + 1);

    require(text != NULL);
    memcpy(text, bytes, len);
    text[len] = '\0';
    char *clean = prompt_clean(text);
    require(clean != NULL && strlen(clean) <= strlen(text));
    free(clean);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *t = NULL;
    struct rl_err err = {0};

    if (size < 2)
        return 0;
    size_t text_len = ((size_t)data[0] << 8 | data[1]) % (size - 1);
    const char *text = (const char *)data + size - text_len;
    enum rl_rc rc = tokenizer_new(data + 2, size - 2 - text_len, &t, &err);
    require((rc == RL_OK) == (t != NULL));
    require(rc == RL_OK || rc == RL_INVALID_FIELD);
    if (t)
        check_encode(t, text, text_len);
    tokenizer_free(t);
    check_clean(text, text_len);
    return 0;
}
