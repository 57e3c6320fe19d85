/* Events of outside services: sources and their secrets, one effect per id however often and from
 * however many threads it comes, and the hand-over to a consumer across restarts. */
#include "world.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/webhook.h"
#include "inbound/inbound.h"
#include "task/internal.h"

#include <pthread.h>
#include <sqlite3.h>

#define SECRET "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define OTHER  "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
#define BODY   "{\"type\":\"video.completed\",\"data\":{\"id\":\"video_1\"}}"

static int setup(void **state)
{
    static struct world w;
    world_init(&w);
    world_set(&w, "hook.backlog", "20");
    world_set(&w, "hook.sources", "3");
    world_set(&w, "retain.hook_events", "4");
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
    world_ok(inbound_source_create(w->tasks, source, &(struct inbound_wish){.secret = SECRET}, &out,
                                   &err),
             &err);
    assert_non_null(strstr(out.data, "\"secret\":\"" SECRET "\""));
}

static int64_t hook_id(struct world *w, const char *source)
{
    struct rl_err err;
    AUTO_JUDGE struct inbound_judge judge = {0};
    world_ok(inbound_judge_find(w->tasks, source, &judge, &err), &err);
    return judge.hook_id;
}

static enum rl_rc post(struct world *w, const char *source, const char *id, const char *body,
                       bool *ret_repeated)
{
    const struct rl_webhook hook = {.id = id, .body = body, .body_len = strlen(body)};
    return inbound_accept(w->tasks, source, hook_id(w, source), &hook, ret_repeated, NULL);
}

static void posted(struct world *w, const char *source, const char *id, const char *body,
                   bool repeated)
{
    bool was = !repeated;
    assert_int_equal(post(w, source, id, body, &was), RL_OK);
    assert_int_equal(was, repeated);
}

static void shows(struct world *w, const char *source, const char *text)
{
    struct rl_err err;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 65536);
    world_ok(inbound_source_get(w->tasks, source, &out, &err), &err);
    if (!strstr(out.data, text))
        fail_msg("no %s in %s", text, out.data);
    assert_null(strstr(out.data, "whsec_"));
}

static size_t lines(struct world *w, const char *source, const char *text)
{
    size_t n = 0;
    struct rl_err err;
    AUTO_BUF struct rl_buf out = {0};
    const struct page_query page = {.limit = 200};
    rl_buf_init(&out, 1 << 22);
    world_ok(inbound_event_list(w->tasks, source, &page, false, &out, &err), &err);
    for (const char *p = out.data; (p = strstr(p, text)); p++)
        n++;
    return n;
}

/* ---- sources ---- */

static void test_inbound_source_valid(void **state)
{
    static const char *const good[] = {"a", "7", "open-ai", "runway_2"};
    static const char *const bad[] = {"", "-a", "_a", "A", "a.b", "a b", "\303\274", "a/b", "a?"};
    char longest[INBOUND_SOURCE_TEXT + 1];
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(good); i++)
        assert_true(inbound_source_valid(good[i]));
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++)
        assert_false(inbound_source_valid(bad[i]));
    memset(longest, 'x', sizeof longest);
    longest[INBOUND_SOURCE_TEXT - 1] = '\0';
    assert_true(inbound_source_valid(longest));
    longest[INBOUND_SOURCE_TEXT - 1] = 'x';
    longest[INBOUND_SOURCE_TEXT] = '\0';
    assert_false(inbound_source_valid(longest));
}

