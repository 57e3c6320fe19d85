/* Registered endpoints: who gets which event, signatures over a rotation, states, bad input. */
#include "test_outbox_endpoints.h"

#define ANSWERS(...) (enum answer[]){__VA_ARGS__}, RL_ARRAY_LEN(((enum answer[]){__VA_ARGS__}))

/* One event, one id, one body, however many receivers; filters and users are kept apart. */
static void test_endpoint_gets_the_events_it_wants(void **state)
{
    struct scene *s = *state;
    int all = receiver_listen(s->receiver, ANSWERS(ANSWER_200));
    int only_failed = receiver_listen(s->receiver, ANSWERS(ANSWER_200));
    int others = receiver_listen(s->receiver, ANSWERS(ANSWER_200));
    int own = receiver_listen(s->receiver, ANSWERS(ANSWER_200));
    struct received a, b;
    char secret[512], id[64];

    int64_t e = endpoint(s, &owner, all, ",\"events\":[\"task.timeout\",\"task.succeeded\"]");
    (void)snprintf(secret, sizeof secret, "%s", member(s, "secret"));
    assert_memory_equal(secret, "whsec_", 6);
    assert_string_equal(member(s, "events.0"), "task.succeeded");
    (void)endpoint(s, &owner, only_failed, ",\"events\":[\"task.failed\"]");
    (void)endpoint(s, &app, others, "");
    start(s);
    int64_t task_id = finished_task(s, own);
    expect_deliveries(s, MASK(SUCCEEDED), -1, 2);
    assert_int_equal(receiver_count(s->receiver, 0), 2);
    receiver_get(s->receiver, 0, &a);
    receiver_get(s->receiver, 1, &b);
    (void)snprintf(id, sizeof id, "evt_%" PRId64 "_1", task_id);
    assert_string_equal(a.id, id);
    assert_string_equal(b.id, id);
    assert_int_equal(a.body_len, b.body_len);
    assert_memory_equal(a.body, b.body, a.body_len);
    const struct received *at_endpoint = a.port == all ? &a : &b;
    assert_int_equal(at_endpoint->port, all);
    assert_true(signed_by(at_endpoint, secret, 0));
    assert_false(signed_by(at_endpoint == &a ? &b : &a, secret, 0));
    look(s, e);
    assert_string_equal(member(s, "stats.succeeded"), "1");
    assert_string_equal(member(s, "stats.pending"), "0");
    assert_string_equal(member(s, "secret"), "(absent)");
    assert_string_not_equal(member(s, "stats.last_success_at"), "null");
}

/* Only the task's own URL drives callback_status. */
static void test_endpoint_failure_leaves_the_task_alone(void **state)
{
    struct scene *s = *state;
    int bad = receiver_listen(s->receiver, ANSWERS(ANSWER_500));
    int64_t e = endpoint(s, &owner, bad, "");

    start(s);
    int64_t without = finished_task(s, 0);
    expect_deliveries(s, MASK(FAILED), e, 1);
    AUTO_TASK struct task *task = world_get(&s->w, without);
    assert_null(task->callback_status);
    assert_int_equal(task->callback_retry, 0);
    look(s, e);
    assert_string_equal(member(s, "stats.failed"), "1");
    assert_string_equal(member(s, "stats.last_error"), "HTTP 500");
}

/* Two signatures, the new one first, while the former secret's grace lasts; then one. */
static void test_endpoint_rotation_signs_twice(void **state)
{
    struct scene *s = *state;
    int port = receiver_listen(s->receiver, ANSWERS(ANSWER_200));
    char first[512], second[512];
    struct received r;
    struct rl_err err;

    int64_t e = endpoint(s, &owner, port, "");
    (void)snprintf(first, sizeof first, "%s", member(s, "secret"));
    (void)finished_task(s, 0); /* queued before the rotation, sent after it */
    rl_buf_clear(&s->out);
    world_ok(endpoint_rotate(s->w.tasks, &owner, e, "", 0, &s->out, &err), &err);
    (void)snprintf(second, sizeof second, "%s", member(s, "secret"));
    assert_string_not_equal(first, second);
    start(s);
    expect_deliveries(s, MASK(SUCCEEDED), e, 1);
    receiver_get(s->receiver, 0, &r);
    assert_true(signed_by(&r, second, 0));
    assert_true(signed_by(&r, first, 1));
    assert_null(strchr(strchr(r.signature, ' ') + 1, ' '));

    assert_int_equal(endpoint_rotate(s->w.tasks, &owner, e, "", 0, &s->out, &err), RL_CONFLICT);
    const char *body = "{\"grace_s\":0,\"secret\":\"plain-secret-of-mine\"}";
    rl_buf_clear(&s->out);
    world_ok(endpoint_rotate(s->w.tasks, &owner, e, body, strlen(body), &s->out, &err), &err);
    (void)finished_task(s, 0);
    expect_deliveries(s, MASK(SUCCEEDED), e, 2);
    receiver_get(s->receiver, 1, &r);
    assert_true(signed_by(&r, "plain-secret-of-mine", 0));
    assert_null(strchr(r.signature, ' '));
}

