/* How long to wait between attempts. Pure arithmetic on bounded numbers: callback.wait_ms and
 * callback.max_wait_ms are at most a week, so nothing here can overflow. */
#include "outbox/parts.h"

#define RETRY_AFTER_FLOOR_MS 60000 /* a receiver may always ask for this much */

int64_t outbox_retry_wait(int64_t wait_ms, int64_t max_wait_ms, int64_t tries,
                          int64_t retry_after_ms, uint32_t jitter)
{
    int64_t wait = wait_ms < max_wait_ms ? wait_ms : max_wait_ms;

    for (int64_t n = 1; n < tries && wait < max_wait_ms; n++)
        wait = wait <= max_wait_ms / 3 ? wait * 3 : max_wait_ms;

    int64_t longest = 2 * wait > RETRY_AFTER_FLOOR_MS ? 2 * wait : RETRY_AFTER_FLOOR_MS;
    int64_t asked = retry_after_ms < longest ? retry_after_ms : longest;
    int64_t jittered = wait + wait * (int64_t)jitter / 1000000;
    return asked > jittered ? asked : jittered;
}
