/* Where the server is, which key opens it, and one REST call. */
#ifndef RL_CLI_CLIENT_H
#define RL_CLI_CLIENT_H

#include "base/json.h"
#include "cli/args.h"
#include "net/net.h"

#include <signal.h>

/* Everything the search for a server looks at; NULL or "" = not given. */
struct cli_places {
    const char *url, *key, *state_dir;             /* the options */
    const char *env_url, *env_key, *env_state_dir; /* REELD_URL, REELD_API_KEY, REELD_STATE_DIR */
    const char *default_dir;                       /* "/var/lib/reeld" */
};

struct cli_client {
    char *url; /* owned; "http://host:port", no slash at the end */
    char *key; /* owned; NULL = none found */
    bool loopback;
};

/* Server: --url, --state-dir's `url` file, REELD_URL, REELD_STATE_DIR's, the default folder's, else
 * http://127.0.0.1:8080. A folder that was named but holds no `url` file: RL_UNAVAILABLE (nothing
 * runs on it), for it would be wrong to talk to another server instead. Key: --key, REELD_API_KEY,
 * the `owner.key` of a named folder, else that of the default folder, which only a loopback server
 * gets. RL_BAD_REQUEST: not a URL, or an unusable key. */
enum rl_rc cli_client_find(const struct cli_places *places, struct cli_client *ret_client,
                           struct rl_err *err) RL_NODISCARD;
void cli_client_free(struct cli_client *client);
static inline void cli_client_free_ptr(struct cli_client *client)
{
    cli_client_free(client);
}
#define AUTO_CLIENT __attribute__((cleanup(cli_client_free_ptr)))
/* The state folder that is meant: --state-dir, REELD_STATE_DIR, else the packaged service's. */
const char *cli_state_dir(const struct cli_args *args);
/* From the options and the environment; complains itself. CLI_OK or the exit status. */
int cli_client_open(const struct cli_args *args, struct cli_client *ret_client);

struct cli_reply {
    struct net_response http;
    struct rl_json *json; /* the body when it is JSON, else NULL; owned */
};
void cli_reply_free(struct cli_reply *reply);
static inline void cli_reply_free_ptr(struct cli_reply *reply)
{
    cli_reply_free(reply);
}
#define AUTO_REPLY __attribute__((cleanup(cli_reply_free_ptr)))

struct cli_request {
    const char *method; /* NULL = GET */
    const char *path;   /* "/api/v1/…" */
    const char *body;   /* JSON; NULL = none */
    const char *header; /* one more "Name: value"; NULL = none */
    int64_t timeout_ms; /* 0 = 30 s; -1 = none */
    bool (*sink)(void *user, const void *bytes, size_t len);
    void *user;
};
/* One exchange; silent. Fills ret_reply whatever happens; returns cli_exit_of it. */
int cli_call_quiet(const struct cli_client *client, const struct cli_request *request,
                   struct cli_reply *ret_reply);
/* The same, complaining on stderr unless it returns CLI_OK. */
int cli_call(const struct cli_client *client, const struct cli_request *request,
             struct cli_reply *ret_reply);
/* Find the server of these options and make one call; complains unless it returns CLI_OK. */
int cli_ask(const struct cli_args *args, const struct cli_request *request,
            struct cli_reply *ret_reply);
/* --json was given, or standard output is no terminal: a script reads the server's own JSON. */
bool cli_wants_json(const struct cli_args *args);
/* Exit status of an answer (rc: of the exchange): 2xx CLI_OK, 4xx CLI_REFUSED, no answer
 * CLI_UNREACHABLE, else CLI_SERVER. */
int cli_exit_of(enum rl_rc rc, int status);
/* The lines that explain a reply that is no success, "422 INVALID_FIELD: prompt: must not be
 * empty"; for stderr. */
void cli_explain(const struct cli_client *client, const struct cli_reply *reply, FILE *out);
/* "reeld: the server's answer is not understood"; returns CLI_SERVER. */
int cli_not_understood(void);

/* Members of an answer: NULL / fallback when absent or of another type. */
const char *cli_member(const struct rl_json *object, const char *name);
int64_t cli_member_int(const struct rl_json *object, const char *name, int64_t fallback);
double cli_member_real(const struct rl_json *object, const char *name, double fallback);

/* "<base>/<id><tail>" into path[size]; false when it is no id of a `kind`, "task" (complains). */
bool cli_id_path(const char *kind, const char *base, const char *id, const char *tail, char *path,
                 size_t size);
/* The same for API_TASKS. */
bool cli_task_path(const char *id, const char *tail, char *path, size_t size);

/* The signals by which a person or a service manager ends a program: SIGINT, SIGTERM, and SIGHUP
 * unless it was ignored before (nohup). */
void cli_end_signals(sigset_t *set);
/* Wait ms with SIGINT, SIGTERM and SIGHUP blocked by cli_signals_hold; true when one of them came.
 */
bool cli_wait(int64_t ms);
void cli_signals_hold(void);
void cli_signals_release(void);

#endif
