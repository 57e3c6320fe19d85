/* `reeld listen`: a receiver of webhooks on loopback that prints and verifies what comes, and
 * answers as told. Deliveries are judged and printed on the receiver's threads, one at a time; the
 * command's own thread waits for a signal. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/term.h"
#include "cli/webhook.h"
#include "http/receiver.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_PORT 9000
#define EVENTS_MOST  4096 /* webhook-ids that are remembered; the oldest go */
#define ID_ROOM      (RL_WEBHOOK_ID_BYTES + 1)

static const struct cli_option listen_options[] = {
    {"port", 'p', "N", "port on 127.0.0.1 (9000); 0 takes a free one"},
    {"secret", 's', "TEXT", "check signatures by it; may be repeated (callback.secret)"},
    {"secret-file", 0, "FILE", "the same from the first line of a file"},
    {"state-dir", 'd', "DIR", "take callback.secret of this state folder"},
    {"tolerance", 0, "SECONDS", "how old, or how far in the future, a delivery may be (300)"},
    {"status", 0, "CODE", "answer with this, 200 to 599 (200), to see what reeld makes of it"},
    {"fail-first", 0, "N", "answer the first N tries of each event with --status (500), then 200"},
    {"json", 0, NULL, "JSON lines also on a terminal"},
    {0},
};

/* An event that was seen. */
struct seen {
    char id[ID_ROOM];
    int64_t tries;
    bool taken; /* a try was answered 2xx: reeld has no reason to come again */
};

struct listening {
    struct cli_secrets secrets;
    int64_t tolerance_s, status, fail_first;
    bool json;
    pthread_mutex_t lock; /* guards: everything below, and standard output */
    struct seen *seen;    /* owned, [EVENTS_MOST], a ring */
    size_t events;        /* distinct ids so far */
    int64_t deliveries, verified, duplicates;
};

/* What is told about one delivery. */
struct told {
    const struct rl_webhook *hook;
    const struct rl_json *body; /* NULL: no JSON object */
    struct cli_verdict verdict;
    bool checked; /* there is a secret to judge by */
    int64_t try;  /* of this event */
    bool duplicate;
    int status;
};

/* The event of this id; a new one takes the place of the oldest. */
static struct seen *find_seen_locked(struct listening *l, const char *id) RL_REQUIRES(l->lock)
{
    size_t count = l->events < EVENTS_MOST ? l->events : EVENTS_MOST;

    for (size_t i = 0; i < count; i++)
        if (strncmp(l->seen[i].id, id, ID_ROOM - 1) == 0)
            return &l->seen[i];
    struct seen *seen = &l->seen[l->events++ % EVENTS_MOST];
    *seen = (struct seen){0};
    (void)snprintf(seen->id, sizeof(seen->id), "%s", id); /* a longer one is malformed anyway */
    return seen;
}

static void put_json(const struct told *told)
{
    AUTO_BUF struct rl_buf out = {0};
    struct rl_jw w;
    const struct rl_webhook *hook = told->hook;
    bool ok = told->verdict.kind == VERDICT_VALID;

    rl_buf_init(&out, (size_t)8 << 20);
    rl_jw_init(&w, &out, true);
    rl_jw_object(&w, NULL);
    rl_jw_time(&w, "received_at", rl_wall_ms());
    rl_jw_str(&w, "type", cli_member(told->body, "type"));
    rl_jw_str(&w, "task_id", cli_member(told->body, "task_id"));
    rl_jw_str(&w, "webhook_id", hook->id);
    rl_jw_str(&w, "webhook_timestamp", hook->timestamp);
    rl_jw_str(&w, "webhook_signature", hook->signature);
    if (told->checked)
        rl_jw_bool(&w, "verified", ok);
    else
        rl_jw_null(&w, "verified");
    rl_jw_str(&w, "reason", told->checked && !ok ? told->verdict.reason : NULL);
    rl_jw_i64(&w, "try", told->try);
    rl_jw_bool(&w, "duplicate", told->duplicate);
    rl_jw_i64(&w, "answered", told->status);
    if (rl_utf8_valid(hook->body, hook->body_len))
        rl_jw_strn(&w, "body", hook->body, hook->body_len);
    else
        rl_jw_null(&w, "body");
    rl_jw_end_object(&w);
    if (rl_buf_ok(&out, NULL) == RL_OK)
        cli_put_json(out.data, out.len);
}

static void put_line(const struct told *told)
{
    char now[RL_TIME_TEXT], local[32], count[32];
    bool ok = told->verdict.kind == VERDICT_VALID;
    const char *signature = !told->checked ? "not checked" : ok ? "verified" : "NOT VERIFIED";

    rl_time_format(rl_wall_ms(), now);
    cli_local_time(now, local);
    cli_put_cell(local, 19);
    cli_put_cell(cli_member(told->body, "type"), 16);
    cli_put_cell(cli_member(told->body, "task_id"), 19);
    cli_put_cell(signature, 12);
    (void)snprintf(count, sizeof(count), "%lld", (long long)told->try); /* fits */
    cli_put_cell(count, 3);
    printf("%d%s\n", told->status,
           told->duplicate ? "  duplicate"
           : told->try > 1 ? "  again"
                           : "");
    if (told->checked && !ok) {
        fputs("    ", stdout);
        cli_put(stdout, told->verdict.reason);
        putchar('\n');
    }
}