static void test_inbound_source_life(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 65536);
    add(w, "openai");
    shows(w, "openai",
          "\"allow\":[],\"per_minute\":null,\"enabled\":true,\"old_secret_until\":null");
    shows(w, "openai", "/api/v1/hooks/openai\"");
    assert_int_equal(
        inbound_source_create(w->tasks, "openai", &(struct inbound_wish){0}, &out, &err),
        RL_CONFLICT);
    assert_int_equal(inbound_source_create(w->tasks, "Open", &(struct inbound_wish){0}, &out, &err),
                     RL_INVALID_FIELD);
    assert_string_equal(err.field, "source");

    struct inbound_wish wish = {.allow = "10.0.0.0/8,::1", .has_per_minute = true, .per_minute = 7};
    world_ok(inbound_source_update(w->tasks, "openai", &wish, &out, &err), &err);
    shows(w, "openai", "\"allow\":[\"10.0.0.0/8\",\"::1\"],\"per_minute\":7,\"enabled\":true");
    wish = (struct inbound_wish){.has_enabled = true, .enabled = false};
    world_ok(inbound_source_update(w->tasks, "openai", &wish, &out, &err), &err);
    shows(w, "openai", "\"allow\":[\"10.0.0.0/8\",\"::1\"],\"per_minute\":7,\"enabled\":false");
    wish = (struct inbound_wish){.allow = "", .has_per_minute = true, .per_minute = -1};
    world_ok(inbound_source_update(w->tasks, "openai", &wish, &out, &err), &err);
    shows(w, "openai", "\"allow\":[],\"per_minute\":null,\"enabled\":false");
    assert_int_equal(inbound_source_update(w->tasks, "nobody", &wish, &out, &err), RL_NOT_FOUND);
    assert_int_equal(inbound_source_rotate(w->tasks, "nobody", &wish, &out, &err), RL_NOT_FOUND);
    assert_int_equal(inbound_source_delete(w->tasks, "nobody", &err), RL_NOT_FOUND);

    add(w, "b");
    add(w, "a");
    assert_int_equal(inbound_source_create(w->tasks, "d", &(struct inbound_wish){0}, &out, &err),
                     RL_CONFLICT); /* hook.sources */
    rl_buf_clear(&out);
    world_ok(inbound_source_list(w->tasks, &out, &err), &err);
    const char *a = strstr(out.data, "\"source\":\"a\""), *b = strstr(out.data, "\"source\":\"b\"");
    assert_true(a && b && a < b);
    assert_null(strstr(out.data, "whsec_"));
}

static bool signed_now(struct world *w, const char *source, const char *secret)
{
    char signature[RL_WEBHOOK_SIGNATURE];
    struct rl_err err;
    AUTO_JUDGE struct inbound_judge judge = {0};
    assert_int_equal(rl_webhook_sign(secret, "evt_1", 7, BODY, strlen(BODY), signature, &err),
                     RL_OK);
    const struct rl_webhook hook = {"evt_1", "7", signature, BODY, strlen(BODY)};
    world_ok(inbound_judge_find(w->tasks, source, &judge, &err), &err);
    return inbound_judge_signed(&judge, &hook);
}

static void test_inbound_rotate_two_secrets(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 65536);
    add(w, "openai");
    assert_true(signed_now(w, "openai", SECRET));
    assert_false(signed_now(w, "openai", OTHER));
    struct inbound_wish wish = {.secret = OTHER, .grace_s = 60};
    world_ok(inbound_source_rotate(w->tasks, "openai", &wish, &out, &err), &err);
    assert_non_null(strstr(out.data, "\"secret\":\"" OTHER "\""));
    assert_null(strstr(out.data, SECRET));
    assert_true(signed_now(w, "openai", SECRET));
    assert_true(signed_now(w, "openai", OTHER));
    /* the first one was promised its time */
    wish = (struct inbound_wish){.grace_s = 60};
    assert_int_equal(inbound_source_rotate(w->tasks, "openai", &wish, &out, &err), RL_CONFLICT);
    assert_true(signed_now(w, "openai", SECRET));
    assert_true(signed_now(w, "openai", OTHER));
    wish = (struct inbound_wish){.grace_s = 0};
    world_ok(inbound_source_rotate(w->tasks, "openai", &wish, &out, &err), &err);
    assert_false(signed_now(w, "openai", SECRET));
    assert_false(signed_now(w, "openai", OTHER));
}

