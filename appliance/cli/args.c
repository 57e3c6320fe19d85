/* The option parser: owns the list of what was given; the tables and argv are borrowed. No state.
 */
#include "cli/args.h"

#include <errno.h>
#include <string.h>

#define WORD_MAX 63

size_t cli_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    size_t rows[3][WORD_MAX + 1];

    if (n > WORD_MAX || m > WORD_MAX)
        return WORD_MAX + 1;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                two_above[j - 2] + 1 < best)
                best = two_above[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[n % 3][m];
}

bool cli_nearer(const char *a, const char *b, size_t *best)
{
    size_t distance = cli_distance(a, b);
    size_t allowed = strlen(a) < 4 ? 1 : 2;

    if (distance > allowed || distance >= *best)
        return false;
    *best = distance;
    return true;
}

static const struct cli_option *find_name(const struct cli_args *args, const char *name, size_t len)
{
    for (size_t t = 0; t < CLI_TABLES; t++)
        for (const struct cli_option *o = args->tables[t]; o && o->name; o++)
            if (strlen(o->name) == len && memcmp(o->name, name, len) == 0)
                return o;
    return NULL;
}

static const struct cli_option *find_letter(const struct cli_args *args, char letter)
{
    for (size_t t = 0; t < CLI_TABLES; t++)
        for (const struct cli_option *o = args->tables[t]; o && o->name; o++)
            if (o->letter == letter)
                return o;
    return NULL;
}

static enum rl_rc fail_unknown(const struct cli_args *args, const char *word, struct rl_err *err)
{
    char name[WORD_MAX + 1];
    const char *meant = NULL;
    size_t best = SIZE_MAX;

    (void)snprintf(name, sizeof(name), "%s", word + strspn(word, "-")); /* a long one is cut */
    name[strcspn(name, "=")] = '\0';
    for (size_t t = 0; t < CLI_TABLES; t++)
        for (const struct cli_option *o = args->tables[t]; o && o->name; o++)
            if (cli_nearer(name, o->name, &best))
                meant = o->name;
    if (meant)
        return rl_fail(err, RL_BAD_REQUEST, "unknown option '%.80s'; did you mean '--%s'?", word,
                       meant);
    return rl_fail(err, RL_BAD_REQUEST, "unknown option '%.80s'", word);
}

/* One word that starts with '-'. *index moves over a value that is a word of its own. */
static enum rl_rc parse_option(struct cli_args *args, int argc, char **argv, int *index,
                               struct rl_err *err)
{
    const char *word = argv[*index];
    const struct cli_option *option;
    const char *value = NULL;

    if (word[1] == '-') {
        size_t len = strcspn(word + 2, "=");
        option = find_name(args, word + 2, len);
        if (word[2 + len] == '=')
            value = word + 2 + len + 1;
    } else {
        option = find_letter(args, word[1]);
        if (word[2])
            value = word + 2;
    }
    if (!option)
        return fail_unknown(args, word, err);
    if (!option->value && value)
        return rl_fail(err, RL_BAD_REQUEST, "option '--%s' takes no value", option->name);
    if (option->value && !value) {
        if (*index + 1 >= argc)
            return rl_fail(err, RL_BAD_REQUEST, "option '--%s' needs a value (%s)", option->name,
                           option->value);
        value = argv[++*index];
    }
    args->given[args->given_count++] = (struct cli_given){option, value};
    return RL_OK;
}

enum rl_rc cli_args_parse(struct cli_args *args, int argc, char **argv, struct rl_err *err)
{
    size_t room = argc > 0 ? (size_t)argc : 1;

    args->given_count = args->word_count = 0;
    args->given = calloc(room, sizeof(*args->given));
    args->words = calloc(room, sizeof(*args->words));
    if (!args->given || !args->words)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");

    bool options = true;
    for (int i = 0; i < argc; i++) {
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
        } else if (options && argv[i][0] == '-' && argv[i][1]) {
            enum rl_rc rc = parse_option(args, argc, argv, &i, err);
            if (rc)
                return rc;
        } else {
            args->words[args->word_count++] = argv[i];
        }
    }
    return RL_OK;
}

void cli_args_free(struct cli_args *args)
{
    free(args->given);
    free(args->words);
    args->given = NULL;
    args->words = NULL;
    args->given_count = args->word_count = 0;
}

static const struct cli_given *find_given(const struct cli_args *args, const char *name)
{
    for (size_t i = args->given_count; i > 0; i--)
        if (strcmp(args->given[i - 1].option->name, name) == 0)
            return &args->given[i - 1];
    return NULL;
}

const char *cli_args_text(const struct cli_args *args, const char *name)
{
    const struct cli_given *given = find_given(args, name);

    return given ? given->value : NULL;
}

bool cli_args_has(const struct cli_args *args, const char *name)
{
    return find_given(args, name) != NULL;
}

const char *cli_args_next(const struct cli_args *args, const char *name, size_t *index)
{
    while (*index < args->given_count) {
        const struct cli_given *given = &args->given[(*index)++];
        if (strcmp(given->option->name, name) == 0)
            return given->value;
    }
    return NULL;
}

enum rl_rc cli_args_int(const struct cli_args *args, const char *name, int64_t min, int64_t max,
                        int64_t fallback, int64_t *ret_value, struct rl_err *err)
{
    const char *text = cli_args_text(args, name);
    if (!text) {
        *ret_value = fallback;
        return RL_OK;
    }

    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool digits =
        text[0] == '-' ? text[1] >= '0' && text[1] <= '9' : text[0] >= '0' && text[0] <= '9';
    if (!digits || *end || errno)
        return rl_fail(err, RL_BAD_REQUEST, "--%s needs a whole number, not '%.60s'", name, text);
    if (value < min || value > max)
        return rl_fail(err, RL_BAD_REQUEST, "--%s must be %lld to %lld", name, (long long)min,
                       (long long)max);
    *ret_value = value;
    return RL_OK;
}
