/* Many exchanges at once: one bad peer delays nobody, a wake ends a wait, names that change or do
 * not resolve. The test stands in for getaddrinfo to own what names resolve to. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <netdb.h>
#include <time.h>

#include "base/clock.h"
#include "net/net.h"
#include "net_server.h"

/* The names the stand-in knows: slow.test blocks until the gate opens; rebind.test resolves to
 * 192.0.2.1 the first time and to 127.0.0.1 afterwards; both.test to 192.0.2.1 and 127.0.0.1. */
static struct {
    pthread_mutex_t mutex; /* guards: open, waiting, returned, rebinds */
    pthread_cond_t changed;
    bool open;
    int waiting;
    int returned;
    int rebinds;
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

typedef int (*resolve_fn)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *restrict name, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict ret)
{
    resolve_fn real = NULL;
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");

    memcpy(&real, &symbol, sizeof real);
    if (name && strcmp(name, "slow.test") == 0) {
        (void)pthread_mutex_lock(&gate.mutex);
        gate.waiting++;
        (void)pthread_cond_broadcast(&gate.changed);
        while (!gate.open)
            (void)pthread_cond_wait(&gate.changed, &gate.mutex);
        gate.returned++;
        (void)pthread_cond_broadcast(&gate.changed);
        (void)pthread_mutex_unlock(&gate.mutex);
        return EAI_NONAME;
    }
    if (name && strcmp(name, "rebind.test") == 0) {
        (void)pthread_mutex_lock(&gate.mutex);
        bool first = gate.rebinds++ == 0;
        (void)pthread_mutex_unlock(&gate.mutex);
        return real(first ? "192.0.2.1" : "127.0.0.1", service, hints, ret);
    }
    if (name && strcmp(name, "both.test") == 0) {
        struct addrinfo *more = NULL;
        int rc = real("192.0.2.1", service, hints, ret);
        if (rc == 0)
            rc = real("127.0.0.1", service, hints, &more);
        if (rc == 0)
            (*ret)->ai_next = more;
        return rc;
    }
    return real(name, service, hints, ret);
}

static void serve(struct net_server *s, int fd, const char *request)
{
    if (strstr(request, " /hole"))
        (void)net_server_hold(s, fd, -1);
    else if (strstr(request, " /keep")) /* as a server that keeps connections alive */
        while (net_server_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) {
            char again[4096];
            if (!net_server_read(fd, again, sizeof again))
                break;
        }
    else
        (void)net_server_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
}

struct fixture {
    struct net_server *server;
    struct net_multi *multi;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    f->server = net_server_start(serve);
    f->multi = net_multi_new();
    *state = f;
    return f->multi ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    net_multi_free(f->multi);
    net_server_stop(f->server);
    free(f);
    return 0;
}

struct outcome {
    int calls;
    enum rl_rc rc;
    int status;
    char body[8];
    char ip[64];
    int64_t at_ms;
};

static void on_done(void *user, struct net_response *response)
{
    struct outcome *o = user;

    o->calls++;
    o->rc = response->rc;
    o->status = response->status;
    (void)snprintf(o->body, sizeof o->body, "%.7s", response->body ? response->body : "");
    (void)rl_copy_str(o->ip, sizeof o->ip, response->ip);
    o->at_ms = rl_mono_ms();
}

static void add(struct fixture *f, const char *host, const char *path, int64_t timeout_ms,
                net_allow_fn allow, struct outcome *o)
{
    char url[128];
    struct net_request request = {.method = "GET",
                                  .url = url,
                                  .timeout_ms = timeout_ms,
                                  .response_limit = 16,
                                  .allow = allow};

    (void)snprintf(url, sizeof url, "http://%s:%d%s", host, f->server->port, path);
    assert_int_equal(net_multi_add(f->multi, &request, on_done, o, NULL), RL_OK);
    memset(url, 'x', sizeof url); /* everything was copied */
}

static void drain(struct fixture *f)
{
    int64_t give_up = rl_mono_ms() + 30000;

    while (net_multi_active(f->multi) > 0 && rl_mono_ms() < give_up)
        net_multi_poll(f->multi, 1000);
    assert_int_equal(net_multi_active(f->multi), 0);
}

