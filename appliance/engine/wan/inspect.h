/* What is in a model's files, number by number: what a check of a model that somebody else has can
 * tell us. No state; any thread. */
#ifndef RL_ENGINE_WAN_INSPECT_H
#define RL_ENGINE_WAN_INSPECT_H

#include "engine/wan/model.h"

/* The numbers of one tensor as they lie in the file, without the scale of F8. */
struct inspected {
    const struct tensor *tensor;
    int64_t count, zeros, nans, infinities;
    double min, max, mean, rms; /* of the finite ones */
};

struct inspector {
    void *user;
    /* Called for every numeric tensor, in the order of names. false: stop, with RL_CANCELED. */
    bool (*each)(void *user, const struct inspected *found);
    /* So many bytes have been read since the last call; false: as above. May be NULL. */
    bool (*read)(void *user, size_t bytes);
};

/* Look at every number of a part; reads the whole file once, keeps none of it in memory.
 * errors: RL_CANCELED, RL_NO_MEMORY. */
enum rl_rc wan_model_inspect(const struct wan_model *model, enum wan_part part,
                             const struct inspector *inspector, struct rl_err *err) RL_NODISCARD;
/* How many tensors a part's file has of this dtype (as in the file: "BF16"), and their bytes. */
size_t wan_model_dtype(const struct wan_model *model, enum wan_part part, const char *dtype,
                       int64_t *ret_bytes);
/* Which part of a model this file holds. errors: RL_INVALID_FIELD, and as safetensors_open. */
enum rl_rc wan_file_part(const char *path, enum wan_part *ret_part, struct rl_err *err)
    RL_NODISCARD;

#endif
