/* What the owner of a source, or a program with an owner's key, sees of its events and reports
 * about them. Any thread but the writer's. Invariant: a page of a list is bounded by its bodies'
 * bytes, too, and holds at least one event when there is any. */
#include "inbound/inbound.h"

#include "base/buf.h"
#include "base/clock.h"
#include "store/store.h"
#include "task/task.h"

#define ROW_BYTES  ((size_t)4 << 10) /* of a list as JSON, without its body */
#define PAGE_BYTES ((size_t)1 << 20) /* of bodies, after which a page ends */
#define BODY_BYTES ((size_t)1 << 20) /* the largest that hook.body_bytes allows */

/* hook_id of a source. */
static enum rl_rc find_source(struct store_conn *conn, const char *source, int64_t *ret_hook_id,
                              struct rl_err *err)
{
    bool row = false;
    AUTO_STMT struct store_stmt *get = store_stmt(conn, SQL_HOOK_GET);

    store_bind_text(get, ":source", source);
    store_bind_int(get, ":now", 0);
    enum rl_rc rc = store_step(get, &row, err);
    if (rc == RL_OK && !row)
        rc = rl_fail(err, RL_NOT_FOUND, "no such source");
    if (rc == RL_OK)
        *ret_hook_id = store_col_int(get, 0);
    return rc;
}

/* ---- the list ---- */

struct list {
    const char *source;
    const struct page_query *page;
    bool waiting;
    struct rl_buf json; /* set anew by every run */
};

/* Returns the bytes of its body. */
static size_t event_json(struct rl_jw *w, struct store_stmt *stmt)
{
    size_t len = 0;
    const char *body = store_col_blob(stmt, 6, &len);

    rl_jw_object(w, NULL);
    rl_jw_id(w, "event_seq", store_col_int(stmt, 0));
    rl_jw_str(w, "event_id", store_col_text(stmt, 1));
    rl_jw_str(w, "type", store_col_text(stmt, 3));
    rl_jw_str(w, "correlation_id", store_col_text(stmt, 4));
    rl_jw_time(w, "received_at", store_col_int(stmt, 2));
    rl_jw_time(w, "handled_at", store_col_int(stmt, 5));
    if (len)
        rl_jw_strn(w, "body", body, len); /* JSON, and so UTF-8 */
    else
        rl_jw_null(w, "body");
    rl_jw_end_object(w);
    return len;
}

static struct store_stmt *list_statement(struct store_conn *conn, const struct list *list)
{
    bool ascending = list->page->ascending;

    if (list->waiting)
        return store_stmt(conn, ascending ? SQL_INBOUND_WAITING_ASC : SQL_INBOUND_WAITING_DESC);
    return store_stmt(conn, ascending ? SQL_INBOUND_LIST_ASC : SQL_INBOUND_LIST_DESC);
}

static enum rl_rc list_rows(struct store_conn *conn, struct list *list, int64_t hook_id,
                            struct rl_err *err)
{
    const struct page_query *page = list->page;
    int64_t next = 0, last = 0;
    size_t bytes = 0;
    bool row = false;
    struct rl_jw w;
    AUTO_STMT struct store_stmt *stmt = list_statement(conn, list);

    rl_buf_clear(&list->json);
    rl_jw_init(&w, &list->json, false);
    rl_jw_object(&w, NULL);
    rl_jw_array(&w, "data");
    store_bind_int(stmt, ":hook_id", hook_id);
    store_bind_int(stmt, ":after", page->after ? page->after : page->ascending ? 0 : INT64_MAX);
    store_bind_int(stmt, ":limit", page->limit + 1);
    enum rl_rc rc = store_step(stmt, &row, err);
    for (int n = 0; rc == RL_OK && row; n++) {
        if (n == page->limit || bytes > PAGE_BYTES) { /* one more than shown was asked for */
            next = last;
            break;
        }
        last = store_col_int(stmt, 0);
        bytes += event_json(&w, stmt);
        rc = store_col_lost(stmt) ? rl_fail(err, RL_NO_MEMORY, "events")
                                  : store_step(stmt, &row, err);
    }
    rl_jw_end_array(&w);
    rl_jw_id(&w, "next", next);
    rl_jw_end_object(&w);
    return rc == RL_OK ? rl_buf_ok(&list->json, err) : rc;
}

static enum rl_rc list(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct list *list = arg;
    int64_t hook_id = 0;
    enum rl_rc rc = find_source(conn, list->source, &hook_id, err);

    return rc == RL_OK ? list_rows(conn, list, hook_id, err) : rc;
}

enum rl_rc inbound_event_list(struct tasks *tasks, const char *source,
                              const struct page_query *page, bool waiting, struct rl_buf *out,
                              struct rl_err *err)
{
    struct list work = {.source = source, .page = page, .waiting = waiting};

    /* within a JSON text only quotes, backslashes and white space need an escape, of two bytes */
    rl_buf_init(&work.json, ROW_BYTES * (size_t)(page->limit + 1) + 2 * (PAGE_BYTES + BODY_BYTES));
    enum rl_rc rc = store_read(tasks_store(tasks), list, &work, err);
    if (rc == RL_OK) {
        rl_buf_append(out, work.json.data, work.json.len);
        rc = rl_buf_ok(out, err);
    }
    rl_buf_free(&work.json);
    return rc;
}

/* ---- handled ---- */

struct handled {
    const char *source;
    const int64_t *seqs;
    size_t count;
    bool *known; /* set anew by every run */
};

static enum rl_rc mark(struct store_conn *conn, int64_t hook_id, int64_t seq, bool *ret_known,
                       struct rl_err *err)
{
    int64_t known = 0;
    struct store_stmt *is_of = store_stmt(conn, SQL_INBOUND_IS_OF);

    store_bind_int(is_of, ":event_seq", seq);
    store_bind_int(is_of, ":hook_id", hook_id);
    enum rl_rc rc = store_int(is_of, 0, &known, err);
    *ret_known = known;
    if (rc != RL_OK || !known)
        return rc;
    struct store_stmt *stmt = store_stmt(conn, SQL_INBOUND_HANDLED);
    store_bind_int(stmt, ":event_seq", seq);
    store_bind_int(stmt, ":now", rl_wall_ms());
    return store_run(stmt, NULL, err);
}

static enum rl_rc mark_all(struct store_conn *conn, void *arg, struct rl_err *err)
{
    const struct handled *work = arg;
    int64_t hook_id = 0;
    enum rl_rc rc = find_source(conn, work->source, &hook_id, err);

    for (size_t i = 0; rc == RL_OK && i < work->count; i++)
        rc = mark(conn, hook_id, work->seqs[i], &work->known[i], err);
    return rc;
}

enum rl_rc inbound_events_handled(struct tasks *tasks, const char *source, const int64_t *seqs,
                                  size_t count, bool *ret_known, struct rl_err *err)
{
    struct handled work = {.source = source, .seqs = seqs, .count = count, .known = ret_known};

    return store_write(tasks_store(tasks), STORE_URGENT, mark_all, &work, err);
}
