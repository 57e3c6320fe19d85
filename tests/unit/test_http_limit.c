/* Request rates: the buckets by themselves, then the door over real sockets. */
#include "http_world.h"
#include "http/limit.h"

#define SECOND_US INT64_C(1000000)

/* ---- buckets ---- */

static void number_id(uint64_t number, uint8_t *id)
{
    memset(id, 0, LIMIT_ID_BYTES);
    memcpy(id, &number, sizeof(number));
}

static struct limit_answer take(struct limit *limit, enum limit_kind kind, uint64_t number,
                                int64_t count, int64_t now_us)
{
    uint8_t id[LIMIT_ID_BYTES];
    const struct limit_rule rule = {count, 60 * SECOND_US};
    struct limit_answer answer;
    number_id(number, id);
    limit_take(limit, kind, id, &rule, now_us, &answer);
    return answer;
}

static void test_limit_take_burst_and_refill(void **state)
{
    (void)state;
    struct limit *limit = limit_new();
    int64_t now = 5000 * SECOND_US;
    for (int i = 0; i < 6; i++) {
        struct limit_answer a = take(limit, LIMIT_SUBMITS, 1, 6, now);
        assert_true(a.ok);
        assert_int_equal(a.limit, 6);
        assert_int_equal(a.remaining, 5 - i);
        assert_int_equal(a.reset_s, 10 * (i + 1));
        assert_int_equal(a.wait_s, 0);
    }
    struct limit_answer a = take(limit, LIMIT_SUBMITS, 1, 6, now);
    assert_false(a.ok);
    assert_int_equal(a.remaining, 0);
    assert_int_equal(a.wait_s, 10);
    assert_int_equal(a.reset_s, 60);
    /* a refusal costs nothing: the wait does not grow */
    for (int i = 0; i < 1000; i++)
        (void)take(limit, LIMIT_SUBMITS, 1, 6, now);
    a = take(limit, LIMIT_SUBMITS, 1, 6, now + 9999999);
    assert_false(a.ok);
    assert_int_equal(a.wait_s, 1);
    assert_true(take(limit, LIMIT_SUBMITS, 1, 6, now + 10 * SECOND_US).ok);
    assert_false(take(limit, LIMIT_SUBMITS, 1, 6, now + 10 * SECOND_US).ok);
    /* rest fills it, and no further than full */
    for (int i = 0; i < 6; i++)
        assert_true(take(limit, LIMIT_SUBMITS, 1, 6, now + 9000 * SECOND_US).ok);
    assert_false(take(limit, LIMIT_SUBMITS, 1, 6, now + 9000 * SECOND_US).ok);
    limit_free(limit);
}

static void test_limit_take_kinds_and_subjects_are_apart(void **state)
{
    (void)state;
    struct limit *limit = limit_new();
    assert_true(take(limit, LIMIT_SUBMITS, 1, 1, SECOND_US).ok);
    assert_false(take(limit, LIMIT_SUBMITS, 1, 1, SECOND_US).ok);
    assert_true(take(limit, LIMIT_READS, 1, 1, SECOND_US).ok);
    assert_true(take(limit, LIMIT_SUBMITS, 2, 1, SECOND_US).ok);
    assert_true(take(limit, LIMIT_ADDRESS, 1, 1, SECOND_US).ok);
    assert_true(take(limit, LIMIT_FAILED, 1, 1, SECOND_US).ok);
    assert_false(take(limit, LIMIT_FAILED, 1, 1, SECOND_US).ok);
    for (int i = 0; i < 100; i++) { /* 0: no limit, and nothing to remember */
        struct limit_answer a = take(limit, LIMIT_SUBMITS, 3, 0, SECOND_US);
        assert_true(a.ok);
        assert_int_equal(a.limit, 0);
    }
    limit_free(limit);
}

static void test_limit_look_takes_nothing(void **state)
{
    (void)state;
    struct limit *limit = limit_new();
    const struct limit_rule rule = {1, SECOND_US};
    uint8_t id[LIMIT_ID_BYTES];
    struct limit_answer a;
    number_id(1, id);
    for (int i = 0; i < 3; i++) {
        limit_look(limit, LIMIT_FAILED, id, &rule, SECOND_US, &a);
        assert_true(a.ok);
        assert_int_equal(a.remaining, 1);
    }
    limit_take(limit, LIMIT_FAILED, id, &rule, SECOND_US, &a);
    assert_true(a.ok);
    limit_look(limit, LIMIT_FAILED, id, &rule, SECOND_US, &a);
    assert_false(a.ok);
    assert_int_equal(a.wait_s, 1);
    limit_free(limit);
}

