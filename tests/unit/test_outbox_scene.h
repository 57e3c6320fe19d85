/* What the tests of the outbox thread share: the real store, hub and network, scripted receivers on
 * loopback, and a stand-in for the task module. A whole task for every duty would say nothing more
 * here (test_outbox_task.c has them), and task_callback_result is where a test sees, and breaks,
 * the recording. Programs that include this link with -Wl,--wrap=store_write. */
#ifndef TEST_OUTBOX_SCENE_H
#define TEST_OUTBOX_SCENE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/webhook.h"
#include "config/config.h"
#include "events/events.h"
#include "net/net.h"
#include "net/policy.h"
#include "outbox/outbox.h"
#include "store/store.h"
#include "task/task.h"
#include "test_outbox_receiver.h"

#define SECRET   "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define OWN_PORT 1 /* no test listens there, but where it says so */
#define SOON_MS  10000

struct callback {
    int64_t task_id, round, tries;
    char status[16];
};

/* Stands in for the task module's context. */
struct tasks {
    char dir[64];
    struct config *cfg;
    struct store *store;
    struct hub *hub;
    struct net_policy *policy;
    struct receiver *receiver;
    struct outbox *outbox;
    sqlite3 *db;          /* read-only, to look at rows */
    pthread_mutex_t lock; /* guards: committed, n, poisoned */
    pthread_cond_t changed;
    struct callback committed[256];
    size_t n;
    int64_t poisoned;     /* recording this task fails */
    _Atomic int failing;  /* store_write(STORE_URGENT) fails that often; -1 = always */
    _Atomic int failures; /* how often it did */
};

static struct tasks *the_tasks; /* the wrapped store_write gets no context */

const struct config *tasks_config(const struct tasks *tasks)
{
    return tasks->cfg;
}

struct store *tasks_store(const struct tasks *tasks)
{
    return tasks->store;
}

struct net_policy *tasks_policy(const struct tasks *tasks)
{
    return tasks->policy;
}

struct hub *tasks_hub(const struct tasks *tasks)
{
    return tasks->hub;
}

static inline void on_commit(void *ctx, void *arg)
{
    struct tasks *t = ctx;

    (void)pthread_mutex_lock(&t->lock);
    if (t->n < RL_ARRAY_LEN(t->committed))
        t->committed[t->n++] = *(struct callback *)arg;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
}

enum rl_rc task_callback_result(struct tasks *t, struct store_conn *conn, int64_t task_id,
                                int64_t round, const char *callback_status, int64_t tries,
                                struct rl_err *err)
{
    (void)pthread_mutex_lock(&t->lock);
    bool poisoned = t->poisoned == task_id;
    (void)pthread_mutex_unlock(&t->lock);
    if (poisoned) {
        atomic_fetch_add(&t->failures, 1);
        return rl_fail(err, RL_STORE_ERROR, "poisoned by the test");
    }
    struct callback *c = calloc(1, sizeof *c);
    if (!c)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    *c = (struct callback){.task_id = task_id, .round = round, .tries = tries};
    (void)rl_copy_str(c->status, sizeof c->status, callback_status);
    return store_on_commit(conn, on_commit, t, c, err);
}

enum rl_rc __real_store_write(struct store *store, enum store_class class, store_fn fn, void *arg,
                              struct rl_err *err);
enum rl_rc __wrap_store_write(struct store *store, enum store_class class, store_fn fn, void *arg,
                              struct rl_err *err);
enum rl_rc __wrap_store_write(struct store *store, enum store_class class, store_fn fn, void *arg,
                              struct rl_err *err)
{
    int failing = class == STORE_URGENT ? atomic_load(&the_tasks->failing) : 0;

    if (failing) {
        if (failing > 0)
            atomic_fetch_sub(&the_tasks->failing, 1);
        atomic_fetch_add(&the_tasks->failures, 1);
        return rl_fail(err, RL_DISK_FULL, "full, says the test");
    }
    return __real_store_write(store, class, fn, arg, err);
}

static inline void on_fatal(void *user, const struct rl_err *err)
{
    (void)user;
    print_error("the store gave up: %s\n", err->reason);
    abort();
}

static inline void set(struct tasks *t, const char *pair)
{
    assert_int_equal(config_set_pair(t->cfg, pair, NULL), RL_OK);
}