/* What to answer: a delivery that does not verify is refused, as a receiver should. */
static int choose_status(const struct listening *l, const struct told *told)
{
    if (told->checked && told->verdict.kind != VERDICT_VALID)
        return 401;
    return told->try > l->fail_first && l->fail_first >= 0 ? 200 : (int)l->status;
}

static int on_delivery(void *user, const struct rl_webhook *hook)
{
    struct listening *l = user;
    AUTO_JSON struct rl_json *body = NULL;
    struct told told = {.hook = hook, .checked = l->secrets.count > 0};

    if (rl_json_parse(hook->body, hook->body_len, &body, NULL) == RL_OK &&
        rl_json_type(body) == RL_JSON_OBJECT)
        told.body = body;
    if (told.checked)
        cli_webhook_judge(hook, &l->secrets, rl_wall_ms() / 1000, l->tolerance_s, &told.verdict);
    (void)pthread_mutex_lock(&l->lock);
    struct seen *seen = find_seen_locked(l, hook->id ? hook->id : "");
    told.try = ++seen->tries;
    told.duplicate = seen->taken;
    told.status = choose_status(l, &told);
    seen->taken = seen->taken || told.status / 100 == 2;
    l->deliveries++;
    l->verified += told.checked && told.verdict.kind == VERDICT_VALID;
    l->duplicates += told.duplicate;
    if (l->json)
        put_json(&told);
    else
        put_line(&told);
    (void)fflush(stdout); /* a pipe that is closed ends the program by SIGPIPE */
    (void)pthread_mutex_unlock(&l->lock);
    return told.status;
}

static void put_start(const struct listening *l, int port)
{
    if (l->secrets.count == 0)
        fputs("reeld: no secret: signatures are not checked (--secret, or `reeld secret`)\n",
              stderr);
    else if (*l->secrets.origin) {
        fputs("reeld: signatures are checked by ", stderr);
        cli_put(stderr, l->secrets.origin);
        fputc('\n', stderr);
    }
    /* The last of these lines: who waits for it has seen the others. */
    fprintf(stderr, "reeld: listening on http://127.0.0.1:%d/ until Ctrl-C\n", port);
    if (!l->json)
        puts("TIME                 EVENT             TASK_ID              SIGNATURE     TRY  "
             "ANSWER");
    (void)fflush(stdout);
}

static int listen_until_signal(struct listening *l, int port)
{
    struct receiver *receiver = NULL;
    struct rl_err err;

    cli_signals_hold(); /* before the receiver's threads, which inherit it */
    if (receiver_start(port, on_delivery, l, &receiver, &port, &err)) {
        cli_signals_release();
        return cli_complain(CLI_FAILED, &err);
    }
    put_start(l, port);
    while (!cli_wait(3600000))
        ;
    receiver_stop(receiver);
    cli_signals_release();
    (void)pthread_mutex_lock(&l->lock);
    fprintf(stderr, "reeld: %lld deliveries of %zu events", (long long)l->deliveries, l->events);
    if (l->secrets.count > 0)
        fprintf(stderr, ", %lld verified, %lld refused", (long long)l->verified,
                (long long)(l->deliveries - l->verified));
    fprintf(stderr, ", %lld duplicates\n", (long long)l->duplicates);
    (void)pthread_mutex_unlock(&l->lock);
    return CLI_OK;
}

static enum rl_rc read_options(const struct cli_args *args, struct listening *l, int64_t *ret_port,
                               struct rl_err *err)
{
    bool some = cli_args_has(args, "fail-first");
    enum rl_rc rc = cli_args_int(args, "port", 0, 65535, DEFAULT_PORT, ret_port, err);

    if (rc == RL_OK)
        rc = cli_args_int(args, "tolerance", 0, 315360000, 300, &l->tolerance_s, err);
    if (rc == RL_OK)
        rc = cli_args_int(args, "fail-first", 0, 1000, -1, &l->fail_first, err);
    if (rc == RL_OK)
        rc = cli_args_int(args, "status", 200, 599, some ? 500 : 200, &l->status, err);
    if (rc == RL_OK)
        rc = cli_secrets_find(args, &l->secrets, err);
    return rc;
}

static int run_listen(const struct cli_call *call)
{
    struct listening l = {.json = cli_wants_json(call->args)};
    struct rl_err err;
    int64_t port = 0;
    int status;

    l.seen = calloc(EVENTS_MOST, sizeof(*l.seen));
    (void)pthread_mutex_init(&l.lock, NULL); /* cannot fail with default attributes */
    enum rl_rc rc = l.seen ? read_options(call->args, &l, &port, &err)
                           : rl_fail(&err, RL_NO_MEMORY, "out of memory");
    if (rc == RL_OK)
        status = listen_until_signal(&l, (int)port);
    else
        status = cli_usage_error("listen", &err);
    (void)pthread_mutex_destroy(&l.lock);
    cli_secrets_free(&l.secrets);
    free(l.seen);
    return status;
}

const struct cli_command cli_listen = {
    .name = "listen",
    .synopsis = "",
    .summary = "receive callbacks on this machine, print and verify them",
    .details = "For developing an app: use http://127.0.0.1:9000/ as callback_url. One line per\n"
               "delivery: a table on a terminal, but JSON with the whole body into a pipe or\n"
               "file, where `reeld verify-webhook` can read a line. A try that follows one\n"
               "answered 2xx is a duplicate. What does not verify is answered 401, as a\n"
               "receiver should. Ctrl-C ends it with a summary.\n",
    .options = listen_options,
    .run = run_listen,
};