/* A flood of addresses forgets neither an address that is over its limit nor any key. */
static void test_limit_take_table_is_bounded(void **state)
{
    (void)state;
    struct limit *limit = limit_new();
    const uint64_t flooder = UINT64_MAX;
    int64_t now = SECOND_US;
    for (int i = 0; i < 3; i++)
        (void)take(limit, LIMIT_ADDRESS, flooder, 3, now);
    assert_true(take(limit, LIMIT_SUBMITS, 9, 1, now).ok);
    for (uint64_t i = 0; i < 50 * LIMIT_SLOTS; i++)
        assert_true(take(limit, LIMIT_ADDRESS, i, 3, now).ok);
    assert_false(take(limit, LIMIT_ADDRESS, flooder, 3, now).ok);
    assert_false(take(limit, LIMIT_SUBMITS, 9, 1, now).ok);
    limit_free(limit);
}

static void *take_main(void *arg)
{
    intptr_t passed = 0;
    for (int i = 0; i < 1000; i++)
        passed += take(arg, LIMIT_READS, 1, 500, SECOND_US).ok;
    return (void *)passed;
}

static void test_limit_take_from_threads(void **state)
{
    (void)state;
    struct limit *limit = limit_new();
    pthread_t threads[4];
    intptr_t sum = 0;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_main, limit), 0);
    for (int i = 0; i < 4; i++) {
        void *passed;
        assert_int_equal(pthread_join(threads[i], &passed), 0);
        sum += (intptr_t)passed;
    }
    assert_int_equal(sum, 500);
    limit_free(limit);
}

/* ---- the door ---- */

#define SUBMITS 5

static int start_submits(void **state)
{
    static const char *const settings[] = {"limit.submits_per_minute", "5",
                                           "limit.reads_per_minute", "7", NULL};
    return server_start_set(state, settings);
}

static int64_t header_number(const struct answer *a, const char *name)
{
    const char *text = answer_header(a, name);
    if (!text)
        fail_msg("no %s in %s", name, a->head);
    return text ? strtoll(text, NULL, 10) : -1;
}

static int64_t store_ops(struct server *s)
{
    struct store_stats stats;
    store_stats(s->store, &stats);
    return stats.ops;
}

static const char body[] = "{\"prompt\":\"x\",\"idempotency\":\"off\"}";

static void test_submits_of_a_key_are_limited(void **state)
{
    struct server *s = *state;
    for (int i = 0; i < SUBMITS; i++) {
        struct answer a = call(s, "POST", "/api/v1/tasks", JSON_TYPE, body);
        assert_int_equal(header_number(&a, "x-ratelimit-limit"), SUBMITS);
        assert_int_equal(header_number(&a, "x-ratelimit-remaining"), SUBMITS - 1 - i);
        assert_in_range(header_number(&a, "x-ratelimit-reset"), 1, 60);
        expect(a, 202, NULL);
    }
    struct answer a = call(s, "POST", "/api/v1/tasks", JSON_TYPE, body);
    assert_in_range(header_number(&a, "Retry-After"), 1, 12);
    assert_int_equal(header_number(&a, "x-ratelimit-limit"), SUBMITS);
    assert_int_equal(header_number(&a, "x-ratelimit-remaining"), 0);
    assert_in_range(header_number(&a, "x-ratelimit-reset"), 1, 60);
    expect(a, 429, "RATE_LIMITED");
    /* reads have a bucket of their own */
    a = call(s, "GET", "/api/v1/engines", NULL, NULL);
    assert_int_equal(header_number(&a, "x-ratelimit-remaining"), 6);
    expect(a, 200, NULL);
}

static int start_flood(void **state)
{
    static const char *const settings[] = {"limit.submits_per_minute", "1", NULL};
    return server_start_set(state, settings);
}

/* Refused before the body is read: the answer comes although the body never does. */
static void test_flood_of_submits_reads_no_body_and_writes_nothing(void **state)
{
    struct server *s = *state;
    char head[512];
    expect(call(s, "POST", "/api/v1/tasks", JSON_TYPE, body), 202, NULL);
    snprintf(
        head, sizeof(head),
        "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n" JSON_TYPE
        "Expect: 100-continue\r\nContent-Length: 100\r\n\r\n",
        s->app);
    int64_t before = store_ops(s);
    for (int i = 0; i < 200; i++)
        expect(client_raw(s->port, head), 429, "RATE_LIMITED");
    assert_int_equal(store_ops(s), before);
}

static void test_owner_is_never_limited(void **state)
{
    struct server *s = *state;
    for (int i = 0; i < SUBMITS * 3; i++) {
        struct answer a = call_as(s, s->owner, "POST", "/api/v1/tasks", JSON_TYPE, body);
        assert_null(answer_header(&a, "x-ratelimit-limit"));
        expect(a, 202, NULL);
    }
}

