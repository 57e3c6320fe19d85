/* A small world for tests: a temporary state folder with config, store, hub, engines and tasks over
 * it. Header-only: each test program links what it uses. */
#ifndef TEST_WORLD_H
#define TEST_WORLD_H

#include "base/crypto.h"
#include "base/rl.h"
#include "config/config.h"
#include "engine/engine.h"
#include "events/events.h"
#include "store/store.h"
#include "task/task.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    char dir[64];
    struct config *cfg;
    struct store *store;
    struct hub *hub;
    struct engines *engines;
    struct tasks *tasks;
    int fatal; /* fatal store errors seen */
};

static inline void world_fatal(void *user, const struct rl_err *err)
{
    (void)err;
    ((struct world *)user)->fatal++;
}

static inline void world_ok(enum rl_rc rc, const struct rl_err *err)
{
    if (rc != RL_OK)
        fail_msg("%s: %s (%s)", rl_code_name(rc), err->reason, err->field);
}

/* Settings before world_open. */
static inline void world_init(struct world *w)
{
    struct rl_err err;
    *w = (struct world){.dir = "/tmp/reeld-test-XXXXXX"};
    world_ok(rl_crypto_init(&err), &err);
    assert_non_null(mkdtemp(w->dir));
    w->cfg = config_new();
    assert_non_null(w->cfg);
    world_ok(config_set(w->cfg, "state_dir", w->dir, &err), &err);
    world_ok(config_set(w->cfg, "store.ballast_bytes", "0", &err), &err);
    world_ok(config_set(w->cfg, "store.min_free_bytes", "0", &err), &err);
    world_ok(config_set(w->cfg, "engine.plugin_dir", "", &err), &err);
    world_ok(config_set(w->cfg, "engine.default", "testpattern", &err), &err);
    world_ok(config_set(w->cfg, "testpattern.faults", "on", &err), &err);
}

static inline void world_set(struct world *w, const char *name, const char *value)
{
    struct rl_err err;
    world_ok(config_set(w->cfg, name, value, &err), &err);
}

static inline bool world_open(struct world *w)
{
    struct rl_err err = {.code = RL_OK};
    bool first = false;
    world_ok(store_open(w->cfg, world_fatal, w, &w->store, &err), &err);
    world_ok(engines_open(w->cfg, &w->engines, &err), &err);
    w->hub = hub_new(0);
    assert_non_null(w->hub);
    world_ok(tasks_open(w->cfg, w->store, w->hub, w->engines, &w->tasks, &first, &err), &err);
    return first;
}

static inline void world_close(struct world *w)
{
    tasks_close(w->tasks);
    engines_close(w->engines);
    store_close(w->store);
    hub_free(w->hub);
    w->tasks = NULL;
    w->engines = NULL;
    w->store = NULL;
    w->hub = NULL;
}

static inline int world_remove_one(const char *path, const struct stat *st, int type,
                                   struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static inline void world_end(struct world *w)
{
    world_close(w);
    config_free(w->cfg);
    if (nftw(w->dir, world_remove_one, 8, FTW_DEPTH | FTW_PHYS) != 0)
        print_error("leftovers in %s\n", w->dir);
}

/* For cmocka: *state is the world, opened with what the tests need. */
static inline int world_setup(void **state)
{
    static struct world w;
    world_init(&w);
    world_open(&w);
    *state = &w;
    return 0;
}

static inline int world_teardown(void **state)
{
    world_end(*state);
    return 0;
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

static const struct caller owner = {.user_id = "owner", .key_id = 1, .owner = true};

/* Submit a body that must be accepted; returns the task (free it). */
static inline struct task *world_submit(struct world *w, const char *body)
{
    struct rl_err err;
    struct submit_reply reply;
    world_ok(task_submit(w->tasks, &owner, body, strlen(body), NULL, &reply, &err), &err);
    return reply.task;
}

/* Claim the head with a CPU device; NULL when nothing may run. */
static inline struct run *world_claim(struct world *w)
{
    struct rl_err err;
    struct engine_device device = {.id = "cpu0", .name = "test"};
    struct run *run = NULL;
    world_ok(run_claim(w->tasks, &device, &run, &err), &err);
    return run;
}

static inline struct task *world_get(struct world *w, int64_t id)
{
    struct rl_err err;
    struct task *task = NULL;
    world_ok(task_get(w->tasks, &owner, id, &task, &err), &err);
    return task;
}

#endif