static void test_net_multi_black_hole_delays_nobody(void **state)
{
    struct fixture *f = *state;
    struct outcome hole = {0};
    struct outcome good[39] = {0};
    int64_t give_up = rl_mono_ms() + 30000;

    add(f, "127.0.0.1", "/hole", 0, NULL, &hole);
    for (size_t i = 0; i < RL_ARRAY_LEN(good); i++)
        add(f, "127.0.0.1", "/", 20000, NULL, &good[i]);
    assert_int_equal(net_multi_active(f->multi), 40);
    while (net_multi_active(f->multi) > 1 && rl_mono_ms() < give_up)
        net_multi_poll(f->multi, 1000);
    for (size_t i = 0; i < RL_ARRAY_LEN(good); i++) {
        assert_int_equal(good[i].calls, 1);
        assert_int_equal(good[i].rc, RL_OK);
        assert_int_equal(good[i].status, 200);
        assert_string_equal(good[i].body, "ok");
    }
    assert_int_equal(hole.calls, 0); /* and the teardown aborts it without a call */
    assert_int_equal(net_server_accepted(f->server), 40); /* no connection was shared */
}

static void test_net_multi_timeout(void **state)
{
    struct fixture *f = *state;
    struct outcome hole = {0};
    int64_t start = rl_mono_ms();

    add(f, "127.0.0.1", "/hole", 150, NULL, &hole);
    drain(f);
    assert_int_equal(hole.calls, 1);
    assert_int_equal(hole.rc, RL_REQUEST_TIMEOUT);
    assert_in_range(hole.at_ms - start, 140, 10000);
}

/* A name that does not resolve in time must not hold up the others when its time is over. */
static void test_net_multi_slow_resolver_delays_nobody(void **state)
{
    struct fixture *f = *state;
    struct outcome slow = {0};
    struct outcome good = {0};

    add(f, "slow.test", "/", 100, NULL, &slow);
    add(f, "127.0.0.1", "/", 20000, NULL, &good);
    drain(f); /* with the gate closed: a join of the resolver thread would never end */
    assert_int_equal(slow.rc, RL_REQUEST_TIMEOUT);
    assert_string_equal(slow.ip, "");
    assert_int_equal(good.rc, RL_OK);

    (void)pthread_mutex_lock(&gate.mutex);
    gate.open = true;
    (void)pthread_cond_broadcast(&gate.changed);
    while (gate.returned < gate.waiting)
        (void)pthread_cond_wait(&gate.changed, &gate.mutex);
    (void)pthread_mutex_unlock(&gate.mutex);
}

static bool not_loopback(void *user, const struct sockaddr *addr)
{
    (void)user;
    return !net_addr_is_loopback(addr);
}

static bool only_loopback(void *user, const struct sockaddr *addr)
{
    (void)user;
    return net_addr_is_loopback(addr);
}

static void test_net_multi_rebinding_name_is_refused(void **state)
{
    struct fixture *f = *state;
    struct outcome o = {0};
    struct addrinfo *checked = NULL;
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};

    /* the check of a careless caller sees the harmless address … */
    assert_int_equal(getaddrinfo("rebind.test", "80", &hints, &checked), 0);
    assert_true(not_loopback(NULL, checked->ai_addr));
    freeaddrinfo(checked);
    /* … and the dial meets the other one */
    add(f, "rebind.test", "/", 20000, not_loopback, &o);
    drain(f);
    assert_int_equal(o.rc, RL_ADDRESS_REFUSED);
    assert_int_equal(net_server_accepted(f->server), 0);
}

static void test_net_multi_goes_on_to_allowed_address(void **state)
{
    struct fixture *f = *state;
    struct outcome o = {0};

    add(f, "both.test", "/", 20000, only_loopback, &o);
    drain(f);
    assert_int_equal(o.rc, RL_OK);
    assert_int_equal(o.status, 200);
    assert_string_equal(o.ip, "127.0.0.1");
}

/* Refusing one address must not hide that the other one is down: that may be better later. */
static void test_net_multi_refused_and_down_is_down(void **state)
{
    struct fixture *f = *state;
    struct outcome o = {0};
    char url[64];
    struct net_request request = {
        .method = "GET", .url = url, .timeout_ms = 20000, .allow = only_loopback};

    (void)snprintf(url, sizeof url, "http://both.test:%d/", net_server_closed_port());
    assert_int_equal(net_multi_add(f->multi, &request, on_done, &o, NULL), RL_OK);
    drain(f);
    assert_int_equal(o.rc, RL_NETWORK_ERROR);
}

/* A policy that has become stricter bites at once: no connection outlives its exchange. */
static void test_net_multi_never_reuses_a_connection(void **state)
{
    struct fixture *f = *state;
    struct outcome o[3] = {0};

    for (size_t i = 0; i < 2; i++) {
        add(f, "127.0.0.1", "/keep", 20000, only_loopback, &o[i]);
        drain(f);
        assert_int_equal(o[i].status, 200);
    }
    assert_int_equal(net_server_accepted(f->server), 2);
    add(f, "127.0.0.1", "/keep", 20000, not_loopback, &o[2]);
    drain(f);
    assert_int_equal(o[2].rc, RL_ADDRESS_REFUSED);
}

