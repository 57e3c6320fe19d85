/* The words every module shares: result codes, the error value, ownership helpers.
 * Pure C, no state; usable from any thread. */
#ifndef RL_BASE_RL_H
#define RL_BASE_RL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define RL_NODISCARD    __attribute__((warn_unused_result))
#define RL_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* clang -Wthread-safety annotations; nothing elsewhere. */
#if defined(__clang__)
#define RL_GUARDED_BY(m) __attribute__((guarded_by(m)))
#define RL_REQUIRES(m)   __attribute__((exclusive_locks_required(m)))
#else
#define RL_GUARDED_BY(m)
#define RL_REQUIRES(m)
#endif

/* The closed list of codes. One name serves the C code, the log, the API's `code`, a task's
 * error_code and the callback; http/reply.c alone maps it to HTTP statuses. */
#define RL_CODES(X)                                                                                \
    X(OK)                                                                                          \
    /* the request */                                                                              \
    X(MALFORMED_JSON)         /* the strict reader refused the text */                             \
    X(BAD_REQUEST)            /* unusable HTTP: smuggling, bad header, bad query */                \
    X(INVALID_FIELD)          /* well-formed but wrong; err.field names it */                      \
    X(IDEMPOTENCY_KEY_REUSED) /* the same key with other content */                                \
    X(UNAUTHORIZED)                                                                                \
    X(FORBIDDEN)                                                                                   \
    X(NOT_FOUND)                                                                                   \
    X(TASK_EXPIRED)                                                                                \
    X(METHOD_NOT_ALLOWED)                                                                          \
    X(REQUEST_TIMEOUT)                                                                             \
    X(TASK_FINISHED) /* the task is in another terminal state already */                           \
    X(CONFLICT)      /* the thing is not in a state that allows this */                            \
    X(LEASE_LOST)    /* a feed's range is acknowledged, or somebody else's by now */               \
    X(VIDEO_NOT_READY)                                                                             \
    X(BODY_TOO_LARGE)                                                                              \
    X(UNSUPPORTED_MEDIA_TYPE)                                                                      \
    X(RANGE_NOT_SATISFIABLE)                                                                       \
    X(RATE_LIMITED)                                                                                \
    X(TOO_MANY_PENDING_TASKS)                                                                      \
    X(QUEUE_FULL)                                                                                  \
    X(UNAVAILABLE) /* draining, out of threads, a part is down; try again */                       \
    X(DISK_FULL)                                                                                   \
    /* the run */                                                                                  \
    X(STALE)        /* the run no longer holds (task_id, attempt, epoch) */                        \
    X(CANCELED)     /* ctl said stop */                                                            \
    X(ENGINE_ERROR) /* the engine failed on this input */                                          \
    X(ENGINE_GONE)  /* no such engine or model on this machine any more */                         \
    X(OUTPUT_INVALID)                                                                              \
    X(ENCODER_ERROR)                                                                               \
    X(GPU_ERROR) /* device context unusable: the process must replace itself */                    \
    X(OUT_OF_GPU_MEMORY)                                                                           \
    X(INPUT_ERROR)                                                                                 \
    X(QUEUE_TIMEOUT)                                                                               \
    X(PROCESSING_TIMEOUT)                                                                          \
    X(WORKER_CRASH)                                                                                \
    X(ROW_UNREADABLE)                                                                              \
    /* the machine */                                                                              \
    X(NO_MEMORY)                                                                                   \
    X(IO_ERROR)                                                                                    \
    X(STORE_ERROR)                                                                                 \
    X(NETWORK_ERROR)                                                                               \
    X(ADDRESS_REFUSED) /* the address policy said no */                                            \
    X(LOCKED)          /* another instance owns the state folder */                                \
    X(INTERNAL)

enum rl_rc {
#define RL_CODE_ENUM(name) RL_##name,
    RL_CODES(RL_CODE_ENUM)
#undef RL_CODE_ENUM
        RL_CODE_COUNT
};

/* What went wrong: the code, one line of reason, and the offending field ("" if none).
 * `retryable` says that the same work may succeed later (engines set it). */
struct rl_err {
    enum rl_rc code;
    bool retryable;
    char field[64];
    char reason[256];
};

/* Fill `err` (NULL allowed) and return `code`, so that a caller can write
 * `return rl_fail(err, RL_IO_ERROR, "open %s: %s", path, strerror(errno));` */
enum rl_rc rl_fail(struct rl_err *err, enum rl_rc code, const char *fmt, ...) RL_PRINTF(3, 4);
/* The same, with the name of the offending field. */
enum rl_rc rl_fail_field(struct rl_err *err, enum rl_rc code, const char *field, const char *fmt,
                         ...) RL_PRINTF(4, 5);
/* Stable name of a code, "QUEUE_TIMEOUT" for RL_QUEUE_TIMEOUT. Static storage. */
const char *rl_code_name(enum rl_rc code);

/* The machine is short of something (memory, disk, an answer of the database) and the same may well
 * succeed later; any other code is about the very thing that was tried. */
bool rl_transient(enum rl_rc code);

/* Ownership. AUTO_FREE frees at scope end; `return STEAL(p)` hands over. */
static inline void rl_free_ptr(void *p)
{
    free(*(void **)p);
}
static inline void rl_fclose_ptr(FILE **f)
{
    if (*f)
        (void)fclose(*f); /* read side, or already flushed and checked by the owner */
}
void rl_close_ptr(int *fd); /* closes *fd when >= 0 */

#define AUTO_FREE   __attribute__((cleanup(rl_free_ptr)))
#define AUTO_FCLOSE __attribute__((cleanup(rl_fclose_ptr)))
#define AUTO_CLOSE  __attribute__((cleanup(rl_close_ptr)))
#define STEAL(p)                                                                                   \
    __extension__({                                                                                \
        __typeof__(p) rl_stolen_ = (p);                                                            \
        (p) = NULL;                                                                                \
        rl_stolen_;                                                                                \
    })

/* strdup that maps NULL to NULL. Returns new, NULL also when memory is short. */
char *rl_strdup(const char *s);
/* memcpy of a C string into dst[size], always terminated. false when it did not fit (dst = ""). */
bool rl_copy_str(char *dst, size_t size, const char *src);

#define RL_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
