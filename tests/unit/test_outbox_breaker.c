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

static void fail_host(struct outbox_breakers *b, int number, int64_t now)
{
    char host[32];

    (void)snprintf(host, sizeof host, "http://h%d:80", number);
    outbox_breaker_note(b, host, true, now);
}

static size_t room_of(const struct outbox_breakers *b, int number, int64_t now)
{
    char host[32];

    (void)snprintf(host, sizeof host, "http://h%d:80", number);
    return outbox_breaker_room(b, host, 2, now);
}

/* More failing hosts than are remembered: a new one takes the place of the one whose wait ends
 * first, and dead hosts of long ago never keep the breaker from it. */
static void test_outbox_breaker_is_bounded(void **state)
{
    struct outbox_breakers b;

    (void)state;
    assert_true(outbox_breakers_init(&b, 1, 10000));
    for (int i = 0; i < OUTBOX_BREAKERS + 10; i++)
        fail_host(&b, i, i);
    int64_t now = OUTBOX_BREAKERS + 10;
    assert_int_equal(b.n, OUTBOX_BREAKERS);
    for (int i = 0; i < OUTBOX_BREAKERS + 10; i++)
        assert_int_equal(room_of(&b, i, now), i < 10 ? 2 : 0);
    fail_host(&b, 5000, 1000000); /* all are half open by then */
    assert_int_equal(b.n, OUTBOX_BREAKERS);
    assert_int_equal(room_of(&b, 5000, 1000001), 0);
    assert_int_equal(room_of(&b, 10, 1000001), 2); /* forgotten */
    assert_int_equal(room_of(&b, 11, 1000001), 1);
    outbox_breakers_clear(&b);
}

/* An open one stays while another can go, however much earlier it would be free. */
static void test_outbox_breaker_full_keeps_the_open(void **state)
{
    struct outbox_breakers b;

    (void)state;
    assert_true(outbox_breakers_init(&b, 2, 100));
    fail_host(&b, 0, 0);
    fail_host(&b, 0, 0);
    for (int i = 1; i < OUTBOX_BREAKERS; i++)
        fail_host(&b, i, i == 500 ? 60 : 70); /* once: not open */
    fail_host(&b, 5000, 80);
    fail_host(&b, 5000, 80);
    assert_int_equal(room_of(&b, 0, 80), 0);
    assert_int_equal(room_of(&b, 5000, 80), 0);
    fail_host(&b, 500, 81); /* it was the one that went: this is its first failure again */
    assert_int_equal(room_of(&b, 500, 81), 2);
    fail_host(&b, 600, 81);
    assert_int_equal(room_of(&b, 600, 81), 0);
    outbox_breakers_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outbox_breaker_opens_doubles_and_closes),
        cmocka_unit_test(test_outbox_breaker_count),
        cmocka_unit_test(test_outbox_breaker_counts_in_a_row),
        cmocka_unit_test(test_outbox_breaker_is_bounded),
        cmocka_unit_test(test_outbox_breaker_full_keeps_the_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