static void test_net_multi_bad_request_adds_nothing(void **state)
{
    struct fixture *f = *state;
    const char *headers[] = {"X: a\r\nY: b", NULL};
    struct rl_err err = {0};
    struct net_request request = {
        .method = "GET", .url = "http://127.0.0.1/", .headers = headers, .timeout_ms = 1000};

    assert_int_equal(net_multi_add(f->multi, &request, on_done, NULL, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "headers");
    assert_int_equal(net_multi_active(f->multi), 0);
}

struct chain {
    struct fixture *fixture;
    int left;
};

static void on_link(void *user, struct net_response *response)
{
    struct chain *c = user;
    char url[64];
    struct net_request request = {.method = "GET", .url = url, .timeout_ms = 20000};

    assert_int_equal(response->rc, RL_OK);
    if (--c->left == 0)
        return;
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/", c->fixture->server->port);
    assert_int_equal(net_multi_add(c->fixture->multi, &request, on_link, c, NULL), RL_OK);
}

static void test_net_multi_done_may_add(void **state)
{
    struct fixture *f = *state;
    struct chain c = {.fixture = f, .left = 6};
    struct net_response first = {.rc = RL_OK};

    on_link(&c, &first);
    drain(f);
    assert_int_equal(c.left, 0);
}

static void *wake_when_waiting(void *arg)
{
    struct timespec soon = {.tv_nsec = 50 * 1000 * 1000}; /* the poll has most likely begun */

    (void)nanosleep(&soon, NULL);
    net_multi_wake(arg);
    return NULL;
}

static void test_net_multi_wake_ends_wait(void **state)
{
    struct fixture *f = *state;
    struct outcome hole = {0};
    pthread_t thread;
    int64_t start = rl_mono_ms();

    for (int busy = 0; busy <= 1; busy++) { /* idle, and with a transfer under way */
        if (busy)
            add(f, "127.0.0.1", "/hole", 0, NULL, &hole);
        for (int i = 0; busy && i < 50 && net_server_accepted(f->server) == 0; i++)
            net_multi_poll(f->multi, 20); /* until the connection stands */
        assert_int_equal(pthread_create(&thread, NULL, wake_when_waiting, f->multi), 0);
        net_multi_poll(f->multi, 60000);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_true(rl_mono_ms() - start < 30000);
}

static void test_net_multi_wake_before_poll_counts(void **state)
{
    struct fixture *f = *state;
    int64_t start = rl_mono_ms();

    net_multi_wake(f->multi);
    net_multi_wake(f->multi);
    net_multi_poll(f->multi, 60000);
    assert_true(rl_mono_ms() - start < 30000);
}

static void *wake_often(void *arg)
{
    for (int i = 0; i < 2000; i++)
        net_multi_wake(arg);
    return NULL;
}

static void test_net_multi_wakes_from_threads_while_driving(void **state)
{
    struct fixture *f = *state;
    struct outcome good[20] = {0};
    pthread_t threads[3];

    for (size_t i = 0; i < RL_ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wake_often, f->multi), 0);
    for (size_t i = 0; i < RL_ARRAY_LEN(good); i++)
        add(f, "127.0.0.1", "/", 20000, NULL, &good[i]);
    drain(f);
    for (size_t i = 0; i < RL_ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < RL_ARRAY_LEN(good); i++)
        assert_int_equal(good[i].status, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_net_multi_black_hole_delays_nobody),
        TEST(test_net_multi_timeout),
        TEST(test_net_multi_slow_resolver_delays_nobody),
        TEST(test_net_multi_rebinding_name_is_refused),
        TEST(test_net_multi_goes_on_to_allowed_address),
        TEST(test_net_multi_refused_and_down_is_down),
        TEST(test_net_multi_never_reuses_a_connection),
        TEST(test_net_multi_bad_request_adds_nothing),
        TEST(test_net_multi_done_may_add),
        TEST(test_net_multi_wake_ends_wait),
        TEST(test_net_multi_wake_before_poll_counts),
        TEST(test_net_multi_wakes_from_threads_while_driving),
#undef TEST
    };
    struct rl_err err = {0};

    if (net_init(&err)) {
        (void)fprintf(stderr, "%s\n", err.reason);
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    net_cleanup();
    return failed;
}
