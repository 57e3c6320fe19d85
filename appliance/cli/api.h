/* Paths of the REST API that several commands need (http/routes.c serves them). */
#ifndef RL_CLI_API_H
#define RL_CLI_API_H

#define API_SIGN_IN      "/sign-in?token=" /* + a token of purpose "link" */
#define API_TASKS        "/api/v1/tasks"
#define API_DEAD_LETTERS "/api/v1/dead-letters"
#define API_FEEDS        "/api/v1/feeds"
#define API_QUEUES       "/api/v1/queues"
#define API_WORKERS      "/api/v1/workers"
#define API_STATS        "/api/v1/stats"
#define API_REPAIR       "/api/v1/repair"
#define API_KEYS         "/api/v1/keys"
#define API_SESSION_LINK "/api/v1/session/link"
#define API_SECRET       "/api/v1/callback-secret"
#define API_ENGINES      "/api/v1/engines"
#define API_BACKUP       "/api/v1/backup"
#define API_HOOKS        "/api/v1/hooks"
#define API_ENDPOINTS    "/api/v1/endpoints"
#define API_DELIVERIES   "/api/v1/deliveries"

#endif
