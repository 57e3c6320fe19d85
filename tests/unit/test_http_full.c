/* A disk without room, over every route that changes something: what makes rows that stay is
 * refused, what frees room or ends work is not, whether free space is merely short or the ballast
 * is gone. A route that is in neither list fails the test. */
#include "http_world.h"
#include "base/webhook.h"
#include "http/router.h"
#include "store/internal.h"
#include "task/internal.h"

#include <string.h>

/* What must be there before the disk is full. */
struct scene {
    struct server *s;
    char dead[32], queued[32], endpoint[32], key[32], delivery[32], lease[64], event[32];
    char secret[RL_WEBHOOK_SECRET];
};

/* The text of a member "name":"…" of an answer. */
static void member(struct answer a, const char *name, char *text, size_t size)
{
    char start[64];
    snprintf(start, sizeof(start), "\"%s\":\"", name);
    const char *at = a.body ? strstr(a.body, start) : NULL;
    if (!at)
        fail_msg("%d, no %s: %s", a.status, name, a.body ? a.body : "");
    at += strlen(start);
    assert_true(snprintf(text, size, "%.*s", (int)strcspn(at, "\""), at) < (int)size);
    answer_free(&a);
}

static struct answer ask(struct server *s, const char *method, const char *path, const char *body)
{
    return call_as(s, s->owner, method, path, body ? JSON_TYPE : NULL, body);
}

/* A signed event of the source. */
static struct answer post_event(struct scene *c, const char *id)
{
    char head[512], signature[RL_WEBHOOK_SIGNATURE];
    int64_t now = rl_wall_ms() / 1000;
    assert_int_equal(rl_webhook_sign(c->secret, id, now, "{}", 2, signature, NULL), RL_OK);
    snprintf(head, sizeof(head),
             JSON_TYPE "webhook-id: %s\r\nwebhook-timestamp: %lld\r\nwebhook-signature: %s\r\n", id,
             (long long)now, signature);
    return call_as(c->s, NULL, "POST", "/api/v1/hooks/svc", head, "{}");
}

static void prepare(struct server *s, struct scene *c)
{
    char path[128];
    *c = (struct scene){.s = s};
    make_failed(s, path, sizeof(path));
    snprintf(c->dead, sizeof(c->dead), "%lld", (long long)path_id(path));
    submit(s, JSON_TYPE, path, sizeof(path));
    snprintf(c->queued, sizeof(c->queued), "%lld", (long long)path_id(path));
    member(ask(s, "POST", "/api/v1/endpoints", "{\"url\":\"https://93.184.215.14/x\"}"),
           "endpoint_id", c->endpoint, sizeof(c->endpoint));
    snprintf(path, sizeof(path), "/api/v1/endpoints/%s/test", c->endpoint);
    member(ask(s, "POST", path, NULL), "delivery_id", c->delivery, sizeof(c->delivery));
    member(ask(s, "POST", "/api/v1/keys", "{\"user\":\"eve\"}"), "key_id", c->key, sizeof(c->key));
    member(ask(s, "POST", "/api/v1/hooks", "{\"source\":\"svc\"}"), "secret", c->secret,
           sizeof(c->secret));
    expect(post_event(c, "evt_1"), 202, NULL);
    member(ask(s, "GET", "/api/v1/hooks/svc/events", NULL), "event_seq", c->event,
           sizeof(c->event));
    expect(ask(s, "PUT", "/api/v1/feeds/all", NULL), 201, NULL);
    member(ask(s, "GET", "/api/v1/feeds/all?max=2", NULL), "lease", c->lease, sizeof(c->lease));
}

enum kind {
    MAKES,   /* 507 */
    PASSES,  /* 2xx */
    ANOTHER, /* a case of its own below, or it writes nothing */
};

