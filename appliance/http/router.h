/* Finding the route of a request in a static table. Pure. */
#ifndef RL_HTTP_ROUTER_H
#define RL_HTTP_ROUTER_H

#include "base/rl.h"

struct request;

enum route_auth {
    ROUTE_OPEN,   /* no credentials */
    ROUTE_USER,   /* a key or a session */
    ROUTE_OWNER,  /* of an owner */
    ROUTE_SIGNED, /* a user, or the signature in the query */
    ROUTE_METRICS /* a user, unless http.metrics_open */
};
/* Answers the request; not RL_OK: `err` is what the router answers instead. */
typedef enum rl_rc (*route_fn)(struct request *request, struct rl_err *err);

struct route {
    const char *method;  /* GET also answers HEAD unless no_head */
    const char *pattern; /* "/api/v1/tasks/{id}/video": {…} takes one whole segment */
    enum route_auth auth;
    route_fn handler;
    bool no_head;
};

#define ROUTE_PARAM 72 /* room for an id or a queue's name */
struct route_match {
    const struct route *route; /* NULL: not found, or no such method */
    bool path_known;
    char param[ROUTE_PARAM]; /* text of the {…} segment, verbatim; "" if none */
    char allow[64];          /* "GET, HEAD, POST, OPTIONS" when the path is known */
};
void router_find(const struct route *routes, size_t count, const char *method, const char *path,
                 struct route_match *ret_match);

/* The table itself (routes.c). */
const struct route *http_routes(size_t *ret_count);

#endif
