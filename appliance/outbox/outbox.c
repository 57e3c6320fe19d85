/* The outbox thread: looks for due duties, keeps their POSTs moving, records what came of them.
 * Everything but start, stop and stalled runs on that one thread; the atomics below are all it
 * shares. Invariants: a duty is under way at most once in this process; it is not sent again before
 * the result of its last attempt is in the database; one host never has more than callback.per_host
 * under way and the whole outbox never more than callback.in_flight, unrecorded results included.
 *
 * Two things can wake the thread: the doorbell (a duty was committed) and the network. Idle, it
 * waits at the doorbell, which answers at once. While transfers are active it waits in the network
 * in slices of SLICE_MS and looks at the doorbell's tick (an integer, no query) between them: a new
 * duty then starts at most SLICE_MS late, without a second thread or a file descriptor in the hub.
 */
#include "outbox/outbox.h"

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "events/events.h"
#include "net/net.h"
#include "net/policy.h"
#include "outbox/parts.h"
#include "store/store.h"
#include "task/task.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define SLICE_MS       5
#define IDLE_MS        1000  /* the thread shows that it lives at least so often */
#define LOOK_MS        30000 /* looks at least so often: a suspend stops timers, not next_at */
#define TIMER_FLOOR_MS 5     /* no spinning when a row is not quite due at its time */
#define PAUSE_MS       200   /* after a failed read, or when memory is short */
#define RECORD_MIN_MS  50    /* first wait after a failed write; doubles */
#define RECORD_MAX_MS  5000
#define SWEEP_MAX_MS   60000 /* between two looks for duties whose time is over */
#define SWEEP_MIN_MS   100
#define PENDING_MOST   100000 /* counting further costs more than the number is worth */

struct outbox {
    struct tasks *tasks; /* borrowed, like store and hub */
    struct store *store;
    struct hub *hub;
    struct outbox_post post;
    struct outbox_breakers breakers; /* the thread's own */
    pthread_t thread;
    _Atomic bool stopping;
    _Atomic int64_t stop_at;   /* CLOCK_MONOTONIC ms, set before `stopping` */
    _Atomic int64_t round_at;  /* CLOCK_MONOTONIC ms of the last round */
    _Atomic int64_t in_flight; /* slots taken after the last round */
    _Atomic int64_t breakers_open, breakers_half_open; /* then, too */

    /* the thread's own; times are CLOCK_MONOTONIC ms */
    struct outbox_slots slots;
    struct outbox_slot **done; /* owned, [slots.n]: scratch for recording */
    int64_t *ids;              /* owned, [slots.n]: scratch for a page */
    struct outbox_walk walk;
    bool look;        /* something may have become due since the last lap began */
    uint64_t tick;    /* of the doorbell, when it was last looked at */
    int64_t timer_at; /* a row becomes due */
    int64_t pause_at; /* do not read before */
    int64_t sweep_at; /* look for duties whose time is over */
    int64_t sweep_ms;
    int64_t record_at; /* do not write before */
    int64_t record_wait_ms;
    bool singly; /* the last batch failed: write results one at a time, so that one cannot hold all
                  */
};

static void log_recorded(const struct outbox_result *r)
{
    enum rl_log_level level = strcmp(r->status, "FAILED") == 0 ? RL_LOG_WARN : RL_LOG_INFO;

    rl_log(level, "callback_sent",
           "task_id=%" PRId64 " status=%s webhook_id=%s endpoint_id=%" PRId64
           " http_status=%d try=%" PRId64 " duration_ms=%" PRId64 " code=%s",
           r->task_id, r->status, r->webhook_id, r->endpoint_id, r->http_status, r->tries,
           r->duration_ms, r->rc ? rl_code_name(r->rc) : "-");
    if (r->park)
        rl_log(RL_LOG_WARN, "endpoint_parked", "endpoint_id=%" PRId64 " http_status=410",
               r->endpoint_id);
}

