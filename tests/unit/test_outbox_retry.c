/* The waits between attempts and the time that is left, as tables. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "outbox/parts.h"

#define SIX_HOURS 21600000
#define NONE      -1

static void test_outbox_retry_wait_table(void **state)
{
    static const struct {
        int64_t wait, max, tries, retry_after;
        uint32_t jitter;
        int64_t want;
    } table[] = {
        /* 1, 3, 9, 27 s */
        {1000, SIX_HOURS, 1, NONE, 0, 1000},
        {1000, SIX_HOURS, 2, NONE, 0, 3000},
        {1000, SIX_HOURS, 3, NONE, 0, 9000},
        {1000, SIX_HOURS, 4, NONE, 0, 27000},
        {1000, SIX_HOURS, 10, NONE, 0, 19683000},
        /* the clamp, reached exactly, passed, and far beyond 64 bits */
        {1000, SIX_HOURS, 11, NONE, 0, SIX_HOURS},
        {1000, 9000, 3, NONE, 0, 9000},
        {1000, 8999, 3, NONE, 0, 8999},
        {1000, SIX_HOURS, 100, NONE, 0, SIX_HOURS},
        {1000, SIX_HOURS, INT64_MAX, NONE, 0, SIX_HOURS},
        {3600000, 1000, 1, NONE, 0, 1000},
        {1, 604800000, 100, NONE, 0, 604800000},
        /* jitter only adds, 20 % at most */
        {1000, SIX_HOURS, 1, NONE, OUTBOX_JITTER_MAX, 1200},
        {1000, SIX_HOURS, 2, NONE, OUTBOX_JITTER_MAX / 2, 3300},
        {1000, SIX_HOURS, 50, NONE, OUTBOX_JITTER_MAX, SIX_HOURS + SIX_HOURS / 5},
        /* Retry-After: never earlier than the wait, never later than max(2 x wait, 60 s) */
        {1000, SIX_HOURS, 1, 0, 0, 1000},
        {1000, SIX_HOURS, 1, 999, 0, 1000},
        {1000, SIX_HOURS, 1, 5000, 0, 5000},
        {1000, SIX_HOURS, 1, 60000, 0, 60000},
        {1000, SIX_HOURS, 1, 60001, 0, 60000},
        {1000, SIX_HOURS, 1, 86400000, OUTBOX_JITTER_MAX, 60000},
        {1000, SIX_HOURS, 5, 86400000, 0, 162000},
        {1000, SIX_HOURS, 5, 100000, 0, 100000},
        {1000, SIX_HOURS, 5, 80000, 0, 81000},
    };

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(table); i++)
        assert_int_equal(outbox_retry_wait(table[i].wait, table[i].max, table[i].tries,
                                           table[i].retry_after, table[i].jitter),
                         table[i].want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outbox_retry_wait_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
