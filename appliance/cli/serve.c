/* `reeld serve`: brings the modules up in order, waits for signals on the main thread, takes them
 * down in reverse order. Owns every module's object for the life of the process. All signals are
 * blocked before the first thread and read by sigwaitinfo, so nothing ever runs in a handler; while
 * a stop is under way, a guard thread waits for a second signal or the last deadline and ends the
 * process. */
#include "base/clock.h"
#include "base/crypto.h"
#include "base/fs.h"
#include "base/log.h"
#include "cli/api.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/listen.h"
#include "cli/lock.h"
#include "config/config.h"
#include "engine/engine.h"
#include "events/events.h"
#include "http/http.h"
#include "net/net.h"
#include "outbox/outbox.h"
#include "pool/pool.h"
#include "store/store.h"
#include "task/task.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define POOL_STOP_MS     20000 /* a run stops at its next step and hands its task back */
#define POOL_REPLACE_MS  2000  /* the device is lost: its thread will hardly answer */
#define POOL_JOIN_MS     500   /* for threads whose runs have ended */
#define DRAIN_LOOK_MS    50
#define OUTBOX_STOP_MS   3000
#define LAST_DEADLINE_MS 40000
#define QUICK_REPLACE_MS 10000 /* a replacement so soon after the start waits a little first */
#define STALLED_MS       60000 /* of the store: the watchdog is no longer fed */

struct serve {
    const struct cli_call *call;
    struct config *cfg;
    struct store *store;
    struct hub *hub;
    struct engines *engines;
    struct tasks *tasks;
    struct pool *pool;
    struct outbox *outbox;
    struct http *http;
    bool net, schedule, abandoned;
    bool port_chosen; /* config said 0 */
    char ip[16];
    int port;
    char url[64];
    char url_path[1200];
    int64_t started_ms;
    sigset_t signals, before; /* blocked now; the mask at the start */
    _Atomic bool replace;     /* set by a pool thread */
    pthread_t guard;
    bool guarded;
    _Atomic bool stopped; /* the guard may go */
};

/* ---- call-backs of the modules ---- */

/* Any pool thread: a device's context is unusable. */
static void on_replace(void *user, const struct rl_err *err)
{
    struct serve *s = user;
    char quoted[300];

    rl_log(RL_LOG_ERROR, "process_replace", "code=%s reason=%s", rl_code_name(err->code),
           rl_log_quote(err->reason, quoted, sizeof(quoted)));
    atomic_store(&s->replace, true);
    (void)kill(getpid(), SIGUSR1); /* cannot fail: wakes the main thread */
}

/* The writer thread: nothing that is answered from now on could be trusted. */
static void on_fatal(void *user, const struct rl_err *err)
{
    struct serve *s = user;
    char quoted[300];

    rl_log(RL_LOG_ERROR, "store_fatal", "code=%s reason=%s", rl_code_name(err->code),
           rl_log_quote(err->reason, quoted, sizeof(quoted)));
    s->call->end(CLI_FATAL);
}

/* ---- start ---- */

static void set_signals(struct serve *s)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    cli_end_signals(&s->signals);
    sigaddset(&s->signals, SIGUSR1);
    /* neither can fail with these arguments */
    (void)pthread_sigmask(SIG_BLOCK, &s->signals, &s->before);
    (void)sigaction(SIGPIPE, &ignore, NULL);
}

static void raise_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* fewer connections then, nothing worse */
    }
}

static void set_log_level(const struct config *cfg)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};

    for (size_t i = 0; i < RL_ARRAY_LEN(names); i++)
        if (strcmp(config_text(cfg, CFG_LOG_LEVEL), names[i]) == 0)
            rl_log_set_level((enum rl_log_level)i);
}

/* Port 0 becomes a free port now, while the configuration may still change: others need to know it.
 */
static enum rl_rc choose_port(struct serve *s, struct rl_err *err)
{
    char listen[CLI_LISTEN_TEXT];
    enum rl_rc rc = cli_listen_parse(config_text(s->cfg, CFG_LISTEN), s->ip, &s->port, err);

    if (rc || s->port != 0)
        return rc;
    rc = cli_listen_probe(s->ip, 0, &s->port, err);
    if (rc)
        return rc;
    s->port_chosen = true;
    (void)snprintf(listen, sizeof(listen), "%s:%d", s->ip, s->port); /* fits */
    return config_set(s->cfg, "listen", listen, err);
}

static enum rl_rc configure(struct serve *s, struct rl_err *err)
{
    enum rl_rc rc = cli_config(s->call->args, &s->cfg, err);

