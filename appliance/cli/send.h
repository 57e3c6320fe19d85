/* Calls that change something, from the words and options to what is said of the answer. */
#ifndef RL_CLI_SEND_H
#define RL_CLI_SEND_H

#include "base/buf.h"
#include "cli/client.h"
#include "cli/commands.h"

/* Writes what the words and options ask for into the open object of the body. RL_BAD_REQUEST: they
 * make no request. */
typedef enum rl_rc (*cli_write_fn)(const struct cli_args *args, struct rl_jw *w,
                                   struct rl_err *err);
/* Tells people of the answer. false: it is not understood. */
typedef bool (*cli_put_fn)(const struct cli_call *call, const struct rl_json *answer);

/* One request with the body that `write` makes (NULL: an empty object; a DELETE has none);
 * complains unless it returns CLI_OK. */
int cli_send(const struct cli_call *call, const char *method, const char *path, cli_write_fn write,
             struct cli_reply *ret_reply);
/* The same, and its answer: as the server wrote it for scripts, by `put` for people. */
int cli_tell(const struct cli_call *call, const char *method, const char *path, cli_write_fn write,
             cli_put_fn put);
/* The same for what has no more to tell than "<kind> <first word> <now>": "queue night is paused".
 */
int cli_steer(const struct cli_call *call, const char *method, const char *path, const char *kind,
              const char *now);

/* The member `name` from the text of an option; nothing when it is not given. RL_BAD_REQUEST: it is
 * not UTF-8. */
enum rl_rc cli_write_text(const struct cli_args *args, const char *option, struct rl_jw *w,
                          const char *name, struct rl_err *err) RL_NODISCARD;
/* The same for a list, "A,B". */
enum rl_rc cli_write_list(const struct cli_args *args, const char *option, struct rl_jw *w,
                          const char *name, struct rl_err *err) RL_NODISCARD;
/* The member `secret`, from --secret or --secret-file. */
enum rl_rc cli_write_secret(const struct cli_args *args, struct rl_jw *w, struct rl_err *err)
    RL_NODISCARD;
/* A cli_write_fn for a change of secret, and the options it reads. */
enum rl_rc cli_write_rotation(const struct cli_args *args, struct rl_jw *w, struct rl_err *err)
    RL_NODISCARD;
extern const struct cli_option cli_rotation_options[];

/* "name  text" a line, for the members of these names (NULL ends them) that are there. false: the
 * first is not. */
bool cli_put_members(const struct rl_json *answer, const char *const *names);

#endif
