/* `reeld verify-webhook`: checks a delivery that was saved, without a server. One thread; no state.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "cli/capture.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/term.h"
#include "cli/webhook.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define INPUT_LIMIT ((size_t)16 << 20)

static const struct cli_option verify_options[] = {
    {"secret", 's', "TEXT", "the secret, whsec_… or plain; may be repeated (callback.secret)"},
    {"secret-file", 0, "FILE", "the same from the first line of a file"},
    {"state-dir", 'd', "DIR", "take callback.secret of this state folder"},
    {"headers", 0, "FILE", "header lines, Name: value"},
    {"body", 0, "FILE", "the body, byte for byte; - is standard input"},
    {"id", 0, "TEXT", "webhook-id, in place of the header that was read"},
    {"timestamp", 0, "TEXT", "webhook-timestamp"},
    {"signature", 0, "TEXT", "webhook-signature"},
    {"tolerance", 0, "SECONDS", "how old, or how far in the future, it may be (300)"},
    {"at", 0, "TIME", "judge as of then: RFC 3339 or unix seconds (now)"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

/* All of a file, "-" for standard input. ret_bytes: returns new, NUL-terminated. */
static enum rl_rc read_input(const char *path, char **ret_bytes, size_t *ret_len,
                             struct rl_err *err)
{
    bool standard = strcmp(path, "-") == 0;
    AUTO_FCLOSE FILE *file = standard ? NULL : fopen(path, "re");
    FILE *in = standard ? stdin : file;
    AUTO_BUF struct rl_buf text = {0};
    char step[16384];
    size_t n;

    rl_buf_init(&text, INPUT_LIMIT);
    if (!in)
        return rl_fail(err, RL_BAD_REQUEST, "%.160s cannot be opened: %s", path, strerror(errno));
    while ((n = fread(step, 1, sizeof(step), in)) > 0)
        rl_buf_append(&text, step, n);
    if (ferror(in))
        return rl_fail(err, RL_BAD_REQUEST, "%.160s cannot be read", path);
    if (rl_buf_ok(&text, NULL))
        return rl_fail(err, RL_BAD_REQUEST, "%.160s has more than %zu bytes", path, INPUT_LIMIT);
    *ret_len = text.len;
    *ret_bytes = rl_buf_take(&text);
    return *ret_bytes ? RL_OK : rl_fail(err, RL_NO_MEMORY, "out of memory");
}

static enum rl_rc read_parts(const struct cli_args *args, struct cli_capture *capture,
                             struct rl_err *err)
{
    const char *headers = cli_args_text(args, "headers"), *body = cli_args_text(args, "body");
    char *text = NULL;
    size_t len = 0;
    enum rl_rc rc = RL_OK;

    if (headers && body && strcmp(headers, "-") == 0 && strcmp(body, "-") == 0)
        return rl_fail(err, RL_BAD_REQUEST, "standard input cannot be both --headers and --body");
    if (headers) {
        rc = read_input(headers, &text, &len, err);
        if (rc == RL_OK)
            rc = cli_capture_head(capture, text, err);
    }
    if (rc == RL_OK && body) {
        rc = read_input(body, &text, &len, err);
        if (rc == RL_OK)
            cli_capture_body(capture, text, len);
    }
    return rc;
}

/* A whole request from a file, its parts from several, or from the options. RL_UNAUTHORIZED: it is
 * no delivery. */
static enum rl_rc read_capture(const struct cli_args *args, struct cli_capture *capture,
                               struct rl_err *err)
{
    const struct {
        const char *option, **value;
    } given[] = {{"id", &capture->hook.id},
                 {"timestamp", &capture->hook.timestamp},
                 {"signature", &capture->hook.signature}};
    bool parts = cli_args_has(args, "headers") || cli_args_has(args, "body");
    char *text = NULL;
    size_t len = 0;
    enum rl_rc rc;

    if (args->word_count > 0 && parts)
        return rl_fail(err, RL_BAD_REQUEST, "a whole request, or --headers and --body: choose one");
    if (args->word_count == 0 && !parts)
        return rl_fail(
            err, RL_BAD_REQUEST,
            "name the file with the request or the line of `reeld listen` (- is standard "
            "input), or --body FILE");
    if (parts)
        rc = read_parts(args, capture, err);
    else
        rc = read_input(args->words[0], &text, &len, err);
    if (rc == RL_OK && !parts)
        rc = cli_capture_request(capture, text, len, err);
    for (size_t i = 0; i < RL_ARRAY_LEN(given) && rc == RL_OK; i++)
        if (cli_args_text(args, given[i].option))
            *given[i].value = cli_args_text(args, given[i].option);
    if (rc == RL_OK && !capture->hook.body)
        rc = rl_fail(err, RL_BAD_REQUEST,
                     "--body FILE is missing: the body is part of what is "
                     "signed");
    return rc;
}

/* "1700000000" or RFC 3339. */
static enum rl_rc read_time(const char *text, int64_t *ret_s, struct rl_err *err)
{
    int64_t ms = 0;
    size_t digits = strspn(text, "0123456789");

