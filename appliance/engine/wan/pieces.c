/* SentencePiece models: the protobuf is walked field by field (unknown ones are passed over), then
 * the pieces that may occur in text become a tree of bytes. Owns the copy of the model's bytes.
 * Invariant: every length is checked against its enclosing field before a byte of it is read, and
 * nothing is allocated that the model's size does not bound (40 bytes per byte of it). Source:
 * google/sentencepiece, src/sentencepiece_model.proto. */
#include "engine/wan/pieces.h"

#include <endian.h>
#include <math.h>
#include <string.h>

#define MAX_MODEL  ((size_t)16 << 20) /* bytes; umT5's has 4.5 MB */
#define MAX_PIECES 1048576
#define MAX_PIECE  512 /* bytes of one */

static enum rl_rc refuse(struct rl_err *err, const char *why)
{
    return rl_fail(err, RL_INVALID_FIELD, "tokenizer: %s", why);
}

static enum rl_rc no_memory(struct rl_err *err)
{
    return rl_fail(err, RL_NO_MEMORY, "out of memory");
}

/* ---- protobuf ---- */

struct span {
    const char *p, *end;
};

struct field {
    uint32_t number;
    uint64_t value;    /* varint; the bits of a fixed32 */
    struct span bytes; /* of a length-delimited one */
    bool is_bytes;
};

static bool read_varint(struct span *s, uint64_t *ret_value)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64 && s->p < s->end; shift += 7) {
        uint8_t byte = (uint8_t)*s->p++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret_value = v;
            return true;
        }
    }
    return false;
}

static bool read_fixed(struct span *s, size_t size, uint64_t *ret_value)
{
    uint64_t v = 0;

    if ((size_t)(s->end - s->p) < size)
        return false;
    memcpy(&v, s->p, size);
    s->p += size;
    *ret_value = le64toh(v);
    return true;
}

/* The next field of a message that is not at its end. */
static bool read_field(struct span *s, struct field *ret_field)
{
    uint64_t tag;
    uint64_t v = 0;
    struct field f = {0};

    if (!read_varint(s, &tag) || tag >> 3 == 0 || tag >> 32)
        return false;
    f.number = (uint32_t)(tag >> 3);
    bool ok = false;
    switch (tag & 7) {
    case 0:
        ok = read_varint(s, &v);
        break;
    case 1:
        ok = read_fixed(s, 8, &v);
        break;
    case 2:
        ok = read_varint(s, &v) && v <= (uint64_t)(s->end - s->p);
        if (ok) {
            f.bytes = (struct span){s->p, s->p + v};
            f.is_bytes = true;
            s->p += v;
        }
        break;
    case 5:
        ok = read_fixed(s, 4, &v);
        break;
    default: /* groups: no such model has them */
        break;
    }
    f.value = v;
    *ret_field = f;
    return ok;
}

/* ---- the model's messages ---- */

/* Pieces that text may become; the others have names that no text matches. */
static bool in_text(enum piece_type type)
{
    return type == PIECE_NORMAL || type == PIECE_USER_DEFINED || type == PIECE_UNUSED;
}

static enum rl_rc add_piece(struct tokenizer *t, const struct piece *piece, struct rl_err *err)
{
    if (piece->len == 0 || piece->len > MAX_PIECE || memchr(piece->text, '\0', piece->len))
        return refuse(err, "a piece that is empty, too long or holds a NUL");
    if (!isfinite(piece->score))
        return refuse(err, "a score that is no number");
    if (t->count == MAX_PIECES)
        return refuse(err, "more than a million pieces");
    if (t->count == t->cap) {
        int32_t cap = t->cap ? t->cap * 2 : 1024;
        struct piece *grown = realloc(t->pieces, (size_t)cap * sizeof(*grown));
        if (!grown)
            return no_memory(err);
        t->pieces = grown;
        t->cap = cap;
    }
    if (piece->type == PIECE_UNKNOWN) {
        if (t->unknown >= 0)
            return refuse(err, "two unknown pieces");
        t->unknown = t->count;
    }
    if (piece->type == PIECE_NORMAL) {
        t->min_score = piece->score < t->min_score ? piece->score : t->min_score;
        t->max_score = piece->score > t->max_score ? piece->score : t->max_score;
    }
    t->user_defined |= piece->type == PIECE_USER_DEFINED;
    t->pieces[t->count++] = *piece;
    return RL_OK;
}

static enum rl_rc read_piece(struct tokenizer *t, struct span s, struct rl_err *err)
{
    struct piece piece = {.type = PIECE_NORMAL};
    struct field f;

