/* Durable files, locks and free space. Any thread, no state. Every step of a durable write is
 * checked, every descriptor is close-on-exec, and a failure leaves either the old file or the
 * complete new one under the final name. */
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum rl_rc rl_fail_errno(struct rl_err *err, const char *what, int errnum)
{
    enum rl_rc code = errnum == ENOSPC || errnum == EDQUOT ? RL_DISK_FULL : RL_IO_ERROR;
    char text[128];

    return rl_fail(err, code, "%s: %s", what, strerror_r(errnum, text, sizeof(text)));
}

/* "<verb> <path>: <strerror>". */
static enum rl_rc fail_path(struct rl_err *err, const char *verb, const char *path)
{
    int errnum = errno;
    char what[192];

    (void)snprintf(what, sizeof(what), "%s %s", verb, path); /* a long path may be cut */
    return rl_fail_errno(err, what, errnum);
}

/* The folder that holds path; returns new, NULL when memory is short. */
static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = rl_strdup(!slash ? "." : slash == path ? "/" : path);

    if (dir && slash && slash != path)
        dir[slash - path] = '\0';
    return dir;
}

enum rl_rc rl_fs_sync_parent(const char *path, struct rl_err *err)
{
    AUTO_FREE char *dir = parent_of(path);
    if (!dir)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");

    AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_path(err, "open", dir);
    if (fsync(fd) != 0)
        return fail_path(err, "fsync", dir);
    return RL_OK;
}

/* One level of rl_fs_mkdirs. A folder that exists is left as it is. */
static enum rl_rc make_dir(const char *path, unsigned mode, struct rl_err *err)
{
    struct stat st;

    if (mkdir(path, (mode_t)mode) == 0)
        return rl_fs_sync_parent(path, err);

    int errnum = errno; /* EEXIST, but also EROFS or EACCES above an existing folder */
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return RL_OK;
        errnum = ENOTDIR;
    }
    errno = errnum;
    return fail_path(err, "mkdir", path);
}

enum rl_rc rl_fs_mkdirs(const char *path, unsigned mode, struct rl_err *err)
{
    AUTO_FREE char *part = rl_strdup(path);
    if (!part)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    size_t len = strlen(part);
    while (len > 1 && part[len - 1] == '/')
        part[--len] = '\0';

    for (size_t i = 1; i < len; i++) {
        if (part[i] != '/' || part[i - 1] == '/')
            continue;
        part[i] = '\0';
        enum rl_rc rc = make_dir(part, mode, err);
        if (rc)
            return rc;
        part[i] = '/';
    }
    return make_dir(part, mode, err);
}

static bool write_all(int fd, const void *bytes, size_t len)
{
    const char *p = bytes;

    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

/* Create tmp with the bytes in it, on disk. On failure tmp may exist. */
static enum rl_rc write_tmp(const char *tmp, const void *bytes, size_t len, unsigned mode,
                            struct rl_err *err)
{
    /* a left-over of a crash may have another mode: never write a secret into it */
    if (unlink(tmp) != 0 && errno != ENOENT)
        return fail_path(err, "unlink", tmp);

    AUTO_CLOSE int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (mode_t)mode);
    if (fd < 0)
        return fail_path(err, "create", tmp);
    if (fchmod(fd, (mode_t)mode) != 0) /* the umask took its part at open */
        return fail_path(err, "chmod", tmp);
    if (!write_all(fd, bytes, len))
        return fail_path(err, "write", tmp);
    if (fsync(fd) != 0)
        return fail_path(err, "fsync", tmp);

    int closing = fd;
    fd = -1;
    if (close(closing) != 0)
        return fail_path(err, "close", tmp);
    return RL_OK;
}

enum rl_rc rl_fs_write_durable(const char *path, const void *bytes, size_t len, unsigned mode,
                               struct rl_err *err)
{
    size_t size = strlen(path) + sizeof(".tmp");
    AUTO_FREE char *tmp = malloc(size);
    if (!tmp)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    (void)snprintf(tmp, size, "%s.tmp", path); /* measured above */

    enum rl_rc rc = write_tmp(tmp, bytes, len, mode, err);
    if (!rc && rename(tmp, path) != 0)
        rc = fail_path(err, "rename to", path);
    if (rc) {
        (void)unlink(tmp); /* the first error is the one to report */
        return rc;
    }
    return rl_fs_sync_parent(path, err);
}

enum rl_rc rl_fs_read(const char *path, size_t limit, char **ret_bytes, size_t *ret_len,
                      struct rl_err *err)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return rl_fail(err, RL_NOT_FOUND, "no file %s", path);
    if (fd < 0)
        return fail_path(err, "open", path);

    AUTO_FREE char *data = NULL;
    size_t len = 0;
    size_t cap = 0;
    for (;;) {
        if (cap - len < 2) { /* one byte more than the limit shows that the file is longer */
            cap = cap ? cap * 2 : 4096;
            char *grown = realloc(data, cap);
            if (!grown)
                return rl_fail(err, RL_NO_MEMORY, "out of memory");
            data = grown;
        }
        ssize_t n = read(fd, data + len, cap - len - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_path(err, "read", path);
        if (n == 0)
            break;
        len += (size_t)n;
        if (len > limit)
            return rl_fail(err, RL_IO_ERROR, "%s is longer than %zu bytes", path, limit);
    }
    data[len] = '\0';
    *ret_len = len;
    *ret_bytes = STEAL(data);
    return RL_OK;
}

enum rl_rc rl_fs_commit(const char *tmp, const char *final, struct rl_err *err)
{
    AUTO_CLOSE int fd = open(tmp, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail_path(err, "open", tmp);
    if (fsync(fd) != 0)
        return fail_path(err, "fsync", tmp);
    if (rename(tmp, final) != 0)
        return fail_path(err, "rename to", final);
    return rl_fs_sync_parent(final, err);
}

enum rl_rc rl_fs_free_bytes(const char *path, int64_t *ret_bytes, struct rl_err *err)
{
    struct statvfs st;
    int64_t bytes;

    if (statvfs(path, &st) != 0)
        return fail_path(err, "statvfs", path);
    if (__builtin_mul_overflow(st.f_bavail, st.f_frsize, &bytes))
        bytes = INT64_MAX;
    *ret_bytes = bytes;
    return RL_OK;
}

enum rl_rc rl_fs_lock(const char *path, int *ret_fd, struct rl_err *err)
{
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_path(err, "open", path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return rl_fail(err, RL_LOCKED, "%s is locked by another process", path);
        return fail_path(err, "lock", path);
    }
    *ret_fd = fd;
    fd = -1;
    return RL_OK;
}
