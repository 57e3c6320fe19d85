/* Downloads: `video`, `submit --wait -o` and `backup`. The bytes go to FILE.part; FILE appears
 * complete, synced and (for videos) checked against the task's SHA-256, or not at all. The part is
 * locked from open to close: one command writes to it, and only that one may empty or remove it. */
#include "cli/download.h"

#include "base/crypto.h"
#include "base/fs.h"
#include "cli/commands.h"
#include "cli/submit.h"
#include "cli/term.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_TURNS 16 /* each but the first because another command was done just then */

static int complain_errno(const char *path, int errnum)
{
    char text[128];

    fprintf(stderr, "reeld: %s: %s\n", path, strerror_r(errnum, text, sizeof(text)));
    return CLI_FAILED;
}

/* The part, opened and locked. false with errno: EWOULDBLOCK when another command has it. */
static bool take_part(struct cli_download *download, unsigned mode, struct stat *ret_st)
{
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_APPEND;

    for (int turn = 0; turn < OPEN_TURNS; turn++) {
        struct stat named;
        download->fd = open(download->part, flags, (mode_t)mode);
        if (download->fd < 0)
            return false;
        /* a file system that knows no locks is written to without one */
        if (flock(download->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
            return false;
        if (fstat(download->fd, ret_st) != 0)
            return false;
        if (lstat(download->part, &named) == 0 && named.st_ino == ret_st->st_ino &&
            named.st_dev == ret_st->st_dev)
            return true;
        rl_close_ptr(&download->fd); /* it got its name, or was removed, before the lock was ours */
        download->fd = -1;
    }
    errno = EWOULDBLOCK;
    return false;
}

int cli_download_open(struct cli_download *download, const char *path, bool resume, unsigned mode)
{
    struct stat st;

    *download = (struct cli_download){.fd = -1};
    if (asprintf(&download->part, "%s.part", path) < 0) {
        download->part = NULL;
        return complain_errno(path, ENOMEM);
    }
    bool taken = take_part(download, mode, &st);
    if (!taken && errno == EWOULDBLOCK) {
        fprintf(stderr, "reeld: another `reeld` command writes '%s'\n", path);
        cli_download_close(download);
        return CLI_LOCKED;
    }
    if (!taken ||
        (!resume && (ftruncate(download->fd, 0) != 0 || fchmod(download->fd, (mode_t)mode) != 0))) {
        int errnum = errno;
        int status = complain_errno(download->part, errnum);
        cli_download_close(download);
        return status;
    }
    download->size = resume ? (int64_t)st.st_size : 0;
    return CLI_OK;
}

void cli_download_close(struct cli_download *download)
{
    rl_close_ptr(&download->fd);
    download->fd = -1;
    free(download->part);
    download->part = NULL;
}

static bool sink(void *user, const void *bytes, size_t len)
{
    struct cli_download *download = user;
    const char *p = bytes;

    while (len > 0) {
        ssize_t n = write(download->fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            download->write_errno = errno;
            return false;
        }
        p += n;
        len -= (size_t)n;
        download->size += n;
    }
    return true;
}

static bool start_anew(struct cli_download *download)
{
    if (ftruncate(download->fd, 0) != 0) {
        (void)complain_errno(download->part, errno); /* the caller has its own status */
        return false;
    }
    download->size = 0;
    return true;
}

int cli_download_fetch(struct cli_download *download, const struct cli_client *client,
                       const char *url_path)
{
    AUTO_REPLY struct cli_reply reply = {0};
    char range[64];
    int64_t from = download->size;
    struct cli_request request = {.path = url_path,
                                  .timeout_ms = -1,
                                  .sink = sink,
                                  .user = download,
                                  .header = from ? range : NULL};

    (void)snprintf(range, sizeof(range), "Range: bytes=%lld-", (long long)from); /* fits */
    int status = cli_call_quiet(client, &request, &reply);
    if (download->write_errno)
        return complain_errno(download->part, download->write_errno);
    bool whole = status == CLI_OK && reply.http.status == 200 && from > 0;
    if (reply.http.status == 416 || whole) {
        if (!start_anew(download))
            return CLI_FAILED;
        return cli_download_fetch(download, client,
                                  url_path); /* now without a range: no second turn */
    }
    if (status != CLI_OK)
        cli_explain(client, &reply, stderr);
    return status;
}

int cli_download_commit(struct cli_download *download, const char *path)
{
    struct rl_err err;

    if (rl_fs_commit(download->part, path, &err))
        return cli_complain(CLI_FAILED, &err);
    return CLI_OK;
}

bool cli_download_allowed(const char *path)
{
    struct stat st;

    if (*path && (lstat(path, &st) != 0 || S_ISREG(st.st_mode)))
        return true;
    fprintf(stderr, "reeld: '%s' is no ordinary file, and is not overwritten\n", path);
    return false;
}

/* Is the part what the task says? A task without a checksum passes. */
static bool part_matches(const struct cli_download *download, const struct rl_json *video)
{
    uint8_t sum[RL_SHA256_BYTES];
    char text[2 * RL_SHA256_BYTES + 1];
    int64_t bytes;
    const char *want = cli_member(video, "sha256");

    if (!want)
        return true;
    if (rl_sha256_file(download->part, sum, &bytes, NULL))
        return false;
    rl_hex(sum, sizeof(sum), text);
    return strcmp(text, want) == 0;
}

static int fetch_checked(struct cli_download *download, const struct cli_client *client,
                         const char *url_path, const struct rl_json *video)
{
    bool resumed = download->size > 0;

    if (download->size != cli_member_int(video, "bytes", -1)) {
        int status = cli_download_fetch(download, client, url_path);
        if (status != CLI_OK)
            return status;
    }
    if (part_matches(download, video))
        return CLI_OK;
    if (resumed) { /* the part was of another file */
        if (!start_anew(download))
            return CLI_FAILED;
        int status = cli_download_fetch(download, client, url_path);
        if (status != CLI_OK || part_matches(download, video))
            return status;
    }
    fputs("reeld: the download does not match the task's SHA-256; it was not saved\n", stderr);
    (void)unlink(download->part); /* useless, and the next try starts clean */
    return CLI_SERVER;
}

int cli_download_video(const struct cli_client *client, const struct rl_json *task,
                       const char *path)
{
    struct cli_download download;
    char url_path[96];
    const char *id = cli_member(task, "task_id");

    if (!id || !cli_task_path(id, "/video", url_path, sizeof(url_path)))
        return cli_not_understood();
    int status = cli_download_open(&download, path, true, 0666);
    if (status != CLI_OK)
        return status;
    status = fetch_checked(&download, client, url_path, rl_json_get(task, "video"));
    if (status == CLI_OK)
        status = cli_download_commit(&download, path);
    else if (download.size == 0)
        (void)unlink(download.part); /* nothing worth resuming */
    cli_download_close(&download);
    return status;
}
