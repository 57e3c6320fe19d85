/* Owns one thread and the lists of what it watches. Invariants: an entry is in its list only while
 * its worker is inside a read, a peer only while its worker holds the connection, so the socket
 * found is still that worker's.
 *
 * In a crowd the thread also looks at the connections that no worker has taken yet: the library
 * gives each of them the whole request time-out, one after the other, and so a few hundred that say
 * nothing would keep everybody waiting for minutes. Theirs counts from the connection. */
#include "http/watch.h"

#include <pthread.h>
#include <sys/socket.h>

#include "base/clock.h"

#define IDLE_MS    60000
#define PEERS_LOOK 1000  /* ms between looks at who has left */
#define CROWD_LOOK 200   /* ms between looks at a crowd */
#define CROWD_MS   10000 /* a crowd counts as one for so long after it was last seen */

struct watch {
    pthread_t thread;
    pthread_mutex_t lock; /* guards all below but on_left and user */
    pthread_cond_t changed;
    struct watch_entry *first;
    struct watch_peer *peers;
    bool stop;
    int64_t looks_at_ms; /* when the thread looks again by itself */
    int64_t peers_at_ms; /* the next look at peers */
    int64_t crowd_until_ms, crowd_quiet_ms;
    int crowd_port;
    void (*on_left)(void *user);
    void *user;
};

/* ---- the thread ---- */

static int64_t min_ms(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Close the reading side of what is due, so that the worker's read ends while its answer can still
 * go out. Returns when to look again. */
static int64_t sweep_reads_locked(struct watch *watch, int64_t now)
{
    int64_t next = now + IDLE_MS;
    for (struct watch_entry *e = watch->first; e; e = e->next) {
        if (!e->fired && e->deadline_ms <= now) {
            e->fired = true;
            int fd = wire_find(&e->ends);
            if (fd >= 0)
                (void)shutdown(fd, SHUT_RD); /* the peer may have gone meanwhile */
        } else if (!e->fired) {
            next = min_ms(next, e->deadline_ms);
        }
    }
    return next;
}

static int64_t sweep_peers_locked(struct watch *watch, int64_t now, bool *ret_left)
{
    if (!watch->peers)
        return now + IDLE_MS;
    if (now < watch->peers_at_ms)
        return watch->peers_at_ms;
    for (struct watch_peer *p = watch->peers; p; p = p->next)
        if (p->fd >= 0 && !atomic_load(&p->left) && wire_left(p->fd)) {
            atomic_store(&p->left, true);
            *ret_left = true;
        }
    watch->peers_at_ms = now + PEERS_LOOK;
    return watch->peers_at_ms;
}

static void *watch_main(void *arg)
{
    struct watch *watch = arg;
    (void)pthread_mutex_lock(&watch->lock);
    while (!watch->stop) {
        bool left = false;
        int64_t now = rl_mono_ms();
        bool crowd = now < watch->crowd_until_ms;
        int port = watch->crowd_port;
        int64_t quiet_ms = watch->crowd_quiet_ms;
        int64_t next =
            min_ms(sweep_reads_locked(watch, now), sweep_peers_locked(watch, now, &left));
        watch->looks_at_ms = crowd ? min_ms(next, now + CROWD_LOOK) : next;
        if (left || crowd) { /* nobody waits for that */
            (void)pthread_mutex_unlock(&watch->lock);
            if (left)
                watch->on_left(watch->user);
            if (crowd)
                wire_clear(port, quiet_ms);
            (void)pthread_mutex_lock(&watch->lock);
        }
        int64_t wait_ms = watch->looks_at_ms - rl_mono_ms();
        struct timespec until = rl_deadline(CLOCK_MONOTONIC, wait_ms);
        if (!watch->stop && wait_ms > 0)
            (void)pthread_cond_clockwait(&watch->changed, &watch->lock, CLOCK_MONOTONIC, &until);
    }
    (void)pthread_mutex_unlock(&watch->lock);
    return NULL;
}

/* The thread shall look at this time, or before. */
static void look_by_locked(struct watch *watch, int64_t at_ms)
{
    if (at_ms >= watch->looks_at_ms)
        return;
    watch->looks_at_ms = at_ms;
    (void)pthread_cond_signal(&watch->changed);
}

enum rl_rc watch_start(void (*on_left)(void *user), void *user, struct watch **ret_watch,
                       struct rl_err *err)
{
    struct watch *watch = calloc(1, sizeof(*watch));
    if (!watch)
        return rl_fail(err, RL_NO_MEMORY, "no memory for the watch");
    watch->on_left = on_left;
    watch->user = user;
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

/* ---- the lists ---- */

void watch_add(struct watch *watch, struct watch_entry *entry, const struct wire_ends *ends,
               int64_t for_ms)
{
    *entry = (struct watch_entry){.deadline_ms = rl_mono_ms() + for_ms, .ends = *ends};
    (void)pthread_mutex_lock(&watch->lock);
    entry->next = watch->first;
    if (watch->first)
        watch->first->prev = entry;
    watch->first = entry;
    look_by_locked(watch, entry->deadline_ms);
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

void watch_peer_add(struct watch *watch, struct watch_peer *peer, const struct wire_ends *ends)
{
    *peer = (struct watch_peer){.fd = wire_find(ends)};
    (void)pthread_mutex_lock(&watch->lock);
    peer->next = watch->peers;
    if (watch->peers)
        watch->peers->prev = peer;
    watch->peers = peer;
    look_by_locked(watch, rl_mono_ms() + PEERS_LOOK);
    (void)pthread_mutex_unlock(&watch->lock);
}

void watch_peer_remove(struct watch *watch, struct watch_peer *peer)
{
    (void)pthread_mutex_lock(&watch->lock);
    if (peer->prev)
        peer->prev->next = peer->next;
    else
        watch->peers = peer->next;
    if (peer->next)
        peer->next->prev = peer->prev;
    (void)pthread_mutex_unlock(&watch->lock);
    peer->fd = -1;
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
        look_by_locked(watch, now);
    (void)pthread_mutex_unlock(&watch->lock);
}
