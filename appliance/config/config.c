/* The configuration table: values by key, set from text, all checked against config/keys.h.
 * Filled by one thread before the others start, afterwards only read. Invariants: every value is
 * inside its range; every text is UTF-8 without control characters and without white space at its
 * ends, so that what config_print writes config_load reads back. */
#include "config/config.h"

#include "base/fs.h"
#include "base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define FILE_LIMIT (1 << 20)
#define MAX_NAME   64 /* longer names are unknown anyway */

enum value_type { TYPE_INT, TYPE_BOOL, TYPE_TEXT, TYPE_CHOICE };

struct key_info {
    const char *name;
    enum value_type type;
    const char *initial;
    int64_t min;
    int64_t max;
    const char *unit; /* of a CHOICE: the allowed words */
    const char *reason;
};

static const struct key_info keys[CFG_COUNT] = {
#define KEY_INFO(id, name, type, initial, min, max, unit, reason)                                  \
    [CFG_##id] = {name, TYPE_##type, initial, min, max, unit, reason},
    CONFIG_KEYS(KEY_INFO)
#undef KEY_INFO
};

struct config {
    int64_t number[CFG_COUNT]; /* INT and BOOL */
    char *text[CFG_COUNT];     /* TEXT and CHOICE; owned */
};

struct config *config_new(void)
{
    struct config *cfg = calloc(1, sizeof(*cfg));

    for (size_t i = 0; cfg && i < CFG_COUNT; i++) {
        if (config_set(cfg, keys[i].name, keys[i].initial, NULL) != RL_OK) {
            config_free(cfg);
            return NULL;
        }
    }
    return cfg;
}

void config_free(struct config *cfg)
{
    if (!cfg)
        return;
    for (size_t i = 0; i < CFG_COUNT; i++)
        free(cfg->text[i]);
    free(cfg);
}

/* Levenshtein distance; both texts shorter than MAX_NAME. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[MAX_NAME];
    size_t n = strlen(b);

    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t best = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (diagonal + 1 < best)
                best = diagonal + 1;
            row[j + 1] = best;
        }
    }
    return row[n];
}

static enum rl_rc fail_unknown(const char *name, struct rl_err *err)
{
    char cut[MAX_NAME];
    size_t best = SIZE_MAX;
    const char *nearest = "";

    (void)snprintf(cut, sizeof(cut), "%s", name); /* a cut name finds its neighbour as well */
    for (size_t i = 0; i < CFG_COUNT; i++) {
        size_t distance = edit_distance(cut, keys[i].name);
        if (distance < best) {
            best = distance;
            nearest = keys[i].name;
        }
    }
    return rl_fail_field(err, RL_INVALID_FIELD, cut, "no such key; the nearest is %s", nearest);
}

static enum rl_rc parse_int(const struct key_info *key, const char *text, int64_t *ret_value,
                            struct rl_err *err)
{
    char *end = NULL;

    errno = 0;
    long long v = strtoll(text, &end, 10);
    bool number = (text[0] == '-' || (text[0] >= '0' && text[0] <= '9')) && *end == '\0';
    if (!number || errno || v < key->min || v > key->max)
        return rl_fail_field(err, RL_INVALID_FIELD, key->name,
                             "must be a whole number from %" PRId64 " to %" PRId64, key->min,
                             key->max);
    *ret_value = v;
    return RL_OK;
}

static enum rl_rc parse_bool(const struct key_info *key, const char *text, int64_t *ret_value,
                             struct rl_err *err)
{
    bool on = strcmp(text, "on") == 0;

    if (!on && strcmp(text, "off") != 0)
        return rl_fail_field(err, RL_INVALID_FIELD, key->name, "must be on or off");
    *ret_value = on;
    return RL_OK;
}

/* word is one of "a|b|c". */
static bool is_choice(const char *choices, const char *word)
{
    size_t len = strlen(word);

    for (const char *p = choices; *p;) {
        size_t n = strcspn(p, "|");
        if (n == len && memcmp(p, word, n) == 0)
            return true;
        p += n + (p[n] == '|');
    }
    return false;
}

