/* The configuration: one described table (config/keys.h), filled from defaults, then a file of
 * `key = value` lines, then --set. Frozen before the first thread starts; afterwards only read. */
#ifndef RL_CONFIG_CONFIG_H
#define RL_CONFIG_CONFIG_H

#include "base/rl.h"
#include "config/keys.h"

enum config_key {
#define CONFIG_KEY_ENUM(id, ...) CFG_##id,
    CONFIG_KEYS(CONFIG_KEY_ENUM)
#undef CONFIG_KEY_ENUM
        CFG_COUNT
};

struct config; /* owns the values */

/* All defaults. Returns new; NULL when memory is short. */
struct config *config_new(void);
void config_free(struct config *cfg);
/* `name` as in the table ("http.threads"). RL_INVALID_FIELD with field = name for an unknown key
 * (the nearest known one in the reason), a wrong type or a value out of range. */
enum rl_rc config_set(struct config *cfg, const char *name, const char *value, struct rl_err *err)
    RL_NODISCARD;
/* "name=value", as on the command line. */
enum rl_rc config_set_pair(struct config *cfg, const char *pair, struct rl_err *err) RL_NODISCARD;
/* Lines `name = value`, `#` comments. The reason carries file:line. Repeated keys are refused. */
enum rl_rc config_load(struct config *cfg, const char *path, struct rl_err *err) RL_NODISCARD;

int64_t config_int(const struct config *cfg, enum config_key key);
bool config_on(const struct config *cfg, enum config_key key);
const char *config_text(const struct config *cfg, enum config_key key); /* borrowed, never NULL */

/* The effective table as a commented file that config_load accepts: each key with its unit,
 * range, default and reason. */
void config_print(const struct config *cfg, FILE *out);
/* The same as a Markdown table (defaults), for the README. */
void config_print_markdown(FILE *out);

#endif
