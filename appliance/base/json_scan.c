/* The strict JSON scanner (RFC 8259): one pass, no recursion, a stack of RL_JSON_MAX_DEPTH small
 * frames, then a sort of the member names to find duplicates (n log n whatever the input holds).
 * Any thread. Invariants: pos <= len, and no byte at or beyond len is read. */
#include "base/json_scan.h"

#include "base/json.h"
#include "base/utf8.h"

#include <string.h>

#define MAX_NUMBER_BYTES 63 /* cJSON copies a number into 64 bytes and would cut a longer one */

/* A member name as it stands in the text, between its quotes. */
struct name {
    uint32_t object; /* serial number of the object it belongs to */
    uint32_t len;
    size_t start;
};

struct scan {
    const char *text; /* borrows */
    size_t len;
    size_t pos;
    struct rl_err *err;
    unsigned values;
    unsigned depth;
    struct {
        char kind; /* '{' or '[' */
        uint32_t object;
    } stack[RL_JSON_MAX_DEPTH];
    uint32_t objects;
    struct name *names; /* owned */
    size_t name_count;
    size_t name_cap;
};

static enum rl_rc refuse(struct scan *s, size_t at, const char *why)
{
    return rl_fail(s->err, RL_MALFORMED_JSON, "%s at byte %zu", why, at);
}

/* The byte at pos, or -1 at the end. */
static int peek(const struct scan *s)
{
    return s->pos < s->len ? (unsigned char)s->text[s->pos] : -1;
}

static void skip_space(struct scan *s)
{
    while (s->pos < s->len && memchr(" \t\n\r", s->text[s->pos], 4))
        s->pos++;
}

/* What stands where something else had to. */
static enum rl_rc unexpected(struct scan *s, const char *wanted)
{
    char why[96];

    if (peek(s) == -1)
        (void)snprintf(why, sizeof(why), "text ends where %s is expected", wanted);
    else if (peek(s) == 0)
        (void)snprintf(why, sizeof(why), "NUL byte");
    else if (s->pos == 0 && s->len >= 3 && memcmp(s->text, "\xef\xbb\xbf", 3) == 0)
        (void)snprintf(why, sizeof(why), "byte order mark");
    else
        (void)snprintf(why, sizeof(why), "%s expected", wanted);
    return refuse(s, s->pos, why);
}

/* Four hex digits at p, which has room for them; -1 when they are not. */
static int32_t hex4(const char *p)
{
    int32_t v = 0;

    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int32_t digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
        if (digit < 0)
            return -1;
        v = v * 16 + digit;
    }
    return v;
}

/* The code point of the \uXXXX (or pair of them) at p[0..len), its length in *ret_len; -1 when it
 * is cut, no hex or half a pair. */
static int32_t unicode_escape(const char *p, size_t len, size_t *ret_len)
{
    int32_t high = len >= 6 ? hex4(p + 2) : -1;

    if (high < 0 || (high >= 0xdc00 && high <= 0xdfff))
        return -1;
    *ret_len = 6;
    if (high < 0xd800 || high > 0xdbff)
        return high;

    int32_t low = len >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8) : -1;
    if (low < 0xdc00 || low > 0xdfff)
        return -1;
    *ret_len = 12;
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

static enum rl_rc scan_escape(struct scan *s)
{
    size_t n = 2;
    size_t left = s->len - s->pos;

    if (left < 2)
        return refuse(s, s->pos, "text ends inside a string");
    if (s->text[s->pos + 1] == 'u') {
        if (left >= 6 && hex4(s->text + s->pos + 2) == 0)
            return refuse(s, s->pos, "\\u0000");
        if (unicode_escape(s->text + s->pos, left, &n) < 0)
            return refuse(s, s->pos, "bad \\u escape or lone surrogate");
    } else if (!memchr("\"\\/bfnrt", s->text[s->pos + 1], 8)) {
        return refuse(s, s->pos, "unknown escape");
    }
    s->pos += n;
    return RL_OK;
}