/* What is queued for a disabled endpoint waits and spends nothing; enabling sends it. */
static void test_endpoint_disabled_rows_wait(void **state)
{
    struct scene *s = *state;
    int port = receiver_listen(s->receiver, ANSWERS(ANSWER_200));
    int other = receiver_listen(s->receiver, ANSWERS(ANSWER_200));
    int64_t e = endpoint(s, &owner, port, ""), f = endpoint(s, &owner, other, "");

    (void)finished_task(s, 0);
    enable(s, e, false);
    assert_string_equal(member(s, "state"), "DISABLED");
    assert_string_equal(member(s, "stats.pending"), "1");
    start(s);
    (void)finished_task(s, 0); /* not for the disabled one */
    expect_deliveries(s, MASK(SUCCEEDED), f, 2);
    assert_int_equal(receiver_count(s->receiver, port), 0);
    assert_int_equal(deliveries(s, MASK(PENDING), e), 1);
    assert_string_equal(member(s, "data.0.held"), "true");
    assert_string_equal(member(s, "data.0.tries"), "0");
    assert_string_equal(member(s, "data.0.next_at"), "null");
    enable(s, e, true);
    expect_deliveries(s, MASK(SUCCEEDED), e, 1);
    assert_string_equal(member(s, "data.0.tries"), "1");
}

static void test_endpoint_410_parks_it(void **state)
{
    struct scene *s = *state;
    int port = receiver_listen(s->receiver, ANSWERS(ANSWER_410, ANSWER_200));
    int64_t e = endpoint(s, &owner, port, "");

    (void)finished_task(s, 0);
    start(s);
    int64_t until = rl_mono_ms() + SOON_MS;
    for (look(s, e); strcmp(member(s, "state"), "PARKED") != 0; look(s, e)) {
        assert_true(rl_mono_ms() < until);
        (void)hub_wait(s->w.hub, NULL, hub_tick(s->w.hub), 10);
    }
    (void)finished_task(s, 0); /* waits, too: nobody has asked for less */
    assert_int_equal(deliveries(s, MASK(PENDING), e), 2);
    assert_string_equal(member(s, "data.0.held"), "true");
    assert_string_equal(member(s, "data.1.held"), "true");
    assert_string_equal(member(s, "data.1.tries"), "0"); /* it was not the row's fault */
    assert_string_equal(member(s, "data.1.last_error"), "HTTP 410");
    assert_int_equal(receiver_count(s->receiver, port), 1);
    enable(s, e, true);
    expect_deliveries(s, MASK(SUCCEEDED), e, 2);
    assert_int_equal(receiver_count(s->receiver, port), 3);
}

static void test_endpoint_deleted_rows_end(void **state)
{
    struct scene *s = *state;
    int port = receiver_listen(s->receiver, ANSWERS(ANSWER_200));
    int64_t e = endpoint(s, &owner, port, "");
    struct rl_err err;
    int64_t id = 0;

    (void)finished_task(s, 0);
    world_ok(endpoint_delete(s->w.tasks, &owner, e, &err), &err);
    assert_int_equal(deliveries(s, MASK(FAILED), e), 1);
    assert_string_equal(member(s, "data.0.last_error"), "endpoint deleted");
    const char *text = member(s, "data.0.delivery_id");
    assert_true(task_id_parse(text, strlen(text), &id));
    assert_int_equal(delivery_resend(s->w.tasks, &owner, id, &s->out, &err), RL_CONFLICT);
    assert_int_equal(endpoint_get(s->w.tasks, &owner, e, &s->out, &err), RL_NOT_FOUND);
    start(s);
    (void)finished_task(s, 0);
    assert_int_equal(receiver_count(s->receiver, 0), 0);
}

