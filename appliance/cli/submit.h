/* The parts of `reeld submit` that can be tested alone, and waiting for a task. */
#ifndef RL_CLI_SUBMIT_H
#define RL_CLI_SUBMIT_H

#include "cli/args.h"
#include "cli/client.h"

struct rl_buf;

extern const struct cli_option cli_submit_options[];

/* The JSON body of POST /api/v1/tasks from the options; prompt is UTF-8. RL_BAD_REQUEST: an option
 * that is no number, no JSON object, or contradicts another one. */
enum rl_rc cli_submit_body(const struct cli_args *args, const char *prompt, struct rl_buf *out,
                           struct rl_err *err) RL_NODISCARD;

/* Follow a task to its end: progress on stderr when that is a terminal, the result to stdout (JSON
 * unless it is a terminal). output: save the video there; NULL = do not. Returns CLI_OK for
 * SUCCEEDED, CLI_FAILED for another end, CLI_INTERRUPTED after a signal, else why the server could
 * not be asked. */
int cli_wait_task(const struct cli_client *client, const char *task_id, const char *output);
/* Ask for a task as a watcher does: an absent or busy server is forgiven for a minute.
 * *patience_until (0 at first) is kept between calls. CLI_OK with reply->json; CLI_UNREACHABLE with
 * *ret_again true: try again. */
int cli_poll(const struct cli_client *client, const char *path, int64_t *patience_until,
             bool *ret_again, struct cli_reply *ret_reply);
/* ms until the next poll, from the task's own advice. */
int64_t cli_poll_ms(const struct cli_client *client, const struct rl_json *task);
/* The progress line on stderr in place of the one before, and its removal; nothing when stderr is
 * no terminal. task NULL: nothing is known yet. note: shown instead of the phase, NULL = none. */
void cli_draw(const struct rl_json *task, int64_t started_ms, const char *note);
void cli_draw_clear(void);
bool cli_is_terminal(const char *status);
/* The task of an answer in plain lines, for a terminal. */
void cli_put_task(const struct cli_client *client, const struct rl_json *task);

/* Save the task's video at `path`: resumed from path.part, checked against the task's SHA-256,
 * renamed. Complains itself; returns an exit status. */
int cli_download_video(const struct cli_client *client, const struct rl_json *task,
                       const char *path);
/* May a download be renamed to this path? Complains; false for a device, a folder, a socket. */
bool cli_download_allowed(const char *path);

#endif
