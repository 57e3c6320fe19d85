/* The frame of the commands that change something: body, call, answer. One thread; no state. */
#include "cli/send.h"

#include "base/crypto.h"
#include "cli/term.h"
#include "cli/webhook.h"

#include <string.h>

#define BODY_LIMIT 65536

const struct cli_option cli_rotation_options[] = {
    {"secret", 's', "TEXT", "the new secret; one is made otherwise"},
    {"secret-file", 0, "FILE", "the same from the first line of a file"},
    {"grace", 0, "SECONDS", "how long the former one is valid, too, 0 to 604800 (a day)"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

int cli_send(const struct cli_call *call, const char *method, const char *path, cli_write_fn write,
             struct cli_reply *ret_reply)
{
    AUTO_BUF struct rl_buf body = {0};
    struct rl_jw w;
    struct rl_err err;
    enum rl_rc rc = RL_OK;

    rl_buf_init(&body, BODY_LIMIT);
    rl_jw_init(&w, &body, false);
    rl_jw_object(&w, NULL);
    if (write)
        rc = write(call->args, &w, &err);
    rl_jw_end_object(&w);
    if (rc == RL_OK)
        rc = rl_buf_ok(&body, &err);
    int status = CLI_OK;
    if (rc != RL_OK)
        status = cli_usage_error(call->command->name, &err);
    else
        status = cli_ask(call->args,
                         &(struct cli_request){.method = method,
                                               .path = path,
                                               .body = strcmp(method, "DELETE") ? body.data : NULL},
                         ret_reply);
    if (body.data)
        rl_wipe(body.data, body.len); /* it may hold a secret */
    return status;
}

int cli_tell(const struct cli_call *call, const char *method, const char *path, cli_write_fn write,
             cli_put_fn put)
{
    AUTO_REPLY struct cli_reply reply = {0};

    int status = cli_send(call, method, path, write, &reply);
    if (status != CLI_OK)
        return status;
    if (!cli_wants_json(call->args))
        return put(call, reply.json) ? CLI_OK : cli_not_understood();
    cli_put_json(reply.http.body, reply.http.body_len);
    return CLI_OK;
}

int cli_steer(const struct cli_call *call, const char *method, const char *path, const char *kind,
              const char *now)
{
    AUTO_REPLY struct cli_reply reply = {0};

    int status = cli_send(call, method, path, NULL, &reply);
    if (status != CLI_OK)
        return status;
    if (!cli_wants_json(call->args)) {
        printf("%s ", kind);
        cli_put(stdout, call->args->words[0]);
        printf(" %s\n", now);
    } else if (reply.http.body_len > 0) { /* a DELETE has none */
        cli_put_json(reply.http.body, reply.http.body_len);
    }
    return CLI_OK;
}

/* The text of an option; *ret_text is NULL when it is not given. */
static enum rl_rc utf8_text(const struct cli_args *args, const char *option, const char **ret_text,
                            struct rl_err *err)
{
    const char *text = cli_args_text(args, option);

    if (text && !rl_utf8_valid(text, strlen(text)))
        return rl_fail(err, RL_BAD_REQUEST, "--%s is not UTF-8 text", option);
    *ret_text = text;
    return RL_OK;
}

enum rl_rc cli_write_text(const struct cli_args *args, const char *option, struct rl_jw *w,
                          const char *name, struct rl_err *err)
{
    const char *text = NULL;
    enum rl_rc rc = utf8_text(args, option, &text, err);

    if (text)
        rl_jw_str(w, name, text);
    return rc;
}

enum rl_rc cli_write_list(const struct cli_args *args, const char *option, struct rl_jw *w,
                          const char *name, struct rl_err *err)
{
    const char *text = NULL;
    enum rl_rc rc = utf8_text(args, option, &text, err);

    if (!text)
        return rc;
    rl_jw_array(w, name);
    while (*text) {
        size_t len = strcspn(text, ", ");
        if (len > 0)
            rl_jw_strn(w, NULL, text, len);
        text += len;
        text += strspn(text, ", ");
    }
    rl_jw_end_array(w);
    return RL_OK;
}

enum rl_rc cli_write_secret(const struct cli_args *args, struct rl_jw *w, struct rl_err *err)
{
    AUTO_FREE char *secret = NULL;
    enum rl_rc rc = cli_secret_given(args, &secret, err);

    if (secret) {
        rl_jw_str(w, "secret", secret);
        rl_wipe(secret, strlen(secret));
    }
    return rc;
}

enum rl_rc cli_write_rotation(const struct cli_args *args, struct rl_jw *w, struct rl_err *err)
{
    int64_t grace_s = -1;
    enum rl_rc rc = cli_write_secret(args, w, err);

    if (rc == RL_OK)
        rc = cli_args_int(args, "grace", 0, 604800, -1, &grace_s, err);
    if (grace_s >= 0)
        rl_jw_i64(w, "grace_s", grace_s);
    return rc;
}

bool cli_put_members(const struct rl_json *answer, const char *const *names)
{
    if (!cli_member(answer, names[0]))
        return false;
    for (; *names; names++) {
        const char *text = cli_member(answer, *names);
        if (!text)
            continue;
        printf("%-12s ", *names);
        cli_put(stdout, text);
        putchar('\n');
    }
    return true;
}
