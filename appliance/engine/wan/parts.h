/* What model.c (opening, lookups), derive.c (the configuration), needs.c (the tensors that it makes
 * necessary) and inspect.c (what is in them) share. Nobody else includes this. */
#ifndef RL_ENGINE_WAN_PARTS_H
#define RL_ENGINE_WAN_PARTS_H

#include "engine/wan/names.h"

struct part {
    struct safetensors *file; /* owned */
    char *label;              /* owned: the file's own name, for messages */
    struct names names;
    bool scaled; /* the file says that its F8 matrices have scales */
    int64_t parameters;
    bool *used; /* owned, during the opening: per tensor of the file, a network asks for it */
};

struct wan_model {
    struct part parts[WAN_PARTS];
    char *tokenizer; /* owned path, NULL: in the text encoder's file */
    struct wan_config config;
};

/* "<file>: tensor <the file's name for it>: <why>", RL_INVALID_FIELD. */
enum rl_rc part_fail(const struct part *part, const char *name, const char *why,
                     struct rl_err *err);
/* By published name; NULL: no such tensor. */
const struct tensor *part_find(const struct part *part, const char *name);

/* Fill model->config from the shapes and the metadata of its parts. */
enum rl_rc derive_config(struct wan_model *model, struct rl_err *err) RL_NODISCARD;

enum need_kind {
    NEED_MATRIX, /* multiplied by: in the operators' own form */
    NEED_F32,    /* kept in f32 */
    NEED_TABLE   /* rows are read from the file */
};

/* A tensor that a network asks for. One dimension: any shape of so many elements will do. */
struct need {
    const char *name; /* published; valid during the call only */
    enum need_kind kind;
    int layer; /* -1: of none */
    int ndim;
    int64_t dims[TENSOR_DIMS];
};

struct needs {
    void *user;
    enum rl_rc (*each)(void *user, const struct need *need, struct rl_err *err);
};

/* Call each for every tensor of the part; its first error ends it and is returned. */
enum rl_rc needs_of(const struct wan_config *config, enum wan_part part, const struct needs *needs,
                    struct rl_err *err);

#endif
