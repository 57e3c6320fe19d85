/* The pool: order on one slot, two devices at once, what a lost device, a drain, a cancel and a
 * hung engine lead to. Devices that do not exist are played by an engine of the tests, which stands
 * in for testpattern where a test asks for it. */
// link: PkgConfig::sqlite3 -Wl,--wrap=testpattern_engine
#include "test_pool_world.h"

#include "base/buf.h"

#include "engine/testpattern/testpattern.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

/* ---- the engine of the tests: what a run does is written into its prompt ---- */

static struct {
    bool on;
    int devices;
    int64_t memory[2]; /* of the devices, bytes; 0 = not known. A clip takes one for each frame. */
    pthread_mutex_t lock; /* guards: inside, open */
    pthread_cond_t change;
    int inside;       /* runs in generate */
    bool open;        /* "hang" may go on */
    atomic_int loads; /* since the start of the test */
} stage = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

struct engine_run {
    struct engine_device device;
};

static enum rl_rc stage_probe(struct engine_device *devices, size_t room, size_t *ret_count,
                              struct rl_err *err)
{
    (void)err;
    *ret_count = (size_t)stage.devices < room ? (size_t)stage.devices : room;
    for (size_t i = 0; i < *ret_count; i++) {
        devices[i] = (struct engine_device){
            .gpu = true, .index = (int)i, .mem_bytes = i < 2 ? stage.memory[i] : 0};
        (void)snprintf(devices[i].id, sizeof devices[i].id, "gpu%zu", i);
        (void)snprintf(devices[i].backend, sizeof devices[i].backend, "stage");
    }
    return RL_OK;
}

static enum rl_rc stage_load(const struct config *cfg, const struct engine_device *device,
                             const char *model, const struct engine_ctl *ctl,
                             struct engine_run **ret_run, struct rl_err *err)
{
    (void)cfg;
    (void)model;
    (void)ctl;
    struct engine_run *run = calloc(1, sizeof *run);
    if (!run)
        return rl_fail(err, RL_NO_MEMORY, "run");
    run->device = *device;
    atomic_fetch_add(&stage.loads, 1);
    *ret_run = run;
    return RL_OK;
}

static void enter(int by)
{
    pthread_mutex_lock(&stage.lock);
    stage.inside += by;
    pthread_cond_broadcast(&stage.change);
    pthread_mutex_unlock(&stage.lock);
}

/* false: it took too long. */
static bool wait_inside(int n)
{
    struct timespec until = rl_deadline(CLOCK_MONOTONIC, WAIT_MS);
    int rc = 0;
    pthread_mutex_lock(&stage.lock);
    while (stage.inside < n && rc == 0)
        rc = pthread_cond_clockwait(&stage.change, &stage.lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&stage.lock);
    return rc == 0;
}

static enum rl_rc frames(const struct engine_request *request, const struct engine_ctl *ctl,
                         struct rl_err *err)
{
    uint8_t rgb[64 * 64 * 3];
    enum rl_rc rc = RL_OK;
    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = (uint8_t)(i * 7);
    for (int i = 0; rc == RL_OK && i < request->frames; i++) {
        const struct engine_frame frame = {rgb, 64 * 3, 64, 64, i};
        rc = ctl->on_frame(ctl->user, &frame, err);
    }
    return rc;
}

static enum rl_rc play(const struct engine_request *request, const struct engine_ctl *ctl,
                       struct rl_err *err)
{
    if (strcmp(request->prompt, "both") == 0 && !wait_inside(2))
        return rl_fail(err, RL_ENGINE_ERROR, "the other run did not come");
    if (strcmp(request->prompt, "lose") == 0)
        return rl_fail(err, RL_GPU_ERROR, "the device is lost");
    if (strcmp(request->prompt, "wait") == 0)
        for (;;) {
            struct timespec slice = {.tv_nsec = 1000000};
            if (ctl->should_stop(ctl->user))
                return rl_fail(err, RL_CANCELED, "stopped");
            (void)nanosleep(&slice, NULL); /* cut short: looks again */
        }
    if (strcmp(request->prompt, "hang") == 0) {
        pthread_mutex_lock(&stage.lock);
        while (!stage.open)
            pthread_cond_wait(&stage.change, &stage.lock);
        pthread_mutex_unlock(&stage.lock);
    }
    return frames(request, ctl, err);
}