/* A string at pos, from quote to quote. */
static enum rl_rc scan_string(struct scan *s)
{
    s->pos++;
    while (s->pos < s->len) {
        unsigned char c = (unsigned char)s->text[s->pos];

        if (c == '"') {
            s->pos++;
            return RL_OK;
        }
        if (c == '\\') {
            enum rl_rc rc = scan_escape(s);
            if (rc)
                return rc;
            continue;
        }
        if (c < 0x20)
            return refuse(s, s->pos, c ? "raw control character" : "NUL byte");

        size_t n = rl_utf8_decode(s->text + s->pos, s->len - s->pos, NULL);
        if (n == 0)
            return refuse(s, s->pos, "invalid UTF-8");
        s->pos += n;
    }
    return refuse(s, s->pos, "text ends inside a string");
}

/* At least one digit. */
static bool scan_digits(struct scan *s)
{
    size_t start = s->pos;

    while (peek(s) >= '0' && peek(s) <= '9')
        s->pos++;
    return s->pos > start;
}

static enum rl_rc scan_number(struct scan *s)
{
    size_t start = s->pos;

    if (peek(s) == '-')
        s->pos++;
    if (peek(s) == '0') {
        s->pos++;
        if (peek(s) >= '0' && peek(s) <= '9')
            return refuse(s, start, "number with a leading zero");
    } else if (!scan_digits(s)) {
        return unexpected(s, "a digit");
    }
    if (peek(s) == '.') {
        s->pos++;
        if (!scan_digits(s))
            return unexpected(s, "a digit");
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->pos++;
        if (peek(s) == '+' || peek(s) == '-')
            s->pos++;
        if (!scan_digits(s))
            return unexpected(s, "a digit");
    }
    if (s->pos - start > MAX_NUMBER_BYTES)
        return refuse(s, start, "number longer than 63 characters");
    return RL_OK;
}

static enum rl_rc scan_word(struct scan *s, const char *word)
{
    size_t n = strlen(word);

    if (s->len - s->pos < n || memcmp(s->text + s->pos, word, n) != 0)
        return unexpected(s, "a value");
    s->pos += n;
    return RL_OK;
}

/* Remember the name that stands in text[start..end). */
static enum rl_rc keep_name(struct scan *s, size_t start, size_t end)
{
    if (s->name_count == s->name_cap) {
        size_t cap = s->name_cap ? s->name_cap * 2 : 32;
        struct name *names = realloc(s->names, cap * sizeof(*names));
        if (!names)
            return rl_fail(s->err, RL_NO_MEMORY, "out of memory");
        s->names = names;
        s->name_cap = cap;
    }
    s->names[s->name_count++] = (struct name){
        .object = s->stack[s->depth - 1].object, .len = (uint32_t)(end - start), .start = start};
    return RL_OK;
}

/* `"name" :` up to the value. */
static enum rl_rc scan_member(struct scan *s)
{
    if (peek(s) != '"')
        return unexpected(s, "a member name");

    size_t start = s->pos + 1;
    enum rl_rc rc = scan_string(s);
    if (!rc)
        rc = keep_name(s, start, s->pos - 1);
    if (rc)
        return rc;
    skip_space(s);
    if (peek(s) != ':')
        return unexpected(s, "':'");
    s->pos++;
    skip_space(s);
    return RL_OK;
}

static enum rl_rc open_container(struct scan *s)
{
    if (s->depth == RL_JSON_MAX_DEPTH)
        return refuse(s, s->pos, "nested deeper than 32");
    s->stack[s->depth].kind = s->text[s->pos++];
    s->stack[s->depth].object = s->objects++;
    s->depth++;
    return RL_OK;
}

/* A value that starts at pos; of a container only the bracket. */
static enum rl_rc scan_value(struct scan *s)
{
    if (++s->values > RL_JSON_MAX_VALUES)
        return refuse(s, s->pos, "more than 4096 values");

    switch (peek(s)) {
    case '{':
    case '[':
        return open_container(s);
    case '"':
        return scan_string(s);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    case '-':
    case '0' ... '9':
        return scan_number(s);
    default:
        return unexpected(s, "a value");
    }
}