static void test_inbound_judge_unknown_and_disabled(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    AUTO_BUF struct rl_buf out = {0};
    const struct inbound_wish off = {.has_enabled = true, .enabled = false};
    rl_buf_init(&out, 65536);
    assert_false(signed_now(w, "openai", SECRET));
    assert_int_equal(hook_id(w, "openai"), 0);
    /* what stands in for the secret of nobody */
    assert_false(signed_now(w, "openai",
                            "whsec_bm9ib2R5IGtub3dzIHRoaXMgb25lLCBzbyBpdCB2ZXJpZmllcyBub3RoaW5n"));
    add(w, "openai");
    world_ok(inbound_source_update(w->tasks, "openai", &off, &out, &err), &err);
    assert_false(signed_now(w, "openai", SECRET));
}

/* ---- taking in ---- */

static void test_inbound_accept_repeat_changes_nothing(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    AUTO_EVENT struct inbound_event event = {0};
    add(w, "openai");
    add(w, "other");
    posted(w, "openai", "evt_1", BODY, false);
    posted(w, "openai", "evt_1", BODY, true);
    posted(w, "openai", "evt_1", "{\"type\":\"video.failed\"}", true); /* the first one counts */
    posted(w, "other", "evt_1", "{}", false); /* ids are the sender's own */
    assert_int_equal(lines(w, "openai", "event_seq"), 1);
    shows(w, "openai", "\"received\":1,\"waiting\":1");
    world_ok(inbound_next(w->tasks, "openai", NULL, 0, &event, &err), &err);
    assert_string_equal(event.body, BODY);
    world_ok(inbound_handled(w->tasks, event.event_seq, &err), &err);
    posted(w, "openai", "evt_1", BODY, true); /* also when it was handled */
    shows(w, "openai", "\"received\":1,\"waiting\":0");
}

static void test_inbound_accept_refuses(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    bool repeated = false;
    char id[16];
    add(w, "openai");
    assert_int_equal(post(w, "openai", "a", "", &repeated), RL_MALFORMED_JSON);
    assert_int_equal(post(w, "openai", "a", "{\"a\":1,\"a\":2}", &repeated), RL_MALFORMED_JSON);
    assert_int_equal(post(w, "openai", "a", "[1]", &repeated), RL_INVALID_FIELD);
    assert_int_equal(post(w, "nobody", "a", "{}", &repeated), RL_UNAUTHORIZED);
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof id, "evt_%d", i);
        posted(w, "openai", id, "{}", false);
    }
    assert_int_equal(post(w, "openai", "evt_20", "{}", &repeated), RL_QUEUE_FULL);
    posted(w, "openai", "evt_19", "{}", true); /* a repeat needs no room */
    shows(w, "openai", "\"received\":20,\"waiting\":20");
    AUTO_EVENT struct inbound_event event = {0};
    world_ok(inbound_next(w->tasks, "openai", NULL, 0, &event, &err), &err);
    world_ok(inbound_handled(w->tasks, event.event_seq, &err), &err);
    posted(w, "openai", "evt_20", "{}", false);
}

static void test_inbound_accept_source_removed_meanwhile(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    bool repeated = false;
    const struct rl_webhook hook = {.id = "evt_1", .body = "{}", .body_len = 2};
    add(w, "openai");
    int64_t id = hook_id(w, "openai");
    posted(w, "openai", "evt_0", "{}", false);
    world_ok(inbound_source_delete(w->tasks, "openai", &err), &err);
    assert_int_equal(inbound_accept(w->tasks, "openai", id, &hook, &repeated, &err),
                     RL_UNAUTHORIZED);
    add(w, "openai"); /* a new source of that name knows nothing of the old one's events */
    assert_int_not_equal(hook_id(w, "openai"), id);
    assert_int_equal(lines(w, "openai", "event_seq"), 0);
    posted(w, "openai", "evt_0", "{}", false);
}

