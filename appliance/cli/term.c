/* Text for terminals. Everything printed that came from a prompt, a server or a file passes through
 * here, so that no one can steer the reader's terminal. No state. */
#include "cli/term.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/utf8.h"

#include <langinfo.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

bool cli_utf8(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

size_t cli_columns(int fd)
{
    struct winsize ws;

    if (ioctl(fd, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 0)
        return ws.ws_col;
    return 80;
}

/* Characters that move the cursor, start an escape or turn the direction of the text. */
static bool steers(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
           code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

/* The character at text: its printable bytes (borrowed) and its columns. Returns how many bytes of
 * text it takes. */
static size_t printable(const char *text, size_t left, bool utf8, const char **ret_bytes,
                        size_t *ret_len, size_t *ret_columns)
{
    uint32_t code = 0;
    size_t taken = rl_utf8_decode(text, left, &code);
    int width = taken == 0 || steers(code) ? -1
                : code < 0x80              ? 1
                : utf8                     ? wcwidth((wchar_t)code)
                                           : -1;

    *ret_bytes = text;
    *ret_len = taken;
    *ret_columns = width > 0 ? (size_t)width : 0;
    if (taken && (code == '\n' || code == '\r' || code == '\t')) {
        *ret_bytes = " ";
        *ret_len = *ret_columns = 1;
    } else if (width < 0) {
        *ret_bytes = "?";
        *ret_len = *ret_columns = 1;
    }
    return taken ? taken : 1;
}

size_t cli_safe(const char *text, size_t columns, bool utf8, char *out, size_t size)
{
    const char *mark = utf8 ? "…" : "...";
    size_t mark_columns = utf8 ? 1 : 3, mark_len = strlen(mark);
    size_t left = strlen(text), used = 0, len = 0;
    size_t cut_len = 0, cut_used = 0; /* where the mark still fits */

    while (left > 0) {
        const char *bytes;
        size_t n, w;
        size_t taken = printable(text, left, utf8, &bytes, &n, &w);
        if (used + w > columns || len + n >= size)
            break;
        memcpy(out + len, bytes, n);
        len += n;
        used += w;
        if (used + mark_columns <= columns && len + mark_len < size) {
            cut_len = len;
            cut_used = used;
        }
        text += taken;
        left -= taken;
    }
    if (left > 0 && mark_columns <= columns && cut_len + mark_len < size) {
        memcpy(out + cut_len, mark, mark_len);
        len = cut_len + mark_len;
        used = cut_used + mark_columns;
    }
    if (size > 0)
        out[len] = '\0';
    return used;
}

void cli_put(FILE *out, const char *text)
{
    char safe[4096];

    (void)cli_safe(text ? text : "-", SIZE_MAX, cli_utf8(), safe,
                   sizeof(safe)); /* columns do not matter */
    fputs(safe, out);
}

void cli_put_cell(const char *text, size_t columns)
{
    char safe[256];

    (void)cli_safe(text ? text : "-", columns, false, safe, sizeof(safe));
    printf("%-*s  ", (int)columns, safe); /* ASCII: a byte is a column */
}

void cli_put_json(const char *json, size_t len)
{
    bool terminal = isatty(STDOUT_FILENO);

    while (len > 0) {
        uint32_t code = 0;
        size_t n = rl_utf8_decode(json, len, &code);
        if (terminal && n == 0)
            putchar('?');
        else if (terminal && steers(code) && code != '\n')
            printf("\\u%04x", (unsigned)code);
        else
            fwrite(json, 1, n ? n : 1, stdout);
        json += n ? n : 1;
        len -= n ? n : 1;
    }
    putchar('\n');
}

void cli_local_time(const char *rfc3339, char *text)
{
    int64_t ms;
    struct tm tm;

    (void)rl_copy_str(text, 32, "-"); /* it fits */
    if (!rfc3339 || rl_time_parse(rfc3339, &ms, NULL))
        return;
    time_t seconds = (time_t)(ms / 1000);
    if (!localtime_r(&seconds, &tm) || strftime(text, 32, "%Y-%m-%d %H:%M:%S", &tm) == 0)
        (void)rl_copy_str(text, 32, "-"); /* it fits */
}

void cli_size_text(int64_t bytes, char *text)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    double value = (double)bytes / 1000;
    size_t unit = 0;

    if (bytes < 1000) {
        (void)snprintf(text, 32, "%lld B", (long long)bytes);
        return;
    }
    while (value >= 1000 && unit + 1 < RL_ARRAY_LEN(units)) {
        value /= 1000;
        unit++;
    }
    (void)snprintf(text, 32, "%.1f %s", value, units[unit]);
}

void cli_duration_text(int64_t seconds, char *text)
{
    long long s = seconds < 0 ? 0 : (long long)seconds;

    if (s < 3600)
        (void)snprintf(text, 32, "%lld:%02lld", s / 60, s % 60);
    else
        (void)snprintf(text, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
}
