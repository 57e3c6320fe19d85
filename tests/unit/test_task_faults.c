/* Failure loops: every operation on a task runs with its N-th allocation, read, write, truncate or
 * sync failing, once and from then on, for N = 1, 2, 3 … until none is left to fail; and with the
 * process killed at every write. After each failure row, history, outbox, doorbell and counters
 * must agree; an operation that was refused left nothing; the same call then succeeds; and all of
 * it is still so after a restart. */
// clang-format off
// link: rl_outbox PkgConfig::sqlite3 PkgConfig::libcjson -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=fsync
// clang-format on
#include "test_task_check.h"
#include "test_task_faults.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "outbox/parts.h"
#include "task/feed.h"
#include "task/internal.h"

#include <inttypes.h>

#define LOOP_MAX      3000 /* more calls than any operation makes */
#define RESTART_EVERY 25   /* trials between restarts of the world they share */

struct trial {
    struct world *w;
    struct check *check;
    int number;   /* makes prompts and keys unique */
    int64_t base; /* the last task of the trials before */
    int64_t id;   /* the task under test */
    struct run *run;
    int64_t outbox_id;
    char lease[64]; /* of a feed's range */
    int64_t from;   /* its first seq */
    char when[160]; /* what is being tried, for messages */
};

struct op {
    const char *name;
    void (*prepare)(struct trial *t);
    enum rl_rc (*act)(struct trial *t, struct rl_err *err);
    const char
        *probe; /* SQL over this trial's tasks whose text shows what the operation is about */
    const char *after; /* its text once the operation was done */
};

/* ---- the operations ---- */

static const char *body_of(const struct trial *t, char *body, size_t size)
{
    (void)snprintf(body, size,
                   "{\"prompt\":\"p%d\",\"seed\":1,\"callback_url\":\"http://127.0.0.1:9/cb\","
                   "\"max_retries\":1,\"metadata\":{\"k\":\"v\"},\"label\":\"l\"}",
                   t->number);
    return body;
}

static const struct run_result clip = {.file = "1-1.mp4",
                                       .bytes = 10,
                                       .sha256 = "00ff",
                                       .width = 64,
                                       .height = 64,
                                       .frames = 4,
                                       .fps = 8};
static const struct engine_device cpu = {.id = "cpu0", .name = "test", .backend = "cpu"};

static void prepare_nothing(struct trial *t)
{
    (void)t;
}

static void prepare_queued(struct trial *t)
{
    char body[256];
    AUTO_TASK struct task *task = world_submit(t->w, body_of(t, body, sizeof body));
    t->id = task->task_id;
}

static void prepare_running(struct trial *t)
{
    prepare_queued(t);
    t->run = world_claim(t->w);
    assert_non_null(t->run);
}

static void prepare_failed(struct trial *t)
{
    struct rl_err err, why = {.code = RL_ENGINE_ERROR, .reason = "boom"};
    prepare_running(t);
    world_ok(run_fail(t->run, &why, &err), &err);
}

static void prepare_succeeded(struct trial *t)
{
    struct rl_err err;
    prepare_running(t);
    world_ok(run_succeed(t->run, &clip, &err), &err);
    t->outbox_id = check_int(t->check, "SELECT max(outbox_id) FROM outbox");
}

/* A feed that begins with the task's two events, and a range of both. */
static void prepare_range(struct trial *t)
{
    struct rl_err err;
    struct feed_from latest = {.start = FEED_LATEST};
    struct feed_ask ask = {.name = "f", .max = 2, .lease_ms = 600000};
    bool done;
    int64_t wait_ms;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 65536);
    if (feed_delete(t->w->tasks, &owner, "f", &err) != RL_OK)
        assert_int_equal(err.code, RL_NOT_FOUND); /* the first trial */
    world_ok(feed_create(t->w->tasks, &owner, "f", &latest, 0, &out, &done, &err), &err);
    prepare_queued(t);
    world_ok(feed_next(t->w->tasks, &owner, &ask, &out, &done, &wait_ms, &err), &err);
    assert_int_equal(sscanf(out.data, "{\"lease\":\"%63[0-9.]\",\"feed\":\"f\",\"from\":%" SCNd64,
                            t->lease, &t->from),
                     2);
}

static enum rl_rc act_ack_part(struct trial *t, struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 4096);
    return feed_ack(t->w->tasks, &owner, "f", t->lease, t->from, &out, err);
}

