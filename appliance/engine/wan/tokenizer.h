/* SentencePiece unigram models, from their own bytes (spiece.model): normaliser (character map and
 * white space rules), then the most likely segmentation (Viterbi). Pieces that the model does not
 * have become its unknown id; byte fallback is not used, as in the tokenizer that Wan was trained
 * with. Read-only after new; any thread. Source: SentencePiece's model format (sentencepiece_model
 * .proto) and Kudo 2018. */
#ifndef RL_ENGINE_WAN_TOKENIZER_H
#define RL_ENGINE_WAN_TOKENIZER_H

#include "base/rl.h"

#define TOKENIZER_TEXT 262144 /* longest text, bytes */

struct tokenizer;

/* bytes are copied; at most 16 MiB. errors: RL_INVALID_FIELD (what is wrong with the model).
 * Returns new. */
enum rl_rc tokenizer_new(const void *bytes, size_t len, struct tokenizer **ret_tokenizer,
                         struct rl_err *err) RL_NODISCARD;
void tokenizer_free(struct tokenizer *tokenizer); /* NULL allowed */
int32_t tokenizer_vocab(const struct tokenizer *tokenizer);
/* text UTF-8. The ids of its pieces and then the end id (1), at most `room` in all: a longer text
 * loses its tail, never the end id. Returns how many in *ret_count (>= 1). errors: RL_NO_MEMORY,
 * RL_INVALID_FIELD (a text of more than TOKENIZER_TEXT bytes, or no room). */
enum rl_rc tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t len,
                            int32_t *ids, size_t room, size_t *ret_count, struct rl_err *err)
    RL_NODISCARD;
/* The cleaning that Wan's prompts get before the tokenizer: HTML entities (twice), white space runs
 * to one space, trimmed. Returns new; NULL when memory is short. */
char *prompt_clean(const char *text);

#endif