/* After a value: close what ends here, then step over a comma to where the next value starts.
 * `opened`: the value was an opening bracket. pos == len and depth == 0 when all is read. */
static enum rl_rc to_next_value(struct scan *s, bool opened)
{
    for (;;) {
        skip_space(s);
        if (s->depth == 0)
            return s->pos == s->len ? RL_OK : unexpected(s, "the end of the text");

        bool object = s->stack[s->depth - 1].kind == '{';
        int c = peek(s);
        if (c == (object ? '}' : ']')) {
            s->pos++;
            s->depth--;
            opened = false;
            continue;
        }
        if (!opened) {
            if (c != ',')
                return unexpected(s, object ? "',' or '}'" : "',' or ']'");
            s->pos++;
            skip_space(s);
        }
        return object ? scan_member(s) : RL_OK;
    }
}

static enum rl_rc scan_grammar(struct scan *s)
{
    skip_space(s);
    do {
        int first = peek(s);
        enum rl_rc rc = scan_value(s);
        if (!rc)
            rc = to_next_value(s, first == '{' || first == '[');
        if (rc)
            return rc;
    } while (s->depth > 0);
    return RL_OK;
}

/* The next code point of a name that the scan has accepted. */
static int32_t next_code(const char *text, size_t *pos, size_t end)
{
    static const char escapes[] = "b\bf\fn\nr\rt\t";
    const char *p = text + *pos;
    size_t n = 2;
    int32_t code;

    if (*p != '\\') {
        uint32_t plain = 0;
        n = rl_utf8_decode(p, end - *pos, &plain);
        code = (int32_t)plain;
    } else if (p[1] == 'u') {
        code = unicode_escape(p, end - *pos, &n);
    } else {
        const char *letter = strchr(escapes, p[1]);
        code = letter ? letter[1] : p[1]; /* \" \\ \/ stand for themselves */
    }
    *pos += n;
    return code;
}

/* Order of two names after unescaping, as memcmp would have it. */
static int compare_text(const char *text, const struct name *a, const struct name *b)
{
    size_t i = a->start;
    size_t j = b->start;
    size_t a_end = a->start + a->len;
    size_t b_end = b->start + b->len;

    while (i < a_end && j < b_end) {
        int32_t x = next_code(text, &i, a_end);
        int32_t y = next_code(text, &j, b_end);
        if (x != y)
            return x < y ? -1 : 1;
    }
    return (i < a_end) - (j < b_end);
}

static int compare_names(const void *left, const void *right, void *text)
{
    const struct name *a = left;
    const struct name *b = right;

    if (a->object != b->object)
        return a->object < b->object ? -1 : 1;
    int order = compare_text(text, a, b);
    if (order)
        return order;
    return a->start < b->start ? -1 : a->start > b->start;
}

static enum rl_rc check_duplicates(struct scan *s)
{
    size_t first = SIZE_MAX; /* offset of the earliest name that repeats another */

    if (s->name_count < 2)
        return RL_OK;
    /* the comparison only reads the text */
    qsort_r(s->names, s->name_count, sizeof(*s->names), compare_names, (void *)(uintptr_t)s->text);
    for (size_t i = 1; i < s->name_count; i++) {
        const struct name *a = &s->names[i - 1];
        const struct name *b = &s->names[i];
        if (a->object == b->object && b->start < first && compare_text(s->text, a, b) == 0)
            first = b->start;
    }
    return first == SIZE_MAX ? RL_OK : refuse(s, first, "repeated member name");
}

enum rl_rc json_scan(const char *text, size_t len, struct rl_err *err)
{
    struct scan s = {.text = text, .len = len, .err = err};

    if (len > UINT32_MAX)
        return rl_fail(err, RL_MALFORMED_JSON, "longer than 4 GiB");
    enum rl_rc rc = scan_grammar(&s);
    if (!rc)
        rc = check_duplicates(&s);
    free(s.names);
    return rc;
}
