/* What the tests of endpoints share: a world with real tasks, receivers on loopback, the outbox,
 * and short ways to ask and to look. */
#ifndef TEST_OUTBOX_ENDPOINTS_H
#define TEST_OUTBOX_ENDPOINTS_H

#include "world.h"

#include <inttypes.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/webhook.h"
#include "net/net.h"
#include "outbox/outbox.h"
#include "test_outbox_receiver.h"

#define SOON_MS 10000

struct scene {
    struct world w;
    struct receiver *receiver;
    struct outbox *outbox;
    struct rl_buf out; /* the last answer */
};

static const struct caller app = {.user_id = "app", .key_id = 2};
static const struct run_result clip = {
    .file = "x.mp4", .bytes = 10, .sha256 = "00", .width = 64, .height = 64, .frames = 4, .fps = 8};

static inline int setup_with(void **state, const char *name, const char *value)
{
    static struct scene s;

    s = (struct scene){0};
    world_init(&s.w);
    world_set(&s.w, "callback.wait_ms", "20");
    world_set(&s.w, "callback.tries", "3");
    world_set(&s.w, "callback.timeout_ms", "1000");
    if (name)
        world_set(&s.w, name, value);
    world_open(&s.w);
    assert_non_null(s.receiver = receiver_new());
    rl_buf_init(&s.out, 8 << 20);
    *state = &s;
    return 0;
}

static inline int setup(void **state)
{
    return setup_with(state, NULL, NULL);
}

static inline void start(struct scene *s)
{
    struct rl_err err;

    world_ok(outbox_start(s->w.tasks, 1, &s->outbox, &err), &err);
}

static inline void stop(struct scene *s)
{
    outbox_stop(s->outbox, 0);
    s->outbox = NULL;
}

static inline int teardown(void **state)
{
    struct scene *s = *state;

    outbox_stop(s->outbox, 0);
    receiver_free(s->receiver);
    rl_buf_free(&s->out);
    world_end(&s->w);
    return 0;
}

/* A member of the last answer: "state", "stats.pending", "data.0.status", into value[512]. */
static inline const char *member(struct scene *s, const char *path)
{
    static char value[512];
    struct rl_err err;
    AUTO_JSON struct rl_json *root = NULL;

    world_ok(rl_json_parse(s->out.data, s->out.len, &root, &err), &err);
    const struct rl_json *v = root;
    while (*path && v) {
        char name[64];
        size_t len = strcspn(path, ".");
        (void)snprintf(name, sizeof name, "%.*s", (int)len, path);
        path += len + (path[len] == '.');
        if (name[0] >= '0' && name[0] <= '9') {
            v = rl_json_child(v);
            for (long i = strtol(name, NULL, 10); v && i > 0; i--)
                v = rl_json_next(v);
        } else {
            v = rl_json_get(v, name);
        }
    }
    if (!v)
        return "(absent)";
    if (rl_json_text(v))
        (void)snprintf(value, sizeof value, "%s", rl_json_text(v));
    else if (rl_json_type(v) == RL_JSON_NUMBER)
        (void)snprintf(value, sizeof value, "%.0f", rl_json_number(v));
    else
        (void)snprintf(value, sizeof value, "%s",
                       rl_json_type(v) == RL_JSON_NULL   ? "null"
                       : rl_json_type(v) == RL_JSON_BOOL ? (rl_json_is_true(v) ? "true" : "false")
                                                         : "(tree)");
    return value;
}

static inline size_t members(struct scene *s)
{
    AUTO_JSON struct rl_json *root = NULL;
    size_t n = 0;

    assert_int_equal(rl_json_parse(s->out.data, s->out.len, &root, NULL), RL_OK);
    for (const struct rl_json *v = rl_json_child(rl_json_get(root, "data")); v; v = rl_json_next(v))
        n++;
    return n;
}

