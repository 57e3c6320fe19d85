/* A clock that tests can move: LD_PRELOAD this library and name a file of 16 bytes in REELD_CLOCK,
 * two int64 of nanoseconds that are added to CLOCK_REALTIME and to CLOCK_BOOTTIME. The file is
 * mapped, so writing it moves the clocks of the running program. CLOCK_MONOTONIC is never moved:
 * the kernel's waits (pthread_cond_clockwait, timers) go by the real one. A suspend of 8 h is
 * therefore +8 h on both. Any thread; the mapping is made once, on the first question, and is never
 * undone. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)

struct offsets {
    _Atomic int64_t realtime_ns, boottime_ns;
};

/* The map, or zeroes when there is no file. */
static struct offsets *offsets(void)
{
    static struct offsets unmoved;
    static _Atomic(struct offsets *) mapped;
    struct offsets *now = atomic_load_explicit(&mapped, memory_order_acquire);
    if (now)
        return now;
    const char *path = getenv("REELD_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    now = &unmoved;
    if (fd >= 0) {
        void *at = mmap(NULL, sizeof *now, PROT_READ, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED)
            now = at;
        (void)close(fd); /* read only */
    }
    struct offsets *none = NULL;
    if (!atomic_compare_exchange_strong(&mapped, &none, now))
        return none; /* another thread was first; its map serves, this one is lost once */
    return now;
}

static int64_t offset_ns(clockid_t clock)
{
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return atomic_load(&offsets()->realtime_ns);
    case CLOCK_BOOTTIME:
        return atomic_load(&offsets()->boottime_ns);
    default:
        return 0;
    }
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
    int saved = errno;
    if (syscall(SYS_clock_gettime, clock, ts) != 0)
        return -1;
    int64_t ns = ts->tv_sec * SECOND_NS + ts->tv_nsec + offset_ns(clock);
    if (ns < 0) /* no kernel tells a time before 1970 */
        ns = 0;
    ts->tv_sec = ns / SECOND_NS;
    ts->tv_nsec = ns % SECOND_NS;
    errno = saved;
    return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec ts;
    (void)zone; /* obsolete */
    if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
        return -1;
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *ret_time)
{
    struct timespec ts;
    if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
        return -1;
    if (ret_time)
        *ret_time = ts.tv_sec;
    return ts.tv_sec;
}
