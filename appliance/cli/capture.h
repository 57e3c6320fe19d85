/* A delivery as somebody saved it: a whole HTTP request, its head and its body apart, or a line of
 * `reeld listen`. What is no delivery fails with RL_UNAUTHORIZED, as rl_webhook_head does. */
#ifndef RL_CLI_CAPTURE_H
#define RL_CLI_CAPTURE_H

#include "base/json.h"
#include "base/webhook.h"

/* Owns the texts that `hook` borrows. */
struct cli_capture {
    char *head, *body;
    struct rl_json *line;
    struct rl_webhook hook; /* body NULL: none was read yet */
};
void cli_capture_free(struct cli_capture *capture);
#define AUTO_CAPTURE __attribute__((cleanup(cli_capture_free)))

/* Takes text (len bytes, NUL-terminated, from malloc): "POST / HTTP/1.1", header lines, an empty
 * line, the body; the first line may be missing, line ends may be LF or CRLF. A Content-Length cuts
 * what follows the body. Or, when it begins with a brace, the one line of JSON that `reeld listen`
 * printed. RL_UNAUTHORIZED: no empty line, a body that is shorter than announced or chunked, a
 * webhook-* header twice; JSON that is no such line, or more than one. */
enum rl_rc cli_capture_request(struct cli_capture *capture, char *text, size_t len,
                               struct rl_err *err) RL_NODISCARD;
/* Takes text: header lines alone. RL_UNAUTHORIZED: a webhook-* header twice. */
enum rl_rc cli_capture_head(struct cli_capture *capture, char *text, struct rl_err *err)
    RL_NODISCARD;
/* Takes bytes: the body alone. */
void cli_capture_body(struct cli_capture *capture, char *bytes, size_t len);

#endif
