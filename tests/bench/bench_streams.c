/* A thousand open event streams: what they cost ordinary requests and memory, and how long an event
 * takes from the COMMIT to the clients' sockets. The server (HTTP, tasks, store; no pool) is a
 * process of its own, so that its memory is its own; it writes the moment of every hub_publish,
 * which follows the COMMIT, into memory that both share, and the clients look it up by the event's
 * seq. Clients and server share the machine: what the clients take is part of the figures. */
#include "bench.h"

#include "http/http.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define STREAMS    1000
#define PER_USER   16
#define USERS      ((STREAMS + PER_USER - 1) / PER_USER)
#define SEQS       65536
#define ROUNDS     9
#define REQUESTS   2000 /* per round */
#define EVENTS     1000 /* 100 per second: 50 submits of two events */
#define BROADCASTS 30
#define SAMPLES    (EVENTS * PER_USER * 2)
#define QUIET_US   400000

struct board {
    atomic_llong commit_us[SEQS];
    atomic_llong last_seq;
    atomic_int port;
    char owner[KEY_TEXT], users[USERS][KEY_TEXT];
};

static struct board *board;

void __real_hub_publish(struct hub *hub, const struct hub_event *event);
void __wrap_hub_publish(struct hub *hub, const struct hub_event *event);

void __wrap_hub_publish(struct hub *hub, const struct hub_event *event)
{
    if (event->seq < SEQS)
        atomic_store(&board->commit_us[event->seq], rl_mono_us());
    atomic_store(&board->last_seq, event->seq);
    __real_hub_publish(hub, event);
}

/* ---- the server ---- */

static void serve(const char *under, int stop_fd)
{
    struct bench b;
    struct rl_err err;
    struct http *http = NULL;
    int64_t id;
    int port;
    char byte;
    bench_new(&b, under);
    bench_set(&b, "listen", "127.0.0.1:0");
    bench_set(&b, "http.stream_threads", "1024");
    bench_set(&b, "limit.submits_per_minute", "0");
    bench_open(&b);
    bench_ok(key_add(b.tasks, "boss", NULL, true, board->owner, &id, &err), &err);
    for (int i = 0; i < USERS; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "user%d", i);
        bench_ok(key_add(b.tasks, name, NULL, false, board->users[i], &id, &err), &err);
    }
    bench_ok(http_start(b.tasks, NULL, NULL, &http, &port, &err), &err);
    atomic_store(&board->port, port);
    if (read(stop_fd, &byte, 1) < 0) /* until the other side closes */
        bench_die("server", "pipe");
    http_stop(http, 3000);
    bench_end(&b);
}

/* ---- one connection ---- */

static int dial(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atomic_load(&board->port)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 10};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
        connect(fd, (struct sockaddr *)&at, sizeof at) != 0)
        bench_die("connect", "refused");
    return fd;
}

/* Sends one request and reads its whole answer (which has a length) into text; its status. */
static int exchange(int fd, const char *request, char *text, size_t size)
{
    size_t len = 0, want = 0;
    int status = 0;
    if (send(fd, request, strlen(request), MSG_NOSIGNAL) != (ssize_t)strlen(request))
        bench_die("send", "cut");
    do {
        ssize_t n = recv(fd, text + len, size - 1 - len, 0);
        if (n <= 0)
            bench_die("receive", "cut");
        len += (size_t)n;
        text[len] = '\0';
        const char *head = strstr(text, "\r\n\r\n"), *length = strcasestr(text, "content-length:");
        if (head && length)
            want = (size_t)(head + 4 - text) + strtoul(length + 15, NULL, 10);
    } while (want == 0 || len < want);
    if (sscanf(text, "HTTP/1.1 %d", &status) != 1)
        bench_die("answer", text);
    return status;
}

