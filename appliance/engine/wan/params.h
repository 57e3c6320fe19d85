/* The parameters of one network on their way from a model's files to a device. Errors stick: after
 * the first one every call gives NULL, and params_ok tells it, so a network asks for all it needs
 * and looks once. One thread. */
#ifndef RL_ENGINE_WAN_PARAMS_H
#define RL_ENGINE_WAN_PARAMS_H

#include "engine/wan/model.h"
#include "engine/wan/ops.h"
#include "engine/wan/watch.h"

struct params; /* owns what it gave out */

/* A matrix, or some rows of it: rows `first` … `first + rows - 1` of `of` rows (0: all are
 * wanted). taps > 1: a convolution, [rows, cols, taps] in the file, stored [rows, taps, cols]. */
struct params_shape {
    int64_t rows, cols, taps, first, of;
};

/* part: which of the model's networks. Borrows model; NULL is enough for params_room. watch: beats
 * before each tensor and may stop the loading; borrowed until params_ok; may be NULL.
 * Returns new; NULL when memory is short. */
struct params *params_new(const struct ops *ops, struct ops_ctx *ctx, const struct wan_model *model,
                          enum wan_part part, const struct watch *watch);
void params_free(struct params *params); /* NULL allowed; all it gave out goes with it */

/* Memory of no tensor, for a run's buffers; zeroed when asked. */
void *params_room(struct params *params, size_t bytes, bool zero);
/* name: a format, as of printf, of a name in the original layout. */
const struct ops_weight *params_matrix(struct params *params, const struct params_shape *shape,
                                       const char *name, ...) RL_PRINTF(3, 4);
/* A tensor of n numbers, f32 on the device. */
float *params_vector(struct params *params, int64_t n, const char *name, ...) RL_PRINTF(3, 4);
/* n numbers from `first` on of a tensor of `of`. */
struct params_range {
    int64_t first, n, of;
};
float *params_part(struct params *params, const struct params_range *range, const char *name, ...)
    RL_PRINTF(3, 4);
/* As params_vector, but in host memory. */
float *params_host(struct params *params, int64_t n, const char *name, ...) RL_PRINTF(3, 4);
/* Ends the watching: all that was wanted has been asked for. errors: RL_NO_MEMORY,
 * RL_OUT_OF_GPU_MEMORY, RL_INVALID_FIELD (a tensor is missing or not of that size), RL_CANCELED
 * (the watch said stop). */
enum rl_rc params_ok(struct params *params, struct rl_err *err) RL_NODISCARD;

#endif