static enum rl_rc submit_with(struct trial *t, const char *key, struct rl_err *err)
{
    struct submit_reply reply;
    char body[256];
    (void)body_of(t, body, sizeof body);
    enum rl_rc rc = task_submit(t->w->tasks, &owner, body, strlen(body), key, &reply, err);
    if (rc == RL_OK)
        task_free(reply.task);
    return rc;
}

static enum rl_rc act_submit(struct trial *t, struct rl_err *err)
{
    char key[32];
    (void)snprintf(key, sizeof key, "key-%d", t->number);
    return submit_with(t, key, err);
}

static enum rl_rc act_submit_derived(struct trial *t, struct rl_err *err)
{
    return submit_with(t, NULL, err);
}

static enum rl_rc act_claim(struct trial *t, struct rl_err *err)
{
    enum rl_rc rc = run_claim(t->w->tasks, &cpu, &t->run, err);
    if (rc == RL_OK && !t->run)
        return rl_fail(err, RL_INTERNAL, "nothing to claim");
    return rc;
}

static enum rl_rc act_succeed(struct trial *t, struct rl_err *err)
{
    return run_succeed(t->run, &clip, err);
}

static enum rl_rc act_fail(struct trial *t, struct rl_err *err)
{
    struct rl_err why = {.code = RL_ENGINE_ERROR, .reason = "boom"};
    return run_fail(t->run, &why, err);
}

static enum rl_rc act_retry(struct trial *t, struct rl_err *err)
{
    struct rl_err why = {.code = RL_ENGINE_ERROR, .reason = "boom", .retryable = true};
    return run_fail(t->run, &why, err);
}

static enum rl_rc cancel_by(struct trial *t, enum cancel_mode mode, struct rl_err *err)
{
    struct task *task = NULL;
    enum rl_rc rc = task_cancel(t->w->tasks, &owner, t->id, mode, &task, err);
    task_free(task);
    return rc;
}

static enum rl_rc act_cancel_soft(struct trial *t, struct rl_err *err)
{
    return cancel_by(t, CANCEL_SOFT, err);
}

static enum rl_rc act_cancel_hard(struct trial *t, struct rl_err *err)
{
    return cancel_by(t, CANCEL_HARD, err);
}

/* What the outbox thread does with a duty, but for the POST. */
static enum rl_rc act_deliver(struct trial *t, struct rl_err *err)
{
    AUTO_DUTY struct outbox_duty duty = {0};
    enum rl_rc rc = outbox_load(t->w->store, t->outbox_id, &duty, err);
    if (rc != RL_OK)
        return rc;
    char response[] = "ok";
    struct outbox_slot slot = {.state = OUTBOX_DONE,
                               .result = {.outbox_id = duty.outbox_id,
                                          .task_id = duty.task_id,
                                          .round = duty.round,
                                          .tries = duty.tries + 1,
                                          .status = "SUCCEEDED",
                                          .spent = 1,
                                          .timestamp = rl_wall_ms(),
                                          .http_status = 200,
                                          .response = response,
                                          .response_len = 2}};
    struct outbox_slot *done[] = {&slot};
    return outbox_record(t->w->tasks, done, 1, err);
}

#define PROBE_STATUS                                                                               \
    "SELECT count(*) || group_concat(status || coalesce(' ' || cancel_mode, '') || ' ' || "        \
    "attempt) FROM (SELECT * FROM task WHERE task_id > ?1 ORDER BY task_id)"

static const struct op ops[] = {
    {"submit", prepare_nothing, act_submit, PROBE_STATUS, "1QUEUED 0"},
    {"submit again after a failure", prepare_failed, act_submit_derived, PROBE_STATUS,
     "2FAILED 1,QUEUED 0"},
    {"claim", prepare_queued, act_claim, PROBE_STATUS, "1PROCESSING 1"},
    {"succeed", prepare_running, act_succeed, PROBE_STATUS, "1SUCCEEDED 1"},
    {"fail", prepare_running, act_fail, PROBE_STATUS, "1FAILED 1"},
    {"fail for a retry", prepare_running, act_retry, PROBE_STATUS, "1QUEUED 1"},
    {"cancel waiting", prepare_queued, act_cancel_hard, PROBE_STATUS, "1CANCELED hard 0"},
    {"cancel running, soft", prepare_running, act_cancel_soft, PROBE_STATUS, "1CANCELED soft 1"},
    {"cancel running, hard", prepare_running, act_cancel_hard, PROBE_STATUS, "1PROCESSING hard 1"},
    {"deliver", prepare_succeeded, act_deliver,
     "SELECT o.status || ' ' || tries || ' ' || callback_status || ' ' || callback_retry FROM "
     "outbox o JOIN task USING (task_id) WHERE task_id > ?1",
     "SUCCEEDED 1 SUCCEEDED 1"},
    {"acknowledge a part", prepare_range, act_ack_part,
     "SELECT (head - cursor) || ' ' || (SELECT group_concat(acked || ' ' || (to_seq - from_seq)) "
     "FROM "
     "feed_lease WHERE feed_id = f.feed_id) FROM feed f WHERE ?1 >= 0",
     "1 1 0,0 0"},
};

