/* Plug-ins: shared objects that bring an engine each, so that one program serves machines with and
 * without a driver. Owns nothing but what it puts into the catalogue; main thread, at start and at
 * the end. Invariant: a plug-in that does not load costs a log line and nothing else. */
#include "engine/catalogue.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "engine/wan/wan.h"

/* The one cast that ISO C has no words for: an object pointer to a function. */
static engine_plugin_fn entry_of(void *handle)
{
    void *symbol = dlsym(handle, ENGINE_PLUGIN_SYMBOL);
    engine_plugin_fn entry = NULL;
    _Static_assert(sizeof(symbol) == sizeof(entry), "POSIX: dlsym gives function addresses");
    memcpy(&entry, &symbol, sizeof(entry));
    return entry;
}

static enum rl_rc load_one(struct engines *engines, const char *path, struct rl_err *err)
{
    if (engines->handle_count == ENGINES_MAX)
        return rl_fail(err, RL_CONFLICT, "more than %d plug-ins", ENGINES_MAX);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror();
        return rl_fail(err, RL_ENGINE_ERROR, "%s", why ? why : "dlopen failed");
    }
    engine_plugin_fn entry = entry_of(handle);
    enum rl_rc rc = entry ? engines_add(engines, entry(), err)
                          : rl_fail(err, RL_ENGINE_ERROR, "no symbol " ENGINE_PLUGIN_SYMBOL);
    if (rc != RL_OK) {
        (void)dlclose(handle); /* nothing of it is in use */
        return rc;
    }
    engines->handles[engines->handle_count++] = handle;
    return RL_OK;
}

static int is_shared_object(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name);
    return len > 3 && entry->d_name[0] != '.' && strcmp(entry->d_name + len - 3, ".so") == 0;
}

/* Bytewise, so that the order does not depend on the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

enum rl_rc engines_load_plugins(struct engines *engines, const char *folder, struct rl_err *err)
{
    struct dirent **names = NULL;
    int n = scandir(folder, &names, is_shared_object, by_name);
    if (n < 0 && errno == ENOMEM)
        return rl_fail(err, RL_NO_MEMORY, "read the plug-in folder");
    if (n < 0 && errno != ENOENT) {
        rl_log(RL_LOG_WARN, "plugin_folder_unreadable", "reason=\"%s\"", strerror(errno));
        return RL_OK;
    }
    for (int i = 0; i < n; i++) {
        char path[4096], name[256], text[256];
        struct rl_err why = {0};
        int len = snprintf(path, sizeof(path), "%s/%s", folder, names[i]->d_name);
        enum rl_rc rc = len > 0 && (size_t)len < sizeof(path)
                            ? load_one(engines, path, &why)
                            : rl_fail(&why, RL_ENGINE_ERROR, "the path is too long");
        (void)rl_log_quote(names[i]->d_name, name, sizeof(name));
        if (rc == RL_OK)
            rl_log(RL_LOG_INFO, "plugin_loaded", "file=%s engine=%s", name,
                   engines->list[engines->count - 1]->name);
        else
            rl_log(RL_LOG_WARN, "plugin_left_out", "file=%s code=%s reason=%s", name,
                   rl_code_name(rc), rl_log_quote(why.reason, text, sizeof(text)));
        free(names[i]);
    }
    free(names);
    return RL_OK;
}

void engines_close(struct engines *engines)
{
    if (!engines)
        return;
    while (engines->handle_count > 0)
        (void)dlclose(engines->handles[--engines->handle_count]); /* the end: nothing to do */
    wan_engine_free(engines->wan);
    free(engines->default_name);
    free(engines);
}
