/* The module's context: opening over a store, the start-up sweep of orphans, accessors.
 * tasks_open runs before anything listens; afterwards the context is read-only but for its atomics
 * and locks. */
#include "task/internal.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "config/config.h"
#include "events/events.h"
#include "net/policy.h"

#include <string.h>
#include <unistd.h>

const struct config *tasks_config(const struct tasks *tasks)
{
    return tasks->cfg;
}

struct store *tasks_store(const struct tasks *tasks)
{
    return tasks->store;
}

struct hub *tasks_hub(const struct tasks *tasks)
{
    return tasks->hub;
}

const struct engines *tasks_engines(const struct tasks *tasks)
{
    return tasks->engines;
}

struct net_policy *tasks_policy(const struct tasks *tasks)
{
    return tasks->policy;
}

const char *tasks_public_url(const struct tasks *tasks)
{
    return tasks->public_url;
}

void task_crash_move(const struct tasks *tasks, const struct task *task, struct task_move *move)
{
    int64_t budget = config_int(tasks->cfg, CFG_POOL_CRASH_BUDGET);
    move->charge = CHARGE_CRASH;
    if (budget == 0 || task->crash_count + 1 < budget) {
        move->to = TASK_QUEUED;
        move->reason = "the run took the process down";
        return;
    }
    move->to = TASK_FAILED;
    move->error_code = rl_code_name(RL_WORKER_CRASH);
    move->error_msg = "every run of this task took the process down";
    move->reason = "crash budget spent";
}

/* Files that the interrupted run may have left; a finished file without its row is worth nothing.
 */
static void remove_leftovers(const struct tasks *tasks, const struct task *task)
{
    static const char *const endings[] = {"mp4.part", "mp4", "jpg.part", "jpg"};
    for (size_t i = 0; i < RL_ARRAY_LEN(endings); i++) {
        char path[1200];
        (void)snprintf(path, sizeof path, "%s/results/%lld-%lld.%s",
                       config_text(tasks->cfg, CFG_STATE_DIR), (long long)task->task_id,
                       (long long)task->attempt, endings[i]);
        (void)unlink(path); /* mostly not there */
    }
}

struct orphan {
    struct tasks *tasks;
    int64_t task_id; /* 0 = there are no more */
};

static enum rl_rc next_orphan(struct store_conn *conn, struct orphan *orphan, struct rl_err *err)
{
    struct store_stmt *stmt = store_stmt(conn, SQL_ORPHANS);
    store_bind_int(stmt, ":epoch", orphan->tasks->epoch);
    store_bind_int(stmt, ":after", orphan->task_id);
    return store_int(stmt, 0, &orphan->task_id, err);
}

/* A PROCESSING row of an older epoch has no run by construction. */
static enum rl_rc take_back(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct orphan *orphan = arg;
    struct tasks *tasks = orphan->tasks;
    AUTO_TASK struct task *task = NULL;
    enum rl_rc rc = task_load(conn, orphan->task_id, &task, err);
    if (rc != RL_OK)
        return rc;
    struct task_move move = {.from = TASK_PROCESSING};
    if (task->cancel_mode && strcmp(task->cancel_mode, "hard") == 0) {
        move.to = TASK_CANCELED;
        move.cancel_mode = "hard";
        move.reason = "cancel (hard)";
    } else if (store_rebooted(tasks->store)) {
        move.to = TASK_QUEUED;
        move.reason = "the machine rebooted";
    } else {
        task_crash_move(tasks, task, &move);
    }
    remove_leftovers(tasks, task);
    return task_move(tasks, conn, task, &move, err);
}

/* All of them. One that cannot be moved must not keep the program from starting: repair tries it
 * again every minute. */
