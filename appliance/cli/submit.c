/* `reeld submit`: options and standard input become the JSON body of one task; a random idempotency
 * key makes the request safe to repeat when the connection is lost. */
#include "cli/submit.h"

#include "base/buf.h"
#include "base/crypto.h"
#include "cli/commands.h"
#include "cli/term.h"

#include <string.h>
#include <unistd.h>

#define BODY_LIMIT                                                                                 \
    ((size_t)16 << 20) /* the server's own limit is lower and gives the better answer */
#define SUBMIT_TRIES 4

enum kind { KIND_TEXT, KIND_INT, KIND_REAL, KIND_PRIORITY, KIND_OBJECT };

/* Options that are members of the body. */
static const struct {
    const char *option, *member;
    enum kind kind;
} fields[] = {
    {"negative-prompt", "negative_prompt", KIND_TEXT},
    {"engine", "engine", KIND_TEXT},
    {"model", "model", KIND_TEXT},
    {"width", "width", KIND_INT},
    {"height", "height", KIND_INT},
    {"frames", "frames", KIND_INT},
    {"fps", "fps", KIND_INT},
    {"steps", "steps", KIND_INT},
    {"seed", "seed", KIND_INT},
    {"guidance-scale", "guidance_scale", KIND_REAL},
    {"flow-shift", "flow_shift", KIND_REAL},
    {"priority", "priority", KIND_PRIORITY},
    {"queue", "queue_name", KIND_TEXT},
    {"run-at", "run_at", KIND_TEXT},
    {"max-retries", "max_retries", KIND_INT},
    {"queue-timeout", "queue_timeout_s", KIND_INT},
    {"run-timeout", "run_timeout_s", KIND_INT},
    {"callback-url", "callback_url", KIND_TEXT},
    {"callback-secret", "callback_secret", KIND_TEXT},
    {"metadata", "metadata", KIND_OBJECT},
    {"label", "label", KIND_TEXT},
};

const struct cli_option cli_submit_options[] = {
    {"engine", 'e', "NAME", "engine (see `reeld engines`); the server's default otherwise"},
    {"model", 'm', "NAME", "model of the engine"},
    {"size", 0, "WxH", "width and height in pixels, 832x480"},
    {"width", 0, "PX", "width alone"},
    {"height", 0, "PX", "height alone"},
    {"frames", 'n', "N", "number of frames"},
    {"fps", 0, "N", "frames per second"},
    {"steps", 0, "N", "denoise steps"},
    {"seed", 0, "N", "0 to 2^53-1; random otherwise, always answered"},
    {"negative-prompt", 0, "TEXT", "what to keep out"},
    {"guidance-scale", 0, "X", "how closely to follow the prompt"},
    {"flow-shift", 0, "X", "shift of the noise schedule"},
    {"option", 0, "NAME=VALUE", "an option of the engine; may be repeated"},
    {"priority", 'p', "LEVEL", "low, normal or high (1, 5, 10)"},
    {"queue", 'q', "NAME", "queue to wait in"},
    {"run-at", 0, "TIME", "not before this time (RFC 3339)"},
    {"max-retries", 0, "N", "engine errors to forgive"},
    {"queue-timeout", 0, "SECONDS", "longest wait in the queue"},
    {"run-timeout", 0, "SECONDS", "longest run"},
    {"callback-url", 0, "URL", "where the end of the task is announced"},
    {"callback-secret", 0, "TEXT", "signs this task's callbacks instead of your default secret"},
    {"idempotency-key", 0, "KEY", "the same key gives the same task; random otherwise"},
    {"label", 'l', "TEXT", "a name for people"},
    {"metadata", 0, "JSON", "an object that comes back in answers and callbacks"},
    {"json", 0, "FILE", "the whole body as JSON (- for standard input)"},
    {"wait", 'w', NULL, "wait for the end, showing progress on a terminal"},
    {"output", 'o', "FILE", "with --wait: save the video there"},
    {0},
};

/* JSON grammar of a number, nothing looser: "007", "0x1", "inf" and "" are texts. */
static bool is_number(const char *text)
{
    AUTO_JSON struct rl_json *v = NULL;

    return strchr("-0123456789", text[0]) && text[0] &&
           rl_json_parse(text, strlen(text), &v, NULL) == RL_OK &&
           rl_json_type(v) == RL_JSON_NUMBER && text[strspn(text, "+-.eE0123456789")] == '\0';
}

