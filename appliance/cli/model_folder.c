/* The folder of the models: names, manifests, room, and the rename that makes a model appear. One
 * thread per process; several processes are kept apart by the lock file. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "cli/model.h"
#include "cli/term.h"
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANIFEST_LIMIT 262144
#define NAME_CHARS     "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

bool model_name_ok(const char *name)
{
    size_t n = strspn(name, NAME_CHARS);

    return n > 0 && n < MODEL_NAME && !name[n] && name[0] != '.';
}

enum rl_rc model_path(const struct model_job *job, const char *name, bool part, const char *below,
                      char path[MODEL_PATH], struct rl_err *err)
{
    int n = snprintf(path, MODEL_PATH, "%s/%s%s%s%s%s", job->dir, part ? "." : "", name,
                     part ? ".part" : "", below ? "/" : "", below ? below : "");

    return n > 0 && n < MODEL_PATH
               ? RL_OK
               : rl_fail(err, RL_INVALID_FIELD, "the path of a model is too long");
}

bool model_exists(const struct model_job *job, const char *name)
{
    char path[MODEL_PATH];
    struct stat st;

    return !model_path(job, name, false, NULL, path, NULL) && lstat(path, &st) == 0;
}

/* Size of the first of these that exists, 0 = none does. */
static int64_t size_of(const char *path, const char *other)
{
    struct stat st;

    return stat(path, &st) == 0 || stat(other, &st) == 0 ? st.st_size : 0;
}

int64_t model_pulled_bytes(const struct model_job *job, const struct published_model *model)
{
    char path[MODEL_PATH], other[MODEL_PATH + 8];
    int64_t bytes = 0;

    if (model_path(job, model->name, true, NULL, path, NULL) || access(path, F_OK) != 0)
        return -1;
    for (int i = 0; i < WAN_PARTS; i++) {
        if (model_path(job, model->name, true, model->files[i].path, path, NULL))
            continue;
        (void)snprintf(other, sizeof(other), "%s.part", path); /* fits */
        bytes += size_of(path, other);
    }
    return bytes;
}

enum rl_rc model_check_room(const struct model_job *job, int64_t bytes, struct rl_err *err)
{
    char need[32], have[32], keep[32];
    int64_t room = 0, reserve = config_int(job->cfg, CFG_STORE_MIN_FREE);
    enum rl_rc rc = rl_fs_free_bytes(job->dir, &room, err);

    if (rc || room - reserve >= bytes)
        return rc;
    cli_size_text(bytes, need);
    cli_size_text(room, have);
    cli_size_text(reserve, keep);
    return rl_fail(err, RL_DISK_FULL,
                   "%s are needed, %s are free, of which %s stay free (store.min_free_bytes)", need,
                   have, keep);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st, (void)where;
    return kind == FTW_DP ? rmdir(path) : unlink(path);
}

enum rl_rc model_remove_tree(const char *path, struct rl_err *err)
{
    if (nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return rl_fail_errno(err, "remove", errno);
    return RL_OK;
}

/* ---- manifests ---- */

/* A path that stays below the folder that it is in. */
static bool path_ok(const char *path)
{
    return *path && *path != '/' && !strstr(path, "..") && !strpbrk(path, "\\\n\r");
}

static bool copy_member(const struct rl_json *object, const char *name, char *to, size_t size)
{
    const char *text = rl_json_text(rl_json_get(object, name));

    *to = '\0';
    return !text || rl_copy_str(to, size, text);
}

static bool read_files(const struct rl_json *list, struct model_manifest *m)
{
    for (const struct rl_json *item = rl_json_child(list); item; item = rl_json_next(item)) {
        struct model_file *f = &m->files[m->count];
        if (m->count == MODEL_FILES || !copy_member(item, "path", f->path, sizeof(f->path)) ||
            !copy_member(item, "sha256", f->sha256, sizeof(f->sha256)) || !path_ok(f->path) ||
            rl_json_int(rl_json_get(item, "bytes"), "bytes", 0, RL_JSON_MAX_INT, &f->bytes, NULL))
            return false;
        m->count++;
    }
    return m->count > 0;
}

enum rl_rc model_manifest_read(const char *folder, struct model_manifest *m, struct rl_err *err)
{
    char path[MODEL_PATH];
    AUTO_FREE char *text = NULL;
    AUTO_JSON struct rl_json *root = NULL;
    size_t len = 0;