static enum rl_rc sweep(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct orphan orphan = {.tasks = arg};
    for (;;) {
        struct rl_err why;
        char text[300];
        enum rl_rc rc = next_orphan(conn, &orphan, err);
        if (rc != RL_OK || orphan.task_id == 0)
            return rc;
        rc = store_try(conn, take_back, &orphan, &why);
        if (rl_transient(rc))
            return rl_fail(err, rc, "%s", why.reason);
        if (rc != RL_OK)
            rl_log(RL_LOG_ERROR, "orphan_left", "task_id=%lld status=PROCESSING code=%s reason=%s",
                   (long long)orphan.task_id, rl_code_name(why.code),
                   rl_log_quote(why.reason, text, sizeof text));
    }
}

/* No run of an older epoch goes on: whoever waits for one gets its result or joins the queue. */
static enum rl_rc settle_twins(struct store_conn *conn, void *arg, struct rl_err *err)
{
    for (;;) {
        int64_t id = 0;
        AUTO_TASK struct task *twin = NULL;
        enum rl_rc rc = store_int(store_stmt(conn, SQL_TWIN_WANTED), 0, &id, err);
        if (rc == RL_OK && id != 0)
            rc = task_load(conn, id, &twin, err);
        struct task gone = {.task_id = id}; /* a twin that is not there has no result either */
        if (rc == RL_NOT_FOUND)
            rc = RL_OK;
        if (rc != RL_OK || id == 0)
            return rc;
        rc = reuse_settle(arg, conn, twin ? twin : &gone, err);
        if (rc != RL_OK)
            return rc;
    }
}

struct start {
    int64_t last_id, last_seq, waiting;
    char secret[128];
};

static enum rl_rc read_start(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct start *start = arg;
    enum rl_rc rc = store_int(store_stmt(conn, SQL_TASK_LAST_ID), 0, &start->last_id, err);
    if (rc == RL_OK)
        rc = store_int(store_stmt(conn, SQL_EVENT_LAST_SEQ), 0, &start->last_seq, err);
    if (rc == RL_OK)
        rc = store_int(store_stmt(conn, SQL_WAITING_COUNT), 0, &start->waiting, err);
    return rc;
}

/* The secret that signs links and sessions; made once, kept in the database. */
static enum rl_rc take_secret(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct tasks *tasks = arg;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_META_GET);
    store_bind_text(stmt, ":name", "link_secret");
    bool row;
    size_t len = 0;
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc != RL_OK)
        return rc;
    if (row &&
        rl_base64_decode(store_col_text(stmt, 0), true, tasks->link_secret,
                         sizeof tasks->link_secret, &len) &&
        len == sizeof tasks->link_secret)
        return RL_OK;
    char text[64];
    rl_random(tasks->link_secret, sizeof tasks->link_secret);
    rl_base64(tasks->link_secret, sizeof tasks->link_secret, true, text);
    struct store_stmt *set = store_stmt(conn, SQL_META_SET);
    store_bind_text(set, ":name", "link_secret");
    store_bind_text(set, ":value", text);
    return store_run(set, NULL, err);
}

/* May loopback apps be called back? By themselves while reeld is for this machine only: a front
 * proxy brings strangers to a loopback port, who would reach every other service behind it. */
static bool loopback_open(const struct config *cfg)
{
    const char *word = config_text(cfg, CFG_CALLBACK_LOOPBACK);
    if (strcmp(word, "auto") != 0)
        return strcmp(word, "on") == 0;
    return strncmp(config_text(cfg, CFG_LISTEN), "127.", 4) == 0 &&
           !*config_text(cfg, CFG_HTTP_ALLOWED_HOSTS) && !*config_text(cfg, CFG_HTTP_PUBLIC_URL) &&
           !*config_text(cfg, CFG_TRUSTED_PROXIES);
}

