/* HTTP client calls: the only user of libcurl. Serves the outbox (many at once, fail-closed
 * addresses) and the command line (one at a time). Never follows redirects unless told to, never
 * uses a proxy from the environment, never writes outside its response limit. */
#ifndef RL_NET_NET_H
#define RL_NET_NET_H

#include "base/rl.h"

struct sockaddr;

/* Once per process, before threads. The process must ignore SIGPIPE: libcurl is told to leave
 * signals alone. RL_INTERNAL when this libcurl cannot bound name resolution or has no TLS. */
enum rl_rc net_init(struct rl_err *err) RL_NODISCARD;
void net_cleanup(void);
const char *net_version(void);

/* Decides on the binary address that is about to be dialled, after name resolution: false refuses.
 * Called on the thread that drives the transfer. */
typedef bool (*net_allow_fn)(void *user, const struct sockaddr *addr);

/* How a 2xx answer begins. */
struct net_head {
    int status;
    int64_t length;            /* of the body as announced; -1 = not said */
    const char *etag;          /* borrowed for the call, as are the others; NULL = none */
    const char *content_range; /* the field's value; NULL = none */
};

struct net_request {
    const char *method; /* "GET", "POST", … */
    const char *url;    /* http or https; checked with net_url_check by whoever accepted it */
    const char *const *headers; /* "Name: value" strings, NULL-terminated list; may be NULL. A line
                                 * with a control byte or without a name is refused */
    const void *body;           /* NULL = none */
    size_t body_len;
    int64_t timeout_ms;         /* whole exchange; 0 = none (command line streaming) */
    int64_t connect_timeout_ms; /* name resolution, TCP and TLS; 0 = 30 s */
    size_t response_limit; /* bytes of the answer kept; the rest is read and dropped up to 1 MiB,
                              then cut */
    net_allow_fn allow;    /* NULL = any */
    void *user;            /* for allow and the four below */
    /* When set, the body of a 2xx answer goes here instead of into the response (no limit); false
     * stops (RL_CANCELED). Other answers stay in the response, so that an error page never ends up
     * in a file. */
    bool (*sink)(void *user, const void *bytes, size_t len);
    /* With sink, before its first call; false stops as there. */
    bool (*begin)(void *user, const struct net_head *head);
    /* About once a second and more often, whatever arrives; false stops as there. */
    bool (*tick)(void *user);
    int64_t stall_timeout_ms; /* whole seconds: nothing has arrived for so long; 0 = none */
    int redirects;            /* followed at most; never from https to http */
};

struct net_response {
    enum rl_rc rc; /* RL_OK = an HTTP answer arrived, whatever its status; else why not:
                    * RL_NETWORK_ERROR, RL_ADDRESS_REFUSED, RL_REQUEST_TIMEOUT, RL_CANCELED (the
                    * sink said stop), RL_INVALID_FIELD (the request was unusable), RL_NO_MEMORY */
    int status;    /* 0 without an answer; set although rc != RL_OK when the answer broke off */
    char *body;    /* owned; NUL-terminated; at most response_limit bytes; never NULL when RL_OK */
    size_t body_len;
    bool redirect_refused; /* one too many, or away from https */
    bool truncated;        /* the answer was longer; what happened to the rest does not change rc */
    int64_t retry_after_s; /* -1 = none (seconds or HTTP date, clamped to 0..86400) */
    char ip[64];           /* address that was dialled last, "" if none */
    int64_t duration_ms;
    char location[256];     /* Location header, "": printable ASCII, others as '?', cut to fit */
    char content_type[128]; /* the same */
    char error[256];        /* one line when rc != RL_OK; holds no path and no query */
};
void net_response_free(struct net_response *response); /* frees what it owns, not the struct */

/* One exchange, blocking. Returns response->rc. Any thread. ret_response is always filled and is
 * freed with net_response_free. */
enum rl_rc net_call(const struct net_request *request, struct net_response *ret_response);

/* Many exchanges, driven by one thread (but net_multi_wake: any thread). */
struct net_multi;
/* The response is borrowed until done returns. done may call net_multi_add, not net_multi_free. */
typedef void (*net_done_fn)(void *user, struct net_response *response);
struct net_multi *net_multi_new(void);        /* NULL when memory is short */
void net_multi_free(struct net_multi *multi); /* aborts what is under way without calling done */
/* Everything in `request` is copied. done is called from net_multi_poll, exactly once.
 * RL_INVALID_FIELD for an unusable method or header, RL_NO_MEMORY. */
enum rl_rc net_multi_add(struct net_multi *multi, const struct net_request *request,
                         net_done_fn done, void *done_user, struct rl_err *err) RL_NODISCARD;
/* Drive transfers; returns after progress, a wake or wait_ms (a wake before the call counts). */
void net_multi_poll(struct net_multi *multi, int64_t wait_ms);
void net_multi_wake(struct net_multi *multi);
size_t net_multi_active(const struct net_multi *multi);

/* Parse and normalise an outgoing URL: http/https only, no user:password, host present and ASCII,
 * port not 0, no control bytes or spaces, at most 2,048 bytes. ret_url: returns new: ASCII,
 * lower-case scheme and host, numeric IPv4 hosts in dotted form, no default port, no fragment.
 * endpoint: "scheme://host:port" into endpoint[size] (lower case, explicit port). Either may be
 * NULL. RL_INVALID_FIELD naming `field`, RL_NO_MEMORY. Says nothing about where the host leads. */
enum rl_rc net_url_check(const char *url, const char *field, char **ret_url, char *endpoint,
                         size_t endpoint_size, struct rl_err *err) RL_NODISCARD;
#define NET_ENDPOINT_MAX 288 /* room for every endpoint that net_url_check accepts */

/* Address helpers for a policy. They judge the binary address; forms of IPv6 that only wrap an IPv4
 * address (::ffff:a.b.c.d, ::a.b.c.d, NAT64 64:ff9b::/96, 6to4 2002::/16) are judged by that
 * address. Pure and thread-safe; sockaddr of any family is taken. Fail-closed: what is no IPv4 or
 * IPv6 address counts as "unspecified or multicast". */

/* 169.254/16 (cloud metadata lives there), fe80::/10. */
bool net_addr_is_link_local(const struct sockaddr *addr);
/* 127/8 and ::1, also as ::ffff:127.x, which the kernel treats alike. The other wrapped forms are
 * sent to the network and are therefore no loopback. */
bool net_addr_is_loopback(const struct sockaddr *addr);
/* 0/8, 224/4, 240/4 (broadcast with it), ::, ff00::/8: never the other end of a connection. */
bool net_addr_is_unspecified_or_multicast(const struct sockaddr *addr);
/* Loopback (every wrapped form), unspecified, or an address of an interface of this host (asked of
 * the kernel at every call). true when the kernel cannot tell. */
bool net_addr_is_local_interface(const struct sockaddr *addr);
/* Port in host order; -1 when the family has none. */
int net_addr_port(const struct sockaddr *addr);

#endif