static enum rl_rc write_real(struct rl_jw *w, const char *option, const char *member,
                             const char *text, struct rl_err *err)
{
    if (!is_number(text))
        return rl_fail(err, RL_BAD_REQUEST, "--%s needs a number, not '%.60s'", option, text);
    rl_jw_raw(w, member, text);
    return RL_OK;
}

static enum rl_rc write_object(struct rl_jw *w, const char *option, const char *member,
                               const char *text, struct rl_err *err)
{
    AUTO_JSON struct rl_json *v = NULL;
    struct rl_err why;

    if (rl_json_parse(text, strlen(text), &v, &why))
        return rl_fail(err, RL_BAD_REQUEST, "--%s is no JSON: %.180s", option, why.reason);
    if (rl_json_type(v) != RL_JSON_OBJECT)
        return rl_fail(err, RL_BAD_REQUEST, "--%s needs a JSON object, {\"name\": …}", option);
    rl_jw_raw(w, member, text);
    return RL_OK;
}

static enum rl_rc write_field(struct rl_jw *w, const struct cli_args *args, size_t i,
                              struct rl_err *err)
{
    const char *option = fields[i].option, *member = fields[i].member;
    const char *text = cli_args_text(args, option);
    int64_t number;
    enum rl_rc rc;

    switch (fields[i].kind) {
    case KIND_TEXT:
        rl_jw_str(w, member, text);
        return RL_OK;
    case KIND_REAL:
        return write_real(w, option, member, text, err);
    case KIND_OBJECT:
        return write_object(w, option, member, text, err);
    case KIND_PRIORITY:
        if (!is_number(text)) {
            rl_jw_str(w, member, text);
            return RL_OK;
        }
        break;
    case KIND_INT:
        break;
    }
    rc = cli_args_int(args, option, INT64_MIN, INT64_MAX, 0, &number, err);
    if (rc == RL_OK)
        rl_jw_i64(w, member, number);
    return rc;
}

/* --size 832x480 */
static enum rl_rc write_size(struct rl_jw *w, const struct cli_args *args, struct rl_err *err)
{
    const char *text = cli_args_text(args, "size");
    int width, height, end = 0;

    if (!text)
        return RL_OK;
    if (cli_args_has(args, "width") || cli_args_has(args, "height"))
        return rl_fail(err, RL_BAD_REQUEST, "--size already says width and height");
    if (strspn(text, "0123456789") == 0 || strspn(text, "0123456789xX*") != strlen(text) ||
        strlen(text) > 16 || sscanf(text, "%8d%*1[xX*]%8d%n", &width, &height, &end) != 2 ||
        text[end])
        return rl_fail(err, RL_BAD_REQUEST, "--size needs WIDTHxHEIGHT, as 832x480, not '%.60s'",
                       text);
    rl_jw_i64(w, "width", width);
    rl_jw_i64(w, "height", height);
    return RL_OK;
}

/* --option name=value…: numbers as numbers, the rest as texts. */
static enum rl_rc write_options(struct rl_jw *w, const struct cli_args *args, struct rl_err *err)
{
    size_t index = 0, seen;
    const char *pair, *earlier;

    if (!cli_args_has(args, "option"))
        return RL_OK;
    rl_jw_object(w, "options");
    while ((pair = cli_args_next(args, "option", &index))) {
        size_t len = strcspn(pair, "=");
        if (len == 0 || !pair[len])
            return rl_fail(err, RL_BAD_REQUEST, "--option needs NAME=VALUE, not '%.60s'", pair);
        for (seen = 0; (earlier = cli_args_next(args, "option", &seen)) && seen < index;)
            if (strncmp(earlier, pair, len + 1) == 0)
                return rl_fail(err, RL_BAD_REQUEST, "--option %.*s is given twice",
                               (int)(len > 60 ? 60 : len), pair);
        AUTO_FREE char *name = strndup(pair, len);
        if (!name)
            return rl_fail(err, RL_NO_MEMORY, "out of memory");
        if (is_number(pair + len + 1))
            rl_jw_raw(w, name, pair + len + 1);
        else
            rl_jw_str(w, name, pair + len + 1);
    }
    rl_jw_end_object(w);
    return RL_OK;
}

