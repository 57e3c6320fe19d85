/* What became of events: attempts, the dead letter and the way out of it, breakers, expiry, and
 * many receivers of which some are bad. */
// link: PkgConfig::sqlite3
#include "test_outbox_endpoints.h"

#include <sqlite3.h>

#define ANSWERS(...) (enum answer[]){__VA_ARGS__}, RL_ARRAY_LEN(((enum answer[]){__VA_ARGS__}))

static void attempts(struct scene *s, int64_t task_id, struct page_query page)
{
    struct rl_err err;

    rl_buf_clear(&s->out);
    world_ok(delivery_attempts(s->w.tasks, &owner, task_id, &page, &s->out, &err), &err);
}

static int64_t first_id(struct scene *s)
{
    const char *text = member(s, "data.0.delivery_id");
    int64_t id = 0;

    assert_true(task_id_parse(text, strlen(text), &id));
    return id;
}

static void expect_callback(struct scene *s, int64_t task_id, const char *status, int64_t retry)
{
    AUTO_TASK struct task *task = world_get(&s->w, task_id);

    assert_string_equal(task->callback_status, status);
    assert_int_equal(task->callback_retry, retry);
}

/* The same id and body bytes, a fresh signature; the budget starts anew, the history goes on. */
static void test_delivery_resend_keeps_id_and_body(void **state)
{
    struct scene *s = *state;
    int port =
        receiver_listen(s->receiver, ANSWERS(ANSWER_500, ANSWER_500, ANSWER_500, ANSWER_200));
    struct received a, b;
    struct rl_err err;

    start(s);
    int64_t task_id = finished_task(s, port);
    expect_deliveries(s, MASK(FAILED), 0, 1);
    expect_callback(s, task_id, "FAILED", 3);
    int64_t id = first_id(s);
    assert_int_equal(delivery_resend(s->w.tasks, &app, id, &s->out, &err), RL_NOT_FOUND);
    world_set(&s->w, "store.min_free_bytes", "1099511627776"); /* its tries would be rows */
    assert_int_equal(delivery_resend(s->w.tasks, &owner, id, &s->out, &err), RL_DISK_FULL);
    world_set(&s->w, "store.min_free_bytes", "0");
    rl_buf_clear(&s->out);
    world_ok(delivery_resend(s->w.tasks, &owner, id, &s->out, &err), &err);
    assert_string_equal(member(s, "tries"), "0");
    expect_deliveries(s, MASK(SUCCEEDED), 0, 1);
    assert_string_equal(member(s, "data.0.tries"), "1");
    expect_callback(s, task_id, "SUCCEEDED", 1);
    receiver_get(s->receiver, 0, &a);
    receiver_get(s->receiver, 3, &b);
    assert_string_equal(a.id, b.id);
    assert_int_equal(a.body_len, b.body_len);
    assert_memory_equal(a.body, b.body, a.body_len);

    attempts(s, task_id, (struct page_query){.limit = 3, .ascending = true});
    assert_int_equal(members(s), 3);
    assert_string_equal(member(s, "data.0.n"), "1");
    assert_string_equal(member(s, "data.0.http_status"), "500");
    assert_string_equal(member(s, "data.0.error"), "HTTP 500");
    assert_string_equal(member(s, "data.0.ip"), "127.0.0.1");
    assert_null(strstr(s->out.data, "/own")); /* never the whole URL */
    struct page_query page = {.limit = 3, .ascending = true};
    const char *next = member(s, "next");
    assert_true(task_id_parse(next, strlen(next), &page.after));
    attempts(s, task_id, page);
    assert_int_equal(members(s), 1);
    assert_string_equal(member(s, "data.0.n"), "4");
    assert_string_equal(member(s, "data.0.status"), "SUCCEEDED");
    assert_string_equal(member(s, "data.0.response_excerpt"), "ok");
    attempts(s, task_id, (struct page_query){.limit = 2});
    assert_string_equal(member(s, "data.0.n"), "4");
    assert_string_equal(member(s, "data.1.n"), "3");
    assert_int_equal(delivery_attempts(s->w.tasks, &app, task_id, &page, &s->out, &err),
                     RL_NOT_FOUND);
}

static int64_t resend(struct scene *s, const struct caller *caller, const char *body)
{
    struct rl_err err;

    rl_buf_clear(&s->out);
    world_ok(delivery_resend_failed(s->w.tasks, caller, body, strlen(body), &s->out, &err), &err);
    return strtoll(member(s, "resent"), NULL, 10);
}