    if (rc == RL_OK)
        rc = choose_port(s, err);
    if (rc)
        return rc;
    set_log_level(s->cfg);
    cli_listen_url(s->ip, s->port, s->url);
    const char *dir = config_text(s->cfg, CFG_STATE_DIR);
    if (snprintf(s->url_path, sizeof(s->url_path), "%s/url", dir) >= (int)sizeof(s->url_path))
        return rl_fail_field(err, RL_INVALID_FIELD, "state_dir", "too long");
    return RL_OK;
}

static enum rl_rc start_modules(struct serve *s, bool *ret_first_run, struct rl_err *err)
{
    int port;
    enum rl_rc rc = store_open(s->cfg, on_fatal, s, &s->store, err);

    if (rc == RL_OK) /* a taken port is better known before any task is claimed */
        rc = cli_listen_probe(s->ip, s->port, &port, err);
    if (rc == RL_OK)
        rc = engines_open(s->cfg, &s->engines, err);
    if (rc == RL_OK && !(s->hub = hub_new(0)))
        rc = rl_fail(err, RL_NO_MEMORY, "out of memory");
    if (rc == RL_OK)
        rc = tasks_open(s->cfg, s->store, s->hub, s->engines, &s->tasks, ret_first_run, err);
    if (rc == RL_OK) {
        rc = schedule_start(s->tasks, on_replace, s, err);
        s->schedule = rc == RL_OK;
    }
    if (rc == RL_OK)
        rc = pool_start(s->tasks, on_replace, s, &s->pool, err);
    if (rc == RL_OK)
        rc = outbox_start(s->tasks, s->port, &s->outbox, err);
    if (rc == RL_OK)
        rc = http_start(s->tasks, s->pool, s->outbox, &s->http, &s->port, err);
    if (rc == RL_OK)
        outbox_own_port(s->outbox, s->port); /* port 0 was asked for: now it is known */
    return rc;
}

/* A link that signs the owner's browser in. */
static enum rl_rc sign_in_token(struct serve *s, const char *key_path, char *token,
                                struct rl_err *err)
{
    AUTO_FREE char *key = NULL;
    struct caller owner;
    size_t len;
    enum rl_rc rc = rl_fs_read(key_path, 4096, &key, &len, err);

    if (rc)
        return rc;
    key[strcspn(key, "\r\n")] = '\0';
    rc = key_authenticate(s->tasks, key, &owner, err);
    rl_wipe(key, len);
    if (rc)
        return rc;
    int64_t life_ms = config_int(s->cfg, CFG_AUTH_LINK_MINUTES) * 60000;
    return key_token(s->tasks, "link", owner.key_id, rl_wall_ms() + life_ms, token, err);
}

static void announce(struct serve *s, bool first_run)
{
    char key_path[1200], token[KEY_TOKEN];
    struct rl_err err;

    printf("reeld " REELD_VERSION " listening on %s\n", s->url);
    if (first_run) {
        (void)snprintf(key_path, sizeof(key_path), "%s/owner.key",
                       config_text(s->cfg, CFG_STATE_DIR)); /* as url_path */
        printf("owner key: %s\n", key_path);
        if (sign_in_token(s, key_path, token, &err) == RL_OK)
            printf("sign in: %s" API_SIGN_IN "%s\n", s->url, token);
        else
            rl_log(RL_LOG_WARN, "sign_in_link_failed", "code=%s", rl_code_name(err.code));
    }
    (void)fflush(stdout); /* nobody may be reading */
    cli_notify("READY=1\nSTATUS=serving");
    rl_log(RL_LOG_INFO, "serving", "version=" REELD_VERSION " url=%s start_ms=%lld", s->url,
           (long long)(rl_mono_ms() - s->started_ms));
}

/* DIR/url tells the command line where this server is. */
static enum rl_rc publish_url(struct serve *s, struct rl_err *err)
{
    char line[80];
    int n = snprintf(line, sizeof(line), "%s\n", s->url);

    return rl_fs_write_durable(s->url_path, line, (size_t)n, 0600, err);
}

static int start_failed(const struct serve *s, enum rl_rc rc, const struct rl_err *err)
{
    const char *dir = s->cfg ? config_text(s->cfg, CFG_STATE_DIR) : "";

    if (rc != RL_LOCKED)
        return cli_complain(rc == RL_INVALID_FIELD ? CLI_USAGE : CLI_FAILED, err);
    int64_t pid = cli_lock_holder(dir);
    fprintf(stderr, "reeld: another reeld is using %s", dir);
    if (pid > 0)
        fprintf(stderr, " (pid %lld)", (long long)pid);
    fputc('\n', stderr);
    return CLI_LOCKED;
}

/* ---- stop ---- */

