/* The log: one line per event to stderr by one write(2), so that lines of several threads never
 * mix. The level is the only state. Neither errno nor memory is touched; a line that stderr does
 * not take is lost, because there is nowhere else to say so. */
#include "base/log.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 2048 /* with the newline; pipes take up to 4096 bytes in one piece */

static _Atomic int min_level = RL_LOG_INFO;

void rl_log_set_level(enum rl_log_level level)
{
    atomic_store_explicit(&min_level, (int)level, memory_order_relaxed);
}

static const char *level_name(enum rl_log_level level)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};

    return (size_t)level < RL_ARRAY_LEN(names) ? names[level] : "error";
}

/* Drop a UTF-8 character that the end of the buffer cut in two. */
static size_t whole_chars(const char *s, size_t len)
{
    size_t start = len;

    while (start > 0 && len - start < 4 && ((unsigned char)s[start - 1] & 0xc0) == 0x80)
        start--;
    if (start > 0 && (unsigned char)s[start - 1] >= 0xc0 &&
        rl_utf8_decode(s + start - 1, len - start + 1, NULL) == 0)
        return start - 1;
    return len;
}

static void write_line(const char *line, size_t len)
{
    ssize_t n;

    do {
        n = write(STDERR_FILENO, line, len);
    } while (n < 0 && errno == EINTR);
}

void rl_log(enum rl_log_level level, const char *event, const char *fmt, ...)
{
    if ((int)level < atomic_load_explicit(&min_level, memory_order_relaxed))
        return;

    int saved_errno = errno;
    char time_text[RL_TIME_TEXT];
    char line[LINE_BYTES];
    size_t room = sizeof(line) - 1; /* the newline takes the place of the last byte */

    rl_time_format(rl_wall_ms(), time_text);
    int n = snprintf(line, room, "ts=%s level=%s event=%s", time_text, level_name(level), event);
    size_t len = n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
    if (fmt && fmt[0] && len + 2 < room) {
        line[len++] = ' ';
        va_list args;
        va_start(args, fmt);
        n = vsnprintf(line + len, room - len, fmt, args);
        va_end(args);
        if (n > 0)
            len = (size_t)n < room - len ? len + (size_t)n : whole_chars(line, room - 1);
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = ' ';
    }
    line[len++] = '\n';
    write_line(line, len);
    errno = saved_errno;
}

const char *rl_log_quote(const char *text, char *out, size_t size)
{
    size_t len = text ? strlen(text) : 0;
    size_t used = 0;

    if (size < 3) {
        if (size)
            out[0] = '\0';
        return out;
    }
    out[used++] = '"';
    for (size_t i = 0; i < len;) {
        uint32_t code = 0;
        size_t n = rl_utf8_decode(text + i, len - i, &code);
        const char *piece = text + i;
        size_t piece_len = n;
        char escaped[2] = {'\\', text[i]};

        if (n == 0 || code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 ||
            code == 0x2029) {
            piece = code == '\n' ? "\\n" : "?";
            piece_len = code == '\n' ? 2 : 1;
        } else if (code == '"' || code == '\\') {
            piece = escaped;
            piece_len = 2;
        }
        if (used + piece_len + 2 > size)
            break;
        memcpy(out + used, piece, piece_len);
        used += piece_len;
        i += n ? n : 1;
    }
    out[used++] = '"';
    out[used] = '\0';
    return out;
}
