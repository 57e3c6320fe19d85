/* One safetensors file: mapped, its header read, every bound checked. A file is eight bytes of
 * header length (little-endian), the header (JSON) and the data; the tensors must cover the data
 * without gaps or overlaps, as the format demands, so that a cut download and trailing bytes are
 * both found. Any thread. Source: the format's description (huggingface/safetensors, README). */
#include "engine/wan/shard.h"

#include "base/fs.h"
#include "engine/wan/scan.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_METADATA 1024

static const struct dtype {
    const char *name;
    size_t bytes;
    bool numeric;
    enum ops_type type;
} dtypes[] = {
    {"F32", 4, true, OPS_F32},         {"F16", 2, true, OPS_F16},      {"BF16", 2, true, OPS_BF16},
    {"F8_E4M3", 1, true, OPS_F8_E4M3}, {"F8_E5M2", 1, false, OPS_F32}, {"F64", 8, false, OPS_F32},
    {"I64", 8, false, OPS_F32},        {"U64", 8, false, OPS_F32},     {"I32", 4, false, OPS_F32},
    {"U32", 4, false, OPS_F32},        {"I16", 2, false, OPS_F32},     {"U16", 2, false, OPS_F32},
    {"I8", 1, false, OPS_F32},         {"U8", 1, false, OPS_F32},      {"BOOL", 1, false, OPS_F32},
};

const char *shard_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool shard_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text);
    size_t m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

enum rl_rc shard_fail(struct rl_err *err, const char *file, const char *name, const char *why)
{
    char shown[100];
    size_t n = 0;

    for (; name[n] && n + 1 < sizeof(shown); n++)
        shown[n] = name[n] >= ' ' && name[n] <= '~' ? name[n] : '?';
    shown[n] = '\0';
    return rl_fail(err, RL_INVALID_FIELD, "%.60s: tensor %s: %s", file, shown, why);
}

static enum rl_rc fail_file(struct rl_err *err, const struct shard *shard, const char *why)
{
    return rl_fail(err, RL_INVALID_FIELD, "%.80s: %s", shard->name, why);
}

void *shard_grow(void *array, size_t count, size_t *cap, size_t size)
{
    if (count < *cap)
        return array;
    size_t bigger = *cap ? *cap * 2 : 64;
    void *grown = realloc(array, bigger * size);
    if (grown)
        *cap = bigger;
    return grown;
}

/* ---- files that are something else ---- */

/* Formats that hold programs are never read: whoever loads a pickle runs it. */
static enum rl_rc refuse_pickle(const char *name, struct rl_err *err)
{
    const char *instead = strstr(name, "t5")        ? "umt5_xxl_fp16.safetensors"
                          : strcasestr(name, "vae") ? "wan_2.1_vae.safetensors"
                                                    : "the .safetensors file of the same model";

    return rl_fail(err, RL_INVALID_FIELD,
                   "%.80s is a Python pickle, which can run code and is never loaded: take %s",
                   name, instead);
}

static enum rl_rc refuse_by_name(const char *name, struct rl_err *err)
{
    static const char *const pickles[] = {".pth", ".pt", ".ckpt", ".bin", ".pkl"};

    for (size_t i = 0; i < RL_ARRAY_LEN(pickles); i++) {
        if (shard_ends_with(name, pickles[i]))
            return refuse_pickle(name, err);
    }
    return RL_OK;
}

/* The first bytes of files that people take for weights. */
static enum rl_rc refuse_by_content(const struct shard *shard, struct rl_err *err)
{
    static const char lfs[] = "version https://git-lfs";

    if (shard->size >= 4 && memcmp(shard->map, "GGUF", 4) == 0)
        return fail_file(err, shard, "is a GGUF file; only safetensors are read");
    if (shard->size >= 4 && memcmp(shard->map, "PK\3\4", 4) == 0)
        return refuse_pickle(shard->name, err);
    if (shard->size >= sizeof(lfs) && memcmp(shard->map, lfs, sizeof(lfs) - 1) == 0)
        return fail_file(err, shard,
                         "is a Git LFS pointer, not the weights: fetch the file itself");
    return RL_OK;
}

/* ---- one file ---- */

/* Map a regular file of at least one byte. */
static enum rl_rc map_file(const char *path, struct shard *shard, struct rl_err *err)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    char what[192];

    (void)snprintf(what, sizeof(what), "open %s", path); /* a long path may be cut */
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return rl_fail(err, RL_NOT_FOUND, "no file %s", path);
    if (fd < 0 || fstat(fd, &st) != 0)
        return rl_fail_errno(err, what, errno);
    shard->name = rl_strdup(shard_name(path));
    if (!shard->name)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    enum rl_rc rc = refuse_by_name(shard->name, err);
    if (rc)
        return rc;
    if (!S_ISREG(st.st_mode))
        return fail_file(err, shard, "is no regular file");
    if (st.st_size < 8)
        return fail_file(err, shard, "is too short for a safetensors file");

    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return rl_fail_errno(err, what, errno);
    shard->map = map;
    shard->size = (size_t)st.st_size;
    return refuse_by_content(shard, err);
}

