/* The testpattern engine: frames that depend on the request alone, stopping, checkpoints, and each
 * scripted fault (those that take the process with them happen in a child). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crypto.h"
#include "engine/engine.h"
#include "engine/testpattern/testpattern.h"

#define MAX_FRAMES 256

/* What a run did, as seen by its caller. */
struct seen {
    uint8_t hash[MAX_FRAMES][RL_HASH_BYTES]; /* of each frame */
    int frames, beats, loads, last_step;
    bool constant[MAX_FRAMES]; /* all pixels equal */
    int red_x[MAX_FRAMES];     /* centre of the strongly red pixels of the middle rows, -1 none */
    int stop_after;            /* frames, then should_stop says true; -1 never */
    int polls, polls_after_stop;
    int polls_at[MAX_FRAMES]; /* looks at should_stop until the frame came */
    int fail_at;              /* on_frame fails there; -1 never */
    uint8_t checkpoint[64];
    size_t checkpoint_len;
    int checkpoints;
    bool checkpoint_fails;
    bool ask;     /* set checkpoint_due */
    int due_from; /* frames from which it says true */
    int asked;
};

static void on_progress(void *user, enum engine_phase phase, int step, int total)
{
    struct seen *seen = user;
    seen->beats++;
    assert_true(step >= 0 && step <= total);
    if (phase == ENGINE_LOAD)
        seen->loads++;
    if (phase == ENGINE_DENOISE)
        seen->last_step = step;
}

static bool on_stop(void *user)
{
    struct seen *seen = user;
    seen->polls++;
    bool stop = seen->stop_after >= 0 && seen->frames >= seen->stop_after;
    seen->polls_after_stop += stop;
    return stop;
}

static int red_centre(const struct engine_frame *f)
{
    int64_t sum = 0, n = 0;
    for (int y = f->height * 3 / 10; y < f->height * 6 / 10; y++)
        for (int x = f->width / 20; x < f->width * 19 / 20; x++) {
            const uint8_t *p = f->rgb + (size_t)y * f->stride + (size_t)x * 3;
            if (p[0] > 150 && p[1] < 90 && p[2] < 90) {
                sum += x;
                n++;
            }
        }
    return n ? (int)(sum / n) : -1;
}

static enum rl_rc on_frame(void *user, const struct engine_frame *frame, struct rl_err *err)
{
    struct seen *seen = user;
    size_t bytes = frame->stride * (size_t)frame->height;
    assert_int_equal(frame->index, seen->frames); /* in order, none twice */
    assert_true(frame->index < MAX_FRAMES);
    if (frame->index == seen->fail_at)
        return rl_fail(err, RL_DISK_FULL, "on purpose");
    rl_hash(frame->rgb, bytes, seen->hash[frame->index]);
    seen->constant[frame->index] = memcmp(frame->rgb, frame->rgb + 3, bytes - 3) == 0;
    seen->red_x[frame->index] = red_centre(frame);
    seen->polls_at[frame->index] = seen->polls;
    seen->frames++;
    return RL_OK;
}

static enum rl_rc on_checkpoint(void *user, const void *bytes, size_t len, struct rl_err *err)
{
    struct seen *seen = user;
    assert_true(len <= sizeof(seen->checkpoint));
    if (seen->checkpoint_fails)
        return rl_fail(err, RL_DISK_FULL, "on purpose");
    memcpy(seen->checkpoint, bytes, len);
    seen->checkpoint_len = len;
    seen->checkpoints++;
    return RL_OK;
}

static bool on_checkpoint_due(void *user)
{
    struct seen *seen = user;
    seen->asked++;
    return seen->frames >= seen->due_from;
}

static struct engine_request request_of(const char *prompt, int frames, const char *options)
{
    return (struct engine_request){.prompt = prompt,
                                   .negative_prompt = "",
                                   .model = "testcard",
                                   .width = 320,
                                   .height = 180,
                                   .frames = frames,
                                   .fps = 24,
                                   .seed = 42,
                                   .options = options,
                                   .attempt = 1};
}

