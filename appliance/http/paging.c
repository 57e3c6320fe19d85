/* The query parameters that every list takes. Pure, over a decoded query; runs on the worker. */
#include "http/request.h"

#include <string.h>

#define LIMIT_DEFAULT 50
#define LIMIT_MAX     200

enum rl_rc statuses_parse(const char *text, unsigned *ret_mask, struct rl_err *err)
{
    unsigned mask = 0;
    for (const char *p = text;; p++) {
        char name[16];
        size_t len = strcspn(p, ",");
        enum task_status status;
        if (len == 0 || len >= sizeof(name))
            return rl_fail_field(err, RL_INVALID_FIELD, "status",
                                 "a list of state names, as QUEUED,FAILED");
        memcpy(name, p, len);
        name[len] = '\0';
        if (!task_status_parse(name, &status))
            return rl_fail_field(err, RL_INVALID_FIELD, "status", "no such state: %s", name);
        mask |= 1u << status;
        p += len;
        if (!*p)
            break;
    }
    *ret_mask = mask;
    return RL_OK;
}

enum rl_rc page_common(const struct query *query, bool ascending, struct page_query *ret_page,
                       struct rl_err *err)
{
    struct page_query page = {.limit = LIMIT_DEFAULT, .ascending = ascending};
    const char *text = query_get(query, "limit");
    int64_t number;
    if (text) {
        if (!task_id_parse(text, strlen(text), &number) || number > LIMIT_MAX)
            return rl_fail_field(err, RL_INVALID_FIELD, "limit", "must be a number from 1 to %d",
                                 LIMIT_MAX);
        page.limit = (int)number;
    }
    text = query_get(query, "after");
    if (text && strcmp(text, "0") != 0 && !task_id_parse(text, strlen(text), &page.after))
        return rl_fail_field(err, RL_INVALID_FIELD, "after",
                             "must be the `next` of the page before");
    text = query_get(query, "order");
    if (text) {
        page.ascending = !strcmp(text, "asc");
        if (!page.ascending && strcmp(text, "desc") != 0)
            return rl_fail_field(err, RL_INVALID_FIELD, "order", "must be asc or desc");
    }
    *ret_page = page;
    return RL_OK;
}

enum rl_rc page_parse(const struct query *query, bool with_status, bool ascending,
                      struct page_query *ret_page, struct rl_err *err)
{
    static const char *const names[] = {"limit", "after", "order", "status", NULL};
    static const char *const names_plain[] = {"limit", "after", "order", NULL};
    struct page_query page;
    enum rl_rc rc = query_only(query, with_status ? names : names_plain, err);
    if (rc == RL_OK)
        rc = page_common(query, ascending, &page, err);
    const char *text = query_get(query, "status");
    if (rc == RL_OK && text)
        rc = statuses_parse(text, &page.statuses, err);
    if (rc != RL_OK)
        return rc;
    *ret_page = page;
    return RL_OK;
}