static inline int setup(void **state)
{
    struct tasks *t = calloc(1, sizeof *t);
    struct rl_err err = {0};
    char text[256];

    assert_non_null(t);
    the_tasks = t;
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->changed, NULL);
    (void)rl_copy_str(t->dir, sizeof t->dir, "/tmp/test_outbox_XXXXXX");
    assert_non_null(mkdtemp(t->dir));
    assert_non_null(t->cfg = config_new());
    (void)snprintf(text, sizeof text, "state_dir=%s", t->dir);
    set(t, text);
    set(t, "store.ballast_bytes=0");
    set(t, "store.min_free_bytes=0");
    set(t, "callback.wait_ms=20");
    set(t, getenv("REELD_WATCHED") ? "callback.timeout_ms=2000" : "callback.timeout_ms=400");
    assert_int_equal(store_open(t->cfg, on_fatal, NULL, &t->store, &err), RL_OK);
    assert_int_equal(net_policy_new("callback.allow", "", NET_PUBLIC_HTTPS, NULL, &t->policy, &err),
                     RL_OK);
    assert_non_null(t->hub = hub_new(0));
    assert_non_null(t->receiver = receiver_new());
    (void)snprintf(text, sizeof text, "%s/reeld.db", t->dir);
    assert_int_equal(sqlite3_open_v2(text, &t->db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    (void)sqlite3_busy_timeout(t->db, 5000);
    *state = t;
    return 0;
}

static inline int teardown(void **state)
{
    struct tasks *t = *state;
    char command[128];

    outbox_stop(t->outbox, 0);
    receiver_free(t->receiver);
    (void)sqlite3_close(t->db);
    store_close(t->store);
    hub_free(t->hub);
    net_policy_free(t->policy);
    config_free(t->cfg);
    (void)snprintf(command, sizeof command, "rm -rf %s", t->dir);
    assert_int_equal(system(command), 0);
    free(t);
    return 0;
}

static inline void start_on(struct tasks *t, int own_port)
{
    struct rl_err err = {0};

    assert_int_equal(outbox_start(t, own_port, &t->outbox, &err), RL_OK);
}

static inline void start(struct tasks *t)
{
    start_on(t, OWN_PORT);
}

static inline void stop(struct tasks *t, int64_t wait_ms)
{
    outbox_stop(t->outbox, wait_ms);
    t->outbox = NULL;
}

struct new_duty {
    int64_t task_id, round;
    int port;
    int max_tries;
    int64_t next_at;    /* steady clock; 0 = due at once */
    int64_t expires_at; /* steady clock; 0 = never */
    const char *secret;
    const char *url; /* NULL: the port's */
};

static inline void body_of(int64_t task_id, char *body, size_t size)
{
    (void)snprintf(body, size, "{\"task_id\": \"%" PRId64 "\",  \"note\":\"\\u00e9 \\u001B\"}\n",
                   task_id);
}

static inline enum rl_rc insert(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct new_duty *d = arg;
    char id[64];
    char url[128];
    char host[64];
    char body[256];
    struct store_stmt *stmt = store_stmt(conn, SQL_OUTBOX_INSERT);

    (void)snprintf(id, sizeof id, "evt_%" PRId64 "_%" PRId64, d->task_id, d->round);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/hook", d->port);
    (void)snprintf(host, sizeof host, "http://127.0.0.1:%d", d->port);
    body_of(d->task_id, body, sizeof body);
    store_bind_int(stmt, ":task_id", d->task_id);
    store_bind_int(stmt, ":round", d->round);
    store_bind_text(stmt, ":user_id", "owner");
    store_bind_text(stmt, ":webhook_id", id);
    store_bind_text(stmt, ":event_type", "task.succeeded");
    store_bind_text(stmt, ":url", d->url ? d->url : url);
    store_bind_text(stmt, ":host", host);
    store_bind_text(stmt, ":secret", d->secret ? d->secret : SECRET);
    store_bind_blob(stmt, ":body", body, strlen(body));
    store_bind_int(stmt, ":max_tries", d->max_tries);
    store_bind_int(stmt, ":now", rl_wall_ms());
    store_bind_int(stmt, ":next_at", d->next_at);
    store_bind_int(stmt, ":expires_at", d->expires_at ? d->expires_at : INT64_MAX);
    return store_run(stmt, NULL, err);
}

/* Insert a duty; nobody is told. */
static inline void put(struct tasks *t, struct new_duty duty)
{
    struct rl_err err = {0};

    if (!duty.round)
        duty.round = 1;
    if (!duty.max_tries)
        duty.max_tries = 5;
    assert_int_equal(__real_store_write(t->store, STORE_NORMAL, insert, &duty, &err), RL_OK);
}

static inline void add(struct tasks *t, struct new_duty duty)
{
    put(t, duty);
    hub_ring(t->hub);
}

/* Wait until `count` results with this status (NULL = any) of this task (0 = any) are committed. */
static inline bool wait_for(struct tasks *t, int64_t task_id, const char *status, size_t count,
                            int64_t wait_ms)
{
    struct timespec until = rl_deadline(CLOCK_REALTIME, wait_ms);
    size_t found = 0;

    (void)pthread_mutex_lock(&t->lock);
    for (;;) {
        found = 0;
        for (size_t i = 0; i < t->n; i++)
            found += (!task_id || t->committed[i].task_id == task_id) &&
                     (!status || strcmp(t->committed[i].status, status) == 0);
        if (found >= count || pthread_cond_timedwait(&t->changed, &t->lock, &until))
            break;
    }
    (void)pthread_mutex_unlock(&t->lock);
    return found >= count;
}

static inline sqlite3_stmt *query(struct tasks *t, const char *sql, int64_t task_id)
{
    sqlite3_stmt *stmt = NULL;

    assert_int_equal(sqlite3_prepare_v2(t->db, sql, -1, &stmt, NULL), SQLITE_OK);
    (void)sqlite3_bind_int64(stmt, 1, task_id);
    return stmt;
}

static inline void assert_duty(struct tasks *t, int64_t task_id, const char *status, int tries)
{
    sqlite3_stmt *stmt = query(t,
                               "SELECT status, tries, finished_at > 0, last_error IS NULL,"
                               " (SELECT count(*) FROM delivery d WHERE d.outbox_id = o.outbox_id)"
                               " FROM outbox o WHERE task_id = ?",
                               task_id);

    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(stmt, 0), status);
    assert_int_equal(sqlite3_column_int(stmt, 1), tries);
    assert_int_equal(sqlite3_column_int(stmt, 2), strcmp(status, "PENDING") != 0);
    assert_int_equal(sqlite3_column_int(stmt, 3), tries == 0 || strcmp(status, "SUCCEEDED") == 0);
    assert_int_equal(sqlite3_column_int(stmt, 4), tries);
    (void)sqlite3_finalize(stmt);
}