static enum rl_rc stage_generate(struct engine_run *run, const struct engine_request *request,
                                 const struct engine_ctl *ctl, struct rl_err *err)
{
    (void)run;
    enter(1);
    enum rl_rc rc = play(request, ctl, err);
    if (strcmp(request->prompt, "both") != 0) /* both stay counted: one may leave before */
        enter(-1);
    return rc;
}

static void stage_unload(struct engine_run *run)
{
    free(run);
}

static int64_t stage_memory(const struct engine *engine, const struct engine_request *request)
{
    (void)engine;
    return request->frames;
}

static const struct engine_model stage_models[] = {{.name = "stage",
                                                    .doc = "64 by 64",
                                                    .min_px = 64,
                                                    .max_px = 64,
                                                    .px_step = 2,
                                                    .min_frames = 1,
                                                    .max_frames = 4,
                                                    .frame_step = 1,
                                                    .min_fps = 1,
                                                    .max_fps = 30,
                                                    .width = 64,
                                                    .height = 64,
                                                    .frames = 2,
                                                    .fps = 8}};
static const struct engine stage_engine = {.abi = ENGINE_ABI,
                                           .name = "testpattern",
                                           .doc = "an engine of the tests",
                                           .models = stage_models,
                                           .model_count = 1,
                                           .probe = stage_probe,
                                           .load = stage_load,
                                           .generate = stage_generate,
                                           .unload = stage_unload,
                                           .memory_bytes = stage_memory};

const struct engine *__real_testpattern_engine(void);
const struct engine *__wrap_testpattern_engine(void);

const struct engine *__wrap_testpattern_engine(void)
{
    return stage.on ? &stage_engine : __real_testpattern_engine();
}

/* ---- the world ---- */

struct scene {
    struct world w;
    struct check check;
    struct pool *pool;
    atomic_int replaced;
};

static void on_replace(void *user, const struct rl_err *err)
{
    struct scene *s = user;
    if (err->code == RL_GPU_ERROR)
        atomic_fetch_add(&s->replaced, 1);
}

/* devices 0: the real testpattern on one CPU slot. */
static void open_scene(struct scene *s, int devices)
{
    stage.on = devices > 0;
    stage.devices = devices;
    stage.memory[0] = stage.memory[1] = 0;
    stage.inside = 0;
    stage.open = false;
    atomic_store(&stage.loads, 0);
    *s = (struct scene){.pool = NULL};
    world_init(&s->w);
    world_set(&s->w, "task.retry_delay_ms", "0");
    world_open(&s->w);
    check_open(&s->check, s->w.dir);
}

static void start_pool(struct scene *s)
{
    struct rl_err err;
    world_ok(pool_start(s->w.tasks, on_replace, s, &s->pool, &err), &err);
}

static void close_scene(struct scene *s)
{
    if (s->pool)
        assert_true(pool_stop(s->pool, WAIT_MS));
    check_tables(&s->check, "at the end");
    assert_int_equal(count_results(&s->w), check_results(&s->w, &s->check, "at the end"));
    check_close(&s->check);
    world_end(&s->w);
}

static int64_t submit(struct scene *s, const char *prompt)
{
    char body[160];
    (void)snprintf(body, sizeof body,
                   "{\"prompt\":\"%s\",\"width\":64,\"height\":64,\"frames\":2,\"fps\":8}", prompt);
    AUTO_TASK struct task *task = world_submit(&s->w, body);
    return task->task_id;
}

static void expect(struct scene *s, int64_t id, const char *status, int64_t attempt,
                   int64_t crashes)
{
    AUTO_TASK struct task *task = world_get(&s->w, id);
    assert_string_equal(task->status, status);
    assert_int_equal(task->attempt, attempt);
    assert_int_equal(task->crash_count, crashes);
}

/* ---- the tests ---- */

static void test_pool_one_slot_runs_in_order(void **state)
{
    (void)state;
    static struct scene s;
    int64_t ids[3];
    char body[160];
    open_scene(&s, 0);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(body, sizeof body,
                       "{\"prompt\":\"p%d\",\"width\":64,\"height\":48,\"frames\":3}", i);
        AUTO_TASK struct task *task = world_submit(&s.w, body);
        ids[i] = task->task_id;
    }
    start_pool(&s);
    for (int i = 0; i < 3; i++)
        wait_status(&s.w, &s.check, ids[i], "SUCCEEDED", false);
    for (int i = 0; i < 3; i++) {
        AUTO_TASK struct task *task = world_get(&s.w, ids[i]);
        assert_string_equal(task->worker_id, "cpu0");
        assert_int_equal(task->video_width, 64);
        assert_int_equal(task->video_height, 48);
        assert_int_equal(task->video_frames, 3);
    }
    /* never two at once, and in the order of submission */
    char order[200];
    assert_string_equal(
        check_text(
            &s.check,
            "SELECT group_concat(to_status || (SELECT count(*) FROM task o WHERE o.task_id < "
            "e.task_id)) FROM (SELECT * FROM task_event WHERE to_status IN ('PROCESSING', "
            "'SUCCEEDED') ORDER BY seq) e",
            order, sizeof order),
        "PROCESSING0,SUCCEEDED0,PROCESSING1,SUCCEEDED1,PROCESSING2,SUCCEEDED2");
    close_scene(&s);
}