static void submit(int fd, const char *key, int number)
{
    char body[160], request[600], text[8192];
    int len = snprintf(body, sizeof body,
                       "{\"prompt\":\"no %d\",\"run_at\":\"2099-01-01T00:00:00Z\"}", number);
    (void)snprintf(request, sizeof request,
                   "POST /api/v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
                   "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                   key, len, body);
    if (exchange(fd, request, text, sizeof text) != 202)
        bench_die("submit", text);
}

/* p99 of an unfinished task's GET on one kept connection, ms: the median over rounds. */
static double ordinary_p99(const char *path)
{
    static double ms[REQUESTS], p99[ROUNDS];
    char request[400], text[8192];
    (void)snprintf(request, sizeof request,
                   "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n", path,
                   board->owner);
    int fd = dial();
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < REQUESTS; i++) {
            int64_t begun = rl_mono_us();
            if (exchange(fd, request, text, sizeof text) != 200)
                bench_die("get", text);
            ms[i] = (double)(rl_mono_us() - begun) / 1000;
        }
        p99[round] = bench_quantile(ms, REQUESTS, 0.99);
    }
    (void)close(fd);
    return bench_median(p99, ROUNDS);
}

/* ---- the streams ---- */

struct reader {
    int poll, fds[STREAMS];
    pthread_t thread;
    atomic_bool stop;
    atomic_llong heard; /* events that reached clients */
    double latency_ms[SAMPLES];
    size_t samples;
    atomic_llong last_us; /* the latest arrival */
};

static struct reader reader;

/* Every "id: N" in what one recv brought counts as arrived now. */
static void take(int fd)
{
    char text[65536];
    ssize_t n = recv(fd, text, sizeof text - 1, 0);
    int64_t now = rl_mono_us();
    if (n <= 0)
        bench_die("stream", "ended");
    text[n] = '\0';
    for (const char *at = text; (at = strstr(at, "event: status\nid: ")); at++) {
        long long seq = strtoll(at + 18, NULL, 10);
        if (seq >= SEQS)
            bench_die("stream", "more events than room");
        if (reader.samples < SAMPLES)
            reader.latency_ms[reader.samples++] =
                (double)(now - atomic_load(&board->commit_us[seq])) / 1000;
        atomic_store(&reader.last_us, now);
        atomic_fetch_add(&reader.heard, 1);
    }
}

static void *read_streams(void *arg)
{
    struct epoll_event ready[64];
    (void)arg;
    while (!atomic_load(&reader.stop)) {
        int n = epoll_wait(reader.poll, ready, 64, 50);
        for (int i = 0; i < n; i++)
            take(ready[i].data.fd);
    }
    return NULL;
}