/* All of an endpoint, or all of a time, but nobody else's. */
static void test_delivery_resend_failed_by_endpoint_and_time(void **state)
{
    struct scene *s = *state;
    int one = receiver_listen(s->receiver, ANSWERS(ANSWER_410, ANSWER_200)); /* 410: dead at once */
    int two = receiver_listen(s->receiver, ANSWERS(ANSWER_500, ANSWER_500, ANSWER_500, ANSWER_200));
    char body[128];

    start(s);
    int64_t e = endpoint(s, &owner, two, "");
    (void)finished_task(s, one);
    expect_deliveries(s, MASK(FAILED), -1, 2);
    assert_int_equal(deliveries(s, MASK(FAILED), 0), 1);
    assert_int_equal(deliveries(s, MASK(FAILED), e), 1);
    assert_int_equal(resend(s, &app, "{\"from\":\"2000-01-01T00:00:00Z\"}"), 0);
    assert_int_equal(resend(s, &owner, "{\"to\":\"2000-01-01T00:00:00Z\"}"), 0);
    (void)snprintf(body, sizeof body, "{\"endpoint_id\":\"%" PRId64 "\"}", e);
    assert_int_equal(resend(s, &owner, body), 1);
    expect_deliveries(s, MASK(SUCCEEDED), e, 1);
    assert_int_equal(deliveries(s, MASK(FAILED), -1), 1);
    assert_int_equal(resend(s, &owner, "{\"from\":\"2000-01-01T00:00:00Z\"}"), 1);
    expect_deliveries(s, MASK(SUCCEEDED), 0, 1);
}

/* By hand, beside the program. */
static void change(const struct scene *s, const char *sql)
{
    char path[128], *why = NULL;
    sqlite3 *db = NULL;

    (void)snprintf(path, sizeof path, "%s/reeld.db", s->w.dir);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s", why);
    sqlite3_close(db);
}

/* Dead duties of a user, with tasks of their own from `first` on. */
static void bury(const struct scene *s, const char *user, int64_t first, int n)
{
    char *sql = sqlite3_mprintf(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d) INSERT INTO "
        "outbox(task_id, round, endpoint_id, user_id, webhook_id, event_type, url, host, secret, "
        "body, status, max_tries, next_at, expires_at, created_at) SELECT %lld + i, 1, 0, %Q, "
        "'evt', 'task.failed', 'http://127.0.0.1:9/', 'http://127.0.0.1:9', 's', x'7b7d', "
        "'FAILED', 3, 1, 1, 1000 FROM n",
        n - 1, (long long)first, user);
    change(s, sql);
    sqlite3_free(sql);
}

static int64_t writes(struct scene *s)
{
    struct store_stats stats;

    store_stats(s->w.store, &stats);
    return stats.ops;
}

/* Two duties behind thousands of somebody else's: looked for by readers, page by page; the writer
 * is asked only to renew them, and never for more than a batch. */
static void test_delivery_resend_failed_among_many_of_others(void **state)
{
    struct scene *s = *state;
    static const char all[] = "{\"from\":\"1970-01-01T00:00:00Z\"}";

    bury(s, "somebody", 1000000, 3500);
    bury(s, "app", 1, 1);
    bury(s, "somebody", 2000000, 1000);
    bury(s, "app", 2, 1);
    int64_t before = writes(s);
    assert_int_equal(resend(s, &app, all), 2);
    assert_int_equal(writes(s) - before, 2); /* one for each page that had any */
    assert_int_equal(deliveries(s, MASK(PENDING), -1), 2);
    before = writes(s);
    assert_int_equal(resend(s, &app, all), 0);
    assert_int_equal(writes(s) - before, 0);
    assert_int_equal(resend(s, &owner, all), 4500);
    assert_int_equal(writes(s) - before, 18); /* of 250 each */
}

