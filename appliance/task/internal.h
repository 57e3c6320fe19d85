/* What the files of task/ share. */
#ifndef RL_TASK_INTERNAL_H
#define RL_TASK_INTERNAL_H

#include "task/task.h"

#include "base/crypto.h"
#include "base/histogram.h"
#include "store/store.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#define KEY_CACHE 64

struct key_entry {
    uint8_t hash[RL_HASH_BYTES];
    struct caller caller;
};

struct speed {
    char engine[64], model[128], device[32];
    double ms_per_unit;
};

struct cache;

struct run {
    struct tasks *tasks;
    struct task *task; /* as claimed; owned */
    char worker_id[32];
    int64_t attempt, epoch;
    atomic_int stop;      /* enum run_stop */
    atomic_llong beat_ms; /* monotonic time of the last beat */
    atomic_int phase, step, total;
    atomic_llong
        slowest_ms[8];    /* slowest beat per phase: what counts as a hang is measured by it */
    atomic_llong stop_ms; /* monotonic time at which the stop flag went up, 0 = it did not */
    int64_t timeout_ms;   /* processing time-out; 0 = none */
    bool unmeasured;      /* nobody said or knows how long it takes: timeout_ms is of silence */
    atomic_bool ended;    /* set inside the transaction that ends the run (writer thread) */
    bool grace;           /* watchdog only: the one grace was given */
    bool written_off; /* watchdog only: its task was taken away, the process is being replaced */
    int64_t started_mono_ms;
    int64_t checkpoint_ms; /* run's thread only: monotonic time of the last save, or of the start */
    int64_t best_step;     /* run's thread only: as in the row */
    atomic_bool suspect;   /* it took the process down before and has got no further since */
    bool resumed;          /* run's thread only: it had a checkpoint to start from */
    /* for the ETA: monotonic times of the first beat of the phase under way and of its newest step,
     * the step that it began with, and what was expected at the claim (ms, 0 = nothing) */
    atomic_llong phase_ms, step_ms;
    atomic_int first_step;
    int64_t expected_ms;
    struct run *next; /* list of live runs */
};

/* A place in the order of a repair: by status, then by id. */
struct repair_place {
    enum task_status status;
    int64_t task_id; /* 0 = before the first */
};

struct tasks {
    const struct config *cfg;
    struct net_policy *policy; /* owned; what callback URLs are judged by */
    struct store *store;
    struct hub *hub;
    const struct engines *engines;
    int64_t epoch;
    char public_url[1100];
    uint8_t link_secret[32];
    int64_t last_id; /* writer thread only (and before it serves) */

    struct rl_histogram stay_ms[TASK_STATUS_COUNT]; /* how long tasks stayed in a state */
    atomic_llong entered[TASK_STATUS_COUNT];

    atomic_llong waiting; /* CREATED and QUEUED tasks */
    int64_t slots;        /* runs that can go at once; set before anything runs */
    atomic_bool draining;

    tasks_replace_fn replace; /* set before the scheduler starts */
    void *replace_user;

    pthread_mutex_t speed_lock; /* guards: speeds, speed_count, speed_room */
    struct speed *speeds;       /* owned; one for each model on each device */
    size_t speed_count, speed_room;

    struct cache *cache; /* owned; finished tasks in memory */

    pthread_mutex_t live_lock; /* guards: live */
    struct run *live;

    pthread_mutex_t key_lock; /* guards: keys, key_next, key_generation */
    struct key_entry keys[KEY_CACHE];
    size_t key_next;
    uint64_t
        key_generation; /* grows with every revoke: what was read before it is not remembered */