static void test_pool_two_devices_run_two_at_once(void **state)
{
    (void)state;
    static struct scene s;
    open_scene(&s, 2);
    world_set(&s.w, "task.derive_keys", "off"); /* the same prompt twice makes two tasks */
    start_pool(&s);
    int64_t a = submit(&s, "both"), b = submit(&s, "both");
    wait_status(&s.w, &s.check, a, "SUCCEEDED", false); /* each waits for the other inside */
    wait_status(&s.w, &s.check, b, "SUCCEEDED", false);
    assert_int_equal(check_int(&s.check, "SELECT count(DISTINCT worker_id) FROM task"), 2);
    close_scene(&s);
}

static void test_pool_model_stays_loaded(void **state)
{
    (void)state;
    static struct scene s;
    open_scene(&s, 1);
    start_pool(&s);
    int64_t a = submit(&s, "a"), b = submit(&s, "b");
    wait_status(&s.w, &s.check, a, "SUCCEEDED", false);
    wait_status(&s.w, &s.check, b, "SUCCEEDED", false);
    assert_int_equal(atomic_load(&stage.loads), 1);
    close_scene(&s);
}

/* A lost device: its task is charged a crash and goes back, the process is to be replaced once, the
 * device claims nothing more, and the task that ran beside it goes back uncharged. */
static void test_pool_gpu_error(void **state)
{
    (void)state;
    static struct scene s;
    struct pool_worker_info workers[4];
    open_scene(&s, 2);
    start_pool(&s);
    int64_t beside = submit(&s, "wait");
    assert_true(wait_inside(1));
    int64_t lost = submit(&s, "lose");
    for (int64_t until = rl_mono_ms() + WAIT_MS; atomic_load(&s.replaced) == 0;) {
        assert_true(rl_mono_ms() < until);
        (void)hub_wait(s.w.hub, NULL, hub_tick(s.w.hub), 5);
    }
    expect(&s, lost, "QUEUED", 1, 1);
    expect(&s, beside, "PROCESSING", 1, 0);
    for (int64_t until = rl_mono_ms() + WAIT_MS, alive = 2; alive != 1;) { /* it ends in a moment */
        assert_true(rl_mono_ms() < until);
        assert_int_equal(pool_workers(s.pool, workers, 4), 2);
        alive = workers[0].alive + workers[1].alive;
        (void)hub_wait(s.w.hub, NULL, hub_tick(s.w.hub), 5);
    }
    assert_true(pool_stop(STEAL(s.pool), WAIT_MS));
    assert_int_equal(atomic_load(&s.replaced), 1);
    expect(&s, beside, "QUEUED", 0, 0);
    expect(&s, lost, "QUEUED", 1, 1);
    close_scene(&s);
}

static void test_pool_gpu_error_spends_the_crash_budget(void **state)
{
    (void)state;
    static struct scene s;
    open_scene(&s, 1);
    world_set(&s.w, "pool.crash_budget", "1");
    start_pool(&s);
    int64_t lost = submit(&s, "lose");
    wait_status(&s.w, &s.check, lost, "FAILED", false);
    AUTO_TASK struct task *task = world_get(&s.w, lost);
    assert_string_equal(task->error_code, "WORKER_CRASH");
    close_scene(&s);
}

static void test_pool_drain_hands_back(void **state)
{
    (void)state;
    static struct scene s;
    open_scene(&s, 1);
    start_pool(&s);
    int64_t id = submit(&s, "wait"), next = submit(&s, "next");
    assert_true(wait_inside(1));
    assert_true(pool_stop(STEAL(s.pool), WAIT_MS));
    expect(&s, id, "QUEUED", 0, 0);
    expect(&s, next, "QUEUED", 0, 0); /* a drain claims nothing more */
    assert_int_equal(runs_active(s.w.tasks), 0);
    close_scene(&s);
}

