/* What became of events: lists of deliveries (the FAILED ones are the dead letter), every attempt
 * for a task, and sending again. Any thread but the writer's. Invariant: a delivery that is sent
 * again keeps its webhook-id, its body and its history; nothing here shows a path or a query of a
 * URL. */
#include "outbox/outbox.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/json.h"
#include "config/config.h"
#include "events/events.h"
#include "outbox/parts.h"
#include "store/store.h"
#include "task/task.h"

#include <string.h>

#define EXCERPT_BYTES 2048
#define ROW_BYTES     ((size_t)16 << 10) /* a row of a list as JSON, at most */
#define RESEND_PAGE   1000               /* duties looked at by one read */
#define RESEND_BATCH  250                /* renewed by one write: others wait meanwhile */
#define RESEND_MOST   100000             /* in one request */
#define ATTEMPT_BITS  20                 /* of a cursor: attempts of one delivery */

static const char *const status_names[] = {"PENDING", "SUCCEEDED", "FAILED"};

bool delivery_status_parse(const char *text, size_t len, enum delivery_status *ret_status)
{
    for (size_t i = 0; i < RL_ARRAY_LEN(status_names); i++)
        if (strlen(status_names[i]) == len && memcmp(status_names[i], text, len) == 0) {
            *ret_status = (enum delivery_status)i;
            return true;
        }
    return false;
}

static const char *whose(const struct caller *caller)
{
    return caller->owner ? NULL : caller->user_id;
}

/* ---- lists ---- */

/* The delivery on which a statement with the columns of delivery_list stands. */
static void delivery_json(struct store *store, struct rl_jw *w, struct store_stmt *stmt)
{
    const char *status = store_col_text(stmt, 6);
    bool held = store_col_int(stmt, 7), pending = status && strcmp(status, "PENDING") == 0;
    /* due times are stored in steady time */
    int64_t next_at = store_col_int(stmt, 10) - store_steady_ms(store) + rl_wall_ms();

    rl_jw_object(w, NULL);
    rl_jw_id(w, "delivery_id", store_col_int(stmt, 0));
    rl_jw_str(w, "webhook_id", store_col_text(stmt, 1));
    rl_jw_id(w, "endpoint_id", store_col_int(stmt, 2));
    rl_jw_id(w, "task_id", store_col_int(stmt, 3));
    rl_jw_str(w, "event_type", store_col_text(stmt, 4));
    rl_jw_str(w, "host", store_col_text(stmt, 5));
    rl_jw_str(w, "status", status);
    rl_jw_bool(w, "held", held);
    rl_jw_i64(w, "tries", store_col_int(stmt, 8));
    rl_jw_i64(w, "max_tries", store_col_int(stmt, 9));
    rl_jw_time(w, "next_at", pending && !held ? next_at : 0);
    rl_jw_time(w, "created_at", store_col_int(stmt, 11));
    rl_jw_time(w, "finished_at", store_col_int(stmt, 12));
    rl_jw_str(w, "last_error", store_col_text(stmt, 13));
    rl_jw_end_object(w);
}

struct list_work {
    struct tasks *tasks;
    const struct caller *caller;
    const struct page_query *page;
    int64_t endpoint_id, task_id;
    struct rl_buf json; /* set anew by every run */
    struct rl_jw w;
    int64_t next;
};

static void begin_list(struct list_work *work)
{
    work->next = 0;
    rl_buf_clear(&work->json);
    rl_jw_init(&work->w, &work->json, false);
    rl_jw_object(&work->w, NULL);
    rl_jw_array(&work->w, "data");
}

/* Write the page's rows; cursor and write are those of the list. */
static enum rl_rc list_rows(struct list_work *work, struct store_stmt *stmt,
                            int64_t (*cursor)(struct store_stmt *stmt),
                            void (*write)(struct list_work *work, struct store_stmt *stmt),
                            struct rl_err *err)
{
    bool row = false;
    int64_t last = 0;
    enum rl_rc rc = store_step(stmt, &row, err);

    for (int n = 0; rc == RL_OK && row; n++) {
        if (n == work->page->limit) { /* one more than shown was asked for */
            work->next = last;
            break;
        }
        last = cursor(stmt);
        write(work, stmt);
        if (store_col_lost(stmt))
            return rl_fail(err, RL_NO_MEMORY, "deliveries");
        rc = store_step(stmt, &row, err);
    }
    rl_jw_end_array(&work->w);
    rl_jw_id(&work->w, "next", work->next);
    rl_jw_end_object(&work->w);
    return rc == RL_OK ? rl_buf_ok(&work->json, err) : rc;
}

