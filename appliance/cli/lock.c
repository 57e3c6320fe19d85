/* What the kernel tells about a state folder: the holder of its lock and its file system. No state.
 */
#include "cli/lock.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#define LOCK_FILE "reeld.lock" /* store/store.c makes and holds it */

int64_t cli_lock_holder(const char *state_dir)
{
    char path[1200], line[256];
    struct stat st;

    if (snprintf(path, sizeof(path), "%s/%s", state_dir, LOCK_FILE) >= (int)sizeof(path) ||
        stat(path, &st) != 0)
        return 0;
    AUTO_FCLOSE FILE *locks = fopen("/proc/locks", "re");
    while (locks && fgets(line, sizeof(line), locks)) {
        /* "1: FLOCK  ADVISORY  WRITE 1234 08:01:393233 0 EOF" (proc(5)) */
        long long pid;
        unsigned maj, min;
        unsigned long long inode;
        if (sscanf(line, "%*d: FLOCK %*s WRITE %lld %x:%x:%llu", &pid, &maj, &min, &inode) == 4 &&
            inode == (unsigned long long)st.st_ino && maj == major(st.st_dev) &&
            min == minor(st.st_dev))
            return pid > 0 ? pid : 0;
    }
    return 0;
}

bool cli_file_system(const char *path, char *name, bool *ret_remote)
{
    /* f_type values of statfs(2) */
    static const struct {
        unsigned long type;
        const char *name;
        bool remote;
    } known[] = {
        {0xef53, "ext4", false},        {0x58465342, "xfs", false},  {0x9123683e, "btrfs", false},
        {0x2fc12fc1, "zfs", false},     {0xf2f52010, "f2fs", false}, {0x01021994, "tmpfs", false},
        {0x794c7630, "overlay", false}, {0x65735546, "fuse", false}, {0x6969, "nfs", true},
        {0xff534d42, "cifs", true},     {0xfe534d42, "smb2", true},  {0x01021997, "9p", true},
    };
    struct statfs fs;

    if (statfs(path, &fs) != 0)
        return false;
    unsigned long type = (unsigned long)fs.f_type & 0xffffffffUL;
    (void)snprintf(name, 32, "type 0x%lx", type); /* fits */
    *ret_remote = false;
    for (size_t i = 0; i < RL_ARRAY_LEN(known); i++)
        if (known[i].type == type) {
            (void)rl_copy_str(name, 32, known[i].name); /* fits */
            *ret_remote = known[i].remote;
        }
    return true;
}
