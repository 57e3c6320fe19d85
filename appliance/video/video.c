/* One MP4 being written: convert, encode, mux, frame by frame. Owns the encoder, the muxer and the
 * partial file. One thread at a time (the pool thread of the run); the encoder's own threads end
 * with it. Invariants: nothing is kept per frame but the muxer's index; the first error sticks; the
 * file survives only a video_finish that returned RL_OK, and then it is on the disk. */
#include "video/video.h"

#include <limits.h>

#include "video/av.h"
#include "base/fs.h"
#include "video/convert.h"
#include "video/encoder.h"
#include "video/sink.h"

struct video {
    struct video_sink sink;
    AVFormatContext *mux;
    AVCodecContext *codec;
    AVStream *stream; /* owned by mux */
    struct SwsContext *sws;
    AVFrame *frame;   /* YUV, reused */
    AVPacket *packet; /* reused */
    bool failed;      /* `why` is set; nothing more is done */
    struct rl_err why;
    int width, height, fps;
    int frames;
};

/* Remember the first error; every later call answers it again. */
static enum rl_rc stick(struct video *v, enum rl_rc rc, const struct rl_err *why)
{
    if (rc != RL_OK && !v->failed) {
        v->failed = true;
        v->why = *why;
        v->why.code = rc;
    }
    return rc;
}

static enum rl_rc give(struct rl_err *err, const struct rl_err *why)
{
    if (err)
        *err = *why;
    return why->code;
}

/* What libav said, unless the file underneath knows better (a full disk). */
static enum rl_rc fail_av(const struct video *v, const char *what, int ret, struct rl_err *err)
{
    enum rl_rc rc = video_sink_check(&v->sink, err);
    if (rc != RL_OK)
        return rc;
    if (ret == AVERROR(ENOMEM))
        return rl_fail(err, RL_NO_MEMORY, "%s", what);
    char text[AV_ERROR_MAX_STRING_SIZE] = "";
    (void)av()->av_strerror(ret, text, sizeof(text)); /* unknown codes get a generic text */
    return av_later(rl_fail(err, RL_ENCODER_ERROR, "%s: %s", what, text), err);
}

static enum rl_rc check_params(const struct video_params *p, struct rl_err *err)
{
    const struct {
        const char *field;
        int value, min, max, step;
    } checks[] = {
        {"width", p->width, 16, 8192, 2},    {"height", p->height, 16, 8192, 2},
        {"fps", p->fps, 1, 240, 1},          {"crf", p->crf, 0, 51, 1},
        {"threads", p->threads, 0, 1024, 1},
    };
    for (size_t i = 0; i < RL_ARRAY_LEN(checks); i++) {
        if (checks[i].value < checks[i].min || checks[i].value > checks[i].max)
            return rl_fail_field(err, RL_INVALID_FIELD, checks[i].field, "must be %d..%d, not %d",
                                 checks[i].min, checks[i].max, checks[i].value);
        if (checks[i].value % checks[i].step != 0)
            return rl_fail_field(err, RL_INVALID_FIELD, checks[i].field,
                                 "must be even (yuv420p halves it), not %d", checks[i].value);
    }
    if (!p->encoder)
        return rl_fail_field(err, RL_INVALID_FIELD, "encoder", "is empty");
    return RL_OK;
}

/* Frees everything; the file stays only with keep. */
static void release(struct video *v, bool keep)
{
    if (v->mux) {
        v->mux->pb = NULL; /* the sink owns it */
        av()->avformat_free_context(v->mux);
    }
    video_sink_close(&v->sink, keep);
    av()->avcodec_free_context(&v->codec);
    av()->sws_freeContext(v->sws);
    av()->av_frame_free(&v->frame);
    av()->av_packet_free(&v->packet);
    free(v);
}

static enum rl_rc open_mux(struct video *v, const char *path, struct rl_err *err)
{
    if (av()->avformat_alloc_output_context2(&v->mux, NULL, "mp4", path) < 0)
        return rl_fail(err, RL_NO_MEMORY, "open the muxer");
    enum rl_rc rc = video_sink_open(&v->sink, path, v->mux, err);
    if (rc != RL_OK)
        return rc;
    v->stream = av()->avformat_new_stream(v->mux, NULL);
    if (!v->stream)
        return rl_fail(err, RL_NO_MEMORY, "open the muxer");
    v->stream->time_base = v->codec->time_base;
    v->stream->avg_frame_rate = v->codec->framerate;
    int ret = av()->avcodec_parameters_from_context(v->stream->codecpar, v->codec);
    if (ret < 0)
        return fail_av(v, "describe the stream", ret, err);
    AVDictionary *options = NULL;
    ret = av()->av_dict_set(&options, "movflags", "+faststart", 0);
    if (ret >= 0)
        ret = av()->avformat_write_header(v->mux, &options);
    av()->av_dict_free(&options);
    if (ret < 0)
        return fail_av(v, "write the header", ret, err);
    return video_sink_check(&v->sink, err);
}

