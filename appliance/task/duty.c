/* The callback duties of a task that ended: one outbox row for its own callback_url and one per
 * endpoint of its user that wants the event, all with the same frozen body and webhook-id. Writer
 * thread, inside the transaction of the terminal state. */
#include "task/internal.h"

#include "config/config.h"
#include "net/net.h"

#include <string.h>

const char *task_callback_type(enum task_status status)
{
    return status == TASK_SUCCEEDED ? "task.succeeded"
           : status == TASK_FAILED  ? "task.failed"
           : status == TASK_TIMEOUT ? "task.timeout"
                                    : NULL;
}

bool task_callback_wanted(const struct task *task, const char *type)
{
    size_t len = strlen(type);
    if (!task->callback_url)
        return false;
    for (const char *at = task->callback_events; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, type, len) == 0 && (at[len] == ',' || at[len] == '\0'))
            return true;
        if (!*at)
            break;
    }
    return !task->callback_events;
}

struct event {
    const char *type, *body;
    char webhook_id[64];
    int64_t now;
};

static void bind_event(struct tasks *tasks, struct store_stmt *stmt, const struct task *task,
                       const struct event *event)
{
    int64_t steady = store_steady_ms(tasks->store);
    store_bind_int(stmt, ":task_id", task->task_id);
    store_bind_int(stmt, ":round", task->round);
    store_bind_text(stmt, ":user_id", task->user_id);
    store_bind_text(stmt, ":webhook_id", event->webhook_id);
    store_bind_text(stmt, ":event_type", event->type);
    store_bind_blob(stmt, ":body", event->body, strlen(event->body));
    store_bind_int(stmt, ":max_tries", config_int(tasks->cfg, CFG_CALLBACK_TRIES));
    store_bind_int(stmt, ":next_at", steady);
    store_bind_int(stmt, ":expires_at",
                   steady + config_int(tasks->cfg, CFG_CALLBACK_MAX_AGE_S) * 1000);
    store_bind_int(stmt, ":now", event->now);
}

static enum rl_rc write_own(struct tasks *tasks, struct store_conn *conn, const struct task *task,
                            const struct event *event, struct rl_err *err)
{
    char secret[128] = "", host[320];
    AUTO_FREE char *url = NULL;
    enum rl_rc rc = net_url_check(task->callback_url, "callback_url", &url, host, sizeof host, err);
    if (rc == RL_OK && !task->callback_secret)
        rc = key_secret_in(conn, task->user_id, secret, err);
    if (rc != RL_OK)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_OUTBOX_INSERT);
    bind_event(tasks, stmt, task, event);
    store_bind_text(stmt, ":url", url);
    store_bind_text(stmt, ":host", host);
    store_bind_text(stmt, ":secret", task->callback_secret ? task->callback_secret : secret);
    rc = store_run(stmt, NULL, err);
    rl_wipe(secret, sizeof secret);
    return rc;
}

enum rl_rc task_write_duties(struct tasks *tasks, struct store_conn *conn, const struct task *task,
                             const char *type, int64_t now, struct rl_err *err)
{
    struct event event = {.type = type, .now = now};
    bool own = task_callback_wanted(task, type);
    int64_t endpoints = 0;
    struct store_stmt *any = store_stmt(conn, SQL_ENDPOINTS_OF);
    store_bind_text(any, ":user_id", task->user_id);
    enum rl_rc rc = store_int(any, 0, &endpoints, err);
    if (rc != RL_OK || (!own && !endpoints))
        return rc;
    AUTO_FREE char *body = task_callback_body(tasks, task, type, now);
    if (!body)
        return rl_fail(err, RL_NO_MEMORY, "callback body");
    event.body = body;
    (void)snprintf(event.webhook_id, sizeof event.webhook_id, "evt_%lld_%lld",
                   (long long)task->task_id, (long long)task->round); /* fits two numbers */
    if (own)
        rc = write_own(tasks, conn, task, &event, err);
    if (rc != RL_OK || !endpoints)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_OUTBOX_INSERT_ENDPOINTS);
    bind_event(tasks, stmt, task, &event);
    return store_run(stmt, NULL, err);
}
