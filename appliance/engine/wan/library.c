/* The starter's three files are linked in as they are in the source tree, so that one binary makes
 * a video anywhere; wan_starter.h, made by the build, says where they are, or nothing when the tree
 * has none. No state; any thread. */
#include "engine/wan/library.h"

#include "base/log.h"
#include "config/config.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "wan_starter.h"

#define PATH_BYTES 2200

#ifdef WAN_STARTER_DIT
/* clang-format off */
#define EMBED(symbol, file)                                                                        \
    __asm__(".pushsection .rodata\n.balign 64\n"                                                   \
            ".local " #symbol "\n" #symbol ":\n.incbin \"" file "\"\n" #symbol "_end:\n.byte 0\n"  \
            ".balign 8\n.local " #symbol "_bytes\n" #symbol "_bytes:\n"                            \
            ".quad " #symbol "_end - " #symbol "\n.popsection\n");                                 \
    extern const unsigned char symbol[] /* NOLINT(bugprone-macro-parentheses): a declaration */    \
        __attribute__((visibility("hidden")));                                                     \
    extern const uint64_t symbol##_bytes __attribute__((visibility("hidden")))
/* clang-format on */
EMBED(starter_dit, WAN_STARTER_DIT);
EMBED(starter_text, WAN_STARTER_TEXT);
EMBED(starter_vae, WAN_STARTER_VAE);

static bool has_starter(void)
{
    return true;
}

static enum rl_rc open_starter(struct wan_model **ret_model, struct rl_err *err)
{
    const struct safetensors_bytes parts[WAN_PARTS] = {
        [WAN_DIT] = {"the starter's transformer", starter_dit, starter_dit_bytes},
        [WAN_TEXT] = {"the starter's text encoder", starter_text, starter_text_bytes},
        [WAN_VAE] = {"the starter's VAE", starter_vae, starter_vae_bytes}};
    return wan_model_open_bytes(parts, ret_model, err);
}
#else
static bool has_starter(void)
{
    return false;
}

static enum rl_rc open_starter(struct wan_model **ret_model, struct rl_err *err)
{
    (void)ret_model;
    return rl_fail(err, RL_NOT_FOUND, "this program was built without the starter model");
}
#endif

/* The folder of the models, or of one of them; false: the path is too long. */
static bool path_of(const struct config *cfg, const char *name, char *path)
{
    const char *dir = config_text(cfg, CFG_MODEL_DIR);
    int n = *dir
                ? snprintf(path, PATH_BYTES, "%s/%s", dir, name)
                : snprintf(path, PATH_BYTES, "%s/models/%s", config_text(cfg, CFG_STATE_DIR), name);
    return n > 0 && n < PATH_BYTES;
}

static bool is_name(const char *name)
{
    size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return n > 0 && n < LIBRARY_NAME_BYTES && !name[n] && name[0] != '.';
}

static int can_be_model(const struct dirent *entry)
{
    return is_name(entry->d_name) &&
           (entry->d_type == DT_DIR || entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void add(struct library *library, const char *name)
{
    if (library->count == LIBRARY_MODELS)
        rl_log(RL_LOG_WARN, "model_left_out", "model=%s reason=\"more than %d models\"", name,
               LIBRARY_MODELS);
    else
        (void)rl_copy_str(library->names[library->count++], LIBRARY_NAME_BYTES, name); /* fits */
}

void library_list(const struct config *cfg, struct library *ret_library)
{
    char path[PATH_BYTES];
    struct dirent **entries = NULL;
    *ret_library = (struct library){.count = 0};
    if (has_starter())
        add(ret_library, LIBRARY_STARTER);
    int n = path_of(cfg, "", path) ? scandir(path, &entries, can_be_model, by_name) : 0;
    if (n < 0 && errno != ENOENT)
        rl_log(RL_LOG_WARN, "model_folder_unreadable", "reason=\"%s\"", strerror(errno));
    for (int i = 0; i < n; i++) {
        if (strcmp(entries[i]->d_name, LIBRARY_STARTER) != 0 || !has_starter())
            add(ret_library, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

enum rl_rc library_model(const struct config *cfg, const char *name, struct wan_model **ret_model,
                         struct rl_err *err)
{
    char path[PATH_BYTES];
    if (strcmp(name, LIBRARY_STARTER) == 0 && has_starter())
        return open_starter(ret_model, err);
    if (!is_name(name) || !path_of(cfg, name, path))
        return rl_fail(err, RL_NOT_FOUND, "no model \"%.60s\"", name);
    return wan_model_open(path, ret_model, err);
}
