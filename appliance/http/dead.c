/* Routes of the dead letter: what failed, replayed or dismissed. The rules are task/'s. Runs on the
 * worker of the connection; owns nothing beyond the request. */
#include "http/request.h"

#include <string.h>

#define REPLAY_MOST 200

enum rl_rc http_dead_list(struct request *r, struct rl_err *err)
{
    struct page_query page;
    enum rl_rc rc = page_parse(&r->query, false, false, &page, err);
    if (rc != RL_OK)
        return rc;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, LIST_ANSWER_BYTES);
    rc = dead_list(r->http->tasks, &r->caller, &page, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

enum rl_rc http_dead_replay(struct request *r, struct rl_err *err)
{
    int64_t id;
    AUTO_TASK struct task *task = NULL;
    enum rl_rc rc = request_id_param(r, "task", &id, err);
    if (rc == RL_OK)
        rc = dead_replay(r->http->tasks, &r->caller, id, &task, err);
    if (rc != RL_OK)
        return rc;
    reply_header(r, "Location", "/api/v1/tasks/%lld", (long long)task->task_id);
    return reply_task(r, 202, task, err);
}

enum rl_rc http_dead_dismiss(struct request *r, struct rl_err *err)
{
    int64_t id;
    enum rl_rc rc = request_id_param(r, "task", &id, err);
    if (rc == RL_OK)
        rc = dead_dismiss(r->http->tasks, &r->caller, id, err);
    return rc == RL_OK ? reply_empty(r, 204) : rc;
}

/* ---- many at once ---- */

/* Every id is tried by itself, and the answer says what became of each: what was replayed stays so
 * although a later one is refused. */
enum rl_rc http_dead_replay_many(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"task_ids", NULL};
    int64_t ids[REPLAY_MOST];
    enum rl_rc rcs[REPLAY_MOST];
    size_t count = 0;
    AUTO_JSON struct rl_json *root = NULL;
    AUTO_BUF struct rl_buf out = {0};
    struct rl_jw w;
    rl_buf_init(&out, 65536);
    enum rl_rc rc = body_object(r, names, &root, err);
    if (rc == RL_OK)
        rc = body_ids(root, "task_ids", ids, REPLAY_MOST, &count, err);
    if (rc != RL_OK)
        return rc;
    for (size_t i = 0; i < count; i++) {
        AUTO_TASK struct task *task = NULL;
        rcs[i] = dead_replay(r->http->tasks, &r->caller, ids[i], &task, err);
    }
    rl_jw_init(&w, &out, false);
    rl_jw_object(&w, NULL);
    rl_jw_array(&w, "replayed");
    for (size_t i = 0; i < count; i++)
        if (rcs[i] == RL_OK)
            rl_jw_id(&w, NULL, ids[i]);
    rl_jw_end_array(&w);
    rl_jw_array(&w, "refused");
    for (size_t i = 0; i < count; i++) {
        if (rcs[i] == RL_OK)
            continue;
        rl_jw_object(&w, NULL);
        rl_jw_id(&w, "task_id", ids[i]);
        rl_jw_str(&w, "code", rl_code_name(rcs[i]));
        rl_jw_end_object(&w);
    }
    rl_jw_end_array(&w);
    rl_jw_end_object(&w);
    return reply_json(r, 200, &out, err);
}