/* ---- what must hold ---- */

static void probe(struct trial *t, const struct op *op, char *text, size_t size)
{
    (void)check_text_after(t->check, op->probe, t->base, text, size);
}

/* The tables among themselves, and what is in memory against them. */
static void check_state(const struct world *w, struct check *check, const char *when)
{
    check_tables(check, when);
    int64_t waiting =
        check_int(check, "SELECT count(*) FROM task WHERE status IN ('CREATED', 'QUEUED')");
    if (atomic_load(&w->tasks->waiting) != waiting)
        fail_msg("%s: %lld tasks wait, the counter says %lld", when, (long long)waiting,
                 (long long)atomic_load(&w->tasks->waiting));
    int64_t last = check_int(check, "SELECT coalesce(max(seq), 0) FROM task_event");
    if (hub_last_seq(w->hub) != last)
        fail_msg("%s: the last event is %lld, the doorbell rang for %lld", when, (long long)last,
                 (long long)hub_last_seq(w->hub));
}

/* The image of the crash comes up whole, and a submit works in it. */
static void check_image(struct trial *t, struct world *image)
{
    char when[200];
    (void)snprintf(when, sizeof when, "%s, the image", t->when);
    struct check check;
    world_open(image);
    check_open(&check, image->dir);
    check_state(image, &check, when);
    AUTO_TASK struct task *task = world_submit(image, "{\"prompt\":\"next\"}");
    assert_non_null(task);
    check_state(image, &check, when);
    check_file(&check, when);
    check_close(&check);
}

/* The same call without a fault; a disk that was full is looked at again within two seconds. */
static void try_again(struct trial *t, const struct op *op)
{
    char now[200];
    struct rl_err err = {.code = RL_OK};
    int64_t until = rl_mono_ms() + 10000;
    enum rl_rc rc = op->act(t, &err);
    while (rc == RL_DISK_FULL && rl_mono_ms() < until) {
        (void)hub_wait(t->w->hub, NULL, hub_tick(t->w->hub), 1);
        rc = op->act(t, &err);
    }
    if (rc != RL_OK)
        fail_msg("%s: the second try says %s: %s", t->when, rl_code_name(rc), err.reason);
    probe(t, op, now, sizeof now);
    if (strcmp(now, op->after) != 0)
        fail_msg("%s: after the second try the rows say \"%s\"", t->when, now);
    check_state(t->w, t->check, t->when);
}

static void judge(struct trial *t, const struct op *op, enum rl_rc rc, const struct rl_err *err,
                  const char *before)
{
    char now[200];
    probe(t, op, now, sizeof now);
    bool done = strcmp(now, op->after) == 0, undone = strcmp(now, before) == 0;
    if (rc == RL_OK && !done)
        fail_msg("%s: answered OK, but the rows say \"%s\"", t->when, now);
    if (rc != RL_OK && !undone && !(done && t->w->fatal))
        fail_msg("%s: answered %s, but the rows say \"%s\"", t->when, rl_code_name(rc), now);
    if (rc != RL_OK && err->code != rc)
        fail_msg("%s: answered %s, but the error says %s", t->when, rl_code_name(rc),
                 rl_code_name(err->code));
    check_state(t->w, t->check, t->when);
    if (rc != RL_OK && !t->w->fatal)
        try_again(t, op);
}

/* ---- the loops ---- */

static void restart(struct trial *t)
{
    char when[200];
    (void)snprintf(when, sizeof when, "%s, after a restart", t->when);
    run_free(STEAL(t->run));
    check_file(t->check, when);
    check_close(t->check);
    world_close(t->w);
    t->w->fatal = 0;
    world_open(t->w);
    check_open(t->check, t->w->dir);
    check_state(t->w, t->check, when);
}

