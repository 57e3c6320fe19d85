/* Where a folder keeps the files of a model: ComfyUI's layout or diffusers', one model in each
 * sub-folder. No state, any thread. */
#include "engine/wan/model.h"
#include "engine/wan/shard.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

#define MAX_PATH 4096

/* Ends of names, the first that matches counts. Of several files of one kind none is taken. */
static const char *const kinds[] = {
    ".safetensors.index.json", ".safetensors", ".gguf", ".pth", ".pt", ".ckpt", ".bin"};

struct found {
    char name[256]; /* of the best kind so far */
    size_t kind;
    int count; /* of that kind */
};

static void consider(struct found *found, const char *name)
{
    size_t kind = 0;

    while (kind < RL_ARRAY_LEN(kinds) && !shard_ends_with(name, kinds[kind]))
        kind++;
    if (kind == RL_ARRAY_LEN(kinds) || name[0] == '.' || (found->count && kind > found->kind))
        return;
    if (!found->count || kind < found->kind)
        *found = (struct found){.kind = kind};
    if (rl_copy_str(found->name, sizeof(found->name), name))
        found->count++;
}

/* The part's file in folder/sub; *ret_path stays NULL when there is none. */
static enum rl_rc look_in(const char *folder, const char *sub, char **ret_path, struct rl_err *err)
{
    char path[MAX_PATH];
    struct found found = {.count = 0};
    const struct dirent *entry;

    int n = snprintf(path, sizeof(path), "%s/%s", folder, sub);
    if (n < 0 || (size_t)n >= sizeof(path))
        return rl_fail(err, RL_INVALID_FIELD, "path too long");
    DIR *dir = opendir(path);
    if (!dir)
        return RL_OK; /* the next place may have it; the last complaint names them all */
    while ((entry = readdir(dir)) != NULL)
        consider(&found, entry->d_name);
    (void)closedir(dir); /* only read */
    if (!found.count)
        return RL_OK;
    if (found.count > 1)
        return rl_fail(err, RL_INVALID_FIELD, "%.120s holds %d %s files: which one is meant?", path,
                       found.count, kinds[found.kind]);
    size_t size = strlen(path) + strlen(found.name) + 2;
    char *whole = malloc(size);
    if (!whole)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    (void)snprintf(whole, size, "%s/%s", path, found.name); /* measured above */
    *ret_path = whole;
    return RL_OK;
}

static enum rl_rc find_part(const char *folder, const char *const subs[2], char **ret_path,
                            struct rl_err *err)
{
    enum rl_rc rc = RL_OK;

    for (int i = 0; i < 2 && !rc && !*ret_path; i++)
        rc = look_in(folder, subs[i], ret_path, err);
    if (!rc && !*ret_path)
        rc = rl_fail(err, RL_NOT_FOUND, "no weights in %.120s/%s or %s", folder, subs[0], subs[1]);
    return rc;
}

enum rl_rc wan_folder_paths(const char *folder, struct wan_paths *ret_paths, struct rl_err *err)
{
    static const char *const subs[WAN_PARTS][2] = {
        {"diffusion_models", "transformer"}, {"text_encoders", "text_encoder"}, {"vae", "vae"}};
    char tokenizer[MAX_PATH];
    struct wan_paths paths = {.tokenizer = NULL};
    enum rl_rc rc = RL_OK;

    for (int i = 0; i < WAN_PARTS && !rc; i++)
        rc = find_part(folder, subs[i], &paths.part[i], err);
    int n = snprintf(tokenizer, sizeof(tokenizer), "%s/tokenizer/spiece.model", folder);
    if (!rc && n > 0 && (size_t)n < sizeof(tokenizer) && access(tokenizer, R_OK) == 0) {
        paths.tokenizer = rl_strdup(tokenizer);
        if (!paths.tokenizer)
            rc = rl_fail(err, RL_NO_MEMORY, "out of memory");
    }
    if (rc) {
        wan_paths_free(&paths);
        return rc;
    }
    *ret_paths = paths;
    return RL_OK;
}

void wan_paths_free(struct wan_paths *paths)
{
    for (int i = 0; i < WAN_PARTS; i++)
        free(paths->part[i]);
    free(paths->tokenizer);
    *paths = (struct wan_paths){.tokenizer = NULL};
}

enum rl_rc wan_model_open(const char *folder, struct wan_model **ret_model, struct rl_err *err)
{
    struct wan_paths paths = {.tokenizer = NULL};
    struct wan_files files;
    enum rl_rc rc = wan_folder_paths(folder, &paths, err);

    for (int i = 0; i < WAN_PARTS; i++)
        files.part[i] = paths.part[i];
    files.tokenizer = paths.tokenizer;
    if (!rc)
        rc = wan_model_open_files(&files, ret_model, err);
    wan_paths_free(&paths);
    return rc;
}