static enum rl_rc run_list(struct list_work *work, store_fn fn, struct rl_buf *out,
                           struct rl_err *err)
{
    rl_buf_init(&work->json, ROW_BYTES * (size_t)(work->page->limit + 1));
    enum rl_rc rc = store_read(tasks_store(work->tasks), fn, work, err);
    if (rc == RL_OK) {
        rl_buf_append(out, work->json.data, work->json.len);
        rc = rl_buf_ok(out, err);
    }
    rl_buf_free(&work->json);
    return rc;
}

static int64_t delivery_cursor(struct store_stmt *stmt)
{
    return store_col_int(stmt, 0);
}

static void write_delivery(struct list_work *work, struct store_stmt *stmt)
{
    delivery_json(tasks_store(work->tasks), &work->w, stmt);
}

static enum rl_rc list(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct list_work *work = arg;
    const struct page_query *page = work->page;
    AUTO_STMT struct store_stmt *stmt =
        store_stmt(conn, page->ascending ? SQL_DELIVERY_LIST_ASC : SQL_DELIVERY_LIST_DESC);

    begin_list(work);
    store_bind_int(stmt, ":after", page->after ? page->after : page->ascending ? 0 : INT64_MAX);
    store_bind_int(stmt, ":limit", page->limit + 1);
    store_bind_int(stmt, ":statuses", page->statuses ? page->statuses : 7);
    store_bind_int(stmt, ":endpoint_id", work->endpoint_id);
    store_bind_text(stmt, ":user_id", whose(work->caller));
    return list_rows(work, stmt, delivery_cursor, write_delivery, err);
}

enum rl_rc delivery_list(struct tasks *tasks, const struct caller *caller, int64_t endpoint_id,
                         const struct page_query *page, struct rl_buf *out, struct rl_err *err)
{
    struct list_work work = {
        .tasks = tasks, .caller = caller, .page = page, .endpoint_id = endpoint_id};

    return run_list(&work, list, out, err);
}

/* ---- attempts ---- */

static int64_t attempt_cursor(struct store_stmt *stmt)
{
    return store_col_int(stmt, 0) << ATTEMPT_BITS | store_col_int(stmt, 5);
}

/* The start of a receiver's answer as text: what is not UTF-8 becomes '?'. */
static void excerpt_json(struct rl_jw *w, const char *key, const char *bytes, size_t len)
{
    char text[EXCERPT_BYTES + 1];
    size_t n = len < EXCERPT_BYTES ? len : EXCERPT_BYTES;

    if (!bytes) {
        rl_jw_null(w, key);
        return;
    }
    memcpy(text, bytes, n);
    for (int cut = 0; n < len && cut < 3 && n > 0 && !rl_utf8_valid(text, n); cut++)
        n--; /* the cut went through a character */
    if (!rl_utf8_valid(text, n))
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)text[i] >= 0x80 || text[i] == '\0')
                text[i] = '?';
    rl_jw_strn(w, key, text, n);
}

static void write_attempt(struct list_work *work, struct store_stmt *stmt)
{
    struct rl_jw *w = &work->w;
    size_t len = 0;
    const char *response = store_col_blob(stmt, 11, &len);

    rl_jw_object(w, NULL);
    rl_jw_id(w, "delivery_id", store_col_int(stmt, 0));
    rl_jw_str(w, "webhook_id", store_col_text(stmt, 1));
    rl_jw_id(w, "endpoint_id", store_col_int(stmt, 2));
    rl_jw_str(w, "host", store_col_text(stmt, 3));
    rl_jw_str(w, "status", store_col_text(stmt, 4));
    rl_jw_i64(w, "n", store_col_int(stmt, 5));
    rl_jw_time(w, "timestamp", store_col_int(stmt, 6));
    if (store_col_int(stmt, 7))
        rl_jw_i64(w, "http_status", store_col_int(stmt, 7));
    else
        rl_jw_null(w, "http_status");
    rl_jw_str(w, "error", store_col_text(stmt, 8));
    rl_jw_i64(w, "duration_ms", store_col_int(stmt, 9));
    rl_jw_str(w, "ip", store_col_text(stmt, 10));
    excerpt_json(w, "response_excerpt", response, len);
    rl_jw_end_object(w);
}

