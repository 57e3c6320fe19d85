/* Weight files made by tests: small ones with values, and full-size ones whose values are holes. */
#ifndef WAN_FILES_H
#define WAN_FILES_H

#include "base/buf.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAN_FILE_TENSORS 2048

struct wan_file_tensor {
    char name[120];
    const char *dtype;
    int ndim;
    int64_t dims[6];
    const void *data; /* borrows; NULL: a hole, which reads as zeros */
    size_t bytes;
};

struct wan_file {
    struct wan_file_tensor tensors[WAN_FILE_TENSORS];
    size_t count;
    const char *metadata; /* a JSON object, NULL: none */
};

/* Writes bytes and a hole of `hole` bytes behind them. */
static inline void wan_file_raw(const char *path, const void *bytes, size_t len, size_t hole)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    assert_int_equal(ftruncate(fd, (off_t)(len + hole)), 0);
    assert_int_equal(close(fd), 0);
}

/* A file with this header text and so many bytes of data. */
static inline void wan_file_header(const char *path, const char *header, size_t data_len)
{
    AUTO_BUF struct rl_buf b;
    uint64_t len = strlen(header); /* the tests run on little-endian machines */

    rl_buf_init(&b, 1 << 24);
    rl_buf_append(&b, &len, sizeof(len));
    rl_buf_str(&b, header);
    assert_false(b.failed);
    wan_file_raw(path, b.data, b.len, data_len);
}

static inline struct wan_file_tensor *wan_file_add(struct wan_file *file, const char *dtype,
                                                   const int64_t *dims, int ndim, const void *data,
                                                   const char *name)
{
    struct wan_file_tensor *t = &file->tensors[file->count++];

    assert_true(file->count <= WAN_FILE_TENSORS);
    assert_true(rl_copy_str(t->name, sizeof(t->name), name));
    t->dtype = dtype;
    t->ndim = ndim;
    t->data = data;
    t->bytes = strstr(dtype, "32") ? 4 : strstr(dtype, "16") ? 2 : 1;
    for (int i = 0; i < ndim; i++) {
        t->dims[i] = dims[i];
        t->bytes *= (size_t)dims[i];
    }
    return t;
}

/* Tensors in the order they were added. */
static inline void wan_file_write(const struct wan_file *file, const char *path)
{
    AUTO_BUF struct rl_buf b;
    struct rl_jw w;
    uint64_t len = 0;
    size_t at = 0;

    rl_buf_init(&b, 1 << 24);
    rl_buf_append(&b, &len, sizeof(len));
    rl_jw_init(&w, &b, false);
    rl_jw_object(&w, NULL);
    if (file->metadata)
        rl_jw_raw(&w, "__metadata__", file->metadata);
    for (size_t i = 0; i < file->count; i++) {
        const struct wan_file_tensor *t = &file->tensors[i];

        rl_jw_object(&w, t->name);
        rl_jw_str(&w, "dtype", t->dtype);
        rl_jw_array(&w, "shape");
        for (int k = 0; k < t->ndim; k++)
            rl_jw_i64(&w, NULL, t->dims[k]);
        rl_jw_end_array(&w);
        rl_jw_array(&w, "data_offsets");
        rl_jw_i64(&w, NULL, (int64_t)at);
        at += t->bytes;
        rl_jw_i64(&w, NULL, (int64_t)at);
        rl_jw_end_array(&w);
        rl_jw_end_object(&w);
    }
    rl_jw_end_object(&w);
    assert_false(b.failed);
    len = b.len - sizeof(len);
    memcpy(b.data, &len, sizeof(len));
    wan_file_raw(path, b.data, b.len, at);

    int fd = open(path, O_WRONLY | O_CLOEXEC);
    size_t place = b.len;
    for (size_t i = 0; i < file->count; place += file->tensors[i++].bytes) {
        const struct wan_file_tensor *t = &file->tensors[i];
        if (t->data)
            assert_int_equal(pwrite(fd, t->data, t->bytes, (off_t)place), t->bytes);
    }
    assert_int_equal(close(fd), 0);
}

#endif
