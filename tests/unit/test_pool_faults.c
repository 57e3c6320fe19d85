/* Failure loops over a whole run, from submit to result, with the real testpattern engine and the
 * real encoder: the N-th rename, sync, unlink, write, allocation or database write fails, once and
 * from then on, for N = 1, 2, 3 … until none is left to fail. Afterwards a SUCCEEDED row has its
 * file, whole, by size and SHA-256, and nothing else lies in results/; and the next task simply
 * works. */
// clang-format off
// link: PkgConfig::sqlite3 -Wl,--wrap=rename,--wrap=fsync,--wrap=unlink,--wrap=pwrite,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=store_write,--wrap=rl_fs_free_bytes
// clang-format on
#include "test_pool_world.h"

#include "base/log.h"

#include <errno.h>
#include <stdatomic.h>

#define LOOP_MAX 3000 /* more calls than a run makes */

enum fault_kind {
    FAULT_NONE,
    FAULT_RENAME,
    FAULT_FSYNC,
    FAULT_UNLINK,
    FAULT_PWRITE,
    FAULT_MALLOC,
    FAULT_STORE /* the writer's queue is full */
};
static const char *const fault_names[] = {"none",  "rename", "fsync",      "unlink",
                                          "write", "malloc", "store_write"};

static struct {
    atomic_int kind;
    int at, errnum;
    bool sticky;
    atomic_int calls, hits;
} fault;
static _Thread_local bool spared; /* the thread of the test itself */

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
ssize_t __real_pwrite(int fd, const void *bytes, size_t len, off_t at);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t len, off_t at);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);

enum rl_rc __real_store_write(struct store *store, enum store_class class, store_fn fn, void *arg,
                              struct rl_err *err);
enum rl_rc __wrap_store_write(struct store *store, enum store_class class, store_fn fn, void *arg,
                              struct rl_err *err);
enum rl_rc __wrap_rl_fs_free_bytes(const char *path, int64_t *ret_bytes, struct rl_err *err);

static bool fails(enum fault_kind kind)
{
    if (spared || atomic_load(&fault.kind) != (int)kind)
        return false;
    int call = atomic_fetch_add(&fault.calls, 1) + 1;
    if (call != fault.at && !(fault.sticky && call > fault.at))
        return false;
    atomic_fetch_add(&fault.hits, 1);
    errno = fault.errnum;
    return true;
}

int __wrap_rename(const char *from, const char *to)
{
    return fails(FAULT_RENAME) ? -1 : __real_rename(from, to);
}

int __wrap_fsync(int fd)
{
    (void)fd; /* not the disk is on trial here */
    return fails(FAULT_FSYNC) ? -1 : 0;
}

int __wrap_unlink(const char *path)
{
    return fails(FAULT_UNLINK) ? -1 : __real_unlink(path);
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t len, off_t at)
{
    return fails(FAULT_PWRITE) ? -1 : __real_pwrite(fd, bytes, len, at);
}

void *__wrap_malloc(size_t size)
{
    return fails(FAULT_MALLOC) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails(FAULT_MALLOC) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails(FAULT_MALLOC) ? NULL : __real_realloc(old, size);
}

enum rl_rc __wrap_store_write(struct store *store, enum store_class class, store_fn fn, void *arg,
                              struct rl_err *err)
{
    if (fails(FAULT_STORE))
        return rl_fail(err, RL_UNAVAILABLE, "too many writes are waiting");
    return __real_store_write(store, class, fn, arg, err);
}

/* A disk that was met full is full. */
enum rl_rc __wrap_rl_fs_free_bytes(const char *path, int64_t *ret_bytes, struct rl_err *err)
{
    (void)path, (void)err;
    bool full = atomic_load(&fault.kind) != FAULT_NONE && fault.errnum == ENOSPC && fault.sticky &&
                atomic_load(&fault.hits) > 0;
    *ret_bytes = full ? 0 : INT64_C(1) << 40;
    return RL_OK;
}

static void arm(enum fault_kind kind, int at, bool sticky, int errnum)
{
    fault.at = at;
    fault.sticky = sticky;
    fault.errnum = errnum;
    atomic_store(&fault.calls, 0);
    atomic_store(&fault.hits, 0);
    atomic_store(&fault.kind, (int)kind);
}

