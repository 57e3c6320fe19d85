// clang-format off
// link: -Wl,--wrap=rename,--wrap=fsync,--wrap=write,--wrap=close,--wrap=open,--wrap=fchmod,--wrap=malloc
// clang-format on
/* Durable files on a real file system, with every system call and allocation made to fail in
 * turn; and the lock against a second process. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int calls_left = -1;  /* wrapped calls before one fails; below 0: none fails */
static int fail_errno = EIO; /* what the failing call says */
static size_t write_max;     /* bytes one write takes; 0: all */
static char trace[64];       /* the calls that matter for durability, one letter each */
static bool renamed;         /* the last rename worked */
static char folder[64];

int __real_rename(const char *from, const char *to);
int __real_fsync(int fd);
ssize_t __real_write(int fd, const void *bytes, size_t len);
int __real_close(int fd);
int __real_open(const char *path, int flags, ...);
int __real_fchmod(int fd, mode_t mode);
void *__real_malloc(size_t size);
int __wrap_rename(const char *from, const char *to);
int __wrap_fsync(int fd);
ssize_t __wrap_write(int fd, const void *bytes, size_t len);
int __wrap_close(int fd);
int __wrap_open(const char *path, int flags, ...);
int __wrap_fchmod(int fd, mode_t mode);
void *__wrap_malloc(size_t size);

/* false: this call is the one to fail. */
static bool passes(char letter)
{
    size_t n = strlen(trace);

    if (letter && n + 1 < sizeof(trace))
        trace[n] = letter;
    if (calls_left < 0)
        return true;
    if (calls_left == 0) {
        calls_left = -1;
        errno = fail_errno;
        return false;
    }
    calls_left--;
    return true;
}

int __wrap_rename(const char *from, const char *to)
{
    renamed = passes('R') && __real_rename(from, to) == 0;
    return renamed ? 0 : -1;
}

int __wrap_fsync(int fd)
{
    struct stat st;

    return passes(fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) ? 'D' : 'F') ? __real_fsync(fd) : -1;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t len)
{
    if (!passes('W'))
        return -1;
    return __real_write(fd, bytes, write_max && len > write_max ? write_max : len);
}

int __wrap_close(int fd)
{
    int rc = __real_close(fd);

    return passes(0) ? rc : -1;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    assert_true(flags & O_CLOEXEC);
    return passes(0) ? __real_open(path, flags, mode) : -1;
}

int __wrap_fchmod(int fd, mode_t mode)
{
    return passes(0) ? __real_fchmod(fd, mode) : -1;
}

void *__wrap_malloc(size_t size)
{
    return passes(0) ? __real_malloc(size) : NULL;
}

static const char *in_folder(const char *name)
{
    static char path[2][160];
    static unsigned turn;
    char *out = path[turn++ % 2];

    assert_true(snprintf(out, sizeof(path[0]), "%s/%s", folder, name) < (int)sizeof(path[0]));
    return out;
}

static void assert_content(const char *name, const char *expected)
{
    AUTO_FREE char *bytes = NULL;
    size_t len = 0;

    assert_int_equal(rl_fs_read(in_folder(name), 100000, &bytes, &len, NULL), RL_OK);
    assert_int_equal(len, strlen(expected));
    assert_string_equal(bytes, expected);
}

static mode_t mode_of(const char *name)
{
    struct stat st;

    assert_int_equal(stat(in_folder(name), &st), 0);
    return st.st_mode & 07777;
}

static bool exists(const char *name)
{
    return access(in_folder(name), F_OK) == 0;
}

static enum rl_rc write_text(const char *name, const char *text, struct rl_err *err)
{
    return rl_fs_write_durable(in_folder(name), text, strlen(text), 0600, err);
}

