/* Every write, read and fsync of a clip fails once, in turn; each time the error must be the right
 * one and no file may remain. Also a file system that is really full, where one can be mounted. */
// link: -Wl,--wrap=pwrite -Wl,--wrap=pread -Wl,--wrap=fsync -Wl,--wrap=dlsym
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <libavcodec/avcodec.h>

#include "base/rl.h"
#include "video/video.h"

static char dir[64];
static char path[128];

/* Call number `at` (1-based) of `op` fails with `errnum`; 0 = never. */
static struct {
    const char *op;
    int at, errnum, calls;
    bool short_write; /* instead of failing, write half and let the next call fail */
} fault;
static const char *hidden_encoder; /* not in this libavcodec */
static const char *shut_encoder;   /* there, and does not open */

ssize_t __real_pwrite(int fd, const void *bytes, size_t len, off_t at);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t len, off_t at);
ssize_t __real_pread(int fd, void *bytes, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *bytes, size_t len, off_t at);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);

static bool fails(const char *op)
{
    if (!fault.op || strcmp(op, fault.op) != 0 || ++fault.calls != fault.at)
        return false;
    errno = fault.errnum;
    return true;
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t len, off_t at)
{
    if (fails("pwrite")) {
        if (!fault.short_write || len < 2)
            return -1;
        fault.at++;
        return __real_pwrite(fd, bytes, len / 2, at);
    }
    return __real_pwrite(fd, bytes, len, at);
}

ssize_t __wrap_pread(int fd, void *bytes, size_t len, off_t at)
{
    return fails("pread") ? -1 : __real_pread(fd, bytes, len, at);
}

int __wrap_fsync(int fd)
{
    return fails("fsync") ? -1 : __real_fsync(fd);
}

static const AVCodec *(*real_find)(const char *name); /* libavcodec's */

static const AVCodec *find_encoder_by_name(const char *name)
{
    if (hidden_encoder && strcmp(name, hidden_encoder) == 0)
        return NULL;
    return real_find(name);
}

static int (*real_open)(AVCodecContext *codec, const AVCodec *kind, AVDictionary **options);

static int open_encoder(AVCodecContext *codec, const AVCodec *kind, AVDictionary **options)
{
    if (shut_encoder && strcmp(kind->name, shut_encoder) == 0)
        return AVERROR_EXTERNAL;
    return real_open(codec, kind, options);
}

/* video/ loads libav at run time: two of its functions are ours. */
void *__wrap_dlsym(void *library, const char *name)
{
    void *symbol = __real_dlsym(library, name);
    if (strcmp(name, "avcodec_find_encoder_by_name") == 0) {
        const AVCodec *(*ours)(const char *) = find_encoder_by_name;
        *(void **)&real_find = symbol;
        return *(void **)&ours;
    }
    if (strcmp(name, "avcodec_open2") == 0) {
        int (*ours)(AVCodecContext *, const AVCodec *, AVDictionary **) = open_encoder;
        *(void **)&real_open = symbol;
        return *(void **)&ours;
    }
    return symbol;
}