/* Nothing of this trial may run in the next one. */
static void settle(struct trial *t)
{
    struct rl_err err, why = {.code = RL_ENGINE_ERROR, .reason = "over"};
    int64_t id;
    if (t->run && run_fail(t->run, &why, &err) != RL_OK)
        assert_int_equal(err.code, RL_STALE); /* it was over */
    run_free(STEAL(t->run));
    do {
        id = check_int(t->check, "SELECT coalesce(max(task_id), 0) FROM task WHERE status IN "
                                 "('CREATED', 'QUEUED', 'PROCESSING')");
        AUTO_TASK struct task *task = NULL;
        if (id)
            world_ok(task_cancel(t->w->tasks, &owner, id, CANCEL_SOFT, &task, &err), &err);
    } while (id);
}

/* One operation with one fault. false: the fault was not reached. */
static bool try_op(struct world *w, struct check *check, const struct op *op, enum fault_kind kind,
                   int at, bool sticky)
{
    static int number;
    struct trial trial = {.w = w, .check = check, .number = ++number}, *t = &trial;
    struct world image;
    char before[200];
    struct rl_err err = {.code = RL_OK};
    bool crash = kind == FAULT_CRASH || kind == FAULT_SYNC;
    (void)snprintf(t->when, sizeof t->when, "%s, %s %d%s", op->name, fault_names[kind], at,
                   sticky ? " and on" : "");
    t->base = check_int(check, "SELECT coalesce(max(task_id), 0) FROM task");
    op->prepare(t);
    probe(t, op, before, sizeof before);
    if (crash) {
        world_init(&image);
        fault.from = w->dir;
        fault.to = image.dir;
    }
    fault_arm(kind, at, sticky);
    enum rl_rc rc = op->act(t, &err);
    bool hit = fault_disarm();
    judge(t, op, rc, &err, before);
    if (crash && hit)
        check_image(t, &image);
    if (crash)
        world_end(&image);
    if (w->fatal || kind == FAULT_WRITE_FULL || at % RESTART_EVERY == 0 || !hit)
        restart(t);
    settle(t);
    return hit;
}

static void loop(enum fault_kind kind, bool sticky, int step)
{
    for (size_t i = 0; i < RL_ARRAY_LEN(ops); i++) {
        struct world w;
        struct check check;
        int at = 1, tried = 0;
        world_init(&w);
        world_set(&w, "store.readers", "1");
        world_open(&w);
        check_open(&check, w.dir);
        while (try_op(&w, &check, &ops[i], kind, at, sticky) && at < LOOP_MAX) {
            at = fault_next(at, 10, step);
            tried++;
        }
        check_close(&check);
        world_end(&w);
        assert_true(at < LOOP_MAX);
        print_message("%s: %s%s: %d calls failed\n", ops[i].name, fault_names[kind],
                      sticky ? " and on" : "", tried);
    }
}

static void test_task_faults_malloc(void **state)
{
    (void)state;
    loop(FAULT_MALLOC, false, 1);
    loop(FAULT_MALLOC, true, 1);
}

static void test_task_faults_sqlite_malloc(void **state)
{
    (void)state;
    loop(FAULT_SQLITE_MALLOC, false, 11);
    loop(FAULT_SQLITE_MALLOC, true, 17);
}

static void test_task_faults_read(void **state)
{
    (void)state;
    loop(FAULT_READ, false, 1);
    loop(FAULT_READ, true, 1);
}

static void test_task_faults_write(void **state)
{
    (void)state;
    loop(FAULT_WRITE, false, 1);
    loop(FAULT_WRITE, true, 1);
    loop(FAULT_WRITE_SHORT, false, 1);
}

static void test_task_faults_disk_full(void **state)
{
    (void)state;
    loop(FAULT_WRITE_FULL, false, 1);
    loop(FAULT_WRITE_FULL, true, 1);
}

static void test_task_faults_sync_is_fatal(void **state)
{
    (void)state;
    loop(FAULT_SYNC, false, 1);
}

static void test_task_faults_kill_at_every_write(void **state)
{
    (void)state;
    loop(FAULT_CRASH, false, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_task_faults_malloc),
        cmocka_unit_test(test_task_faults_sqlite_malloc),
        cmocka_unit_test(test_task_faults_read),
        cmocka_unit_test(test_task_faults_write),
        cmocka_unit_test(test_task_faults_disk_full),
        cmocka_unit_test(test_task_faults_sync_is_fatal),
        cmocka_unit_test(test_task_faults_kill_at_every_write),
    };
    rl_log_set_level(RL_LOG_ERROR);
    fault_install();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
