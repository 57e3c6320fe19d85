/* The doorbell. One mutex guards everything; waiters sit in a list with a condition each, so that
 * an event wakes only whom it concerns. publish is called by the store's writer thread, the rest by
 * any thread. Invariant: ring slots hold consecutive publishes in seq order, the oldest at `count -
 * kept`. */
#include "events/events.h"

#include "base/clock.h"

#include <pthread.h>
#include <string.h>

struct waiter {
    struct hub_filter filter;
    bool any;
    bool woken;
    pthread_cond_t cond;
    struct waiter *prev, *next;
};

struct hub {
    pthread_mutex_t lock; /* guards: everything below */
    uint64_t tick;
    int64_t last_seq;
    int64_t ring_after; /* the ring is complete for seq > ring_after */
    struct hub_event ring[HUB_RING];
    uint64_t published; /* events ever put into the ring */
    uint64_t oldest;    /* index of the oldest kept */
    struct waiter *waiters;
};

struct hub *hub_new(int64_t first_seq)
{
    struct hub *hub = calloc(1, sizeof *hub);
    if (!hub)
        return NULL;
    pthread_mutex_init(&hub->lock, NULL);
    hub->last_seq = hub->ring_after = first_seq;
    hub->tick = 1;
    return hub;
}

void hub_set_last(struct hub *hub, int64_t seq)
{
    pthread_mutex_lock(&hub->lock);
    hub->last_seq = hub->ring_after = seq;
    pthread_mutex_unlock(&hub->lock);
}

void hub_free(struct hub *hub)
{
    if (!hub)
        return;
    for (uint64_t i = hub->oldest; i < hub->published; i++)
        free((char *)(uintptr_t)hub->ring[i % HUB_RING].json);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

static bool matches(const struct hub_filter *filter, const struct hub_event *event)
{
    return (filter->task_id == 0 || filter->task_id == event->task_id) &&
           (filter->user_id[0] == '\0' || strcmp(filter->user_id, event->user_id) == 0);
}

/* event NULL: everybody. */
static void wake_locked(struct hub *hub, const struct hub_event *event) RL_REQUIRES(hub->lock)
{
    for (struct waiter *w = hub->waiters; w; w = w->next) {
        if (!w->woken && (!event || w->any || matches(&w->filter, event))) {
            w->woken = true;
            pthread_cond_signal(&w->cond);
        }
    }
}

static void drop_ring_locked(struct hub *hub, uint64_t upto) RL_REQUIRES(hub->lock)
{
    for (; hub->oldest < upto; hub->oldest++) {
        struct hub_event *slot = &hub->ring[hub->oldest % HUB_RING];
        hub->ring_after = slot->seq;
        free((char *)(uintptr_t)slot->json);
        slot->json = NULL;
    }
}

void hub_publish(struct hub *hub, const struct hub_event *event)
{
    char *copy = rl_strdup(event->json);
    pthread_mutex_lock(&hub->lock);
    if (copy) {
        if (hub->published - hub->oldest == HUB_RING)
            drop_ring_locked(hub, hub->oldest + 1);
        struct hub_event *slot = &hub->ring[hub->published % HUB_RING];
        *slot = *event;
        slot->json = copy;
        hub->published++;
    } else {
        drop_ring_locked(hub, hub->published);
        hub->ring_after = event->seq;
    }
    hub->last_seq = event->seq;
    hub->tick++;
    wake_locked(hub, event);
    pthread_mutex_unlock(&hub->lock);
}

void hub_ring(struct hub *hub)
{
    pthread_mutex_lock(&hub->lock);
    hub->tick++;
    wake_locked(hub, NULL);
    pthread_mutex_unlock(&hub->lock);
}

void hub_wake(struct hub *hub, const atomic_bool *flag)
{
    pthread_mutex_lock(&hub->lock);
    for (struct waiter *w = hub->waiters; w; w = w->next)
        if (w->filter.flag == flag)
            pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&hub->lock);
}

uint64_t hub_tick(struct hub *hub)
{
    pthread_mutex_lock(&hub->lock);
    uint64_t tick = hub->tick;
    pthread_mutex_unlock(&hub->lock);
    return tick;
}

/* Looked at under the lock, and set before hub_wake takes it: no wake is lost. */
static bool flagged_locked(const struct waiter *w)
{
    return w->filter.flag && atomic_load(w->filter.flag);
}

uint64_t hub_wait(struct hub *hub, const struct hub_filter *filter, uint64_t tick, int64_t wait_ms)
{
    struct waiter me = {.any = !filter};
    if (filter)
        me.filter = *filter;
    struct timespec until = rl_deadline(CLOCK_MONOTONIC, wait_ms);
    pthread_mutex_lock(&hub->lock);
    if (hub->tick == tick && wait_ms > 0 && !flagged_locked(&me)) {
        pthread_cond_init(&me.cond, NULL);
        me.next = hub->waiters;
        if (me.next)
            me.next->prev = &me;
        hub->waiters = &me;
        while (!me.woken && !flagged_locked(&me) &&
               pthread_cond_clockwait(&me.cond, &hub->lock, CLOCK_MONOTONIC, &until) == 0)
            ;
        if (me.prev)
            me.prev->next = me.next;
        else
            hub->waiters = me.next;
        if (me.next)
            me.next->prev = me.prev;
        pthread_cond_destroy(&me.cond);
    }
    tick = hub->tick;
    pthread_mutex_unlock(&hub->lock);
    return tick;
}

int64_t hub_last_seq(struct hub *hub)
{
    pthread_mutex_lock(&hub->lock);
    int64_t seq = hub->last_seq;
    pthread_mutex_unlock(&hub->lock);
    return seq;
}

/* Index of the first kept event with seq > after. */
static uint64_t find_locked(const struct hub *hub, int64_t after)
{
    uint64_t low = hub->oldest, high = hub->published;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (hub->ring[mid % HUB_RING].seq > after)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

bool hub_read(struct hub *hub, const struct hub_filter *filter, int64_t after,
              struct hub_event *events, size_t room, size_t *ret_count, int64_t *ret_last)
{
    size_t n = 0;
    pthread_mutex_lock(&hub->lock);
    bool reaches = after >= hub->ring_after;
    int64_t last = after;
    for (uint64_t i = find_locked(hub, after); reaches && i < hub->published && n < room; i++) {
        const struct hub_event *slot = &hub->ring[i % HUB_RING];
        if (!filter || matches(filter, slot)) {
            events[n] = *slot;
            events[n].json = rl_strdup(slot->json);
            if (!events[n].json)
                break; /* complete up to the event before */
            n++;
        }
        last = slot->seq;
    }
    pthread_mutex_unlock(&hub->lock);
    *ret_count = n;
    *ret_last = last;
    return reaches;
}
