/* Which duties are due: the outbox's reads of its table. Outbox thread only. Invariants: a read
 * looks at no more rows of a host than that host may have under way, so a deep backlog of one host
 * costs and delays nobody; a page is short; every store function here may run twice and sets its
 * outputs anew. */
#include "outbox/parts.h"

#include "base/clock.h"
#include "base/crypto.h"
#include "store/store.h"

#include <string.h>

#define HOSTS_PER_PAGE 256

void outbox_duty_clear(struct outbox_duty *duty)
{
    if (duty->secret)
        rl_wipe(duty->secret, strlen(duty->secret));
    if (duty->old_secret)
        rl_wipe(duty->old_secret, strlen(duty->old_secret));
    free(duty->secret);
    free(duty->old_secret);
    free(duty->webhook_id);
    free(duty->url);
    free(duty->host);
    free(duty->body);
    *duty = (struct outbox_duty){0};
}

static enum rl_rc load_row(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct outbox_duty *duty = arg;
    int64_t outbox_id = duty->outbox_id;
    bool row = false;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_OUTBOX_LOAD);

    outbox_duty_clear(duty);
    duty->outbox_id = outbox_id;
    store_bind_int(stmt, ":outbox_id", outbox_id);
    store_bind_int(stmt, ":wall", rl_wall_ms());
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc)
        return rc;
    if (!row)
        return rl_fail(err, RL_NOT_FOUND, "no such duty");
    duty->task_id = store_col_int(stmt, 0);
    duty->round = store_col_int(stmt, 1);
    duty->webhook_id = rl_strdup(store_col_text(stmt, 2));
    duty->url = rl_strdup(store_col_text(stmt, 3));
    duty->host = rl_strdup(store_col_text(stmt, 4));
    duty->secret = rl_strdup(store_col_text(stmt, 5));
    duty->old_secret = rl_strdup(store_col_text(stmt, 10));
    bool no_old = store_col_null(stmt, 10);
    const void *body = store_col_blob(stmt, 6, &duty->body_len);
    bool lost = store_col_lost(stmt);
    duty->body = malloc(duty->body_len + 1); /* an empty body is a pointer, too */
    if (!duty->webhook_id || !duty->url || !duty->host || !duty->secret || !duty->body || lost ||
        (!no_old && !duty->old_secret))
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    if (duty->body_len)
        memcpy(duty->body, body, duty->body_len);
    duty->tries = store_col_int(stmt, 7);
    duty->max_tries = store_col_int(stmt, 8);
    duty->endpoint_id = store_col_int(stmt, 9);
    duty->expires_at = store_col_int(stmt, 11);
    return RL_OK;
}

enum rl_rc outbox_load(struct store *store, int64_t outbox_id, struct outbox_duty *ret_duty,
                       struct rl_err *err)
{
    AUTO_DUTY struct outbox_duty duty = {.outbox_id = outbox_id};
    enum rl_rc rc = store_read(store, load_row, &duty, err);

    if (rc)
        return rc;
    *ret_duty = duty;
    duty = (struct outbox_duty){0};
    return RL_OK;
}

struct page {
    const struct outbox_slots *slots; /* borrowed */
    const char *after;                /* borrowed */
    int64_t now;
    size_t room;
    /* outputs */
    int64_t *ids; /* borrowed, [room] */
    size_t n;
    bool last;
    char *cursor; /* owned */
};

/* Moves the page's cursor to the next host; page->last when there is none. */
static enum rl_rc next_host(struct store_conn *conn, struct page *page, struct rl_err *err)
{
    bool row = false;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_OUTBOX_NEXT_HOST);

    store_bind_text(stmt, ":after", page->cursor);
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc)
        return rc;
    page->last = !row;
    if (!row)
        return RL_OK;
    char *host = rl_strdup(store_col_text(stmt, 0));
    if (!host)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    store_reset(stmt); /* it borrows the old cursor */
    free(page->cursor);
    page->cursor = host;
    return RL_OK;
}

static enum rl_rc host_due(struct store_conn *conn, struct page *page, struct rl_err *err)
{
    size_t per_host = outbox_breaker_room(page->slots->breakers, page->cursor,
                                          page->slots->per_host, rl_mono_ms());
    size_t busy = outbox_slots_of_host(page->slots, page->cursor);
    size_t left = busy < per_host ? per_host - busy : 0;

    if (!left)
        return RL_OK;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_OUTBOX_HOST_DUE);
    store_bind_text(stmt, ":host", page->cursor);
    store_bind_int(stmt, ":now", page->now);
    /* of these rows at most `busy` are under way, so they hold all that may start */
    store_bind_int(stmt, ":limit", (int64_t)(busy + left));
    while (left > 0 && page->n < page->room) {
        bool row = false;
        enum rl_rc rc = store_step(stmt, &row, err);
        if (rc || !row)
            return rc;
        int64_t id = store_col_int(stmt, 0);
        if (outbox_slots_hold(page->slots, id))
            continue;
        page->ids[page->n++] = id;
        left--;
    }
    return RL_OK;
}

static enum rl_rc read_page(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct page *page = arg;

    free(page->cursor);
    page->n = 0;
    page->last = false;
    page->cursor = rl_strdup(page->after);
    if (!page->cursor)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    for (int visited = 0; visited < HOSTS_PER_PAGE && page->n < page->room; visited++) {
        enum rl_rc rc = next_host(conn, page, err);
        if (rc || page->last)
            return rc;
        rc = host_due(conn, page, err);
        if (rc)
            return rc;
    }
    return RL_OK;
}

enum rl_rc outbox_walk_page(struct store *store, struct outbox_walk *walk,
                            const struct outbox_slots *slots, int64_t now, int64_t *ids,
                            size_t room, size_t *ret_count, struct rl_err *err)
{
    struct page page = {.slots = slots,
                        .after = walk->cursor ? walk->cursor : "",
                        .now = now,
                        .room = room,
                        .ids = ids};
    enum rl_rc rc = store_read(store, read_page, &page, err);

    if (rc || page.last) {
        free(page.cursor);
        page.cursor = NULL;
    }
    if (rc)
        return rc;
    free(walk->cursor);
    walk->cursor = page.cursor;
    walk->active = !page.last;
    *ret_count = page.n;
    return RL_OK;
}

struct timer {
    int64_t now;
    int64_t wait_ms;
};

static enum rl_rc read_timer(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct timer *timer = arg;
    int64_t next_at = 0;
    struct store_stmt *stmt = store_stmt(conn, SQL_OUTBOX_TIMER);

    store_bind_int(stmt, ":now", timer->now);
    enum rl_rc rc = store_int(stmt, -1, &next_at, err);
    timer->wait_ms = next_at < 0 ? -1 : next_at - timer->now;
    return rc;
}

enum rl_rc outbox_timer(struct store *store, int64_t now, int64_t *ret_wait_ms, struct rl_err *err)
{
    struct timer timer = {.now = now};
    enum rl_rc rc = store_read(store, read_timer, &timer, err);

    if (rc)
        return rc;
    *ret_wait_ms = timer.wait_ms;
    return RL_OK;
}
