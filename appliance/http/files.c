/* Results: the video and its poster, by ranges, from the result folder. Reads with pread on the
 * worker and writes in steps; no lock is held. Invariant: the length in the head is the length of
 * the open file, so a file that is replaced or removed meanwhile does not change the answer under
 * way. */
#include "http/request.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/config.h"
#include "http/range.h"

#define STREAM_STEP_BYTES (256u << 10)
#define GOODBYE_MS        1000 /* a download may still end in this time when the server stops */
#define CROWDED_STALL_MS  5000

/* Is it time to give up on a download that last moved at moved_ms? */
static bool file_over(const struct request *r, int socket, int64_t moved_ms)
{
    struct http *http = r->http;
    int64_t now = rl_mono_ms(), stops_ms = atomic_load(&http->stops_ms);
    int64_t stall_ms = config_int(http->cfg, CFG_HTTP_STALL_MS);
    if (http_crowded(http) && stall_ms > CROWDED_STALL_MS)
        stall_ms = CROWDED_STALL_MS;
    return (stops_ms && now - stops_ms > GOODBYE_MS) || now - moved_ms > stall_ms ||
           (socket >= 0 && wire_left(socket));
}

/* All of it, however slowly it is read. The library gives up on a write after the request time-out
 * and does not say whether the client has gone or only paused, as players do. */
static bool write_patiently(struct request *r, const char *bytes, size_t len)
{
    int64_t moved_ms = rl_mono_ms();
    int socket = -1;
    while (len > 0) {
        int n = mg_write(r->conn, bytes, len);
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
            moved_ms = rl_mono_ms();
        }
        if (len > 0 && socket < 0) { /* stalled: now it matters which socket it is */
            struct wire_ends ends = request_ends(r);
            socket = wire_find(&ends);
            if (socket < 0)
                return false;
        }
        if (len > 0 && file_over(r, socket, moved_ms))
            return false;
    }
    return true;
}

void file_stream(struct request *r, int fd, int64_t from, int64_t len)
{
    AUTO_FREE char *step = malloc(STREAM_STEP_BYTES);
    while (step && len > 0) {
        size_t want = len < (int64_t)STREAM_STEP_BYTES ? (size_t)len : STREAM_STEP_BYTES;
        ssize_t n = pread(fd, step, want, (off_t)from);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || file_over(r, -1, rl_mono_ms()) || !write_patiently(r, step, (size_t)n))
            break;
        from += n;
        len -= n;
    }
    if (len > 0)
        reply_broken(r);
}

/* The task of a file route: by the caller's own eyes, or by the signature of its download address.
 */
static enum rl_rc find_task(struct request *r, struct task **ret_task, struct rl_err *err)
{
    int64_t id;
    enum rl_rc rc = request_id_param(r, "task", &id, err);
    if (rc != RL_OK)
        return rc;
    if (r->credential != CREDENTIAL_SIGNATURE)
        return task_get(r->http->tasks, &r->caller, id, ret_task, err);
    const struct caller anyone = {.owner = true};
    const char *until = query_get(&r->query, "exp");
    int64_t expires_s = 0; /* as long as the file is kept */
    AUTO_TASK struct task *task = NULL;
    if (until && !task_id_parse(until, strlen(until), &expires_s))
        return rl_fail(err, RL_UNAUTHORIZED, "the signature of this address is not valid");
    rc = task_get(r->http->tasks, &anyone, id, &task, err);
    if (rc == RL_OK &&
        task_download_signed(r->http->tasks, task, expires_s, query_get(&r->query, "sig"))) {
        *ret_task = STEAL(task);
        return RL_OK;
    }
    if (rc != RL_OK && rc != RL_NOT_FOUND && rc != RL_TASK_EXPIRED)
        return rc;
    /* Not said: whether there is such a task. */
    return rl_fail(err, RL_UNAUTHORIZED,
                   "the signature of this address is not valid, or it is over");
}

