/* What safetensors.c (the table of all tensors, indexes of several files) and shard.c (one file)
 * share; model.c and folder.c use its words for messages and names. Nobody else includes this. */
#ifndef RL_ENGINE_WAN_SHARD_H
#define RL_ENGINE_WAN_SHARD_H

#include "engine/wan/safetensors.h"

#define MAX_HEADER  100000000 /* bytes, as the reference reader has it */
#define MAX_TENSORS 65536     /* of one model; Wan 14B has 1,100 */

struct shard {
    char *name;      /* owned: the file's own, without folders */
    const char *map; /* owned mapping, or borrowed memory */
    bool borrowed;
    size_t size;
    char *strings; /* owned: the header's strings */
};

struct pair {
    const char *key, *value; /* borrowed from the strings of a header or index */
};

struct safetensors {
    struct shard *shards; /* owned, as are the other two */
    size_t shard_count;
    struct tensor *tensors; /* by name */
    size_t count, cap;
    struct pair *metadata;
    size_t metadata_count, metadata_cap;
    char *index_strings; /* owned: of an index file, NULL without */
};

/* Map the file, check it whole, and append its tensors to the table and its metadata. A shard that
 * failed is freed as one that did not. errors: as safetensors_open. */
enum rl_rc shard_open(struct safetensors *file, struct shard *shard, const char *path,
                      struct rl_err *err) RL_NODISCARD;
/* The same for a file that is in memory, borrowed until shard_close. */
enum rl_rc shard_open_bytes(struct safetensors *file, struct shard *shard,
                            const struct safetensors_bytes *bytes, struct rl_err *err) RL_NODISCARD;
void shard_close(struct shard *shard);

/* "<file>: tensor <name>: <why>". Names come from the file: cut, and ASCII only. */
enum rl_rc shard_fail(struct rl_err *err, const char *file, const char *name, const char *why);
/* The array of `count`, with room for one more; NULL (and the array as it was) without memory. */
void *shard_grow(void *array, size_t count, size_t *cap, size_t size);
/* The last part of a path. */
const char *shard_name(const char *path);
bool shard_ends_with(const char *text, const char *end);

#endif