/* A run with fresh figures but for the knobs already set in `seen`. */
static enum rl_rc run(const struct engine_request *request, struct seen *seen,
                      const struct seen *resume_from, struct rl_err *err)
{
    const struct engine *engine = testpattern_engine();
    const struct engine_device device = {.id = "cpu0", .backend = "cpu"};
    struct engine_ctl ctl = {.user = seen,
                             .progress = on_progress,
                             .should_stop = on_stop,
                             .on_frame = on_frame,
                             .checkpoint_save = on_checkpoint};
    struct engine_run *loaded = NULL;
    if (seen->ask)
        ctl.checkpoint_due = on_checkpoint_due;
    if (resume_from) {
        ctl.checkpoint = resume_from->checkpoint;
        ctl.checkpoint_len = resume_from->checkpoint_len;
    }
    assert_int_equal(
        engine->load(NULL, &device, "", &(struct engine_ctl){.user = NULL}, &loaded, err), RL_OK);
    enum rl_rc rc = engine->generate(loaded, request, &ctl, err);
    engine->unload(loaded);
    return rc;
}

static struct seen *new_seen(void)
{
    struct seen *seen = calloc(1, sizeof(*seen));
    assert_non_null(seen);
    seen->stop_after = seen->fail_at = -1;
    return seen;
}

static bool same_frames(const struct seen *a, const struct seen *b)
{
    return a->frames == b->frames &&
           memcmp(a->hash, b->hash, (size_t)a->frames * RL_HASH_BYTES) == 0;
}

static struct seen *run_ok(struct engine_request request)
{
    struct seen *seen = new_seen();
    struct rl_err err = {0};
    assert_int_equal(run(&request, seen, NULL, &err), RL_OK);
    return seen;
}

static void test_generate_same_request_same_bytes(void **state)
{
    (void)state;
    AUTO_FREE struct seen *a = run_ok(request_of("a red circle moving left", 12, "{}"));
    AUTO_FREE struct seen *b = run_ok(request_of("a red circle moving left", 12, "{}"));
    assert_int_equal(a->frames, 12);
    assert_true(same_frames(a, b));
    assert_int_equal(a->last_step, 12);
    assert_true(a->loads >= 1);
    assert_true(a->beats >= 13);
}

static void test_generate_same_bytes_on_every_machine(void **state)
{
    (void)state;
    AUTO_FREE struct seen *a = run_ok(request_of("a golden star spinning around", 5, "{}"));
    char hex[2 * RL_HASH_BYTES + 1];
    rl_hex(a->hash[4], RL_HASH_BYTES, hex);
    /* Written down once; a compiler, flag or libm that changes a pixel shows here. Change it
     * together with the picture. */
    assert_string_equal(hex, "6bcf48581c0bba740582c2660d1b208f30704fb1ba3c857377055d14585d00bc");
}

static void test_generate_differs_by_prompt_seed_and_time(void **state)
{
    (void)state;
    struct engine_request other_seed = request_of("hello", 3, "{}");
    other_seed.seed = 43;
    AUTO_FREE struct seen *a = run_ok(request_of("hello", 3, "{}"));
    AUTO_FREE struct seen *b = run_ok(request_of("hello!", 3, "{}"));
    AUTO_FREE struct seen *c = run_ok(other_seed);
    for (int i = 0; i < 3; i++) {
        assert_memory_not_equal(a->hash[i], b->hash[i], RL_HASH_BYTES);
        assert_memory_not_equal(a->hash[i], c->hash[i], RL_HASH_BYTES);
    }
    assert_memory_not_equal(a->hash[0], a->hash[1], RL_HASH_BYTES);
    assert_memory_not_equal(a->hash[1], a->hash[2], RL_HASH_BYTES);
    assert_false(a->constant[0]);
}

static void test_generate_figure_moves_as_the_prompt_says(void **state)
{
    (void)state;
    AUTO_FREE struct seen *left =
        run_ok(request_of("a red circle moving left on a black background", 16, "{}"));
    AUTO_FREE struct seen *right =
        run_ok(request_of("black background, red square to the RIGHT", 16, "{}"));
    assert_true(left->red_x[0] > 240);
    assert_true(left->red_x[15] < 80);
    assert_true(right->red_x[0] < 80);
    assert_true(right->red_x[15] > 240);
    for (int i = 1; i < 16; i++) {
        assert_true(left->red_x[i] < left->red_x[i - 1]);
        assert_true(right->red_x[i] > right->red_x[i - 1]);
    }
}

