/* Loads libav by its sonames, once. The table is written under pthread_once and only read
 * afterwards; the libraries stay loaded until the process ends. */
#include "video/av.h"

#include <dlfcn.h>
#include <pthread.h>

#define STRING(x)        #x
#define SONAME(lib, ver) "lib" #lib ".so." STRING(ver)

static const char *const sonames[] = {
    SONAME(avutil, LIBAVUTIL_VERSION_MAJOR), SONAME(avcodec, LIBAVCODEC_VERSION_MAJOR),
    SONAME(avformat, LIBAVFORMAT_VERSION_MAJOR), SONAME(swscale, LIBSWSCALE_VERSION_MAJOR)};
enum { LIB_avutil, LIB_avcodec, LIB_avformat, LIB_swscale };

static struct av table;
static struct rl_err failure; /* why loading failed; code RL_OK = it did not */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A function pointer from dlsym, without a cast that ISO C forbids. */
static bool find(void *library, const char *name, void *pointer_to_function)
{
    void *symbol = library ? dlsym(library, name) : NULL;
    *(void **)pointer_to_function = symbol;
    return symbol != NULL;
}

static void load(void)
{
    void *libraries[RL_ARRAY_LEN(sonames)];
    for (size_t i = 0; i < RL_ARRAY_LEN(sonames); i++) {
        libraries[i] = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL);
        if (!libraries[i]) {
            (void)rl_fail(&failure, RL_ENCODER_ERROR, "cannot load %s: %s", sonames[i], dlerror());
            return;
        }
    }
#define AV_FIND(library, function)                                                                 \
    if (!find(libraries[LIB_##library], #function, &table.function)) {                             \
        (void)rl_fail(&failure, RL_ENCODER_ERROR, "%s has no %s", sonames[LIB_##library],          \
                      #function);                                                                  \
        return;                                                                                    \
    }
    AV_FUNCTIONS(AV_FIND)
    /* libav writes its own lines to stderr; reeld reports errors itself. */
    table.av_log_set_level(AV_LOG_QUIET);
}

enum rl_rc av_load(struct rl_err *err)
{
    (void)pthread_once(&once, load); /* cannot fail with a valid control */
    if (failure.code != RL_OK && err)
        *err = failure;
    return failure.code;
}

const struct av *av(void)
{
    return &table;
}