/* STREAMS streams of /api/v1/events, PER_USER for each user, or all for the owner. */
static void streams_open(bool owner)
{
    char request[400], text[8192];
    reader.poll = epoll_create1(EPOLL_CLOEXEC);
    reader.samples = 0;
    atomic_store(&reader.heard, 0);
    atomic_store(&reader.stop, false);
    for (int i = 0; i < STREAMS; i++) {
        struct epoll_event want = {.events = EPOLLIN, .data.fd = reader.fds[i] = dial()};
        int len =
            snprintf(request, sizeof request,
                     "GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
                     "%s\r\nAccept: text/event-stream\r\nLast-Event-ID: %lld\r\n\r\n",
                     owner ? board->owner : board->users[i / PER_USER],
                     (long long)atomic_load(&board->last_seq));
        if (send(reader.fds[i], request, (size_t)len, MSG_NOSIGNAL) != len)
            bench_die("stream", "cut");
        ssize_t n = recv(reader.fds[i], text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        if (!strstr(text, "200 OK"))
            bench_die("stream", text);
        if (epoll_ctl(reader.poll, EPOLL_CTL_ADD, reader.fds[i], &want) != 0)
            bench_die("epoll", "full");
    }
    if (pthread_create(&reader.thread, NULL, read_streams, NULL) != 0)
        bench_die("reader", "no thread");
}

static void streams_close(void)
{
    atomic_store(&reader.stop, true);
    (void)pthread_join(reader.thread, NULL); /* ours, and joined once */
    for (int i = 0; i < STREAMS; i++)
        (void)close(reader.fds[i]);
    (void)close(reader.poll);
}

static void hear(int64_t count, const char *what)
{
    for (int64_t until = rl_mono_ms() + 10000; atomic_load(&reader.heard) < count;) {
        if (rl_mono_ms() > until)
            bench_die(what, "events are missing");
        (void)usleep(500); /* cut short: looks again */
    }
}

/* ---- the measurements ---- */

/* 100 events per second, each for the PER_USER streams of one user. */
static void few(void)
{
    int fd = dial();
    int64_t next = rl_mono_us(), expected = 0;
    for (int i = 0; i < EVENTS / 2; i++) {
        int user = i % USERS;
        submit(fd, board->users[user], i);
        expected += 2 * (user < STREAMS / PER_USER ? PER_USER : STREAMS % PER_USER);
        next += 20000;
        int64_t pause = next - rl_mono_us();
        if (pause > 0)
            (void)usleep((useconds_t)pause); /* cut short: a little early */
    }
    hear(expected, "100 events per second");
    (void)close(fd);
    double p99 = bench_quantile(reader.latency_ms, reader.samples, 0.99);
    bench_line("COMMIT to client, 16 of 1,000 streams, 100 events/s, p99", "< 10 ms", p99 < 10,
               "%.2f ms (median %.2f, worst %.1f; %zu arrivals)", p99,
               bench_median(reader.latency_ms, reader.samples),
               reader.latency_ms[reader.samples - 1], reader.samples);
}

/* One submit (two events in one COMMIT) to all. */
static void all(void)
{
    double last_ms[BROADCASTS];
    int fd = dial();
    for (int i = 0; i < BROADCASTS; i++) {
        (void)usleep(QUIET_US / 4); /* nobody is busy with the one before */
        submit(fd, board->owner, 100000 + i);
        hear((int64_t)(i + 1) * 2 * STREAMS, "one event to all");
        int64_t seq = atomic_load(&board->last_seq);
        last_ms[i] =
            (double)(atomic_load(&reader.last_us) - atomic_load(&board->commit_us[seq])) / 1000;
    }
    (void)close(fd);
    double median = bench_median(last_ms, BROADCASTS);
    bench_line("COMMIT to the last of 1,000 clients, median", "< 60 ms", median < 60,
               "%.1f ms (worst of %d: %.1f)", median, BROADCASTS, last_ms[BROADCASTS - 1]);
}

/* Leaves the streams open. */
static void ordinary(const char *path, pid_t server)
{
    double idle = ordinary_p99(path);
    streams_open(false);
    (void)usleep(QUIET_US);
    double held = ordinary_p99(path), mib = bench_rss_mib(server);
    bench_line("ordinary request with 1,000 streams open, p99", "< 2 x idle", held < 2 * idle,
               "%.2f x (%.3f ms to %.3f ms)", held / idle, idle, held);
    bench_line("resident memory with 1,000 streams", "< 120 MB", mib * 1.048576 < 120, "%.1f MiB",
               mib);
}

int main(int argc, char **argv)
{
    struct rlimit files;
    int pipe_fd[2];
    if (argc < 2)
        bench_die("usage", "bench_streams FOLDER");
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED || pipe(pipe_fd) != 0 || getrlimit(RLIMIT_NOFILE, &files) != 0)
        bench_die("start", "no memory");
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files); /* else the streams say so */
    (void)signal(SIGPIPE, SIG_IGN);
    pid_t server = fork();
    if (server == 0) {
        (void)close(pipe_fd[1]);
        serve(argv[1], pipe_fd[0]);
        return 0;
    }
    (void)close(pipe_fd[0]);
    while (atomic_load(&board->port) == 0 && waitpid(server, NULL, WNOHANG) == 0)
        (void)usleep(1000); /* cut short: looks again */
    int fd = dial();
    submit(fd, board->owner, 0);
    char text[8192], request[300], path[80];
    (void)snprintf(
        request, sizeof request,
        "GET /api/v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n",
        board->owner);
    (void)exchange(fd, request, text, sizeof text);
    (void)close(fd);
    const char *id = strstr(text, "\"task_id\":\"");
    if (!id)
        bench_die("list", text);
    (void)snprintf(path, sizeof path, "/api/v1/tasks/%.*s", (int)strcspn(id + 11, "\""), id + 11);

    ordinary(path, server);
    few();
    streams_close();
    (void)sleep(2); /* their places are free again */
    streams_open(true);
    all();
    streams_close();
    (void)close(pipe_fd[1]);
    int status;
    if (waitpid(server, &status, 0) != server || status != 0)
        bench_die("server", "did not stop cleanly");
    return 0;
}