/* Write n results; free their slots when they are durable. */
static bool record_some(struct outbox *outbox, struct outbox_slot **done, size_t n)
{
    struct rl_err err = {0};

    if (outbox_record(outbox->tasks, done, n, &err)) {
        rl_log(RL_LOG_WARN, "callback_not_recorded", "code=%s results=%zu", rl_code_name(err.code),
               n);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        log_recorded(&done[i]->result);
        outbox_slot_clear(done[i]);
    }
    outbox->look = true;
    return true;
}

static void record(struct outbox *outbox, int64_t now)
{
    size_t n = 0;
    bool ok = true;

    for (size_t i = 0; i < outbox->slots.n; i++)
        if (outbox->slots.slot[i].state == OUTBOX_DONE)
            outbox->done[n++] = &outbox->slots.slot[i];
    if (!n || now < outbox->record_at)
        return;
    if (outbox->singly) {
        for (size_t i = 0; i < n; i++)
            ok = record_some(outbox, &outbox->done[i], 1) && ok;
    } else {
        ok = record_some(outbox, outbox->done, n);
    }
    outbox->singly = !ok;
    if (ok) {
        outbox->record_at = 0;
        outbox->record_wait_ms = RECORD_MIN_MS;
        return;
    }
    outbox->record_at = rl_mono_ms() + outbox->record_wait_ms;
    outbox->record_wait_ms =
        outbox->record_wait_ms * 2 < RECORD_MAX_MS ? outbox->record_wait_ms * 2 : RECORD_MAX_MS;
}

static void pause_reading(struct outbox *outbox, const struct rl_err *err)
{
    char why[128];

    outbox->pause_at = rl_mono_ms() + PAUSE_MS;
    outbox->look = true;
    rl_log(RL_LOG_WARN, "outbox_paused", "code=%s reason=%s", rl_code_name(err->code),
           rl_log_quote(err->reason, why, sizeof why));
}

static enum rl_rc start_one(struct outbox *outbox, int64_t outbox_id, struct rl_err *err)
{
    AUTO_DUTY struct outbox_duty duty = {0};
    struct outbox_slot *slot = outbox_slots_take(&outbox->slots);
    enum rl_rc rc = outbox_load(outbox->store, outbox_id, &duty, err);

    if (rc == RL_NOT_FOUND || !slot)
        return RL_OK;
    if (rc)
        return rc;
    return outbox_send(&outbox->post, slot, &duty, err);
}

/* One page of a lap over the hosts; starts what it finds. */
static enum rl_rc look_for_due(struct outbox *outbox, size_t room, struct rl_err *err)
{
    size_t n = 0;
    int64_t wait_ms = -1;
    enum rl_rc rc = RL_OK;

    if (!outbox->walk.active) {
        rc = outbox_timer(outbox->store, store_steady_ms(outbox->store), &wait_ms, err);
        if (rc)
            return rc;
        if (wait_ms < 0 || wait_ms > LOOK_MS)
            wait_ms = LOOK_MS;
        if (wait_ms < TIMER_FLOOR_MS)
            wait_ms = TIMER_FLOOR_MS;
        int64_t now = rl_mono_ms(), half_open = outbox_breaker_next(&outbox->breakers, now);
        outbox->timer_at = now + wait_ms < half_open ? now + wait_ms : half_open;
        outbox->walk.active = true;
        outbox->look = false;
    }
    rc = outbox_walk_page(outbox->store, &outbox->walk, &outbox->slots,
                          store_steady_ms(outbox->store), outbox->ids, room, &n, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++) { /* one bad row must not take its neighbours' turn */
        enum rl_rc one = start_one(outbox, outbox->ids[i], err);
        rc = one ? one : rc;
    }
    return rc;
}

/* Duties that waited too long, for whatever reason, end in the dead letter. The first look comes
 * sweep_ms after the start, so that after a long stop what is due gets its try. */
static void sweep(struct outbox *outbox)
{
    struct rl_err err = {0};
    size_t n = 0;

    outbox->sweep_at = rl_mono_ms() + outbox->sweep_ms;
    if (outbox_expire(outbox->tasks, &outbox->slots, &n, &err))
        rl_log(RL_LOG_WARN, "callbacks_not_expired", "code=%s", rl_code_name(err.code));
    else if (n) {
        outbox->sweep_at = 0; /* there may be more */
        rl_log(RL_LOG_WARN, "callbacks_expired", "count=%zu", n);
    }
}