/* What is queued goes to the new address. */
static void test_endpoint_update_moves_what_is_queued(void **state)
{
    struct scene *s = *state;
    int old = receiver_listen(s->receiver, ANSWERS(ANSWER_200));
    int new = receiver_listen(s->receiver, ANSWERS(ANSWER_200));
    int64_t e = endpoint(s, &owner, old, ",\"description\":\"d\",\"events\":[\"task.succeeded\"]");
    char body[128];
    struct rl_err err;

    (void)finished_task(s, 0);
    (void)snprintf(body, sizeof body, "{\"url\":\"http://127.0.0.1:%d/\",\"events\":null}", new);
    rl_buf_clear(&s->out);
    world_ok(endpoint_update(s->w.tasks, &owner, e, body, strlen(body), &s->out, &err), &err);
    assert_string_equal(member(s, "events"), "null");
    assert_string_equal(member(s, "description"), "d");
    start(s);
    expect_deliveries(s, MASK(SUCCEEDED), e, 1);
    assert_int_equal(receiver_count(s->receiver, old), 0);
    assert_int_equal(receiver_count(s->receiver, new), 1);
}

/* A test event is a real delivery, tried once, whatever the endpoint's state. */
static void test_endpoint_test_event(void **state)
{
    struct scene *s = *state;
    int port = receiver_listen(s->receiver, ANSWERS(ANSWER_200, ANSWER_500));
    char secret[512];
    struct received r;
    struct rl_err err;

    int64_t e = endpoint(s, &owner, port, "");
    (void)snprintf(secret, sizeof secret, "%s", member(s, "secret"));
    enable(s, e, false);
    start(s);
    rl_buf_clear(&s->out);
    world_ok(endpoint_test(s->w.tasks, &owner, e, &s->out, &err), &err);
    assert_string_equal(member(s, "event_type"), "endpoint.test");
    assert_string_equal(member(s, "task_id"), "null");
    expect_deliveries(s, MASK(SUCCEEDED), e, 1);
    receiver_get(s->receiver, 0, &r);
    assert_true(signed_by(&r, secret, 0));
    assert_string_equal(r.id, r.key);
    assert_non_null(strstr(r.body, "\"endpoint.test\""));
    world_ok(endpoint_test(s->w.tasks, &owner, e, &s->out, &err), &err);
    expect_deliveries(s, MASK(FAILED), e, 1);
    assert_string_equal(member(s, "data.0.tries"), "1");
    assert_int_equal(receiver_count(s->receiver, 0), 2);
    for (int i = 0; i < 30; i++) /* kept in bounds */
        world_ok(endpoint_test(s->w.tasks, &owner, e, &s->out, &err), &err);
    assert_int_equal(deliveries(s, 0, e), 20);
    world_ok(endpoint_delete(s->w.tasks, &owner, e, &err), &err);
    assert_int_equal(deliveries(s, 0, e), 0); /* no retention would find them */
}

static void test_endpoint_bad_input_names_the_field(void **state)
{
    static const struct {
        const char *body, *field;
        enum rl_rc rc;
    } table[] = {
        {"{", "", RL_MALFORMED_JSON},
        {"[]", "", RL_INVALID_FIELD},
        {"", "url", RL_INVALID_FIELD},
        {"{}", "url", RL_INVALID_FIELD},
        {"{\"url\":7}", "url", RL_INVALID_FIELD},
        {"{\"url\":\"ftp://a/\"}", "url", RL_INVALID_FIELD},
        {"{\"url\":\"http://u:p@127.0.0.1/\"}", "url", RL_INVALID_FIELD},
        {"{\"url\":\"http://169.254.169.254/\"}", "url", RL_INVALID_FIELD},
        {"{\"url\":\"http://10.0.0.1/\"}", "url", RL_INVALID_FIELD},
        {"{\"url\":\"http://127.0.0.1/\",\"events\":[\"task.done\"]}", "events", RL_INVALID_FIELD},
        {"{\"url\":\"http://127.0.0.1/\",\"events\":[]}", "events", RL_INVALID_FIELD},
        {"{\"url\":\"http://127.0.0.1/\",\"events\":\"task.failed\"}", "events", RL_INVALID_FIELD},
        {"{\"url\":\"http://127.0.0.1/\",\"secret\":\"\"}", "secret", RL_INVALID_FIELD},
        {"{\"url\":\"http://127.0.0.1/\",\"secret\":\"whsec_!\"}", "secret", RL_INVALID_FIELD},
        {"{\"url\":\"http://127.0.0.1/\",\"secret\":\"a\\u00e9\"}", "secret", RL_INVALID_FIELD},
        {"{\"url\":\"http://127.0.0.1/\",\"description\":1}", "description", RL_INVALID_FIELD},
        {"{\"url\":\"http://127.0.0.1/\",\"state\":\"ENABLED\"}", "state", RL_INVALID_FIELD},
        {"{\"url\":\"http://127.0.0.1/\",\"grace_s\":1}", "grace_s", RL_INVALID_FIELD},
    };
    struct scene *s = *state;
    struct rl_err err;

    for (size_t i = 0; i < RL_ARRAY_LEN(table); i++) {
        err = (struct rl_err){0};
        enum rl_rc rc = endpoint_create(s->w.tasks, &owner, table[i].body, strlen(table[i].body),
                                        &s->out, &err);
        if (rc != table[i].rc || strcmp(err.field, table[i].field) != 0)
            fail_msg("%s: %s %s %s", table[i].body, rl_code_name(rc), err.field, err.reason);
    }
    int64_t e = endpoint(s, &owner, 9, "");
    const char *body = "{\"grace_s\":604801}";
    assert_int_equal(endpoint_rotate(s->w.tasks, &owner, e, body, strlen(body), &s->out, &err),
                     RL_INVALID_FIELD);
    assert_string_equal(err.field, "grace_s");
    body = "{\"secret\":\"x\"}";
    assert_int_equal(endpoint_update(s->w.tasks, &owner, e, body, strlen(body), &s->out, &err),
                     RL_INVALID_FIELD);
    assert_string_equal(err.field, "secret");
}