static int start_reads(void **state)
{
    static const char *const settings[] = {"limit.reads_per_minute", "3", NULL};
    return server_start_set(state, settings);
}

static void test_reads_of_a_key_are_limited(void **state)
{
    struct server *s = *state;
    for (int i = 0; i < 3; i++)
        expect(call(s, "GET", "/api/v1/tasks", NULL, NULL), 200, NULL);
    expect(call(s, "GET", "/api/v1/tasks", NULL, NULL), 429, "RATE_LIMITED");
    expect(call(s, "DELETE", "/api/v1/dead-letters/1", NULL, NULL), 429, "RATE_LIMITED");
    expect(call(s, "POST", "/api/v1/tasks", JSON_TYPE, body), 202, NULL);
    expect(call_as(s, NULL, "GET", "/healthz", NULL, NULL), 200, NULL);
}

static int start_address(void **state)
{
    static const char *const settings[] = {"limit.address_per_second", "1", "limit.trusted_proxies",
                                           "127.0.0.1/32", NULL};
    return server_start_set(state, settings);
}

/* How many of n requests were refused. One more passes for each second that the machine took. */
static int refused(struct server *s, int n, const char *key, const char *extra)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        struct answer a = call_as(s, key, "GET", "/api/v1/tasks", extra, NULL);
        if (a.status == 429) {
            assert_non_null(strstr(a.body, "RATE_LIMITED"));
            assert_int_equal(header_number(&a, "Retry-After"), 1);
            count++;
        }
        answer_free(&a);
    }
    return count;
}

static void test_failed_sign_ins_are_limited(void **state)
{
    struct server *s = *state;
    int64_t before = store_ops(s);
    expect(call(s, "GET", "/api/v1/tasks", NULL, NULL), 200, NULL);
    assert_true(refused(s, 20, "rk_wrong", NULL) >= 10);
    /* a key in use passes; one that was never used waits for its turn */
    assert_int_equal(refused(s, 20, s->app, NULL), 0);
    assert_true(refused(s, 20, NULL, NULL) >= 10); /* no key at all is a failed sign-in, too */
    int tries = 0;
    struct answer a;
    do {
        a = call_as(s, NULL, "POST", "/api/v1/session", JSON_TYPE, "{\"key\":\"rk_guess\"}");
        if (a.status != 429)
            answer_free(&a);
    } while (a.status != 429 && ++tries < 5);
    expect(a, 429, "RATE_LIMITED");
    for (tries = 0; tries < 5; tries++) {
        a = call_as(s, NULL, "GET", "/sign-in?token=link.1.2.x", NULL, NULL);
        if (a.status == 429)
            break;
        answer_free(&a);
    }
    expect(a, 429, "RATE_LIMITED");
    assert_int_equal(store_ops(s), before);
}

static void test_addresses_behind_a_proxy_are_limited(void **state)
{
    struct server *s = *state;
    const char *one = "X-Forwarded-For: 203.0.113.5\r\n", *two = "X-Forwarded-For: 203.0.113.6\r\n";
    assert_true(refused(s, 20, s->app, one) >= 10);
    expect(call(s, "GET", "/api/v1/tasks", two, NULL), 200, NULL);
    /* what the client itself wrote in front does not count */
    assert_true(refused(s, 20, s->app, "X-Forwarded-For: 127.0.0.1, 203.0.113.5\r\n") >= 10);
    assert_int_equal(refused(s, 20, s->app, NULL), 0); /* loopback */
    assert_int_equal(refused(s, 20, s->app, "X-Forwarded-For: 127.0.0.1\r\n"), 0);
}

static int start_untrusting(void **state)
{
    static const char *const settings[] = {"limit.address_per_second", "1", NULL};
    return server_start_set(state, settings);
}

/* Behind a local proxy that limit.trusted_proxies does not name, nobody is loopback: all are one
 * stranger, whatever address the header says. */
static void test_unnamed_local_proxy_brings_a_stranger(void **state)
{
    struct server *s = *state;
    assert_true(refused(s, 20, s->app, "X-Forwarded-For: 203.0.113.5\r\n") >= 10);
    assert_true(refused(s, 10, s->app, "X-Forwarded-For: 127.0.0.1\r\n") >= 5);
    assert_int_equal(refused(s, 20, s->app, NULL), 0);
}

static int start_clients_untrusting(void **state)
{
    static const char *const settings[] = {"limit.clients", "203.0.113.0/29", NULL};
    return server_start_set(state, settings);
}