static enum rl_rc open_result(struct request *r, const struct task *task, bool poster, int *ret_fd,
                              struct stat *ret_stat, struct rl_err *err)
{
    char path[4096];
    enum rl_rc rc = task_video_path(r->http->tasks, task, poster, path, sizeof(path), err);
    if (rc != RL_OK)
        return rc;
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return rl_fail(err, RL_NOT_FOUND, "the file is gone");
    if (fd < 0 || fstat(fd, ret_stat) != 0)
        return rl_fail(err, RL_IO_ERROR, "open %s: %s", path, strerror(errno));
    if (!poster && ret_stat->st_size != task->video_bytes)
        return rl_fail(err, RL_IO_ERROR, "%s has %lld bytes, the task says %lld", path,
                       (long long)ret_stat->st_size, (long long)task->video_bytes);
    *ret_fd = fd;
    fd = -1;
    return RL_OK;
}

static void send_file(struct request *r, int fd, const struct file_facts *file, const char *type)
{
    struct conditions conditions = {request_header(r, "If-None-Match"),
                                    request_header(r, "If-Modified-Since"),
                                    request_header(r, "Range"), request_header(r, "If-Range")};
    int64_t first = 0, last = file->size - 1;
    enum file_answer answer = file_decide(&conditions, file, !r->head, &first, &last);
    struct reply reply = {.status = 200, .type = type, .cache = "private, no-cache"};
    if (answer == FILE_NOT_MODIFIED) {
        reply.status = 304;
        reply.type = NULL;
        (void)reply_send(r, &reply); /* always RL_OK */
        return;
    }
    if (answer == FILE_REFUSED) {
        struct rl_err err;
        reply_header(r, "Content-Range", "bytes */%lld", (long long)file->size);
        (void)rl_fail(&err, RL_RANGE_NOT_SATISFIABLE, "the file has %lld bytes",
                      (long long)file->size);
        reply_error(r, &err);
        return;
    }
    if (answer == FILE_PART) {
        reply.status = 206;
        reply_header(r, "Content-Range", "bytes %lld-%lld/%lld", (long long)first, (long long)last,
                     (long long)file->size);
    }
    int64_t len = last - first + 1;
    if (reply_head(r, &reply, len))
        file_stream(r, fd, first, len);
}

static enum rl_rc serve_result(struct request *r, bool poster, struct rl_err *err)
{
    AUTO_TASK struct task *task = NULL;
    enum rl_rc rc = find_task(r, &task, err);
    if (rc == RL_UNAUTHORIZED && r->credential == CREDENTIAL_SIGNATURE) {
        /* A stale signature does no harm to somebody who also signed in. */
        struct rl_err other;
        r->credential = CREDENTIAL_NONE;
        if (auth_check(r, ROUTE_USER, &other) == RL_OK)
            rc = find_task(r, &task, err);
    }
    if (rc != RL_OK)
        return rc;
    AUTO_CLOSE int fd = -1;
    struct stat st;
    const char *download = query_get(&r->query, "download");
    bool attach = download && !strcmp(download, "1");
    rc = open_result(r, task, poster, &fd, &st, err);
    if (rc != RL_OK)
        return rc;
    char etag[96], date[HTTP_DATE];
    int n = snprintf(etag, sizeof(etag), "\"%s%s\"", task->video_sha256 ? task->video_sha256 : "0",
                     poster ? "-poster" : "");
    if (n < 0 || (size_t)n >= sizeof(etag))
        return rl_fail(err, RL_INTERNAL, "the checksum in the row is too long");
    struct file_facts file = {etag, (int64_t)st.st_mtime, (int64_t)st.st_size};
    http_date_format(file.modified_s, date);
    reply_header(r, "ETag", "%s", etag);
    reply_header(r, "Last-Modified", "%s", date);
    reply_header(r, "Accept-Ranges", "bytes");
    reply_header(r, "Content-Disposition", "%s; filename=\"%lld.%s\"",
                 attach ? "attachment" : "inline", (long long)task->task_id,
                 poster ? "jpg" : "mp4");
    send_file(r, fd, &file, poster ? "image/jpeg" : "video/mp4");
    return RL_OK;
}

enum rl_rc http_task_video(struct request *r, struct rl_err *err)
{
    return serve_result(r, false, err);
}

enum rl_rc http_task_poster(struct request *r, struct rl_err *err)
{
    return serve_result(r, true, err);
}