static void test_endpoint_belongs_to_its_user(void **state)
{
    struct scene *s = *state;
    struct page_query page = {.limit = 1, .ascending = true};
    int64_t mine = endpoint(s, &owner, 9, ""), theirs = endpoint(s, &app, 9, "");
    struct tasks *t = s->w.tasks;
    struct rl_err err;

    assert_int_equal(endpoint_get(t, &app, mine, &s->out, &err), RL_NOT_FOUND);
    assert_int_equal(endpoint_update(t, &app, mine, "{}", 2, &s->out, &err), RL_NOT_FOUND);
    assert_int_equal(endpoint_rotate(t, &app, mine, "", 0, &s->out, &err), RL_NOT_FOUND);
    assert_int_equal(endpoint_enable(t, &app, mine, false, &s->out, &err), RL_NOT_FOUND);
    assert_int_equal(endpoint_test(t, &app, mine, &s->out, &err), RL_NOT_FOUND);
    assert_int_equal(endpoint_delete(t, &app, mine, &err), RL_NOT_FOUND);
    look(s, theirs); /* as the owner */
    assert_string_equal(member(s, "user_id"), "app");
    rl_buf_clear(&s->out);
    world_ok(endpoint_list(t, &app, &page, &s->out, &err), &err);
    assert_int_equal(members(s), 1);
    assert_string_equal(member(s, "data.0.user_id"), "app");
    assert_string_equal(member(s, "next"), "null");
    rl_buf_clear(&s->out);
    world_ok(endpoint_list(t, &owner, &page, &s->out, &err), &err);
    assert_int_equal(members(s), 1);
    const char *next = member(s, "next");
    assert_true(task_id_parse(next, strlen(next), &page.after));
    rl_buf_clear(&s->out);
    world_ok(endpoint_list(t, &owner, &page, &s->out, &err), &err);
    assert_string_equal(member(s, "data.0.user_id"), "app");
}

static int setup_few(void **state)
{
    return setup_with(state, "callback.endpoints", "2");
}

static void test_endpoint_count_is_limited(void **state)
{
    struct scene *s = *state;
    const char *body = "{\"url\":\"http://127.0.0.1:9/\"}";
    struct rl_err err;

    (void)endpoint(s, &owner, 9, "");
    (void)endpoint(s, &owner, 9, "");
    assert_int_equal(endpoint_create(s->w.tasks, &owner, body, strlen(body), &s->out, &err),
                     RL_CONFLICT);
    (void)endpoint(s, &app, 9, ""); /* of one user */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_endpoint_gets_the_events_it_wants),
        TEST(test_endpoint_failure_leaves_the_task_alone),
        TEST(test_endpoint_rotation_signs_twice),
        TEST(test_endpoint_disabled_rows_wait),
        TEST(test_endpoint_410_parks_it),
        TEST(test_endpoint_deleted_rows_end),
        TEST(test_endpoint_update_moves_what_is_queued),
        TEST(test_endpoint_test_event),
        TEST(test_endpoint_bad_input_names_the_field),
        TEST(test_endpoint_belongs_to_its_user),
        cmocka_unit_test_setup_teardown(test_endpoint_count_is_limited, setup_few, teardown),
    };

    return run_scenes(tests, RL_ARRAY_LEN(tests));
}