/* The guard: a second signal, or a stop that takes too long, ends the process. */
static void *guard_main(void *user)
{
    struct serve *s = user;
    int64_t until_ms = rl_mono_ms() + LAST_DEADLINE_MS;

    while (!atomic_load(&s->stopped)) {
        int64_t left_ms = until_ms - rl_mono_ms();
        if (left_ms <= 0) {
            rl_log(RL_LOG_ERROR, "stop_too_slow", "limit_ms=%d", LAST_DEADLINE_MS);
            s->call->end(CLI_FAILED);
        }
        struct timespec wait = {.tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * 1000000};
        int number = sigtimedwait(&s->signals, NULL, &wait);
        if (number == SIGTERM || number == SIGINT) {
            rl_log(RL_LOG_WARN, "stop_at_once", "signal=%d", number);
            s->call->end(CLI_FAILED);
        }
    }
    return NULL;
}

static void guard_start(struct serve *s)
{
    s->guarded = pthread_create(&s->guard, NULL, guard_main, s) == 0;
    if (!s->guarded)
        rl_log(RL_LOG_WARN, "stop_unguarded", "reason=\"no thread\"");
}

static void guard_stop(struct serve *s)
{
    if (!s->guarded)
        return;
    atomic_store(&s->stopped, true);
    (void)pthread_kill(s->guard, SIGUSR1); /* it runs until joined */
    (void)pthread_join(s->guard, NULL);
    s->guarded = false;
}

static int64_t http_wait_ms(const struct serve *s, int64_t stop_began_ms)
{
    int64_t left_ms = LAST_DEADLINE_MS - 8000 - (rl_mono_ms() - stop_began_ms);
    int64_t wait_ms = config_int(s->cfg, CFG_HTTP_DRAIN_MS);

    return wait_ms < left_ms ? wait_ms : left_ms > 0 ? left_ms : 0;
}

/* Ask the runs to hand their tasks back, and wait for that while the server still answers watchers.
 */
static void drain_runs(struct serve *s, int64_t until_ms)
{
    if (!s->tasks)
        return;
    runs_drain(s->tasks);
    for (;;) {
        uint64_t tick = hub_tick(s->hub); /* before the look: a task that moves rings */
        int64_t left_ms = until_ms - rl_mono_ms();
        if (runs_active(s->tasks) == 0 || left_ms <= 0)
            return;
        /* a run leaves the list a little after its task's last move */
        (void)hub_wait(s->hub, NULL, tick, left_ms < DRAIN_LOOK_MS ? left_ms : DRAIN_LOOK_MS);
    }
}

/* Everything down, in reverse order; also after a start that broke off. The server goes before the
 * pool and the outbox, whose figures it shows. A pool that does not let go is left alone, with all
 * that its threads may still touch: the process must then end without freeing it. */
static void stop_modules(struct serve *s, int64_t pool_ms)
{
    int64_t began_ms = rl_mono_ms();

    drain_runs(s, began_ms + pool_ms);
    if (s->http) {
        http_stop(s->http, http_wait_ms(s, began_ms));
        (void)unlink(s->url_path); /* a left-over only leads to "no answer" */
    }
    int64_t left_ms = began_ms + pool_ms - rl_mono_ms();
    if (s->pool && !pool_stop(s->pool, left_ms > POOL_JOIN_MS ? left_ms : POOL_JOIN_MS)) {
        rl_log(RL_LOG_ERROR, "pool_hangs", "wait_ms=%lld", (long long)pool_ms);
        runs_hand_back(s->tasks); /* a step that takes long is no crash */
        s->abandoned = true;
    }
    outbox_stop(s->outbox, OUTBOX_STOP_MS);
    if (s->abandoned)
        return;
    if (s->schedule)
        schedule_stop(s->tasks);
    tasks_close(s->tasks);
    engines_close(s->engines);
    store_close(s->store);
    hub_free(s->hub);
}

/* ---- the main loop ---- */

static void feed_watchdog(const struct serve *s)
{
    struct store_stats stats;

    store_stats(s->store, &stats);
    if (stats.stalled_ms < STALLED_MS)
        cli_notify("WATCHDOG=1");
}

/* Until a signal says stop (false) or a pool thread wants a new process (true). */
static bool wait_for_end(struct serve *s)
{
    int64_t watchdog_ms = cli_watchdog_ms();

    for (;;) {
        struct timespec wait = {.tv_sec = watchdog_ms / 1000,
                                .tv_nsec = watchdog_ms % 1000 * 1000000};
        int number = watchdog_ms > 0 ? sigtimedwait(&s->signals, NULL, &wait)
                                     : sigwaitinfo(&s->signals, NULL);
        if (number < 0 && errno == EAGAIN)
            feed_watchdog(s);
        if (atomic_load(&s->replace))
            return true;
        if (number == SIGTERM || number == SIGINT || number == SIGHUP) {
            rl_log(RL_LOG_INFO, "stopping", "signal=%d", number);
            return false;
        }
    }
}