static void test_inbound_accept_what_it_is_about(void **state)
{
    static const struct {
        const char *body, *about, *type;
    } cases[] = {
        {BODY, "video_1", "video.completed"},
        {"{\"type\":\"task.succeeded\",\"task_id\":\"42\",\"id\":\"x\"}", "42", "task.succeeded"},
        {"{\"id\":\"evt\",\"data\":{\"id\":\"v\",\"task_id\":\"t\"}}", "t", NULL},
        {"{\"id\":\"video_9\",\"object\":\"video\"}", "video_9", NULL},
        {"{\"type\":7,\"task_id\":42,\"data\":[],\"id\":\"\"}", NULL, NULL},
        {"{}", NULL, NULL},
    };
    struct world *w = *state;
    struct rl_err err;
    char id[16];
    int64_t after = 0;
    add(w, "openai");
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        AUTO_EVENT struct inbound_event event = {0};
        snprintf(id, sizeof id, "evt_%zu", i);
        posted(w, "openai", id, cases[i].body, false);
        world_ok(inbound_next(w->tasks, "openai", NULL, after, &event, &err), &err);
        after = event.event_seq;
        assert_string_equal(event.event_id, id);
        if (cases[i].about)
            assert_string_equal(event.correlation_id, cases[i].about);
        else
            assert_null(event.correlation_id);
        if (cases[i].type)
            assert_string_equal(event.type, cases[i].type);
        else
            assert_null(event.type);
    }
}

struct racer {
    struct world *w;
    int64_t hook_id;
    pthread_barrier_t *gate;
    char body[64];
    enum rl_rc rc;
    bool repeated;
};

static void *race(void *arg)
{
    struct racer *r = arg;
    const struct rl_webhook hook = {.id = "evt_race", .body = r->body, .body_len = strlen(r->body)};
    (void)pthread_barrier_wait(r->gate);
    r->rc = inbound_accept(r->w->tasks, "openai", r->hook_id, &hook, &r->repeated, NULL);
    return NULL;
}

static void test_inbound_accept_race_has_one_winner(void **state)
{
    enum { RACERS = 50 };
    struct world *w = *state;
    struct rl_err err;
    struct racer racers[RACERS];
    pthread_t threads[RACERS];
    pthread_barrier_t gate;
    const char *won = NULL;
    AUTO_EVENT struct inbound_event event = {0};
    add(w, "openai");
    pthread_barrier_init(&gate, NULL, RACERS);
    for (int i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){.w = w, .hook_id = hook_id(w, "openai"), .gate = &gate};
        snprintf(racers[i].body, sizeof racers[i].body, "{\"task_id\":\"%d\"}", i);
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(racers[i].rc, RL_OK);
        if (racers[i].repeated)
            continue;
        assert_null(won);
        won = racers[i].body;
    }
    pthread_barrier_destroy(&gate);
    assert_non_null(won);
    assert_int_equal(lines(w, "openai", "event_seq"), 1);
    shows(w, "openai", "\"received\":1,\"waiting\":1");
    world_ok(inbound_next(w->tasks, "openai", NULL, 0, &event, &err), &err);
    assert_string_equal(event.body, won);
}

/* ---- handing out ---- */

