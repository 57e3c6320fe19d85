// link: -Wl,--wrap=write -Wl,--wrap=clock_gettime
/* The log line as the journal gets it, and the error values that log lines carry. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char line[4096]; /* what the last write got */
static size_t line_len;
static int writes;
static int interruptions; /* writes that fail with EINTR first */

ssize_t __wrap_write(int fd, const void *bytes, size_t len);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);

ssize_t __wrap_write(int fd, const void *bytes, size_t len)
{
    assert_int_equal(fd, STDERR_FILENO);
    if (interruptions > 0) {
        interruptions--;
        errno = EINTR;
        return -1;
    }
    assert_true(len < sizeof(line));
    memcpy(line, bytes, len);
    line[len] = '\0';
    line_len = len;
    writes++;
    return (ssize_t)len;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
    (void)clock;
    *ts = (struct timespec){1764484936, 123000000};
    errno = ENOENT; /* rl_log must put the caller's errno back */
    return 0;
}

static int setup(void **state)
{
    (void)state;
    writes = 0;
    line_len = 0;
    rl_log_set_level(RL_LOG_INFO);
    return 0;
}

static void test_rl_log_line(void **state)
{
    (void)state;
    errno = EAGAIN;
    interruptions = 2;
    rl_log(RL_LOG_WARN, "task_moved", "task_id=%d status=%s", 7, "QUEUED");
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(writes, 1);
    assert_string_equal(line, "ts=2025-11-30T06:42:16.123Z level=warn event=task_moved task_id=7 "
                              "status=QUEUED\n");
}

static void test_rl_log_without_details(void **state)
{
    (void)state;
    rl_log(RL_LOG_ERROR, "stopped", "%s", "");
    assert_true(strstr(line, "level=error event=stopped") != NULL);
    rl_log(RL_LOG_INFO, "stopped", NULL);
    assert_string_equal(line, "ts=2025-11-30T06:42:16.123Z level=info event=stopped\n");
}

static void test_rl_log_level_filters(void **state)
{
    (void)state;
    rl_log(RL_LOG_DEBUG, "x", "a=1");
    assert_int_equal(writes, 0);
    rl_log_set_level(RL_LOG_DEBUG);
    rl_log(RL_LOG_DEBUG, "x", "a=1");
    assert_int_equal(writes, 1);
    rl_log_set_level(RL_LOG_ERROR);
    rl_log(RL_LOG_WARN, "x", "a=1");
    assert_int_equal(writes, 1);
    rl_log(RL_LOG_ERROR, "x", "a=1");
    assert_int_equal(writes, 2);
}

static void test_rl_log_stays_one_line(void **state)
{
    (void)state;
    rl_log(RL_LOG_INFO, "x", "reason=a\nts=fake\r\x1b[31m");
    assert_int_equal(writes, 1);
    assert_ptr_equal(strchr(line, '\n'), line + line_len - 1);
    assert_null(strchr(line, '\r'));
    assert_null(strchr(line, 0x1b));
}

static void test_rl_log_cuts_long_lines_between_characters(void **state)
{
    (void)state;
    char text[4000];

    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'x', shift);
        for (size_t i = shift; i + 4 < sizeof(text); i += 4)
            memcpy(text + i, "\xf0\x9f\x98\x80", 5);
        rl_log(RL_LOG_INFO, "x", "t=%s", text);
        assert_true(line_len <= 2048 && line_len > 2040);
        assert_int_equal(line[line_len - 1], '\n');
        assert_memory_equal(line + line_len - 5, "\xf0\x9f\x98\x80", 4);
    }
    memset(text, 'e', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    rl_log(RL_LOG_INFO, text, "a=%d", 1);
    assert_true(line_len <= 2048);
    assert_int_equal(line[line_len - 1], '\n');
}

static void assert_quoted(const char *text, size_t size, const char *expected)
{
    char *out = malloc(size ? size : 1); /* exact, for the sanitizer */
    assert_non_null(out);
    assert_ptr_equal(rl_log_quote(text, out, size), out);
    if (size)
        assert_string_equal(out, expected);
    free(out);
}