/* Until when there is nothing to do unless something wakes the thread. */
static int64_t next_work(const struct outbox *outbox, int64_t now, size_t free_slots, bool stopping)
{
    int64_t at = now + IDLE_MS;

    if (stopping) {
        int64_t stop_at = atomic_load(&outbox->stop_at);
        at = stop_at < at ? stop_at : at;
    } else if (free_slots) {
        int64_t due = outbox->look || outbox->walk.active ? now : outbox->timer_at;
        due = due < outbox->pause_at ? outbox->pause_at : due;
        at = due < at ? due : at;
    }
    if (outbox_slots_count(&outbox->slots, OUTBOX_DONE) && outbox->record_at < at)
        at = outbox->record_at;
    return at;
}

static void wait_for_work(struct outbox *outbox, size_t free_slots, bool stopping)
{
    int64_t now = rl_mono_ms();
    int64_t wait_ms = next_work(outbox, now, free_slots, stopping) - now;

    wait_ms = wait_ms > 0 ? wait_ms : 0;
    if (net_multi_active(outbox->post.multi))
        net_multi_poll(outbox->post.multi, wait_ms < SLICE_MS ? wait_ms : SLICE_MS);
    else if (wait_ms)
        (void)hub_wait(outbox->hub, NULL, outbox->tick,
                       wait_ms); /* the tick is read by the round */
}

/* What others may know. */
static void show(struct outbox *outbox, int64_t now, size_t free_slots)
{
    int64_t open, half_open;

    outbox_breaker_count(&outbox->breakers, now, &open, &half_open);
    atomic_store(&outbox->breakers_open, open);
    atomic_store(&outbox->breakers_half_open, half_open);
    atomic_store(&outbox->in_flight, (int64_t)(outbox->slots.n - free_slots));
}

/* One round. false: the thread is to end. */
static bool go_round(struct outbox *outbox)
{
    struct rl_err err = {0};
    int64_t now = rl_mono_ms();
    uint64_t tick = hub_tick(outbox->hub); /* before looking at the database */
    bool stopping = atomic_load(&outbox->stopping);

    atomic_store(&outbox->round_at, now);
    if (tick != outbox->tick || now >= outbox->timer_at)
        outbox->look = true;
    outbox->tick = tick;
    record(outbox, now);
    if (!stopping && now >= outbox->sweep_at)
        sweep(outbox);

    size_t free_slots = outbox_slots_count(&outbox->slots, OUTBOX_FREE);
    if (stopping && (free_slots == outbox->slots.n || now >= atomic_load(&outbox->stop_at)))
        return false;
    if (!stopping && free_slots && (outbox->look || outbox->walk.active) &&
        now >= outbox->pause_at) {
        if (look_for_due(outbox, free_slots, &err))
            pause_reading(outbox, &err);
        free_slots = outbox_slots_count(&outbox->slots, OUTBOX_FREE);
    }
    show(outbox, now, free_slots);
    wait_for_work(outbox, free_slots, stopping);
    return true;
}

static void *outbox_main(void *arg)
{
    struct outbox *outbox = arg;

    while (go_round(outbox))
        ;
    return NULL;
}

static void outbox_free(struct outbox *outbox)
{
    if (!outbox)
        return;
    net_multi_free(outbox->post.multi); /* first: transfers point at slots */
    for (size_t i = 0; outbox->slots.slot && i < outbox->slots.n; i++)
        outbox_slot_clear(&outbox->slots.slot[i]);
    free(outbox->slots.slot);
    free(outbox->done);
    free(outbox->ids);
    free(outbox->walk.cursor);
    outbox_breakers_clear(&outbox->breakers);
    free(outbox);
}

static struct outbox *outbox_new(struct tasks *tasks, int own_port)
{
    const struct config *cfg = tasks_config(tasks);
    struct outbox *outbox = calloc(1, sizeof *outbox);