static void test_generate_every_size_and_odd_prompts(void **state)
{
    (void)state;
    static const int sizes[][2] = {{32, 32}, {2048, 32}, {32, 2048},
                                   {96, 96}, {144, 256}, {34, 62}};
    static const char *const prompts[] = {"x",
                                          "\x01\t\n",
                                          "\xf0\x9f\x8e\xac \xc3\xbc",
                                          "star spinning up",
                                          "blue ball down",
                                          "box orbiting",
                                          "triangle diagonally",
                                          "pyramid bouncing"};
    for (size_t s = 0; s < RL_ARRAY_LEN(sizes); s++)
        for (size_t p = 0; p < RL_ARRAY_LEN(prompts); p++) {
            struct engine_request request = request_of(prompts[p], 3, "{}");
            request.width = sizes[s][0];
            request.height = sizes[s][1];
            request.seed = (int64_t)p * 1000003;
            free(run_ok(request)); /* the sanitizers look at the drawing */
        }
    free(run_ok(request_of("one frame", 1, "{}")));
}

static void test_generate_stop_within_one_frame(void **state)
{
    (void)state;
    struct engine_request request = request_of("x", 100, "{}");
    AUTO_FREE struct seen *seen = new_seen();
    struct rl_err err = {0};
    seen->stop_after = 5;
    assert_int_equal(run(&request, seen, NULL, &err), RL_CANCELED);
    assert_int_equal(seen->frames, 5);
    assert_int_equal(seen->polls_after_stop, 1);
}

static bool stop_at_a_time(void *user)
{
    return rl_mono_ms() >= *(int64_t *)user;
}

static enum rl_rc drop_frame(void *user, const struct engine_frame *frame, struct rl_err *err)
{
    (void)user;
    (void)frame;
    (void)err;
    return RL_OK;
}

static void test_generate_stop_while_waiting(void **state)
{
    (void)state;
    struct engine_request request = request_of("x", 10, "{\"frame_ms\":60000}");
    struct rl_err err = {0};
    int64_t start = rl_mono_ms(), at = start + 100;
    const struct engine_ctl ctl = {
        .user = &at, .should_stop = stop_at_a_time, .on_frame = drop_frame};
    assert_int_equal(testpattern_engine()->generate(NULL, &request, &ctl, &err), RL_CANCELED);
    int64_t took = rl_mono_ms() - start;
    assert_true(took >= 100 && took < 5000); /* not the 60 s of the frame */
}

static void test_generate_frame_ms_is_the_pace(void **state)
{
    (void)state;
    struct engine_request request = request_of("x", 5, "{\"frame_ms\":30}");
    int64_t start = rl_mono_ms();
    free(run_ok(request));
    assert_true(rl_mono_ms() - start >= 150);
}

static void test_generate_error_of_on_frame_ends_the_run(void **state)
{
    (void)state;
    struct engine_request request = request_of("x", 10, "{}");
    AUTO_FREE struct seen *seen = new_seen();
    struct rl_err err = {0};
    seen->fail_at = 4;
    assert_int_equal(run(&request, seen, NULL, &err), RL_DISK_FULL);
    assert_string_equal(err.reason, "on purpose");
    assert_int_equal(seen->frames, 4);
}

static void test_generate_resume_gives_the_same_clip_without_the_waits(void **state)
{
    (void)state;
    struct engine_request request = request_of("a blue ball bouncing", 20, "{\"frame_ms\":10}");
    AUTO_FREE struct seen *whole = run_ok(request);
    AUTO_FREE struct seen *cut = new_seen();
    AUTO_FREE struct seen *rest = new_seen();
    struct rl_err err = {0};
    cut->stop_after = 17;
    assert_int_equal(run(&request, cut, NULL, &err), RL_CANCELED);
    assert_true(cut->checkpoints >= 2);
    request.attempt = 2;
    assert_int_equal(run(&request, rest, cut, &err), RL_OK);
    assert_true(same_frames(whole, rest));
    /* A frame that waits looks at should_stop again and again, one that does not looks once. */
    assert_true(whole->polls_at[15] >= 3 * 16);
    assert_int_equal(rest->polls_at[15], 16);      /* made before: no waits */
    assert_true(rest->polls_at[19] >= 16 + 4 * 3); /* made now */
}

static void test_generate_checkpoint_when_the_caller_says_so(void **state)
{
    (void)state;
    struct engine_request request = request_of("x", 20, "{}");
    AUTO_FREE struct seen *seen = new_seen();
    struct rl_err err = {0};
    seen->ask = true;
    seen->due_from = 17;
    assert_int_equal(run(&request, seen, NULL, &err), RL_OK);
    assert_int_equal(seen->asked, 19);      /* after each frame but the last */
    assert_int_equal(seen->checkpoints, 3); /* its own pace does not count */
}

