/* Routes for whoever runs the machine: queues, workers, repair, statistics. The rules are task/'s.
 * Runs on the worker of the connection; owns nothing beyond the request. */
#include "http/request.h"

#include <string.h>

#include "engine/engine.h"
#include "pool/pool.h"

#define ANSWER_BYTES (4u << 20)
#define WORKERS_MAX  256
#define BATCH        50
#define BATCH_MOST   1000

/* ---- queues ---- */

enum rl_rc http_queue_list(struct request *r, struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = queue_list(r->http->tasks, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

/* Answers with the list, so that the caller sees what it did. */
static enum rl_rc set_queue(struct request *r, enum queue_state state, struct rl_err *err)
{
    enum rl_rc rc = queue_set(r->http->tasks, r->param, state, err);
    return rc == RL_OK ? http_queue_list(r, err) : rc;
}

enum rl_rc http_queue_pause(struct request *r, struct rl_err *err)
{
    return set_queue(r, QUEUE_PAUSED, err);
}

enum rl_rc http_queue_resume(struct request *r, struct rl_err *err)
{
    return set_queue(r, QUEUE_RUNNING, err);
}

enum rl_rc http_queue_drain(struct request *r, struct rl_err *err)
{
    return set_queue(r, QUEUE_DRAINING, err);
}

/* ---- workers ---- */

enum rl_rc http_workers(struct request *r, struct rl_err *err)
{
    AUTO_FREE struct pool_worker_info *workers = calloc(WORKERS_MAX, sizeof(*workers));
    if (!workers)
        return rl_fail(err, RL_NO_MEMORY, "no memory for the list of workers");
    size_t count = r->http->pool ? pool_workers(r->http->pool, workers, WORKERS_MAX) : 0;
    AUTO_BUF struct rl_buf out = {0};
    struct rl_jw w;
    rl_buf_init(&out, ANSWER_BYTES);
    rl_jw_init(&w, &out, false);
    rl_jw_object(&w, NULL);
    rl_jw_array(&w, "data");
    for (size_t i = 0; i < count; i++) {
        rl_jw_object(&w, NULL);
        rl_jw_str(&w, "worker_id", workers[i].device->id);
        rl_jw_str(&w, "device", workers[i].device->name);
        rl_jw_bool(&w, "alive", workers[i].alive);
        runs_json(r->http->tasks, &r->caller, workers[i].device->id, &w);
        rl_jw_end_object(&w);
    }
    rl_jw_end_array(&w);
    rl_jw_null(&w, "next");
    rl_jw_end_object(&w);
    return reply_json(r, 200, &out, err);
}

/* ---- repair and statistics ---- */

enum rl_rc http_repair(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"dry_run", "batch", "status", "after", NULL};
    int64_t batch = BATCH;
    unsigned statuses = 0;
    enum rl_rc rc = query_only(&r->query, names, err);
    if (rc != RL_OK)
        return rc;
    const char *text = query_get(&r->query, "dry_run");
    bool dry_run = !text || !strcmp(text, "true");
    if (!dry_run && strcmp(text, "false") != 0)
        return rl_fail_field(err, RL_INVALID_FIELD, "dry_run", "must be true or false");
    text = query_get(&r->query, "batch");
    if (text && (!task_id_parse(text, strlen(text), &batch) || batch > BATCH_MOST))
        return rl_fail_field(err, RL_INVALID_FIELD, "batch", "must be a number from 1 to %d",
                             BATCH_MOST);
    text = query_get(&r->query, "status");
    if (text) {
        rc = statuses_parse(text, &statuses, err);
        if (rc != RL_OK)
            return rc;
    }
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    rc = task_repair(r->http->tasks, dry_run, statuses, (int)batch, query_get(&r->query, "after"),
                     &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_stats(struct request *r, struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = task_stats(r->http->tasks, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}
