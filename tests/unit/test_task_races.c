/* Cancel against the end of a run: 10,000 rounds in which a worker ends its run (result, error,
 * retryable error, time-out) while somebody cancels the same task softly or hard. Whoever wins, the
 * task has one terminal state, a legal history and the callback duty that belongs to it. The state
 * folder lies in memory: the races are what is tested, not the disk. */
#include "world.h"

#include "base/log.h"
#include "task/internal.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

// link: rl_task

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ROUNDS 2000
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ROUNDS 2000
#endif
#endif
#ifndef ROUNDS
#define ROUNDS 10000
#endif
#define PAIRS    4
#define SPIN_MAX 20000 /* about the time of a transaction: both orders happen */

enum finish { SUCCEED, FAIL, RETRY, TIME_OUT, FINISHES };

/* A worker and the one who cancels what it runs. */
struct pair {
    struct world *w;
    pthread_barrier_t gate;
    unsigned seed, cancel_seed;
    int rounds;
    int64_t task_id;                                 /* under the gate */
    bool over;                                       /* under the gate */
    int said_canceled, said_stopping, said_finished; /* what the canceller was answered */
    int wrong;                                       /* answers that the end contradicts */
    enum rl_rc answer;
    bool answer_canceled;
};

static const struct run_result clip = {
    .file = "x.mp4", .bytes = 10, .sha256 = "00", .width = 64, .height = 64, .frames = 4, .fps = 8};

static void spin(unsigned *seed)
{
    atomic_int n = rand_r(seed) % SPIN_MAX;
    while (atomic_fetch_sub(&n, 1) > 0)
        ;
}

static void end_run(struct run *run, enum finish how)
{
    struct rl_err err, why = {.code = RL_ENGINE_ERROR, .reason = "boom"};
    enum rl_rc rc = RL_OK;
    why.retryable = how == RETRY;
    if (how == TIME_OUT) {
        int go = RUN_GO;
        why.code = RL_CANCELED;
        atomic_compare_exchange_strong(&run->stop, &go, RUN_TIMEOUT);
    }
    /* A run that was asked to stop says so, as engines do. */
    if (how != SUCCEED && run_should_stop(run) == RUN_CANCEL)
        why.code = RL_CANCELED;
    rc = how == SUCCEED ? run_succeed(run, &clip, &err) : run_fail(run, &why, &err);
    if (rc != RL_OK && rc != RL_CANCELED && rc != RL_STALE)
        print_error("the end of a run: %s %s\n", rl_code_name(rc), err.reason);
    run_free(run);
}

static struct run *claim(struct pair *pair)
{
    struct rl_err err;
    struct engine_device device = {.id = "cpu0", .name = "test"};
    struct run *run = NULL;
    if (run_claim(pair->w->tasks, &device, &run, &err) != RL_OK)
        print_error("claim: %s %s\n", rl_code_name(err.code), err.reason);
    return run;
}

static void submit_one(struct pair *pair, int n)
{
    static const char callback[] = ",\"callback_url\":\"http://127.0.0.1:9/hook\"";
    char body[256];
    struct rl_err err;
    struct submit_reply reply;
    int len = snprintf(body, sizeof body,
                       "{\"prompt\":\"%u %d\",\"idempotency\":\"off\",\"max_retries\":1%s}",
                       pair->cancel_seed, n, n % 3 ? callback : "");
    if (task_submit(pair->w->tasks, &owner, body, (size_t)len, NULL, &reply, &err) == RL_OK)
        task_free(reply.task);
    else
        print_error("submit: %s %s\n", rl_code_name(err.code), err.reason);
}

/* Does the end agree with what the canceller was told? */
static void compare(struct pair *pair, int64_t id)
{
    struct rl_err err;
    AUTO_TASK struct task *task = NULL;
    if (task_get(pair->w->tasks, &owner, id, &task, &err) != RL_OK) {
        pair->wrong++;
        return;
    }
    bool canceled = strcmp(task->status, "CANCELED") == 0;
    if (!task_status_terminal(task_status_of(task)))
        canceled = pair->answer == RL_OK && !pair->answer_canceled; /* it retried, stopping later */
    pair->wrong += canceled != (pair->answer == RL_OK);
    pair->said_finished += pair->answer == RL_TASK_FINISHED;
    pair->said_canceled += pair->answer == RL_OK && pair->answer_canceled;
    pair->said_stopping += pair->answer == RL_OK && !pair->answer_canceled;
}

