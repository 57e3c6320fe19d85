/* The client side of the REST API: finds server and key, makes one call, explains what went wrong.
 * One thread; owns nothing between calls. */
#include "cli/client.h"

#include "base/crypto.h"
#include "base/fs.h"
#include "cli/api.h"
#include "cli/commands.h"
#include "cli/term.h"

#include <arpa/inet.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_LIMIT ((size_t)16 << 20)
#define DEFAULT_URL  "http://127.0.0.1:8080"
#define DEFAULT_DIR  "/var/lib/reeld"

static bool given(const char *text)
{
    return text && *text;
}

/* First line of DIR/name, without its end; NULL when it is not there or not readable. Returns new.
 */
static char *read_line(const char *dir, const char *name)
{
    char path[1200];
    char *text = NULL;
    size_t len;

    if (!given(dir) || snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
        return NULL;
    if (rl_fs_read(path, 4096, &text, &len, NULL))
        return NULL;
    text[strcspn(text, "\r\n")] = '\0';
    if (!*text) {
        free(text);
        return NULL;
    }
    return text;
}

/* The server's address as text; *ret_dir_missing names a folder that was asked for and has none. */
static char *choose_url(const struct cli_places *p, const char **ret_dir_missing)
{
    if (given(p->url))
        return rl_strdup(p->url);

    const char *named = given(p->state_dir) ? p->state_dir
                        : given(p->env_url) ? NULL
                                            : p->env_state_dir;
    if (given(named)) {
        char *url = read_line(named, "url");
        if (!url)
            *ret_dir_missing = named;
        return url;
    }
    if (given(p->env_url))
        return rl_strdup(p->env_url);
    char *url = read_line(p->default_dir, "url");
    return url ? url : rl_strdup(DEFAULT_URL);
}

/* endpoint: "scheme://host:port", normalised. Only a literal address counts, but for "localhost".
 */
static bool is_loopback(const char *endpoint)
{
    const char *host = strstr(endpoint, "://");
    const char *colon = strrchr(endpoint, ':');
    char text[64];
    struct in_addr addr;

    if (!host || colon <= host + 3 || colon - host - 3 >= (ptrdiff_t)sizeof(text))
        return false;
    (void)snprintf(text, sizeof(text), "%.*s", (int)(colon - host - 3),
                   host + 3); /* measured above */
    if (strcmp(text, "localhost") == 0 || strcmp(text, "[::1]") == 0)
        return true;
    return inet_pton(AF_INET, text, &addr) == 1 && ntohl(addr.s_addr) >> 24 == 127;
}

static char *choose_key(const struct cli_places *p, bool loopback)
{
    if (given(p->key))
        return rl_strdup(p->key);
    if (given(p->env_key))
        return rl_strdup(p->env_key);
    if (given(p->state_dir))
        return read_line(p->state_dir, "owner.key");
    /* A folder that was named for another command is no word about this server. */
    if (!loopback)
        return NULL;
    return read_line(given(p->env_state_dir) ? p->env_state_dir : p->default_dir, "owner.key");
}

enum rl_rc cli_client_find(const struct cli_places *places, struct cli_client *ret_client,
                           struct rl_err *err)
{
    const char *missing = NULL;
    char endpoint[512];
    struct rl_err why;
    struct cli_client client = {0};

    AUTO_FREE char *text = choose_url(places, &missing);
    if (missing)
        return rl_fail(err, RL_UNAVAILABLE, "no server runs on %.160s (no `url` file in it)",
                       missing);
    if (!text)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    if (net_url_check(text, "url", &client.url, endpoint, sizeof(endpoint), &why))
        return rl_fail(err, RL_BAD_REQUEST, "'%.100s' is no usable server URL: %.120s", text,
                       why.reason);
    size_t len = strlen(client.url);
    while (len > 0 && client.url[len - 1] == '/')
        client.url[--len] = '\0';

    client.loopback = is_loopback(endpoint);
    client.key = choose_key(places, client.loopback);
    for (const char *c = client.key; c && *c; c++)
        if (*c <= ' ' || *c > '~') {
            cli_client_free(&client);
            return rl_fail(err, RL_BAD_REQUEST, "the API key holds a character that no key has");
        }
    *ret_client = client;
    return RL_OK;
}

void cli_client_free(struct cli_client *client)
{
    free(client->url);
    free(client->key);
    client->url = client->key = NULL;
}

const char *cli_state_dir(const struct cli_args *args)
{
    const char *dir = cli_args_text(args, "state-dir");

    if (!given(dir))
        dir = getenv("REELD_STATE_DIR");
    return given(dir) ? dir : DEFAULT_DIR;
}

int cli_client_open(const struct cli_args *args, struct cli_client *ret_client)
{
    struct rl_err err;
    struct cli_places places = {
        .url = cli_args_text(args, "url"),
        .key = cli_args_text(args, "key"),
        .state_dir = cli_args_text(args, "state-dir"),
        .env_url = getenv("REELD_URL"),
        .env_key = getenv("REELD_API_KEY"),
        .env_state_dir = getenv("REELD_STATE_DIR"),
        .default_dir = DEFAULT_DIR,
    };

    enum rl_rc rc = cli_client_find(&places, ret_client, &err);
    if (rc == RL_OK)
        return CLI_OK;
    if (rc == RL_UNAVAILABLE)
        return cli_complain(CLI_UNREACHABLE, &err);
    return cli_complain(CLI_USAGE, &err);
}

void cli_reply_free(struct cli_reply *reply)
{
    net_response_free(&reply->http);
    rl_json_free(reply->json);
    reply->json = NULL;
}

int cli_exit_of(enum rl_rc rc, int status)
{
    if (rc != RL_OK || status == 0)
        return CLI_UNREACHABLE;
    if (status >= 200 && status < 300)
        return CLI_OK;
    return status >= 400 && status < 500 ? CLI_REFUSED : CLI_SERVER;
}

int cli_call_quiet(const struct cli_client *client, const struct cli_request *request,
                   struct cli_reply *ret_reply)
{
    AUTO_FREE char *url = NULL;
    char bearer[600];
    const char *headers[5] = {NULL};
    size_t n = 0;

    memset(ret_reply, 0, sizeof(*ret_reply));
    if (asprintf(&url, "%s%s", client->url, request->path) < 0) {
        url = NULL;
        ret_reply->http.rc = RL_NO_MEMORY;
        (void)rl_copy_str(ret_reply->http.error, sizeof(ret_reply->http.error),
                          "out of memory"); /* fits */
        return CLI_UNREACHABLE;
    }
    if (client->key && snprintf(bearer, sizeof(bearer), "Authorization: Bearer %s", client->key) <
                           (int)sizeof(bearer))
        headers[n++] = bearer;
    if (request->body)
        headers[n++] = "Content-Type: application/json";
    if (request->header)
        headers[n++] = request->header;

    struct net_request call = {
        .method = request->method ? request->method : "GET",
        .url = url,
        .headers = headers,
        .body = request->body,
        .body_len = request->body ? strlen(request->body) : 0,
        .timeout_ms = request->timeout_ms < 0 ? 0
                      : request->timeout_ms   ? request->timeout_ms
                                              : 30000,
        .connect_timeout_ms = 5000,
        .response_limit = ANSWER_LIMIT,
        .sink = request->sink,
        .user = request->user,
    };
    enum rl_rc rc = net_call(&call, &ret_reply->http);
    rl_wipe(bearer, sizeof(bearer));
    if (rc == RL_OK && ret_reply->http.body_len > 0 &&
        strstr(ret_reply->http.content_type, "json") &&
        rl_json_parse(ret_reply->http.body, ret_reply->http.body_len, &ret_reply->json, NULL))
        ret_reply->json = NULL; /* whoever needs it says that it is not understood */
    return cli_exit_of(rc, ret_reply->http.status);
}

int cli_call(const struct cli_client *client, const struct cli_request *request,
             struct cli_reply *ret_reply)
{
    int status = cli_call_quiet(client, request, ret_reply);

    if (status != CLI_OK)
        cli_explain(client, ret_reply, stderr);
    return status;
}

int cli_ask(const struct cli_args *args, const struct cli_request *request,
            struct cli_reply *ret_reply)
{
    AUTO_CLIENT struct cli_client client = {0};
    int status = cli_client_open(args, &client);

    return status == CLI_OK ? cli_call(&client, request, ret_reply) : status;
}

bool cli_wants_json(const struct cli_args *args)
{
    return cli_args_has(args, "json") || !isatty(STDOUT_FILENO);
}

static void explain_problem(const struct cli_reply *reply, FILE *out)
{
    const char *code = cli_member(reply->json, "code");
    const char *detail = cli_member(reply->json, "detail");
    const char *title = cli_member(reply->json, "title");
    const struct rl_json *errors = rl_json_get(reply->json, "errors");
    const struct rl_json *first = errors ? rl_json_child(errors) : NULL;

    if (!first) {
        fprintf(out, "reeld: %d ", reply->http.status);
        cli_put(out, code ? code : "error");
        fputs(": ", out);
        cli_put(out, detail ? detail : title ? title : "no reason given");
        fputc('\n', out);
    }
    for (const struct rl_json *e = first; e; e = rl_json_next(e)) {
        const char *field = cli_member(e, "field");
        const char *its_code = cli_member(e, "code");
        const char *its_detail = cli_member(e, "detail");
        fprintf(out, "reeld: %d ", reply->http.status);
        cli_put(out, its_code ? its_code : code ? code : "error");
        if (field && *field) {
            fputs(": ", out);
            cli_put(out, field);
        }
        fputs(": ", out);
        cli_put(out, its_detail ? its_detail : detail ? detail : "no reason given");
        fputc('\n', out);
    }
}

void cli_explain(const struct cli_client *client, const struct cli_reply *reply, FILE *out)
{
    if (reply->http.rc != RL_OK || reply->http.status == 0) {
        fprintf(out, "reeld: no answer from %s: ", client->url);
        cli_put(out, *reply->http.error ? reply->http.error : rl_code_name(reply->http.rc));
        fputs("\nreeld: is the server running? `reeld serve` starts one. Say which one is meant by "
              "--state-dir\nreeld: or REELD_STATE_DIR (its folder), or by --url or REELD_URL, and "
              "REELD_API_KEY\n",
              out);
        return;
    }
    explain_problem(reply, out);
    if (reply->http.status == 401 && !client->key)
        fputs("reeld: no key was found: set REELD_API_KEY, or name the server's state folder by "
              "--state-dir\nreeld: or REELD_STATE_DIR (its owner.key must be readable)\n",
              out);
}

int cli_not_understood(void)
{
    fputs("reeld: the server's answer is not understood (another version?)\n", stderr);
    return CLI_SERVER;
}

const char *cli_member(const struct rl_json *object, const char *name)
{
    const struct rl_json *v = object ? rl_json_get(object, name) : NULL;

    return v ? rl_json_text(v) : NULL;
}

int64_t cli_member_int(const struct rl_json *object, const char *name, int64_t fallback)
{
    const struct rl_json *v = object ? rl_json_get(object, name) : NULL;
    int64_t value;

    if (!v || rl_json_int(v, name, -RL_JSON_MAX_INT, RL_JSON_MAX_INT, &value, NULL))
        return fallback;
    return value;
}

double cli_member_real(const struct rl_json *object, const char *name, double fallback)
{
    const struct rl_json *v = object ? rl_json_get(object, name) : NULL;
    double value = v ? rl_json_number(v) : (double)NAN;

    return isfinite(value) ? value : fallback;
}

bool cli_id_path(const char *kind, const char *base, const char *id, const char *tail, char *path,
                 size_t size)
{
    size_t len = strspn(id, "0123456789");

    if (len > 0 && len <= 19 && !id[len])
        return snprintf(path, size, "%s/%s%s", base, id, tail) < (int)size;
    fputs("reeld: '", stderr);
    cli_put(stderr, id);
    fprintf(stderr, "' is no %s id\n", kind);
    return false;
}

bool cli_task_path(const char *id, const char *tail, char *path, size_t size)
{
    return cli_id_path("task", API_TASKS, id, tail, path, size);
}

void cli_end_signals(sigset_t *set)
{
    struct sigaction hangup;

    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    /* A blocked signal waits even where it is ignored. */
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaddset(set, SIGHUP);
}

void cli_signals_hold(void)
{
    sigset_t set;

    cli_end_signals(&set);
    (void)sigprocmask(SIG_BLOCK, &set, NULL); /* cannot fail with these arguments */
}

void cli_signals_release(void)
{
    sigset_t set;

    cli_end_signals(&set);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL); /* cannot fail with these arguments */
}

bool cli_wait(int64_t ms)
{
    sigset_t set;
    struct timespec wait = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};

    cli_end_signals(&set);
    return sigtimedwait(&set, NULL, &wait) > 0;
}
