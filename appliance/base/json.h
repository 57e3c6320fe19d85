/* The one JSON reader: a strict scan (UTF-8, NUL, surrogates, depth, duplicates, grammar), then
 * cJSON. base/json.c is the only file that sees <cjson/cJSON.h>. A tree is used by one thread. */
#ifndef RL_BASE_JSON_H
#define RL_BASE_JSON_H

#include "base/rl.h"

struct rl_json; /* a value inside a parsed tree */
struct rl_buf;

enum rl_json_type {
    RL_JSON_NULL,
    RL_JSON_BOOL,
    RL_JSON_NUMBER,
    RL_JSON_STRING,
    RL_JSON_ARRAY,
    RL_JSON_OBJECT
};

#define RL_JSON_MAX_DEPTH  32                        /* worker stacks are 100 KiB; cJSON recurses */
#define RL_JSON_MAX_VALUES 4096                      /* 64 B per node in cJSON */
#define RL_JSON_MAX_INT    INT64_C(9007199254740991) /* 2^53 - 1: exact in every reader */

/* Parse text[0..len) (RFC 8259, nothing looser; top level may be any value).
 * Refused with RL_MALFORMED_JSON and the byte offset in the reason: invalid or overlong UTF-8, BOM,
 * raw control characters, NUL or \u0000, lone surrogates, depth > 32, > 4096 values, duplicate keys
 * (after unescaping), trailing bytes, leading zeros, any grammar error, and numbers of more than
 * 63 characters (cJSON would cut them). Numbers too large for a double pass here and fail in the
 * accessors, so that the error can name the field.
 * ret_root: returns new, freed by rl_json_free. */
enum rl_rc rl_json_parse(const char *text, size_t len, struct rl_json **ret_root,
                         struct rl_err *err) RL_NODISCARD;
void rl_json_free(struct rl_json *root);
static inline void rl_json_free_ptr(struct rl_json **p)
{
    rl_json_free(*p);
}
#define AUTO_JSON __attribute__((cleanup(rl_json_free_ptr)))

enum rl_json_type rl_json_type(const struct rl_json *v);
/* Member of an object, case-sensitive; NULL when absent or v is no object. */
const struct rl_json *rl_json_get(const struct rl_json *v, const char *name);
/* First child of an object or array, and the next sibling; NULL at the end. */
const struct rl_json *rl_json_child(const struct rl_json *v);
const struct rl_json *rl_json_next(const struct rl_json *v);
/* Name of a member of an object (borrowed with the tree). */
const char *rl_json_name(const struct rl_json *v);
/* Text of a string, borrowed with the tree; NULL when v is no string. Holds no NUL. */
const char *rl_json_text(const struct rl_json *v);
bool rl_json_is_true(const struct rl_json *v);
double rl_json_number(const struct rl_json *v); /* NaN when v is no number */

/* Typed reads for request fields: RL_INVALID_FIELD naming `field` when the type or range is wrong.
 * rl_json_int refuses fractions, infinities and anything outside [min, max]. */
enum rl_rc rl_json_int(const struct rl_json *v, const char *field, int64_t min, int64_t max,
                       int64_t *ret_value, struct rl_err *err) RL_NODISCARD;
enum rl_rc rl_json_real(const struct rl_json *v, const char *field, double min, double max,
                        double *ret_value, struct rl_err *err) RL_NODISCARD;
/* String of min_bytes..max_bytes bytes of UTF-8; borrowed with the tree. */
enum rl_rc rl_json_string(const struct rl_json *v, const char *field, size_t min_bytes,
                          size_t max_bytes, const char **ret_text, struct rl_err *err) RL_NODISCARD;

/* Append v as compact JSON with the members of every object sorted by name (bytewise): equal
 * content gives equal bytes, which idempotency hashes rely on. */
void rl_json_canonical(const struct rl_json *v, struct rl_buf *out);

/* true when s[0..len) is valid UTF-8 without NUL, overlong forms or surrogates. */
bool rl_utf8_valid(const char *s, size_t len);

#endif
