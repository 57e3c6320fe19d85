/* Words on the command line -> options by name. Table-driven: the same tables give --help. */
#ifndef RL_CLI_ARGS_H
#define RL_CLI_ARGS_H

#include "base/rl.h"

struct cli_option {
    const char *name;  /* without dashes; NULL ends a table */
    char letter;       /* short form, 0 = none */
    const char *value; /* what --help calls its value; NULL = a flag */
    const char *help;
};

#define CLI_TABLES 3 /* option tables that can be in effect at once */

struct cli_args {
    const struct cli_option *tables[CLI_TABLES]; /* borrowed; NULL = none */
    struct cli_given {
        const struct cli_option *option;
        const char *value; /* NULL for a flag */
    } * given;             /* owned, in the order of the command line */
    size_t given_count;
    const char **words; /* owned; what is no option, in order, borrowed from argv */
    size_t word_count;
};

/* Parse argv[0..argc) against args->tables (set by the caller, the rest is filled here). `--name
 * value`,
 * `--name=value`, `-n value`, `-nvalue`, `--` ends the options, a lone `-` is a word.
 * RL_BAD_REQUEST: unknown option (with the nearest known one), a value missing or too many. */
enum rl_rc cli_args_parse(struct cli_args *args, int argc, char **argv, struct rl_err *err)
    RL_NODISCARD;
void cli_args_free(struct cli_args *args);

/* Last value given, NULL when the option was not given (or is a flag). */
const char *cli_args_text(const struct cli_args *args, const char *name);
bool cli_args_has(const struct cli_args *args, const char *name);
/* Values of a repeatable option in order: start with *index = 0; NULL at the end. */
const char *cli_args_next(const struct cli_args *args, const char *name, size_t *index);
/* Whole number of an option in [min, max]; fallback when it is not given. RL_BAD_REQUEST otherwise.
 */
enum rl_rc cli_args_int(const struct cli_args *args, const char *name, int64_t min, int64_t max,
                        int64_t fallback, int64_t *ret_value, struct rl_err *err) RL_NODISCARD;

/* Edit distance (insert, delete, replace, swap of neighbours); words over 63 bytes count as 64. */
size_t cli_distance(const char *a, const char *b);
/* Is b near enough to a to be what was meant? Lowers *best to the distance when it is nearer. */
bool cli_nearer(const char *a, const char *b, size_t *best);

#endif
