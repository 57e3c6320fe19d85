/* Limits of memory: the hardware's and those of control groups. */
#include "base/machine.h"

#include "base/fs.h"

#include <string.h>
#include <unistd.h>

#define CGROUP_ROOT "/sys/fs/cgroup"
#define PATH_BYTES  4096

/* Of one group; INT64_MAX: none, or the file cannot be read (the root group has none). */
static int64_t limit_of(const char *root, const char *group, size_t group_len)
{
    char path[PATH_BYTES];
    AUTO_FREE char *text = NULL;
    size_t len;
    int n = snprintf(path, sizeof path, "%s%.*s/memory.max", root, (int)group_len, group);
    if (n < 0 || (size_t)n >= sizeof path || rl_fs_read(path, 64, &text, &len, NULL) != RL_OK)
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
    AUTO_FREE char *text = NULL;
    size_t len;
    int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    if (rl_fs_read("/proc/self/cgroup", 65536, &text, &len, NULL) == RL_OK) {
        int64_t limit = rl_cgroup_memory(text, CGROUP_ROOT);
        bytes = limit < bytes ? limit : bytes;
    }
    return bytes;
}
