/* The text encoder of Wan: umT5, token ids to one row of features per token. Only real tokens go
 * in; the rows of padding are zeros by definition and the transformer knows how to stand in for
 * them. One thread. Source: Chung et al. 2023 (umT5); Wan 2.1, wan/modules/t5.py. */
#ifndef RL_ENGINE_WAN_TEXT_H
#define RL_ENGINE_WAN_TEXT_H

#include "engine/wan/model.h"
#include "engine/wan/ops.h"
#include "engine/wan/watch.h"

struct text;

/* resident: all layers stay on the device; otherwise each is there while it is needed only (the
 * published encoder has 11 GB, of which a layer is 400 MB). Borrows model. Beats before each
 * tensor; watch may be NULL. Returns new. errors: RL_CANCELED and those of params_ok. */
enum rl_rc text_new(const struct ops *ops, struct ops_ctx *ctx, const struct wan_model *model,
                    bool resident, const struct watch *watch, struct text **ret_text,
                    struct rl_err *err) RL_NODISCARD;
void text_free(struct text *text); /* NULL allowed */

/* ids [n], n >= 1, none of padding. y act [n, dim] on the device. Beats once per layer.
 * errors: RL_CANCELED, RL_NO_MEMORY, RL_OUT_OF_GPU_MEMORY, RL_ENGINE_ERROR. */
enum rl_rc text_encode(struct text *text, const int32_t *ids, int n, const struct watch *watch,
                       void *y, struct rl_err *err) RL_NODISCARD;

/* The bucket of a key's position relative to the query's (key − query), of `count` in all: half for
 * each sign, exact up to a quarter of them, then logarithmic up to 128. */
int text_bucket(int distance, int count);

#endif