    while (s.p < s.end) {
        if (!read_field(&s, &f))
            return refuse(err, "a broken piece");
        if (f.number == 1 && f.is_bytes) {
            if (f.bytes.end - f.bytes.p > MAX_PIECE)
                return refuse(err, "a piece that is too long");
            piece.text = f.bytes.p;
            piece.len = (uint32_t)(f.bytes.end - f.bytes.p);
        } else if (f.number == 2 && !f.is_bytes) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&piece.score, &bits, sizeof(bits));
        } else if (f.number == 3 && !f.is_bytes) {
            if (f.value < PIECE_NORMAL || f.value > PIECE_BYTE)
                return refuse(err, "a piece of an unknown type");
            piece.type = (enum piece_type)f.value;
        }
    }
    return add_piece(t, &piece, err);
}

static enum rl_rc read_trainer(struct tokenizer *t, struct span s, struct rl_err *err)
{
    enum { MODEL_TYPE = 3, SPACE_AS_SUFFIX = 24 };
    struct field f;

    while (s.p < s.end) {
        if (!read_field(&s, &f))
            return refuse(err, "a broken trainer_spec");
        if (f.number == MODEL_TYPE && f.value != 1)
            return refuse(err, "not a unigram model (BPE, words or characters)");
        if (f.number == SPACE_AS_SUFFIX)
            t->space_as_suffix = f.value != 0;
    }
    return RL_OK;
}

/* Four bytes of size, so many of double array, then the texts. */
static enum rl_rc read_map(struct tokenizer *t, struct span s, struct rl_err *err)
{
    uint64_t size = 0;

    free(t->map);
    t->map = NULL;
    t->map_count = 0;
    if (s.p == s.end)
        return RL_OK; /* no rules */
    if (!read_fixed(&s, 4, &size) || size % 4 || size >= (uint64_t)(s.end - s.p) ||
        s.end[-1] != '\0')
        return refuse(err, "a broken precompiled_charsmap");
    t->map_count = (size_t)size / 4;
    t->map = malloc(size ? (size_t)size : 1);
    if (!t->map)
        return no_memory(err);
    for (size_t i = 0; i < t->map_count; i++) {
        uint32_t unit;
        memcpy(&unit, s.p + 4 * i, sizeof(unit));
        t->map[i] = le32toh(unit);
    }
    t->replacements = s.p + size;
    t->replacements_len = (size_t)(s.end - t->replacements);
    return RL_OK;
}

static enum rl_rc read_normalizer(struct tokenizer *t, struct span s, struct rl_err *err)
{
    enum { MAP = 2, DUMMY_PREFIX = 3, REMOVE_EXTRA = 4, ESCAPE = 5 };
    struct field f;
    enum rl_rc rc = RL_OK;

    while (s.p < s.end && !rc) {
        if (!read_field(&s, &f))
            return refuse(err, "a broken normalizer_spec");
        if (f.number == MAP && f.is_bytes)
            rc = read_map(t, f.bytes, err);
        else if (f.number == DUMMY_PREFIX)
            t->dummy_prefix = f.value != 0;
        else if (f.number == REMOVE_EXTRA)
            t->remove_extra_space = f.value != 0;
        else if (f.number == ESCAPE)
            t->escape_space = f.value != 0;
    }
    return rc;
}

static enum rl_rc read_model(struct tokenizer *t, struct span s, struct rl_err *err)
{
    enum { PIECES = 1, TRAINER = 2, NORMALIZER = 3 };
    struct field f;
    enum rl_rc rc = RL_OK;

    while (s.p < s.end && !rc) {
        if (!read_field(&s, &f))
            return refuse(err, "not a SentencePiece model, or cut off");
        if (f.number == PIECES && f.is_bytes)
            rc = read_piece(t, f.bytes, err);
        else if (f.number == TRAINER && f.is_bytes)
            rc = read_trainer(t, f.bytes, err);
        else if (f.number == NORMALIZER && f.is_bytes)
            rc = read_normalizer(t, f.bytes, err);
    }
    if (rc)
        return rc;
    if (t->count < 2)
        return refuse(err, "fewer than two pieces");
    if (t->unknown < 0)
        return refuse(err, "no unknown piece");
    return RL_OK;
}

/* ---- the tree ---- */

/* A piece to be sorted, with its first eight bytes at hand: most comparisons need no more. */
struct key {
    uint64_t head; /* big-endian, NULs behind a short piece's end: no piece has one of its own */
    int32_t id;
};

static struct key key_of(const struct tokenizer *t, int32_t id)
{
    const struct piece *piece = &t->pieces[id];
    uint64_t head = 0;

    memcpy(&head, piece->text, piece->len < sizeof(head) ? piece->len : sizeof(head));
    return (struct key){.head = be64toh(head), .id = id};
}

