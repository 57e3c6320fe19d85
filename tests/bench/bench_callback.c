/* From the COMMIT of a terminal state to the first byte of its callback at the receiver: the real
 * writer, doorbell, outbox thread and libcurl against a receiver in this process. The start is the
 * moment at which the writer, its COMMIT done, publishes the event (hub_publish is wrapped); the
 * second figure counts from the row's finished_at and so holds the sync of the disk as well. */
#include "bench.h"

#include "net/net.h"
#include "outbox/outbox.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define TASKS    200
#define PEERS    8
#define WAIT_MS  10000
#define OWN_PORT 1

static atomic_llong committed_us, arrived_us, arrived_ms;

void __real_hub_publish(struct hub *hub, const struct hub_event *event);
void __wrap_hub_publish(struct hub *hub, const struct hub_event *event);

void __wrap_hub_publish(struct hub *hub, const struct hub_event *event)
{
    if (strcmp(event->to_status, "SUCCEEDED") == 0)
        atomic_store(&committed_us, rl_mono_us());
    __real_hub_publish(hub, event);
}

/* ---- the receiver ---- */

struct receiver {
    int fd;
    pthread_t thread;
    atomic_bool stop;
};

/* One request that is on its way in; the next one may come on the same connection. false: closed.
 */
static bool take_request(int fd)
{
    static const char answer[] = "HTTP/1.1 204 No Content\r\n\r\n";
    char bytes[16384];
    size_t len = 0;
    ssize_t n = recv(fd, bytes, sizeof bytes - 1, 0);
    if (n <= 0)
        return false;
    if (atomic_load(&arrived_us) == 0) {
        atomic_store(&arrived_ms, rl_wall_ms());
        atomic_store(&arrived_us, rl_mono_us());
    }
    for (;;) {
        len += (size_t)n;
        bytes[len] = '\0';
        const char *head = strstr(bytes, "\r\n\r\n"),
                   *length = strcasestr(bytes, "content-length:");
        if (head && length &&
            len >= (size_t)(head + 4 - bytes) + (size_t)strtoul(length + 15, NULL, 10))
            break;
        n = recv(fd, bytes + len, sizeof bytes - 1 - len, 0);
        if (n <= 0)
            return false;
    }
    return send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL) == (ssize_t)sizeof answer - 1;
}

static void *receive(void *arg)
{
    struct receiver *r = arg;
    struct pollfd fds[1 + PEERS] = {{.fd = r->fd, .events = POLLIN}};
    for (int i = 1; i <= PEERS; i++)
        fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    while (!atomic_load(&r->stop)) {
        if (poll(fds, 1 + PEERS, 100) <= 0)
            continue;
        for (int i = 1; i <= PEERS; i++)
            if (fds[i].fd >= 0 && fds[i].revents && !take_request(fds[i].fd)) {
                (void)close(fds[i].fd);
                fds[i].fd = -1;
            }
        for (int i = 1; i <= PEERS && fds[0].revents; i++)
            if (fds[i].fd < 0) {
                fds[i].fd = accept(r->fd, NULL, NULL);
                break;
            }
    }
    for (int i = 0; i <= PEERS; i++)
        if (fds[i].fd >= 0)
            (void)close(fds[i].fd);
    return NULL;
}

static int receiver_start(struct receiver *r)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    r->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->fd < 0 || bind(r->fd, (struct sockaddr *)&at, len) != 0 || listen(r->fd, 16) != 0 ||
        getsockname(r->fd, (struct sockaddr *)&at, &len) != 0 ||
        pthread_create(&r->thread, NULL, receive, r) != 0)
        bench_die("receiver", "cannot start");
    return ntohs(at.sin_port);
}

/* ---- the measurement ---- */

static const struct run_result clip = {
    .file = "x.mp4", .bytes = 10, .sha256 = "00", .width = 64, .height = 64, .frames = 4, .fps = 8};
static const struct engine_device device = {.id = "cpu0", .name = "bench", .backend = "cpu"};

static void one(struct bench *b, int port, int number, double *ret_commit_ms, double *ret_row_ms)
{
    char body[160], key[32];
    struct rl_err err;
    struct run *run = NULL;
    (void)snprintf(body, sizeof body,
                   "{\"prompt\":\"a\",\"callback_url\":\"http://127.0.0.1:%d/cb\"}", port);
    (void)snprintf(key, sizeof key, "k%d", number);
    struct task *task = bench_submit(b, body, key);
    int64_t id = task->task_id;
    task_free(task);
    bench_ok(run_claim(b->tasks, &device, &run, &err), &err);
    if (!run)
        bench_die("callback", "nothing to claim");
    atomic_store(&arrived_us, 0);
    bench_ok(run_succeed(run, &clip, &err), &err);
    run_free(run);
    for (int64_t until = rl_mono_ms() + WAIT_MS; atomic_load(&arrived_us) == 0;) {
        if (rl_mono_ms() > until)
            bench_die("callback", "did not come");
        (void)usleep(200); /* cut short: looks again */
    }
    *ret_commit_ms = (double)(atomic_load(&arrived_us) - atomic_load(&committed_us)) / 1000;
    bench_ok(task_get(b->tasks, &bench_caller, id, &task, &err), &err);
    *ret_row_ms = (double)(atomic_load(&arrived_ms) - task->finished_at);
    while (strcmp(task->callback_status, "PENDING") == 0) { /* one at a time */
        task_free(task);
        (void)usleep(1000);
        bench_ok(task_get(b->tasks, &bench_caller, id, &task, &err), &err);
    }
    task_free(task);
}

int main(int argc, char **argv)
{
    static double commit_ms[TASKS], row_ms[TASKS];
    static struct receiver receiver;
    struct bench b;
    struct rl_err err;
    struct outbox *outbox = NULL;
    if (argc < 2)
        bench_die("usage", "bench_callback FOLDER");
    bench_ok(net_init(&err), &err);
    bench_new(&b, argv[1]);
    bench_open(&b);
    int port = receiver_start(&receiver);
    bench_ok(outbox_start(b.tasks, OWN_PORT, &outbox, &err), &err);
    for (int i = 0; i < TASKS; i++)
        one(&b, port, i, &commit_ms[i], &row_ms[i]);
    double median = bench_median(commit_ms, TASKS);
    bench_line("COMMIT to callback at the receiver, median", "< 20 ms", median < 20,
               "%.2f ms (p99 %.2f ms; from finished_at, sync included: %.1f ms)", median,
               bench_quantile(commit_ms, TASKS, 0.99), bench_median(row_ms, TASKS));
    outbox_stop(outbox, 1000);
    atomic_store(&receiver.stop, true);
    (void)pthread_join(receiver.thread, NULL); /* ours, and joined once */
    bench_end(&b);
    net_cleanup();
    return 0;
}