static int setup(void **state)
{
    (void)state;
    memset(&fault, 0, sizeof(fault));
    (void)snprintf(dir, sizeof(dir), "/tmp/reeld-video-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/clip.mp4.part", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    memset(&fault, 0, sizeof(fault));
    hidden_encoder = shut_encoder = NULL;
    return rmdir(dir); /* fails when a file was left behind */
}

/* A noisy clip, as the pool would write it: stop at the first error and abort, else finish. */
static enum rl_rc make_clip(int frames, struct rl_err *err)
{
    static uint8_t rgb[160 * 96 * 3];
    struct video_params p = {.path = path,
                             .width = 160,
                             .height = 96,
                             .fps = 24,
                             .encoder = "auto",
                             .crf = 4,
                             .gpu = -1,
                             .threads = 1};
    struct video *v = NULL;
    struct video_info info;
    uint32_t x = 7;
    enum rl_rc rc = video_open(&p, &v, err);
    for (int i = 0; rc == RL_OK && i < frames; i++) {
        for (size_t k = 0; k < sizeof(rgb); k++)
            rgb[k] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
        rc = video_write(v, rgb, 160 * 3, 160, 96, err);
        if (rc != RL_OK) {
            struct rl_err again = {0};
            if (video_write(v, rgb, 160 * 3, 160, 96, &again) != rc) /* the error sticks */
                rc = RL_INTERNAL;
        }
    }
    if (rc == RL_OK)
        return video_finish(v, &info, err);
    video_abort(v);
    return rc;
}

/* Fail call 1, 2, 3 … of op until the clip succeeds; returns how many calls there were. */
static int fail_each(const char *op, int errnum, bool short_write, enum rl_rc want)
{
    for (int at = 1; at < 1000; at++) {
        struct rl_err err = {0};
        memset(&fault, 0, sizeof(fault));
        fault.op = op;
        fault.at = at;
        fault.errnum = errnum;
        fault.short_write = short_write;
        enum rl_rc rc = make_clip(8, &err);
        if (rc == RL_OK) {
            assert_true(fault.calls < at || (short_write && fault.calls == at));
            assert_int_equal(unlink(path), 0);
            return at - 1;
        }
        assert_int_equal(rc, want);
        assert_int_equal(err.code, want);
        assert_non_null(strstr(err.reason, strerror(errnum)));
        assert_int_not_equal(access(path, F_OK), 0);
    }
    fail();
    return 0;
}

static void test_write_disk_full_at_every_write(void **state)
{
    (void)state;
    int calls = fail_each("pwrite", ENOSPC, false, RL_DISK_FULL);
    print_message("%d writes\n", calls);
    assert_true(calls >= 4); /* header, data, and both passes of faststart */
}

static void test_write_quota_after_a_short_write(void **state)
{
    (void)state;
    assert_true(fail_each("pwrite", EDQUOT, true, RL_DISK_FULL) >= 4);
}

static void test_finish_read_error_while_moving_the_index(void **state)
{
    (void)state;
    assert_true(fail_each("pread", EIO, false, RL_IO_ERROR) >= 1);
}

static void test_finish_fsync_fails(void **state)
{
    (void)state;
    assert_int_equal(fail_each("fsync", EIO, false, RL_IO_ERROR), 1);
    assert_int_equal(fail_each("fsync", ENOSPC, false, RL_DISK_FULL), 1);
}

static void test_write_file_size_limit(void **state)
{
    (void)state;
    struct rlimit before, small;
    struct rl_err err = {0};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 100000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum rl_rc rc = make_clip(40, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(rc, RL_IO_ERROR);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void test_write_full_file_system(void **state)
{
    (void)state;
    if (mount("none", dir, "tmpfs", 0, "size=256k") != 0) {
        print_message("no tmpfs can be mounted here: %s\n", strerror(errno));
        skip();
    }
    struct rl_err err = {0};
    enum rl_rc rc = make_clip(60, &err);
    struct statvfs fs;
    int stat_rc = statvfs(dir, &fs);
    int left = access(path, F_OK);
    assert_int_equal(umount(dir), 0);
    assert_int_equal(rc, RL_DISK_FULL);
    assert_int_not_equal(left, 0);
    assert_int_equal(stat_rc, 0);
    assert_int_equal(fs.f_bfree, fs.f_blocks); /* every byte was given back */
}

static void test_poster_disk_full_leaves_nothing(void **state)
{
    (void)state;
    static uint8_t rgb[64 * 64 * 3];
    struct rl_err err = {0};
    fault.op = "fsync";
    fault.at = 1;
    fault.errnum = ENOSPC;
    assert_int_equal(video_poster(path, rgb, 64 * 3, 64, 64, &err), RL_DISK_FULL);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void test_open_no_encoder_at_all(void **state)
{
    (void)state;
    struct rl_err err = {0};
    struct video_params p = {.path = path,
                             .width = 64,
                             .height = 64,
                             .fps = 24,
                             .encoder = "libx264",
                             .crf = 18,
                             .gpu = -1};
    struct video *v = NULL;
    hidden_encoder = "libx264";
    assert_int_equal(video_open(&p, &v, &err), RL_ENCODER_ERROR);
    assert_string_equal(err.field, "encoder");
    assert_false(err.retryable); /* it will not be there in a minute */
    assert_int_not_equal(access(path, F_OK), 0);
}

/* Once the last of the list had the word: "libopenh264: not in this libavcodec", while it was
 * libx264 that could not be opened. */
static void test_ready_says_what_each_encoder_said(void **state)
{
    (void)state;
    struct rl_err err = {0};
    struct video_params p = {
        .width = 64, .height = 64, .fps = 24, .encoder = "auto", .crf = 18, .gpu = -1};
    hidden_encoder = "libopenh264";
    shut_encoder = "libx264";
    assert_int_equal(video_ready(&p, NULL, &err), RL_ENCODER_ERROR);
    assert_ptr_equal(strstr(err.reason, "libx264 does not open"), err.reason);
    assert_non_null(strstr(err.reason, "libopenh264: not in this libavcodec"));
    assert_string_equal(err.field, "encoder");
    assert_true(err.retryable); /* it is there: another try may find it open */
}

static void test_open_auto_passes_over_an_encoder_that_does_not_open(void **state)
{
    (void)state;
    struct rl_err err = {0};
    /* A device that does not exist: NVENC is asked first and refuses. */
    struct video_params p = {.path = path,
                             .width = 64,
                             .height = 64,
                             .fps = 24,
                             .encoder = "auto",
                             .crf = 18,
                             .gpu = 99,
                             .threads = 1};
    static uint8_t rgb[64 * 64 * 3];
    struct video *v = NULL;
    struct video_info info;
    const char *name = NULL;
    assert_int_equal(video_open(&p, &v, &err), RL_OK);
    assert_int_equal(video_write(v, rgb, 64 * 3, 64, 64, &err), RL_OK);
    assert_int_equal(video_finish(v, &info, &err), RL_OK);
    p.gpu = -1;
    assert_int_equal(video_ready(&p, &name, &err), RL_OK);
    assert_string_equal(info.encoder, name);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_write_disk_full_at_every_write),
        WITH_DIR(test_write_quota_after_a_short_write),
        WITH_DIR(test_finish_read_error_while_moving_the_index),
        WITH_DIR(test_finish_fsync_fails),
        WITH_DIR(test_write_file_size_limit),
        WITH_DIR(test_write_full_file_system),
        WITH_DIR(test_poster_disk_full_leaves_nothing),
        WITH_DIR(test_open_no_encoder_at_all),
        WITH_DIR(test_ready_says_what_each_encoder_said),
        WITH_DIR(test_open_auto_passes_over_an_encoder_that_does_not_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
