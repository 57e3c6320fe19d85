/* libav, loaded when the first video needs it: the hundred libraries behind it would otherwise cost
 * every start of every command a tenth of a second. The soname is the one of the headers. The
 * functions below are all that video/ uses. */
#ifndef RL_VIDEO_AV_H
#define RL_VIDEO_AV_H

#include "base/rl.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>

/* X(library, function) */
#define AV_FUNCTIONS(X)                                                                            \
    X(avutil, av_dict_free)                                                                        \
    X(avutil, av_dict_set)                                                                         \
    X(avutil, av_frame_alloc)                                                                      \
    X(avutil, av_frame_free)                                                                       \
    X(avutil, av_frame_get_buffer)                                                                 \
    X(avutil, av_frame_make_writable)                                                              \
    X(avutil, av_free)                                                                             \
    X(avutil, av_freep)                                                                            \
    X(avutil, av_log_set_level)                                                                    \
    X(avutil, av_malloc)                                                                           \
    X(avutil, av_opt_set)                                                                          \
    X(avutil, av_opt_set_double)                                                                   \
    X(avutil, av_opt_set_int)                                                                      \
    X(avutil, av_pix_fmt_desc_get)                                                                 \
    X(avutil, av_strerror)                                                                         \
    X(avutil, avutil_version)                                                                      \
    X(avcodec, av_packet_alloc)                                                                    \
    X(avcodec, av_packet_free)                                                                     \
    X(avcodec, av_packet_rescale_ts)                                                               \
    X(avcodec, av_packet_unref)                                                                    \
    X(avcodec, avcodec_alloc_context3)                                                             \
    X(avcodec, avcodec_find_encoder)                                                               \
    X(avcodec, avcodec_find_encoder_by_name)                                                       \
    X(avcodec, avcodec_free_context)                                                               \
    X(avcodec, avcodec_open2)                                                                      \
    X(avcodec, avcodec_parameters_from_context)                                                    \
    X(avcodec, avcodec_receive_packet)                                                             \
    X(avcodec, avcodec_send_frame)                                                                 \
    X(avcodec, avcodec_version)                                                                    \
    X(avformat, av_write_frame)                                                                    \
    X(avformat, av_write_trailer)                                                                  \
    X(avformat, avformat_alloc_output_context2)                                                    \
    X(avformat, avformat_free_context)                                                             \
    X(avformat, avformat_new_stream)                                                               \
    X(avformat, avformat_version)                                                                  \
    X(avformat, avformat_write_header)                                                             \
    X(avformat, avio_alloc_context)                                                                \
    X(avformat, avio_context_free)                                                                 \
    X(avformat, avio_flush)                                                                        \
    X(swscale, sws_alloc_context)                                                                  \
    X(swscale, sws_freeContext)                                                                    \
    X(swscale, sws_getCoefficients)                                                                \
    X(swscale, sws_init_context)                                                                   \
    X(swscale, sws_scale)                                                                          \
    X(swscale, sws_setColorspaceDetails)                                                           \
    X(swscale, swscale_version)

struct av {
#define AV_POINTER(library, function) __typeof__(function) *function;
    AV_FUNCTIONS(AV_POINTER)
#undef AV_POINTER
};

/* Load libav once per process. RL_ENCODER_ERROR naming the library or function that is missing. Any
 * thread. */
enum rl_rc av_load(struct rl_err *err) RL_NODISCARD;
/* `err` holds the failure `rc` of something that is there: the same work may succeed later. */
static inline enum rl_rc av_later(enum rl_rc rc, struct rl_err *err)
{
    if (err)
        err->retryable = true;
    return rc;
}
/* The functions; only after av_load answered RL_OK. */
const struct av *av(void);

#endif
