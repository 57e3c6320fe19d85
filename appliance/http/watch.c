/* Owns one thread and the list of reads under way. The library hides the socket of a connection,
 * but its two ends are public and unique: the thread finds it among the open files, only when a
 * deadline has passed. Invariant: an entry is in the list only while its worker is inside a read,
 * so the socket found is still that worker's.
 *
 * In a crowd the thread also looks at the connections that no worker has taken yet: the library
 * gives each of them the whole request time-out, one after the other, and so a few hundred that say
 * nothing would keep everybody waiting for minutes. Theirs counts from the connection. */
#include "http/watch.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"

#define CROWD_MS   10000 /* a crowd counts as one for so long after it was last seen */
#define CROWD_LOOK 200   /* ms between looks at it */
#define HEAD_BYTES 16384 /* the longest head that is taken (max_request_size) */

struct watch {
    pthread_t thread;
    pthread_mutex_t lock; /* guards: all below, and every entry in the list */
    pthread_cond_t changed;
    struct watch_entry *first;
    bool stop;
    int64_t looks_at_ms;    /* when the thread looks again by itself */
    int64_t crowd_until_ms; /* rl_mono_ms */
    int crowd_port;
    int64_t crowd_quiet_ms;
};

/* Calls each for every open file until it says stop (true). */
static void each_file(bool (*each)(int fd, const void *user), const void *user)
{
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) {
        rl_log(RL_LOG_WARN, "http_watch_failed", "reason=\"cannot list open files\"");
        return;
    }
    const struct dirent *item;
    while ((item = readdir(dir)) != NULL) {
        char *end;
        long fd = strtol(item->d_name, &end, 10);
        if (!*end && end != item->d_name && fd <= INT32_MAX && each((int)fd, user))
            break;
    }
    (void)closedir(dir); /* nothing was written */
}

/* ---- deadlines ---- */

static bool is_connection(int fd, const struct watch_entry *entry)
{
    struct sockaddr_in peer = {0}, local = {0};
    socklen_t peer_len = sizeof(peer), local_len = sizeof(local);
    return getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 &&
           peer.sin_family == AF_INET && peer.sin_port == entry->peer.sin_port &&
           peer.sin_addr.s_addr == entry->peer.sin_addr.s_addr &&
           getsockname(fd, (struct sockaddr *)&local, &local_len) == 0 &&
           ntohs(local.sin_port) == entry->local_port;
}

/* Close the reading side, so that the worker's read ends while its answer can still go out. */
static bool cut_entry(int fd, const void *user)
{
    if (!is_connection(fd, user))
        return false;
    (void)shutdown(fd, SHUT_RD); /* the peer may have gone meanwhile */
    return true;
}

/* ---- the crowd ---- */

struct crowd {
    int port;
    int64_t quiet_ms;
    char *head; /* HEAD_BYTES */
};

/* Is this a connection to our port that has been quiet for too long without a whole head? What a
 * worker has already read is not seen here: the library itself puts an end to that. */
static bool is_loitering(int fd, const struct crowd *crowd)
{
    struct sockaddr_in local = {0};
    socklen_t local_len = sizeof(local);
    struct tcp_info info = {0};
    socklen_t info_len = sizeof(info);
    if (getsockname(fd, (struct sockaddr *)&local, &local_len) != 0 ||
        local.sin_family != AF_INET || ntohs(local.sin_port) != crowd->port ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &info_len) != 0 ||
        info.tcpi_last_data_recv < crowd->quiet_ms)
        return false;
    ssize_t n = recv(fd, crowd->head, HEAD_BYTES, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0)
        return info.tcpi_bytes_received == 0;
    return n > 0 && !memmem(crowd->head, (size_t)n, "\r\n\r\n", 4);
}

static bool cut_loiterer(int fd, const void *user)
{
    if (is_loitering(fd, user))
        (void)shutdown(fd, SHUT_RD); /* the peer may have gone meanwhile */
    return false;
}

static void clear_crowd(int port, int64_t quiet_ms)
{
    struct crowd crowd = {.port = port, .quiet_ms = quiet_ms, .head = malloc(HEAD_BYTES)};
    if (crowd.head)
        each_file(cut_loiterer, &crowd);
    free(crowd.head);
}

/* ---- the end ---- */

static bool hang_up(int fd, const void *user)
{
    const int *port = user;
    struct sockaddr_in local = {0};
    socklen_t len = sizeof(local);
    if (getsockname(fd, (struct sockaddr *)&local, &len) == 0 && local.sin_family == AF_INET &&
        ntohs(local.sin_port) == *port)
        (void)shutdown(fd, SHUT_RDWR); /* the peer may have gone meanwhile */
    return false;
}