static int setup(void **state)
{
    (void)state;
    calls_left = -1;
    fail_errno = EIO;
    write_max = 0;
    (void)snprintf(folder, sizeof(folder), "/tmp/reeld-fs-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    static const char *const left[] = {"f", "f.tmp", "lock", "a/b/c", "a/b", "a", "g"};

    (void)state;
    calls_left = -1;
    for (size_t i = 0; i < RL_ARRAY_LEN(left); i++)
        (void)remove(in_folder(left[i]));
    return rmdir(folder);
}

static void test_rl_fs_write_durable_order_and_mode(void **state)
{
    (void)state;
    mode_t old = umask(077);

    memset(trace, 0, sizeof(trace));
    assert_int_equal(rl_fs_write_durable(in_folder("f"), "one", 3, 0644, NULL), RL_OK);
    (void)umask(old);
    assert_string_equal(trace, "WFRD"); /* bytes, their fsync, the name, the folder's fsync */
    assert_content("f", "one");
    assert_int_equal(mode_of("f"), 0644);
    assert_int_equal(write_text("f", "second", NULL), RL_OK);
    assert_content("f", "second");
    assert_int_equal(mode_of("f"), 0600);
    assert_int_equal(write_text("f", "", NULL), RL_OK);
    assert_content("f", "");
    assert_false(exists("f.tmp"));
}

static void test_rl_fs_write_durable_short_writes(void **state)
{
    (void)state;
    write_max = 3;
    assert_int_equal(write_text("f", "0123456789", NULL), RL_OK);
    assert_content("f", "0123456789");
}

/* A left-over of a crash, readable by all: the secret must not be written into that file. */
static void test_rl_fs_write_durable_replaces_stale_tmp(void **state)
{
    (void)state;
    int fd = open(in_folder("f.tmp"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(link(in_folder("f.tmp"), in_folder("g")), 0);
    assert_int_equal(write_text("f", "secret", NULL), RL_OK);
    assert_int_equal(close(fd), 0);
    assert_content("f", "secret");
    assert_content("g", "");
    assert_int_equal(mode_of("f"), 0600);
}

/* Fail call N of everything until the write succeeds: the old file or the whole new one, never a
 * part, never a temporary file. */
static void test_rl_fs_write_durable_leaves_no_partial_file(void **state)
{
    (void)state;
    static const int errnos[] = {EIO, ENOSPC, EDQUOT};

    for (size_t e = 0; e < RL_ARRAY_LEN(errnos); e++) {
        enum rl_rc rc = RL_INTERNAL;
        int failures = 0;

        write_max = 3;
        for (int n = 0; rc != RL_OK; n++) {
            struct rl_err err = {0};
            assert_int_equal(write_text("f", "old", NULL), RL_OK);
            fail_errno = errnos[e];
            calls_left = n;
            renamed = false;
            rc = write_text("f", "new text", &err);
            bool fired = calls_left < 0;
            calls_left = -1;
            if (rc != RL_OK) {
                failures++;
                assert_true(rc == RL_NO_MEMORY ||
                            rc == (errnos[e] == EIO ? RL_IO_ERROR : RL_DISK_FULL));
                assert_true(strlen(err.reason) > 0);
            }
            assert_false(exists("f.tmp"));
            assert_true(fired || rc == RL_OK);
            assert_content("f", renamed ? "new text" : "old");
        }
        write_max = 0;
        assert_content("f", "new text");
        assert_true(failures >= 12); /* malloc, open, chmod, 3 writes, fsync, close, rename … */
    }
}

static void test_rl_fs_write_durable_reports_folder_fsync(void **state)
{
    (void)state;
    bool seen = false;

    for (int n = 0; n < 30; n++) {
        memset(trace, 0, sizeof(trace));
        calls_left = n;
        enum rl_rc rc = write_text("f", "x", NULL);
        bool fired = calls_left < 0;
        calls_left = -1;
        size_t len = strlen(trace);
        if (fired && rc == RL_IO_ERROR && len && trace[len - 1] == 'D')
            seen = true;
    }
    assert_true(seen);
}

static void test_rl_fs_commit_order(void **state)
{
    (void)state;
    assert_int_equal(write_text("g", "video", NULL), RL_OK);
    memset(trace, 0, sizeof(trace));
    assert_int_equal(rl_fs_commit(in_folder("g"), in_folder("f"), NULL), RL_OK);
    assert_string_equal(trace, "FRD");
    assert_content("f", "video");
    assert_false(exists("g"));
}

static void test_rl_fs_commit_failures(void **state)
{
    (void)state;
    struct rl_err err = {0};

    assert_int_equal(rl_fs_commit(in_folder("absent"), in_folder("f"), &err), RL_IO_ERROR);
    assert_int_equal(write_text("g", "video", NULL), RL_OK);
    fail_errno = ENOSPC;
    for (int n = 0; n < 3; n++) { /* open, fsync, rename */
        calls_left = n;
        assert_int_equal(rl_fs_commit(in_folder("g"), in_folder("f"), &err), RL_DISK_FULL);
        calls_left = -1;
        assert_true(exists("g"));
        assert_false(exists("f"));
    }
}

static void test_rl_fs_read_limit_and_absence(void **state)
{
    (void)state;
    AUTO_FREE char *big = malloc(10000);
    char *bytes = NULL;
    size_t len = 0;

    assert_non_null(big);
    memset(big, 'x', 10000);
    assert_int_equal(rl_fs_write_durable(in_folder("f"), big, 10000, 0600, NULL), RL_OK);
    assert_int_equal(rl_fs_read(in_folder("f"), 9999, &bytes, &len, NULL), RL_IO_ERROR);
    assert_null(bytes);
    assert_int_equal(rl_fs_read(in_folder("f"), 10000, &bytes, &len, NULL), RL_OK);
    assert_int_equal(len, 10000);
    assert_int_equal(bytes[10000], '\0');
    free(bytes);
    bytes = NULL;
    assert_int_equal(rl_fs_read(in_folder("absent"), 9, &bytes, &len, NULL), RL_NOT_FOUND);
    assert_int_equal(rl_fs_read(folder, 9, &bytes, &len, NULL), RL_IO_ERROR);
}

static void test_rl_fs_mkdirs_makes_missing_parts(void **state)
{
    (void)state;
    struct rl_err err = {0};

    assert_int_equal(rl_fs_mkdirs(in_folder("a//b/c/"), 0700, &err), RL_OK);
    assert_int_equal(mode_of("a/b/c"), 0700);
    assert_int_equal(rl_fs_mkdirs(in_folder("a/b"), 0755, &err), RL_OK);
    assert_int_equal(mode_of("a/b"), 0700); /* what exists keeps its mode */
    assert_int_equal(rl_fs_mkdirs("/", 0755, &err), RL_OK);
    assert_int_equal(rl_fs_mkdirs(".", 0755, &err), RL_OK);
    assert_int_equal(write_text("f", "x", NULL), RL_OK);
    assert_int_equal(rl_fs_mkdirs(in_folder("f"), 0755, &err), RL_IO_ERROR);
    assert_int_equal(rl_fs_mkdirs(in_folder("f/x"), 0755, &err), RL_IO_ERROR);
}

static void test_rl_fs_free_bytes(void **state)
{
    (void)state;
    int64_t bytes = -1;

    assert_int_equal(rl_fs_free_bytes(folder, &bytes, NULL), RL_OK);
    assert_true(bytes >= 0);
    assert_int_equal(rl_fs_free_bytes(in_folder("absent"), &bytes, NULL), RL_IO_ERROR);
}

/* The code that rl_fs_lock gives in another process, which dies with the lock in its hands. */
static int lock_in_child(const char *path)
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = -1;
        _exit((int)rl_fs_lock(path, &fd, NULL));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_rl_fs_lock_keeps_another_process_out(void **state)
{
    (void)state;
    const char *path = in_folder("lock");
    struct rl_err err = {0};
    int fd = -1;
    int second = -1;

    assert_int_equal(lock_in_child(path), RL_OK);
    assert_int_equal(rl_fs_lock(path, &fd, &err), RL_OK); /* the dead hold no lock */
    assert_true(fd >= 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(mode_of("lock"), 0600);
    assert_int_equal(lock_in_child(path), RL_LOCKED);
    assert_int_equal(rl_fs_lock(path, &second, &err), RL_LOCKED);
    assert_int_equal(err.code, RL_LOCKED);
    assert_int_equal(second, -1);
    assert_int_equal(close(fd), 0);
    assert_int_equal(lock_in_child(path), RL_OK);
    assert_int_equal(rl_fs_lock("/absent-folder/lock", &fd, &err), RL_IO_ERROR);
}

static void test_rl_fail_errno_codes(void **state)
{
    (void)state;
    struct rl_err err = {0};

    assert_int_equal(rl_fail_errno(&err, "write x", ENOSPC), RL_DISK_FULL);
    assert_string_equal(err.reason, "write x: No space left on device");
    assert_int_equal(rl_fail_errno(NULL, "x", EDQUOT), RL_DISK_FULL);
    assert_int_equal(rl_fail_errno(NULL, "x", EACCES), RL_IO_ERROR);
}

int main(void)
{
#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_rl_fs_write_durable_order_and_mode),
        IN_FOLDER(test_rl_fs_write_durable_short_writes),
        IN_FOLDER(test_rl_fs_write_durable_replaces_stale_tmp),
        IN_FOLDER(test_rl_fs_write_durable_leaves_no_partial_file),
        IN_FOLDER(test_rl_fs_write_durable_reports_folder_fsync),
        IN_FOLDER(test_rl_fs_commit_order),
        IN_FOLDER(test_rl_fs_commit_failures),
        IN_FOLDER(test_rl_fs_read_limit_and_absence),
        IN_FOLDER(test_rl_fs_mkdirs_makes_missing_parts),
        IN_FOLDER(test_rl_fs_free_bytes),
        IN_FOLDER(test_rl_fs_lock_keeps_another_process_out),
        cmocka_unit_test(test_rl_fail_errno_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
