/* Reads tensors in pieces of the mapping and lets go of each when it is done, so that a file larger
 * than the memory passes through. No state; any thread. */
#include "engine/wan/inspect.h"

#include "engine/wan/parts.h"
#include "engine/wan/shard.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define PIECE 65536 /* numbers at a time: 256 KiB, which stays in a core's cache */

static void add_numbers(struct inspected *f, const float *values, int64_t n, double *sum,
                        double *squares)
{
    for (int64_t i = 0; i < n; i++) {
        double v = (double)values[i];
        if (isnan(v)) {
            f->nans++;
        } else if (isinf(v)) {
            f->infinities++;
        } else {
            f->zeros += v == 0;
            f->min = v < f->min ? v : f->min;
            f->max = v > f->max ? v : f->max;
            *sum += v;
            *squares += v * v;
        }
    }
}

static int64_t element_bytes(enum ops_type type)
{
    return type == OPS_F32 ? 4 : type == OPS_F8_E4M3 ? 1 : 2;
}

/* false: the inspector wants no more. */
static bool inspect_tensor(const struct tensor *t, const struct inspector *inspector, float *piece)
{
    struct inspected f = {.tensor = t, .count = 1, .min = DBL_MAX, .max = -DBL_MAX};
    int64_t size = element_bytes(t->type);
    double sum = 0, squares = 0;

    for (int i = 0; i < t->ndim; i++)
        f.count *= t->dims[i];
    for (int64_t at = 0; at < f.count; at += PIECE) {
        int64_t n = f.count - at < PIECE ? f.count - at : PIECE;
        wan_numbers(t->type, (const char *)t->data + at * size, n, 1, piece);
        add_numbers(&f, piece, n, &sum, &squares);
        if (inspector->read && !inspector->read(inspector->user, (size_t)(n * size)))
            return false;
    }
    safetensors_want(t, false);
    int64_t finite = f.count - f.nans - f.infinities;
    f.mean = finite ? sum / (double)finite : 0;
    f.rms = finite ? sqrt(squares / (double)finite) : 0;
    if (!finite)
        f.min = f.max = 0;
    return inspector->each(inspector->user, &f);
}

enum rl_rc wan_model_inspect(const struct wan_model *model, enum wan_part part,
                             const struct inspector *inspector, struct rl_err *err)
{
    const struct safetensors *file = model->parts[part].file;
    AUTO_FREE float *piece = malloc(PIECE * sizeof(*piece));

    if (!piece)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct tensor *t = safetensors_at(file, i);
        if (t->numeric && !inspect_tensor(t, inspector, piece))
            return rl_fail(err, RL_CANCELED, "stopped");
    }
    return RL_OK;
}

size_t wan_model_dtype(const struct wan_model *model, enum wan_part part, const char *dtype,
                       int64_t *ret_bytes)
{
    const struct safetensors *file = model->parts[part].file;
    size_t n = 0;

    *ret_bytes = 0;
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct tensor *t = safetensors_at(file, i);
        if (strcmp(t->dtype, dtype) == 0) {
            n++;
            *ret_bytes += (int64_t)t->bytes;
        }
    }
    return n;
}

enum rl_rc wan_file_part(const char *path, enum wan_part *ret_part, struct rl_err *err)
{
    struct safetensors *file = NULL;
    struct names names;
    enum rl_rc rc = safetensors_open(path, &file, err);

    if (rc)
        return rc;
    rc = RL_INVALID_FIELD;
    for (int i = 0; i < WAN_PARTS && rc; i++)
        if (names_detect(file, (enum wan_part)i, &names)) {
            *ret_part = (enum wan_part)i;
            rc = RL_OK;
        }
    safetensors_close(file);
    return rc ? rl_fail(err, rc, "%.120s holds no part of a Wan model that is known here",
                        shard_name(path))
              : RL_OK;
}