void watch_hang_up(int port)
{
    each_file(hang_up, &port);
}

/* ---- the thread ---- */

/* Cut what is due; returns ms until the next deadline, a minute when there is none. */
static int64_t sweep_locked(struct watch *watch)
{
    int64_t now = rl_mono_ms(), wait = now < watch->crowd_until_ms ? CROWD_LOOK : 60000;
    for (struct watch_entry *e = watch->first; e; e = e->next) {
        if (e->fired)
            continue;
        if (e->deadline_ms <= now) {
            e->fired = true;
            each_file(cut_entry, e);
        } else if (e->deadline_ms - now < wait) {
            wait = e->deadline_ms - now;
        }
    }
    watch->looks_at_ms = now + wait;
    return wait;
}

static void *watch_main(void *arg)
{
    struct watch *watch = arg;
    (void)pthread_mutex_lock(&watch->lock);
    while (!watch->stop) {
        struct timespec until = rl_deadline(CLOCK_MONOTONIC, sweep_locked(watch));
        if (rl_mono_ms() < watch->crowd_until_ms) {
            int port = watch->crowd_port;
            int64_t quiet_ms = watch->crowd_quiet_ms;
            (void)pthread_mutex_unlock(&watch->lock); /* many files: nobody waits for that */
            clear_crowd(port, quiet_ms);
            (void)pthread_mutex_lock(&watch->lock);
        }
        if (!watch->stop)
            (void)pthread_cond_clockwait(&watch->changed, &watch->lock, CLOCK_MONOTONIC, &until);
    }
    (void)pthread_mutex_unlock(&watch->lock);
    return NULL;
}

enum rl_rc watch_start(struct watch **ret_watch, struct rl_err *err)
{
    struct watch *watch = calloc(1, sizeof(*watch));
    if (!watch)
        return rl_fail(err, RL_NO_MEMORY, "no memory for the watch");
    (void)pthread_mutex_init(&watch->lock, NULL); /* cannot fail with default attributes */
    (void)pthread_cond_init(&watch->changed, NULL);
    int failed = pthread_create(&watch->thread, NULL, watch_main, watch);
    if (failed) {
        (void)pthread_mutex_destroy(&watch->lock);
        (void)pthread_cond_destroy(&watch->changed);
        free(watch);
        return rl_fail(err, RL_UNAVAILABLE, "no thread for the watch (error %d)", failed);
    }
    *ret_watch = watch;
    return RL_OK;
}

void watch_stop(struct watch *watch)
{
    if (!watch)
        return;
    (void)pthread_mutex_lock(&watch->lock);
    watch->stop = true;
    (void)pthread_cond_signal(&watch->changed);
    (void)pthread_mutex_unlock(&watch->lock);
    (void)pthread_join(watch->thread, NULL);
    (void)pthread_mutex_destroy(&watch->lock);
    (void)pthread_cond_destroy(&watch->changed);
    free(watch);
}

void watch_add(struct watch *watch, struct watch_entry *entry, const char *peer_ip, int peer_port,
               int local_port, int64_t for_ms)
{
    *entry = (struct watch_entry){.deadline_ms = rl_mono_ms() + for_ms, .local_port = local_port};
    entry->peer.sin_family = AF_INET;
    entry->peer.sin_port = htons((uint16_t)peer_port);
    (void)inet_pton(AF_INET, peer_ip, &entry->peer.sin_addr); /* from getpeername: always valid */
    (void)pthread_mutex_lock(&watch->lock);
    entry->next = watch->first;
    if (watch->first)
        watch->first->prev = entry;
    watch->first = entry;
    if (entry->deadline_ms < watch->looks_at_ms)
        (void)pthread_cond_signal(&watch->changed);
    (void)pthread_mutex_unlock(&watch->lock);
}

bool watch_remove(struct watch *watch, struct watch_entry *entry)
{
    (void)pthread_mutex_lock(&watch->lock);
    if (entry->prev)
        entry->prev->next = entry->next;
    else
        watch->first = entry->next;
    if (entry->next)
        entry->next->prev = entry->prev;
    bool fired = entry->fired;
    (void)pthread_mutex_unlock(&watch->lock);
    return fired;
}

void watch_crowd(struct watch *watch, int port, int64_t quiet_ms)
{
    int64_t now = rl_mono_ms();
    (void)pthread_mutex_lock(&watch->lock);
    bool is_new = watch->crowd_until_ms <= now;
    watch->crowd_until_ms = now + CROWD_MS;
    watch->crowd_port = port;
    watch->crowd_quiet_ms = quiet_ms;
    if (is_new)
        (void)pthread_cond_signal(&watch->changed);
    (void)pthread_mutex_unlock(&watch->lock);
}