static void test_unnamed_local_proxy_does_not_pass_the_list(void **state)
{
    struct server *s = *state;
    expect(call(s, "GET", "/api/v1/tasks", "X-Forwarded-For: 203.0.113.5\r\n", NULL), 403,
           "FORBIDDEN");
    expect(call(s, "GET", "/api/v1/tasks", NULL, NULL), 200, NULL);
}

static void test_start_refuses_bad_proxies(void **state)
{
    struct server *s = *state;
    struct http *second = NULL;
    struct rl_err err = {0};
    int port;
    set(s, "limit.trusted_proxies", "10.0.0.0/8, front");
    assert_int_equal(http_start(s->tasks, NULL, NULL, &second, &port, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "limit.trusted_proxies");
}

static int start_clients(void **state)
{
    static const char *const settings[] = {"limit.clients", "203.0.113.0/29, 2001:db8::7",
                                           "limit.trusted_proxies", "127.0.0.1/32", NULL};
    return server_start_set(state, settings);
}

static void test_clients_outside_the_list_are_refused(void **state)
{
    struct server *s = *state;
    expect(call(s, "GET", "/api/v1/tasks", "X-Forwarded-For: 203.0.113.5\r\n", NULL), 200, NULL);
    expect(call(s, "GET", "/api/v1/tasks", "X-Forwarded-For: 2001:db8::7\r\n", NULL), 200, NULL);
    expect(call(s, "GET", "/api/v1/tasks", NULL, NULL), 200, NULL); /* loopback */
    expect(call(s, "GET", "/api/v1/tasks", "X-Forwarded-For: 203.0.113.9\r\n", NULL), 403,
           "FORBIDDEN");
    expect(call(s, "GET", "/healthz", "X-Forwarded-For: 2001:db8::8\r\n", NULL), 403, "FORBIDDEN");
    struct http *second = NULL;
    struct rl_err err = {0};
    int port;
    set(s, "limit.clients", "10.0.0.0/99");
    assert_int_equal(http_start(s->tasks, NULL, NULL, &second, &port, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "limit.clients");
}

static int start_quota(void **state)
{
    static const char *const settings[] = {"limit.pending_tasks", "1", "queue.depth", "2", NULL};
    return server_start_set(state, settings);
}

static void test_quota_and_full_queue_say_when_to_retry(void **state)
{
    struct server *s = *state;
    const char *plain = "{\"prompt\":\"x\"}";
    expect(call(s, "POST", "/api/v1/tasks", JSON_TYPE "Idempotency-Key: k\r\n", plain), 202, NULL);
    struct answer a = call(s, "POST", "/api/v1/tasks", JSON_TYPE, body);
    assert_int_equal(header_number(&a, "Retry-After"), 10);
    expect(a, 429, "TOO_MANY_PENDING_TASKS");
    /* a retry of the one that is there is never refused for quota */
    expect(call(s, "POST", "/api/v1/tasks", JSON_TYPE "Idempotency-Key: k\r\n", plain), 200, NULL);
    expect(call_as(s, s->owner, "POST", "/api/v1/tasks", JSON_TYPE, body), 202, NULL);
    a = call_as(s, s->owner, "POST", "/api/v1/tasks", JSON_TYPE, body);
    assert_int_equal(header_number(&a, "Retry-After"), 10);
    expect(a, 429, "QUEUE_FULL");
}

#define DOOR(test, start) cmocka_unit_test_setup_teardown(test, start, server_end)

int main(void)
{
    struct rl_err err;
    if (rl_crypto_init(&err) != RL_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit_take_burst_and_refill),
        cmocka_unit_test(test_limit_take_kinds_and_subjects_are_apart),
        cmocka_unit_test(test_limit_look_takes_nothing),
        cmocka_unit_test(test_limit_take_table_is_bounded),
        cmocka_unit_test(test_limit_take_from_threads),
        DOOR(test_submits_of_a_key_are_limited, start_submits),
        DOOR(test_flood_of_submits_reads_no_body_and_writes_nothing, start_flood),
        DOOR(test_owner_is_never_limited, start_submits),
        DOOR(test_reads_of_a_key_are_limited, start_reads),
        DOOR(test_failed_sign_ins_are_limited, start_address),
        DOOR(test_addresses_behind_a_proxy_are_limited, start_address),
        DOOR(test_unnamed_local_proxy_brings_a_stranger, start_untrusting),
        DOOR(test_unnamed_local_proxy_does_not_pass_the_list, start_clients_untrusting),
        DOOR(test_start_refuses_bad_proxies, start_untrusting),
        DOOR(test_clients_outside_the_list_are_refused, start_clients),
        DOOR(test_quota_and_full_queue_say_when_to_retry, start_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
