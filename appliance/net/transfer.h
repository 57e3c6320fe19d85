/* Inside net/ only: one HTTP exchange as a configured libcurl easy handle with the state its
 * callbacks keep. transfer.c fills it, net.c performs one, multi.c drives many. */
#ifndef RL_NET_TRANSFER_H
#define RL_NET_TRANSFER_H

#include "base/buf.h"
#include "net/net.h"

#include <curl/curl.h>

struct net_transfer {
    CURL *curl;                 /* owned */
    struct curl_slist *headers; /* owned */
    net_allow_fn allow;
    bool (*sink)(void *user, const void *bytes, size_t len);
    bool (*begin)(void *user, const struct net_head *head);
    bool (*tick)(void *user);
    void *user;
    struct rl_buf body;
    size_t header_bytes;  /* over every header block, 1xx and trailers included */
    size_t dropped_bytes; /* of the body, past the limit */
    bool refused;         /* `allow` said no to an address */
    bool dialled;         /* a socket was opened */
    bool begun;           /* the sink has had its first bytes */
    bool stopped;         /* the sink, begin or tick said stop */
    bool headers_too_large;
    bool no_memory;
    char last_ip[64];    /* dialled last */
    char refused_ip[64]; /* refused last */
    struct net_response response;
    net_done_fn done; /* from here: multi.c only */
    void *done_user;
    struct net_transfer *prev;
    struct net_transfer *next;
    char curl_error[CURL_ERROR_SIZE];
};

/* A ready handle for `request`, of which everything but `user` is copied. Returns new in
 * ret_transfer. RL_INVALID_FIELD for an unusable method or header, RL_NO_MEMORY. */
enum rl_rc net_transfer_new(const struct net_request *request, struct net_transfer **ret_transfer,
                            struct rl_err *err) RL_NODISCARD;
void net_transfer_free(struct net_transfer *transfer); /* and the response with it */
/* Turn libcurl's result into transfer->response. Once, when the exchange is over. */
void net_transfer_finish(struct net_transfer *transfer, CURLcode result);

#endif
