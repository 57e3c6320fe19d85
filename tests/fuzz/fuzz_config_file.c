/* A configuration file of any bytes: refused with its line, or what is printed of it reads back as
 * the same. */
#include "fuzz.h"

#include "config/config.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* A file in memory with these bytes; its name into path. */
static int file_of(const void *bytes, size_t len, char path[32])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    require(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    (void)snprintf(path, 32, "/proc/self/fd/%d", fd); /* fits */
    return fd;
}

static char *printed(const struct config *cfg, size_t *ret_len)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_len);

    require(out != NULL);
    config_print(cfg, out);
    require(fclose(out) == 0 && text != NULL);
    return text;
}

static void check_printed(const struct config *cfg)
{
    struct config *same = config_new();
    struct rl_err err = {0};
    char path[32];
    size_t len, again_len;
    char *text = printed(cfg, &len);
    int fd = file_of(text, len, path);

    require(same && config_load(same, path, &err) == RL_OK);
    char *again = printed(same, &again_len);
    require(len == again_len && memcmp(text, again, len) == 0);
    (void)close(fd);
    free(text);
    free(again);
    config_free(same);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config *cfg = config_new();
    struct rl_err err = {0};
    char path[32];
    int fd = file_of(data, size, path);

    require(cfg != NULL);
    if (config_load(cfg, path, &err) == RL_OK)
        check_printed(cfg);
    else
        require(err.code == RL_INVALID_FIELD && *err.reason);
    (void)close(fd);
    config_free(cfg);
    return 0;
}