static enum rl_rc list_attempts(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct list_work *work = arg;
    const struct page_query *page = work->page;
    int64_t after = page->after ? page->after : page->ascending ? 0 : INT64_MAX;
    AUTO_STMT struct store_stmt *stmt =
        store_stmt(conn, page->ascending ? SQL_ATTEMPTS_ASC : SQL_ATTEMPTS_DESC);

    begin_list(work);
    store_bind_int(stmt, ":task_id", work->task_id);
    store_bind_int(stmt, ":outbox_id", after >> ATTEMPT_BITS);
    store_bind_int(stmt, ":n", after & ((1 << ATTEMPT_BITS) - 1));
    store_bind_int(stmt, ":limit", page->limit + 1);
    return list_rows(work, stmt, attempt_cursor, write_attempt, err);
}

enum rl_rc delivery_attempts(struct tasks *tasks, const struct caller *caller, int64_t task_id,
                             const struct page_query *page, struct rl_buf *out, struct rl_err *err)
{
    struct list_work work = {.tasks = tasks, .caller = caller, .page = page, .task_id = task_id};
    AUTO_TASK struct task *task = NULL;
    enum rl_rc rc = task_get(tasks, caller, task_id, &task, err); /* may it be seen? */

    return rc == RL_OK ? run_list(&work, list_attempts, out, err) : rc;
}

/* ---- sending again ---- */

enum rl_rc outbox_show(struct store *store, struct store_conn *conn, const char *user_id,
                       int64_t outbox_id, struct rl_buf *out, struct rl_err *err)
{
    bool row = false;
    struct rl_jw w;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_DELIVERY_GET);

    store_bind_int(stmt, ":outbox_id", outbox_id);
    store_bind_text(stmt, ":user_id", user_id);
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc == RL_OK && !row)
        return rl_fail(err, RL_NOT_FOUND, "no such delivery");
    if (rc != RL_OK)
        return rc;
    rl_jw_init(&w, out, false);
    delivery_json(store, &w, stmt);
    return store_col_lost(stmt) ? rl_fail(err, RL_NO_MEMORY, "delivery") : rl_buf_ok(out, err);
}

struct resend {
    struct tasks *tasks;
    const struct caller *caller;
    int64_t outbox_id; /* of one */
    struct rl_buf json;
};

/* Many, a page after another. */
struct resend_many {
    struct tasks *tasks;
    const struct caller *caller;
    int64_t endpoint_id, from, to; /* which; endpoint_id < 0 = of any */
    int64_t after;                 /* the page begins behind this one */
    int64_t last, looked_at;       /* where it ends, and its rows; set anew by every run */
    int64_t ids[RESEND_PAGE];      /* those of it that are to be sent again; the same */
    size_t n, at;                  /* at: the batch begins here */
    int64_t batch;                 /* renewed by it; set anew by every run */
};

/* A FAILED row, or one that is in the state `also`, gets a new budget, and so does the callback of
 * its task. *ret_count grows by 1 unless it is in another state by now. */
static enum rl_rc renew(struct tasks *tasks, struct store_conn *conn, int64_t outbox_id,
                        const char *also, int64_t *ret_count, struct rl_err *err)
{
    int64_t steady = store_steady_ms(tasks_store(tasks)), task_id = 0, round = 0, changed = 0;
    int64_t age_ms = config_int(tasks_config(tasks), CFG_CALLBACK_MAX_AGE_S) * 1000;
    bool row = false, own = false;
    struct store_stmt *stmt = store_stmt(conn, SQL_OUTBOX_RESEND);

    store_bind_int(stmt, ":outbox_id", outbox_id);
    store_bind_int(stmt, ":steady", steady);
    store_bind_int(stmt, ":expires_at", steady + age_ms);
    store_bind_text(stmt, ":also", also);
    enum rl_rc rc = store_run(stmt, &changed, err);
    if (rc != RL_OK || !changed)
        return rc;
    *ret_count += 1;
    AUTO_STMT struct store_stmt *get = store_stmt(conn, SQL_DELIVERY_GET);
    store_bind_int(get, ":outbox_id", outbox_id);
    store_bind_text(get, ":user_id", NULL);
    rc = store_step(get, &row, err);
    if (rc != RL_OK || !row)
        return rc;
    own = store_col_int(get, 2) == 0;
    task_id = store_col_int(get, 3);
    round = store_col_int(get, 14);
    return own ? task_callback_result(tasks, conn, task_id, round, "PENDING", 0, err) : RL_OK;
}