enum rl_rc video_open(const struct video_params *params, struct video **ret_video,
                      struct rl_err *err)
{
    enum rl_rc rc = check_params(params, err);
    if (rc == RL_OK && (!params->path || !*params->path))
        rc = rl_fail_field(err, RL_INVALID_FIELD, "path", "is empty");
    if (rc == RL_OK)
        rc = av_load(err);
    if (rc != RL_OK)
        return rc;
    struct video *v = calloc(1, sizeof(*v));
    if (!v)
        return rl_fail(err, RL_NO_MEMORY, "open the video");
    v->sink.fd = -1;
    v->width = params->width;
    v->height = params->height;
    v->fps = params->fps;
    rc = video_encoder_open(params, &v->codec, err);
    if (rc == RL_OK)
        rc = video_convert_new(v->width, v->height, AV_PIX_FMT_YUV420P, SWS_CS_ITU709, false,
                               &v->sws, err);
    if (rc == RL_OK)
        rc = video_frame_new(v->width, v->height, AV_PIX_FMT_YUV420P, &v->frame, err);
    if (rc == RL_OK && !(v->packet = av()->av_packet_alloc()))
        rc = rl_fail(err, RL_NO_MEMORY, "open the video");
    if (rc == RL_OK)
        rc = open_mux(v, params->path, err);
    if (rc != RL_OK) {
        video_abort(v);
        return rc;
    }
    v->frame->color_range = v->codec->color_range;
    v->frame->colorspace = v->codec->colorspace;
    v->frame->color_primaries = v->codec->color_primaries;
    v->frame->color_trc = v->codec->color_trc;
    v->frame->chroma_location = v->codec->chroma_sample_location;
    *ret_video = v;
    return RL_OK;
}

/* Send a frame (NULL: flush) and write the packets that come out. */
static enum rl_rc encode(struct video *v, AVFrame *frame, struct rl_err *err)
{
    int ret = av()->avcodec_send_frame(v->codec, frame);
    if (ret < 0)
        return fail_av(v, "encode a frame", ret, err);
    for (;;) {
        ret = av()->avcodec_receive_packet(v->codec, v->packet);
        if (ret == AVERROR(EAGAIN) || ret == AVERROR_EOF)
            return video_sink_check(&v->sink, err);
        if (ret < 0)
            return fail_av(v, "encode a frame", ret, err);
        if (v->packet->duration == 0)
            v->packet->duration = 1;
        av()->av_packet_rescale_ts(v->packet, v->codec->time_base, v->stream->time_base);
        v->packet->stream_index = v->stream->index;
        ret = av()->av_write_frame(v->mux, v->packet);
        av()->av_packet_unref(v->packet);
        if (ret < 0)
            return fail_av(v, "write a packet", ret, err);
    }
}

static enum rl_rc write_one(struct video *v, const uint8_t *rgb, size_t stride, struct rl_err *err)
{
    if (av()->av_frame_make_writable(v->frame) < 0)
        return rl_fail(err, RL_NO_MEMORY, "no memory for a frame of %dx%d", v->width, v->height);
    enum rl_rc rc = video_convert(v->sws, rgb, stride, v->height, v->frame, err);
    if (rc != RL_OK)
        return rc;
    v->frame->pts = v->frames;
    rc = encode(v, v->frame, err);
    if (rc == RL_OK)
        v->frames++;
    return rc;
}

enum rl_rc video_write(struct video *video, const uint8_t *rgb, size_t stride, int width,
                       int height, struct rl_err *err)
{
    if (video->failed)
        return give(err, &video->why);
    struct rl_err why = {0};
    enum rl_rc rc = video_check_picture(rgb, stride, width, height, &why);
    if (rc == RL_OK && width != video->width)
        rc = rl_fail_field(&why, RL_INVALID_FIELD, "width", "the video is %d px wide, the frame %d",
                           video->width, width);
    if (rc == RL_OK && height != video->height)
        rc = rl_fail_field(&why, RL_INVALID_FIELD, "height",
                           "the video is %d px high, the frame %d", video->height, height);
    if (rc != RL_OK) /* the frame is refused; the video is as it was */
        return give(err, &why);
    if (video->frames == INT_MAX)
        return rl_fail(err, RL_ENCODER_ERROR, "too many frames");
    rc = stick(video, write_one(video, rgb, stride, &why), &why);
    return rc == RL_OK ? RL_OK : give(err, &why);
}

/* Everything that is still inside the encoder and the muxer goes to the disk. */
static enum rl_rc flush_all(struct video *v, struct rl_err *err)
{
    if (v->frames == 0)
        return rl_fail(err, RL_ENCODER_ERROR, "no frame was written");
    enum rl_rc rc = encode(v, NULL, err);
    if (rc != RL_OK)
        return rc;
    int ret = av()->av_write_trailer(v->mux);
    if (ret < 0)
        return fail_av(v, "write the index", ret, err);
    return video_sink_sync(&v->sink, err);
}

enum rl_rc video_finish(struct video *video, struct video_info *ret_info, struct rl_err *err)
{
    struct rl_err why = {0};
    enum rl_rc rc = video->failed ? give(&why, &video->why) : flush_all(video, &why);
    if (rc != RL_OK) {
        video_abort(video);
        return give(err, &why);
    }
    struct video_info info = {.bytes = video->sink.size,
                              .width = video->width,
                              .height = video->height,
                              .frames = video->frames,
                              .fps = video->fps};
    (void)rl_copy_str(info.encoder, sizeof(info.encoder), video->codec->codec->name);
    release(video, true);
    *ret_info = info;
    return RL_OK;
}

void video_abort(struct video *video)
{
    if (video)
        release(video, false);
}

enum rl_rc video_ready(const struct video_params *params, const char **ret_encoder,
                       struct rl_err *err)
{
    AVCodecContext *codec = NULL;
    enum rl_rc rc = check_params(params, err);
    if (rc == RL_OK)
        rc = av_load(err);
    if (rc == RL_OK)
        rc = video_encoder_open(params, &codec, err);
    if (rc != RL_OK)
        return rc;
    if (ret_encoder)
        *ret_encoder = codec->codec->name;
    av()->avcodec_free_context(&codec);
    return RL_OK;
}
