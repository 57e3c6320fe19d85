/* What the files of the outbox share. Everything here runs on the outbox thread, or is pure. */
#ifndef RL_OUTBOX_PARTS_H
#define RL_OUTBOX_PARTS_H

#include "base/rl.h"

struct config;
struct net_multi;
struct net_response;
struct sockaddr;
struct store;
struct tasks;

/* ---- dial.c ---- */
/* May a callback be sent to this binary address? Never: reeld's own port on any address of this
 * host, link-local (cloud metadata), unspecified, multicast and broadcast addresses. IPv4 inside
 * IPv6 is judged as the IPv4 address. Any thread. */
bool outbox_dial_allowed(const struct sockaddr *addr, int own_port);

/* ---- retry.c ---- */
#define OUTBOX_JITTER_MAX 200000 /* millionths of the wait: 20 % */
/* ms to wait after try number `tries` (1-based) failed: wait_ms * 3^(tries-1), at most max_wait_ms,
 * plus `jitter` millionths of it. retry_after_ms (-1 = none) is honoured between that and
 * max(2 * the wait, 60 s). Pure. */
int64_t outbox_retry_wait(int64_t wait_ms, int64_t max_wait_ms, int64_t tries,
                          int64_t retry_after_ms, uint32_t jitter);

/* ---- slots.c: what is under way, and whose result is not recorded yet ---- */
enum outbox_slot_state {
    OUTBOX_FREE,
    OUTBOX_FLYING, /* the request is on its way */
    OUTBOX_DONE    /* the result is known but not in the database: the row must not be sent again */
};

/* The outcome of one attempt, as it goes into the rows. */
struct outbox_result {
    int64_t outbox_id, task_id, round;
    int64_t tries;      /* this one included */
    const char *status; /* of the duty from now on: "PENDING", "SUCCEEDED", "FAILED"; static */
    int64_t wait_ms;    /* until the next try; 0 when there is none */
    int64_t timestamp;  /* ms, start of the attempt */
    int64_t duration_ms;
    int http_status; /* 0 = no answer */
    enum rl_rc rc;   /* why there was no answer */
    char webhook_id[64];
    char error[320]; /* "" on success */
    char ip[64];
    char *response; /* owned */
    size_t response_len;
};

struct outbox_slot {
    enum outbox_slot_state state;
    char *host; /* owned; "scheme://host:port" */
    int64_t max_tries;
    const struct outbox_post *post; /* borrowed */
    struct outbox_result result;
};
struct outbox_slots {
    struct outbox_slot *slot; /* owned */
    size_t n;
    size_t per_host; /* most that one host may occupy */
};
size_t outbox_slots_count(const struct outbox_slots *slots, enum outbox_slot_state state);
size_t outbox_slots_of_host(const struct outbox_slots *slots, const char *host);
bool outbox_slots_hold(const struct outbox_slots *slots, int64_t outbox_id);
struct outbox_slot *outbox_slots_take(struct outbox_slots *slots); /* NULL when all are taken */
void outbox_slot_clear(struct outbox_slot *slot);                  /* frees what it owns: FREE */

/* ---- due.c: reading the table ---- */
/* A duty as it is in the table; owns its strings. */
struct outbox_duty {
    int64_t outbox_id, task_id, round, tries, max_tries;
    char *webhook_id, *url, *host, *secret;
    void *body;
    size_t body_len;
};
void outbox_duty_clear(struct outbox_duty *duty); /* wipes the secret */
#define AUTO_DUTY __attribute__((cleanup(outbox_duty_clear)))
/* RL_NOT_FOUND when the row is no longer PENDING. */
enum rl_rc outbox_load(struct store *store, int64_t outbox_id, struct outbox_duty *ret_duty,
                       struct rl_err *err) RL_NODISCARD;

/* One lap over all hosts that wait for anything, in pages, so that no read is long. */
struct outbox_walk {
    bool active;
    char *cursor; /* owned; the last host that had its turn; NULL = none yet */
};
/* The next page: ids of due rows into ids[room], oldest first per host, none that a slot holds, no
 * more per host than it may still have. Ends the lap (active = false) at the last host. */
enum rl_rc outbox_walk_page(struct store *store, struct outbox_walk *walk,
                            const struct outbox_slots *slots, int64_t now, int64_t *ids,
                            size_t room, size_t *ret_count, struct rl_err *err) RL_NODISCARD;
/* ret_wait_ms: until the next row becomes due, -1 = none. now: the store's steady clock. */
enum rl_rc outbox_timer(struct store *store, int64_t now, int64_t *ret_wait_ms, struct rl_err *err)
    RL_NODISCARD;

/* ---- send.c ---- */
struct outbox_post {
    struct net_multi *multi;
    const struct config *cfg;
    int own_port;
};
/* Start the POST of a duty in a FREE slot: FLYING on RL_OK. A duty that can never be sent (bad
 * secret or URL) is DONE at once, as FAILED, and also RL_OK. RL_NO_MEMORY leaves the slot FREE. */
enum rl_rc outbox_send(const struct outbox_post *post, struct outbox_slot *slot,
                       const struct outbox_duty *duty, struct rl_err *err) RL_NODISCARD;
/* Fill the slot's result from an answer: DONE. */
void outbox_answered(struct outbox_slot *slot, const struct net_response *response);

/* ---- record.c ---- */
/* Deliveries, duties and the tasks' callback_status of these results, in one transaction. A duty
 * that is no longer PENDING is passed over. */
enum rl_rc outbox_record(struct tasks *tasks, struct outbox_slot *const *done, size_t n,
                         struct rl_err *err) RL_NODISCARD;

#endif