/* What stands in the way of sending this one again; ret_pending: it is on its way anyhow. */
static enum rl_rc may_resend(const struct resend *x, struct store_conn *conn, bool *ret_pending,
                             struct rl_err *err)
{
    bool row = false, there = false;
    AUTO_STMT struct store_stmt *get = store_stmt(conn, SQL_DELIVERY_GET);

    store_bind_int(get, ":outbox_id", x->outbox_id);
    store_bind_text(get, ":user_id", whose(x->caller));
    enum rl_rc rc = store_step(get, &row, err);
    if (rc == RL_OK && !row)
        rc = rl_fail(err, RL_NOT_FOUND, "no such delivery");
    if (rc != RL_OK)
        return rc;
    const char *status = store_col_text(get, 6);
    int64_t endpoint_id = store_col_int(get, 2);
    *ret_pending = status && strcmp(status, "PENDING") == 0;
    if (!endpoint_id)
        return RL_OK;
    AUTO_STMT struct store_stmt *endpoint = store_stmt(conn, SQL_ENDPOINT_GET);
    store_bind_int(endpoint, ":endpoint_id", endpoint_id);
    store_bind_text(endpoint, ":user_id", NULL);
    rc = store_step(endpoint, &there, err);
    return rc == RL_OK && !there ? rl_fail(err, RL_CONFLICT, "its endpoint was deleted") : rc;
}

static enum rl_rc resend_one(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct resend *x = arg;
    struct store *store = tasks_store(x->tasks);
    bool pending = false;
    enum rl_rc rc = may_resend(x, conn, &pending, err);

    if (rc == RL_OK && pending) {
        struct store_stmt *due = store_stmt(conn, SQL_OUTBOX_DUE_NOW);
        store_bind_int(due, ":outbox_id", x->outbox_id);
        store_bind_int(due, ":steady", store_steady_ms(store));
        rc = store_run(due, NULL, err);
    } else if (rc == RL_OK && (rc = store_admit(store, err)) == RL_OK) {
        int64_t renewed = 0; /* it is: its state was read in this transaction */
        rc = renew(x->tasks, conn, x->outbox_id, "SUCCEEDED", &renewed, err);
    }
    rl_buf_clear(&x->json);
    return rc == RL_OK ? outbox_show(store, conn, whose(x->caller), x->outbox_id, &x->json, err)
                       : rc;
}

enum rl_rc delivery_resend(struct tasks *tasks, const struct caller *caller, int64_t delivery_id,
                           struct rl_buf *out, struct rl_err *err)
{
    struct resend x = {.tasks = tasks, .caller = caller, .outbox_id = delivery_id};

    rl_buf_init(&x.json, ROW_BYTES);
    enum rl_rc rc = store_write(tasks_store(tasks), STORE_URGENT, resend_one, &x, err);
    if (rc == RL_OK) {
        hub_ring(tasks_hub(tasks));
        rl_buf_append(out, x.json.data, x.json.len);
        rc = rl_buf_ok(out, err);
    }
    rl_buf_free(&x.json);
    return rc;
}

/* The next page, by id, so that what fails again meanwhile is not sent twice. */
static enum rl_rc read_page(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct resend_many *x = arg;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_RESEND_PAGE);
    bool row = false;

    store_bind_int(stmt, ":after", x->after);
    store_bind_text(stmt, ":user_id", whose(x->caller));
    store_bind_int(stmt, ":endpoint_id", x->endpoint_id);
    store_bind_int(stmt, ":from", x->from);
    store_bind_int(stmt, ":to", x->to);
    store_bind_int(stmt, ":limit", RESEND_PAGE);
    x->n = 0;
    x->looked_at = 0;
    x->last = x->after;
    enum rl_rc rc = store_step(stmt, &row, err);
    for (; rc == RL_OK && row; rc = store_step(stmt, &row, err)) {
        x->last = store_col_int(stmt, 0);
        x->looked_at++;
        if (store_col_int(stmt, 1))
            x->ids[x->n++] = x->last;
    }
    return rc;
}

static enum rl_rc renew_batch(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct resend_many *x = arg;

    enum rl_rc rc = store_admit(tasks_store(x->tasks), err);

    x->batch = 0;
    for (size_t i = x->at; rc == RL_OK && i < x->n && i < x->at + RESEND_BATCH; i++)
        rc = renew(x->tasks, conn, x->ids[i], "FAILED", &x->batch, err);
    return rc;
}

