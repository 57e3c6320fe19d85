/* The rules of a task: submit, move, claim, finish, cancel, query, and its JSON faces. Everything
 * that changes a task's state goes through task_move (task/move.c). */
#ifndef RL_TASK_TASK_H
#define RL_TASK_TASK_H

#include "base/rl.h"
#include "events/events.h"
#include "task/columns.h"
#include "task/state.h"

struct config;
struct store;
struct store_conn;
struct hub;
struct engines;
struct engine_device;
struct net_policy;
struct rl_buf;
struct rl_jw;

struct tasks; /* the module's context: shared, thread-safe */

/* A task row in memory; owns its strings. */
struct task {
#define TASK_FIELD_INT(name)   int64_t name;
#define TASK_FIELD_REAL(name)  double name;
#define TASK_FIELD_TEXT(name)  char *name;
#define TASK_FIELD(type, name) TASK_FIELD_##type(name)
    TASK_COLUMNS(TASK_FIELD)
#undef TASK_FIELD
    int64_t queue_position; /* 1-based among claimable tasks; 0 = not known or not waiting */
    double units_before; /* work of the tasks before it, in speed units; < 0: its queue is paused,
                          * nobody knows for how long */
};
void task_free(struct task *task); /* NULL allowed */
static inline void task_free_ptr(struct task **task)
{
    task_free(*task);
}
#define AUTO_TASK __attribute__((cleanup(task_free_ptr)))

/* Who is asking. */
struct caller {
    char user_id[64];
    int64_t key_id; /* 0 = none */
    bool owner;     /* sees and steers everybody's tasks */
};

/* Opens the rules over an open store: takes the last ids, moves orphans of older epochs (start-up
 * sweep), makes the owner's key and callback secret on the first run (ret_first_run). Nothing may
 * be listening yet. */
enum rl_rc tasks_open(const struct config *cfg, struct store *store, struct hub *hub,
                      const struct engines *engines, struct tasks **ret_tasks, bool *ret_first_run,
                      struct rl_err *err) RL_NODISCARD;
void tasks_close(struct tasks *tasks);

/* ---- submit (submit.c) ---- */
struct submit_reply {
    struct task *task; /* returns new */
    bool replayed;     /* an existing task answered for its idempotency key */
};
/* body: the JSON text of POST /api/v1/tasks. idempotency_key: the header's value or NULL.
 * errors: RL_MALFORMED_JSON, RL_INVALID_FIELD, RL_IDEMPOTENCY_KEY_REUSED,
 * RL_TOO_MANY_PENDING_TASKS, RL_QUEUE_FULL, RL_DISK_FULL, RL_UNAVAILABLE. On RL_OK the task is
 * durable. */
enum rl_rc task_submit(struct tasks *tasks, const struct caller *caller, const char *body,
                       size_t len, const char *idempotency_key, struct submit_reply *ret_reply,
                       struct rl_err *err) RL_NODISCARD;

/* ---- query (query.c) ---- */
/* RL_NOT_FOUND for no such task or another user's; RL_TASK_EXPIRED when it was purged. Returns new.
 */
enum rl_rc task_get(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                    struct task **ret_task, struct rl_err *err) RL_NODISCARD;
/* Decimal text of exactly one positive 63-bit number without sign or leading zero. */
bool task_id_parse(const char *text, size_t len, int64_t *ret_id);

struct page_query {
    unsigned statuses; /* bit mask 1u << enum task_status; 0 = any */
    int limit;         /* 1..200 */
    int64_t after;     /* cursor: the last id (seq) of the page before; 0 = from the start */
    bool ascending;
};
/* Append {"data": [...], "next": "…" | null}. */
enum rl_rc task_list(struct tasks *tasks, const struct caller *caller,
                     const struct page_query *page, struct rl_buf *out, struct rl_err *err)
    RL_NODISCARD;
enum rl_rc task_history(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                        const struct page_query *page, struct rl_buf *out, struct rl_err *err)
    RL_NODISCARD;

/* Tasks in the dead letter: FAILED and TIMEOUT, not dismissed. */
enum rl_rc dead_list(struct tasks *tasks, const struct caller *caller,
                     const struct page_query *page, struct rl_buf *out, struct rl_err *err)
    RL_NODISCARD;