static void test_inbound_next_in_order_until_handled(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    AUTO_EVENT struct inbound_event a = {0}, b = {0}, c = {0};
    add(w, "openai");
    assert_int_equal(inbound_next(w->tasks, "openai", NULL, 0, &a, &err), RL_NOT_FOUND);
    assert_int_equal(inbound_next(w->tasks, "nobody", NULL, 0, &a, &err), RL_NOT_FOUND);
    posted(w, "openai", "1", "{\"task_id\":\"a\"}", false);
    posted(w, "openai", "2", "{\"task_id\":\"b\"}", false);
    posted(w, "openai", "3", "{\"task_id\":\"a\"}", false);
    world_ok(inbound_next(w->tasks, "openai", "a", 0, &a, &err), &err);
    assert_string_equal(a.event_id, "1");
    world_ok(inbound_next(w->tasks, "openai", "a", a.event_seq, &b, &err), &err);
    assert_string_equal(b.event_id, "3");
    assert_int_equal(inbound_next(w->tasks, "openai", "a", b.event_seq, &c, &err), RL_NOT_FOUND);
    world_ok(inbound_handled(w->tasks, a.event_seq, &err), &err);
    world_ok(inbound_handled(w->tasks, a.event_seq, &err), &err); /* once more changes nothing */
    world_ok(inbound_next(w->tasks, "openai", "a", 0, &c, &err), &err);
    assert_string_equal(c.event_id, "3");
    inbound_event_clear(&c);
    world_ok(inbound_next(w->tasks, "openai", NULL, 0, &c, &err), &err);
    assert_string_equal(c.event_id, "2");
    assert_int_equal(lines(w, "openai", "\"handled_at\":null"), 2);
    assert_int_equal(lines(w, "openai", "\"body\":null"), 1);
}

static void test_inbound_survives_a_restart(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    AUTO_EVENT struct inbound_event event = {0}, again = {0};
    add(w, "openai");
    posted(w, "openai", "1", "{}", false);
    posted(w, "openai", "2", BODY, false);
    world_ok(inbound_next(w->tasks, "openai", NULL, 0, &event, &err), &err);
    world_ok(inbound_handled(w->tasks, event.event_seq, &err), &err);
    world_close(w);
    world_open(w);
    posted(w, "openai", "1", "{}", true);
    posted(w, "openai", "2", BODY, true);
    world_ok(inbound_wait(w->tasks, "openai", "video_1", 0, 10000, &again, &err), &err);
    assert_string_equal(again.event_id, "2");
    assert_string_equal(again.body, BODY);
}

struct waiter {
    struct world *w;
    const char *about;
    struct inbound_event event;
    enum rl_rc rc;
    int64_t waited_ms;
};

static void *wait_for_event(void *arg)
{
    struct waiter *x = arg;
    int64_t began = rl_mono_ms();
    x->rc = inbound_wait(x->w->tasks, "openai", x->about, 0, 20000, &x->event, NULL);
    x->waited_ms = rl_mono_ms() - began;
    return NULL;
}

static void test_inbound_wait_wakes_whom_it_concerns(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    pthread_t threads[2];
    struct waiter waiters[2] = {{.w = w, .about = "a"}, {.w = w, .about = "b"}};
    AUTO_EVENT struct inbound_event none = {0};
    add(w, "openai");
    int64_t began = rl_mono_ms();
    assert_int_equal(inbound_wait(w->tasks, "openai", NULL, 0, 60, &none, &err), RL_NOT_FOUND);
    assert_true(rl_mono_ms() - began >= 60);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_event, &waiters[i]), 0);
    posted(w, "openai", "1", "{\"task_id\":\"b\"}", false);
    pthread_join(threads[1], NULL);
    posted(w, "openai", "2", "{\"task_id\":\"a\"}", false);
    pthread_join(threads[0], NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(waiters[i].rc, RL_OK);
        assert_string_equal(waiters[i].event.correlation_id, waiters[i].about);
        assert_true(waiters[i].waited_ms < 15000);
        inbound_event_clear(&waiters[i].event);
    }
}

/* ---- the list and retention ---- */

