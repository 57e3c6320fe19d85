/* The tensors of a model, in one file or several. Owns the files' mappings (shard.c) and one table
 * of all tensors, sorted by name; everything is checked at open, nothing later. Read-only after
 * open: any thread. Files are replaced by renaming, never written in place: a file that shrinks
 * while it is mapped ends the process (SIGBUS). */
#include "engine/wan/shard.h"

#include "base/fs.h"
#include "engine/wan/scan.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_SHARDS 256

static int compare_name(const void *left, const void *right)
{
    const struct tensor *a = left;
    const struct tensor *b = right;

    return strcmp(a->name, b->name);
}

/* The shard whose mapping holds the tensor. */
static const struct shard *shard_of(const struct safetensors *file, const struct tensor *tensor)
{
    const char *p = tensor->data;

    for (size_t i = 0; i < file->shard_count; i++) {
        const struct shard *shard = &file->shards[i];
        if (p >= shard->map && p <= shard->map + shard->size)
            return shard;
    }
    return &file->shards[0];
}

/* Sort by name and refuse repeated ones. */
static enum rl_rc sort_names(struct safetensors *file, struct rl_err *err)
{
    if (file->count)
        qsort(file->tensors, file->count, sizeof(*file->tensors), compare_name);
    for (size_t i = 1; i < file->count; i++) {
        const struct tensor *a = &file->tensors[i];
        if (strcmp(a[-1].name, a->name) == 0)
            return shard_fail(err, shard_of(file, a)->name, a->name, "is there twice");
    }
    return RL_OK;
}

/* A name that stays in the index's own folder, and is fit to be shown. */
static bool plain_name(const char *name)
{
    for (const char *p = name; *p; p++) {
        if (*p <= ' ' || *p > '~' || *p == '/')
            return false;
    }
    return name[0] != '.' && strlen(name) <= 200 && shard_ends_with(name, ".safetensors");
}

/* The shard of that name, opened now if it is new. */
static enum rl_rc open_shard(struct safetensors *file, const char *folder, int folder_len,
                             const char *name, struct rl_err *err)
{
    char path[4096];

    for (size_t i = 0; i < file->shard_count; i++) {
        if (strcmp(file->shards[i].name, name) == 0)
            return RL_OK;
    }
    if (file->shard_count == MAX_SHARDS)
        return rl_fail(err, RL_INVALID_FIELD, "an index of more than 256 files");
    int n = snprintf(path, sizeof(path), "%.*s%s", folder_len, folder, name);
    if (n < 0 || (size_t)n >= sizeof(path))
        return rl_fail(err, RL_INVALID_FIELD, "path of %.80s too long", name);

    struct shard *shard = &file->shards[file->shard_count++];
    return shard_open(file, shard, path, err);
}

/* `weight_map`: opens every file, and keeps which tensor should be where in `pairs`. */
static enum rl_rc read_weight_map(struct scan *scan, struct safetensors *file, const char *path,
                                  struct pair **pairs, size_t *ret_count)
{
    const char *name = shard_name(path);
    int folder_len = (int)(name - path);
    size_t count = 0;
    size_t cap = 0;
    struct pair pair = {0};
    enum rl_rc rc = scan_enter(scan, '{');

    while (!rc) {
        rc = scan_member(scan, &pair.key);
        if (rc || !pair.key)
            break;
        rc = scan_string(scan, &pair.value);
        if (rc)
            break;
        if (!plain_name(pair.value))
            return rl_fail(scan->err, RL_INVALID_FIELD,
                           "%.80s names a file that is no .safetensors of its folder", name);
        if (count == MAX_TENSORS)
            return rl_fail(scan->err, RL_INVALID_FIELD, "%.80s: more than 65536 tensors", name);
        rc = open_shard(file, path, folder_len, pair.value, scan->err);
        if (rc)
            break;
        struct pair *grown = shard_grow(*pairs, count, &cap, sizeof(pair));
        if (!grown)
            return rl_fail(scan->err, RL_NO_MEMORY, "out of memory");
        *pairs = grown;
        (*pairs)[count++] = pair;
    }
    *ret_count = count;
    return rc;
}

/* The index file itself: exactly one weight_map, anything else passed over. */
static enum rl_rc read_index(struct scan *scan, struct safetensors *file, const char *path,
                             struct pair **pairs, size_t *ret_count)
{
    const char *member = NULL;
    bool seen = false;
    enum rl_rc rc = scan_enter(scan, '{');

