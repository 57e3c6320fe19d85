/* The H.264 encoders of libavcodec, best first, each with its own idea of quality. */
#ifndef RL_VIDEO_ENCODER_H
#define RL_VIDEO_ENCODER_H

#include "base/rl.h"

struct AVCodecContext;
struct video_params;

/* Open params->encoder, or with "auto" the first that opens. ret_codec: returns new.
 * errors: RL_ENCODER_ERROR with field "encoder" and what each one said, best first. */
enum rl_rc video_encoder_open(const struct video_params *params, struct AVCodecContext **ret_codec,
                              struct rl_err *err) RL_NODISCARD;

#endif
