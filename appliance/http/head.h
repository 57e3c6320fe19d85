/* Checks of a request's head that CivetWeb 1.15 leaves out. Pure, over plain name/value pairs. */
#ifndef RL_HTTP_HEAD_H
#define RL_HTTP_HEAD_H

#include "base/rl.h"

struct head_field {
    const char *name, *value;
};
#define HEAD_FIELDS_MAX 64 /* CivetWeb drops the 65th silently, so 64 is already too many */

struct head_facts {
    const char *host; /* borrowed from the fields */
    int64_t length;   /* Content-Length, 0 when absent */
    bool chunked;
    bool expect_continue;
};
/* errors: RL_BAD_REQUEST: 64 or more fields; chunked together with a length, a second length or one
 * that is not 1..10 digits, a transfer coding other than chunked (or in HTTP/1.0), Host not exactly
 * once. */
enum rl_rc head_check(const struct head_field *fields, size_t count, const char *http_version,
                      struct head_facts *ret_facts, struct rl_err *err) RL_NODISCARD;
/* The parser works in place: the texts still lie in the request buffer, so a space before a colon,
 * a bare LF and a folded line show in where they lie. false: one of these (each hides a header from
 * us but not from a proxy). */
bool head_layout_ok(const struct head_field *fields, size_t count);
/* RL_BAD_REQUEST: not "/…", control bytes, or an encoded NUL, CR, LF. */
enum rl_rc head_check_path(const char *path, struct rl_err *err) RL_NODISCARD;
/* Value of a field (any case); ret_count (may be NULL): how often it is there. */
const char *head_get(const struct head_field *fields, size_t count, const char *name,
                     size_t *ret_count);
/* What the Connection header and the version ask for, decided as CivetWeb decides it. */
bool head_keep_alive(const struct head_field *fields, size_t count, const char *http_version);

#endif
