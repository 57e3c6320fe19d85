/* Configuration of one invocation: defaults, a file, REELD_STATE_DIR, --set, the options. One
 * thread. */
#include "config/config.h"

#include "cli/commands.h"

#include <string.h>
#include <unistd.h>

#define DEFAULT_FILE "/etc/reeld/reeld.conf"

const char *cli_config_left_out(const struct cli_args *args)
{
    bool meant = !cli_args_text(args, "config") && access(DEFAULT_FILE, F_OK) == 0;

    return meant && access(DEFAULT_FILE, R_OK) != 0 ? DEFAULT_FILE : NULL;
}

static enum rl_rc fill(const struct cli_args *args, struct config *cfg, struct rl_err *err)
{
    const char *file = cli_args_text(args, "config");
    const char *state_dir = cli_args_text(args, "state-dir"),
               *listen = cli_args_text(args, "listen");
    enum rl_rc rc = RL_OK;

    /* The service's file may hold a secret: it is not for the commands of every user. */
    if (!file && access(DEFAULT_FILE, R_OK) == 0)
        file = DEFAULT_FILE;
    else if (cli_config_left_out(args))
        fputs("reeld: " DEFAULT_FILE " is not this user's to read: its settings do not count\n",
              stderr);
    if (file)
        rc = config_load(cfg, file, err);
    const char *env_dir = getenv("REELD_STATE_DIR"); /* as the commands that speak to a server */
    if (rc == RL_OK && env_dir && *env_dir)
        rc = config_set(cfg, "state_dir", env_dir, err);

    size_t index = 0;
    const char *pair;
    while (rc == RL_OK && (pair = cli_args_next(args, "set", &index)))
        rc = config_set_pair(cfg, pair, err);
    if (rc == RL_OK && state_dir)
        rc = config_set(cfg, "state_dir", state_dir, err);
    if (rc == RL_OK && listen)
        rc = config_set(cfg, "listen", listen, err);
    return rc;
}

enum rl_rc cli_config(const struct cli_args *args, struct config **ret_config, struct rl_err *err)
{
    struct config *cfg = config_new();

    if (!cfg)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    enum rl_rc rc = fill(args, cfg, err);
    if (rc) {
        config_free(cfg);
        return rc;
    }
    *ret_config = cfg;
    return RL_OK;
}
