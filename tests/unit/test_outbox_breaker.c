/* The breaker on a made-up clock. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "outbox/parts.h"

#define H "http://a:80"

static void test_outbox_breaker_opens_doubles_and_closes(void **state)
{
    struct outbox_breakers b;
    int64_t now = 1000;

    (void)state;
    assert_true(outbox_breakers_init(&b, 5, 30000));
    for (int i = 0; i < 4; i++)
        outbox_breaker_note(&b, H, true, now);
    assert_int_equal(outbox_breaker_room(&b, H, 2, now), 2);
    assert_true(outbox_breaker_next(&b, now) == INT64_MAX);
    outbox_breaker_note(&b, H, true, now);
    assert_int_equal(outbox_breaker_room(&b, H, 2, now), 0);
    assert_int_equal(outbox_breaker_room(&b, "http://b:80", 2, now), 2);
    assert_int_equal(outbox_breaker_next(&b, now), now + 30000);
    outbox_breaker_note(&b, H, true, now + 10); /* began before it opened: changes nothing */
    assert_int_equal(outbox_breaker_next(&b, now + 10), now + 30000);

    static const int64_t waits[] = {30000, 60000, 120000, 240000, 300000, 300000};
    for (size_t i = 0; i < RL_ARRAY_LEN(waits); i++) {
        assert_int_equal(outbox_breaker_room(&b, H, 2, now + waits[i] - 1), 0);
        now += waits[i];
        assert_int_equal(outbox_breaker_room(&b, H, 2, now), 1); /* half open: one */
        if (i + 1 < RL_ARRAY_LEN(waits))
            outbox_breaker_note(&b, H, true, now);
    }
    outbox_breaker_note(&b, H, false, now);
    assert_int_equal(outbox_breaker_room(&b, H, 2, now), 2);
    assert_int_equal(b.n, 0);
    outbox_breakers_clear(&b);
}

static void expect_counts(const struct outbox_breakers *b, int64_t now, int64_t open,
                          int64_t half_open)
{
    int64_t is_open, is_half_open;

    outbox_breaker_count(b, now, &is_open, &is_half_open);
    assert_int_equal(is_open, open);
    assert_int_equal(is_half_open, half_open);
}

static void test_outbox_breaker_count(void **state)
{
    struct outbox_breakers b;

    (void)state;
    assert_true(outbox_breakers_init(&b, 2, 100));
    for (int i = 0; i < 2; i++) {
        outbox_breaker_note(&b, H, true, 0);
        outbox_breaker_note(&b, "http://b:80", true, 50);
    }
    outbox_breaker_note(&b, "http://c:80", true, 50); /* failed once: still closed */
    expect_counts(&b, 60, 2, 0);
    expect_counts(&b, 100, 1, 1);
    outbox_breaker_note(&b, H, true, 100); /* the one try failed, too */
    expect_counts(&b, 150, 1, 1);
    outbox_breaker_note(&b, "http://b:80", false, 150);
    expect_counts(&b, 150, 1, 0);
    outbox_breakers_clear(&b);
}

static void test_outbox_breaker_counts_in_a_row(void **state)
{
    struct outbox_breakers b;

    (void)state;
    assert_true(outbox_breakers_init(&b, 3, 100));
    for (int i = 0; i < 20; i++)
        outbox_breaker_note(&b, H, i % 3 != 2, i);
    assert_int_equal(outbox_breaker_room(&b, H, 2, 20), 2);
    outbox_breakers_clear(&b);
    assert_true(outbox_breakers_init(&b, 0, 100)); /* off */
    for (int i = 0; i < 20; i++)
        outbox_breaker_note(&b, H, true, i);
    assert_int_equal(outbox_breaker_room(&b, H, 2, 20), 2);
    outbox_breakers_clear(&b);
}

/* More failing hosts than are remembered: the rest is tried on, memory stays bounded. */
static void test_outbox_breaker_is_bounded(void **state)
{
    struct outbox_breakers b;
    char host[32];

    (void)state;
    assert_true(outbox_breakers_init(&b, 1, 100));
    for (int i = 0; i < OUTBOX_BREAKERS + 10; i++) {
        (void)snprintf(host, sizeof host, "http://h%d:80", i);
        outbox_breaker_note(&b, host, true, 0);
    }
    assert_int_equal(b.n, OUTBOX_BREAKERS);
    assert_int_equal(outbox_breaker_room(&b, "http://h0:80", 2, 1), 0);
    assert_int_equal(outbox_breaker_room(&b, host, 2, 1), 2);
    outbox_breaker_note(&b, "http://h0:80", false, 1);
    outbox_breaker_note(&b, host, true, 1);
    assert_int_equal(outbox_breaker_room(&b, host, 2, 2), 0);
    outbox_breakers_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outbox_breaker_opens_doubles_and_closes),
        cmocka_unit_test(test_outbox_breaker_count),
        cmocka_unit_test(test_outbox_breaker_counts_in_a_row),
        cmocka_unit_test(test_outbox_breaker_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