    *m = (struct model_manifest){.count = 0};
    if (snprintf(path, sizeof(path), "%s/" MODEL_MANIFEST, folder) >= (int)sizeof(path))
        return rl_fail(err, RL_INVALID_FIELD, "the path of a model is too long");
    enum rl_rc rc = rl_fs_read(path, MANIFEST_LIMIT, &text, &len, err);
    if (rc)
        return rc;
    const char *added = NULL;
    if (!rl_json_parse(text, len, &root, NULL))
        added = rl_json_text(rl_json_get(root, "added_at"));
    if (!root || !copy_member(root, "name", m->name, sizeof(m->name)) ||
        !copy_member(root, "origin", m->origin, sizeof(m->origin)) ||
        !copy_member(root, "licence", m->licence, sizeof(m->licence)) ||
        !read_files(rl_json_get(root, "files"), m))
        return rl_fail(err, RL_INVALID_FIELD, MODEL_MANIFEST " is damaged");
    if (added && rl_time_parse(added, &m->added_at_ms, NULL))
        m->added_at_ms = 0;
    return RL_OK;
}

static enum rl_rc manifest_write(const char *path, const struct model_manifest *m,
                                 struct rl_err *err)
{
    AUTO_BUF struct rl_buf text = {0};
    struct rl_jw w;

    rl_buf_init(&text, MANIFEST_LIMIT);
    rl_jw_init(&w, &text, false);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "name", m->name);
    rl_jw_str(&w, "origin", m->origin);
    rl_jw_str(&w, "licence", *m->licence ? m->licence : NULL);
    rl_jw_time(&w, "added_at", m->added_at_ms);
    rl_jw_array(&w, "files");
    for (size_t i = 0; i < m->count; i++) {
        rl_jw_object(&w, NULL);
        rl_jw_str(&w, "path", m->files[i].path);
        rl_jw_i64(&w, "bytes", m->files[i].bytes);
        rl_jw_str(&w, "sha256", *m->files[i].sha256 ? m->files[i].sha256 : NULL);
        rl_jw_end_object(&w);
    }
    rl_jw_end_array(&w);
    rl_jw_end_object(&w);
    rl_buf_str(&text, "\n");
    enum rl_rc rc = rl_buf_ok(&text, err);
    return rc ? rc : rl_fs_write_durable(path, text.data, text.len, 0644, err);
}

/* The path behind "<folder>/", with its size. */
static enum rl_rc guess_file(const char *folder, const char *path, struct model_manifest *m,
                             struct rl_err *err)
{
    struct model_file *f = &m->files[m->count];
    struct stat st;

    if (stat(path, &st) != 0)
        return rl_fail_errno(err, "look at a model's file", errno);
    if (!rl_copy_str(f->path, sizeof(f->path), path + strlen(folder) + 1))
        return rl_fail(err, RL_INVALID_FIELD, "a name of more than %zu bytes", sizeof(f->path));
    f->bytes = st.st_size;
    m->count++;
    return RL_OK;
}

enum rl_rc model_manifest_guess(const char *folder, struct model_manifest *m, struct rl_err *err)
{
    struct wan_paths paths = {.tokenizer = NULL};

    *m = (struct model_manifest){.count = 0};
    enum rl_rc rc = wan_folder_paths(folder, &paths, err);
    for (int i = 0; i < WAN_PARTS && !rc; i++)
        rc = guess_file(folder, paths.part[i], m, err);
    if (!rc && paths.tokenizer)
        rc = guess_file(folder, paths.tokenizer, m, err);
    wan_paths_free(&paths);
    return rc;
}

int64_t model_manifest_bytes(const struct model_manifest *m)
{
    int64_t bytes = 0;

    for (size_t i = 0; i < m->count; i++)
        bytes += m->files[i].bytes;
    return bytes;
}

/* ---- publishing ---- */

enum rl_rc model_publish(const struct model_job *job, const struct model_manifest *m,
                         struct rl_err *err)
{
    char part[MODEL_PATH], manifest[MODEL_PATH], final[MODEL_PATH];
    struct wan_model *model = NULL;
    enum rl_rc rc = model_path(job, m->name, true, NULL, part, err);

    if (!rc)
        rc = model_path(job, m->name, true, MODEL_MANIFEST, manifest, err);
    if (!rc)
        rc = model_path(job, m->name, false, NULL, final, err);
    if (!rc)
        rc = wan_model_open(part, &model, err);
    wan_model_close(model);
    if (!rc)
        rc = manifest_write(manifest, m, err);
    if (!rc && rename(part, final) != 0)
        rc = rl_fail_errno(err, "rename the model's folder", errno);
    return rc ? rc : rl_fs_sync_parent(final, err);
}
