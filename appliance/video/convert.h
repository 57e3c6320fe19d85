/* RGB rows to planar YUV: swscale with its defaults made explicit. */
#ifndef RL_VIDEO_CONVERT_H
#define RL_VIDEO_CONVERT_H

#include "base/rl.h"

struct SwsContext;
struct AVFrame;

/* A converter RGB24 -> `pix_fmt` (enum AVPixelFormat) of the same size. `matrix`: SWS_CS_ITU709 or
 * SWS_CS_ITU601; full_range of the output. Returns new (sws_freeContext). */
enum rl_rc video_convert_new(int width, int height, int pix_fmt, int matrix, bool full_range,
                             struct SwsContext **ret_sws, struct rl_err *err) RL_NODISCARD;
/* Convert one picture into `frame`, whose buffers exist and are writable. */
enum rl_rc video_convert(struct SwsContext *sws, const uint8_t *rgb, size_t stride, int height,
                         struct AVFrame *frame, struct rl_err *err) RL_NODISCARD;
/* A frame of this size and format with its own buffers. Returns new. */
enum rl_rc video_frame_new(int width, int height, int pix_fmt, struct AVFrame **ret_frame,
                           struct rl_err *err) RL_NODISCARD;
/* width, height, stride and pointer of an incoming picture make sense together. */
enum rl_rc video_check_picture(const uint8_t *rgb, size_t stride, int width, int height,
                               struct rl_err *err) RL_NODISCARD;

#endif
