/* Text to ids of a SentencePiece unigram model: the normaliser, then the segmentation with the
 * largest sum of scores (Viterbi), with the same arithmetic as SentencePiece so that ties and
 * near-ties come out the same. A run of characters that the model does not have is one unknown id,
 * as both SentencePiece and Hugging Face's tokenizers have it; byte pieces are never used, as in
 * the latter, which Wan was trained with. Names of control pieces in a text are text. Read-only on
 * the model: any thread. Source: google/sentencepiece, src/normalizer.cc and
 * src/unigram_model.cc; Kudo 2018. */
#include "engine/wan/tokenizer.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "engine/wan/pieces.h"

#include <string.h>

#define END_ID          1
#define UNKNOWN_PENALTY 10.0F
#define MAX_REPLACEMENT 256 /* bytes; the longest of NFKC has 33 */
#define MAX_GROWTH      16  /* of a text; NFKC with escaped spaces: 13 */

static const char space_symbol[] = "\xe2\x96\x81"; /* U+2581 stands for a space */

/* ---- normaliser ---- */

/* The longest rule of the map that s[0..len) begins with: its text, and how much it replaces; 0
 * when there is none. The map is a double array as darts-clone writes it: a unit holds its label
 * (bits 0–7), whether a value follows (8), and the offset of its children (10–30, times 256 when
 * bit 9 is set); a value is a unit with bit 31 set. */
static size_t map_prefix(const struct tokenizer *t, const char *s, size_t len,
                         const char **ret_text, size_t *ret_len)
{
    size_t best = 0;
    uint32_t unit;
    size_t at;

    if (!t->map_count)
        return 0;
    unit = t->map[0];
    at = (unit >> 10) << ((unit & 0x200) >> 6);
    for (size_t i = 0; i < len; i++) {
        at ^= (uint8_t)s[i];
        if (at >= t->map_count)
            break;
        unit = t->map[at];
        if ((unit & 0x800000ff) != (uint8_t)s[i])
            break;
        at ^= (unit >> 10) << ((unit & 0x200) >> 6);
        if (!(unit & 0x100) || at >= t->map_count)
            continue;
        size_t value = t->map[at] & 0x7fffffff;
        if (value >= t->replacements_len)
            continue;
        /* the texts end with NUL, the last one too */
        size_t n = strnlen(t->replacements + value, MAX_REPLACEMENT + 1);
        if (n > MAX_REPLACEMENT)
            continue;
        best = i + 1;
        *ret_text = t->replacements + value;
        *ret_len = n;
    }
    return best;
}

/* Length of the longest user-defined piece at the beginning of s; they are not normalised. */
static size_t user_defined_prefix(const struct tokenizer *t, const char *s, size_t len)
{
    const struct piece_node *node = t->nodes;
    size_t best = 0;

    for (size_t i = 0; t->user_defined && i < len; i++) {
        node = piece_step(t, node, (uint8_t)s[i]);
        if (!node)
            break;
        if (node->id >= 0 && t->pieces[node->id].type == PIECE_USER_DEFINED)
            best = i + 1;
    }
    return best;
}

/* What the beginning of s becomes; returns how much of s that is (> 0 for len > 0). */
static size_t normalize_prefix(const struct tokenizer *t, const char *s, size_t len,
                               const char **ret_text, size_t *ret_len)
{
    size_t n = user_defined_prefix(t, s, len);

    if (!n) {
        n = map_prefix(t, s, len, ret_text, ret_len);
        if (n)
            return n;
        n = rl_utf8_decode(s, len, NULL);
    }
    if (!n) { /* not UTF-8: one byte becomes a replacement character */
        *ret_text = "\xef\xbf\xbd";
        *ret_len = 3;
        return 1;
    }
    *ret_text = s;
    *ret_len = n;
    return n;
}

static bool ends_with(const struct rl_buf *b, const char *end, size_t n)
{
    return b->len >= n && memcmp(b->data + b->len - n, end, n) == 0;
}

