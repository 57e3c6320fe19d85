/* From the RGB that engines paint to the YUV that encoders eat. The input is full-range RGB; matrix
 * and range of the output are always named, because swscale's default (BT.601) would shift the
 * colours of everything tagged BT.709. Stateless but for the converter, which belongs to one
 * thread. */
#include "video/av.h"
#include "video/convert.h"

#include <limits.h>

#define MAX_PX 8192

enum rl_rc video_convert_new(int width, int height, int pix_fmt, int matrix, bool full_range,
                             struct SwsContext **ret_sws, struct rl_err *err)
{
    struct SwsContext *sws = av()->sws_alloc_context();
    if (!sws)
        return rl_fail(err, RL_NO_MEMORY, "open the colour converter");
    int bad = 0;
    bad |=
        av()->av_opt_set_int(sws, "srcw", width, 0) | av()->av_opt_set_int(sws, "srch", height, 0);
    bad |=
        av()->av_opt_set_int(sws, "dstw", width, 0) | av()->av_opt_set_int(sws, "dsth", height, 0);
    bad |= av()->av_opt_set_int(sws, "src_format", AV_PIX_FMT_RGB24, 0);
    bad |= av()->av_opt_set_int(sws, "dst_format", pix_fmt, 0);
    bad |= av()->av_opt_set_int(
        sws, "sws_flags", SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INP | SWS_BITEXACT, 0);
    const AVPixFmtDescriptor *desc = av()->av_pix_fmt_desc_get(pix_fmt);
    if (desc && desc->log2_chroma_w == 1) { /* MPEG-2 siting, as the stream is tagged */
        bad |= av()->av_opt_set_int(sws, "dst_h_chr_pos", 0, 0);
        bad |= av()->av_opt_set_int(sws, "dst_v_chr_pos", 128, 0);
    }
    const int *out = av()->sws_getCoefficients(matrix);
    if (bad < 0 ||
        av()->sws_setColorspaceDetails(sws, out, 1, out, full_range, 0, 1 << 16, 1 << 16) < 0 ||
        av()->sws_init_context(sws, NULL, NULL) < 0) {
        av()->sws_freeContext(sws);
        return av_later(
            rl_fail(err, RL_ENCODER_ERROR, "open the colour converter for %dx%d", width, height),
            err);
    }
    *ret_sws = sws;
    return RL_OK;
}

enum rl_rc video_convert(struct SwsContext *sws, const uint8_t *rgb, size_t stride, int height,
                         AVFrame *frame, struct rl_err *err)
{
    const uint8_t *const rows[4] = {rgb};
    const int strides[4] = {(int)stride};
    int done = av()->sws_scale(sws, rows, strides, 0, height, frame->data, frame->linesize);
    if (done != height)
        return av_later(rl_fail(err, RL_ENCODER_ERROR, "colour conversion failed"), err);
    return RL_OK;
}

enum rl_rc video_frame_new(int width, int height, int pix_fmt, AVFrame **ret_frame,
                           struct rl_err *err)
{
    AVFrame *frame = av()->av_frame_alloc();
    if (frame) {
        frame->format = pix_fmt;
        frame->width = width;
        frame->height = height;
        if (av()->av_frame_get_buffer(frame, 0) == 0) {
            *ret_frame = frame;
            return RL_OK;
        }
    }
    av()->av_frame_free(&frame);
    return rl_fail(err, RL_NO_MEMORY, "no memory for a frame of %dx%d", width, height);
}

enum rl_rc video_check_picture(const uint8_t *rgb, size_t stride, int width, int height,
                               struct rl_err *err)
{
    if (width < 1 || width > MAX_PX)
        return rl_fail_field(err, RL_INVALID_FIELD, "width", "must be 1..%d px, not %d", MAX_PX,
                             width);
    if (height < 1 || height > MAX_PX)
        return rl_fail_field(err, RL_INVALID_FIELD, "height", "must be 1..%d px, not %d", MAX_PX,
                             height);
    if (stride < (size_t)width * 3 || stride > INT_MAX)
        return rl_fail_field(err, RL_INVALID_FIELD, "stride", "must be at least %d bytes, not %zu",
                             width * 3, stride);
    if (!rgb)
        return rl_fail_field(err, RL_INVALID_FIELD, "rgb", "there is no picture");
    return RL_OK;
}
