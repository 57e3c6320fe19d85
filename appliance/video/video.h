/* Frames in, a playable MP4 and a JPEG poster out. The only user of libav. One writer is used by
 * one thread at a time; memory does not grow with the number of frames. */
#ifndef RL_VIDEO_VIDEO_H
#define RL_VIDEO_VIDEO_H

#include "base/rl.h"

struct video; /* a file being written */

struct video_params {
    const char *path;    /* the partial file; removed again unless video_finish succeeds */
    int width, height;   /* px of the incoming frames, even, 16..8192 */
    int fps;             /* 1..240 */
    const char *encoder; /* "auto", or one of the names of config video.encoder */
    int crf;             /* 0..51; 0 is taken as 1 */
    int gpu;             /* NVENC device, -1 = none */
    int threads;         /* of the encoder; 0 = one, which gives the same bytes each time */
};

struct video_info {
    int64_t bytes;
    int width, height, frames, fps;
    char encoder[32];
};

/* Could such a clip be written? Loads the video libraries (once; a tenth of a second), opens its
 * encoder and closes it again (some 10 ms): before minutes of GPU time are spent, and for doctor.
 * params: the path is not looked at. ret_encoder (may be NULL): its name, static storage.
 * errors: RL_INVALID_FIELD, RL_NO_MEMORY, RL_ENCODER_ERROR with what each encoder said; `retryable`
 * when one is there and did not open, never when none is there. Any thread. */
enum rl_rc video_ready(const struct video_params *params, const char **ret_encoder,
                       struct rl_err *err) RL_NODISCARD;

/* errors: those of video_ready, RL_DISK_FULL, RL_IO_ERROR */
enum rl_rc video_open(const struct video_params *params, struct video **ret_video,
                      struct rl_err *err) RL_NODISCARD;
/* rgb [H, W, 3] u8, rows `stride` bytes apart; borrowed for the call. */
enum rl_rc video_write(struct video *video, const uint8_t *rgb, size_t stride, int width,
                       int height, struct rl_err *err) RL_NODISCARD;
/* Flush, write moov before mdat, fsync. Frees `video` whatever happens; on error the file is gone.
 */
enum rl_rc video_finish(struct video *video, struct video_info *ret_info, struct rl_err *err)
    RL_NODISCARD;
/* Give up: frees and removes the partial file. NULL allowed. */
void video_abort(struct video *video);

/* One frame as a JPEG file (fsynced, removed on error). */
enum rl_rc video_poster(const char *path, const uint8_t *rgb, size_t stride, int width, int height,
                        struct rl_err *err) RL_NODISCARD;
/* "libavcodec 59.37.100, …" for doctor. Static storage. */
const char *video_versions(void);

#endif
