/* Weights in safetensors files, mapped and checked: the header's size and JSON, every type, shape
 * and offset, no overlaps, nothing beyond the file. One file, or the shards that an
 * model.safetensors.index.json names. Read-only after open; any thread. */
#ifndef RL_ENGINE_WAN_SAFETENSORS_H
#define RL_ENGINE_WAN_SAFETENSORS_H

#include "engine/wan/ops.h"

#define TENSOR_DIMS 5

struct safetensors;

struct tensor {
    const char *name;  /* as in the file */
    const char *dtype; /* as in the file: "BF16", "U8", … */
    bool numeric;      /* `type` holds */
    enum ops_type type;
    int ndim;
    int64_t dims[TENSOR_DIMS]; /* the first is the slowest */
    const void *data;          /* borrowed until close; any alignment */
    size_t bytes;
};

/* path: a .safetensors file, or the .index.json of several. errors: RL_NOT_FOUND, RL_INVALID_FIELD
 * (what is wrong with the file, with the tensor's name; a .pth or .ckpt is refused with the
 * advice to take the safetensors), RL_IO_ERROR. Returns new. */
enum rl_rc safetensors_open(const char *path, struct safetensors **ret_file, struct rl_err *err)
    RL_NODISCARD;
/* A file that is in memory (part of this program, say). */
struct safetensors_bytes {
    const char *name; /* for messages */
    const void *data; /* borrowed until close; any alignment */
    size_t len;
};
/* errors: RL_INVALID_FIELD, RL_NO_MEMORY. Returns new. */
enum rl_rc safetensors_open_bytes(const struct safetensors_bytes *bytes,
                                  struct safetensors **ret_file, struct rl_err *err) RL_NODISCARD;
void safetensors_close(struct safetensors *file); /* NULL allowed */
/* The files that it is made of, by their own names: one, or the shards of an index. */
size_t safetensors_files(const struct safetensors *file);
const char *safetensors_file(const struct safetensors *file, size_t i);
size_t safetensors_count(const struct safetensors *file);
const struct tensor *safetensors_at(const struct safetensors *file, size_t i); /* by name, sorted */
const struct tensor *safetensors_find(const struct safetensors *file, const char *name); /* NULL */
/* A string of __metadata__; NULL when absent. */
const char *safetensors_metadata(const struct safetensors *file, const char *key);
/* Tell the kernel that these bytes are (not) needed soon: streamed text encoders. */
void safetensors_want(const struct tensor *tensor, bool soon);

#endif