/* Texts from argv may hold any bytes; a JSON writer needs UTF-8. */
static enum rl_rc check_utf8(const struct cli_args *args, const char *prompt, struct rl_err *err)
{
    if (!rl_utf8_valid(prompt, strlen(prompt)))
        return rl_fail(err, RL_BAD_REQUEST, "the prompt is not UTF-8 text");
    for (size_t i = 0; i < args->given_count; i++) {
        const char *value = args->given[i].value;
        if (value && !rl_utf8_valid(value, strlen(value)))
            return rl_fail(err, RL_BAD_REQUEST, "the value of --%s is not UTF-8 text",
                           args->given[i].option->name);
    }
    return RL_OK;
}

enum rl_rc cli_submit_body(const struct cli_args *args, const char *prompt, struct rl_buf *out,
                           struct rl_err *err)
{
    struct rl_jw w;
    enum rl_rc rc = check_utf8(args, prompt, err);

    if (rc)
        return rc;
    rl_jw_init(&w, out, false);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "prompt", prompt);
    rc = write_size(&w, args, err);
    for (size_t i = 0; rc == RL_OK && i < RL_ARRAY_LEN(fields); i++)
        if (cli_args_has(args, fields[i].option))
            rc = write_field(&w, args, i, err);
    if (rc == RL_OK)
        rc = write_options(&w, args, err);
    if (rc)
        return rc;
    rl_jw_end_object(&w);
    return rl_buf_ok(out, err);
}

/* All of a stream, without NUL bytes. */
static enum rl_rc read_all(FILE *in, const char *name, struct rl_buf *out, struct rl_err *err)
{
    char chunk[16384];
    size_t n;

    while ((n = fread(chunk, 1, sizeof(chunk), in)) > 0) {
        if (memchr(chunk, '\0', n))
            return rl_fail(err, RL_BAD_REQUEST, "%.120s: a NUL byte is no text", name);
        rl_buf_append(out, chunk, n);
    }
    if (ferror(in))
        return rl_fail(err, RL_BAD_REQUEST, "%.120s cannot be read", name);
    return rl_buf_ok(out, err);
}

static enum rl_rc whole_body(const struct cli_args *args, struct rl_buf *out, struct rl_err *err)
{
    static const char *const allowed[] = {"json", "wait", "output",   "idempotency-key",
                                          "url",  "key",  "state-dir"};
    const char *path = cli_args_text(args, "json");

    for (size_t i = 0; i < args->given_count; i++) {
        bool ok = false;
        for (size_t a = 0; a < RL_ARRAY_LEN(allowed); a++)
            ok = ok || strcmp(args->given[i].option->name, allowed[a]) == 0;
        if (!ok)
            return rl_fail(err, RL_BAD_REQUEST, "--json is the whole body; put --%s into it",
                           args->given[i].option->name);
    }
    if (args->word_count > 0)
        return rl_fail(err, RL_BAD_REQUEST, "--json is the whole body; put the prompt into it");
    if (strcmp(path, "-") == 0)
        return read_all(stdin, "standard input", out, err);
    AUTO_FCLOSE FILE *in = fopen(path, "re");
    if (!in)
        return rl_fail(err, RL_BAD_REQUEST, "%.200s cannot be opened", path);
    return read_all(in, path, out, err);
}

static enum rl_rc make_body(const struct cli_args *args, struct rl_buf *body, struct rl_err *err)
{
    AUTO_BUF struct rl_buf text = {0};

    if (cli_args_has(args, "json"))
        return whole_body(args, body, err);
    if (args->word_count > 0 && strcmp(args->words[0], "-") != 0)
        return cli_submit_body(args, args->words[0], body, err);
    if (args->word_count == 0 && isatty(STDIN_FILENO))
        fputs("reeld: reading the prompt from standard input; end it with Ctrl-D\n", stderr);

    rl_buf_init(&text, BODY_LIMIT);
    enum rl_rc rc = read_all(stdin, "standard input", &text, err);
    if (rc)
        return rc;
    while (text.len > 0 && (text.data[text.len - 1] == '\n' || text.data[text.len - 1] == '\r'))
        text.data[--text.len] = '\0';
    return cli_submit_body(args, text.data ? text.data : "", body, err);
}

/* "Idempotency-Key: …" into header[size]. *ret_safe: the request may be repeated. false: unusable
 * key. */