    if (!outbox)
        return NULL;
    outbox->tasks = tasks;
    outbox->store = tasks_store(tasks);
    outbox->hub = tasks_hub(tasks);
    outbox->slots.n = (size_t)config_int(cfg, CFG_CALLBACK_IN_FLIGHT);
    outbox->slots.per_host = (size_t)config_int(cfg, CFG_CALLBACK_PER_HOST);
    outbox->slots.slot = calloc(outbox->slots.n, sizeof *outbox->slots.slot);
    outbox->done = calloc(outbox->slots.n, sizeof *outbox->done);
    outbox->ids = calloc(outbox->slots.n, sizeof *outbox->ids);
    bool breakers =
        outbox_breakers_init(&outbox->breakers, config_int(cfg, CFG_CALLBACK_BREAKER_FAILURES),
                             config_int(cfg, CFG_CALLBACK_BREAKER_MS));
    outbox->slots.breakers = &outbox->breakers;
    net_policy_set_own_port(tasks_policy(tasks), own_port);
    outbox->post = (struct outbox_post){.multi = net_multi_new(),
                                        .cfg = cfg,
                                        .policy = tasks_policy(tasks),
                                        .store = outbox->store,
                                        .breakers = &outbox->breakers};
    outbox->sweep_ms = config_int(cfg, CFG_CALLBACK_MAX_AGE_S) * 1000 / 10;
    outbox->sweep_ms = outbox->sweep_ms < SWEEP_MAX_MS ? outbox->sweep_ms : SWEEP_MAX_MS;
    outbox->sweep_ms = outbox->sweep_ms > SWEEP_MIN_MS ? outbox->sweep_ms : SWEEP_MIN_MS;
    outbox->sweep_at = rl_mono_ms() + outbox->sweep_ms;
    outbox->look = true;
    outbox->record_wait_ms = RECORD_MIN_MS;
    atomic_init(&outbox->round_at, rl_mono_ms());
    if (!breakers || !outbox->slots.slot || !outbox->done || !outbox->ids || !outbox->post.multi) {
        outbox_free(outbox);
        return NULL;
    }
    return outbox;
}

enum rl_rc outbox_start(struct tasks *tasks, int own_port, struct outbox **ret_outbox,
                        struct rl_err *err)
{
    struct outbox *outbox = outbox_new(tasks, own_port);

    if (!outbox)
        return rl_fail(err, RL_NO_MEMORY, "no memory for the outbox");
    if (pthread_create(&outbox->thread, NULL, outbox_main, outbox)) {
        outbox_free(outbox);
        return rl_fail(err, RL_UNAVAILABLE, "no thread for the outbox");
    }
    *ret_outbox = outbox;
    return RL_OK;
}

void outbox_stop(struct outbox *outbox, int64_t wait_ms)
{
    if (!outbox)
        return;
    atomic_store(&outbox->stop_at, rl_mono_ms() + wait_ms);
    atomic_store(&outbox->stopping, true);
    hub_ring(outbox->hub);
    net_multi_wake(outbox->post.multi);
    (void)pthread_join(outbox->thread, NULL); /* fails only for a thread that is not ours */
    outbox_free(outbox);
}

void outbox_own_port(struct outbox *outbox, int own_port)
{
    net_policy_set_own_port(tasks_policy(outbox->tasks), own_port);
}

int64_t outbox_stalled_ms(struct outbox *outbox)
{
    return rl_mono_ms() - atomic_load(&outbox->round_at);
}

static enum rl_rc count_pending(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_OUTBOX_PENDING);

    store_bind_int(stmt, ":limit", PENDING_MOST);
    return store_int(stmt, 0, arg, err);
}

enum rl_rc outbox_stats(struct outbox *outbox, struct outbox_stats *ret_stats, struct rl_err *err)
{
    struct outbox_stats stats = {.in_flight = atomic_load(&outbox->in_flight),
                                 .breakers_open = atomic_load(&outbox->breakers_open),
                                 .breakers_half_open = atomic_load(&outbox->breakers_half_open),
                                 .stalled_ms = outbox_stalled_ms(outbox)};
    enum rl_rc rc = store_read(outbox->store, count_pending, &stats.pending, err);

    if (rc == RL_OK)
        *ret_stats = stats;
    return rc;
}
