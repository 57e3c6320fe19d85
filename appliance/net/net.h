/* HTTP client calls: the only user of libcurl. Serves the outbox (many at once, fail-closed
 * addresses) and the command line (one at a time). Never follows redirects, never uses a proxy from
 * the environment, never writes outside its response limit. */
#ifndef RL_NET_NET_H
#define RL_NET_NET_H

#include "base/rl.h"

struct sockaddr;

enum rl_rc net_init(struct rl_err *err) RL_NODISCARD; /* once per process, before threads */
void net_cleanup(void);
const char *net_version(void);

/* Decides on the binary address that is about to be dialled, after name resolution: false refuses.
 * Called on the thread that drives the transfer. */
typedef bool (*net_allow_fn)(void *user, const struct sockaddr *addr);

struct net_request {
    const char *method; /* "GET", "POST", … */
    const char *url;    /* http or https; checked with net_url_check by whoever accepted it */
    const char *const *headers; /* "Name: value" strings without control bytes, NULL-terminated; may be NULL */
    const void *body;           /* NULL = none */
    size_t body_len;
    int64_t timeout_ms;         /* whole exchange; 0 = none (command line streaming) */
    int64_t connect_timeout_ms;
    size_t response_limit; /* bytes of the answer kept; the rest is read and dropped up to 1 MiB, then cut */
    net_allow_fn allow;    /* NULL = any */
    void *user;            /* for allow and sink */
    /* When set, body bytes go here instead of into the response (no limit); false stops. */
    bool (*sink)(void *user, const void *bytes, size_t len);
};

struct net_response {
    enum rl_rc rc;  /* RL_OK = an HTTP answer arrived, whatever its status; else why not:
                     * RL_NETWORK_ERROR, RL_ADDRESS_REFUSED, RL_REQUEST_TIMEOUT */
    int status;     /* 0 without an answer */
    char *body;     /* owned; NUL-terminated; at most response_limit bytes */
    size_t body_len;
    bool truncated;
    int64_t retry_after_s; /* -1 = none (seconds or HTTP date, clamped to 0..86400) */
    char ip[64];           /* address that was dialled, "" if none */
    int64_t duration_ms;
    char location[256];     /* Location header, "" */
    char content_type[128]; /* "" */
    char error[256];        /* one line when rc != RL_OK */
};
void net_response_free(struct net_response *response); /* frees what it owns, not the struct */

/* One exchange, blocking. Returns response->rc. Any thread. */
enum rl_rc net_call(const struct net_request *request, struct net_response *ret_response);

/* Many exchanges, driven by one thread (but net_multi_wake: any thread). */
struct net_multi;
typedef void (*net_done_fn)(void *user, struct net_response *response); /* frees the response afterwards itself: borrowed */
struct net_multi *net_multi_new(void); /* NULL when memory is short */
void net_multi_free(struct net_multi *multi); /* aborts what is under way without calling done */
/* Everything in `request` is copied. done is called from net_multi_poll. */
enum rl_rc net_multi_add(struct net_multi *multi, const struct net_request *request,
                         net_done_fn done, void *done_user, struct rl_err *err) RL_NODISCARD;
/* Drive transfers; returns after progress, a wake or wait_ms. */
void net_multi_poll(struct net_multi *multi, int64_t wait_ms);
void net_multi_wake(struct net_multi *multi);
size_t net_multi_active(const struct net_multi *multi);

/* Parse and normalise an outgoing URL: http/https only, no user:password, host present, port not 0,
 * no control bytes or spaces, at most 2,048 bytes. ret_url: returns new. endpoint: "scheme://host:port"
 * into endpoint[size] (lower case, explicit port). RL_INVALID_FIELD naming `field`. */
enum rl_rc net_url_check(const char *url, const char *field, char **ret_url, char *endpoint,
                         size_t endpoint_size, struct rl_err *err) RL_NODISCARD;

#endif
