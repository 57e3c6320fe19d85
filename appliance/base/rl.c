/* Result codes by name, the error value, and the few string helpers every module needs.
 * Runs on any thread and keeps no state. An rl_err is always fully written, so a stale field or
 * retryable flag of an earlier failure never shows. */
#include "base/rl.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static void fill(struct rl_err *err, enum rl_rc code, const char *field, const char *fmt,
                 va_list args) RL_PRINTF(4, 0);

static void fill(struct rl_err *err, enum rl_rc code, const char *field, const char *fmt,
                 va_list args)
{
    /* built aside: a caller may pass err->reason itself as an argument */
    struct rl_err made = {.code = code};
    size_t len = strlen(field);

    if (len >= sizeof(made.field))
        len = sizeof(made.field) - 1;
    memcpy(made.field, field, len);
    if (vsnprintf(made.reason, sizeof(made.reason), fmt, args) < 0)
        made.reason[0] = '\0';
    *err = made;
}

enum rl_rc rl_fail(struct rl_err *err, enum rl_rc code, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        fill(err, code, "", fmt, args);
        va_end(args);
    }
    return code;
}

enum rl_rc rl_fail_field(struct rl_err *err, enum rl_rc code, const char *field, const char *fmt,
                         ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        fill(err, code, field ? field : "", fmt, args);
        va_end(args);
    }
    return code;
}

const char *rl_code_name(enum rl_rc code)
{
    static const char *const names[] = {
#define CODE_NAME(name) #name,
        RL_CODES(CODE_NAME)
#undef CODE_NAME
    };

    if ((size_t)code >= RL_ARRAY_LEN(names))
        return "INTERNAL";
    return names[code];
}

bool rl_transient(enum rl_rc code)
{
    return code == RL_DISK_FULL || code == RL_NO_MEMORY || code == RL_STORE_ERROR ||
           code == RL_IO_ERROR || code == RL_UNAVAILABLE;
}

void rl_close_ptr(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd); /* whoever wrote has already checked fsync */
}

char *rl_strdup(const char *s)
{
    if (!s)
        return NULL;

    size_t size = strlen(s) + 1;
    char *copy = malloc(size);
    if (copy)
        memcpy(copy, s, size);
    return copy;
}

bool rl_copy_str(char *dst, size_t size, const char *src)
{
    if (size == 0)
        return false;

    size_t len = src ? strlen(src) : 0;
    if (len >= size) {
        dst[0] = '\0';
        return false;
    }
    if (len)
        memcpy(dst, src, len);
    dst[len] = '\0';
    return true;
}