static void test_generate_stopped_run_saves_when_the_caller_says_so(void **state)
{
    (void)state;
    struct engine_request request = request_of("x", 20, "{}");
    AUTO_FREE struct seen *cut = new_seen();
    AUTO_FREE struct seen *rest = new_seen();
    struct rl_err err = {0};
    cut->ask = true;
    cut->due_from = cut->stop_after = 5;
    assert_int_equal(run(&request, cut, NULL, &err), RL_CANCELED);
    assert_true(cut->checkpoints >= 1);
    rest->ask = true;
    rest->due_from = 100;
    assert_int_equal(run(&request, rest, cut, &err), RL_OK);
    assert_int_equal(rest->asked, 14); /* frames 0 to 4 were made before */
}

static void test_generate_bad_checkpoint_is_ignored(void **state)
{
    (void)state;
    struct engine_request request = request_of("a blue ball bouncing", 20, "{}");
    AUTO_FREE struct seen *whole = run_ok(request);
    struct rl_err err = {0};
    assert_true(whole->checkpoint_len > 0);
    for (size_t i = 0; i <= whole->checkpoint_len; i++) {
        AUTO_FREE struct seen *bad = new_seen();
        AUTO_FREE struct seen *again = new_seen();
        memcpy(bad->checkpoint, whole->checkpoint, whole->checkpoint_len);
        bad->checkpoint_len = i; /* cut */
        if (i == whole->checkpoint_len)
            bad->checkpoint[i - 1] = 0x7f; /* a frame number far beyond the clip */
        assert_int_equal(run(&request, again, bad, &err), RL_OK);
        assert_true(same_frames(whole, again));
        assert_int_equal(again->checkpoints, whole->checkpoints); /* nothing was taken as made */
    }
}

static void test_generate_checkpoint_of_another_request_is_ignored(void **state)
{
    (void)state;
    AUTO_FREE struct seen *other = run_ok(request_of("something else", 20, "{}"));
    AUTO_FREE struct seen *seen = new_seen();
    struct engine_request request = request_of("x", 20, "{}");
    struct rl_err err = {0};
    assert_int_equal(run(&request, seen, other, &err), RL_OK);
    assert_int_equal(seen->checkpoints, 2); /* at 8 and 16, from the start */
}

static void test_generate_lost_checkpoint_does_not_end_the_run(void **state)
{
    (void)state;
    struct engine_request request = request_of("x", 20, "{}");
    AUTO_FREE struct seen *seen = new_seen();
    struct rl_err err = {0};
    seen->checkpoint_fails = true;
    assert_int_equal(run(&request, seen, NULL, &err), RL_OK);
    assert_int_equal(seen->frames, 20);
}

static void test_fault_fail_is_retryable_every_time(void **state)
{
    (void)state;
    struct engine_request request = request_of("x", 10, "{\"fault\":\"fail\",\"fault_at\":3}");
    for (int retry = 0; retry < 2; retry++) {
        AUTO_FREE struct seen *seen = new_seen();
        struct rl_err err = {0};
        request.retry_count = retry;
        assert_int_equal(run(&request, seen, NULL, &err), RL_ENGINE_ERROR);
        assert_int_equal(err.code, RL_ENGINE_ERROR);
        assert_true(err.retryable);
        assert_int_equal(seen->frames, 3);
    }
}

static void test_fault_fail_once_heals_with_the_first_retry(void **state)
{
    (void)state;
    struct engine_request request = request_of("x", 10, "{\"fault\":\"fail_once\"}");
    AUTO_FREE struct seen *seen = new_seen();
    AUTO_FREE struct seen *again = new_seen();
    struct rl_err err = {0};
    assert_int_equal(run(&request, seen, NULL, &err), RL_ENGINE_ERROR);
    assert_true(err.retryable);
    assert_int_equal(seen->frames, 0);
    request.retry_count = 1;
    assert_int_equal(run(&request, again, NULL, &err), RL_OK);
    assert_int_equal(again->frames, 10);
}

static void test_fault_constant(void **state)
{
    (void)state;
    AUTO_FREE struct seen *all = run_ok(request_of("x", 6, "{\"fault\":\"constant\"}"));
    AUTO_FREE struct seen *tail =
        run_ok(request_of("x", 6, "{\"fault\":\"constant\",\"fault_at\":4}"));
    for (int i = 0; i < 6; i++) {
        assert_true(all->constant[i]);
        assert_int_equal(tail->constant[i], i >= 4);
    }
}