static bool idempotency_header(const struct cli_args *args, const char *body, char *header,
                               size_t size, bool *ret_safe)
{
    const char *key = cli_args_text(args, "idempotency-key");
    uint8_t bytes[16];
    char text[2 * sizeof(bytes) + 1];

    *ret_safe = true;
    header[0] = '\0';
    if (!key && cli_args_has(args, "json")) {
        AUTO_JSON struct rl_json *v = NULL;
        if (rl_json_parse(body, strlen(body), &v, NULL) == RL_OK &&
            (rl_json_get(v, "idempotency_key") || rl_json_get(v, "idempotency"))) {
            *ret_safe = rl_json_get(v, "idempotency_key") != NULL;
            return true; /* the body decides */
        }
    }
    if (!key) {
        rl_random(bytes, sizeof(bytes));
        rl_hex(bytes, sizeof(bytes), text);
        key = text;
    }
    for (const char *c = key; *c; c++)
        if (*c < ' ' || *c > '~')
            return false;
    return *key && snprintf(header, size, "Idempotency-Key: %s", key) < (int)size;
}

/* POST until an answer comes; only a lost connection is tried again, and only when that is safe. */
static int post(const struct cli_client *client, const char *body, const char *header, bool safe,
                struct cli_reply *ret_reply)
{
    struct cli_request request = {
        .method = "POST", .path = "/api/v1/tasks", .body = body, .header = *header ? header : NULL};
    int tries = safe ? SUBMIT_TRIES : 1;

    for (int try = 1;; try++) {
        int status = cli_call_quiet(client, &request, ret_reply);
        if (status != CLI_UNREACHABLE || try == tries) {
            if (status != CLI_OK)
                cli_explain(client, ret_reply, stderr);
            return status;
        }
        cli_reply_free(ret_reply);
        if (cli_wait(100 << try))
            return CLI_INTERRUPTED;
    }
}

static void put_submitted(const struct cli_reply *reply)
{
    const char *id = cli_member(reply->json, "task_id");
    int64_t position = cli_member_int(reply->json, "queue_position", 0);

    if (!isatty(STDOUT_FILENO)) {
        cli_put_json(reply->http.body, reply->http.body_len);
        return;
    }
    printf("%s ", reply->http.status == 200 ? "existing task" : "task");
    cli_put(stdout, id);
    printf(" ");
    cli_put(stdout, cli_member(reply->json, "status"));
    if (position > 0)
        printf(", position %lld in the queue", (long long)position);
    printf("\nfollow it with: reeld watch %s\n", id);
}

static int run_submit(const struct cli_call *call)
{
    const struct cli_args *args = call->args;
    AUTO_BUF struct rl_buf body = {0};
    AUTO_CLIENT struct cli_client client = {0};
    AUTO_REPLY struct cli_reply reply = {0};
    struct rl_err err;
    char header[600];
    bool safe, wait = cli_args_has(args, "wait");
    const char *output = cli_args_text(args, "output");

    if (output && !wait) {
        (void)rl_fail(&err, RL_BAD_REQUEST,
                      "--output needs --wait (or fetch it later: reeld video ID -o FILE)");
        return cli_usage_error("submit", &err);
    }
    if (output && !cli_download_allowed(output))
        return CLI_USAGE;
    rl_buf_init(&body, BODY_LIMIT);
    if (make_body(args, &body, &err))
        return cli_usage_error("submit", &err);
    const char *text = body.data ? body.data : "";
    if (!idempotency_header(args, text, header, sizeof(header), &safe)) {
        (void)rl_fail(&err, RL_BAD_REQUEST,
                      "--idempotency-key needs 1 to 500 printable ASCII characters");
        return cli_usage_error("submit", &err);
    }

    int status = cli_client_open(args, &client);
    if (status != CLI_OK)
        return status;
    if (wait)
        cli_signals_hold();
    status = post(&client, text, header, safe, &reply);
    if (status != CLI_OK)
        return status;
    const char *id = cli_member(reply.json, "task_id");
    if (!id || id[strspn(id, "0123456789")])
        return cli_not_understood();
    if (wait)
        return cli_wait_task(&client, id, output);
    put_submitted(&reply);
    return CLI_OK;
}

const struct cli_command cli_submit = {
    .name = "submit",
    .synopsis = "[PROMPT | -]",
    .summary = "hand in a prompt; it becomes a video",
    .details = "Without PROMPT, or with -, the prompt is read from standard input. Once the\n"
               "command has answered, the task is on disk and will not be lost. With --wait and a\n"
               "pipe, standard output holds the finished task as JSON and nothing else.\n",
    .options = cli_submit_options,
    .client = true,
    .max_words = 1,
    .run = run_submit,
};