    if (digits >= 1 && digits <= 11 && !text[digits]) {
        *ret_s = strtoll(text, NULL, 10);
        return RL_OK;
    }
    if (rl_time_parse(text, &ms, NULL) != RL_OK)
        return rl_fail(err, RL_BAD_REQUEST, "--at needs unix seconds or an RFC 3339 time");
    *ret_s = ms / 1000;
    return RL_OK;
}

static void put_verdict_json(const struct rl_webhook *hook, const struct cli_verdict *verdict,
                             int64_t now_s)
{
    AUTO_BUF struct rl_buf out = {0};
    struct rl_jw w;
    bool known = verdict->kind != VERDICT_MALFORMED;

    rl_buf_init(&out, 65536);
    rl_jw_init(&w, &out, true);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "verdict", cli_verdict_name(verdict->kind));
    rl_jw_str(&w, "reason", *verdict->reason ? verdict->reason : NULL);
    rl_jw_str(&w, "webhook_id", known ? hook->id : NULL);
    rl_jw_time(&w, "timestamp", verdict->timestamp_s * 1000);
    if (known)
        rl_jw_i64(&w, "age_s", now_s - verdict->timestamp_s);
    else
        rl_jw_null(&w, "age_s");
    rl_jw_i64(&w, "body_bytes", (int64_t)hook->body_len);
    rl_jw_end_object(&w);
    if (rl_buf_ok(&out, NULL) == RL_OK)
        cli_put_json(out.data, out.len);
}

static void put_verdict(const struct rl_webhook *hook, const struct cli_verdict *verdict,
                        int64_t now_s)
{
    static const char *const words[VERDICT_KINDS] = {"valid", "bad signature",
                                                     "outside the time window", "malformed"};

    printf("%s: ", words[verdict->kind]);
    if (verdict->kind == VERDICT_VALID) {
        cli_put(stdout, hook->id);
        printf(" was signed by this secret, %lld s %s, over %zu bytes\n",
               (long long)(now_s >= verdict->timestamp_s ? now_s - verdict->timestamp_s
                                                         : verdict->timestamp_s - now_s),
               now_s >= verdict->timestamp_s ? "ago" : "ahead", hook->body_len);
        return;
    }
    cli_put(stdout, verdict->reason);
    putchar('\n');
    if (verdict->kind == VERDICT_OUT_OF_TIME)
        printf("to judge it as of the time it came in, add --at %lld\n",
               (long long)verdict->timestamp_s);
}

static int run_verify(const struct cli_call *call)
{
    static const int statuses[VERDICT_KINDS] = {CLI_OK, CLI_FORGED, CLI_OUT_OF_TIME, CLI_MALFORMED};
    const struct cli_args *args = call->args;
    AUTO_SECRETS struct cli_secrets secrets = {0};
    AUTO_CAPTURE struct cli_capture capture = {0};
    struct cli_verdict verdict = {.kind = VERDICT_MALFORMED};
    struct rl_err err;
    int64_t tolerance_s = 0, now_s = rl_wall_ms() / 1000;

    enum rl_rc rc = cli_args_int(args, "tolerance", 0, 315360000, 300, &tolerance_s, &err);
    if (rc == RL_OK && cli_args_text(args, "at"))
        rc = read_time(cli_args_text(args, "at"), &now_s, &err);
    if (rc == RL_OK)
        rc = cli_secrets_find(args, &secrets, &err);
    if (rc == RL_OK && secrets.count == 0)
        rc = rl_fail(&err, RL_BAD_REQUEST,
                     "no secret: use --secret, --secret-file or --state-dir (`reeld secret` prints "
                     "yours)");
    if (rc == RL_OK)
        rc = read_capture(args, &capture, &err);
    if (rc == RL_UNAUTHORIZED)
        (void)rl_copy_str(verdict.reason, sizeof(verdict.reason), err.reason); /* fits */
    else if (rc != RL_OK)
        return cli_usage_error("verify-webhook", &err);
    else
        cli_webhook_judge(&capture.hook, &secrets, now_s, tolerance_s, &verdict);
    if (cli_wants_json(args))
        put_verdict_json(&capture.hook, &verdict, now_s);
    else
        put_verdict(&capture.hook, &verdict, now_s);
    return statuses[verdict.kind];
}

const struct cli_command cli_verify_webhook = {
    .name = "verify-webhook",
    .synopsis = "[FILE | -]",
    .summary = "check a callback that was saved: is it signed, and why not?",
    .details = "FILE holds the whole HTTP request, or one line that `reeld listen` wrote into a\n"
               "pipe or file; or give the head by --headers (or --id, --timestamp and\n"
               "--signature) and the body by --body. Nothing is sent anywhere. The exit\n"
               "status is 0 when it is valid, 10 for a bad signature, 11 outside the time\n"
               "window, 12 when it is no delivery at all.\n"
               "Other users of the machine can see the words of a command: prefer\n"
               "--secret-file.\n",
    .options = verify_options,
    .max_words = 1,
    .run = run_verify,
};
