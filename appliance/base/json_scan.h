/* The strict scan that every JSON text passes before cJSON may see it. Only base/json.c calls it.
 */
#ifndef RL_BASE_JSON_SCAN_H
#define RL_BASE_JSON_SCAN_H

#include "base/rl.h"

/* RL_OK when text[0..len) is what json.h promises, else RL_MALFORMED_JSON with the offset, or
 * RL_NO_MEMORY. Borrows text; constant stack. */
enum rl_rc json_scan(const char *text, size_t len, struct rl_err *err) RL_NODISCARD;

#endif