    pthread_t scheduler;
    bool scheduler_started;
    atomic_llong scheduler_beat_ms;
    int64_t hang_ms;           /* scheduler only: when a run was found hanging, 0 = none */
    struct repair_place swept; /* scheduler only: the sweep of stuck tasks goes on behind it */
    DIR *orphan_dir;           /* scheduler only: how far the look for orphans has come */
    struct {
        int64_t finished_at, task_id;
    } retain_after; /* scheduler only: the task that could not be removed: the next are; 0 = none */
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
/* query.c: why a task is not there: RL_TASK_EXPIRED when it was purged and the caller may know,
 * else RL_NOT_FOUND. */
enum rl_rc task_missing(struct store_conn *conn, const struct caller *caller, int64_t task_id,
                        struct rl_err *err) RL_NODISCARD;
/* A deep copy; returns new, NULL when memory is short. */
struct task *task_clone(const struct task *from);
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
    int64_t waits_for;                  /* to QUEUED: the twin whose result is wanted */
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
/* Insert a new task (all client-given fields set, its queue ensured) as CREATED, with its history
 * row; assigns task_id. */
enum rl_rc task_create(struct tasks *tasks, struct store_conn *conn, struct task *task,
                       struct rl_err *err) RL_NODISCARD;

/* duty.c */
const char *task_callback_type(enum task_status status); /* NULL: no callback for it */
/* Does the task's own callback_url want this event? */
bool task_callback_wanted(const struct task *task, const char *type);
/* The outbox rows of an ended task: its own and its user's endpoints'. */
enum rl_rc task_write_duties(struct tasks *tasks, struct store_conn *conn, const struct task *task,
                             const char *type, int64_t now, struct rl_err *err) RL_NODISCARD;

/* tasks.c: what a run that took its process (or device) down means: back to the queue, or FAILED
 * when the crash budget is spent. Fills to, charge and error of `move`. */
void task_crash_move(const struct tasks *tasks, const struct task *task, struct task_move *move);

/* schedule.c: do this to one row, in a savepoint of the write under way. A row with which it cannot
 * be done is logged and put off for a minute by the statement `put_off` (:task_id, :until), so that
 * it holds up nobody behind it. ret_dealt: it was done. errors: the store's own trouble only. */
enum rl_rc task_deal(struct tasks *tasks, struct store_conn *conn, int64_t task_id, store_fn deal,
                     void *arg, enum store_sql put_off, bool *ret_dealt, struct rl_err *err)
    RL_NODISCARD;

/* schedule.c: something becomes due at `at` (steady ms). Any thread. */
void schedule_hint(struct tasks *tasks, int64_t at);

/* query.c: {"data": [what fn writes to the struct rl_jw it is given], "next": null}, for short
 * lists */
enum rl_rc list_whole(struct tasks *tasks, store_fn fn, struct rl_buf *out, struct rl_err *err)
    RL_NODISCARD;

/* json.c */
/* progress, phase, step, total_steps, eta_seconds, queue_position, poll_after_ms into an open
 * object */
void task_write_progress(struct tasks *tasks, const struct task *task, struct rl_jw *w);
char *task_callback_body(struct tasks *tasks, const struct task *task, const char *type,
                         int64_t timestamp); /* returns new; NULL: no memory */
void task_event_json(struct rl_jw *w, int64_t seq, int64_t task_id, int64_t timestamp,
                     const char *from, const char *to, int64_t attempt, const char *worker_id,
                     const char *reason);
/* base64url signature of the task's file of this attempt into sig[48]; expires_s 0 = never. */
void task_download_signature(struct tasks *tasks, const struct task *task, int64_t expires_s,
                             char *sig);

/* queues.c: the queue that a task is about to join has its row; a new name takes the place of an
 * unused one at the limit. `fresh`: the task is new, which a draining queue refuses. errors:
 * RL_CONFLICT, RL_INVALID_FIELD (as many names are in use as there may be). thread: the writer's.
 */
enum rl_rc queue_join(struct tasks *tasks, struct store_conn *conn, const char *queue_name,
                      bool fresh, struct rl_err *err) RL_NODISCARD;

/* submit.c: CREATED → QUEUED, or at once to the kept result of a soft-cancelled twin. */
enum rl_rc task_enqueue(struct tasks *tasks, struct store_conn *conn, struct task *task,
                        struct rl_err *err) RL_NODISCARD;

/* reuse.c */
#define NOT_BEFORE_TWIN INT64_MAX /* not claimable until the twin's run ended */
/* The soft-cancelled twin of a CREATED task of the same user: with a kept result the task is
 * SUCCEEDED when this returns (*ret_reused); with a run still going *ret_twin is its task. */
enum rl_rc reuse_find(struct tasks *tasks, struct store_conn *conn, struct task *task,
                      bool *ret_reused, int64_t *ret_twin, struct rl_err *err) RL_NODISCARD;
/* The run of a soft-cancelled task ended: its followers get the kept result, or join the queue. */
enum rl_rc reuse_settle(struct tasks *tasks, struct store_conn *conn, const struct task *twin,
                        struct rl_err *err) RL_NODISCARD;

/* speed.c: ms per million units (pixel x frame x step) */
double speed_units(const struct task *task);
/* What is known of the device's speed now that a run took ms; false: nothing is to be learnt. It
 * goes into the row in the transaction that ends the run, and into memory after its COMMIT. */
bool speed_measure(struct tasks *tasks, const struct task *task, const char *device, int64_t ms,
                   struct speed *ret_speed);
enum rl_rc speed_put(struct store_conn *conn, const struct speed *speed, struct rl_err *err)
    RL_NODISCARD;
void speed_set(struct tasks *tasks, const struct speed *speed);
/* Expected run time of so many units of this task's engine and model; 0 = never measured. *ret_own
 * (may be NULL): measured on the task's own device, else it is another's. */
int64_t speed_expect_ms(struct tasks *tasks, const struct task *task, double units, bool *ret_own);
enum rl_rc speed_load(struct tasks *tasks, struct rl_err *err) RL_NODISCARD;

/* cache.c: finished tasks in memory, at most so many bytes of them; 0 = none. Any thread. */
struct cache_stats {
    int64_t hits, misses, evictions; /* since the start */
    int64_t tasks, bytes;            /* now */
};
struct cache *cache_new(int64_t most_bytes); /* returns new; NULL: no memory */
void cache_free(struct cache *cache);        /* NULL allowed */
bool cache_get(struct cache *cache, int64_t task_id, struct task **ret_task); /* returns new */
uint64_t cache_generation(struct cache *cache); /* read before SQLite is asked */
/* Remember a task that was read when the generation was this, unless something was dropped since.
 * What was read least recently makes room. */
void cache_put(struct cache *cache, const struct task *task, uint64_t generation);
void cache_drop(struct cache *cache, int64_t task_id);
void cache_stats(struct cache *cache, struct cache_stats *ret_stats);
/* move.c: a finished row was changed in this transaction: drop it after COMMIT. */
enum rl_rc task_forget_on_commit(struct tasks *tasks, struct store_conn *conn, int64_t task_id,
                                 struct rl_err *err) RL_NODISCARD;

/* checkpoint.c: no run will go on from the task's checkpoint: it goes after COMMIT. */
enum rl_rc checkpoint_remove_on_commit(struct tasks *tasks, struct store_conn *conn,
                                       int64_t task_id, struct rl_err *err) RL_NODISCARD;
/* A checkpoint of a task that ended or is gone (the process ended before it removed the file). */
bool checkpoint_orphan(struct tasks *tasks, int64_t task_id);

/* watchdog.c: looks at every live run; returns ms until it should look again. */
int64_t watchdog_round(struct tasks *tasks);

/* stats.c: a task left a state after ms */
void stats_stay(struct tasks *tasks, enum task_status left, int64_t ms);

/* repair.c: what a bug or a refused write left: PROCESSING without a run, CREATED without an
 * enqueue. */
enum rl_rc repair_sweep(struct tasks *tasks, struct rl_err *err) RL_NODISCARD;

/* retain.c: one bounded step of retention; true: there is more to do at once. */
bool retain_round(struct tasks *tasks);
/* One bounded step of the same for events of outside services. */
bool retain_hooks(struct tasks *tasks);
/* Files of results/ that no row knows, older than an hour: how many, removed unless dry_run. */
int64_t retain_orphans(struct tasks *tasks, bool dry_run);
/* The same a few thousand files at a time, going on where the last step ended. Scheduler thread. */
void retain_orphans_step(struct tasks *tasks);
void retain_orphans_end(struct tasks *tasks);

/* parse.c */
struct engine_request;
struct submit {
    struct task *task; /* filled from the body; owned */
    bool derive;       /* no key given, derivation wanted */
    int64_t input_wait_ms;
    struct rl_err refusal; /* of a new task: this machine cannot make it. A repeat gets its task. */
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
