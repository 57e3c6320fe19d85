/* What the files of the outbox share. Everything here runs on the outbox thread, or is pure. */
#ifndef RL_OUTBOX_PARTS_H
#define RL_OUTBOX_PARTS_H

#include "base/rl.h"

struct config;
struct net_multi;
struct net_policy;
struct net_response;
struct rl_buf;
struct rl_json;
struct store;
struct store_conn;
struct tasks;

/* ---- breaker.c: hosts that fail are left alone for a while ---- */
/* One host that failed lately. */
struct outbox_breaker {
    char *host;         /* owned; NULL = free place */
    int64_t failures;   /* in a row */
    int64_t open_ms;    /* how long it is open this time; 0 = closed */
    int64_t open_until; /* after that one duty may try the host */
};
#define OUTBOX_BREAKERS 1024 /* failing hosts that are remembered at once */
/* Times are of one monotonic clock in ms. Outbox thread only; pure but for memory. */
struct outbox_breakers {
    struct outbox_breaker *at; /* owned, [OUTBOX_BREAKERS] */
    size_t n;                  /* places used, from the first */
    int64_t trip;              /* failures in a row that open it; 0 = never */
    int64_t first_ms;          /* the first wait; doubles up to 10 times this */
};
bool outbox_breakers_init(struct outbox_breakers *breakers, int64_t trip, int64_t first_ms);
void outbox_breakers_clear(struct outbox_breakers *breakers);
/* How many duties of the host may be under way: per_host, 0 while open, 1 when half open. */
size_t outbox_breaker_room(const struct outbox_breakers *breakers, const char *host,
                           size_t per_host, int64_t now);
/* An attempt at the host ended. failed: a connect error, time-out or 5xx. */
void outbox_breaker_note(struct outbox_breakers *breakers, const char *host, bool failed,
                         int64_t now);
/* When the next open one becomes half open; INT64_MAX = none is open. */
int64_t outbox_breaker_next(const struct outbox_breakers *breakers, int64_t now);
/* Hosts that are left alone now, and hosts that one duty may try. */
void outbox_breaker_count(const struct outbox_breakers *breakers, int64_t now, int64_t *ret_open,
                          int64_t *ret_half_open);

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
    int64_t endpoint_id; /* 0 = the task's own callback_url */
    int64_t tries;       /* this one included */
    int spent;           /* 1, or 0 when this attempt is not charged */
    bool park;           /* the endpoint said 410: it and what is queued for it wait */
    const char *status;  /* of the duty from now on: "PENDING", "SUCCEEDED", "FAILED"; static */
    int64_t wait_ms;     /* until the next try; 0 when there is none */
    int64_t timestamp;   /* ms, start of the attempt */
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
    int64_t expires_at;             /* the store's steady clock */
    const struct outbox_post *post; /* borrowed */
    struct outbox_result result;
};
struct outbox_slots {
    struct outbox_slot *slot; /* owned */
    size_t n;
    size_t per_host;                        /* most that one host may occupy */
    const struct outbox_breakers *breakers; /* borrowed */
};
size_t outbox_slots_count(const struct outbox_slots *slots, enum outbox_slot_state state);
size_t outbox_slots_of_host(const struct outbox_slots *slots, const char *host);
bool outbox_slots_hold(const struct outbox_slots *slots, int64_t outbox_id);
struct outbox_slot *outbox_slots_take(struct outbox_slots *slots); /* NULL when all are taken */
void outbox_slot_clear(struct outbox_slot *slot);                  /* frees what it owns: FREE */

/* ---- due.c: reading the table ---- */
/* A duty as it is in the table; owns its strings. */
struct outbox_duty {
    int64_t outbox_id, task_id, round, endpoint_id, tries, max_tries, expires_at;
    char *webhook_id, *url, *host, *secret;
    char *old_secret; /* signs, too; NULL = there is none */
    void *body;
    size_t body_len;
};
void outbox_duty_clear(struct outbox_duty *duty); /* wipes the secrets */
#define AUTO_DUTY __attribute__((cleanup(outbox_duty_clear)))
/* RL_NOT_FOUND when the row is no longer PENDING, or held. */
enum rl_rc outbox_load(struct store *store, int64_t outbox_id, struct outbox_duty *ret_duty,
                       struct rl_err *err) RL_NODISCARD;

/* One lap over all hosts that wait for anything, in pages, so that no read is long. */
struct outbox_walk {
    bool active;
    char *cursor; /* owned; the last host that had its turn; NULL = none yet */
};
/* The next page: ids of due rows into ids[room], oldest first per host, none that a slot holds, no
 * more per host than it may still have (its breaker has a say). Ends the lap (active = false) at
 * the last host. now: the store's steady clock. */
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
    const struct net_policy *policy;
    struct store *store; /* for its clock */
    struct outbox_breakers *breakers;
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
/* Give up at most 256 duties whose time is over and that no slot holds: FAILED, without an attempt.
 * ret_count: how many. */
enum rl_rc outbox_expire(struct tasks *tasks, const struct outbox_slots *slots, size_t *ret_count,
                         struct rl_err *err) RL_NODISCARD;

/* ---- deliveries.c, for endpoint.c ---- */
/* Append the delivery as JSON, inside a transaction. user_id: NULL = anybody's. RL_NOT_FOUND. */
enum rl_rc outbox_show(struct store *store, struct store_conn *conn, const char *user_id,
                       int64_t outbox_id, struct rl_buf *out, struct rl_err *err) RL_NODISCARD;

/* ---- endpoint_body.c: what a client may say about an endpoint ---- */
struct outbox_wish {
    struct rl_json *root; /* owned; the texts below are borrowed from it */
    bool has_url, has_events, has_description;
    char *url;               /* owned; normalised */
    char host[320];          /* scheme://host:port */
    char events[64];         /* "" = all */
    const char *description; /* NULL = none */
    const char *secret;      /* NULL = make one */
    int64_t grace_s;         /* -1 = not said */
};
void outbox_wish_clear(struct outbox_wish *wish);
#define AUTO_WISH __attribute__((cleanup(outbox_wish_clear)))
/* fields: the names that are taken, NULL-terminated; any other is RL_INVALID_FIELD, like a wrong
 * value. policy judges the URL. len 0 = {}. */
enum rl_rc outbox_wish_parse(const struct net_policy *policy, const char *const *fields,
                             const char *body, size_t len, struct outbox_wish *ret_wish,
                             struct rl_err *err) RL_NODISCARD;

#endif
