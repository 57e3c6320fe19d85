/* What the commands say about a webhook delivery: by which secret, and why it does not verify. */
#ifndef RL_CLI_WEBHOOK_H
#define RL_CLI_WEBHOOK_H

#include "base/webhook.h"
#include "cli/args.h"

#define CLI_SECRETS 4 /* valid at once */

struct cli_secrets {
    char *text[CLI_SECRETS]; /* owned */
    size_t count;            /* 0 = none was found */
    char origin[1200];       /* the file they came from; "" = named on the command line */
};
/* --secret (may be repeated) and --secret-file; else callback.secret of --state-dir, of
 * REELD_STATE_DIR, or of the default folder, when it is readable. RL_BAD_REQUEST: one that cannot
 * be a secret, too many, a named file that cannot be read. */
enum rl_rc cli_secrets_find(const struct cli_args *args, struct cli_secrets *ret_secrets,
                            struct rl_err *err) RL_NODISCARD;
void cli_secrets_free(struct cli_secrets *secrets); /* wipes them */
#define AUTO_SECRETS __attribute__((cleanup(cli_secrets_free)))
/* One secret for a request: --secret or --secret-file, NULL when neither is given. Returns new. */
enum rl_rc cli_secret_given(const struct cli_args *args, char **ret_secret, struct rl_err *err)
    RL_NODISCARD;

enum cli_verdict_kind {
    VERDICT_VALID,
    VERDICT_FORGED,      /* no signature by these secrets */
    VERDICT_OUT_OF_TIME, /* signed, but too old, or from the future */
    VERDICT_MALFORMED,   /* a header is missing or is not what it must be */
    VERDICT_KINDS
};
struct cli_verdict {
    enum cli_verdict_kind kind;
    int64_t timestamp_s; /* of the delivery; 0 when malformed */
    char reason[512];    /* in words, what is wrong; "" when valid */
};
/* "valid", "bad_signature", "outside_window", "malformed" */
const char *cli_verdict_name(enum cli_verdict_kind kind);
/* Judge a delivery as of now_s. A bad signature is looked into: what change of the body or the
 * secret would make it good? Needs at least one secret. */
void cli_webhook_judge(const struct rl_webhook *hook, const struct cli_secrets *secrets,
                       int64_t now_s, int64_t tolerance_s, struct cli_verdict *ret_verdict);

#endif
