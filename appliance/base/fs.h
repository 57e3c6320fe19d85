/* Files: durable writes, locks, free space. Paths are the program's own; none comes from a client.
 */
#ifndef RL_BASE_FS_H
#define RL_BASE_FS_H

#include "base/rl.h"

/* mkdir -p with mode for the missing parts. */
enum rl_rc rl_fs_mkdirs(const char *path, unsigned mode, struct rl_err *err) RL_NODISCARD;
/* Write path.tmp with mode, fsync, rename to path, fsync the folder. No partial file remains. */
enum rl_rc rl_fs_write_durable(const char *path, const void *bytes, size_t len, unsigned mode,
                               struct rl_err *err) RL_NODISCARD;
/* Whole file, at most limit bytes, NUL-terminated; returns new. RL_NOT_FOUND when absent. */
enum rl_rc rl_fs_read(const char *path, size_t limit, char **ret_bytes, size_t *ret_len,
                      struct rl_err *err) RL_NODISCARD;
/* fsync an existing file, rename it to final, fsync the folder. RL_DISK_FULL on ENOSPC/EDQUOT. */
enum rl_rc rl_fs_commit(const char *tmp, const char *final, struct rl_err *err) RL_NODISCARD;
/* fsync the folder that holds path. */
enum rl_rc rl_fs_sync_parent(const char *path, struct rl_err *err) RL_NODISCARD;
/* Bytes an unprivileged writer can still use on the file system of path. */
enum rl_rc rl_fs_free_bytes(const char *path, int64_t *ret_bytes, struct rl_err *err) RL_NODISCARD;
/* Exclusive advisory lock on path (created 0600), held until the fd is closed. RL_LOCKED when
 * taken. */
enum rl_rc rl_fs_lock(const char *path, int *ret_fd, struct rl_err *err) RL_NODISCARD;
/* RL_DISK_FULL for ENOSPC/EDQUOT, else RL_IO_ERROR, with "<what>: <strerror>". */
enum rl_rc rl_fail_errno(struct rl_err *err, const char *what, int errnum);

#endif
