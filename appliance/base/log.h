/* One line, one event, key=value, to stderr (the journal). Thread-safe: one write(2) per line.
 * Never a prompt, key, signature or full callback URL. */
#ifndef RL_BASE_LOG_H
#define RL_BASE_LOG_H

#include "base/rl.h"

enum rl_log_level { RL_LOG_DEBUG, RL_LOG_INFO, RL_LOG_WARN, RL_LOG_ERROR };

/* The level is the process's one piece of global state. */
void rl_log_set_level(enum rl_log_level level);
/* `ts=… level=info event=<event> <fmt…>`; fmt gives "key=value key=value". Quote free text with
 * rl_log_quote. Lines are cut at 2 KiB. */
void rl_log(enum rl_log_level level, const char *event, const char *fmt, ...) RL_PRINTF(3, 4);
/* Text as one quoted token without control characters into out[size]; returns out. */
const char *rl_log_quote(const char *text, char *out, size_t size);

#endif