static void test_pool_hard_cancel_stops_the_run(void **state)
{
    (void)state;
    static struct scene s;
    struct rl_err err;
    open_scene(&s, 1);
    start_pool(&s);
    int64_t id = submit(&s, "wait"), next = submit(&s, "next");
    assert_true(wait_inside(1));
    AUTO_TASK struct task *task = NULL;
    world_ok(task_cancel(s.w.tasks, &owner, id, CANCEL_HARD, &task, &err), &err);
    assert_string_equal(task->status, "PROCESSING");
    wait_status(&s.w, &s.check, next, "SUCCEEDED", false); /* the slot is free again */
    expect(&s, id, "CANCELED", 1, 0);
    close_scene(&s);
}

static void test_pool_hung_engine_is_given_up(void **state)
{
    (void)state;
    static struct scene s;
    open_scene(&s, 2);
    start_pool(&s);
    int64_t id = submit(&s, "hang");
    assert_true(wait_inside(1));
    int64_t begun = rl_mono_ms();
    assert_false(pool_stop(s.pool, 100));
    int64_t took = rl_mono_ms() - begun;
    assert_true(took >= 100 && took < WAIT_MS / 2);
    expect(&s, id, "PROCESSING", 1, 0);
    runs_hand_back(s.w.tasks);
    expect(&s, id, "QUEUED", 0, 0); /* a step that takes long is no crash */
    pthread_mutex_lock(&stage.lock);
    stage.open = true;
    pthread_cond_broadcast(&stage.change);
    pthread_mutex_unlock(&stage.lock);
    assert_true(pool_stop(s.pool, WAIT_MS)); /* of which the other worker knows already */
    expect(&s, id, "QUEUED", 0, 0);          /* what the run found out later is nobody's */
    s.pool = NULL;
    close_scene(&s);
}

static void reopen(struct scene *s)
{
    check_close(&s->check);
    world_close(&s->w);
    world_open(&s->w);
    check_open(&s->check, s->w.dir);
}

static int64_t submit_frames(struct scene *s, const char *prompt, int frames)
{
    char body[160];
    (void)snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"frames\":%d}", prompt, frames);
    AUTO_TASK struct task *task = world_submit(&s->w, body);
    return task->task_id;
}

static void expect_error(struct scene *s, int64_t id, const char *code, const char *words)
{
    AUTO_TASK struct task *task = world_get(&s->w, id);
    assert_string_equal(task->error_code, code);
    if (!strstr(task->error_msg, words))
        fail_msg("\"%s\" does not say \"%s\"", task->error_msg, words);
}

/* What no device holds is refused at the door, and where the machine has changed since, before a
 * claim: no attempt, no load, and those behind it run. */
static void test_pool_what_fits_nowhere_is_never_claimed(void **state)
{
    (void)state;
    static struct scene s;
    struct rl_err err;
    struct submit_reply reply;
    static const char body[] = "{\"prompt\":\"large\",\"frames\":4}";
    int64_t large[12];
    open_scene(&s, 2);
    stage.memory[0] = stage.memory[1] = 4;
    reopen(&s);
    for (size_t i = 0; i < RL_ARRAY_LEN(large); i++) { /* more than one claim looks at */
        char prompt[16];
        (void)snprintf(prompt, sizeof prompt, "large%zu", i);
        large[i] = submit_frames(&s, prompt, 4);
    }
    int64_t small = submit_frames(&s, "small", 1);
    static const char keyed[] = "{\"prompt\":\"kept\",\"frames\":4,\"idempotency_key\":\"k\"}";
    AUTO_TASK struct task *kept = world_submit(&s.w, keyed);
    stage.memory[0] = 1;
    stage.memory[1] = 3;
    reopen(&s);
    assert_int_equal(task_submit(s.w.tasks, &owner, body, strlen(body), NULL, &reply, &err),
                     RL_INVALID_FIELD);
    assert_string_equal(err.field, "model");
    assert_non_null(strstr(err.reason, "4 frames of 64 x 64"));
    assert_non_null(strstr(err.reason, "gpu1"));
    /* a repeat of what could be made then is answered with its task, other content is not */
    world_ok(task_submit(s.w.tasks, &owner, keyed, strlen(keyed), NULL, &reply, &err), &err);
    assert_true(reply.replayed && reply.task->task_id == kept->task_id);
    AUTO_BUF struct rl_buf why = {0};
    rl_buf_init(&why, 4096);
    world_ok(task_explain(s.w.tasks, reply.task, &why, &err), &err);
    assert_non_null(memmem(why.data, why.len, "No device here can hold it", 26));
    task_free(reply.task);
    assert_int_equal(task_submit(s.w.tasks, &owner, body, strlen(body), "k", &reply, &err),
                     RL_IDEMPOTENCY_KEY_REUSED);
    assert_int_equal(task_submit(s.w.tasks, &owner, body, strlen(body), "new", &reply, &err),
                     RL_INVALID_FIELD);
    assert_string_equal(err.field, "model");
    start_pool(&s);
    wait_status(&s.w, &s.check, small, "SUCCEEDED", false);
    for (size_t i = 0; i < RL_ARRAY_LEN(large); i++) {
        expect(&s, large[i], "FAILED", 0, 0);
        expect_error(&s, large[i], "OUT_OF_GPU_MEMORY", "and gpu1 has");
    }
    assert_int_equal(atomic_load(&stage.loads), 1);
    close_scene(&s);
}

