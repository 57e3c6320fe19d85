/* `reeld model add`: files that are here already become a model, by copy or hard link, into a
 * hidden folder that is renamed when all of it is there and opens. One thread. */
#include "base/clock.h"
#include "base/fs.h"
#include "cli/model.h"
#include "cli/term.h"
#include "engine/wan/inspect.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const part_dirs[WAN_PARTS] = {"diffusion_models", "text_encoders", "vae"};

struct adding {
    struct model_job *job;
    bool link;
    struct model_manifest *manifest; /* owned */
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Where the parts are: in one folder, or as three files in any order (and a tokenizer). */
static enum rl_rc find_parts(const struct cli_args *args, struct wan_paths *paths,
                             struct rl_err *err)
{
    const char *tokenizer = cli_args_text(args, "tokenizer");
    enum rl_rc rc = RL_OK;

    if (args->word_count == 1 && is_folder(args->words[0]))
        return wan_folder_paths(args->words[0], paths, err);
    for (size_t i = 0; i < args->word_count && !rc; i++) {
        enum wan_part part;
        rc = wan_file_part(args->words[i], &part, err);
        if (!rc && paths->part[part])
            rc = rl_fail(err, RL_INVALID_FIELD, "%.80s and %.80s are the same part of a model",
                         base_name(paths->part[part]), base_name(args->words[i]));
        if (!rc && !(paths->part[part] = rl_strdup(args->words[i])))
            rc = rl_fail(err, RL_NO_MEMORY, "out of memory");
    }
    if (!rc && tokenizer && !(paths->tokenizer = rl_strdup(tokenizer)))
        rc = rl_fail(err, RL_NO_MEMORY, "out of memory");
    if (!rc && args->word_count != WAN_PARTS)
        rc = rl_fail(err, RL_BAD_REQUEST,
                     "a model is a folder, or three files: transformer, text encoder, VAE");
    return rc;
}

/* Opening it is the check; its name without --name is the model's own. */
static enum rl_rc look_at(const struct wan_paths *paths, const char *wish, char name[MODEL_NAME],
                          struct rl_err *err)
{
    struct wan_model *model = NULL;
    struct wan_files files = {.tokenizer = paths->tokenizer};

    for (int i = 0; i < WAN_PARTS; i++)
        files.part[i] = paths->part[i];
    enum rl_rc rc = wan_model_open_files(&files, &model, err);
    if (rc)
        return rc;
    if (!rl_copy_str(name, MODEL_NAME, wish ? wish : wan_model_config(model)->name))
        name[0] = '\0';
    wan_model_close(model);
    for (char *p = name; !wish && *p; p++)
        *p = (char)tolower((unsigned char)*p);
    if (!model_name_ok(name))
        rc = rl_fail(err, RL_BAD_REQUEST,
                     "a model's name is 1 to 63 of A-Z a-z 0-9 . _ -; --name gives one");
    return rc;
}

static enum rl_rc bring(struct adding *a, const char *from, const char *dir, const char *as,
                        struct rl_err *err)
{
    struct model_file *f = &a->manifest->files[a->manifest->count];
    char to[MODEL_PATH];
    int64_t bytes = 0;

    if (a->manifest->count == MODEL_FILES ||
        snprintf(f->path, sizeof(f->path), "%s/%s", dir, as) >= (int)sizeof(f->path))
        return rl_fail(err, RL_INVALID_FIELD, "too many files, or a name that is too long");
    enum rl_rc rc = model_path(a->job, a->manifest->name, true, dir, to, err);
    if (!rc)
        rc = rl_fs_mkdirs(to, 0755, err);
    if (!rc)
        rc = model_path(a->job, a->manifest->name, true, f->path, to, err);
    /* What a cache's symbolic link leads to: the link itself would lead nowhere from there. */
    if (!rc && a->link && linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) != 0)
        rc = errno == EXDEV ? rl_fail(err, RL_INVALID_FIELD,
                                      "%.80s is on another file system: add it without --link", as)
                            : rl_fail_errno(err, "link", errno);
    if (!rc)
        rc = model_digest(a->job, a->link ? to : from, f->path, a->link ? NULL : to, f->sha256,
                          &bytes, err);
    f->bytes = bytes;
    a->manifest->count += rc == RL_OK;
    return rc;
}

static bool is_index(const char *path)
{
    size_t n = strlen(path);

    return n >= 5 && strcmp(path + n - 5, ".json") == 0;
}

/* A file that the index `path` names stands beside it. */
static enum rl_rc shard_path(const char *path, const char *name, char shard[MODEL_PATH],
                             struct rl_err *err)
{
    int len = snprintf(shard, MODEL_PATH, "%.*s%s", (int)(base_name(path) - path), path, name);

    return len > 0 && len < MODEL_PATH
               ? RL_OK
               : rl_fail(err, RL_INVALID_FIELD, "the path of %.80s is too long", name);
}

/* A part, with the other files when it is an index of several. */
static enum rl_rc bring_part(struct adding *a, const char *path, const char *dir,
                             struct rl_err *err)
{
    struct safetensors *file = NULL;
    char shard[MODEL_PATH];
    enum rl_rc rc = bring(a, path, dir, base_name(path), err);

    if (rc || !is_index(path))
        return rc;
    rc = safetensors_open(path, &file, err);
    for (size_t i = 0; !rc && i < safetensors_files(file); i++) {
        const char *name = safetensors_file(file, i);
        rc = shard_path(path, name, shard, err);
        if (!rc)
            rc = bring(a, shard, dir, name, err);
    }
    safetensors_close(file);
    return rc;
}