/* Path of the result (poster: its JPEG) into path[size]; RL_VIDEO_NOT_READY when there is none. */
enum rl_rc task_video_path(struct tasks *tasks, const struct task *task, bool poster, char *path,
                           size_t size, struct rl_err *err) RL_NODISCARD;
/* Append the signed address of the task's video. expires_s: unix time, 0 = as long as the file. */
void task_download_url(struct tasks *tasks, const struct task *task, int64_t expires_s,
                       struct rl_buf *out);
/* Is `sig` the signature of that address (constant time), and is it not over? */
bool task_download_signed(struct tasks *tasks, const struct task *task, int64_t expires_s,
                          const char *sig);

/* ---- JSON (json.c) ---- */
/* The task object, with live progress. */
void task_json(struct tasks *tasks, const struct task *task, struct rl_jw *w, const char *key);

/* ---- cancel (cancel.c) ---- */
enum cancel_mode { CANCEL_SOFT, CANCEL_HARD };
/* ret_task: the task afterwards (returns new); its status tells 200 (CANCELED) from 202 (stopping).
 * errors: RL_NOT_FOUND, RL_TASK_FINISHED. Idempotent. */
enum rl_rc task_cancel(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                       enum cancel_mode mode, struct task **ret_task, struct rl_err *err)
    RL_NODISCARD;

/* ---- dead letters (dead.c): the way back and the way out ---- */
/* FAILED/TIMEOUT → QUEUED, the next round. ret_task: returns new. RL_NOT_FOUND, RL_CONFLICT (not in
 * the dead letter). */
enum rl_rc dead_replay(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                       struct task **ret_task, struct rl_err *err) RL_NODISCARD;
/* Leaves the list; the task stays. */
enum rl_rc dead_dismiss(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                        struct rl_err *err) RL_NODISCARD;

/* ---- queues (queues.c) ---- */
enum queue_state { QUEUE_RUNNING, QUEUE_PAUSED, QUEUE_DRAINING };
/* RL_NOT_FOUND for a queue that nobody ever submitted to. */
enum rl_rc queue_set(struct tasks *tasks, const char *queue_name, enum queue_state state,
                     struct rl_err *err) RL_NODISCARD;
/* {"data": [{queue_name, state, depth, oldest_at, created_at}], "next": null}; depth counts to
 * 100,000, then null */
enum rl_rc queue_list(struct tasks *tasks, struct rl_buf *out, struct rl_err *err) RL_NODISCARD;

/* ---- repair (repair.c) ---- */
/* Find what is stuck among `statuses` (mask; 0 = CREATED, QUEUED and PROCESSING) and, unless
 * dry_run, act on at most `batch` tasks: {dry_run, stuck: [{task_id, status, reason, action,
 * error}], next, acted, orphan_files, status_counts}. Tasks whose run is alive are skipped; one
 * that cannot be repaired is listed with its error. after: `next` of the answer before, to go on
 * behind its tasks; NULL = begin. `next` is null when all were looked at. */
enum rl_rc task_repair(struct tasks *tasks, bool dry_run, unsigned statuses, int batch,
                       const char *after, struct rl_buf *out, struct rl_err *err) RL_NODISCARD;

/* ---- seeing (stats.c, explain.c) ---- */
/* Distribution of the time spent in each state, per engine and day (UTC), over the newest 100,000
 * history rows. */
enum rl_rc task_stats(struct tasks *tasks, struct rl_buf *out, struct rl_err *err) RL_NODISCARD;
/* Prometheus text of the module's figures. */
enum rl_rc task_metrics(struct tasks *tasks, struct rl_buf *out, struct rl_err *err) RL_NODISCARD;
/* One sentence or more on where the task stands and why, from its times and its worker. */
enum rl_rc task_explain(struct tasks *tasks, const struct task *task, struct rl_buf *out,
                        struct rl_err *err) RL_NODISCARD;
/* Members task_id, attempt, phase, step, total_steps, heartbeat_at, running_seconds of the run on
 * this worker into an open object; nulls when it is idle, or the task is none that the caller may
 * see. */
void runs_json(struct tasks *tasks, const struct caller *caller, const char *worker_id,
               struct rl_jw *w);

