/* The poster: one frame as a JPEG (JFIF: full-range BT.601, 4:4:4 so that saturated edges and
 * small text stay clean). The encoded picture is a few hundred kilobytes, so it is made in memory
 * and written durably in one go. Stateless; any thread. */
#include "video/video.h"

#include "video/av.h"
#include "base/fs.h"
#include "video/convert.h"
#include "video/encoder.h"

#define POSTER_QSCALE 2 /* 1 best .. 31 worst */

static enum rl_rc open_jpeg(int width, int height, AVCodecContext **ret_codec, struct rl_err *err)
{
    const AVCodec *found = av()->avcodec_find_encoder(AV_CODEC_ID_MJPEG);
    AVCodecContext *codec = found ? av()->avcodec_alloc_context3(found) : NULL;
    if (!codec)
        return rl_fail(err, RL_ENCODER_ERROR, "no JPEG encoder in this libavcodec");
    codec->width = width;
    codec->height = height;
    codec->pix_fmt = AV_PIX_FMT_YUVJ444P;
    codec->color_range = AVCOL_RANGE_JPEG;
    codec->colorspace = AVCOL_SPC_SMPTE170M;
    codec->time_base = (AVRational){1, 25};
    codec->flags |= AV_CODEC_FLAG_QSCALE;
    codec->global_quality = FF_QP2LAMBDA * POSTER_QSCALE;
    codec->thread_count = 1;
    if (av()->avcodec_open2(codec, found, NULL) < 0) {
        av()->avcodec_free_context(&codec);
        return av_later(rl_fail(err, RL_ENCODER_ERROR, "the JPEG encoder does not open for %dx%d",
                                width, height),
                        err);
    }
    *ret_codec = codec;
    return RL_OK;
}

enum rl_rc video_poster(const char *path, const uint8_t *rgb, size_t stride, int width, int height,
                        struct rl_err *err)
{
    AVCodecContext *codec = NULL;
    struct SwsContext *sws = NULL;
    AVFrame *frame = NULL;
    AVPacket *packet = NULL;
    enum rl_rc rc = av_load(err);
    if (rc != RL_OK)
        return rc;
    rc = video_check_picture(rgb, stride, width, height, err);
    if (rc == RL_OK)
        rc = open_jpeg(width, height, &codec, err);
    if (rc == RL_OK)
        rc = video_convert_new(width, height, AV_PIX_FMT_YUVJ444P, SWS_CS_ITU601, true, &sws, err);
    if (rc == RL_OK)
        rc = video_frame_new(width, height, AV_PIX_FMT_YUVJ444P, &frame, err);
    if (rc == RL_OK)
        rc = video_convert(sws, rgb, stride, height, frame, err);
    if (rc != RL_OK)
        goto out;
    frame->pts = 0;
    frame->quality = codec->global_quality;
    frame->color_range = AVCOL_RANGE_JPEG;
    packet = av()->av_packet_alloc();
    if (!packet) {
        rc = rl_fail(err, RL_NO_MEMORY, "encode the poster");
    } else if (av()->avcodec_send_frame(codec, frame) < 0 ||
               av()->avcodec_send_frame(codec, NULL) < 0 ||
               av()->avcodec_receive_packet(codec, packet) < 0) {
        rc = av_later(rl_fail(err, RL_ENCODER_ERROR, "encode the poster"), err);
    } else {
        rc = rl_fs_write_durable(path, packet->data, (size_t)packet->size, 0640, err);
    }
out:
    av()->av_packet_free(&packet);
    av()->av_frame_free(&frame);
    av()->sws_freeContext(sws);
    av()->avcodec_free_context(&codec);
    return rc;
}
