/* Where the muxer's bytes go. libav's own file protocol reports a full disk late or not at all, so
 * every byte passes through here: positioned reads and writes on one descriptor that is opened
 * once, by path, and never again (the second pass of faststart reads through the same descriptor).
 * Invariants: the first errno is kept; after it nothing is written; only a regular file that this
 * sink opened is ever removed. One thread at a time, the one that owns the video. */
#include "video/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "video/av.h"
#include "base/fs.h"

#define SINK_BUFFER_BYTES (64 * 1024)

/* A second, read-only view of the same file with an offset of its own (faststart). */
struct sink_reader {
    struct video_sink *sink; /* borrows */
    int64_t pos;
};

static int sink_write(void *opaque, uint8_t *bytes, int len)
{
    struct video_sink *sink = opaque;
    if (sink->errnum)
        return AVERROR(sink->errnum);
    int done = 0;
    while (done < len) {
        ssize_t n = pwrite(sink->fd, bytes + done, (size_t)(len - done), sink->pos);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            sink->errnum = n < 0 ? errno : EIO;
            return AVERROR(sink->errnum);
        }
        done += (int)n;
        sink->pos += n;
        if (sink->pos > sink->size)
            sink->size = sink->pos;
    }
    return len;
}

static int64_t sink_seek(void *opaque, int64_t offset, int whence)
{
    struct video_sink *sink = opaque;
    switch (whence & ~AVSEEK_FORCE) {
    case AVSEEK_SIZE:
        return sink->size;
    case SEEK_SET:
        break;
    case SEEK_CUR:
        offset += sink->pos;
        break;
    case SEEK_END:
        offset += sink->size;
        break;
    default:
        return AVERROR(EINVAL);
    }
    if (offset < 0)
        return AVERROR(EINVAL);
    sink->pos = offset;
    return offset;
}

static int reader_read(void *opaque, uint8_t *bytes, int len)
{
    struct sink_reader *reader = opaque;
    for (;;) {
        ssize_t n = pread(reader->sink->fd, bytes, (size_t)len, reader->pos);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (!reader->sink->errnum)
                reader->sink->errnum = errno;
            return AVERROR(errno);
        }
        reader->pos += n;
        return n ? (int)n : AVERROR_EOF;
    }
}

static int64_t reader_seek(void *opaque, int64_t offset, int whence)
{
    struct sink_reader *reader = opaque;
    if ((whence & ~AVSEEK_FORCE) == AVSEEK_SIZE)
        return reader->sink->size;
    if ((whence & ~AVSEEK_FORCE) != SEEK_SET || offset < 0)
        return AVERROR(EINVAL);
    reader->pos = offset;
    return offset;
}

static void free_pb(AVIOContext **pb)
{
    if (!*pb)
        return;
    av()->av_freep(&(*pb)->buffer);
    av()->avio_context_free(pb);
}

/* The muxer asks for its own file again in order to move mdat behind moov. */
static int mux_io_open(AVFormatContext *mux, AVIOContext **ret_pb, const char *url, int flags,
                       AVDictionary **options)
{
    (void)url; /* there is one file only */
    (void)options;
    if (flags & AVIO_FLAG_WRITE)
        return AVERROR(EPERM);
    struct sink_reader *reader = calloc(1, sizeof(*reader));
    unsigned char *buffer = av()->av_malloc(SINK_BUFFER_BYTES);
    if (reader && buffer) {
        reader->sink = mux->opaque;
        *ret_pb = av()->avio_alloc_context(buffer, SINK_BUFFER_BYTES, 0, reader, reader_read, NULL,
                                           reader_seek);
        if (*ret_pb)
            return 0;
    }
    free(reader);
    av()->av_free(buffer);
    return AVERROR(ENOMEM);
}

static int mux_io_close(AVFormatContext *mux, AVIOContext *pb)
{
    (void)mux;
    if (pb)
        free(pb->opaque);
    free_pb(&pb);
    return 0;
}

enum rl_rc video_sink_open(struct video_sink *sink, const char *path, AVFormatContext *mux,
                           struct rl_err *err)
{
    *sink = (struct video_sink){.fd = -1, .path = rl_strdup(path)};
    if (!sink->path)
        return rl_fail(err, RL_NO_MEMORY, "open the video file");
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0640);
    if (fd < 0)
        return rl_fail_errno(err, "create the video file", errno);
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)close(fd); /* not ours: leave it as it is */
        return rl_fail(err, RL_IO_ERROR, "create the video file: not a regular file");
    }
    sink->fd = fd;
    unsigned char *buffer = av()->av_malloc(SINK_BUFFER_BYTES);
    if (buffer)
        sink->pb = av()->avio_alloc_context(buffer, SINK_BUFFER_BYTES, 1, sink, NULL, sink_write,
                                            sink_seek);
    if (!sink->pb)
        av()->av_free(buffer);
    if (!sink->pb)
        return rl_fail(err, RL_NO_MEMORY, "open the video file");
    if (ftruncate(fd, 0) != 0)
        return rl_fail_errno(err, "truncate the video file", errno);
    mux->pb = sink->pb;
    mux->flags |= AVFMT_FLAG_CUSTOM_IO;
    mux->opaque = sink;
    mux->io_open = mux_io_open;
    mux->io_close2 = mux_io_close;
    return RL_OK;
}

enum rl_rc video_sink_check(const struct video_sink *sink, struct rl_err *err)
{
    if (sink->errnum)
        return rl_fail_errno(err, "write the video file", sink->errnum);
    if (sink->pb && sink->pb->error < 0)
        return rl_fail(err, RL_IO_ERROR, "write the video file: error %d", sink->pb->error);
    return RL_OK;
}

enum rl_rc video_sink_sync(struct video_sink *sink, struct rl_err *err)
{
    av()->avio_flush(sink->pb);
    enum rl_rc rc = video_sink_check(sink, err);
    if (rc != RL_OK)
        return rc;
    if (fsync(sink->fd) != 0)
        return rl_fail_errno(err, "fsync the video file", errno);
    return RL_OK;
}

void video_sink_close(struct video_sink *sink, bool keep)
{
    free_pb(&sink->pb);
    if (sink->fd >= 0) {
        (void)close(sink->fd); /* fsync came before, where it matters */
        if (!keep && sink->path)
            (void)unlink(sink->path); /* best effort: there may be no file any more */
    }
    sink->fd = -1;
    free(STEAL(sink->path));
}