static void *worker(void *arg)
{
    struct pair *pair = arg;
    for (int n = 0; n < pair->rounds; n++) {
        submit_one(pair, n);
        struct run *run = claim(pair);
        if (!run)
            continue; /* another pair took it, and left it for us to make good later */
        pair->task_id = run_task(run)->task_id;
        pthread_barrier_wait(&pair->gate);
        spin(&pair->seed);
        end_run(run, (enum finish)(rand_r(&pair->seed) % FINISHES));
        pthread_barrier_wait(&pair->gate);
        compare(pair, pair->task_id);
    }
    pair->over = true;
    pthread_barrier_wait(&pair->gate);
    return NULL;
}

static void *canceller(void *arg)
{
    struct pair *pair = arg;
    for (;;) {
        struct rl_err err;
        AUTO_TASK struct task *task = NULL;
        pthread_barrier_wait(&pair->gate);
        if (pair->over)
            return NULL;
        spin(&pair->cancel_seed);
        enum cancel_mode mode = rand_r(&pair->cancel_seed) % 2 ? CANCEL_HARD : CANCEL_SOFT;
        pair->answer = task_cancel(pair->w->tasks, &owner, pair->task_id, mode, &task, &err);
        pair->answer_canceled = task && strcmp(task->status, "CANCELED") == 0;
        pthread_barrier_wait(&pair->gate);
    }
}

static void race(struct world *w, struct pair *pairs)
{
    pthread_t threads[2 * PAIRS];
    for (unsigned i = 0; i < PAIRS; i++) {
        pairs[i] =
            (struct pair){.w = w, .seed = 7 + i, .cancel_seed = 1000 + i, .rounds = ROUNDS / PAIRS};
        assert_int_equal(pthread_barrier_init(&pairs[i].gate, NULL, 2), 0);
        assert_int_equal(pthread_create(&threads[2 * i], NULL, worker, &pairs[i]), 0);
        assert_int_equal(pthread_create(&threads[2 * i + 1], NULL, canceller, &pairs[i]), 0);
    }
    for (size_t i = 0; i < 2 * PAIRS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < PAIRS; i++)
        pthread_barrier_destroy(&pairs[i].gate);
    for (struct run *run; (run = claim(&pairs[0]));) /* what retries left */
        end_run(run, SUCCEED);
}

static int64_t count(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK ||
        sqlite3_step(stmt) != SQLITE_ROW)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    int64_t n = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return n;
}

#define TERMINAL "('SUCCEEDED', 'FAILED', 'TIMEOUT', 'CANCELED')"

