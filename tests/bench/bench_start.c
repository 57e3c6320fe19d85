/* Start and rest of the real program: from exec to the first 200 of /healthz, on an empty state
 * folder and over a million finished tasks (out of the page cache as far as the kernel lets go of
 * them), and the resident memory of an idle server that has answered a few requests. */
#include "bench.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define STARTS   9
#define PAGES    2 /* rounds of requests before memory is read */
#define READY_MS 20000
#define FINISHED 1000000

extern char **environ;

/* GET with one header; the status, or 0 when nobody answers. */
static int get(int port, const char *path, const char *header)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char text[4096];
    int status = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 5};
    if (fd < 0)
        bench_die("socket", "none left");
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) {
        int len = snprintf(text, sizeof text,
                           "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%sConnection: close\r\n\r\n",
                           path, port, header);
        ssize_t n = send(fd, text, (size_t)len, MSG_NOSIGNAL) == len
                        ? recv(fd, text, sizeof text - 1, 0)
                        : -1;
        text[n > 0 ? n : 0] = '\0';
        if (sscanf(text, "HTTP/1.1 %d", &status) != 1)
            status = 0;
        while (recv(fd, text, sizeof text, 0) > 0)
            ;
    }
    (void)close(fd);
    return status;
}

static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        bench_die("port", "none is free");
    (void)close(fd);
    return ntohs(at.sin_port);
}

/* Starts the server; ms from exec to ready. */
static double start(const char *program, const char *dir, int port, pid_t *ret_pid)
{
    char listen[32];
    (void)snprintf(listen, sizeof listen, "127.0.0.1:%d", port);
    const char *argv[] = {program, "serve", "--state-dir", dir, "--listen", listen, NULL};
    posix_spawn_file_actions_t files;
    if (posix_spawn_file_actions_init(&files) != 0 ||
        posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0) != 0 ||
        posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0) != 0)
        bench_die("spawn", "out of memory");
    int64_t begun = rl_mono_us();
    if (posix_spawn(ret_pid, program, &files, NULL, (char **)(uintptr_t)argv, environ) != 0)
        bench_die(program, "cannot be started");
    (void)posix_spawn_file_actions_destroy(&files); /* cannot fail */
    while (get(port, "/healthz", "") != 200) {
        if (rl_mono_us() - begun > READY_MS * 1000)
            bench_die(program, "is not ready");
        (void)usleep(300); /* cut short: asks again */
    }
    return (double)(rl_mono_us() - begun) / 1000;
}

static void stop(pid_t pid)
{
    int status;
    if (kill(pid, SIGTERM) != 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
        WEXITSTATUS(status) != 0)
        bench_die("reeld", "did not stop cleanly");
}

static void owner_header(const char *dir, char *header, size_t size)
{
    char path[600], key[80] = "";
    (void)snprintf(path, sizeof path, "%s/owner.key", dir);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(key, sizeof key, f))
        bench_die(path, "cannot be read");
    (void)fclose(f); /* only read */
    key[strcspn(key, "\n")] = '\0';
    (void)snprintf(header, size, "Authorization: Bearer %s\r\n", key);
}

static void empty_starts(const char *program, const char *under)
{
    double ms[STARTS], mib[STARTS];
    char header[120];
    static const char *const paths[] = {"/healthz",      "/readyz",         "/",
                                        "/api/v1/tasks", "/api/v1/engines", "/openapi.json"};
    for (int i = 0; i < STARTS; i++) {
        struct bench b;
        pid_t pid;
        int port = free_port();
        bench_new(&b, under);
        ms[i] = start(program, b.dir, port, &pid);
        owner_header(b.dir, header, sizeof header);
        for (size_t k = 0; k < PAGES * RL_ARRAY_LEN(paths); k++)
            if (get(port, paths[k % RL_ARRAY_LEN(paths)], header) != 200)
                bench_die(paths[k % RL_ARRAY_LEN(paths)], "is not answered");
        mib[i] = bench_rss_mib(pid);
        stop(pid);
        bench_end(&b);
    }
    double median = bench_median(ms, STARTS), memory = bench_median(mib, STARTS);
    bench_line("exec to ready, empty state folder", "<= 100 ms", median <= 100,
               "%.0f ms (fastest %.0f, slowest %.0f)", median, ms[0], ms[STARTS - 1]);
    bench_line("resident memory, idle", "< 40 MB", memory * 1.048576 < 40, "%.1f MiB", memory);
}

static void forget(const char *dir)
{
    char path[600];
    (void)snprintf(path, sizeof path, "%s/reeld.db", dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        (void)fprintf(stderr, "the page cache keeps %s\n", path);
    (void)close(fd);
}

static void full_starts(const char *program, const char *under)
{
    double ms[STARTS];
    struct bench b;
    pid_t pid;
    bench_new(&b, under);
    bench_open(&b);
    task_free(bench_submit(&b, "{\"prompt\":\"x\"}", "x"));
    bench_close(&b);
    bench_fill(
        &b, FINISHED,
        "status = 'SUCCEEDED', finished_at = updated_at + 1, attempt = 1, worker_id = 'cpu0', "
        "video_file = task_id || '-1.mp4', video_sha256 = hex(zeroblob(32)), video_bytes = 1",
        4);
    for (int i = 0; i < STARTS; i++) {
        int port = free_port();
        forget(b.dir);
        ms[i] = start(program, b.dir, port, &pid);
        stop(pid);
    }
    double median = bench_median(ms, STARTS);
    bench_line("exec to ready, a million finished tasks", "<= 1000 ms", median <= 1000,
               "%.0f ms (fastest %.0f, slowest %.0f)", median, ms[0], ms[STARTS - 1]);
    bench_end(&b);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        bench_die("usage", "bench_start FOLDER REELD [empty]");
    empty_starts(argv[2], argv[1]);
    if (argc < 4)
        full_starts(argv[2], argv[1]);
    return 0;
}
