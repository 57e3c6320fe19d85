/* The outbox: delivers callback duties as signed webhooks, records every attempt, retries, gives up
 * into the dead letter. One thread; woken by the doorbell. */
#ifndef RL_OUTBOX_OUTBOX_H
#define RL_OUTBOX_OUTBOX_H

#include "base/rl.h"

struct caller;
struct page_query;
struct rl_buf;
struct tasks;
struct outbox;

/* own_port: reeld's listening port, never called back; 0 = not known yet. */
enum rl_rc outbox_start(struct tasks *tasks, int own_port, struct outbox **ret_outbox,
                        struct rl_err *err) RL_NODISCARD;
/* Stops taking new duties; deliveries under way are given up to wait_ms. NULL allowed. */
void outbox_stop(struct outbox *outbox, int64_t wait_ms);
/* The port that reeld listens on after all. Any thread. */
void outbox_own_port(struct outbox *outbox, int own_port);
/* ms since the thread last went round; for health. */
int64_t outbox_stalled_ms(struct outbox *outbox);
/* Figures. pending: duties not done, to 100,000; in_flight: under way or not recorded yet;
 * breakers: hosts that are left alone after failures, and those that one duty may try, a second ago
 * at most.
 */
struct outbox_stats {
    int64_t pending, in_flight, stalled_ms;
    int64_t breakers_open, breakers_half_open;
};
enum rl_rc outbox_stats(struct outbox *outbox, struct outbox_stats *ret_stats, struct rl_err *err)
    RL_NODISCARD;

/* ---- registered endpoints (endpoint.c) ----
 * Each appends an endpoint: {endpoint_id, user_id, url, events: [...] | null (all), state:
 * "ENABLED" | "DISABLED" | "PARKED", description, created_at, updated_at, old_secret_until, stats:
 * {pending (counted to 10,000), succeeded, failed, last_success_at, last_error}}; create and rotate
 * add `secret`, nothing else ever shows it. A user's endpoints are its own; the owner sees all.
 * errors: RL_NOT_FOUND; RL_MALFORMED_JSON; RL_INVALID_FIELD naming the field. Any thread but the
 * writer's. */

/* body: {url, events?, secret?, description?}. RL_CONFLICT: callback.endpoints are there already.
 */
enum rl_rc endpoint_create(struct tasks *tasks, const struct caller *caller, const char *body,
                           size_t len, struct rl_buf *out, struct rl_err *err) RL_NODISCARD;
enum rl_rc endpoint_get(struct tasks *tasks, const struct caller *caller, int64_t endpoint_id,
                        struct rl_buf *out, struct rl_err *err) RL_NODISCARD;
/* {"data": [...], "next": "…" | null}; of the page's fields, statuses means nothing here. */
enum rl_rc endpoint_list(struct tasks *tasks, const struct caller *caller,
                         const struct page_query *page, struct rl_buf *out, struct rl_err *err)
    RL_NODISCARD;
/* body: any of {url, events, description}; null means all events, no description. What is queued
 * goes to the new url. */
enum rl_rc endpoint_update(struct tasks *tasks, const struct caller *caller, int64_t endpoint_id,
                           const char *body, size_t len, struct rl_buf *out, struct rl_err *err)
    RL_NODISCARD;
/* What is queued for it ends as FAILED, "endpoint deleted". */
enum rl_rc endpoint_delete(struct tasks *tasks, const struct caller *caller, int64_t endpoint_id,
                           struct rl_err *err) RL_NODISCARD;
/* body: empty, or {secret?, grace_s?}. The former secret signs, too, for grace_s (default
 * callback.rotation_grace_s, at most 7 days). */
enum rl_rc endpoint_rotate(struct tasks *tasks, const struct caller *caller, int64_t endpoint_id,
                           const char *body, size_t len, struct rl_buf *out, struct rl_err *err)
    RL_NODISCARD;
/* Enabled: what waited is sent (also after a 410 had parked it). Disabled: what is queued waits and
 * spends no tries, and nothing new is queued. */
enum rl_rc endpoint_enable(struct tasks *tasks, const struct caller *caller, int64_t endpoint_id,
                           bool enable, struct rl_buf *out, struct rl_err *err) RL_NODISCARD;
/* Queue one signed `endpoint.test` event, whatever the state; tried once. Appends the delivery. */
enum rl_rc endpoint_test(struct tasks *tasks, const struct caller *caller, int64_t endpoint_id,
                         struct rl_buf *out, struct rl_err *err) RL_NODISCARD;

/* ---- deliveries (deliveries.c) ----
 * A delivery is one event for one receiver: {delivery_id, webhook_id, endpoint_id (null: the task's
 * callback_url), task_id, event_type, host ("scheme://host:port", never the whole URL), status,
 * held, tries, max_tries, next_at, created_at, finished_at, last_error}. */
enum delivery_status { DELIVERY_PENDING, DELIVERY_SUCCEEDED, DELIVERY_FAILED };
bool delivery_status_parse(const char *text, size_t len, enum delivery_status *ret_status);

/* page->statuses: mask of 1u << enum delivery_status, 0 = any; FAILED is the dead letter.
 * endpoint_id: 0 = callback_urls, -1 = any. */
enum rl_rc delivery_list(struct tasks *tasks, const struct caller *caller, int64_t endpoint_id,
                         const struct page_query *page, struct rl_buf *out, struct rl_err *err)
    RL_NODISCARD;
/* Every attempt for a task: {delivery_id, webhook_id, endpoint_id, host, status (of the delivery),
 * n, timestamp, http_status, error, duration_ms, ip, response_excerpt}. errors: as task_get. */
enum rl_rc delivery_attempts(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                             const struct page_query *page, struct rl_buf *out, struct rl_err *err)
    RL_NODISCARD;
/* Send again: the same webhook-id and body, a fresh timestamp and budget; the attempts so far stay.
 * One that is PENDING becomes due at once instead. Appends the delivery. RL_CONFLICT: its endpoint
 * was deleted. */
enum rl_rc delivery_resend(struct tasks *tasks, const struct caller *caller, int64_t delivery_id,
                           struct rl_buf *out, struct rl_err *err) RL_NODISCARD;
/* All FAILED ones of the caller, by body {endpoint_id?, from?, to?} (times of the event, at least
 * one of the three): {"resent": n, "more": not all were looked
 * at, the same again goes on}. Fails only when nothing was sent again. */
enum rl_rc delivery_resend_failed(struct tasks *tasks, const struct caller *caller,
                                  const char *body, size_t len, struct rl_buf *out,
                                  struct rl_err *err) RL_NODISCARD;

#endif
