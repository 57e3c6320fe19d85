/* Is the process alive (healthz), and should work be sent to it (readyz)? Answers from figures in
 * memory and one statvfs; no database, no lock of the writer. Runs on the worker. */
#include "http/request.h"

#include "outbox/outbox.h"
#include "pool/pool.h"
#include "store/store.h"

#define STORE_STALL_MS    10000
#define OUTBOX_STALL_MS   60000
#define SCHEDULE_STALL_MS 60000
#define WORKERS_MAX       256

/* What is wrong, as static text; NULL = nothing. */
static const char *stalled(const struct http *http)
{
    struct store_stats stats = {0};
    store_stats(tasks_store(http->tasks), &stats);
    if (stats.stalled_ms > STORE_STALL_MS)
        return "the database writer is stalled";
    if (http->outbox && outbox_stalled_ms(http->outbox) > OUTBOX_STALL_MS)
        return "the callback thread is stalled";
    if (schedule_stalled_ms(http->tasks) > SCHEDULE_STALL_MS)
        return "the scheduler is stalled";
    return NULL;
}

static enum rl_rc reply_state(struct request *r, const char *ok, const char *reason,
                              struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    struct rl_jw w;
    rl_buf_init(&out, 4096);
    rl_jw_init(&w, &out, false);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "status", reason ? "unavailable" : ok);
    if (reason)
        rl_jw_str(&w, "reason", reason);
    rl_jw_end_object(&w);
    if (reason)
        reply_header(r, "Retry-After", "1");
    return reply_json(r, reason ? 503 : 200, &out, err);
}

enum rl_rc http_health(struct request *r, struct rl_err *err)
{
    return reply_state(r, "ok", stalled(r->http), err);
}

static bool pool_alive(struct pool *pool)
{
    AUTO_FREE struct pool_worker_info *workers = calloc(WORKERS_MAX, sizeof(*workers));
    if (!workers)
        return false;
    size_t count = pool_workers(pool, workers, WORKERS_MAX);
    for (size_t i = 0; i < count; i++)
        if (!workers[i].alive)
            return false;
    return true;
}

enum rl_rc http_ready(struct request *r, struct rl_err *err)
{
    struct http *http = r->http;
    const char *unready = atomic_load(&http->unready);
    const char *reason = stalled(http);
    struct rl_err full;
    if (atomic_load(&http->draining))
        reason = "draining";
    else if (unready)
        reason = unready;
    else if (!reason && store_admit(tasks_store(http->tasks), &full) != RL_OK)
        reason = full.code == RL_DISK_FULL ? "the disk is full" : "the database takes no writes";
    else if (!reason && http->pool && !pool_alive(http->pool))
        reason = "a pool thread is dead";
    return reply_state(r, "ready", reason, err);
}