static const struct {
    const char *what, *sql; /* the number of rows for which it is so */
} never[] = {
    {"a task without an end", "SELECT count(*) FROM task WHERE status NOT IN " TERMINAL},
    {"a task with more or fewer than one terminal state",
     "SELECT count(*) FROM task t WHERE 1 <> (SELECT count(*) FROM task_event e WHERE e.task_id = "
     "t.task_id AND e.to_status IN " TERMINAL ")"},
    {"a row that is not where its history ends",
     "SELECT count(*) FROM task t JOIN task_event e ON e.seq = (SELECT max(seq) FROM task_event "
     "WHERE task_id = t.task_id) WHERE e.to_status <> t.status OR e.seq <> t.version"},
    {"a gap in a history",
     "SELECT count(*) FROM (SELECT from_status AS f, lag(to_status) OVER (PARTITION BY task_id "
     "ORDER BY seq) AS p FROM task_event) WHERE f IS NOT p"},
    {"an illegal transition",
     "SELECT count(*) FROM task_event WHERE from_status IS NOT NULL AND from_status || ' ' || "
     "to_status NOT IN ('CREATED QUEUED', 'QUEUED PROCESSING', 'QUEUED CANCELED', 'PROCESSING "
     "QUEUED', 'PROCESSING SUCCEEDED', 'PROCESSING FAILED', 'PROCESSING TIMEOUT', 'PROCESSING "
     "CANCELED')"},
    {"a history that runs backwards",
     "SELECT count(*) FROM (SELECT timestamp AS t, lag(timestamp) OVER (PARTITION BY task_id ORDER "
     "BY seq) AS p FROM task_event) WHERE t < p"},
    {"an attempt that ran twice",
     "SELECT count(*) FROM (SELECT 1 FROM task_event WHERE to_status = 'PROCESSING' GROUP BY "
     "task_id, attempt HAVING count(*) > 1)"},
    {"an end that called back more or less often than once",
     "SELECT count(*) FROM task t WHERE (SELECT count(*) FROM outbox o WHERE o.task_id = "
     "t.task_id) "
     "<> (t.callback_url IS NOT NULL AND t.status <> 'CANCELED')"},
    {"a callback about another end",
     "SELECT count(*) FROM task t JOIN outbox o ON o.task_id = t.task_id WHERE o.event_type <> "
     "'task.' || lower(t.status) OR instr(CAST(o.body AS TEXT), '\"' || t.status || '\"') = 0"},
    {"a callback status that no duty stands for",
     "SELECT count(*) FROM task t WHERE (t.callback_status IS NOT NULL) <> EXISTS (SELECT 1 FROM "
     "outbox o WHERE o.task_id = t.task_id)"},
    {"a result of a task that was stopped hard",
     "SELECT count(*) FROM task WHERE status = 'CANCELED' AND cancel_mode = 'hard' AND video_file "
     "IS NOT NULL"},
    {"a success without its result",
     "SELECT count(*) FROM task WHERE status = 'SUCCEEDED' AND video_bytes <> 10"},
};

static void test_task_races_cancel_and_end_agree(void **state)
{
    struct world *w = *state;
    struct pair pairs[PAIRS];
    char path[128];
    sqlite3 *db = NULL;
    race(w, pairs);
    int canceled = 0, stopping = 0, finished = 0, wrong = 0;
    for (size_t i = 0; i < PAIRS; i++) {
        canceled += pairs[i].said_canceled;
        stopping += pairs[i].said_stopping;
        finished += pairs[i].said_finished;
        wrong += pairs[i].wrong;
    }
    assert_int_equal(wrong, 0);
    (void)snprintf(path, sizeof path, "%s/reeld.db", w->dir);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    assert_int_equal(count(db, "SELECT count(*) FROM task"), ROUNDS / PAIRS * PAIRS);
    for (size_t i = 0; i < RL_ARRAY_LEN(never); i++)
        if (count(db, never[i].sql) != 0)
            fail_msg("%lld times: %s", (long long)count(db, never[i].sql), never[i].what);
    /* It was a race: every end came about often, and so did every answer. */
    print_message("cancels: %d at once, %d stopping, %d too late\n", canceled, stopping, finished);
    assert_true(canceled > ROUNDS / 50 && stopping > ROUNDS / 50 && finished > ROUNDS / 50);
    assert_int_equal(
        count(db, "SELECT count(*) FROM (SELECT status FROM task GROUP BY status, cancel_mode "
                  "HAVING count(*) > 50)"),
        5); /* CANCELED in both modes */
    sqlite3_close(db);
}

static int setup(void **state)
{
    static struct world w;
    world_init(&w);
    if (access("/dev/shm", W_OK) == 0) {
        assert_int_equal(rmdir(w.dir), 0);
        (void)snprintf(w.dir, sizeof w.dir, "/dev/shm/reeld-test-XXXXXX");
        assert_non_null(mkdtemp(w.dir));
        world_set(&w, "state_dir", w.dir);
    }
    world_set(&w, "task.retry_delay_ms", "0");
    rl_log_set_level(RL_LOG_ERROR); /* a line per move would be most of the work */
    world_open(&w);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    world_end(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_task_races_cancel_and_end_agree, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
