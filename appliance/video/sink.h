/* The file under a muxer: one descriptor, own AVIOContexts, and the errno that libav would lose. */
#ifndef RL_VIDEO_SINK_H
#define RL_VIDEO_SINK_H

#include "base/rl.h"

struct AVFormatContext;
struct AVIOContext;

struct video_sink {
    char *path;             /* owned */
    int fd;                 /* -1 when closed */
    int64_t pos;            /* write offset */
    int64_t size;           /* highest byte written + 1 */
    int errnum;             /* first errno of a read or write; sticky */
    struct AVIOContext *pb; /* owned */
};

/* Create or truncate a regular file and attach it to `mux` (pb, io_open, io_close2). */
enum rl_rc video_sink_open(struct video_sink *sink, const char *path, struct AVFormatContext *mux,
                           struct rl_err *err) RL_NODISCARD;
/* RL_OK, or the error behind the first read or write that failed. */
enum rl_rc video_sink_check(const struct video_sink *sink, struct rl_err *err) RL_NODISCARD;
/* Push buffered bytes out and fsync. */
enum rl_rc video_sink_sync(struct video_sink *sink, struct rl_err *err) RL_NODISCARD;
/* Close; with `keep` false the file is removed. Safe on a sink that never opened. */
void video_sink_close(struct video_sink *sink, bool keep);

#endif