static enum rl_rc bring_all(struct adding *a, const struct wan_paths *paths, struct rl_err *err)
{
    struct model_manifest *m = a->manifest;
    enum rl_rc rc = RL_OK;

    for (int i = 0; i < WAN_PARTS && !rc; i++)
        rc = bring_part(a, paths->part[i], part_dirs[i], err);
    if (!rc && paths->tokenizer)
        rc = bring(a, paths->tokenizer, "tokenizer", "spiece.model", err);
    if (rc)
        return rc;
    const struct published_model *known = model_catalogue_match(a->job->catalogue, m);
    (void)snprintf(m->origin, sizeof(m->origin), "%s%s%s", a->link ? "linked" : "copied",
                   known ? ", the catalogue's " : "", known ? known->name : ""); /* fits */
    (void)rl_copy_str(m->licence, sizeof(m->licence),
                      known && known->licence ? known->licence : "");
    m->added_at_ms = rl_wall_ms();
    return model_publish(a->job, m, err);
}

static int64_t file_bytes(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

/* Bytes of a part's files: of an index, those that it names are nearly all. */
static enum rl_rc part_bytes(const char *path, int64_t *bytes, struct rl_err *err)
{
    struct safetensors *file = NULL;
    char shard[MODEL_PATH];

    *bytes += file_bytes(path);
    if (!is_index(path))
        return RL_OK;
    enum rl_rc rc = safetensors_open(path, &file, err);
    for (size_t i = 0; !rc && i < safetensors_files(file); i++) {
        rc = shard_path(path, safetensors_file(file, i), shard, err);
        if (!rc)
            *bytes += file_bytes(shard);
    }
    safetensors_close(file);
    return rc;
}

/* Is there room for copies of all parts? */
static enum rl_rc check_room(const struct adding *a, const struct wan_paths *paths,
                             struct rl_err *err)
{
    int64_t bytes = 0;
    enum rl_rc rc = RL_OK;

    for (int i = 0; i < WAN_PARTS && !rc; i++)
        rc = part_bytes(paths->part[i], &bytes, err);
    return rc ? rc : model_check_room(a->job, bytes, err);
}

static enum rl_rc add(struct adding *a, const struct cli_args *args, const struct wan_paths *paths,
                      struct rl_err *err)
{
    char part[MODEL_PATH];
    struct model_manifest *m = a->manifest;
    enum rl_rc rc = look_at(paths, cli_args_text(args, "name"), m->name, err);

    if (!rc)
        rc = model_job_lock(a->job, err);
    if (!rc && strcmp(m->name, LIBRARY_STARTER) == 0)
        rc = rl_fail(err, RL_BAD_REQUEST, "starter is the built-in model: --name gives another");
    if (!rc && model_exists(a->job, m->name))
        rc =
            rl_fail(err, RL_CONFLICT, "there is a model %s already; --name gives another", m->name);
    if (!rc && !a->link)
        rc = check_room(a, paths, err);
    if (!rc)
        rc = model_path(a->job, m->name, true, NULL, part, err);
    if (!rc && model_catalogue_find(a->job->catalogue, m->name) && access(part, F_OK) == 0)
        rc = rl_fail(err, RL_CONFLICT,
                     "%s is being pulled: finish that, or `reeld model rm %s` first", m->name,
                     m->name);
    if (!rc) /* left over: perhaps with hard links in it, which must not be written to */
        rc = model_remove_tree(part, err);
    if (rc)
        return rc;
    rc = bring_all(a, paths, err);
    if (rc)
        (void)model_remove_tree(part, NULL); /* the first error is the one to report */
    return rc;
}

static int run_add(const struct cli_call *call)
{
    AUTO_JOB struct model_job job = {.lock = -1};
    struct wan_paths paths = {.tokenizer = NULL};
    struct adding a = {.job = &job, .link = cli_args_has(call->args, "link")};
    struct rl_err err = {0};

    int status = model_job_open(call, "model add", &job);
    if (status != CLI_OK)
        return status;
    a.manifest = calloc(1, sizeof(*a.manifest));
    enum rl_rc rc = a.manifest ? find_parts(call->args, &paths, &err)
                               : rl_fail(&err, RL_NO_MEMORY, "out of memory");
    if (!rc)
        rc = add(&a, call->args, &paths, &err);
    if (rc)
        status = model_fail(&job, &err);
    else
        model_say(&job, "done", a.manifest->name,
                  "is here; a server that runs knows it after a restart");
    wan_paths_free(&paths);
    free(a.manifest);
    return status;
}

static const struct cli_option add_options[] = {
    {"name", 'n', "NAME", "what to call it; the model's own name otherwise"},
    {"link", 0, NULL, "hard links instead of copies: no room is needed; same file system"},
    {"tokenizer", 0, "FILE", "spiece.model, when the text encoder's file does not hold it"},
    {"state-dir", 'd', "DIR", "the state folder, which has models/ in it"},
    {"config", 'c', "FILE", "configuration file; /etc/reeld/reeld.conf otherwise, when it exists"},
    {"set", 0, "KEY=VALUE", "one configuration key (model.dir, …); may be repeated"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

const struct cli_command cli_model_add = {
    .name = "model add",
    .synopsis = "FOLDER | TRANSFORMER TEXT_ENCODER VAE",
    .summary = "make a model of safetensors files that are here",
    .details = "FOLDER is laid out as ComfyUI's models folder (diffusion_models, text_encoders,\n"
               "vae) or as diffusers' (transformer, text_encoder, vae), with one file of each.\n"
               "Three files may stand in any order. They are opened before they count: .pth\n"
               "files are refused. With --link never write to the originals afterwards.\n",
    .options = add_options,
    .min_words = 1,
    .max_words = 3,
    .run = run_add,
};
