/* The JSON reader: the strict scan (json_scan.c), then cJSON builds the tree. The only file that
 * includes <cjson/cJSON.h>. A tree belongs to one thread at a time. Invariant: whatever is in a
 * tree has passed the scan, so it is at most 32 deep, valid UTF-8 and free of NUL. */
#include "base/json.h"

#include "base/buf.h"
#include "base/json_scan.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A struct rl_json is a cJSON under a name of our own, so that no other file depends on it. */
static const cJSON *node(const struct rl_json *v)
{
    return (const cJSON *)v;
}

static const struct rl_json *value(const cJSON *v)
{
    return (const struct rl_json *)v;
}

enum rl_rc rl_json_parse(const char *text, size_t len, struct rl_json **ret_root,
                         struct rl_err *err)
{
    enum rl_rc rc = json_scan(text, len, err);
    if (rc)
        return rc;

    cJSON *root = cJSON_ParseWithLengthOpts(text, len, NULL, false);
    if (!root) /* the scan is stricter than cJSON: only memory is left to fail */
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    *ret_root = (struct rl_json *)root;
    return RL_OK;
}

void rl_json_free(struct rl_json *root)
{
    cJSON_Delete((cJSON *)root);
}

enum rl_json_type rl_json_type(const struct rl_json *v)
{
    const cJSON *item = node(v);

    if (cJSON_IsBool(item))
        return RL_JSON_BOOL;
    if (cJSON_IsNumber(item))
        return RL_JSON_NUMBER;
    if (cJSON_IsString(item))
        return RL_JSON_STRING;
    if (cJSON_IsArray(item))
        return RL_JSON_ARRAY;
    if (cJSON_IsObject(item))
        return RL_JSON_OBJECT;
    return RL_JSON_NULL;
}

const struct rl_json *rl_json_get(const struct rl_json *v, const char *name)
{
    if (!cJSON_IsObject(node(v)))
        return NULL;
    return value(cJSON_GetObjectItemCaseSensitive(node(v), name));
}

const struct rl_json *rl_json_child(const struct rl_json *v)
{
    return v ? value(node(v)->child) : NULL;
}

const struct rl_json *rl_json_next(const struct rl_json *v)
{
    return v ? value(node(v)->next) : NULL;
}

const char *rl_json_name(const struct rl_json *v)
{
    return v ? node(v)->string : NULL;
}

const char *rl_json_text(const struct rl_json *v)
{
    return cJSON_IsString(node(v)) ? node(v)->valuestring : NULL;
}

bool rl_json_is_true(const struct rl_json *v)
{
    return cJSON_IsTrue(node(v));
}

double rl_json_number(const struct rl_json *v)
{
    return cJSON_IsNumber(node(v)) ? node(v)->valuedouble : (double)NAN;
}

enum rl_rc rl_json_int(const struct rl_json *v, const char *field, int64_t min, int64_t max,
                       int64_t *ret_value, struct rl_err *err)
{
    double number = rl_json_number(v);

    /* valueint saturates at 32 bits: only the double is exact, and only up to 2^53 - 1 */
    if (!(fabs(number) <= (double)RL_JSON_MAX_INT) || number != (double)(int64_t)number ||
        (int64_t)number < min || (int64_t)number > max)
        return rl_fail_field(err, RL_INVALID_FIELD, field,
                             "must be a whole number from %" PRId64 " to %" PRId64,
                             min < -RL_JSON_MAX_INT ? -RL_JSON_MAX_INT : min,
                             max > RL_JSON_MAX_INT ? RL_JSON_MAX_INT : max);
    *ret_value = (int64_t)number;
    return RL_OK;
}

enum rl_rc rl_json_real(const struct rl_json *v, const char *field, double min, double max,
                        double *ret_value, struct rl_err *err)
{
    double number = rl_json_number(v);

    if (!isfinite(number) || number < min || number > max)
        return rl_fail_field(err, RL_INVALID_FIELD, field, "must be a number from %g to %g", min,
                             max);
    *ret_value = number;
    return RL_OK;
}

enum rl_rc rl_json_string(const struct rl_json *v, const char *field, size_t min_bytes,
                          size_t max_bytes, const char **ret_text, struct rl_err *err)
{
    const char *text = rl_json_text(v);

    if (!text)
        return rl_fail_field(err, RL_INVALID_FIELD, field, "must be a string");
    size_t len = strlen(text);
    if (len < min_bytes || len > max_bytes)
        return rl_fail_field(err, RL_INVALID_FIELD, field,
                             "must be %zu to %zu bytes of UTF-8, not %zu", min_bytes, max_bytes,
                             len);
    *ret_text = text;
    return RL_OK;
}

static int compare_members(const void *left, const void *right)
{
    const cJSON *const *a = left;
    const cJSON *const *b = right;

    return strcmp((*a)->string, (*b)->string);
}

static void write_canonical(struct rl_jw *w, const char *key, const cJSON *item);

static void write_object(struct rl_jw *w, const char *key, const cJSON *item)
{
    size_t n = 0;
    for (const cJSON *child = item->child; child; child = child->next)
        n++;

    const cJSON **members = calloc(n ? n : 1, sizeof(*members));
    if (!members) {
        w->out->failed = true;
        w->out->no_memory = true;
        return;
    }
    n = 0;
    for (const cJSON *child = item->child; child; child = child->next)
        members[n++] = child;
    qsort(members, n, sizeof(*members), compare_members);

    rl_jw_object(w, key);
    for (size_t i = 0; i < n; i++)
        write_canonical(w, members[i]->string, members[i]);
    rl_jw_end_object(w);
    free(members);
}

static void write_number(struct rl_jw *w, const char *key, double number)
{
    if (isinf(number)) /* 1e999 was in the text; null would be other content */
        rl_jw_raw(w, key, number < 0 ? "-1e999" : "1e999");
    else
        rl_jw_f64(w, key, number == 0 ? 0 : number); /* -0 and 0 are equal */
}

/* Recursion: as deep as the tree, at most RL_JSON_MAX_DEPTH. */
static void write_canonical(struct rl_jw *w, const char *key, const cJSON *item)
{
    switch (rl_json_type(value(item))) {
    case RL_JSON_OBJECT:
        write_object(w, key, item);
        break;
    case RL_JSON_ARRAY:
        rl_jw_array(w, key);
        for (const cJSON *child = item->child; child; child = child->next)
            write_canonical(w, NULL, child);
        rl_jw_end_array(w);
        break;
    case RL_JSON_STRING:
        rl_jw_str(w, key, item->valuestring);
        break;
    case RL_JSON_NUMBER:
        write_number(w, key, item->valuedouble);
        break;
    case RL_JSON_BOOL:
        rl_jw_bool(w, key, cJSON_IsTrue(item));
        break;
    case RL_JSON_NULL:
        rl_jw_null(w, key);
        break;
    }
}

void rl_json_canonical(const struct rl_json *v, struct rl_buf *out)
{
    struct rl_jw w;

    rl_jw_init(&w, out, false);
    if (v)
        write_canonical(&w, NULL, node(v));
    else
        rl_jw_null(&w, NULL);
}
