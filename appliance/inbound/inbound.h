/* Inbound: signed status events of outside services. A source is one such service, registered by an
 * owner; its events are taken in once, durably, and wait there for their consumer. Any thread but
 * the writer's. */
#ifndef RL_INBOUND_INBOUND_H
#define RL_INBOUND_INBOUND_H

#include "base/rl.h"

struct page_query;
struct rl_buf;
struct rl_webhook;
struct tasks;

#define INBOUND_SOURCE_TEXT 64 /* room for a source's name */
/* 1..63 of [a-z0-9_-], the first a letter or a digit. */
bool inbound_source_valid(const char *source);

/* ---- sources, for their owner (source.c) ----
 * Each appends a source: {source, url, allow: [...], per_minute | null (hook.per_minute), enabled,
 * old_secret_until, created_at, updated_at, stats: {received, waiting (counted to 100,000),
 * last_event_at}}; create and rotate add `secret`, nothing else ever shows it. RL_NOT_FOUND: no
 * such source. */

/* What to do to a source; texts borrowed. */
struct inbound_wish {
    const char *secret;  /* create, rotate: NULL = make one; else rl_webhook_secret_check'ed */
    const char *allow;   /* checked addresses and CIDR ranges, comma separated, "" = any; NULL = as
                            it is (create: any) */
    int64_t per_minute;  /* 0 = no limit, -1 = hook.per_minute */
    bool has_per_minute; /* else as it is (create: -1) */
    bool enabled;
    bool has_enabled; /* else as it is (create: true) */
    int64_t grace_s;  /* rotate: how long the former secret verifies, too */
};
/* RL_INVALID_FIELD: not a name; RL_CONFLICT: it is taken, or hook.sources are there already. */
enum rl_rc inbound_source_create(struct tasks *tasks, const char *source,
                                 const struct inbound_wish *wish, struct rl_buf *out,
                                 struct rl_err *err) RL_NODISCARD;
enum rl_rc inbound_source_get(struct tasks *tasks, const char *source, struct rl_buf *out,
                              struct rl_err *err) RL_NODISCARD;
/* {"data": [...], "next": null}, by name. */
enum rl_rc inbound_source_list(struct tasks *tasks, struct rl_buf *out, struct rl_err *err)
    RL_NODISCARD;
enum rl_rc inbound_source_update(struct tasks *tasks, const char *source,
                                 const struct inbound_wish *wish, struct rl_buf *out,
                                 struct rl_err *err) RL_NODISCARD;
/* RL_CONFLICT: the secret before is valid still, and the wish has a grace_s. */
enum rl_rc inbound_source_rotate(struct tasks *tasks, const char *source,
                                 const struct inbound_wish *wish, struct rl_buf *out,
                                 struct rl_err *err) RL_NODISCARD;
/* With its events, handled or not. */
enum rl_rc inbound_source_delete(struct tasks *tasks, const char *source, struct rl_err *err)
    RL_NODISCARD;

/* ---- deliveries (event.c), and what their owner sees of them (events.c) ---- */

/* What a delivery is judged by; owns its texts. */
struct inbound_judge {
    int64_t hook_id; /* 0 = no such source, or it is disabled: nothing verifies */
    int64_t per_minute;
    char *allow;               /* "" = any address */
    char *secret, *old_secret; /* old_secret NULL: no rotation is under way */
};
/* RL_OK also when there is no such source. */
enum rl_rc inbound_judge_find(struct tasks *tasks, const char *source,
                              struct inbound_judge *ret_judge, struct rl_err *err) RL_NODISCARD;
void inbound_judge_clear(struct inbound_judge *judge); /* wipes the secrets */
#define AUTO_JUDGE __attribute__((cleanup(inbound_judge_clear)))
/* Is it signed by a valid secret of the source? Takes as long when there is no such source. */
bool inbound_judge_signed(const struct inbound_judge *judge, const struct rl_webhook *hook);

/* Take in a verified delivery: on RL_OK it is durable, and its consumer was rung for. ret_repeated:
 * its id was there already, and nothing was changed. errors: RL_MALFORMED_JSON, RL_INVALID_FIELD
 * (no object), RL_UNAUTHORIZED (the source is gone by now), RL_QUEUE_FULL (hook.backlog),
 * RL_DISK_FULL (store_admit: the sender is to try again), RL_UNAVAILABLE. */
enum rl_rc inbound_accept(struct tasks *tasks, const char *source, int64_t hook_id,
                          const struct rl_webhook *hook, bool *ret_repeated, struct rl_err *err)
    RL_NODISCARD;

/* The events of a source, newest first unless ascending: {"data": [{event_seq, event_id, type,
 * correlation_id, received_at, handled_at, body (text; null once handled)}], "next": "…" | null}.
 * A page ends early where its bodies are over 1 MiB. waiting: only what nobody has handled. */
enum rl_rc inbound_event_list(struct tasks *tasks, const char *source,
                              const struct page_query *page, bool waiting, struct rl_buf *out,
                              struct rl_err *err) RL_NODISCARD;
/* inbound_handled for `count` events of a source, in one transaction. ret_known[count]: false = it
 * is no event of this source. */
enum rl_rc inbound_events_handled(struct tasks *tasks, const char *source, const int64_t *seqs,
                                  size_t count, bool *ret_known, struct rl_err *err) RL_NODISCARD;

/* ---- for consumers inside: an engine whose work is done elsewhere (event.c) ----
 * At least once: an event is handed out until inbound_handled said that its effect is durable. */

/* One event; owns its texts. */
struct inbound_event {
    int64_t event_seq, received_at;
    char *event_id;
    char *type;           /* the body's `type`; NULL = none */
    char *correlation_id; /* the body's task_id, data.task_id, data.id or id, the first that is
                             there; NULL = none */
    char *body;           /* JSON object, NUL-terminated */
    size_t body_len;
};
void inbound_event_clear(struct inbound_event *event);
#define AUTO_EVENT __attribute__((cleanup(inbound_event_clear)))
/* The oldest unhandled event of a source after event_seq `after`; correlation_id NULL = about
 * anything. RL_NOT_FOUND: none is there. */
enum rl_rc inbound_next(struct tasks *tasks, const char *source, const char *correlation_id,
                        int64_t after, struct inbound_event *ret_event, struct rl_err *err)
    RL_NODISCARD;
/* The same, waiting for one at most wait_ms. An event that came in before it was asked for is found
 * at once. */
enum rl_rc inbound_wait(struct tasks *tasks, const char *source, const char *correlation_id,
                        int64_t after, int64_t wait_ms, struct inbound_event *ret_event,
                        struct rl_err *err) RL_NODISCARD;
/* Its effect is durable: it is not handed out again. Once more changes nothing. */
enum rl_rc inbound_handled(struct tasks *tasks, int64_t event_seq, struct rl_err *err) RL_NODISCARD;

#endif
