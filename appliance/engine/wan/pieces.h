/* A SentencePiece model in memory: its pieces, the tree to look them up by and its normaliser's
 * tables. Internal to the tokenizer: pieces.c fills it, tokenizer.c works with it. */
#ifndef RL_ENGINE_WAN_PIECES_H
#define RL_ENGINE_WAN_PIECES_H

#include "engine/wan/tokenizer.h"

struct rl_buf;

/* ModelProto.SentencePiece.Type */
enum piece_type {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN,
    PIECE_CONTROL,
    PIECE_USER_DEFINED,
    PIECE_UNUSED,
    PIECE_BYTE
};

struct piece {
    const char *text; /* in the model's bytes; not terminated */
    uint32_t len;
    float score;
    enum piece_type type;
};

/* A node of the tree of bytes: children lie together, sorted by byte. */
struct piece_node {
    uint32_t first; /* child */
    uint16_t count; /* of children */
    uint8_t byte;   /* that leads here */
    int32_t id;     /* of the piece that ends here, -1: none */
};

struct tokenizer {
    char *bytes; /* owned: the model */
    struct piece *pieces;
    int32_t count, cap;
    int32_t unknown;   /* id */
    bool user_defined; /* there are such pieces */
    float min_score, max_score;
    struct piece_node *nodes; /* owned; [0] is the root */
    /* normaliser */
    uint32_t *map; /* owned: a double array of `map_count` units */
    size_t map_count;
    const char *replacements; /* in bytes: texts that end with NUL */
    size_t replacements_len;
    bool dummy_prefix, remove_extra_space, escape_space, space_as_suffix;
};

/* The child that `byte` leads to; NULL: none. */
const struct piece_node *piece_step(const struct tokenizer *t, const struct piece_node *node,
                                    uint8_t byte);
/* Appends the normalised text. */
void tokenizer_normalize(const struct tokenizer *t, const char *s, size_t len, struct rl_buf *out);

#endif