/* What is wanted of the FAILED duties, page by page; only the renewing is the writer's work.
 * *ret_more: the end was not reached. It fails only when nothing was renewed: what was, is to be
 * told. */
static enum rl_rc renew_all(struct resend_many *x, int64_t *ret_count, bool *ret_more,
                            struct rl_err *err)
{
    enum rl_rc rc = RL_OK;
    char text[300];

    do {
        rc = store_read(tasks_store(x->tasks), read_page, x, err);
        for (x->at = 0; rc == RL_OK && x->at < x->n; x->at += RESEND_BATCH) {
            rc = store_write(tasks_store(x->tasks), STORE_NORMAL, renew_batch, x, err);
            if (rc == RL_OK)
                *ret_count += x->batch;
            hub_ring(tasks_hub(x->tasks));
        }
        x->after = x->last;
    } while (rc == RL_OK && x->looked_at == RESEND_PAGE && *ret_count < RESEND_MOST);
    *ret_more = rc != RL_OK || x->looked_at == RESEND_PAGE;
    if (rc == RL_OK || *ret_count == 0)
        return rc;
    rl_log(RL_LOG_WARN, "resend_stopped", "resent=%lld code=%s reason=%s", (long long)*ret_count,
           rl_code_name(rc), rl_log_quote(err->reason, text, sizeof text));
    return RL_OK;
}

static enum rl_rc read_time(const struct rl_json *v, const char *field, int64_t *ret_ms,
                            struct rl_err *err)
{
    const char *text = NULL;
    enum rl_rc rc = rl_json_string(v, field, 1, 64, &text, err);

    if (rc == RL_OK && rl_time_parse(text, ret_ms, NULL) != RL_OK)
        rc = rl_fail_field(err, RL_INVALID_FIELD, field, "must be an RFC 3339 time");
    return rc;
}

static enum rl_rc read_range(const char *body, size_t len, struct resend_many *x,
                             struct rl_err *err)
{
    AUTO_JSON struct rl_json *root = NULL;
    bool any = false;
    enum rl_rc rc = rl_json_parse(body, len, &root, err);

    if (rc == RL_OK && rl_json_type(root) != RL_JSON_OBJECT)
        rc = rl_fail(err, RL_INVALID_FIELD, "the body must be a JSON object");
    const struct rl_json *v = rc == RL_OK ? rl_json_child(root) : NULL;
    for (; v && rc == RL_OK; v = rl_json_next(v)) {
        const char *name = rl_json_name(v), *text = rl_json_text(v);
        any = true;
        if (strcmp(name, "from") == 0)
            rc = read_time(v, "from", &x->from, err);
        else if (strcmp(name, "to") == 0)
            rc = read_time(v, "to", &x->to, err);
        else if (strcmp(name, "endpoint_id") != 0)
            rc = rl_fail_field(err, RL_INVALID_FIELD, name, "unknown field");
        else if (!text || !task_id_parse(text, strlen(text), &x->endpoint_id))
            rc = rl_fail_field(err, RL_INVALID_FIELD, "endpoint_id", "must be the id, a string");
    }
    if (rc == RL_OK && !any)
        rc = rl_fail_field(err, RL_INVALID_FIELD, "endpoint_id",
                           "one of endpoint_id, from and to is required");
    return rc;
}

enum rl_rc delivery_resend_failed(struct tasks *tasks, const struct caller *caller,
                                  const char *body, size_t len, struct rl_buf *out,
                                  struct rl_err *err)
{
    AUTO_FREE struct resend_many *x = calloc(1, sizeof *x); /* too large for a worker's stack */
    int64_t resent = 0;
    bool more = false;
    struct rl_jw w;

    if (!x)
        return rl_fail(err, RL_NO_MEMORY, "deliveries");
    x->tasks = tasks;
    x->caller = caller;
    x->endpoint_id = -1;
    x->to = INT64_MAX;
    enum rl_rc rc = read_range(body, len, x, err);
    if (rc == RL_OK)
        rc = renew_all(x, &resent, &more, err);
    if (rc != RL_OK)
        return rc;
    rl_jw_init(&w, out, false);
    rl_jw_object(&w, NULL);
    rl_jw_i64(&w, "resent", resent);
    rl_jw_bool(&w, "more", more);
    rl_jw_end_object(&w);
    return rl_buf_ok(out, err);
}