static void test_rl_log_quote_token(void **state)
{
    (void)state;
    assert_quoted("plain text", 64, "\"plain text\"");
    assert_quoted("say \"hi\" c:\\x", 64, "\"say \\\"hi\\\" c:\\\\x\"");
    assert_quoted("a\nb\tc\x1b[0m\x7f", 64, "\"a\\nb?c?[0m?\"");
    assert_quoted("\xc2\x85\xe2\x80\xa8\xff\xc3", 64,
                  "\"????\""); /* C1, line separator, no UTF-8 */
    assert_quoted("\xc3\xa9\xf0\x9f\x98\x80", 64, "\"\xc3\xa9\xf0\x9f\x98\x80\"");
    assert_quoted(NULL, 64, "\"\"");
}

static void test_rl_log_quote_cuts(void **state)
{
    (void)state;
    assert_quoted("abcdef", 0, "");
    assert_quoted("abcdef", 1, "");
    assert_quoted("abcdef", 2, "");
    assert_quoted("abcdef", 3, "\"\"");
    assert_quoted("abcdef", 6, "\"abc\"");
    assert_quoted("ab\"", 6, "\"ab\""); /* no half escape */
    assert_quoted("ab\xc3\xa9", 6, "\"ab\"");
    assert_quoted("abcdef", 9, "\"abcdef\"");
}

static void test_rl_fail_fills_everything(void **state)
{
    (void)state;
    struct rl_err err = {.code = RL_OK, .retryable = true, .field = "old", .reason = "old reason"};

    assert_int_equal(rl_fail(&err, RL_IO_ERROR, "open %s", "x"), RL_IO_ERROR);
    assert_int_equal(err.code, RL_IO_ERROR);
    assert_false(err.retryable);
    assert_string_equal(err.field, "");
    assert_string_equal(err.reason, "open x");
    assert_int_equal(rl_fail_field(&err, RL_INVALID_FIELD, "seed", "was: %s", err.reason),
                     RL_INVALID_FIELD);
    assert_string_equal(err.field, "seed");
    assert_string_equal(err.reason, "was: open x");
    assert_int_equal(rl_fail(NULL, RL_INTERNAL, "x"), RL_INTERNAL);
}

static void test_rl_fail_cuts_long_texts(void **state)
{
    (void)state;
    struct rl_err err;
    char text[400];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(rl_fail_field(&err, RL_INVALID_FIELD, text, "%s", text), RL_INVALID_FIELD);
    assert_int_equal(strlen(err.field), sizeof(err.field) - 1);
    assert_int_equal(strlen(err.reason), sizeof(err.reason) - 1);
}

static void test_rl_code_name_and_strings(void **state)
{
    (void)state;
    char small[4] = "zzz";

    assert_string_equal(rl_code_name(RL_OK), "OK");
    assert_string_equal(rl_code_name(RL_QUEUE_TIMEOUT), "QUEUE_TIMEOUT");
    assert_string_equal(rl_code_name(RL_INTERNAL), "INTERNAL");
    assert_string_equal(rl_code_name(RL_CODE_COUNT), "INTERNAL");
    assert_true(rl_copy_str(small, sizeof(small), "abc"));
    assert_string_equal(small, "abc");
    assert_false(rl_copy_str(small, sizeof(small), "abcd"));
    assert_string_equal(small, "");
    assert_false(rl_copy_str(small, 0, ""));
    assert_null(rl_strdup(NULL));
    AUTO_FREE char *copy = rl_strdup("x");
    assert_string_equal(copy, "x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_rl_log_line, setup),
        cmocka_unit_test_setup(test_rl_log_without_details, setup),
        cmocka_unit_test_setup(test_rl_log_level_filters, setup),
        cmocka_unit_test_setup(test_rl_log_stays_one_line, setup),
        cmocka_unit_test_setup(test_rl_log_cuts_long_lines_between_characters, setup),
        cmocka_unit_test(test_rl_log_quote_token),
        cmocka_unit_test(test_rl_log_quote_cuts),
        cmocka_unit_test(test_rl_fail_fills_everything),
        cmocka_unit_test(test_rl_fail_cuts_long_texts),
        cmocka_unit_test(test_rl_code_name_and_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
