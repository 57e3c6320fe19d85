/* Texts made harmless, and the progress line. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <locale.h>
#include <string.h>
#include <wchar.h>

#include "base/utf8.h"
#include "cli/term.h"

/* Columns of a line as a UTF-8 terminal counts them; -1 when it holds a control character or no
 * UTF-8. */
static int columns_of(const char *line)
{
    int columns = 0;

    while (*line) {
        uint32_t code;
        size_t n = rl_utf8_decode(line, strlen(line), &code);
        int width = n ? wcwidth((wchar_t)code) : -1;
        if (width < 0)
            return -1;
        columns += width;
        line += n;
    }
    return columns;
}

static void test_safe_cases(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t columns;
        bool utf8;
        const char *want;
    } cases[] = {
        {"a red circle", SIZE_MAX, true, "a red circle"},
        {"two\nlines\tand\rmore", SIZE_MAX, true, "two lines and more"},
        {"\033[2Jclear", SIZE_MAX, true, "?[2Jclear"},
        {"\x9b"
         "31m",
         SIZE_MAX, true, "?31m"}, /* C1 as a raw byte */
        {"\xc2\x9b"
         "31m",
         SIZE_MAX, true, "?31m"}, /* C1 as UTF-8 */
        {"\xe2\x80\xae"
         "gpj",
         SIZE_MAX, true, "?gpj"}, /* right-to-left override */
        {"\x7f\x08", SIZE_MAX, true, "??"},
        {"caf\xc3\xa9", SIZE_MAX, true, "café"},
        {"caf\xc3\xa9", SIZE_MAX, false, "caf?"},
        {"\xff\xfe", SIZE_MAX, true, "??"},
        {"a longer text", 8, true, "a longe…"},
        {"a longer text", 8, false, "a lon..."},
        {"exactly8", 8, true, "exactly8"},
        {"日本語日本語", 7, true, "日本語…"},
        {"日本語日本語", 6, true, "日本…"},
        {"abc", 0, true, ""},
        {"", 10, true, ""},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        char out[64];
        size_t used = cli_safe(cases[i].text, cases[i].columns, cases[i].utf8, out, sizeof(out));
        assert_string_equal(out, cases[i].want);
        assert_true(used <= cases[i].columns);
        assert_int_equal(used, columns_of(out));
    }
}

static void test_safe_small_buffer(void **state)
{
    (void)state;
    char out[9];

    for (size_t size = 1; size <= sizeof(out); size++) {
        memset(out, 'X', sizeof(out));
        (void)cli_safe("日本語日本語", SIZE_MAX, true, out, size);
        assert_true(strlen(out) < size);
        assert_true(columns_of(out) >= 0);
        for (size_t i = size; i < sizeof(out); i++)
            assert_int_equal(out[i], 'X');
    }
}

static void line_of(const struct cli_progress *p, size_t columns, bool utf8, char *line)
{
    cli_progress_line(p, columns, utf8, line, 1024);
}

static void test_progress_full(void **state)
{
    (void)state;
    char line[1024];
    struct cli_progress p = {.status = "PROCESSING",
                             .phase = "denoise",
                             .step = 12,
                             .total = 30,
                             .percent = 50,
                             .eta_s = 42};

    line_of(&p, 79, true, line);
    assert_string_equal(
        line, "PROCESSING  denoise 12/30  [█████████████████░░░░░░░░░░░░░░░░░]   50%  ETA 0:42");
    line_of(&p, 79, false, line);
    assert_string_equal(
        line, "PROCESSING  denoise 12/30  [#################.................]   50%  ETA 0:42");
    line_of(&p, 30, false, line);
    assert_string_equal(line, "PROCESSING   50%  ETA 0:42");
    line_of(&p, 10, false, line);
    assert_string_equal(line, "PROCESSING");
}

static void test_progress_other_states(void **state)
{
    (void)state;
    char line[1024];
    struct cli_progress p = {
        .status = "QUEUED", .percent = -1, .eta_s = -1, .queue_position = 4, .elapsed_s = 3661};

    line_of(&p, 79, true, line);
    assert_string_equal(line, "QUEUED  position 4 in the queue  elapsed 1:01:01");
    p.note = "the server does not answer";
    line_of(&p, 79, true, line);
    assert_non_null(strstr(line, "the server does not answer"));
    p = (struct cli_progress){
        .status = "PROCESSING", .phase = "\033]0;x\a", .percent = 250, .eta_s = -1};
    line_of(&p, 79, true, line);
    assert_null(strchr(line, '\033'));
    assert_null(strchr(line, '\a'));
    assert_non_null(strstr(line, "100%"));
}

/* Whatever the width, the line fits, is printable, and ends in no cut character. */
static void test_progress_fits_every_width(void **state)
{
    (void)state;
    static const struct cli_progress cases[] = {
        {.status = "PROCESSING",
         .phase = "denoise",
         .step = 12,
         .total = 30,
         .percent = 40,
         .eta_s = 42},
        {.status = "PROCESSING",
         .phase = "日本語日本語",
         .step = 1,
         .total = 2,
         .percent = 0,
         .eta_s = 360000},
        {.status = "QUEUED", .percent = 0, .eta_s = -1, .queue_position = 1000000, .elapsed_s = 5},
        {.status = "SUCCEEDED", .percent = 100, .eta_s = 0},
        {.status = NULL,
         .percent = -1,
         .eta_s = -1,
         .note = "a note that is far too long to be shown on any but the widest terminals"},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++)
        for (size_t columns = 0; columns <= 300; columns++)
            for (int utf8 = 0; utf8 < 2; utf8++) {
                char line[1024];
                line_of(&cases[i], columns, utf8, line);
                int used = columns_of(line);
                if (used < 0 || (size_t)used > columns)
                    fail_msg("case %zu, %zu columns: %d used by '%s'", i, columns, used, line);
                for (const char *c = line; !utf8 && *c; c++)
                    assert_true((unsigned char)*c < 0x80);
            }
}

static void test_units(void **state)
{
    (void)state;
    char text[32];

    cli_size_text(999, text);
    assert_string_equal(text, "999 B");
    cli_size_text(1234567, text);
    assert_string_equal(text, "1.2 MB");
    cli_duration_text(59, text);
    assert_string_equal(text, "0:59");
    cli_duration_text(3600, text);
    assert_string_equal(text, "1:00:00");
    cli_local_time("not a time", text);
    assert_string_equal(text, "-");
}

static int use_utf8(void **state)
{
    (void)state;
    return setlocale(LC_CTYPE, "C.UTF-8") ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safe_cases),
        cmocka_unit_test(test_safe_small_buffer),
        cmocka_unit_test(test_progress_full),
        cmocka_unit_test(test_progress_other_states),
        cmocka_unit_test(test_progress_fits_every_width),
        cmocka_unit_test(test_units),
    };

    return cmocka_run_group_tests(tests, use_utf8, NULL);
}
