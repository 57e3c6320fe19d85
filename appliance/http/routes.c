/* The one list of what this server answers. schema/openapi.yaml describes it; a test compares the
 * two. Read-only. */
#include "http/request.h"

/* clang-format off */
static const struct route routes[] = {
    {"POST",   "/api/v1/tasks",                     ROUTE_USER,    http_task_submit,      false},
    {"GET",    "/api/v1/tasks",                     ROUTE_USER,    http_task_list,        false},
    {"GET",    "/api/v1/tasks/{id}",                ROUTE_USER,    http_task_get,         false},
    {"GET",    "/api/v1/tasks/{id}/events",         ROUTE_USER,    http_task_events,      false},
    {"POST",   "/api/v1/tasks/{id}/cancel",         ROUTE_USER,    http_task_cancel,      false},
    {"POST",   "/api/v1/tasks/{id}/link",           ROUTE_USER,    http_task_link,        false},
    {"GET",    "/api/v1/tasks/{id}/video",          ROUTE_SIGNED,  http_task_video,       false},
    {"GET",    "/api/v1/tasks/{id}/poster",         ROUTE_SIGNED,  http_task_poster,      false},
    {"GET",    "/api/v1/dead-letters",              ROUTE_USER,    http_dead_list,        false},
    {"POST",   "/api/v1/dead-letters/replay",       ROUTE_USER,    http_dead_replay_many, false},
    {"POST",   "/api/v1/dead-letters/{id}/replay",  ROUTE_USER,    http_dead_replay,      false},
    {"DELETE", "/api/v1/dead-letters/{id}",         ROUTE_USER,    http_dead_dismiss,     false},
    {"GET",    "/api/v1/tasks/{id}/deliveries",     ROUTE_USER,    http_task_deliveries,  false},
    {"GET",    "/api/v1/endpoints",                 ROUTE_USER,    http_endpoint_list,    false},
    {"POST",   "/api/v1/endpoints",                 ROUTE_USER,    http_endpoint_create,  false},
    {"GET",    "/api/v1/endpoints/{id}",            ROUTE_USER,    http_endpoint_get,     false},
    {"PATCH",  "/api/v1/endpoints/{id}",            ROUTE_USER,    http_endpoint_update,  false},
    {"DELETE", "/api/v1/endpoints/{id}",            ROUTE_USER,    http_endpoint_delete,  false},
    {"POST",   "/api/v1/endpoints/{id}/rotate",     ROUTE_USER,    http_endpoint_rotate,  false},
    {"POST",   "/api/v1/endpoints/{id}/test",       ROUTE_USER,    http_endpoint_test,    false},
    {"POST",   "/api/v1/endpoints/{id}/enable",     ROUTE_USER,    http_endpoint_enable,  false},
    {"POST",   "/api/v1/endpoints/{id}/disable",    ROUTE_USER,    http_endpoint_disable, false},
    {"GET",    "/api/v1/deliveries",                ROUTE_USER,    http_delivery_list,    false},
    {"POST",   "/api/v1/deliveries/resend",         ROUTE_USER,    http_deliveries_resend, false},
    {"POST",   "/api/v1/deliveries/{id}/resend",    ROUTE_USER,    http_delivery_resend,  false},
    {"GET",    "/api/v1/feeds",                     ROUTE_USER,    http_feed_list,        false},
    {"GET",    "/api/v1/feeds/{name}",              ROUTE_USER,    http_feed_read,        true },
    {"PUT",    "/api/v1/feeds/{name}",              ROUTE_USER,    http_feed_create,      false},
    {"DELETE", "/api/v1/feeds/{name}",              ROUTE_USER,    http_feed_delete,      false},
    {"GET",    "/api/v1/feeds/{name}/state",        ROUTE_USER,    http_feed_state,       false},
    {"POST",   "/api/v1/feeds/{name}/ack",          ROUTE_USER,    http_feed_ack,         false},
    {"POST",   "/api/v1/feeds/{name}/extend",       ROUTE_USER,    http_feed_extend,      false},
    {"POST",   "/api/v1/feeds/{name}/seek",         ROUTE_USER,    http_feed_seek,        false},
    {"GET",    "/api/v1/queues",                    ROUTE_USER,    http_queue_list,       false},
    {"POST",   "/api/v1/queues/{name}/pause",       ROUTE_OWNER,   http_queue_pause,      false},
    {"POST",   "/api/v1/queues/{name}/resume",      ROUTE_OWNER,   http_queue_resume,     false},
    {"POST",   "/api/v1/queues/{name}/drain",       ROUTE_OWNER,   http_queue_drain,      false},
    {"GET",    "/api/v1/events",                    ROUTE_USER,    http_events,           true },
    {"GET",    "/api/v1/ws",                        ROUTE_USER,    http_socket,           true },
    {"GET",    "/api/v1/workers",                   ROUTE_USER,    http_workers,          false},
    {"POST",   "/api/v1/repair",                    ROUTE_OWNER,   http_repair,           false},
    {"GET",    "/api/v1/stats",                     ROUTE_OWNER,   http_stats,            false},
    {"GET",    "/api/v1/engines",                   ROUTE_USER,    http_engines,          false},
    {"GET",    "/api/v1/keys",                      ROUTE_OWNER,   http_key_list,         false},
    {"POST",   "/api/v1/keys",                      ROUTE_OWNER,   http_key_add,          false},
    {"DELETE", "/api/v1/keys/{id}",                 ROUTE_OWNER,   http_key_revoke,       false},
    {"POST",   "/api/v1/session",                   ROUTE_OPEN,    http_session_create,   false},
    {"GET",    "/api/v1/session",                   ROUTE_USER,    http_session_get,      false},
    {"DELETE", "/api/v1/session",                   ROUTE_OPEN,    http_session_delete,   false},
    {"POST",   "/api/v1/session/link",              ROUTE_USER,    http_session_link,     false},
    {"GET",    "/api/v1/callback-secret",           ROUTE_USER,    http_callback_secret,  false},
    {"GET",    "/api/v1/backup",                    ROUTE_OWNER,   http_backup,           true},
    {"GET",    "/sign-in",                          ROUTE_OPEN,    http_sign_in,          true},
    {"GET",    "/healthz",                          ROUTE_OPEN,    http_health,           false},
    {"GET",    "/readyz",                           ROUTE_OPEN,    http_ready,            false},
    {"GET",    "/metrics",                          ROUTE_METRICS, http_metrics,          false},
    {"GET",    "/openapi.json",                     ROUTE_OPEN,    http_openapi,          false},
    {"GET",    "/",                                 ROUTE_OPEN,    http_index,            false},
};
/* clang-format on */

const struct route *http_routes(size_t *ret_count)
{
    *ret_count = RL_ARRAY_LEN(routes);
    return routes;
}
