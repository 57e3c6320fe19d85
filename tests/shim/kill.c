/* A process that kills itself (SIGKILL) just before the nth of the system calls by which it changes
 * anything outside: LD_PRELOAD this library and name a file of 24 bytes in REELD_KILL, three int64:
 * n (0 = never), the calls so far, and whether they are counted. Counting begins when a file whose
 * name ends in ".mp4" gets its final name. The file is mapped, so a test writes all three while the
 * program runs, and reads the count when it is dead. Any thread. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

struct counter {
    _Atomic int64_t n, calls, begun;
};

static struct counter *counter;

__attribute__((constructor)) static void map_counter(void)
{
    const char *path = getenv("REELD_KILL");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *at = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        counter = at;
    (void)close(fd); /* the map stays */
}

static void step(void)
{
    if (!counter || !atomic_load(&counter->begun))
        return;
    int64_t call = atomic_fetch_add(&counter->calls, 1) + 1;
    if (call == atomic_load(&counter->n))
        (void)kill(getpid(), SIGKILL); /* does not return */
}

int rename(const char *from, const char *to)
{
    size_t len = strlen(to);
    if (counter && len > 4 && strcmp(to + len - 4, ".mp4") == 0)
        atomic_store(&counter->begun, 1);
    step();
    return (int)syscall(SYS_rename, from, to);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at)
{
    step();
    return syscall(SYS_pwrite64, fd, bytes, n, at);
}

int fdatasync(int fd)
{
    step();
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    step();
    return (int)syscall(SYS_fsync, fd);
}

int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    step();
    return (int)syscall(SYS_connect, fd, addr, len);
}

ssize_t send(int fd, const void *bytes, size_t n, int flags)
{
    step();
    return syscall(SYS_sendto, fd, bytes, n, flags, NULL, 0);
}

ssize_t recv(int fd, void *bytes, size_t n, int flags)
{
    step();
    return syscall(SYS_recvfrom, fd, bytes, n, flags, NULL, NULL);
}
