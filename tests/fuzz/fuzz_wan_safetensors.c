/* A safetensors file of any bytes: refused, or every tensor lies inside the file and can be read,
 * no two share a byte, and the names are sorted and found. */
#include "fuzz.h"

#include "engine/wan/safetensors.h"
#include "engine/wan/scan.h"

#include <sys/mman.h>
#include <unistd.h>

static void check_file(const struct safetensors *file, size_t size)
{
    size_t total = 0;

    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct tensor *t = safetensors_at(file, i);
        const unsigned char *p = t->data;
        unsigned sum = 0;

        require(i == 0 || strcmp(safetensors_at(file, i - 1)->name, t->name) < 0);
        require(safetensors_find(file, t->name) == t);
        for (size_t k = 0; k < t->bytes; k++)
            sum += p[k];
        require(sum <= 255 * t->bytes);
        total += t->bytes;
        safetensors_want(t, true);
    }
    require(total + 10 <= size);
    (void)safetensors_metadata(file, "format");
}

/* The first bytes are the length of a header that may well be wrong; to get past it often, it is
 * put right in every second input. */
static void check_open(const uint8_t *data, size_t size)
{
    char path[64];
    struct safetensors *file = NULL;
    struct rl_err err = {0};
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    uint64_t len = size > 9 ? size - 9 - data[8] % 64 : 0;

    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    if (size > 9 && data[8] % 2 && size > 9u + data[8] % 64)
        require(pwrite(fd, &len, 8, 0) == 8);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    enum rl_rc rc = safetensors_open(path, &file, &err);
    require((rc == RL_OK) == (file != NULL));
    require(rc == RL_OK || (rc == RL_INVALID_FIELD && err.reason[0]));
    if (file)
        check_file(file, size);
    safetensors_close(file);
    require(close(fd) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *strings = malloc(size + 1);
    struct rl_err err = {0};
    struct scan scan = {
        .file = "text", .text = (const char *)data, .len = size, .strings = strings, .err = &err};

    require(strings);
    if (scan_skip(&scan) == RL_OK)
        (void)scan_end(&scan);
    require(scan.pos <= size && scan.used <= size);
    free(strings);
    check_open(data, size);
    return 0;
}
