#include "engine/wan/tokenizer.h"
struct tokenizer {
    int x;
};
enum rl_rc tokenizer_new(const void *bytes, size_t len, struct tokenizer **r, struct rl_err *err)
{
    (void)bytes;
    (void)len;
    (void)r;
    return rl_fail(err, RL_INTERNAL, "not yet");
}
void tokenizer_free(struct tokenizer *tokenizer)
{
    free(tokenizer);
}
int32_t tokenizer_vocab(const struct tokenizer *tokenizer)
{
    return tokenizer->x;
}