/* Register this port for the caller; body members after the url. Returns the id. */
static inline int64_t endpoint(struct scene *s, const struct caller *caller, int port,
                               const char *more)
{
    char body[512];
    int64_t id = 0;
    struct rl_err err;

    (void)snprintf(body, sizeof body, "{\"url\":\"http://127.0.0.1:%d/hook?q=1\"%s}", port, more);
    rl_buf_clear(&s->out);
    world_ok(endpoint_create(s->w.tasks, caller, body, strlen(body), &s->out, &err), &err);
    const char *text = member(s, "endpoint_id");
    assert_true(task_id_parse(text, strlen(text), &id));
    return id;
}

static inline void look(struct scene *s, int64_t id)
{
    struct rl_err err;

    rl_buf_clear(&s->out);
    world_ok(endpoint_get(s->w.tasks, &owner, id, &s->out, &err), &err);
}

static inline void enable(struct scene *s, int64_t id, bool on)
{
    struct rl_err err;

    rl_buf_clear(&s->out);
    world_ok(endpoint_enable(s->w.tasks, &owner, id, on, &s->out, &err), &err);
}

/* A task of the owner that has SUCCEEDED; port 0: without a callback_url. Returns its id. */
static inline int64_t finished_task(struct scene *s, int port)
{
    char body[256], url[128] = "";
    struct rl_err err;

    if (port)
        (void)snprintf(url, sizeof url, ",\"callback_url\":\"http://127.0.0.1:%d/own\"", port);
    (void)snprintf(body, sizeof body, "{\"prompt\":\"a\",\"seed\":7,\"idempotency\":\"off\"%s}",
                   url);
    AUTO_TASK struct task *task = world_submit(&s->w, body);
    struct run *run = world_claim(&s->w);
    assert_non_null(run);
    world_ok(run_succeed(run, &clip, &err), &err);
    run_free(run);
    return task->task_id;
}

/* List deliveries into the last answer. statuses: mask; endpoint_id -1 = any. */
static inline size_t deliveries(struct scene *s, unsigned statuses, int64_t endpoint_id)
{
    struct page_query page = {.statuses = statuses, .limit = 200};
    struct rl_err err;

    rl_buf_clear(&s->out);
    world_ok(delivery_list(s->w.tasks, &owner, endpoint_id, &page, &s->out, &err), &err);
    return members(s);
}

#define MASK(status) (1u << DELIVERY_##status)

/* Wait until so many deliveries have one of these statuses. */
static inline void expect_deliveries(struct scene *s, unsigned statuses, int64_t endpoint_id,
                                     size_t count)
{
    int64_t until = rl_mono_ms() + SOON_MS;

    while (deliveries(s, statuses, endpoint_id) != count) {
        uint64_t tick = hub_tick(s->w.hub);
        if (rl_mono_ms() > until)
            fail_msg("%zu deliveries, want %zu: %s", members(s), count, s->out.data);
        (void)hub_wait(s->w.hub, NULL, tick, 10);
    }
}

/* Is the n-th signature of the request by this secret? */
static inline bool signed_by(const struct received *r, const char *secret, int n)
{
    char want[64];
    const char *at = r->signature;

    assert_int_equal(rl_webhook_sign(secret, r->id, strtoll(r->timestamp, NULL, 10), r->body,
                                     r->body_len, want, NULL),
                     RL_OK);
    while (n-- > 0 && at)
        at = (at = strchr(at, ' ')) ? at + 1 : NULL;
    return at && strncmp(at, want, strlen(want)) == 0 &&
           (at[strlen(want)] == '\0' || at[strlen(want)] == ' ');
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static inline int run_scenes(const struct CMUnitTest *tests, size_t n)
{
    rl_log_set_level(RL_LOG_ERROR);
    if (rl_crypto_init(NULL) || net_init(NULL))
        return 1;
    int failed = _cmocka_run_group_tests("endpoints", tests, n, NULL, NULL);
    net_cleanup();
    return failed;
}

#endif
