/* The catalogue of one command: the table of this program and the models of model.catalogue, a JSON
 * file for those who have models of their own on a mirror of their own. One thread. */
#include "base/fs.h"
#include "base/json.h"
#include "cli/model.h"
#include "config/config.h"

#include <string.h>

#define FILE_LIMIT 1048576

struct model_catalogue {
    size_t count;
    struct rl_json *root; /* owned: the strings of the models that it adds */
    struct published_model list[MODEL_MAX];
};

static const char *const part_names[WAN_PARTS] = {"transformer", "text_encoder", "vae"};
static const char *const part_dirs[WAN_PARTS] = {"diffusion_models/", "text_encoders/", "vae/"};

static bool is_digest(const char *text)
{
    return strlen(text) == MODEL_SHA256 - 1 && strspn(text, "0123456789abcdef") == MODEL_SHA256 - 1;
}

/* A file's name below the folder of its part. */
static bool is_place(const char *path, enum wan_part part)
{
    size_t n = strlen(part_dirs[part]);

    return strncmp(path, part_dirs[part], n) == 0 && path[n] && path[n] != '.' &&
           !strpbrk(path + n, "/\\") && strlen(path) < 200;
}

static enum rl_rc read_file(const struct rl_json *object, enum wan_part part,
                            struct published_file *file, struct rl_err *err)
{
    const struct rl_json *sha256 = rl_json_get(object, "sha256");
    enum rl_rc rc = rl_json_string(rl_json_get(object, "path"), "path", 1, 200, &file->path, err);

    file->part = part;
    if (!rc && !is_place(file->path, part))
        rc = rl_fail_field(err, RL_INVALID_FIELD, "path", "must be a file's name behind %s",
                           part_dirs[part]);
    if (!rc)
        rc = rl_json_string(rl_json_get(object, "source"), "source", 1, 1000, &file->source, err);
    if (!rc)
        rc = rl_json_int(rl_json_get(object, "bytes"), "bytes", 1, RL_JSON_MAX_INT, &file->bytes,
                         err);
    if (!rc && sha256 && rl_json_type(sha256) != RL_JSON_NULL) {
        file->sha256 = rl_json_text(sha256);
        if (!file->sha256 || !is_digest(file->sha256))
            rc = rl_fail_field(err, RL_INVALID_FIELD, "sha256", "must be 64 hex digits, or null");
    }
    return rc;
}

static enum rl_rc read_model(const struct rl_json *object, struct published_model *m,
                             struct rl_err *err)
{
    enum rl_rc rc = rl_json_string(rl_json_get(object, "name"), "name", 1, 63, &m->name, err);

    if (!rc && (!model_name_ok(m->name) || published_find(m->name)))
        rc = rl_fail_field(err, RL_INVALID_FIELD, "name",
                           "must be of A-Z a-z 0-9 . _ - and not one of this program's catalogue");
    m->title = rl_json_text(rl_json_get(object, "title"));
    m->licence = rl_json_text(rl_json_get(object, "licence"));
    const struct rl_json *memory = rl_json_get(object, "memory_bytes");
    if (!rc && memory)
        rc = rl_json_int(memory, "memory_bytes", 0, RL_JSON_MAX_INT, &m->memory_bytes, err);
    const struct rl_json *files = rl_json_get(object, "files");
    for (int i = 0; i < WAN_PARTS && !rc; i++)
        rc = read_file(rl_json_get(files, part_names[i]), (enum wan_part)i, &m->files[i], err);
    return rc;
}

static enum rl_rc read_more(struct model_catalogue *c, const char *path, struct rl_err *err)
{
    AUTO_FREE char *text = NULL;
    size_t len = 0;
    enum rl_rc rc = rl_fs_read(path, FILE_LIMIT, &text, &len, err);

    if (!rc)
        rc = rl_json_parse(text, len, &c->root, err);
    if (rc)
        return rc;
    const struct rl_json *item = rl_json_child(rl_json_get(c->root, "models"));
    for (; item && !rc; item = rl_json_next(item)) {
        if (c->count == MODEL_MAX)
            return rl_fail(err, RL_INVALID_FIELD, "more than %d models", MODEL_MAX);
        rc = read_model(item, &c->list[c->count++], err);
    }
    return rc;
}

enum rl_rc model_catalogue_open(const struct config *cfg, struct model_catalogue **ret_catalogue,
                                struct rl_err *err)
{
    const char *path = config_text(cfg, CFG_MODEL_CATALOGUE);
    struct model_catalogue *c = calloc(1, sizeof(*c));
    struct rl_err why = {0};

    if (!c)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    for (; c->count < published_count; c->count++)
        c->list[c->count] = published_models[c->count];
    enum rl_rc rc = *path ? read_more(c, path, &why) : RL_OK;
    if (rc) {
        model_catalogue_free(c);
        return rl_fail(err, rc, "model.catalogue: %s%s%s", why.field, *why.field ? " " : "",
                       why.reason);
    }
    *ret_catalogue = c;
    return RL_OK;
}

void model_catalogue_free(struct model_catalogue *c)
{
    if (!c)
        return;
    rl_json_free(c->root);
    free(c);
}

const struct published_model *model_catalogue_at(const struct model_catalogue *c, size_t i)
{
    return i < c->count ? &c->list[i] : NULL;
}

const struct published_model *model_catalogue_find(const struct model_catalogue *c,
                                                   const char *name)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->list[i].name, name) == 0)
            return &c->list[i];
    return NULL;
}

const struct published_file *model_catalogue_file(const struct model_catalogue *c,
                                                  const char *sha256, int64_t bytes)
{
    for (size_t i = 0; i < c->count; i++)
        for (int k = 0; k < WAN_PARTS; k++) {
            const struct published_file *file = &c->list[i].files[k];
            if (file->sha256 && file->bytes == bytes && strcmp(file->sha256, sha256) == 0)
                return file;
        }
    return NULL;
}

static bool has_file(const struct model_manifest *m, const struct published_file *file)
{
    for (size_t n = 0; n < m->count; n++)
        if (file->sha256 && strcmp(m->files[n].sha256, file->sha256) == 0)
            return true;
    return false;
}

const struct published_model *model_catalogue_match(const struct model_catalogue *c,
                                                    const struct model_manifest *m)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct published_file *files = c->list[i].files;
        if (has_file(m, &files[WAN_DIT]) && has_file(m, &files[WAN_TEXT]) &&
            has_file(m, &files[WAN_VAE]))
            return &c->list[i];
    }
    return NULL;
}
