/* Owns one thread and the list of reads under way. The library hides the socket of a connection,
 * but its two ends are public and unique: the thread finds it among the open files, only when a
 * deadline has passed. Invariant: an entry is in the list only while its worker is inside a read,
 * so the socket found is still that worker's. */
#include "http/watch.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"

struct watch {
    pthread_t thread;
    pthread_mutex_t lock; /* guards: first, stop, looks_at_ms, and every entry in the list */
    pthread_cond_t changed;
    struct watch_entry *first;
    bool stop;
    int64_t looks_at_ms; /* when the thread looks again by itself */
};

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
static void cut(const struct watch_entry *entry)
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
        if (*end || end == item->d_name || fd > INT32_MAX || !is_connection((int)fd, entry))
            continue;
        (void)shutdown((int)fd, SHUT_RD); /* the peer may have gone meanwhile */
        break;
    }
    (void)closedir(dir); /* nothing was written */
}

/* Cut what is due; returns ms until the next deadline, a minute when there is none. */
static int64_t sweep_locked(struct watch *watch)
{
    int64_t now = rl_mono_ms(), wait = 60000;
    for (struct watch_entry *e = watch->first; e; e = e->next) {
        if (e->fired)
            continue;
        if (e->deadline_ms <= now) {
            e->fired = true;
            cut(e);
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
