/* Time. Wall time is stored and shown; the other two measure. Every read goes through
 * clock_gettime, so a preloaded shim or a wrapped symbol can stand in for it in tests. */
#ifndef RL_BASE_CLOCK_H
#define RL_BASE_CLOCK_H

#include "base/rl.h"
#include <time.h>

int64_t rl_wall_ms(void); /* CLOCK_REALTIME, ms since 1970 UTC: stored times */
int64_t rl_mono_ms(void); /* CLOCK_MONOTONIC: run time (stops in suspend, as the GPU does) */
int64_t rl_boot_ms(void); /* CLOCK_BOOTTIME: waits and back-off (counts suspend) */
int64_t rl_mono_us(void);

#define RL_TIME_TEXT 32 /* room for "2026-11-30T06:42:16.123Z" */
/* ms UTC -> RFC 3339 with milliseconds in text[RL_TIME_TEXT]. */
void rl_time_format(int64_t ms, char *text);
/* RFC 3339 with Z or an offset, fraction optional -> ms UTC. RL_INVALID_FIELD without a field. */
enum rl_rc rl_time_parse(const char *text, int64_t *ret_ms, struct rl_err *err) RL_NODISCARD;
/* now(clock) + ms as a timespec, for pthread_cond_clockwait. */
struct timespec rl_deadline(clockid_t clock, int64_t ms_from_now);

#endif