static int compare_keys(const void *left, const void *right, void *user)
{
    const struct piece *pieces = user;
    const struct key *x = left;
    const struct key *y = right;

    if (x->head != y->head)
        return x->head < y->head ? -1 : 1;
    const struct piece *a = &pieces[x->id];
    const struct piece *b = &pieces[y->id];
    int order = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

/* The pieces that may occur in text, in the order of their bytes; each once. */
static enum rl_rc sort_pieces(const struct tokenizer *t, struct key *order, uint32_t *ret_count,
                              size_t *ret_nodes, struct rl_err *err)
{
    uint32_t n = 0;
    size_t nodes = 1;

    for (int32_t i = 0; i < t->count; i++) {
        if (in_text(t->pieces[i].type))
            order[n++] = key_of(t, i);
    }
    if (n)
        qsort_r(order, n, sizeof(*order), compare_keys, t->pieces);
    for (uint32_t i = 0; i < n; i++) {
        const struct piece *a = &t->pieces[order[i].id];
        uint32_t shared = 0;

        if (i) {
            const struct piece *b = &t->pieces[order[i - 1].id];
            while (shared < a->len && shared < b->len && a->text[shared] == b->text[shared])
                shared++;
            if (shared == a->len)
                return refuse(err, "the same piece twice");
        }
        nodes += a->len - shared;
    }
    *ret_count = n;
    *ret_nodes = nodes;
    return RL_OK;
}

/* The pieces below a node: order[lo..hi), which agree in their first `depth` bytes. */
struct range {
    uint32_t lo, hi, depth;
};

/* Give node `at` its id and its children; the children's ranges go behind all others. */
static void expand(struct tokenizer *t, const struct key *order, struct range *ranges, size_t at,
                   size_t *used)
{
    struct range r = ranges[at];
    struct piece_node *node = &t->nodes[at];

    node->id = -1;
    node->first = (uint32_t)*used;
    if (r.lo < r.hi && t->pieces[order[r.lo].id].len == r.depth)
        node->id = order[r.lo++].id;
    while (r.lo < r.hi) {
        uint8_t byte = (uint8_t)t->pieces[order[r.lo].id].text[r.depth];
        uint32_t end = r.lo + 1;

        while (end < r.hi && (uint8_t)t->pieces[order[end].id].text[r.depth] == byte)
            end++;
        ranges[*used] = (struct range){r.lo, end, r.depth + 1};
        t->nodes[(*used)++].byte = byte;
        node->count++;
        r.lo = end;
    }
}

static enum rl_rc build_tree(struct tokenizer *t, struct rl_err *err)
{
    AUTO_FREE struct key *order = malloc((size_t)t->count * sizeof(*order));
    AUTO_FREE struct range *ranges = NULL;
    uint32_t count = 0;
    size_t nodes = 0;
    size_t used = 1;

    if (!order)
        return no_memory(err);
    enum rl_rc rc = sort_pieces(t, order, &count, &nodes, err);
    if (rc)
        return rc;
    t->nodes = calloc(nodes, sizeof(*t->nodes));
    ranges = malloc(nodes * sizeof(*ranges));
    if (!t->nodes || !ranges)
        return no_memory(err);
    ranges[0] = (struct range){0, count, 0};
    for (size_t at = 0; at < used; at++)
        expand(t, order, ranges, at, &used);
    return RL_OK;
}

const struct piece_node *piece_step(const struct tokenizer *t, const struct piece_node *node,
                                    uint8_t byte)
{
    const struct piece_node *children = t->nodes + node->first;
    size_t lo = 0;
    size_t hi = node->count;

    while (lo < hi) {
        size_t middle = (lo + hi) / 2;
        if (children[middle].byte < byte)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < node->count && children[lo].byte == byte ? &children[lo] : NULL;
}

/* ---- what others call ---- */

enum rl_rc tokenizer_new(const void *bytes, size_t len, struct tokenizer **ret_tokenizer,
                         struct rl_err *err)
{
    struct tokenizer *t;

    if (len > MAX_MODEL)
        return refuse(err, "a model of more than 16 MiB");
    t = malloc(sizeof(*t));
    if (!t)
        return no_memory(err);
    /* the limits are where SentencePiece starts from: its largest score is never below FLT_MIN */
    *t = (struct tokenizer){.unknown = -1,
                            .min_score = 0x1.fffffep127F,
                            .max_score = 0x1p-126F,
                            .dummy_prefix = true,
                            .remove_extra_space = true,
                            .escape_space = true};
    t->bytes = malloc(len ? len : 1);
    enum rl_rc rc = t->bytes ? RL_OK : no_memory(err);
    if (!rc && len) {
        memcpy(t->bytes, bytes, len);
        rc = read_model(t, (struct span){t->bytes, t->bytes + len}, err);
    } else if (!rc) {
        rc = refuse(err, "an empty model");
    }
    if (!rc)
        rc = build_tree(t, err);
    if (rc) {
        tokenizer_free(t);
        return rc;
    }
    *ret_tokenizer = t;
    return RL_OK;
}

void tokenizer_free(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    free(tokenizer->bytes);
    free(tokenizer->pieces);
    free(tokenizer->nodes);
    free(tokenizer->map);
    free(tokenizer);
}

int32_t tokenizer_vocab(const struct tokenizer *tokenizer)
{
    return tokenizer->count;
}