/* Does a service manager start us again? (A shell inside a session inherits INVOCATION_ID, so the
 * pid counts.) */
static bool is_service(void)
{
    const char *pid = getenv("SYSTEMD_EXEC_PID");

    return getenv("NOTIFY_SOCKET") ||
           (getenv("INVOCATION_ID") && pid && strtol(pid, NULL, 10) == (long)getpid());
}

/* The same command line in the same process id; a port that was chosen stays. Returns only on
 * failure. */
static int start_anew(struct serve *s)
{
    char listen[CLI_LISTEN_TEXT];
    size_t n = (size_t)s->call->argc;
    struct sigaction standard = {.sa_handler = SIG_DFL};

    AUTO_FREE char **argv = calloc(n + 3, sizeof(*argv));
    if (!argv)
        return CLI_REPLACE;
    for (size_t i = 0; i < n; i++) {
        argv[i] = s->call->argv[i];
        if (strcmp(argv[i], "--") == 0)
            n = i; /* no words follow, and what comes now is an option */
    }
    if (s->port_chosen) {
        static char option[] = "--listen";
        (void)snprintf(listen, sizeof(listen), "%s:%d", s->ip, s->port); /* fits */
        argv[n++] = option;
        argv[n++] = listen;
    }
    if (rl_mono_ms() - s->started_ms < QUICK_REPLACE_MS) {
        struct timespec pause = {.tv_sec = 1};
        int number = sigtimedwait(&s->signals, NULL, &pause);
        if (number == SIGTERM || number == SIGINT || number == SIGHUP)
            return CLI_OK;
    }
    /* none of these can fail with these arguments */
    (void)sigaction(SIGPIPE, &standard, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &s->before, NULL);
    execv("/proc/self/exe", argv);
    rl_log(RL_LOG_ERROR, "exec_failed", "errno=%d", errno);
    return CLI_REPLACE;
}

static int serve_until_end(struct serve *s)
{
    bool replace = wait_for_end(s);

    runs_drain(s->tasks); /* first: who sees "not ready" has no task accepted any more */
    http_set_unready(s->http, replace ? "replacing the process" : "draining");
    cli_notify("STOPPING=1");
    guard_start(s);
    stop_modules(s, replace ? POOL_REPLACE_MS : POOL_STOP_MS);
    guard_stop(s);
    int status = CLI_OK;
    if (replace)
        status = is_service() ? CLI_REPLACE : start_anew(s);
    rl_log(RL_LOG_INFO, "stopped", "status=%d", status);
    if (s->abandoned)
        s->call->end(status ? status : CLI_FAILED);
    return status;
}

static int run_serve(const struct cli_call *call)
{
    struct serve serve = {.call = call, .started_ms = rl_mono_ms()}, *s = &serve;
    struct rl_err err = {0};
    bool first_run = false;
    int status;

    enum rl_rc rc = net_init(&err);
    s->net = rc == RL_OK;
    if (rc == RL_OK)
        rc = configure(s, &err);
    if (rc == RL_OK) {
        (void)umask(077);
        raise_files();
        set_signals(s);
        rc = start_modules(s, &first_run, &err);
    }
    if (rc == RL_OK)
        rc = publish_url(s, &err);
    if (rc == RL_OK) {
        announce(s, first_run);
        status = serve_until_end(s);
    } else {
        status = start_failed(s, rc, &err);
        stop_modules(s, POOL_REPLACE_MS);
        if (s->abandoned)
            call->end(status);
    }
    if (s->net)
        net_cleanup();
    config_free(s->cfg);
    return status;
}

static const struct cli_option serve_options[] = {
    {"state-dir", 'd', "DIR", "database, results and keys (state_dir)"},
    {"listen", 0, "IP:PORT", "address to serve on; port 0 takes a free one (listen)"},
    {"config", 'c', "FILE", "configuration file; /etc/reeld/reeld.conf otherwise, when it exists"},
    {"set", 0, "KEY=VALUE", "one configuration key; may be repeated"},
    {0},
};

const struct cli_command cli_serve = {
    .name = "serve",
    .synopsis = "",
    .summary = "run the server in the foreground",
    .details = "SIGTERM or SIGINT lets the running tasks hand back their work and stops; a second\n"
               "one stops at once. On the first run the owner's key is made and a link is printed\n"
               "that signs a browser in.\n",
    .options = serve_options,
    .run = run_serve,
};