/* ---- following (follow.c) ---- */
#define EVENT_BATCH 64
struct event_filter {
    int64_t task_id;   /* 0 = every task that the caller may see */
    unsigned statuses; /* mask of to_status; 0 = any */
};
struct event_batch {
    struct hub_event events[EVENT_BATCH]; /* oldest first; each json owned */
    size_t count;
    int64_t last; /* the answer is complete up to this seq: ask again after it */
    bool gap;     /* history between `after` and the first event was pruned */
};
void event_batch_clear(struct event_batch *batch);
/* The next events after a seq. The caller has checked that it may see filter->task_id. */
enum rl_rc events_after(struct tasks *tasks, const struct caller *caller,
                        const struct event_filter *filter, int64_t after, struct event_batch *batch,
                        struct rl_err *err) RL_NODISCARD;
int64_t events_last(struct tasks *tasks); /* the newest seq */
/* What to wait for at the doorbell. */
struct hub_filter event_hub_filter(const struct caller *caller, const struct event_filter *filter);

struct run_progress {
    int64_t task_id, attempt;
    int phase, step, total;
};
/* Where the visible runs (of one task, or all: 0) are now; at most `room`. */
size_t runs_progress(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                     struct run_progress *progress, size_t room);
/* Is that where one of these runs was, too? */
bool run_progress_seen(const struct run_progress *now, const struct run_progress *seen,
                       size_t count);
/* {task_id, attempt, progress, phase, step, total_steps, eta_seconds, queue_position,
 * poll_after_ms} */
enum rl_rc task_progress_json(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                              struct rl_buf *out, struct rl_err *err) RL_NODISCARD;

/* ---- keys (keys.c) ---- */
/* Is the key still valid? RL_UNAUTHORIZED when it was revoked. Streams ask when key_generation has
 * changed. */
enum rl_rc key_check(struct tasks *tasks, int64_t key_id, struct rl_err *err) RL_NODISCARD;
uint64_t key_generation(struct tasks *tasks); /* grows with every revoke */
/* RL_UNAUTHORIZED when the key is unknown or revoked. Answers from memory after the first use. */
enum rl_rc key_authenticate(struct tasks *tasks, const char *key, struct caller *ret_caller,
                            struct rl_err *err) RL_NODISCARD;
/* The same from memory alone: false for a key that was not used lately. */
bool key_known(struct tasks *tasks, const char *key, struct caller *ret_caller);
/* user: 1..63 of [A-Za-z0-9._@-]. ret_key[64]: the new key, shown once. */
enum rl_rc key_add(struct tasks *tasks, const char *user, const char *label, bool owner,
                   char *ret_key, int64_t *ret_key_id, struct rl_err *err) RL_NODISCARD;
enum rl_rc key_revoke(struct tasks *tasks, int64_t key_id, struct rl_err *err) RL_NODISCARD;
/* {"data": [{key_id, user_id, role, label, hint, created_at, revoked_at}], "next": null} */
enum rl_rc key_list(struct tasks *tasks, struct rl_buf *out, struct rl_err *err) RL_NODISCARD;
/* The user's default callback secret (whsec_…) into secret[128]. */
enum rl_rc key_callback_secret(struct tasks *tasks, const char *user_id, char *secret,
                               struct rl_err *err) RL_NODISCARD;
#define KEY_TEXT 64 /* room for "rk_" + 43 characters */

/* Sign-in links and sessions: stateless tokens "<purpose>.<key_id>.<expires_s>.<mac>", void when
 * the key is revoked. purpose: "link" (short-lived, in a URL) or "session" (the cookie). */
#define KEY_TOKEN 192
enum rl_rc key_token(struct tasks *tasks, const char *purpose, int64_t key_id, int64_t expires_ms,
                     char *token, struct rl_err *err) RL_NODISCARD;
enum rl_rc key_token_check(struct tasks *tasks, const char *purpose, const char *token,
                           struct caller *ret_caller, int64_t *ret_expires_ms, struct rl_err *err)
    RL_NODISCARD;

/* ---- runs: what the pool calls (run.c, finish.c) ---- */
struct run; /* one claimed attempt: the fence (task_id, attempt, epoch), the live figures and the
               stop flag */

/* What the engine is asked for; the texts are borrowed with the task. Needs engine/engine.h. */
struct engine_request task_request(const struct task *task);
/* Claim the head of the queue for this worker; *ret_run NULL when nothing may run now.
 * The row says PROCESSING, durably, before this returns. A head that can never run here (engine or
 * model gone, too large for every device) is FAILED instead, without an attempt. */
enum rl_rc run_claim(struct tasks *tasks, const struct engine_device *device, struct run **ret_run,
                     struct rl_err *err) RL_NODISCARD;
