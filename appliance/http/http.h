/* The HTTP server: CivetWeb behind one router. The only user of <civetweb.h>. */
#ifndef RL_HTTP_HTTP_H
#define RL_HTTP_HTTP_H

#include "base/rl.h"

struct tasks;
struct pool;
struct outbox;
struct http;

/* Listens on config `listen` and answers when this returns. ret_port: the port in use (of ":0", the
 * one chosen). */
enum rl_rc http_start(struct tasks *tasks, struct pool *pool, struct outbox *outbox,
                      struct http **ret_http, int *ret_port, struct rl_err *err) RL_NODISCARD;
/* readyz answers 503 with this reason from now on; NULL = ready again. The text is static. */
void http_set_unready(struct http *http, const char *reason);
/* New requests get 503, streams end; waits for requests in flight at most wait_ms, then closes. */
void http_stop(struct http *http, int64_t wait_ms);
const char *http_version(void);

#endif