/* A tensor's entry as it stands in the header. */
struct entry {
    const char *dtype;
    bool has_shape, has_offsets;
    int64_t begin, end; /* in the data */
};

static enum rl_rc read_shape(struct scan *scan, const struct shard *shard, struct tensor *tensor)
{
    bool more = true;
    enum rl_rc rc = scan_enter(scan, '[');

    tensor->ndim = 0;
    while (!rc) {
        int64_t dim = 0;

        rc = scan_element(scan, &more);
        if (rc || !more)
            break;
        rc = scan_whole(scan, &dim);
        if (rc)
            break;
        if (tensor->ndim == TENSOR_DIMS)
            return shard_fail(scan->err, shard->name, tensor->name, "more than 5 dimensions");
        tensor->dims[tensor->ndim++] = dim;
    }
    return rc;
}

static enum rl_rc read_offsets(struct scan *scan, const struct shard *shard, const char *name,
                               struct entry *entry)
{
    bool more = true;
    int64_t *const numbers[] = {&entry->begin, &entry->end};
    enum rl_rc rc = scan_enter(scan, '[');

    for (size_t i = 0; !rc && more; i++) {
        rc = scan_element(scan, &more);
        if (!rc && more != (i < 2))
            return shard_fail(scan->err, shard->name, name, "data_offsets are not two numbers");
        if (!rc && more)
            rc = scan_whole(scan, numbers[i]);
    }
    return rc;
}

/* One member of a tensor's object. */
static enum rl_rc read_member(struct scan *scan, const struct shard *shard, const char *member,
                              struct tensor *tensor, struct entry *entry)
{
    if (strcmp(member, "dtype") == 0 && !entry->dtype)
        return scan_string(scan, &entry->dtype);
    if (strcmp(member, "shape") == 0 && !entry->has_shape) {
        entry->has_shape = true;
        return read_shape(scan, shard, tensor);
    }
    if (strcmp(member, "data_offsets") == 0 && !entry->has_offsets) {
        entry->has_offsets = true;
        return read_offsets(scan, shard, tensor->name, entry);
    }
    return shard_fail(scan->err, shard->name, tensor->name,
                      "something else than one dtype, shape and data_offsets");
}

/* dtype x shape = size, and inside the data. */
static enum rl_rc check_entry(const struct shard *shard, const struct entry *entry,
                              const char *data, size_t data_len, struct tensor *tensor,
                              struct rl_err *err)
{
    const struct dtype *dtype = NULL;
    int64_t bytes;
    char why[120];

    for (size_t i = 0; i < RL_ARRAY_LEN(dtypes); i++) {
        if (strcmp(dtypes[i].name, entry->dtype) == 0)
            dtype = &dtypes[i];
    }
    if (!dtype)
        return shard_fail(err, shard->name, tensor->name, "unknown dtype");

    bytes = (int64_t)dtype->bytes;
    for (int i = 0; i < tensor->ndim; i++) {
        if (__builtin_mul_overflow(bytes, tensor->dims[i], &bytes))
            return shard_fail(err, shard->name, tensor->name, "shape too large");
    }
    if (entry->end < entry->begin || entry->end - entry->begin != bytes) {
        (void)snprintf(why, sizeof(why), "dtype and shape take %lld bytes, data_offsets %lld",
                       (long long)bytes, (long long)(entry->end - entry->begin));
        return shard_fail(err, shard->name, tensor->name, why);
    }
    if ((uint64_t)entry->end > data_len) {
        (void)snprintf(why, sizeof(why),
                       "ends at byte %lld of the data, the file holds %zu: cut off?",
                       (long long)entry->end, data_len);
        return shard_fail(err, shard->name, tensor->name, why);
    }
    tensor->dtype = dtype->name;
    tensor->numeric = dtype->numeric;
    tensor->type = dtype->type;
    tensor->data = data + entry->begin;
    tensor->bytes = (size_t)bytes;
    return RL_OK;
}

static enum rl_rc read_tensor(struct scan *scan, struct safetensors *file,
                              const struct shard *shard, const char *name, const char *data,
                              size_t data_len)
{
    struct tensor tensor = {.name = name};
    struct entry entry = {0};
    const char *member = NULL;
    enum rl_rc rc = scan_enter(scan, '{');

    while (!rc) {
        rc = scan_member(scan, &member);
        if (rc || !member)
            break;
        rc = read_member(scan, shard, member, &tensor, &entry);
    }
    if (rc)
        return rc;
    if (!entry.dtype || !entry.has_shape || !entry.has_offsets)
        return shard_fail(scan->err, shard->name, name, "no dtype, shape or data_offsets");
    rc = check_entry(shard, &entry, data, data_len, &tensor, scan->err);
    if (rc)
        return rc;
    if (file->count == MAX_TENSORS)
        return fail_file(scan->err, shard, "more than 65536 tensors");
    struct tensor *tensors = shard_grow(file->tensors, file->count, &file->cap, sizeof(tensor));
    if (!tensors)
        return rl_fail(scan->err, RL_NO_MEMORY, "out of memory");
    file->tensors = tensors;
    file->tensors[file->count++] = tensor;
    return RL_OK;
}