/* What was renewed is told when a later batch fails, and the same request again goes on. */
static void test_delivery_resend_failed_stops_half_way(void **state)
{
    struct scene *s = *state;
    static const char all[] = "{\"from\":\"1970-01-01T00:00:00Z\"}";
    struct rl_err err;

    bury(s, "app", 1, 600);
    change(s, "CREATE TRIGGER bad BEFORE UPDATE ON outbox WHEN OLD.task_id = 300 BEGIN "
              "SELECT RAISE(ABORT, 'injected'); END");
    assert_int_equal(resend(s, &app, all), 250);
    assert_string_equal(member(s, "more"), "true");
    assert_int_equal(delivery_resend_failed(s->w.tasks, &app, all, strlen(all), &s->out, &err),
                     RL_INTERNAL); /* nothing at all: that is an error */
    change(s, "DROP TRIGGER bad");
    assert_int_equal(resend(s, &app, all), 350);
    assert_string_equal(member(s, "more"), "false");
}

static void test_delivery_resend_failed_bad_input(void **state)
{
    static const struct {
        const char *body, *field;
    } table[] = {{"{}", "endpoint_id"},
                 {"{\"endpoint_id\":3}", "endpoint_id"},
                 {"{\"endpoint_id\":\"x\"}", "endpoint_id"},
                 {"{\"from\":\"yesterday\"}", "from"},
                 {"{\"to\":7}", "to"},
                 {"{\"since\":\"2000-01-01T00:00:00Z\"}", "since"}};
    struct scene *s = *state;

    for (size_t i = 0; i < RL_ARRAY_LEN(table); i++) {
        struct rl_err err = {0};
        assert_int_equal(delivery_resend_failed(s->w.tasks, &owner, table[i].body,
                                                strlen(table[i].body), &s->out, &err),
                         RL_INVALID_FIELD);
        assert_string_equal(err.field, table[i].field);
    }
}

static void test_delivery_list_pages(void **state)
{
    struct scene *s = *state;
    struct page_query page = {.limit = 2};
    struct rl_err err;
    size_t seen = 0;

    (void)endpoint(s, &owner, 9, "");
    for (int i = 0; i < 5; i++)
        (void)finished_task(s, 0);
    do {
        rl_buf_clear(&s->out);
        world_ok(delivery_list(s->w.tasks, &owner, -1, &page, &s->out, &err), &err);
        seen += members(s);
        const char *next = member(s, "next");
        page.after = 0;
        (void)task_id_parse(next, strlen(next), &page.after);
    } while (page.after);
    assert_int_equal(seen, 5);
    rl_buf_clear(&s->out);
    world_ok(delivery_list(s->w.tasks, &app, -1, &page, &s->out, &err), &err);
    assert_int_equal(members(s), 0);
}

static int setup_expiry(void **state)
{
    return setup_with(state, "callback.max_age_s", "1");
}

/* Whatever a duty waits for, in the end it is dead and visible. */
static void test_delivery_expires_while_held(void **state)
{
    struct scene *s = *state;
    int64_t e = endpoint(s, &owner, 9, "");

    (void)finished_task(s, 0);
    enable(s, e, false);
    start(s);
    expect_deliveries(s, MASK(FAILED), e, 1);
    assert_string_equal(member(s, "data.0.last_error"), "older than callback.max_age_s");
    assert_string_equal(member(s, "data.0.tries"), "0");
    look(s, e);
    assert_string_equal(member(s, "stats.failed"), "1");
}

