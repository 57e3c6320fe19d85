/* What the files of task/ share. */
#ifndef RL_TASK_INTERNAL_H
#define RL_TASK_INTERNAL_H

#include "task/task.h"

#include "base/crypto.h"
#include "store/store.h"

#include <pthread.h>
#include <stdatomic.h>

#define KEY_CACHE 64

struct key_entry {
    uint8_t hash[RL_HASH_BYTES];
    struct caller caller;
};

struct run {
    struct tasks *tasks;
    struct task *task; /* as claimed; owned */
    char worker_id[32];
    int64_t attempt, epoch;
    atomic_int stop;      /* enum run_stop */
    atomic_llong beat_ms; /* monotonic time of the last beat */
    atomic_int phase, step, total;
    int64_t started_mono_ms;
    atomic_llong
        denoise_ms;   /* monotonic time of the first beat of the phase under way: for the ETA */
    struct run *next; /* list of live runs */
};

struct tasks {
    const struct config *cfg;
    struct store *store;
    struct hub *hub;
    const struct engines *engines;
    int64_t epoch;
    char public_url[1100];
    uint8_t link_secret[32];
    int64_t last_id; /* writer thread only (and before it serves) */

    atomic_llong waiting; /* CREATED and QUEUED tasks */
    atomic_bool draining;

    pthread_mutex_t live_lock; /* guards: live */
    struct run *live;

    pthread_mutex_t key_lock; /* guards: keys, key_next, key_generation */
    struct key_entry keys[KEY_CACHE];
    size_t key_next;
    uint64_t
        key_generation; /* grows with every revoke: what was read before it is not remembered */

    pthread_t scheduler;
    bool scheduler_started;
    pthread_mutex_t due_lock; /* guards: due_at, due_stop */
    pthread_cond_t due;
    int64_t
        due_at; /* wall ms at which the scheduler wakes; INT64_MAX = nothing is known to be due */
    bool due_stop;
};

/* row.c */
/* The row a statement stands on, of a `SELECT * FROM task_row`. Returns new. */
enum rl_rc task_read_row(struct store_stmt *stmt, struct task **ret_task, struct rl_err *err)
    RL_NODISCARD;
/* By id inside a transaction; RL_NOT_FOUND. */
enum rl_rc task_load(struct store_conn *conn, int64_t task_id, struct task **ret_task,
                     struct rl_err *err) RL_NODISCARD;
enum task_status task_status_of(const struct task *task);
/* Replace an owned string by a copy (NULL allowed). */
enum rl_rc task_set_text(char **field, const char *text, struct rl_err *err) RL_NODISCARD;

/* move.c */
enum task_charge {
    CHARGE_NONE,
    CHARGE_REQUEUE, /* queue time-out */
    CHARGE_RETRY,   /* engine error */
    CHARGE_CRASH,   /* the run took the process down */
    CHARGE_REFUND   /* drain: the attempt is given back */
};
struct task_move {
    enum task_status from, to;
    const char *reason;                 /* for the history; NULL = none */
    const char *worker_id;              /* to PROCESSING */
    int64_t epoch;                      /* to PROCESSING: the run's */
    int64_t fence_attempt, fence_epoch; /* from PROCESSING: who must hold the task; 0 = anybody */
    enum task_charge charge;
    int64_t not_before;                 /* to QUEUED: claimable then; 0 = now */
    const char *error_code, *error_msg; /* to FAILED, TIMEOUT */
    const char *cancel_mode;            /* to CANCELED */
    const struct run_result *result;    /* to SUCCEEDED */
    int64_t reused_from;
};
/* The one function that changes a task's state. `task` was loaded in this transaction and is
 * brought up to date. Writes the row, the history row and the outbox row, and rings the doorbell
 * and logs after COMMIT. errors: RL_STALE (another state, or the fence is lost), RL_INTERNAL (not
 * in the table), store errors. thread: the writer's. */
enum rl_rc task_move(struct tasks *tasks, struct store_conn *conn, struct task *task,
                     const struct task_move *move, struct rl_err *err) RL_NODISCARD;
/* Insert a new task (all client-given fields set) as CREATED, with its history row; assigns
 * task_id. */
enum rl_rc task_create(struct tasks *tasks, struct store_conn *conn, struct task *task,
                       struct rl_err *err) RL_NODISCARD;

/* tasks.c: what a run that took its process (or device) down means: back to the queue, or FAILED
 * when the crash budget is spent. Fills to, charge and error of `move`. */
void task_crash_move(const struct tasks *tasks, const struct task *task, struct task_move *move);

/* schedule.c: something becomes due at `at` (wall ms). Any thread. */
void schedule_hint(struct tasks *tasks, int64_t at);

/* json.c */
char *task_callback_body(struct tasks *tasks, const struct task *task, const char *type,
                         int64_t timestamp); /* returns new; NULL: no memory */
void task_event_json(struct rl_jw *w, int64_t seq, int64_t task_id, int64_t timestamp,
                     const char *from, const char *to, int64_t attempt, const char *worker_id,
                     const char *reason);
/* base64url signature of the task's file of this attempt into sig[48]. */
void task_download_signature(struct tasks *tasks, const struct task *task, char *sig);

/* parse.c */
struct engine_request;
struct submit {
    struct task *task; /* filled from the body; owned */
    bool derive;       /* no key given, derivation wanted */
    int64_t input_wait_ms;
};
void submit_clear(struct submit *submit);
enum rl_rc submit_parse(struct tasks *tasks, const struct caller *caller, const char *body,
                        size_t len, const char *header_key, struct submit *ret_submit,
                        struct rl_err *err) RL_NODISCARD;

/* keys.c */
enum rl_rc keys_first_run(struct tasks *tasks, bool *ret_first_run, struct rl_err *err)
    RL_NODISCARD;
/* callback secret of a user, inside a transaction, into secret[128] */
enum rl_rc key_secret_in(struct store_conn *conn, const char *user_id, char *secret,
                         struct rl_err *err) RL_NODISCARD;

/* run.c: the live run of (task, attempt 0 = any), under live_lock */
struct run *run_find_locked(struct tasks *tasks, int64_t task_id, int64_t attempt);

#endif
