/* The streaming JSON writer over rl_buf. One thread at a time. It always emits valid JSON text:
 * bytes that are no UTF-8 come out as U+FFFD, numbers that are not finite as null. Memory and
 * limit errors stick in the buffer. */
#include "base/buf.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void rl_jw_init(struct rl_jw *w, struct rl_buf *out, bool ascii)
{
    *w = (struct rl_jw){.out = out, .ascii = ascii};
}

/* One character that may not stand as it is. */
static void write_escape(struct rl_jw *w, uint32_t c)
{
    static const char short_forms[] = "\bb\ff\nn\rr\tt\"\"\\\\";

    for (const char *s = short_forms; *s; s += 2) {
        if ((uint32_t)*s == c) {
            rl_buf_append(w->out, (const char[]){'\\', s[1]}, 2);
            return;
        }
    }
    if (c >= 0x10000) {
        c -= 0x10000;
        rl_buf_fmt(w->out, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd800 + (c >> 10),
                   0xdc00 + (c & 0x3ff));
    } else {
        rl_buf_fmt(w->out, "\\u%04" PRIx32, c);
    }
}

/* Text with its characters escaped; `json`: it is JSON text already, only non-ASCII may need it. */
static void write_escaped(struct rl_jw *w, const char *s, size_t len, bool json)
{
    size_t plain = 0; /* start of the bytes not yet copied */
    size_t i = 0;

    while (i < len) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x80 && (json || (c >= 0x20 && c != '"' && c != '\\'))) {
            i++;
            continue;
        }

        uint32_t code = c;
        size_t n = 1;
        bool valid = true;
        if (c >= 0x80) {
            n = rl_utf8_decode(s + i, len - i, &code);
            valid = n > 0;
            if (valid && !w->ascii) {
                i += n;
                continue;
            }
        }

        rl_buf_append(w->out, s + plain, i - plain);
        if (valid)
            write_escape(w, code);
        else
            rl_buf_str(w->out, w->ascii ? "\\ufffd" : "\xef\xbf\xbd");
        i += valid ? n : 1;
        plain = i;
    }
    rl_buf_append(w->out, s + plain, len - plain);
}

static void write_quoted(struct rl_jw *w, const char *s, size_t len)
{
    rl_buf_append(w->out, "\"", 1);
    write_escaped(w, s, len, false);
    rl_buf_append(w->out, "\"", 1);
}

/* What comes before every value: the comma and the name. */
static void prefix(struct rl_jw *w, const char *key)
{
    if (w->comma)
        rl_buf_append(w->out, ",", 1);
    w->comma = true;
    if (key) {
        write_quoted(w, key, strlen(key));
        rl_buf_append(w->out, ":", 1);
    }
}

static void open_level(struct rl_jw *w, const char *key, const char *bracket)
{
    prefix(w, key);
    rl_buf_append(w->out, bracket, 1);
    w->comma = false;
}

static void close_level(struct rl_jw *w, const char *bracket)
{
    rl_buf_append(w->out, bracket, 1);
    w->comma = true;
}

void rl_jw_object(struct rl_jw *w, const char *key)
{
    open_level(w, key, "{");
}

void rl_jw_array(struct rl_jw *w, const char *key)
{
    open_level(w, key, "[");
}

void rl_jw_end_object(struct rl_jw *w)
{
    close_level(w, "}");
}

void rl_jw_end_array(struct rl_jw *w)
{
    close_level(w, "]");
}

void rl_jw_str(struct rl_jw *w, const char *key, const char *utf8)
{
    if (utf8)
        rl_jw_strn(w, key, utf8, strlen(utf8));
    else
        rl_jw_null(w, key);
}

void rl_jw_strn(struct rl_jw *w, const char *key, const char *utf8, size_t len)
{
    prefix(w, key);
    write_quoted(w, utf8, len);
}

void rl_jw_i64(struct rl_jw *w, const char *key, int64_t v)
{
    prefix(w, key);
    rl_buf_fmt(w->out, "%" PRId64, v);
}

/* Put '.' where the C library wrote the locale's decimal point. */
static void undo_locale(char *text)
{
    char *out = text;
    bool in_point = false;

    for (const char *in = text; *in; in++) {
        bool number_char = (*in >= '0' && *in <= '9') || strchr("+-e", *in);
        if (number_char)
            *out++ = *in;
        else if (!in_point)
            *out++ = '.';
        in_point = !number_char;
    }
    *out = '\0';
}

void rl_jw_f64(struct rl_jw *w, const char *key, double v)
{
    char text[40];

    if (!isfinite(v)) {
        rl_jw_null(w, key);
        return;
    }
    if (fabs(v) < 9007199254740992.0 && v == (double)(int64_t)v) {
        (void)snprintf(text, sizeof(text), "%.0f", v); /* at most 17 characters */
    } else {
        for (int digits = 1; digits <= 17; digits++) {
            (void)snprintf(text, sizeof(text), "%.*g", digits, v); /* at most 24 */
            if (strtod(text, NULL) == v)
                break;
        }
        undo_locale(text);
    }
    prefix(w, key);
    rl_buf_str(w->out, text);
}

void rl_jw_bool(struct rl_jw *w, const char *key, bool v)
{
    prefix(w, key);
    rl_buf_str(w->out, v ? "true" : "false");
}

void rl_jw_null(struct rl_jw *w, const char *key)
{
    prefix(w, key);
    rl_buf_str(w->out, "null");
}

void rl_jw_id(struct rl_jw *w, const char *key, int64_t id)
{
    prefix(w, key);
    if (id == 0)
        rl_buf_str(w->out, "null");
    else
        rl_buf_fmt(w->out, "\"%" PRId64 "\"", id);
}

void rl_jw_time(struct rl_jw *w, const char *key, int64_t ms)
{
    char text[RL_TIME_TEXT];

    if (ms == 0) {
        rl_jw_null(w, key);
        return;
    }
    rl_time_format(ms, text);
    rl_jw_str(w, key, text);
}

void rl_jw_raw(struct rl_jw *w, const char *key, const char *json)
{
    prefix(w, key);
    if (!json)
        json = "null";
    write_escaped(w, json, strlen(json), true);
}
