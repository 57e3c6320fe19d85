/* A growable byte buffer with a mandatory limit, and a streaming JSON writer over it.
 * Failure is sticky: append freely, test `rl_buf_ok` once at the end. Not thread-safe. */
#ifndef RL_BASE_BUF_H
#define RL_BASE_BUF_H

#include "base/rl.h"

struct rl_buf {
    char *data;     /* owned; always NUL-terminated once anything was appended */
    size_t len;     /* bytes without the NUL */
    size_t cap;     /* bytes allocated */
    size_t limit;   /* most bytes `len` may reach */
    bool failed;    /* limit passed or memory short; further appends do nothing */
    bool no_memory; /* the failure was memory, not the limit */
};

void rl_buf_init(struct rl_buf *b, size_t limit);
void rl_buf_free(struct rl_buf *b);  /* frees the bytes; b may be used again after init */
void rl_buf_clear(struct rl_buf *b); /* len = 0, keeps memory, clears `failed` */
void rl_buf_append(struct rl_buf *b, const void *bytes, size_t len);
void rl_buf_str(struct rl_buf *b, const char *s);
void rl_buf_fmt(struct rl_buf *b, const char *fmt, ...) RL_PRINTF(2, 3);
/* RL_OK, or RL_NO_MEMORY / RL_BODY_TOO_LARGE when an append was lost. */
enum rl_rc rl_buf_ok(const struct rl_buf *b, struct rl_err *err) RL_NODISCARD;
/* Hand the bytes over (returns new, NUL-terminated; "" for an empty buffer; NULL if failed). */
char *rl_buf_take(struct rl_buf *b);
#define AUTO_BUF __attribute__((cleanup(rl_buf_free)))

/* JSON writer. `key` is NULL inside arrays and at the top. Commas are the writer's work.
 * With `ascii` every non-ASCII character becomes \uXXXX (pairs above the BMP). */
struct rl_jw {
    struct rl_buf *out; /* borrows */
    bool ascii;
    bool comma; /* a value was written at this level */
};
void rl_jw_init(struct rl_jw *w, struct rl_buf *out, bool ascii);
void rl_jw_object(struct rl_jw *w, const char *key);
void rl_jw_array(struct rl_jw *w, const char *key);
void rl_jw_end_object(struct rl_jw *w);
void rl_jw_end_array(struct rl_jw *w);
void rl_jw_str(struct rl_jw *w, const char *key, const char *utf8); /* NULL writes null */
void rl_jw_strn(struct rl_jw *w, const char *key, const char *utf8, size_t len);
void rl_jw_i64(struct rl_jw *w, const char *key, int64_t v);
void rl_jw_f64(struct rl_jw *w, const char *key,
               double v); /* shortest that reads back; not finite: null */
void rl_jw_bool(struct rl_jw *w, const char *key, bool v);
void rl_jw_null(struct rl_jw *w, const char *key);
void rl_jw_id(struct rl_jw *w, const char *key, int64_t id);   /* "123", null for 0 */
void rl_jw_time(struct rl_jw *w, const char *key, int64_t ms); /* RFC 3339 with ms, null for 0 */
void rl_jw_raw(struct rl_jw *w, const char *key,
               const char *json); /* valid JSON text; NULL: null */

#endif