static enum rl_rc take_policy(struct tasks *tasks, struct rl_err *err)
{
    const char *word = config_text(tasks->cfg, CFG_CALLBACK_PUBLIC);
    enum net_public open = strcmp(word, "any") == 0     ? NET_PUBLIC_ANY
                           : strcmp(word, "https") == 0 ? NET_PUBLIC_HTTPS
                                                        : NET_PUBLIC_OFF;
    const char *loopback_off = loopback_open(tasks->cfg) ? NULL : "callback.loopback";
    return net_policy_new("callback.allow", config_text(tasks->cfg, CFG_CALLBACK_ALLOW), open,
                          loopback_off, &tasks->policy, err);
}

static enum rl_rc open_parts(struct tasks *tasks, bool *ret_first_run, struct rl_err *err)
{
    char results[1100];
    struct start start = {0};
    (void)snprintf(results, sizeof results, "%s/results", config_text(tasks->cfg, CFG_STATE_DIR));
    enum rl_rc rc = rl_fs_mkdirs(results, 0750, err);
    if (rc == RL_OK)
        rc = store_read(tasks->store, read_start, &start, err);
    if (rc != RL_OK)
        return rc;
    tasks->last_id = start.last_id;
    atomic_store(&tasks->waiting, start.waiting);
    hub_set_last(tasks->hub, start.last_seq);
    rc = store_write(tasks->store, STORE_URGENT, take_secret, tasks, err);
    if (rc == RL_OK)
        rc = speed_load(tasks, err);
    if (rc == RL_OK)
        rc = store_write(tasks->store, STORE_URGENT, sweep, tasks, err);
    if (rc == RL_OK)
        rc = store_write(tasks->store, STORE_URGENT, settle_twins, tasks, err);
    return rc == RL_OK ? keys_first_run(tasks, ret_first_run, err) : rc;
}

enum rl_rc tasks_open(const struct config *cfg, struct store *store, struct hub *hub,
                      const struct engines *engines, struct tasks **ret_tasks, bool *ret_first_run,
                      struct rl_err *err)
{
    struct tasks *tasks = calloc(1, sizeof *tasks);
    if (!tasks)
        return rl_fail(err, RL_NO_MEMORY, "tasks");
    tasks->cfg = cfg;
    tasks->store = store;
    tasks->hub = hub;
    tasks->engines = engines;
    tasks->epoch = store_epoch(store);
    pthread_mutex_init(&tasks->live_lock, NULL);
    pthread_mutex_init(&tasks->key_lock, NULL);
    pthread_mutex_init(&tasks->speed_lock, NULL);
    pthread_mutex_init(&tasks->due_lock, NULL);
    pthread_cond_init(&tasks->due, NULL);
    const char *url = config_text(cfg, CFG_HTTP_PUBLIC_URL);
    int n = snprintf(tasks->public_url, sizeof tasks->public_url, "%s%s", *url ? url : "http://",
                     *url ? "" : config_text(cfg, CFG_LISTEN));
    while (n > 0 && tasks->public_url[n - 1] == '/')
        tasks->public_url[--n] = '\0';
    tasks->cache = cache_new(config_int(cfg, CFG_CACHE_BYTES));
    enum rl_rc rc = tasks->cache ? take_policy(tasks, err) : rl_fail(err, RL_NO_MEMORY, "tasks");
    if (rc == RL_OK)
        rc = open_parts(tasks, ret_first_run, err);
    if (rc != RL_OK) {
        tasks_close(tasks);
        return rc;
    }
    *ret_tasks = tasks;
    return RL_OK;
}

void tasks_close(struct tasks *tasks)
{
    if (!tasks)
        return;
    schedule_stop(tasks);
    retain_orphans_end(tasks);
    pthread_mutex_destroy(&tasks->live_lock);
    net_policy_free(tasks->policy);
    cache_free(tasks->cache);
    pthread_mutex_destroy(&tasks->key_lock);
    pthread_mutex_destroy(&tasks->speed_lock);
    free(tasks->speeds);
    pthread_mutex_destroy(&tasks->due_lock);
    pthread_cond_destroy(&tasks->due);
    rl_wipe(tasks->link_secret, sizeof tasks->link_secret);
    free(tasks);
}