/* One that cannot be given up holds up none of those behind it. */
static void test_delivery_expires_past_one_that_cannot(void **state)
{
    struct scene *s = *state;
    char path[128], *why = NULL;
    sqlite3 *db = NULL;

    int64_t e = endpoint(s, &owner, 9, "");
    for (int i = 0; i < 3; i++)
        (void)finished_task(s, 0);
    enable(s, e, false);
    (void)snprintf(path, sizeof path, "%s/reeld.db", s->w.dir);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (sqlite3_exec(db,
                     "CREATE TRIGGER bad BEFORE UPDATE ON outbox WHEN OLD.outbox_id = (SELECT "
                     "min(outbox_id) FROM outbox) AND NEW.status = 'FAILED' BEGIN SELECT "
                     "RAISE(ABORT, 'injected'); END",
                     NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s", why);
    sqlite3_close(db);
    start(s);
    expect_deliveries(s, MASK(FAILED), e, 2);
    assert_int_equal(deliveries(s, MASK(PENDING), e), 1);
}

static int setup_breaker(void **state)
{
    (void)setup_with(state, "callback.breaker_ms", "400");
    struct scene *s = *state;
    world_set(&s->w, "callback.breaker_failures", "3");
    world_set(&s->w, "callback.tries", "2");
    world_set(&s->w, "callback.per_host", "1");
    return 0;
}

static void expect_open_breakers(struct scene *s, int64_t open)
{
    struct outbox_stats stats;
    struct rl_err err;

    for (int64_t until = rl_mono_ms() + SOON_MS;;) {
        world_ok(outbox_stats(s->outbox, &stats, &err), &err);
        if (stats.breakers_open == open && stats.breakers_half_open == 0)
            return;
        assert_true(rl_mono_ms() < until);
        (void)hub_wait(s->w.hub, NULL, hub_tick(s->w.hub), 5);
    }
}

/* Three failures open it; the rows behind wait for 400 ms, spend no tries, and then go through. */
static void test_delivery_waits_for_the_breaker(void **state)
{
    struct scene *s = *state;
    int port =
        receiver_listen(s->receiver, ANSWERS(ANSWER_500, ANSWER_500, ANSWER_500, ANSWER_200));
    struct received a, b;

    int64_t e = endpoint(s, &owner, port, "");
    for (int i = 0; i < 10; i++)
        (void)finished_task(s, 0);
    start(s);
    expect_open_breakers(s, 1);
    expect_deliveries(s, MASK(SUCCEEDED) | MASK(FAILED), e, 10);
    expect_open_breakers(s, 0);
    /* at most two rows can have spent both tries on the three failures */
    assert_in_range(deliveries(s, MASK(SUCCEEDED), e), 9, 10);
    receiver_get(s->receiver, 2, &a);
    receiver_get(s->receiver, 3, &b);
    assert_in_range(b.wall_ms - a.wall_ms, 390, 5000);
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

#define GOOD   99
#define EVENTS 5

/* Each event goes to a black hole and 99 good receivers. */
static void test_delivery_black_hole_and_99_good(void **state)
{
    struct scene *s = *state;
    int64_t ended[EVENTS], late[GOOD * EVENTS], ids[EVENTS];
    size_t n = 0;
    int hole = receiver_listen(s->receiver, ANSWERS(ANSWER_NEVER));

    (void)endpoint(s, &owner, hole, "");
    for (int i = 0; i < GOOD; i++)
        (void)endpoint(s, &owner, receiver_listen(s->receiver, ANSWERS(ANSWER_200)), "");
    start(s);
    for (int i = 0; i < EVENTS; i++) { /* the backlog of the hole grows from event to event */
        ids[i] = finished_task(s, 0);
        ended[i] = rl_wall_ms();
        assert_true(receiver_wait(s->receiver, (size_t)(GOOD * (i + 1)), SOON_MS));
    }
    assert_true(receiver_wait(s->receiver, GOOD * EVENTS + 2, SOON_MS));
    for (size_t i = 0; i < receiver_count(s->receiver, 0); i++) {
        struct received r;
        receiver_get(s->receiver, i, &r);
        for (int k = 0; k < EVENTS && r.port != hole; k++) {
            char id[64];
            (void)snprintf(id, sizeof id, "evt_%" PRId64 "_1", ids[k]);
            if (strcmp(r.id, id) == 0 && n < GOOD * EVENTS)
                late[n++] = r.wall_ms - ended[k];
        }
    }
    assert_true(n >= GOOD * EVENTS * 99 / 100);
    qsort(late, n, sizeof late[0], by_size);
    print_message("p50 %" PRId64 " ms, p99 %" PRId64 " ms\n", late[n / 2], late[n * 99 / 100]);
    assert_in_range(late[n * 99 / 100] + 1000, 0, 1000 + in_time(1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_delivery_resend_keeps_id_and_body),
        TEST(test_delivery_resend_failed_by_endpoint_and_time),
        TEST(test_delivery_resend_failed_among_many_of_others),
        TEST(test_delivery_resend_failed_stops_half_way),
        TEST(test_delivery_resend_failed_bad_input),
        TEST(test_delivery_list_pages),
        cmocka_unit_test_setup_teardown(test_delivery_expires_while_held, setup_expiry, teardown),
        cmocka_unit_test_setup_teardown(test_delivery_expires_past_one_that_cannot, setup_expiry,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_delivery_waits_for_the_breaker, setup_breaker,
                                        teardown),
        TEST(test_delivery_black_hole_and_99_good),
    };

    return run_scenes(tests, RL_ARRAY_LEN(tests));
}