static enum rl_rc check_text(const struct key_info *key, const char *text, struct rl_err *err)
{
    size_t len = strlen(text);

    if (key->type == TYPE_CHOICE) {
        if (!is_choice(key->unit, text))
            return rl_fail_field(err, RL_INVALID_FIELD, key->name, "must be one of %s", key->unit);
        return RL_OK;
    }
    if ((int64_t)len < key->min || (int64_t)len > key->max)
        return rl_fail_field(err, RL_INVALID_FIELD, key->name,
                             "must be %" PRId64 " to %" PRId64 " bytes", key->min, key->max);
    if (!rl_utf8_valid(text, len))
        return rl_fail_field(err, RL_INVALID_FIELD, key->name, "must be UTF-8");
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return rl_fail_field(err, RL_INVALID_FIELD, key->name,
                                 "must not contain control characters");
    }
    return RL_OK;
}

/* text[0..len) without white space at its ends; returns new, NULL when memory is short. */
static char *trimmed(const char *text, size_t len)
{
    while (len && strchr(" \t\r\n", text[len - 1]))
        len--;
    while (len && strchr(" \t\r\n", *text)) {
        text++;
        len--;
    }
    return strndup(text, len);
}

static enum rl_rc find_key(const char *name, size_t *ret_index, struct rl_err *err)
{
    for (size_t i = 0; i < CFG_COUNT; i++) {
        if (strcmp(keys[i].name, name) == 0) {
            *ret_index = i;
            return RL_OK;
        }
    }
    return fail_unknown(name, err);
}

enum rl_rc config_set(struct config *cfg, const char *name, const char *value, struct rl_err *err)
{
    size_t i = 0;
    enum rl_rc rc = find_key(name, &i, err);
    if (rc)
        return rc;
    AUTO_FREE char *text = trimmed(value, strlen(value));
    if (!text)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");

    switch (keys[i].type) {
    case TYPE_INT:
        return parse_int(&keys[i], text, &cfg->number[i], err);
    case TYPE_BOOL:
        return parse_bool(&keys[i], text, &cfg->number[i], err);
    case TYPE_TEXT:
    case TYPE_CHOICE:
        rc = check_text(&keys[i], text, err);
        if (!rc) {
            free(cfg->text[i]);
            cfg->text[i] = STEAL(text);
        }
        return rc;
    }
    return rl_fail(err, RL_INTERNAL, "key without a type");
}

/* "name = value" in line[0..len). ret_key may be NULL. */
static enum rl_rc set_line(struct config *cfg, const char *line, size_t len, size_t *ret_key,
                           struct rl_err *err)
{
    const char *equals = memchr(line, '=', len);
    if (!equals)
        return rl_fail(err, RL_INVALID_FIELD, "expected name=value");

    AUTO_FREE char *name = trimmed(line, (size_t)(equals - line));
    AUTO_FREE char *value = strndup(equals + 1, len - (size_t)(equals + 1 - line));
    if (!name || !value)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    if (ret_key) {
        enum rl_rc rc = find_key(name, ret_key, err);
        if (rc)
            return rc;
    }
    return config_set(cfg, name, value, err);
}

enum rl_rc config_set_pair(struct config *cfg, const char *pair, struct rl_err *err)
{
    return set_line(cfg, pair, strlen(pair), NULL, err);
}

/* Put "path:line: " before the reason. */
static enum rl_rc at_line(struct rl_err *err, enum rl_rc rc, const char *path, size_t line)
{
    if (err) {
        struct rl_err inner = *err;
        (void)rl_fail_field(err, rc, inner.field, "%s:%zu: %s", path, line, inner.reason);
    }
    return rc;
}

/* One line of the file; `seen` holds the keys of the lines before. */
static enum rl_rc load_line(struct config *cfg, const char *line, size_t len, bool *seen,
                            struct rl_err *err)
{
    size_t key = 0;
    size_t indent = 0;

    while (indent < len && strchr(" \t\r", line[indent]))
        indent++;
    if (indent == len || line[indent] == '#')
        return RL_OK;

