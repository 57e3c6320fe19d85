/* The growable byte buffer: grows by doubling up to its limit, fails stickily. One thread at a
 * time. Invariants: len <= limit, len < cap whenever data is set, data[len] is NUL, and a failed
 * buffer keeps what it held before the append that failed. */
#include "base/buf.h"

#include <stdarg.h>
#include <string.h>

void rl_buf_init(struct rl_buf *b, size_t limit)
{
    *b = (struct rl_buf){.limit = limit < SIZE_MAX / 2 ? limit : SIZE_MAX / 2};
}

void rl_buf_free(struct rl_buf *b)
{
    free(b->data);
    rl_buf_init(b, b->limit);
}

void rl_buf_clear(struct rl_buf *b)
{
    b->len = 0;
    b->failed = false;
    b->no_memory = false;
    if (b->data)
        b->data[0] = '\0';
}

/* Room for `extra` more bytes and the NUL; false (and failed) when there is none. */
static bool reserve(struct rl_buf *b, size_t extra)
{
    if (b->failed)
        return false;
    if (extra > b->limit - b->len) {
        b->failed = true;
        return false;
    }

    size_t need = b->len + extra + 1;
    if (need <= b->cap)
        return true;

    size_t cap = b->cap ? b->cap * 2 : 256;
    if (cap > b->limit + 1)
        cap = b->limit + 1;
    if (cap < need)
        cap = need;

    char *data = realloc(b->data, cap);
    if (!data) {
        b->failed = true;
        b->no_memory = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void rl_buf_append(struct rl_buf *b, const void *bytes, size_t len)
{
    if (!reserve(b, len))
        return;
    if (len)
        memcpy(b->data + b->len, bytes, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void rl_buf_str(struct rl_buf *b, const char *s)
{
    rl_buf_append(b, s, strlen(s));
}

void rl_buf_fmt(struct rl_buf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) {
        b->failed = true;
        return;
    }
    if (!reserve(b, (size_t)n))
        return;

    va_start(args, fmt);
    (void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, args); /* measured above */
    va_end(args);
    b->len += (size_t)n;
}

enum rl_rc rl_buf_ok(const struct rl_buf *b, struct rl_err *err)
{
    if (!b->failed)
        return RL_OK;
    if (b->no_memory)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    return rl_fail(err, RL_BODY_TOO_LARGE, "longer than %zu bytes", b->limit);
}

char *rl_buf_take(struct rl_buf *b)
{
    if (b->failed)
        return NULL;

    rl_buf_append(b, "", 0);
    char *data = b->data;
    rl_buf_init(b, b->limit);
    return data;
}
