/* What a program with an owner's key does with the events of a source: read them with their bodies,
 * report them as handled. */
#include "world.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/webhook.h"
#include "inbound/inbound.h"

#define BODY "{\"type\":\"video.completed\"}"

static int setup(void **state)
{
    static struct world w;
    world_init(&w);
    world_set(&w, "hook.backlog", "20");
    world_open(&w);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    world_end(*state);
    return 0;
}

static void add(struct world *w, const char *source)
{
    struct rl_err err;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 65536);
    world_ok(inbound_source_create(w->tasks, source, &(struct inbound_wish){0}, &out, &err), &err);
}

static enum rl_rc post(struct world *w, const char *source, const char *id, const char *body,
                       bool *ret_repeated)
{
    const struct rl_webhook hook = {.id = id, .body = body, .body_len = strlen(body)};
    AUTO_JUDGE struct inbound_judge judge = {0};
    assert_int_equal(inbound_judge_find(w->tasks, source, &judge, NULL), RL_OK);
    return inbound_accept(w->tasks, source, judge.hook_id, &hook, ret_repeated, NULL);
}

static void posted(struct world *w, const char *source, const char *id, const char *body,
                   bool repeated)
{
    bool was = !repeated;
    assert_int_equal(post(w, source, id, body, &was), RL_OK);
    assert_int_equal(was, repeated);
}

/* The whole body, and a page that ends when there is a MiB of them. */
static void test_inbound_event_list_bodies(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    AUTO_BUF struct rl_buf body = {0}, out = {0};
    struct page_query page = {.limit = 200, .ascending = true};
    char id[8];
    rl_buf_init(&body, 1 << 20);
    rl_buf_init(&out, 8 << 20);
    add(w, "openai");
    rl_buf_str(&body, "{\"a\":\"");
    while (body.len < 300000)
        rl_buf_str(&body, "\303\274\\\"");
    rl_buf_str(&body, "\"}");
    for (int i = 1; i <= 5; i++) {
        snprintf(id, sizeof id, "e%d", i);
        posted(w, "openai", id, body.data, false);
    }
    world_ok(inbound_event_list(w->tasks, "openai", &page, true, &out, &err), &err);
    AUTO_JSON struct rl_json *root = NULL;
    assert_null(strstr(out.data, "\"e5\""));
    assert_non_null(strstr(out.data, "\"e4\""));
    assert_non_null(strstr(out.data, "\"next\":\"4\""));
    world_ok(rl_json_parse(out.data, out.len, &root, &err), &err);
    const struct rl_json *first = rl_json_child(rl_json_get(root, "data"));
    assert_string_equal(rl_json_text(rl_json_get(first, "body")), body.data);
    page.after = 4;
    rl_buf_clear(&out);
    world_ok(inbound_event_list(w->tasks, "openai", &page, true, &out, &err), &err);
    assert_non_null(strstr(out.data, "\"next\":null"));
}

static size_t waiting(struct world *w, const char *source)
{
    size_t n = 0;
    struct rl_err err;
    AUTO_BUF struct rl_buf out = {0};
    const struct page_query page = {.limit = 200};
    rl_buf_init(&out, 1 << 22);
    world_ok(inbound_event_list(w->tasks, source, &page, true, &out, &err), &err);
    for (const char *p = out.data; (p = strstr(p, "event_seq")); p++)
        n++;
    return n;
}

/* The backlog is full until somebody reports what was handled; of one's own source only. */
static void test_inbound_events_handled(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    bool known[3], repeated;
    char id[8];
    add(w, "openai");
    add(w, "other");
    for (int i = 1; i <= 20; i++) {
        snprintf(id, sizeof id, "e%d", i);
        posted(w, "openai", id, BODY, false);
    }
    assert_int_equal(post(w, "openai", "e21", BODY, &repeated), RL_QUEUE_FULL);
    const int64_t some[] = {2, 99, 1};
    world_ok(inbound_events_handled(w->tasks, "openai", some, 3, known, &err), &err);
    assert_true(known[0] && !known[1] && known[2]);
    world_ok(inbound_events_handled(w->tasks, "openai", some, 3, known, &err), &err);
    assert_true(known[0] && !known[1] && known[2]);
    world_ok(inbound_events_handled(w->tasks, "other", &(int64_t){3}, 1, known, &err), &err);
    assert_false(known[0]);
    assert_int_equal(waiting(w, "openai"), 18);
    posted(w, "openai", "e21", BODY, false);
    posted(w, "openai", "e1", BODY, true);
    assert_int_equal(inbound_events_handled(w->tasks, "nobody", some, 3, known, &err),
                     RL_NOT_FOUND);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_inbound_event_list_bodies),
        TEST(test_inbound_events_handled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