/* How many calls failed. */
static int disarm(void)
{
    atomic_store(&fault.kind, FAULT_NONE);
    return atomic_load(&fault.hits);
}

/* ---- the loop ---- */

struct scene {
    struct world w;
    struct check check;
    struct pool *pool;
};

static void start(struct scene *s)
{
    struct rl_err err;
    world_init(&s->w);
    world_set(&s->w, "store.readers", "1");
    world_set(&s->w, "task.retry_delay_ms", "0");
    world_set(&s->w, "store.min_free_bytes", "1");
    world_open(&s->w);
    check_open(&s->check, s->w.dir);
    world_ok(pool_start(s->w.tasks, no_replace, NULL, &s->pool, &err), &err);
}

static void stop(struct scene *s)
{
    assert_true(pool_stop(s->pool, WAIT_MS));
    check_close(&s->check);
    world_end(&s->w);
}

/* A task that may be retried `retries` times; `fault_word` scripts the engine. 0: refused. */
static int64_t submit(struct scene *s, int number, int retries, const char *fault_word)
{
    char body[256];
    (void)snprintf(body, sizeof body,
                   "{\"prompt\":\"p%d\",\"seed\":1,\"width\":64,\"height\":64,\"frames\":2,"
                   "\"max_retries\":%d,\"callback_url\":\"http://127.0.0.1:9/cb\","
                   "\"options\":{\"fault\":\"%s\",\"fault_at\":1}}",
                   number, retries, fault_word);
    struct rl_err err;
    struct submit_reply reply;
    if (task_submit(s->w.tasks, &owner, body, strlen(body), NULL, &reply, &err) != RL_OK)
        return 0;
    AUTO_TASK struct task *task = reply.task;
    return task->task_id;
}

/* Until the run has met the full disk and its task waits again, or has ended without meeting it. */
static void wait_full(struct scene *s, int64_t id, int at)
{
    char now[32] = "";
    for (int64_t until = rl_mono_ms() + WAIT_MS; rl_mono_ms() < until;) {
        status_of(&s->check, id, now, sizeof now);
        bool waits = strcmp(now, "QUEUED") == 0 && atomic_load(&fault.calls) >= at;
        if (waits || strcmp(now, "SUCCEEDED") == 0)
            return;
        (void)hub_wait(s->w.hub, NULL, hub_tick(s->w.hub), 1);
    }
    fail_msg("on a full disk the task is %s", now);
}

/* false: the fault was not reached. A file may stay behind only if removing it was what failed. */
static bool try_run(struct scene *s, enum fault_kind kind, int at, bool sticky, int errnum,
                    const char *fault_word)
{
    static int number;
    char when[120], now[32];
    int before = count_results(&s->w) - check_results(&s->w, &s->check, "before");
    (void)snprintf(when, sizeof when, "%s %d%s, engine fault %s", fault_names[kind], at,
                   sticky ? " and on" : "", fault_word);
    /* the queue is empty: the pool's thread waits until the doorbell of the submit */
    arm(kind, at, sticky, errnum);
    bool full = errnum == ENOSPC;
    int64_t id = submit(s, ++number, full ? 0 : 1, fault_word);
    if (!id) { /* the writer's part of the submit failed: that has its own loop */
        (void)disarm();
        return true;
    }
    if ((kind == FAULT_MALLOC || kind == FAULT_STORE) && sticky) { /* nothing can end so */
        for (int i = 0; i < 20 && atomic_load(&fault.hits) < 3; i++) {
            (void)hub_wait(s->w.hub, NULL, hub_tick(s->w.hub), 5);
            hub_ring(s->w.hub);
        }
    } else if (full && sticky) { /* it waits for room */
        wait_full(s, id, at);
    } else {
        wait_status(&s->w, &s->check, id, "SUCCEEDED,FAILED", true);
    }
    int hits = disarm();
    wait_status(&s->w, &s->check, id, "SUCCEEDED,FAILED", true);
    status_of(&s->check, id, now, sizeof now);
    if (full && sticky && strcmp(now, "SUCCEEDED") != 0)
        fail_msg("%s: a task met a full disk and is %s", when, now);
    if (!hits && strcmp(now, "SUCCEEDED") != 0 && strcmp(fault_word, "fail") != 0)
        fail_msg("%s: the run without a fault is %s", when, now);
    for (int64_t until = rl_mono_ms() + WAIT_MS; runs_active(s->w.tasks) && rl_mono_ms() < until;)
        (void)hub_wait(s->w.hub, NULL, hub_tick(s->w.hub), 1); /* it removes its files first */
    check_tables(&s->check, when);
    int extra = count_results(&s->w) - check_results(&s->w, &s->check, when) - before;
    if (extra < 0 || extra > (kind == FAULT_UNLINK ? hits : 0))
        fail_msg("%s: %d files in results/ belong to no row (%s)", when, extra, now);
    return hits > 0;
}