/* A delivery row: http_status, the start of its error, ip, bytes of the answer. */
static inline void assert_delivery(struct tasks *t, int64_t task_id, int n, int http_status,
                                   const char *error, int response_bytes)
{
    sqlite3_stmt *stmt = query(t,
                               "SELECT http_status, coalesce(error, ''), coalesce(ip, ''),"
                               " coalesce(length(response), 0), timestamp, duration_ms"
                               " FROM delivery JOIN outbox USING (outbox_id)"
                               " WHERE task_id = ?1 AND n = ?2",
                               task_id);

    (void)sqlite3_bind_int(stmt, 2, n);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(stmt, 0), http_status);
    const char *text = (const char *)sqlite3_column_text(stmt, 1);
    assert_non_null(text);
    if (strncmp(text, error, strlen(error)) != 0 || (!error[0] && text[0]))
        fail_msg("error is \"%s\", want \"%s…\"", text, error);
    if (http_status)
        assert_string_equal((const char *)sqlite3_column_text(stmt, 2), "127.0.0.1");
    assert_int_equal(sqlite3_column_int(stmt, 3), response_bytes);
    assert_in_range(sqlite3_column_int64(stmt, 4), rl_wall_ms() - 60000, rl_wall_ms());
    assert_in_range(sqlite3_column_int64(stmt, 5), 0, 10000);
    (void)sqlite3_finalize(stmt);
}

/* Every request of this task: frozen body, constant id, fresh timestamp, valid signature. */
static inline void assert_requests(struct tasks *t, int64_t task_id, int64_t round, size_t count)
{
    char id[64];
    char body[256];
    char key[64];
    char signature[64];
    size_t found = 0;

    (void)snprintf(id, sizeof id, "evt_%" PRId64 "_%" PRId64, task_id, round);
    (void)snprintf(key, sizeof key, round > 1 ? "%" PRId64 "-%" PRId64 : "%" PRId64, task_id,
                   round);
    body_of(task_id, body, sizeof body);
    for (size_t i = 0; i < receiver_count(t->receiver, 0); i++) {
        struct received r;
        receiver_get(t->receiver, i, &r);
        if (strcmp(r.id, id) != 0)
            continue;
        found++;
        assert_int_equal(r.body_len, strlen(body));
        assert_memory_equal(r.body, body, r.body_len);
        assert_string_equal(r.key, key);
        assert_string_equal(r.type, "application/json");
        assert_string_equal(r.agent, "reeld/" REELD_VERSION);
        int64_t timestamp = strtoll(r.timestamp, NULL, 10);
        assert_in_range(timestamp, r.wall_ms / 1000 - 1, r.wall_ms / 1000);
        assert_int_equal(
            rl_webhook_sign(SECRET, id, timestamp, r.body, r.body_len, signature, NULL), RL_OK);
        assert_string_equal(r.signature, signature);
    }
    assert_int_equal(found, count);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static inline int run_scenes(const struct CMUnitTest *tests, size_t n)
{
    rl_log_set_level(RL_LOG_ERROR);
    if (rl_crypto_init(NULL) || net_init(NULL))
        return 1;
    int failed = _cmocka_run_group_tests("outbox", tests, n, NULL, NULL);
    net_cleanup();
    return failed;
}

#endif