    while (!rc) {
        rc = scan_member(scan, &member);
        if (rc || !member)
            break;
        if (strcmp(member, "weight_map") == 0 && !seen) {
            seen = true;
            rc = read_weight_map(scan, file, path, pairs, ret_count);
        } else {
            rc = scan_skip(scan);
        }
    }
    if (!rc)
        rc = scan_end(scan);
    if (!rc && !file->shard_count)
        rc = rl_fail(scan->err, RL_INVALID_FIELD, "%.80s: no weight_map", shard_name(path));
    return rc;
}

static enum rl_rc open_index(struct safetensors *file, const char *path, struct rl_err *err)
{
    AUTO_FREE char *text = NULL;
    size_t len = 0;
    size_t count = 0;
    enum rl_rc rc = rl_fs_read(path, MAX_HEADER, &text, &len, err);

    if (rc)
        return rc;
    file->index_strings = malloc(len + 1);
    file->shards = calloc(MAX_SHARDS, sizeof(*file->shards));
    if (!file->index_strings || !file->shards)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");

    AUTO_FREE struct pair *pairs = NULL;
    struct scan scan = {.file = shard_name(path),
                        .text = text,
                        .len = len,
                        .strings = file->index_strings,
                        .err = err};
    rc = read_index(&scan, file, path, &pairs, &count);
    if (!rc)
        rc = sort_names(file, err);
    for (size_t i = 0; !rc && i < count; i++) {
        const struct tensor *tensor = safetensors_find(file, pairs[i].key);
        if (!tensor || strcmp(shard_of(file, tensor)->name, pairs[i].value) != 0)
            rc = shard_fail(err, shard_name(path), pairs[i].key, "is not in the file it names");
    }
    return rc;
}

/* ---- what others call ---- */

/* The one shard of `file`: from memory, or by path. */
static enum rl_rc open_one(struct safetensors *file, const struct safetensors_bytes *bytes,
                           const char *path, struct rl_err *err)
{
    file->shards = calloc(1, sizeof(*file->shards));
    if (!file->shards)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    file->shard_count = 1;
    enum rl_rc rc = bytes ? shard_open_bytes(file, file->shards, bytes, err)
                          : shard_open(file, file->shards, path, err);
    return rc ? rc : sort_names(file, err);
}

static enum rl_rc open_any(const struct safetensors_bytes *bytes, const char *path,
                           struct safetensors **ret_file, struct rl_err *err)
{
    struct safetensors *file = calloc(1, sizeof(*file));
    enum rl_rc rc;

    if (!file)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    if (path && shard_ends_with(path, ".json"))
        rc = open_index(file, path, err);
    else
        rc = open_one(file, bytes, path, err);
    if (rc) {
        safetensors_close(file);
        return rc;
    }
    *ret_file = file;
    return RL_OK;
}

enum rl_rc safetensors_open(const char *path, struct safetensors **ret_file, struct rl_err *err)
{
    return open_any(NULL, path, ret_file, err);
}

enum rl_rc safetensors_open_bytes(const struct safetensors_bytes *bytes,
                                  struct safetensors **ret_file, struct rl_err *err)
{
    return open_any(bytes, NULL, ret_file, err);
}

void safetensors_close(struct safetensors *file)
{
    if (!file)
        return;
    for (size_t i = 0; i < file->shard_count; i++)
        shard_close(&file->shards[i]);
    free(file->shards);
    free(file->tensors);
    free(file->metadata);
    free(file->index_strings);
    free(file);
}

size_t safetensors_files(const struct safetensors *file)
{
    return file->shard_count;
}

const char *safetensors_file(const struct safetensors *file, size_t i)
{
    return file->shards[i].name;
}

size_t safetensors_count(const struct safetensors *file)
{
    return file->count;
}

const struct tensor *safetensors_at(const struct safetensors *file, size_t i)
{
    return &file->tensors[i];
}

const struct tensor *safetensors_find(const struct safetensors *file, const char *name)
{
    struct tensor key = {.name = name};

    if (!file->count)
        return NULL;
    return bsearch(&key, file->tensors, file->count, sizeof(key), compare_name);
}

const char *safetensors_metadata(const struct safetensors *file, const char *key)
{
    for (size_t i = 0; i < file->metadata_count; i++) {
        if (strcmp(file->metadata[i].key, key) == 0)
            return file->metadata[i].value;
    }
    return NULL;
}

void safetensors_want(const struct tensor *tensor, bool soon)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)tensor->data;
    uintptr_t to = from + tensor->bytes;

    /* whole pages: all that it touches when wanted, only its own when not */
    from = soon ? from / page * page : (from + page - 1) / page * page;
    to = soon ? to : to / page * page;
    if (from < to) /* advice only: nothing is lost when it is not taken */
        (void)madvise((void *)from, to - from, soon ? MADV_WILLNEED : MADV_DONTNEED);
}
