/* Many exchanges on one thread over a libcurl multi handle. Owns every transfer from net_multi_add
 * until its done call has returned. All functions run on the one driving thread, but
 * net_multi_wake, which any thread may call between net_multi_new and net_multi_free. Invariant: a
 * transfer is in the list exactly as long as it is in the multi handle, and done is called once for
 * each, never from inside libcurl. */
#include "net/transfer.h"

#include <limits.h>

struct net_multi {
    CURLM *curl;                /* owned */
    struct net_transfer *first; /* owned list */
    size_t active;              /* its length */
};

struct net_multi *net_multi_new(void)
{
    AUTO_FREE struct net_multi *m = calloc(1, sizeof *m);

    if (!m || !(m->curl = curl_multi_init()))
        return NULL;
    return STEAL(m);
}

/* Take the transfer out of libcurl's hands and out of the list. */
static void detach(struct net_multi *m, struct net_transfer *t)
{
    (void)curl_multi_remove_handle(m->curl, t->curl); /* fails only for a foreign handle */
    if (t->prev)
        t->prev->next = t->next;
    else
        m->first = t->next;
    if (t->next)
        t->next->prev = t->prev;
    m->active--;
}

static void complete(struct net_multi *m, struct net_transfer *t, CURLcode result)
{
    net_transfer_finish(t, result); /* before the handle loses its connection's data */
    detach(m, t);
    t->done(t->done_user, &t->response);
    net_transfer_free(t);
}

void net_multi_free(struct net_multi *m)
{
    if (!m)
        return;
    while (m->first) {
        struct net_transfer *t = m->first;
        detach(m, t);
        net_transfer_free(t);
    }
    (void)curl_multi_cleanup(m->curl); /* nothing is left that could fail */
    free(m);
}

enum rl_rc net_multi_add(struct net_multi *m, const struct net_request *request, net_done_fn done,
                         void *done_user, struct rl_err *err)
{
    struct net_transfer *t = NULL;
    enum rl_rc rc = net_transfer_new(request, &t, err);

    if (rc)
        return rc;
    if (curl_multi_add_handle(m->curl, t->curl)) {
        net_transfer_free(t);
        return rl_fail(err, RL_NO_MEMORY, "no memory for a request");
    }
    t->done = done;
    t->done_user = done_user;
    t->next = m->first;
    if (t->next)
        t->next->prev = t;
    m->first = t;
    m->active++;
    return RL_OK;
}

/* Let libcurl work, then deliver what has ended. Returns whether anything has. */
static bool advance(struct net_multi *m)
{
    bool delivered = false;
    int running = 0;
    int left = 0;
    CURLMsg *message = NULL;

    if (curl_multi_perform(m->curl, &running) != CURLM_OK) {
        /* Memory ran out inside libcurl: nobody would ever end these. New ones that a done call
         * adds stand before `first` and are left for the next round. */
        for (size_t n = m->active; n > 0; n--) {
            struct net_transfer *last = m->first;
            while (last->next)
                last = last->next;
            complete(m, last, CURLE_OUT_OF_MEMORY);
        }
        return true;
    }
    while ((message = curl_multi_info_read(m->curl, &left))) {
        struct net_transfer *t = NULL;
        CURLcode result = message->data.result; /* the message dies with its handle */
        if (message->msg != CURLMSG_DONE ||
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&t) || !t)
            continue;
        complete(m, t, result);
        delivered = true;
    }
    return delivered;
}

void net_multi_poll(struct net_multi *m, int64_t wait_ms)
{
    int timeout_ms = 0;

    if (advance(m))
        return;
    if (wait_ms > 0)
        timeout_ms = wait_ms < INT_MAX ? (int)wait_ms : INT_MAX;
    /* A failure here shows again in curl_multi_perform, which is where it is handled. */
    (void)curl_multi_poll(m->curl, NULL, 0, timeout_ms, NULL);
    (void)advance(m); /* whether something ended or not, the caller has its turn now */
}

void net_multi_wake(struct net_multi *m)
{
    (void)curl_multi_wakeup(m->curl); /* fails only when a wake is pending already */
}

size_t net_multi_active(const struct net_multi *m)
{
    return m->active;
}