static void loop(enum fault_kind kind, bool sticky, int errnum, const char *fault_word)
{
    static struct scene s;
    int at = 1;
    start(&s);
    while (try_run(&s, kind, at, sticky, errnum, fault_word) && at < LOOP_MAX)
        at++;
    assert_true(at < LOOP_MAX);
    (void)try_run(&s, FAULT_NONE, 0, false, 0, "none"); /* and all is well again */
    print_message("%s%s, engine fault %s: %d calls failed\n", fault_names[kind],
                  sticky ? " and on" : "", fault_word, at - 1);
    stop(&s);
}

static void test_pool_faults_rename(void **state)
{
    (void)state;
    loop(FAULT_RENAME, false, EIO, "none");
    loop(FAULT_RENAME, true, ENOSPC, "none");
}

static void test_pool_faults_fsync(void **state)
{
    (void)state;
    loop(FAULT_FSYNC, false, EIO, "none");
    loop(FAULT_FSYNC, true, EIO, "none");
}

static void test_pool_faults_unlink(void **state)
{
    (void)state;
    loop(FAULT_UNLINK, false, EIO, "none");
    loop(FAULT_UNLINK, false, EIO, "fail");
    loop(FAULT_UNLINK, true, EIO, "fail_once");
}

static void test_pool_faults_write(void **state)
{
    (void)state;
    loop(FAULT_PWRITE, false, EIO, "none");
    loop(FAULT_PWRITE, true, ENOSPC, "none");
}

static void test_pool_faults_store(void **state)
{
    (void)state;
    loop(FAULT_STORE, false, 0, "none");
    loop(FAULT_STORE, true, 0, "none");
    loop(FAULT_STORE, true, 0, "fail_once");
}

static void wait_hits(struct scene *s, int hits)
{
    int64_t until = rl_mono_ms() + WAIT_MS;
    while (atomic_load(&fault.hits) < hits && rl_mono_ms() < until)
        (void)hub_wait(s->w.hub, NULL, hub_tick(s->w.hub), 5);
    assert_true(atomic_load(&fault.hits) >= hits);
}

/* The video is made, the store refuses its row, and the program is asked to stop: worth a wait. */
static void test_pool_faults_store_at_a_stop(void **state)
{
    (void)state;
    static struct scene s;
    start(&s);
    AUTO_TASK struct task *task =
        world_submit(&s.w, "{\"prompt\":\"a\",\"width\":64,\"height\":64,\"frames\":4,"
                           "\"options\":{\"frame_ms\":100}}");
    wait_status(&s.w, &s.check, task->task_id, "PROCESSING", true);
    arm(FAULT_STORE, 1, true, 0);
    wait_hits(&s, 1);
    runs_drain(s.w.tasks);
    wait_hits(&s, atomic_load(&fault.hits) + 2); /* it goes on trying */
    (void)disarm();
    wait_status(&s.w, &s.check, task->task_id, "SUCCEEDED", false);
    assert_int_equal(check_results(&s.w, &s.check, "stopped"), count_results(&s.w));
    stop(&s);
}

static void test_pool_faults_malloc(void **state)
{
    (void)state;
    loop(FAULT_MALLOC, false, ENOMEM, "none");
    loop(FAULT_MALLOC, true, ENOMEM, "fail_once");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_faults_rename),
        cmocka_unit_test(test_pool_faults_fsync),
        cmocka_unit_test(test_pool_faults_unlink),
        cmocka_unit_test(test_pool_faults_write),
        cmocka_unit_test(test_pool_faults_store),
        cmocka_unit_test(test_pool_faults_malloc),
        cmocka_unit_test(test_pool_faults_store_at_a_stop),
    };
    spared = true;
    rl_log_set_level((enum rl_log_level)(RL_LOG_ERROR + 1)); /* every line here is on purpose */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
