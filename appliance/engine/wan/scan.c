/* The JSON reader of weight files. One pass, no tree. Invariants: pos <= len, and no byte at or
 * beyond len is read; a string takes at most as many bytes of `strings` as of the text (its quotes
 * pay for the NUL), so used <= pos always holds. Any thread, one at a time. */
#include "engine/wan/scan.h"

#include "base/utf8.h"

#include <string.h>

#define MAX_DEPTH 16

static enum rl_rc refuse(struct scan *s, const char *why)
{
    return rl_fail(s->err, RL_INVALID_FIELD, "%.80s: %s at byte %zu of its JSON", s->file, why,
                   s->pos);
}

/* The next byte that is no white space, not yet taken; -1 at the end. */
static int peek(struct scan *s)
{
    while (s->pos < s->len && memchr(" \t\n\r", s->text[s->pos], 4))
        s->pos++;
    return s->pos < s->len ? (unsigned char)s->text[s->pos] : -1;
}

enum rl_rc scan_enter(struct scan *s, char bracket)
{
    if (peek(s) != bracket)
        return refuse(s, bracket == '{' ? "'{' expected" : "'[' expected");
    s->pos++;
    s->first = true;
    return RL_OK;
}

/* Step over the comma in front of the next element, or over the closing bracket. */
static enum rl_rc next(struct scan *s, char closing, bool *ret_more)
{
    int c = peek(s);

    if (c == closing) {
        s->pos++;
        s->first = false;
        *ret_more = false;
        return RL_OK;
    }
    if (!s->first) {
        if (c != ',')
            return refuse(s, closing == '}' ? "',' or '}' expected" : "',' or ']' expected");
        s->pos++;
    }
    s->first = false;
    *ret_more = true;
    return RL_OK;
}

enum rl_rc scan_element(struct scan *s, bool *ret_more)
{
    return next(s, ']', ret_more);
}

enum rl_rc scan_member(struct scan *s, const char **ret_name)
{
    bool more = false;
    enum rl_rc rc = next(s, '}', &more);

    if (rc)
        return rc;
    if (!more) {
        *ret_name = NULL;
        return RL_OK;
    }
    rc = scan_string(s, ret_name);
    if (rc)
        return rc;
    if (peek(s) != ':')
        return refuse(s, "':' expected");
    s->pos++;
    return RL_OK;
}

/* Four hex digits at pos, taken; -1 when they are not there. */
static int32_t hex4(struct scan *s)
{
    int32_t v = 0;

    if (s->len - s->pos < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int c = (unsigned char)s->text[s->pos + (size_t)i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        v = v * 16 + digit;
    }
    s->pos += 4;
    return v;
}

static void put_code(struct scan *s, uint32_t code)
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    if (n == 1) {
        s->strings[s->used++] = (char)code;
        return;
    }
    for (size_t i = n; i-- > 1; code >>= 6)
        s->strings[s->used + i] = (char)(0x80 | (code & 0x3f));
    s->strings[s->used] = (char)(lead[n] | code);
    s->used += n;
}

/* \uXXXX or a pair of them, with pos behind the u. */
static enum rl_rc unicode_escape(struct scan *s)
{
    int32_t code = hex4(s);

    if (code <= 0 || (code >= 0xdc00 && code <= 0xdfff))
        return refuse(s, "bad \\u escape");
    if (code >= 0xd800 && code <= 0xdbff) {
        if (s->len - s->pos < 6 || memcmp(s->text + s->pos, "\\u", 2) != 0)
            return refuse(s, "lone surrogate");
        s->pos += 2;
        int32_t low = hex4(s);
        if (low < 0xdc00 || low > 0xdfff)
            return refuse(s, "lone surrogate");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    put_code(s, (uint32_t)code);
    return RL_OK;
}

static enum rl_rc escape(struct scan *s)
{
    static const char codes[] = "b\bf\fn\nr\rt\t\"\"\\\\//";

    if (s->len - s->pos < 2)
        return refuse(s, "text ends inside a string");
    char c = s->text[s->pos + 1];
    s->pos += 2;
    if (c == 'u')
        return unicode_escape(s);
    for (size_t i = 0; i + 1 < sizeof(codes); i += 2) {
        if (codes[i] == c) {
            s->strings[s->used++] = codes[i + 1];
            return RL_OK;
        }
    }
    return refuse(s, "unknown escape");
}

enum rl_rc scan_string(struct scan *s, const char **ret_text)
{
    if (peek(s) != '"')
        return refuse(s, "a string expected");
    s->pos++;

    char *text = s->strings + s->used;
    while (s->pos < s->len) {
        unsigned char c = (unsigned char)s->text[s->pos];

        if (c == '"') {
            s->pos++;
            s->strings[s->used++] = '\0';
            *ret_text = text;
            return RL_OK;
        }
        if (c == '\\') {
            enum rl_rc rc = escape(s);
            if (rc)
                return rc;
            continue;
        }
        size_t n = c < 0x20 ? 0 : rl_utf8_decode(s->text + s->pos, s->len - s->pos, NULL);
        if (n == 0)
            return refuse(s, c < 0x20 ? "raw control character" : "invalid UTF-8");
        memcpy(s->strings + s->used, s->text + s->pos, n);
        s->used += n;
        s->pos += n;
    }
    return refuse(s, "text ends inside a string");
}

enum rl_rc scan_whole(struct scan *s, int64_t *ret_value)
{
    int64_t v = 0;

    (void)peek(s); /* white space */
    size_t start = s->pos;
    while (s->pos < s->len && s->text[s->pos] >= '0' && s->text[s->pos] <= '9') {
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, s->text[s->pos] - '0', &v))
            return refuse(s, "too large a number");
        s->pos++;
    }
    if (s->pos == start)
        return refuse(s, "a whole number expected");
    if (s->text[start] == '0' && s->pos > start + 1)
        return refuse(s, "number with a leading zero");
    if (s->pos < s->len && memchr(".eE", s->text[s->pos], 3))
        return refuse(s, "a whole number expected");
    *ret_value = v;
    return RL_OK;
}

/* A number of any kind, true, false or null: only its letters are checked. */
static enum rl_rc skip_word(struct scan *s)
{
    size_t start = s->pos;

    while (s->pos < s->len && s->text[s->pos] != '\0' &&
           strchr("0123456789+-.eEtrufalsn", s->text[s->pos]))
        s->pos++;
    return s->pos > start ? RL_OK : refuse(s, "a value expected");
}

static enum rl_rc skip(struct scan *s, int depth)
{
    const char *text = NULL;
    bool more = true;
    int c = peek(s);

    if (c == '"')
        return scan_string(s, &text);
    if (c != '{' && c != '[')
        return skip_word(s);
    if (depth == MAX_DEPTH)
        return refuse(s, "nested deeper than 16");

    enum rl_rc rc = scan_enter(s, (char)c);
    while (!rc) {
        if (c == '{') {
            rc = scan_member(s, &text);
            more = text != NULL;
        } else {
            rc = scan_element(s, &more);
        }
        if (rc || !more)
            break;
        rc = skip(s, depth + 1);
    }
    return rc;
}

enum rl_rc scan_skip(struct scan *s)
{
    return skip(s, 0);
}

enum rl_rc scan_end(struct scan *s)
{
    return peek(s) == -1 ? RL_OK : refuse(s, "the end of the text expected");
}