const struct task *run_task(const struct run *run); /* borrowed with the run */
void run_free(struct run *run);

/* The heartbeat of the work itself: any thread of the run. */
void run_beat(struct run *run, int phase, int step, int total);
enum run_stop { RUN_GO, RUN_CANCEL, RUN_DRAIN, RUN_TIMEOUT };
enum run_stop run_should_stop(const struct run *run); /* an atomic */

/* Where the run writes: results/<task_id>-<attempt>.mp4 (.part while writing) and .jpg. */
void run_paths(const struct run *run, char *part, char *final, char *poster_part, char *poster,
               size_t size);

struct run_result {
    const char *file; /* name inside results/ */
    int64_t bytes;
    char sha256[65];
    int width, height, frames, fps;
};
/* Denoise checkpoints (checkpoint.c): results/<task_id>.ckpt, kept from run to run until the task
 * ends. All three on the run's own thread. */
/* What an earlier run saved, when it is whole and of this very work; NULL and 0 otherwise, and an
 * unfit file is removed. *ret_file is new: free it when *ret_payload, which points into it, is not
 * needed any more. */
void run_checkpoint_load(struct run *run, char **ret_file, const void **ret_payload,
                         size_t *ret_len);
/* run.checkpoint_s passed since the last save or the start, or the run is to hand its task back. */
bool run_checkpoint_due(struct run *run);
/* Replace the checkpoint, durably; the step of the newest beat counts as reached by it. An error is
 * logged here and may be ignored; the earlier checkpoint stays. */
enum rl_rc run_checkpoint_save(struct run *run, const void *bytes, size_t len, struct rl_err *err);

/* The file is in place: PROCESSING → SUCCEEDED. RL_STALE: the run lost its claim; the caller
 * removes the file. A soft-cancelled run keeps its file in the row and answers RL_OK. */
enum rl_rc run_succeed(struct run *run, const struct run_result *result, struct rl_err *err)
    RL_NODISCARD;
/* The run ended with `why`: by its code and `retryable` the task goes QUEUED (delayed), FAILED, or
 * CANCELED (why->code RL_CANCELED after a cancel); drain: QUEUED without spending the attempt. */
enum rl_rc run_fail(struct run *run, const struct rl_err *why, struct rl_err *err) RL_NODISCARD;

/* Ask every run to hand its task back (stop of the process). */
void runs_drain(struct tasks *tasks);
/* The program ends, and some runs have not let go: their tasks go back to the queue, uncharged
 * unless they are silent for so long that they hang. What such a run still does finds its fence
 * closed. The caller ends the process without freeing tasks. */
void runs_hand_back(struct tasks *tasks);
int64_t runs_active(struct tasks *tasks);

/* ---- the scheduler thread (schedule.c): inputs that are ready, delays that are over, time-outs,
 * retention ---- */
/* A run hangs: its task was dealt with; the process must be replaced. Scheduler thread. */
typedef void (*tasks_replace_fn)(void *user, const struct rl_err *err);
enum rl_rc schedule_start(struct tasks *tasks, tasks_replace_fn replace, void *user,
                          struct rl_err *err) RL_NODISCARD;
void schedule_stop(struct tasks *tasks);
/* ms since the scheduler last went round; for health. */
int64_t schedule_stalled_ms(struct tasks *tasks);

/* ---- for the outbox (inside its writes) ---- */
/* callback_status and callback_retry of the task that a duty belongs to (only if the round is
 * current). */
enum rl_rc task_callback_result(struct tasks *tasks, struct store_conn *conn, int64_t task_id,
                                int64_t round, const char *callback_status, int64_t tries,
                                struct rl_err *err) RL_NODISCARD;

/* How many runs can go at once: the pool says so before it starts. */
void tasks_set_slots(struct tasks *tasks, int64_t slots);

const struct config *tasks_config(const struct tasks *tasks);
struct store *tasks_store(const struct tasks *tasks);
struct hub *tasks_hub(const struct tasks *tasks);
/* The address policy of callbacks (callback.allow, callback.public); lives as long as the tasks. */
struct net_policy *tasks_policy(const struct tasks *tasks);
const struct engines *tasks_engines(const struct tasks *tasks);
/* "http://127.0.0.1:8080", without a slash at the end. */
const char *tasks_public_url(const struct tasks *tasks);

#endif