/* Twice the work of which only the second device can hold the larger half. */
static void test_pool_a_task_goes_to_a_device_that_holds_it(void **state)
{
    (void)state;
    static struct scene s;
    int64_t ids[6];
    open_scene(&s, 2);
    stage.memory[0] = 2;
    stage.memory[1] = 4;
    reopen(&s);
    for (int i = 0; i < 6; i++) {
        char prompt[16];
        (void)snprintf(prompt, sizeof prompt, "p%d", i);
        ids[i] = submit_frames(&s, prompt, 2 + 2 * (i % 2));
    }
    AUTO_BUF struct rl_buf why = {0};
    struct rl_err err;
    rl_buf_init(&why, 4096);
    AUTO_TASK struct task *waiting = world_get(&s.w, ids[1]);
    world_ok(task_explain(s.w.tasks, waiting, &why, &err), &err);
    assert_non_null(memmem(why.data, why.len, "Only gpu1 of 2 devices", 22));
    start_pool(&s);
    for (int i = 0; i < 6; i++) {
        wait_status(&s.w, &s.check, ids[i], "SUCCEEDED", false);
        AUTO_TASK struct task *task = world_get(&s.w, ids[i]);
        if (i % 2)
            assert_string_equal(task->worker_id, "gpu1");
        assert_int_equal(task->attempt, 1);
    }
    close_scene(&s);
}

static void test_pool_a_gone_model_is_never_claimed(void **state)
{
    (void)state;
    static struct scene s;
    open_scene(&s, 1);
    int64_t gone = submit(&s, "gone");
    static const char keyed[] = "{\"prompt\":\"k\",\"model\":\"stage\",\"idempotency_key\":\"k\"}";
    struct rl_err err;
    struct submit_reply reply;
    AUTO_TASK struct task *kept = world_submit(&s.w, keyed);
    stage.on = false;
    reopen(&s);
    world_ok(task_submit(s.w.tasks, &owner, keyed, strlen(keyed), NULL, &reply, &err), &err);
    assert_true(reply.replayed && reply.task->task_id == kept->task_id);
    AUTO_BUF struct rl_buf why = {0};
    rl_buf_init(&why, 4096);
    world_ok(task_explain(s.w.tasks, reply.task, &why, &err), &err);
    assert_non_null(memmem(why.data, why.len, "is not here: it fails", 21));
    task_free(reply.task);
    start_pool(&s);
    wait_status(&s.w, &s.check, gone, "FAILED", false);
    expect(&s, gone, "FAILED", 0, 0);
    expect_error(&s, gone, "ENGINE_GONE", "no usable model stage here");
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_one_slot_runs_in_order),
        cmocka_unit_test(test_pool_two_devices_run_two_at_once),
        cmocka_unit_test(test_pool_model_stays_loaded),
        cmocka_unit_test(test_pool_gpu_error),
        cmocka_unit_test(test_pool_gpu_error_spends_the_crash_budget),
        cmocka_unit_test(test_pool_drain_hands_back),
        cmocka_unit_test(test_pool_hard_cancel_stops_the_run),
        cmocka_unit_test(test_pool_hung_engine_is_given_up),
        cmocka_unit_test(test_pool_what_fits_nowhere_is_never_claimed),
        cmocka_unit_test(test_pool_a_task_goes_to_a_device_that_holds_it),
        cmocka_unit_test(test_pool_a_gone_model_is_never_claimed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