/* In this order; %s is the one of the scene. */
static const struct {
    const char *method, *pattern;
    enum kind kind;
    size_t field; /* offset of the path's parameter, or of the body's one */
    const char *path, *body;
} cases[] = {
#define OF(name) offsetof(struct scene, name)
    {"POST", "/api/v1/tasks", MAKES, 0, "/api/v1/tasks", "{\"prompt\":\"new\"}"},
    {"POST", "/api/v1/dead-letters/{id}/replay", MAKES, OF(dead), "/api/v1/dead-letters/%s/replay",
     NULL},
    {"POST", "/api/v1/dead-letters/replay", ANOTHER, 0, NULL, NULL},
    {"POST", "/api/v1/endpoints", MAKES, 0, "/api/v1/endpoints",
     "{\"url\":\"https://93.184.215.14/y\"}"},
    {"POST", "/api/v1/endpoints/{id}/test", MAKES, OF(endpoint), "/api/v1/endpoints/%s/test", NULL},
    {"PUT", "/api/v1/feeds/{name}", MAKES, 0, "/api/v1/feeds/another", NULL},
    {"POST", "/api/v1/hooks/{source}", ANOTHER, 0, NULL, NULL},
    {"POST", "/api/v1/hooks", MAKES, 0, "/api/v1/hooks", "{\"source\":\"another\"}"},
    {"POST", "/api/v1/keys", MAKES, 0, "/api/v1/keys", "{\"user\":\"mallory\"}"},

    {"POST", "/api/v1/tasks/{id}/cancel", PASSES, OF(queued), "/api/v1/tasks/%s/cancel", NULL},
    {"DELETE", "/api/v1/dead-letters/{id}", PASSES, OF(dead), "/api/v1/dead-letters/%s", NULL},
    {"PATCH", "/api/v1/endpoints/{id}", PASSES, OF(endpoint), "/api/v1/endpoints/%s",
     "{\"description\":\"x\"}"},
    {"POST", "/api/v1/endpoints/{id}/rotate", PASSES, OF(endpoint), "/api/v1/endpoints/%s/rotate",
     NULL},
    {"POST", "/api/v1/endpoints/{id}/disable", PASSES, OF(endpoint), "/api/v1/endpoints/%s/disable",
     NULL},
    {"POST", "/api/v1/endpoints/{id}/enable", PASSES, OF(endpoint), "/api/v1/endpoints/%s/enable",
     NULL},
    {"POST", "/api/v1/deliveries/{id}/resend", PASSES, OF(delivery), "/api/v1/deliveries/%s/resend",
     NULL}, /* it was on its way anyhow; another is refused, see test_outbox_deliveries */
    {"POST", "/api/v1/deliveries/resend", ANOTHER, 0, NULL, NULL},
    {"DELETE", "/api/v1/endpoints/{id}", PASSES, OF(endpoint), "/api/v1/endpoints/%s", NULL},
    {"POST", "/api/v1/feeds/{name}/extend", PASSES, OF(lease), "/api/v1/feeds/all/extend",
     "{\"lease\":\"%s\"}"},
    {"POST", "/api/v1/feeds/{name}/ack", PASSES, OF(lease), "/api/v1/feeds/all/ack",
     "{\"lease\":\"%s\"}"},
    {"POST", "/api/v1/feeds/{name}/seek", PASSES, 0, "/api/v1/feeds/all/seek",
     "{\"from\":\"latest\"}"},
    {"DELETE", "/api/v1/feeds/{name}", PASSES, 0, "/api/v1/feeds/all", NULL},
    {"PATCH", "/api/v1/hooks/{source}", PASSES, 0, "/api/v1/hooks/svc", "{\"enabled\":false}"},
    {"POST", "/api/v1/hooks/{source}/rotate", PASSES, 0, "/api/v1/hooks/svc/rotate", NULL},
    {"POST", "/api/v1/hooks/{source}/events/handled", PASSES, OF(event),
     "/api/v1/hooks/svc/events/handled", "{\"event_seqs\":[\"%s\"]}"},
    {"DELETE", "/api/v1/hooks/{source}", PASSES, 0, "/api/v1/hooks/svc", NULL},
    {"POST", "/api/v1/queues/{name}/pause", PASSES, 0, "/api/v1/queues/default/pause", NULL},
    {"POST", "/api/v1/queues/{name}/drain", PASSES, 0, "/api/v1/queues/default/drain", NULL},
    {"POST", "/api/v1/queues/{name}/resume", PASSES, 0, "/api/v1/queues/default/resume", NULL},
    {"POST", "/api/v1/repair", PASSES, 0, "/api/v1/repair?dry_run=false", NULL},
    {"DELETE", "/api/v1/keys/{id}", PASSES, OF(key), "/api/v1/keys/%s", NULL},

    {"POST", "/api/v1/tasks/{id}/link", ANOTHER, 0, NULL, NULL},
    {"POST", "/api/v1/session", ANOTHER, 0, NULL, NULL},
    {"DELETE", "/api/v1/session", ANOTHER, 0, NULL, NULL},
    {"POST", "/api/v1/session/link", ANOTHER, 0, NULL, NULL},
#undef OF
};