    enum rl_rc rc = set_line(cfg, line, len, &key, err);
    if (rc)
        return rc;
    if (seen[key])
        return rl_fail_field(err, RL_INVALID_FIELD, keys[key].name, "is set a second time");
    seen[key] = true;
    return RL_OK;
}

enum rl_rc config_load(struct config *cfg, const char *path, struct rl_err *err)
{
    AUTO_FREE char *text = NULL;
    size_t len = 0;
    bool seen[CFG_COUNT] = {false};
    size_t line = 1;

    enum rl_rc rc = rl_fs_read(path, FILE_LIMIT, &text, &len, err);
    if (rc)
        return rc;
    for (size_t pos = 0; pos < len; line++) {
        const char *newline = memchr(text + pos, '\n', len - pos);
        size_t n = newline ? (size_t)(newline - text) - pos : len - pos;
        if (memchr(text + pos, '\0', n))
            rc = rl_fail(err, RL_INVALID_FIELD, "NUL byte");
        else
            rc = load_line(cfg, text + pos, n, seen, err);
        if (rc)
            return at_line(err, rc, path, line);
        pos += n + 1;
    }
    return RL_OK;
}

int64_t config_int(const struct config *cfg, enum config_key key)
{
    return cfg->number[key];
}

bool config_on(const struct config *cfg, enum config_key key)
{
    return cfg->number[key] != 0;
}

const char *config_text(const struct config *cfg, enum config_key key)
{
    return cfg->text[key] ? cfg->text[key] : "";
}

/* "16 .. 4096 threads", "on|off", "1 .. 64 bytes of text (path)". */
static void print_range(FILE *out, const struct key_info *key)
{
    switch (key->type) {
    case TYPE_INT:
        fprintf(out, "%" PRId64 " .. %" PRId64 "%s%s", key->min, key->max, *key->unit ? " " : "",
                key->unit);
        break;
    case TYPE_TEXT:
        fprintf(out, "%" PRId64 " .. %" PRId64 " bytes of text (%s)", key->min, key->max,
                key->unit);
        break;
    case TYPE_BOOL:
    case TYPE_CHOICE:
        fputs(key->unit, out);
        break;
    }
}

void config_print(const struct config *cfg, FILE *out)
{
    for (size_t i = 0; i < CFG_COUNT; i++) {
        const struct key_info *key = &keys[i];

        fprintf(out, "%s# %s\n# ", i ? "\n" : "", key->reason);
        print_range(out, key);
        fprintf(out, "; default: %s\n%s = ", *key->initial ? key->initial : "(empty)", key->name);
        if (key->type == TYPE_INT)
            fprintf(out, "%" PRId64 "\n", cfg->number[i]);
        else if (key->type == TYPE_BOOL)
            fprintf(out, "%s\n", cfg->number[i] ? "on" : "off");
        else
            fprintf(out, "%s\n", config_text(cfg, (enum config_key)i));
    }
}

/* Text for a cell of a Markdown table, where a bar would end the cell. */
static void print_cell(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            fputc('\\', out);
        fputc(*text, out);
    }
}

void config_print_markdown(FILE *out)
{
    fputs("| key | default | unit or choice | range | meaning |\n|---|---|---|---|---|\n", out);
    for (size_t i = 0; i < CFG_COUNT; i++) {
        const struct key_info *key = &keys[i];

        fprintf(out, "| `%s` | %s%s%s | ", key->name, *key->initial ? "`" : "",
                *key->initial ? key->initial : "empty", *key->initial ? "`" : "");
        print_cell(out, key->unit);
        fputs(" | ", out);
        if (key->type == TYPE_INT)
            fprintf(out, "%" PRId64 " – %" PRId64, key->min, key->max);
        else if (key->type == TYPE_TEXT)
            fprintf(out, "%" PRId64 " – %" PRId64 " bytes", key->min, key->max);
        fputs(" | ", out);
        print_cell(out, key->reason);
        fputs(" |\n", out);
    }
}