static void test_fault_short(void **state)
{
    (void)state;
    AUTO_FREE struct seen *seen = run_ok(request_of("x", 11, "{\"fault\":\"short\"}"));
    assert_int_equal(seen->frames, 5);
}

/* Run the request in a child that tells by a byte when generate has returned. */
static pid_t run_in_child(const struct engine_request *request, int *ret_fd)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int64_t at = rl_mono_ms() + 200; /* then should_stop says true */
        struct engine_ctl ctl = {
            .user = &at, .should_stop = stop_at_a_time, .on_frame = drop_frame};
        (void)testpattern_engine()->generate(NULL, request, &ctl, NULL);
        _exit(write(fds[1], "x", 1) == 1 ? 0 : 1);
    }
    (void)close(fds[1]);
    *ret_fd = fds[0];
    return pid;
}

static void test_fault_abort_kills_the_process(void **state)
{
    (void)state;
    struct engine_request request = request_of("x", 10, "{\"fault\":\"abort\",\"fault_at\":2}");
    int fd, status;
    char byte;
    pid_t pid = run_in_child(&request, &fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(read(fd, &byte, 1), 0);
    (void)close(fd);
}

static void test_fault_hang_is_deaf_and_idle(void **state)
{
    (void)state;
    struct engine_request request = request_of("x", 10, "{\"fault\":\"hang\",\"fault_at\":1}");
    int fd, status;
    struct rusage usage;
    const struct timespec moment = {.tv_nsec = 400000000};
    pid_t pid = run_in_child(&request, &fd);
    (void)nanosleep(&moment, NULL);                      /* a hang can only be waited for */
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0); /* still there */
    assert_int_equal(kill(pid, SIGCONT), 0);             /* a signal does not end the wait */
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(wait4(pid, &status, 0, &usage), pid);
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_true(usage.ru_utime.tv_sec == 0 && usage.ru_utime.tv_usec < 300000); /* no busy loop */
    char byte;
    assert_int_equal(read(fd, &byte, 1), 0); /* generate never returned */
    (void)close(fd);
}

static void test_input_wait_ms_reads_the_option(void **state)
{
    (void)state;
    struct engine_request request = request_of("x", 1, "{\"input_ms\":1500}");
    assert_int_equal(testpattern_engine()->input_wait_ms(&request), 1500);
    request.options = "{}";
    assert_int_equal(testpattern_engine()->input_wait_ms(&request), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generate_same_request_same_bytes),
        cmocka_unit_test(test_generate_same_bytes_on_every_machine),
        cmocka_unit_test(test_generate_differs_by_prompt_seed_and_time),
        cmocka_unit_test(test_generate_figure_moves_as_the_prompt_says),
        cmocka_unit_test(test_generate_every_size_and_odd_prompts),
        cmocka_unit_test(test_generate_stop_within_one_frame),
        cmocka_unit_test(test_generate_stop_while_waiting),
        cmocka_unit_test(test_generate_frame_ms_is_the_pace),
        cmocka_unit_test(test_generate_error_of_on_frame_ends_the_run),
        cmocka_unit_test(test_generate_resume_gives_the_same_clip_without_the_waits),
        cmocka_unit_test(test_generate_checkpoint_when_the_caller_says_so),
        cmocka_unit_test(test_generate_stopped_run_saves_when_the_caller_says_so),
        cmocka_unit_test(test_generate_bad_checkpoint_is_ignored),
        cmocka_unit_test(test_generate_checkpoint_of_another_request_is_ignored),
        cmocka_unit_test(test_generate_lost_checkpoint_does_not_end_the_run),
        cmocka_unit_test(test_fault_fail_is_retryable_every_time),
        cmocka_unit_test(test_fault_fail_once_heals_with_the_first_retry),
        cmocka_unit_test(test_fault_constant),
        cmocka_unit_test(test_fault_short),
        cmocka_unit_test(test_fault_abort_kills_the_process),
        cmocka_unit_test(test_fault_hang_is_deaf_and_idle),
        cmocka_unit_test(test_input_wait_ms_reads_the_option),
    };
    struct rl_err err;
    if (rl_crypto_init(&err) != RL_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
