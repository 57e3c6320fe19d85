/* A pull reader for the JSON of weight files: tens of thousands of small values, which are read
 * straight into their places instead of becoming a tree. As strict as base/json.h about grammar,
 * UTF-8 and NUL; whoever reads the values refuses repeated names. One thread. */
#ifndef RL_ENGINE_WAN_SCAN_H
#define RL_ENGINE_WAN_SCAN_H

#include "base/rl.h"

struct scan {
    const char *file; /* borrows; for messages */
    const char *text; /* borrows */
    size_t len;
    size_t pos;
    char *strings; /* borrows, at least len bytes: where unescaped strings go */
    size_t used;
    bool first;         /* nothing of the container that was entered last has been read */
    struct rl_err *err; /* borrows */
};

/* All of these fail with RL_INVALID_FIELD, naming the file and the byte. */

/* `{` or `[`, then one call of the matching *_next before each element. */
enum rl_rc scan_enter(struct scan *s, char bracket) RL_NODISCARD;
/* The next member's name, NULL behind the last one; its value must be read before the next call. */
enum rl_rc scan_member(struct scan *s, const char **ret_name) RL_NODISCARD;
/* false behind the last element. */
enum rl_rc scan_element(struct scan *s, bool *ret_more) RL_NODISCARD;
/* A string, unescaped into `strings`; lives as long as that. */
enum rl_rc scan_string(struct scan *s, const char **ret_text) RL_NODISCARD;
/* A whole number of 0 or more. */
enum rl_rc scan_whole(struct scan *s, int64_t *ret_value) RL_NODISCARD;
/* Any value, passed over; at most 16 deep. */
enum rl_rc scan_skip(struct scan *s) RL_NODISCARD;
/* Nothing but white space may be left. */
enum rl_rc scan_end(struct scan *s) RL_NODISCARD;

#endif
