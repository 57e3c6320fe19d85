/* Which H.264 encoder this machine has, and how `crf` is said to each of them. An encoder counts
 * as there only when it opens with the very parameters of the clip: a build with NVENC on a machine
 * without a driver, or a size below the hardware's minimum, falls through to the next one.
 * One that is there and does not open may open later (a driver's sessions, memory): its error says
 * retryable; one that is not there will not be there in a minute.
 * Invariants: look-ahead and threads are bounded, so memory depends on the frame size and never on
 * the number of frames; a key frame comes at least every two seconds. No state, any thread. */
#include "video/av.h"
#include "video/encoder.h"

#include <string.h>

#include "video/video.h"

#define MAX_THREADS     16
#define LOOKAHEAD_BYTES (192 * 1024 * 1024) /* raw frames that x264 may hold back */

/* How one encoder is told what we want. */
struct encoder_kind {
    const char *name;
    bool needs_gpu;
    void (*setup)(AVCodecContext *codec, const struct video_params *params);
};

/* An option that this build of the encoder does not know is left at its default. */
static void set_text(AVCodecContext *codec, const char *name, const char *value)
{
    (void)av()->av_opt_set(codec->priv_data, name, value, 0);
}

static void set_int(AVCodecContext *codec, const char *name, int64_t value)
{
    (void)av()->av_opt_set_int(codec->priv_data, name, value, 0);
}

static void setup_nvenc(AVCodecContext *codec, const struct video_params *params)
{
    set_text(codec, "preset", "p5");
    set_text(codec, "profile", "high");
    set_text(codec, "rc", "vbr");
    set_int(codec, "cq", params->crf > 0 ? params->crf : 1); /* 0 would mean "choose" */
    set_int(codec, "gpu", params->gpu);
    codec->bit_rate = 0;
    codec->max_b_frames = 0;
}

static void setup_x264(AVCodecContext *codec, const struct video_params *params)
{
    int64_t frame_bytes = (int64_t)params->width * params->height * 3 / 2;
    int64_t room = LOOKAHEAD_BYTES / frame_bytes;
    set_text(codec, "preset", "fast");
    set_text(codec, "profile", "high");
    set_int(codec, "rc-lookahead", room < 2 ? 2 : room > 20 ? 20 : room);
    /* 0 would be lossless: a profile of its own, which no browser plays */
    (void)av()->av_opt_set_double(codec->priv_data, "crf", params->crf > 0 ? params->crf : 1, 0);
    codec->max_b_frames = 2;
}

static void setup_openh264(AVCodecContext *codec, const struct video_params *params)
{
    /* It has no constant quality. About 0.12 bit per pixel looks like crf 23, and the rate doubles
     * every 6 crf, as with x264. */
    double bits = 0.12 * (double)params->width * params->height * params->fps;
    for (int crf = params->crf; crf < 23; crf++)
        bits *= 1.122;
    for (int crf = params->crf; crf > 23; crf--)
        bits /= 1.122;
    codec->bit_rate = bits < 100e3 ? 100000 : bits > 240e6 ? 240000000 : (int64_t)bits;
    set_text(codec, "rc_mode", "bitrate");
    set_text(codec, "profile", "high");
    set_int(codec, "allow_skip_frames", 0); /* every frame must be in the file */
    codec->max_b_frames = 0;
}

static const struct encoder_kind kinds[] = {
    {"h264_nvenc", true, setup_nvenc},
    {"libx264", false, setup_x264},
    {"libopenh264", false, setup_openh264},
};

/* One, unless more are asked for: with several, libx264 gave another file for the same frames about
 * once in a thousand clips, and the same request shall give the same bytes. */
static int thread_count(const struct video_params *params)
{
    int64_t pixels = (int64_t)params->width * params->height;
    int most = pixels > 16 * 1000 * 1000 ? 4 : MAX_THREADS; /* each holds a whole frame */
    int n = params->threads > 0 ? params->threads : 1;
    return n > most ? most : n;
}

static enum rl_rc open_kind(const struct encoder_kind *kind, const struct video_params *params,
                            AVCodecContext **ret_codec, struct rl_err *err)
{
    const AVCodec *found = av()->avcodec_find_encoder_by_name(kind->name);
    if (!found)
        return rl_fail_field(err, RL_ENCODER_ERROR, "encoder", "%s: not in this libavcodec",
                             kind->name);
    AVCodecContext *codec = av()->avcodec_alloc_context3(found);
    if (!codec)
        return rl_fail(err, RL_NO_MEMORY, "open an encoder");
    codec->width = params->width;
    codec->height = params->height;
    codec->pix_fmt = AV_PIX_FMT_YUV420P;
    codec->time_base = (AVRational){1, params->fps};
    codec->framerate = (AVRational){params->fps, 1};
    codec->gop_size = 2 * params->fps;
    codec->sample_aspect_ratio = (AVRational){1, 1};
    codec->color_range = AVCOL_RANGE_MPEG;
    codec->colorspace = AVCOL_SPC_BT709;
    codec->color_primaries = AVCOL_PRI_BT709;
    codec->color_trc = AVCOL_TRC_BT709;
    codec->chroma_sample_location = AVCHROMA_LOC_LEFT;
    codec->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    codec->thread_count = thread_count(params);
    kind->setup(codec, params);
    int ret = av()->avcodec_open2(codec, found, NULL);
    if (ret < 0) {
        char text[AV_ERROR_MAX_STRING_SIZE] = "";
        (void)av()->av_strerror(ret, text, sizeof(text)); /* unknown codes get a generic text */
        av()->avcodec_free_context(&codec);
        return av_later(rl_fail_field(err, RL_ENCODER_ERROR, "encoder", "%s does not open: %s",
                                      kind->name, text),
                        err);
    }
    *ret_codec = codec;
    return RL_OK;
}

enum rl_rc video_encoder_open(const struct video_params *params, AVCodecContext **ret_codec,
                              struct rl_err *err)
{
    bool any = strcmp(params->encoder, "auto") == 0, later = false;
    char said[sizeof err->reason] = ""; /* best first, so that a cut takes the least of them */
    for (size_t i = 0; i < RL_ARRAY_LEN(kinds); i++) {
        if (any ? kinds[i].needs_gpu && params->gpu < 0
                : strcmp(params->encoder, kinds[i].name) != 0)
            continue;
        struct rl_err why;
        enum rl_rc rc = open_kind(&kinds[i], params, ret_codec, &why);
        if (rc == RL_OK)
            return rc;
        if (rc == RL_NO_MEMORY)
            return rl_fail(err, rc, "%s", why.reason);
        size_t len = strlen(said);
        if (snprintf(said + len, sizeof said - len, "%s%s", len ? "; " : "", why.reason) < 0)
            said[len] = '\0'; /* what was said before stands; a cut is no harm */
        later |= why.retryable;
    }
    if (!*said)
        (void)snprintf(said, sizeof said, "no H.264 encoder \"%.32s\"", params->encoder);
    enum rl_rc rc = rl_fail_field(err, RL_ENCODER_ERROR, "encoder", "%s", said);
    return later ? av_later(rc, err) : rc;
}

const char *video_versions(void)
{
    return LIBAVCODEC_IDENT ", " LIBAVFORMAT_IDENT ", " LIBSWSCALE_IDENT;
}