static void test_inbound_event_list_pages(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    char id[8], next[32];
    AUTO_BUF struct rl_buf out = {0};
    struct page_query page = {.limit = 2};
    rl_buf_init(&out, 1 << 20);
    add(w, "openai");
    for (int i = 1; i <= 3; i++) {
        snprintf(id, sizeof id, "e%d", i);
        posted(w, "openai", id, BODY, false);
    }
    world_ok(inbound_event_list(w->tasks, "openai", &page, false, &out, &err), &err);
    assert_true(strstr(out.data, "e3") && strstr(out.data, "e2") && !strstr(out.data, "\"e1\""));
    assert_int_equal(sscanf(strstr(out.data, "\"next\":"), "\"next\":\"%31[0-9]", next), 1);
    page.after = strtoll(next, NULL, 10);
    rl_buf_clear(&out);
    world_ok(inbound_event_list(w->tasks, "openai", &page, false, &out, &err), &err);
    assert_true(strstr(out.data, "\"e1\"") && !strstr(out.data, "e2"));
    assert_non_null(strstr(out.data, "\"next\":null"));
    rl_buf_clear(&out);
    page = (struct page_query){.limit = 200, .ascending = true};
    world_ok(inbound_event_list(w->tasks, "openai", &page, false, &out, &err), &err);
    assert_true(strstr(out.data, "\"e1\"") < strstr(out.data, "\"e3\""));
    assert_int_equal(inbound_event_list(w->tasks, "nobody", &page, false, &out, &err),
                     RL_NOT_FOUND);
}

static void age(struct world *w, const char *update)
{
    sqlite3 *db = NULL;
    char path[128];
    world_close(w);
    snprintf(path, sizeof path, "%s/reeld.db", w->dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, update, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    world_open(w);
}

static void test_inbound_retention(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    char id[8];
    add(w, "openai");
    for (int i = 1; i <= 8; i++) {
        snprintf(id, sizeof id, "e%d", i);
        posted(w, "openai", id, "{}", false);
    }
    assert_false(
        retain_hooks(w->tasks)); /* more than retain.hook_events, but nobody handled them */
    for (int64_t seq = 2; seq <= 8; seq++)
        world_ok(inbound_handled(w->tasks, seq, &err), &err);
    assert_true(retain_hooks(w->tasks));
    assert_false(retain_hooks(w->tasks));
    assert_int_equal(lines(w, "openai", "event_seq"), 5); /* e1, and e5 to e8 */
    posted(w, "openai", "e8", "{}", true);
    posted(w, "openai", "e1", "{}", true);

    age(w, "UPDATE processed_event SET received_at = received_at - 31 * 86400000"
           " WHERE event_id IN ('e1', 'e6')");
    assert_true(retain_hooks(w->tasks));
    assert_int_equal(lines(w, "openai", "event_seq"), 3);
    assert_int_equal(lines(w, "openai", "\"e1\"") + lines(w, "openai", "\"e6\""), 0);
}

/* Aged events that nobody handled go first: the handled ones are not looked for among them. */
static void test_inbound_retention_of_a_backlog(void **state)
{
    struct world *w = *state;
    add(w, "openai");
    age(w,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 601)"
        " INSERT INTO processed_event(hook_id, event_id, received_at, body_hash, body, handled_at)"
        " SELECT hook_id, 'e' || i, i, x'00', x'', i > 600 FROM n, hook");
    assert_true(retain_hooks(w->tasks));
    assert_int_equal(lines(w, "openai", "event_seq"), 101);
    assert_int_equal(lines(w, "openai", "\"e601\""), 1);
    assert_true(retain_hooks(w->tasks));
    assert_int_equal(lines(w, "openai", "event_seq"), 0);
    assert_false(retain_hooks(w->tasks));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_inbound_source_valid),
        TEST(test_inbound_source_life),
        TEST(test_inbound_rotate_two_secrets),
        TEST(test_inbound_judge_unknown_and_disabled),
        TEST(test_inbound_accept_repeat_changes_nothing),
        TEST(test_inbound_accept_refuses),
        TEST(test_inbound_accept_source_removed_meanwhile),
        TEST(test_inbound_accept_what_it_is_about),
        TEST(test_inbound_accept_race_has_one_winner),
        TEST(test_inbound_next_in_order_until_handled),
        TEST(test_inbound_survives_a_restart),
        TEST(test_inbound_wait_wakes_whom_it_concerns),
        TEST(test_inbound_event_list_pages),
        TEST(test_inbound_retention),
        TEST(test_inbound_retention_of_a_backlog),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