void tokenizer_normalize(const struct tokenizer *t, const char *s, size_t len, struct rl_buf *out)
{
    const char *symbol = t->escape_space ? space_symbol : " ";
    size_t symbol_len = strlen(symbol);
    bool after_space = t->remove_extra_space;
    const char *part = NULL;
    size_t n = 0;
    size_t used = 0;

    while (t->remove_extra_space && len) { /* spaces in front */
        used = normalize_prefix(t, s, len, &part, &n);
        if (n != 1 || *part != ' ')
            break;
        s += used;
        len -= used;
    }
    if (!len)
        return;
    if (t->dummy_prefix && !t->space_as_suffix)
        rl_buf_append(out, symbol, symbol_len);
    for (; len; s += used, len -= used) {
        used = normalize_prefix(t, s, len, &part, &n);
        while (after_space && n && *part == ' ') {
            part++;
            n--;
        }
        for (size_t i = 0; i < n; i++) {
            if (part[i] == ' ')
                rl_buf_append(out, symbol, symbol_len);
            else
                rl_buf_append(out, part + i, 1);
        }
        if (n)
            after_space = part[n - 1] == ' ';
        after_space = after_space && t->remove_extra_space;
    }
    while (t->remove_extra_space && ends_with(out, symbol, symbol_len))
        out->len -= symbol_len;
    if (t->dummy_prefix && t->space_as_suffix)
        rl_buf_append(out, symbol, symbol_len);
}

/* ---- segmentation ---- */

/* The best way to reach a place in the text. */
struct path {
    float score;
    int32_t start; /* of its last piece, -1: not reached */
    int32_t id;
};

/* Bytes of the character that starts with this byte; 1 for what starts none. */
static size_t char_bytes(char c)
{
    return (size_t) "\1\1\1\1\1\1\1\1\1\1\1\1\2\2\3\4"[(unsigned char)c >> 4];
}

/* All pieces that start at `from`; `one`: bytes of its character. */
static void extend(const struct tokenizer *t, const char *s, size_t len, size_t from, size_t one,
                   struct path *paths)
{
    const struct piece_node *node = t->nodes;
    float before = paths[from].score;
    bool single = false;

    for (size_t at = from; at < len;) {
        node = piece_step(t, node, (uint8_t)s[at++]);
        if (!node)
            break;
        if (node->id < 0 || t->pieces[node->id].type == PIECE_UNUSED)
            continue;

        const struct piece *piece = &t->pieces[node->id];
        double score = piece->type == PIECE_USER_DEFINED
                           ? (double)((float)(at - from) * t->max_score) - 0.1
                           : (double)piece->score;
        score += (double)before;
        if (paths[at].start < 0 || score > (double)paths[at].score)
            paths[at] = (struct path){(float)score, (int32_t)from, node->id};
        single = single || at - from == one;
    }
    float score = t->min_score - UNKNOWN_PENALTY + before;
    struct path *next = &paths[from + one];
    if (!single && (next->start < 0 || score > next->score))
        *next = (struct path){score, (int32_t)from, t->unknown};
}

/* The ids along the best path, from its end to its beginning, over `paths` itself: id i is written
 * behind all places that are still to be read. Returns how many. */
static size_t collect(const struct tokenizer *t, struct path *paths, size_t len)
{
    size_t count = 0;
    size_t at = len;

    while (at > 0) {
        struct path p = paths[at];
        bool again = p.id == t->unknown && count && paths[len - count + 1].id == t->unknown;
        if (!again)
            paths[len - count++].id = p.id;
        at = (size_t)p.start;
    }
    return count;
}

enum rl_rc tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t len,
                            int32_t *ids, size_t room, size_t *ret_count, struct rl_err *err)
{
    AUTO_BUF struct rl_buf b = {0};
    AUTO_FREE struct path *paths = NULL;
    size_t count = 0;

    if (len > TOKENIZER_TEXT || !room)
        return rl_fail(err, RL_INVALID_FIELD, "a text of more than %d bytes, or no room for ids",
                       TOKENIZER_TEXT);
    rl_buf_init(&b, MAX_GROWTH * len + MAX_REPLACEMENT);
    tokenizer_normalize(tokenizer, text, len, &b);
    if (b.failed && !b.no_memory)
        return rl_fail(err, RL_INVALID_FIELD, "tokenizer: its rules make texts endless");
    paths = malloc((b.len + 1) * sizeof(*paths));
    if (b.failed || !paths)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");

    for (size_t i = 0; i <= b.len; i++)
        paths[i] = (struct path){.start = -1};
    for (size_t from = 0; from < b.len;) {
        size_t one = char_bytes(b.data[from]);
        if (one > b.len - from)
            one = b.len - from;
        extend(tokenizer, b.data, b.len, from, one, paths);
        from += one;
    }
    size_t found = b.len ? collect(tokenizer, paths, b.len) : 0;
    while (count < found && count + 1 < room) {
        ids[count] = paths[b.len - found + 1 + count].id;
        count++;
    }
    ids[count++] = END_ID;
    *ret_count = count;
    return RL_OK;
}