static void run_case(struct scene *c, size_t i)
{
    char path[256], body[256];
    const char *text = (const char *)c + cases[i].field;
    if (cases[i].kind == ANOTHER)
        return;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(path, sizeof(path), cases[i].path, text);
    if (cases[i].body)
        snprintf(body, sizeof(body), cases[i].body, text);
#pragma GCC diagnostic pop
    struct answer a = ask(c->s, cases[i].method, path, cases[i].body ? body : NULL);
    bool right = cases[i].kind == MAKES ? a.status == 507 && strstr(a.body, "\"DISK_FULL\"")
                                        : a.status >= 200 && a.status < 300;
    if (!right)
        fail_msg("%s %s: %d %s", cases[i].method, path, a.status, a.body ? a.body : "");
    answer_free(&a);
}

static void check_all(struct scene *c)
{
    expect(post_event(c, "evt_2"), 507, "DISK_FULL"); /* the sender tries again */
    expect(post_event(c, "evt_1"), 200, "\"repeated\":true");
    char many[64];
    snprintf(many, sizeof(many), "{\"task_ids\":[\"%s\"]}", c->dead);
    expect(ask(c->s, "POST", "/api/v1/dead-letters/replay", many), 200, "\"code\":\"DISK_FULL\"");
    expect(ask(c->s, "PUT", "/api/v1/feeds/all", NULL), 200, NULL); /* it is there already */
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++)
        run_case(c, i);
}

static void test_too_little_space(void **state)
{
    struct server *s = *state;
    struct scene c;
    prepare(s, &c);
    set(s, "store.min_free_bytes", "1099511627776");
    check_all(&c);
    set(s, "store.min_free_bytes", "0");
}

static void test_ballast_gone(void **state)
{
    struct server *s = *state;
    struct scene c;
    prepare(s, &c);
    set(s, "store.min_free_bytes", "1099511627776"); /* nothing heals */
    atomic_store(&s->store->disk_full, true);
    check_all(&c);
    set(s, "store.min_free_bytes", "0");
    atomic_store(&s->store->disk_full, false);
}

static void test_every_route_that_changes_something_is_judged(void **state)
{
    (void)state;
    size_t count = 0;
    const struct route *routes = http_routes(&count);
    for (size_t r = 0; r < count; r++) {
        bool found = strcmp(routes[r].method, "GET") == 0;
        for (size_t i = 0; i < RL_ARRAY_LEN(cases) && !found; i++)
            found = strcmp(routes[r].method, cases[i].method) == 0 &&
                    strcmp(routes[r].pattern, cases[i].pattern) == 0;
        if (!found)
            fail_msg("what does %s %s do on a full disk?", routes[r].method, routes[r].pattern);
    }
}

int main(void)
{
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, server_start, server_end)
    const struct CMUnitTest tests[] = {
        WITH_SERVER(test_too_little_space),
        WITH_SERVER(test_ballast_gone),
        cmocka_unit_test(test_every_route_that_changes_something_is_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
