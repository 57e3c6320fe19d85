/* Limits of memory: the hardware's and those of control groups. */
#include "base/machine.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define CGROUP_ROOT "/sys/fs/cgroup"
#define PATH_BYTES  4096

/* The first bytes of a file as a string; false: it cannot be read. Without memory of its own: what
 * is asked here is how much there is. */
static bool read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, size - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Of one group; INT64_MAX: none, or the file cannot be read (the root group has none). */
static int64_t limit_of(const char *root, const char *group, size_t group_len)
{
    char path[PATH_BYTES], text[64];
    int n = snprintf(path, sizeof path, "%s%.*s/memory.max", root, (int)group_len, group);
    if (n < 0 || (size_t)n >= sizeof path || !read_text(path, text, sizeof text))
        return INT64_MAX;
    char *end;
    long long bytes = strtoll(text, &end, 10); /* "max" when there is none */
    return end != text && bytes > 0 ? bytes : INT64_MAX;
}

int64_t rl_cgroup_memory(const char *proc_cgroup, const char *root)
{
    static const char v2[] = "0::";
    int64_t least = INT64_MAX;
    for (const char *line = proc_cgroup; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, v2, sizeof v2 - 1) != 0)
            continue;
        const char *group = line + sizeof v2 - 1;
        for (size_t len = strcspn(group, "\n");; len--) { /* the group itself, then each above */
            if (len == 0 || group[len] == '/' || group[len] == '\n' || !group[len]) {
                int64_t limit = limit_of(root, group, len);
                least = limit < least ? limit : least;
            }
            if (len == 0)
                break;
        }
    }
    return least;
}

int64_t rl_machine_memory(void)
{
    char text[PATH_BYTES];
    int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    if (read_text("/proc/self/cgroup", text, sizeof text)) {
        int64_t limit = rl_cgroup_memory(text, CGROUP_ROOT);
        bytes = limit < bytes ? limit : bytes;
    }
    return bytes;
}