static enum rl_rc read_metadata(struct scan *scan, struct safetensors *file,
                                const struct shard *shard)
{
    struct pair pair = {0};
    enum rl_rc rc = scan_enter(scan, '{');

    while (!rc) {
        rc = scan_member(scan, &pair.key);
        if (rc || !pair.key)
            break;
        rc = scan_string(scan, &pair.value);
        if (rc)
            break;
        if (file->metadata_count == MAX_METADATA)
            return fail_file(scan->err, shard, "more than 1024 entries of metadata");
        struct pair *pairs =
            shard_grow(file->metadata, file->metadata_count, &file->metadata_cap, sizeof(pair));
        if (!pairs)
            return rl_fail(scan->err, RL_NO_MEMORY, "out of memory");
        file->metadata = pairs;
        file->metadata[file->metadata_count++] = pair;
    }
    return rc;
}

static int compare_place(const void *left, const void *right)
{
    const struct tensor *a = left;
    const struct tensor *b = right;
    const char *x = a->data;
    const char *y = b->data;

    if (x != y)
        return x < y ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* The shard's tensors, [first, count) of the table, one behind the other and nothing else. */
static enum rl_rc check_cover(struct safetensors *file, size_t first, const struct shard *shard,
                              const char *data, struct rl_err *err)
{
    struct tensor *tensors = file->tensors ? file->tensors + first : NULL;
    size_t count = tensors ? file->count - first : 0;
    const char *at = data;

    if (count)
        qsort(tensors, count, sizeof(*tensors), compare_place);
    for (size_t i = 0; i < count; i++) {
        const char *begin = tensors[i].data;
        if (begin < at)
            return shard_fail(err, shard->name, tensors[i].name, "overlaps another tensor");
        if (begin > at)
            return shard_fail(err, shard->name, tensors[i].name,
                              "bytes before it belong to no tensor");
        at = begin + tensors[i].bytes;
    }
    if (at != shard->map + shard->size)
        return fail_file(err, shard, "more bytes than its tensors have");
    return RL_OK;
}

static enum rl_rc read_header(struct safetensors *file, struct shard *shard, struct rl_err *err)
{
    uint64_t len;
    const char *name = NULL;
    size_t first = file->count;
    bool metadata = false;

    memcpy(&len, shard->map, sizeof(len));
    len = le64toh(len);
    if (len < 2 || len > MAX_HEADER || len > shard->size - 8)
        return rl_fail(err, RL_INVALID_FIELD,
                       "%.80s is no safetensors file: its header would take %llu bytes",
                       shard->name, (unsigned long long)len);
    shard->strings = malloc((size_t)len);
    if (!shard->strings)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");

    struct scan scan = {.file = shard->name,
                        .text = shard->map + 8,
                        .len = (size_t)len,
                        .strings = shard->strings,
                        .err = err};
    const char *data = shard->map + 8 + len;
    size_t data_len = shard->size - 8 - (size_t)len;
    enum rl_rc rc = scan_enter(&scan, '{');
    while (!rc) {
        rc = scan_member(&scan, &name);
        if (rc || !name)
            break;
        if (strcmp(name, "__metadata__") != 0) {
            rc = read_tensor(&scan, file, shard, name, data, data_len);
        } else if (metadata) {
            rc = fail_file(err, shard, "__metadata__ twice");
        } else {
            metadata = true;
            rc = read_metadata(&scan, file, shard);
        }
    }
    if (!rc)
        rc = scan_end(&scan);
    return rc ? rc : check_cover(file, first, shard, data, err);
}

enum rl_rc shard_open(struct safetensors *file, struct shard *shard, const char *path,
                      struct rl_err *err)
{
    enum rl_rc rc = map_file(path, shard, err);

    return rc ? rc : read_header(file, shard, err);
}

enum rl_rc shard_open_bytes(struct safetensors *file, struct shard *shard,
                            const struct safetensors_bytes *bytes, struct rl_err *err)
{
    shard->name = rl_strdup(bytes->name);
    if (!shard->name)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    if (bytes->len < 8)
        return fail_file(err, shard, "is too short for a safetensors file");
    shard->map = bytes->data;
    shard->size = bytes->len;
    shard->borrowed = true;
    return read_header(file, shard, err);
}

void shard_close(struct shard *shard)
{
    if (shard->map && !shard->borrowed) /* our own mapping: it cannot fail */
        (void)munmap((void *)(uintptr_t)shard->map, shard->size);
    free(shard->name);
    free(shard->strings);
}
