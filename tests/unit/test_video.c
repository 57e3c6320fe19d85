/* The happy paths and the refusals of video: what is written is opened again with libavformat and
 * decoded, and the boxes of the file are walked by hand. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// link: PkgConfig::libavformat PkgConfig::libavcodec PkgConfig::libavutil PkgConfig::libswscale

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

#include "base/rl.h"
#include "video/video.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static char dir[64];
static char path[128];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/reeld-video-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/clip.mp4.part", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir); /* fails when anything else was left behind */
}

static struct video_params params_of(int width, int height, int fps)
{
    return (struct video_params){.path = path,
                                 .width = width,
                                 .height = height,
                                 .fps = fps,
                                 .encoder = "auto",
                                 .crf = 18,
                                 .gpu = -1,
                                 .threads = 2};
}

static void fill(uint8_t *rgb, int width, int height, int r, int g, int b)
{
    for (int i = 0; i < width * height; i++) {
        rgb[3 * i] = (uint8_t)r;
        rgb[3 * i + 1] = (uint8_t)g;
        rgb[3 * i + 2] = (uint8_t)b;
    }
}

/* A clip of `frames` one-coloured frames; asserts success. */
static struct video_info write_clip(struct video_params p, int frames, int r, int g, int b)
{
    struct video *v = NULL;
    struct rl_err err = {0};
    AUTO_FREE uint8_t *rgb = malloc((size_t)p.width * (size_t)p.height * 3);
    assert_non_null(rgb);
    fill(rgb, p.width, p.height, r, g, b);
    assert_int_equal(video_open(&p, &v, &err), RL_OK);
    for (int i = 0; i < frames; i++)
        assert_int_equal(video_write(v, rgb, (size_t)p.width * 3, p.width, p.height, &err), RL_OK);
    struct video_info info;
    assert_int_equal(video_finish(v, &info, &err), RL_OK);
    return info;
}

/* What a player sees. */
struct seen {
    enum AVCodecID codec;
    int width, height, format, frames, fps_num, fps_den, range, space;
    int r, g, b;       /* of the middle pixel of the last frame, by BT.709 / JFIF */
    int64_t first_pts; /* of the decoded pictures */
    double seconds;
    int longest_gop;
};

static int clip8(double v)
{
    return v < 0 ? 0 : v > 255 ? 255 : (int)(v + 0.5);
}

static void look_at(struct seen *seen, const AVFrame *f)
{
    int x = f->width / 2, y = f->height / 2;
    int shift = f->format == AV_PIX_FMT_YUVJ444P ? 0 : 1;
    double luma = f->data[0][y * f->linesize[0] + x];
    double cb = f->data[1][(y >> shift) * f->linesize[1] + (x >> shift)] - 128.0;
    double cr = f->data[2][(y >> shift) * f->linesize[2] + (x >> shift)] - 128.0;
    if (shift) { /* BT.709, limited range */
        luma = (luma - 16) * 255 / 219;
        cb *= 255.0 / 224;
        cr *= 255.0 / 224;
        seen->r = clip8(luma + 1.5748 * cr);
        seen->g = clip8(luma - 0.1873 * cb - 0.4681 * cr);
        seen->b = clip8(luma + 1.8556 * cb);
    } else { /* JFIF: BT.601, full range */
        seen->r = clip8(luma + 1.402 * cr);
        seen->g = clip8(luma - 0.344136 * cb - 0.714136 * cr);
        seen->b = clip8(luma + 1.772 * cb);
    }
    seen->range = (int)f->color_range;
    seen->space = (int)f->colorspace;
}

static void drain(AVCodecContext *codec, AVFrame *frame, struct seen *seen)
{
    while (avcodec_receive_frame(codec, frame) == 0) {
        if (seen->frames == 0)
            seen->first_pts = frame->pts;
        look_at(seen, frame);
        seen->frames++;
        av_frame_unref(frame);
    }
}

static struct seen probe(const char *file)
{
    struct seen seen = {0};
    AVFormatContext *in = NULL;
    assert_int_equal(avformat_open_input(&in, file, NULL, NULL), 0);
    assert_true(avformat_find_stream_info(in, NULL) >= 0);
    assert_int_equal(in->nb_streams, 1);
    AVStream *s = in->streams[0];
    seen.codec = s->codecpar->codec_id;
    seen.width = s->codecpar->width;
    seen.height = s->codecpar->height;
    seen.format = s->codecpar->format;
    seen.fps_num = s->avg_frame_rate.num;
    seen.fps_den = s->avg_frame_rate.den;
    seen.seconds = (double)in->duration / AV_TIME_BASE;
    const AVCodec *found = avcodec_find_decoder(seen.codec);
    AVCodecContext *codec = avcodec_alloc_context3(found);
    assert_true(avcodec_parameters_to_context(codec, s->codecpar) >= 0);
    assert_int_equal(avcodec_open2(codec, found, NULL), 0);
    AVPacket *packet = av_packet_alloc();
    AVFrame *frame = av_frame_alloc();
    int since_key = 0;
    while (av_read_frame(in, packet) == 0) {
        since_key = packet->flags & AV_PKT_FLAG_KEY ? 0 : since_key + 1;
        if (since_key + 1 > seen.longest_gop)
            seen.longest_gop = since_key + 1;
        assert_int_equal(avcodec_send_packet(codec, packet), 0);
        av_packet_unref(packet);
        drain(codec, frame, &seen);
    }
    assert_int_equal(avcodec_send_packet(codec, NULL), 0);
    drain(codec, frame, &seen);
    av_packet_free(&packet);
    av_frame_free(&frame);
    avcodec_free_context(&codec);
    avformat_close_input(&in);
    return seen;
}

static void assert_near(int got, int want, int tolerance)
{
    assert_in_range(got + 1000, want - tolerance + 1000, want + tolerance + 1000);
}

static bool encoder_there(const char *name)
{
    struct video_params p = params_of(64, 64, 24);
    struct video *v = NULL;
    p.encoder = name;
    if (video_open(&p, &v, NULL) != RL_OK)
        return false;
    video_abort(v);
    return true;
}

static void check_encoder(const char *name)
{
    if (!encoder_there(name)) {
        print_message("%s is not in this libavcodec\n", name);
        skip();
    }
    struct video_params p = params_of(320, 180, 24);
    p.encoder = name;
    struct video_info info = write_clip(p, 100, 200, 40, 90);
    assert_string_equal(info.encoder, name);
    assert_int_equal(info.frames, 100);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(info.bytes, st.st_size);
    struct seen seen = probe(path);
    assert_int_equal(seen.codec, AV_CODEC_ID_H264);
    assert_int_equal(seen.width, 320);
    assert_int_equal(seen.height, 180);
    assert_int_equal(seen.format, AV_PIX_FMT_YUV420P);
    assert_int_equal(seen.frames, 100);
    assert_int_equal(seen.fps_num, 24 * seen.fps_den);
    assert_int_equal(seen.first_pts, 0);
    assert_near((int)lround(seen.seconds * 1000), 100 * 1000 / 24, 60);
    assert_int_equal(seen.range, AVCOL_RANGE_MPEG);
    assert_int_equal(seen.space, AVCOL_SPC_BT709);
    assert_in_range(seen.longest_gop, 1, 48);
}

static void test_finish_libx264_is_a_playable_clip(void **state)
{
    (void)state;
    check_encoder("libx264");
}

static void test_finish_libopenh264_is_a_playable_clip(void **state)
{
    (void)state;
    check_encoder("libopenh264");
}

static void test_finish_nvenc_is_a_playable_clip(void **state)
{
    (void)state;
    check_encoder("h264_nvenc");
}

static void test_write_colours_survive(void **state)
{
    (void)state;
    static const int colours[][3] = {{255, 0, 0},   {0, 255, 0},     {0, 0, 255},   {0, 0, 0},
                                     {128, 64, 32}, {255, 255, 255}, {20, 200, 220}};
    for (size_t i = 0; i < RL_ARRAY_LEN(colours); i++) {
        const int *c = colours[i];
        (void)write_clip(params_of(64, 64, 24), 5, c[0], c[1], c[2]);
        struct seen seen = probe(path);
        assert_near(seen.r, c[0], 4); /* 8-bit limited range: a step is 1.2, chroma a little more */
        assert_near(seen.g, c[1], 4);
        assert_near(seen.b, c[2], 4);
    }
}

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void test_finish_puts_moov_before_mdat(void **state)
{
    (void)state;
    (void)write_clip(params_of(64, 64, 24), 30, 1, 2, 3);
    AUTO_FCLOSE FILE *f = fopen(path, "rb");
    assert_non_null(f);
    long moov = -1, mdat = -1, at = 0;
    uint8_t head[8];
    while (fseek(f, at, SEEK_SET) == 0 && fread(head, 1, 8, f) == 8) {
        if (memcmp(head + 4, "moov", 4) == 0)
            moov = at;
        if (memcmp(head + 4, "mdat", 4) == 0)
            mdat = at;
        assert_true(be32(head) >= 8);
        at += (long)be32(head);
    }
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    assert_int_equal(ftell(f), at); /* the boxes cover the file exactly */
    assert_true(moov > 0);
    assert_true(mdat > moov);
}

static void test_write_rows_with_padding(void **state)
{
    (void)state;
    enum { W = 64, H = 48, STRIDE = W * 3 + 37 };
    static uint8_t rgb[STRIDE * H];
    for (int y = 0; y < H; y++)
        for (int x = 0; x < STRIDE; x++)
            rgb[y * STRIDE + x] = x >= W * 3 ? 255 : x % 3 == 2 ? 200 : 10;
    struct video_params p = params_of(W, H, 10);
    struct video *v = NULL;
    struct rl_err err = {0};
    struct video_info info;
    assert_int_equal(video_open(&p, &v, &err), RL_OK);
    assert_int_equal(video_write(v, rgb, STRIDE, W, H, &err), RL_OK);
    assert_int_equal(video_finish(v, &info, &err), RL_OK);
    struct seen seen = probe(path);
    assert_int_equal(seen.frames, 1);
    assert_near(seen.b, 200, 5);
    assert_near(seen.r, 10, 5);
}

static void test_open_wrong_params_name_the_field(void **state)
{
    (void)state;
    static const struct {
        const char *field;
        int width, height, fps, crf;
    } cases[] = {
        {"width", 0, 64, 24, 18},   {"width", 65, 64, 24, 18},    {"width", 14, 64, 24, 18},
        {"width", -64, 64, 24, 18}, {"width", 8194, 64, 24, 18},  {"height", 64, 0, 24, 18},
        {"height", 64, 33, 24, 18}, {"height", 64, 9000, 24, 18}, {"fps", 64, 64, 0, 18},
        {"fps", 64, 64, 241, 18},   {"crf", 64, 64, 24, 52},      {"crf", 64, 64, 24, -1},
    };
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        struct video_params p = params_of(cases[i].width, cases[i].height, cases[i].fps);
        struct video *v = NULL;
        struct rl_err err = {0};
        p.crf = cases[i].crf;
        assert_int_equal(video_open(&p, &v, &err), RL_INVALID_FIELD);
        assert_string_equal(err.field, cases[i].field);
        assert_null(v);
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

static void test_open_unknown_encoder(void **state)
{
    (void)state;
    struct video_params p = params_of(64, 64, 24);
    struct video *v = NULL;
    struct rl_err err = {0};
    p.encoder = "mpeg2video"; /* there, but not one of ours */
    assert_int_equal(video_open(&p, &v, &err), RL_ENCODER_ERROR);
    assert_string_equal(err.field, "encoder");
    assert_non_null(strstr(err.reason, "mpeg2video"));
    assert_int_not_equal(access(path, F_OK), 0);
}

static void test_open_no_folder(void **state)
{
    (void)state;
    struct video_params p = params_of(64, 64, 24);
    struct video *v = NULL;
    struct rl_err err = {0};
    p.path = "/nonexistent-folder/clip.mp4";
    assert_int_equal(video_open(&p, &v, &err), RL_IO_ERROR);
}

static void test_open_refuses_what_is_not_a_file(void **state)
{
    (void)state;
    char fifo[128];
    (void)snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    struct video_params p = params_of(64, 64, 24);
    struct video *v = NULL;
    struct rl_err err = {0};
    p.path = fifo;
    assert_int_equal(video_open(&p, &v, &err), RL_IO_ERROR);
    assert_int_equal(unlink(fifo), 0); /* still there */
}

static void test_open_replaces_the_leftover_of_an_earlier_run(void **state)
{
    (void)state;
    AUTO_FREE char *junk = calloc(1, 1 << 20);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(junk, 1, 1 << 20, f), 1 << 20);
    assert_int_equal(fclose(f), 0);
    struct video_info info = write_clip(params_of(64, 64, 24), 3, 9, 9, 9);
    assert_true(info.bytes < 100000);
    assert_int_equal(probe(path).frames, 3);
}

static void test_write_mismatched_frame_is_refused_and_forgotten(void **state)
{
    (void)state;
    struct video_params p = params_of(64, 48, 24);
    struct video *v = NULL;
    struct rl_err err = {0};
    static uint8_t rgb[128 * 128 * 3];
    assert_int_equal(video_open(&p, &v, &err), RL_OK);
    assert_int_equal(video_write(v, rgb, 66 * 3, 66, 48, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "width");
    assert_int_equal(video_write(v, rgb, 64 * 3, 64, 50, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "height");
    assert_int_equal(video_write(v, rgb, 64 * 3 - 1, 64, 48, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "stride");
    assert_int_equal(video_write(v, NULL, 64 * 3, 64, 48, &err), RL_INVALID_FIELD);
    assert_int_equal(video_write(v, rgb, 64 * 3, 64, 48, &err), RL_OK);
    struct video_info info;
    assert_int_equal(video_finish(v, &info, &err), RL_OK);
    assert_int_equal(info.frames, 1);
}

static void test_finish_without_frames(void **state)
{
    (void)state;
    struct video_params p = params_of(64, 64, 24);
    struct video *v = NULL;
    struct rl_err err = {0};
    struct video_info info;
    assert_int_equal(video_open(&p, &v, &err), RL_OK);
    assert_int_equal(video_finish(v, &info, &err), RL_ENCODER_ERROR);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void test_abort_removes_the_file(void **state)
{
    (void)state;
    struct video_params p = params_of(64, 64, 24);
    struct video *v = NULL;
    struct rl_err err = {0};
    static uint8_t rgb[64 * 64 * 3];
    assert_int_equal(video_open(&p, &v, &err), RL_OK);
    for (int i = 0; i < 60; i++)
        assert_int_equal(video_write(v, rgb, 64 * 3, 64, 64, &err), RL_OK);
    assert_int_equal(access(path, F_OK), 0);
    video_abort(v);
    assert_int_not_equal(access(path, F_OK), 0);
    video_abort(NULL);
}

/* Peak resident KiB of a child that encodes `frames` noisy frames. */
static long peak_kib(int frames)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        static uint8_t rgb[128 * 72 * 3];
        struct video_params p = params_of(128, 72, 24);
        struct video *v = NULL;
        struct video_info info;
        uint32_t x = 1;
        bool ok = video_open(&p, &v, NULL) == RL_OK;
        for (int i = 0; ok && i < frames; i++) {
            for (size_t k = 0; k < sizeof(rgb); k += 7)
                rgb[k] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
            ok = video_write(v, rgb, 128 * 3, 128, 72, NULL) == RL_OK;
        }
        ok = ok && video_finish(v, &info, NULL) == RL_OK;
        struct rusage usage;
        long kib = getrusage(RUSAGE_SELF, &usage) == 0 && ok ? usage.ru_maxrss : -1;
        _exit(write(fds[1], &kib, sizeof(kib)) == (ssize_t)sizeof(kib) ? 0 : 1);
    }
    long kib = -1;
    assert_int_equal(read(fds[0], &kib, sizeof(kib)), (ssize_t)sizeof(kib));
    (void)close(fds[0]);
    (void)close(fds[1]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(kib > 0);
    return kib;
}

static void test_write_memory_does_not_grow_with_frames(void **state)
{
    (void)state;
    if (SANITIZED)
        skip(); /* freed memory is kept aside there */
    long small = peak_kib(100), large = peak_kib(2000);
    print_message("peak KiB: 100 frames %ld, 2000 frames %ld\n", small, large);
    /* Kept YUV frames would add 26 MiB; the muxer's index takes under 1 MiB. */
    assert_true(large < small + small / 4);
}

static void test_poster_is_a_good_jpeg(void **state)
{
    (void)state;
    static const int colours[][3] = {{255, 0, 0}, {0, 0, 255}, {250, 250, 250}, {3, 3, 3}};
    static uint8_t rgb[101 * 77 * 3]; /* odd on purpose */
    for (size_t i = 0; i < RL_ARRAY_LEN(colours); i++) {
        const int *c = colours[i];
        struct rl_err err = {0};
        fill(rgb, 101, 77, c[0], c[1], c[2]);
        assert_int_equal(video_poster(path, rgb, 101 * 3, 101, 77, &err), RL_OK);
        struct seen seen = probe(path);
        assert_int_equal(seen.codec, AV_CODEC_ID_MJPEG);
        assert_int_equal(seen.width, 101);
        assert_int_equal(seen.height, 77);
        assert_int_equal(seen.range, AVCOL_RANGE_JPEG);
        assert_near(seen.r, c[0], 4);
        assert_near(seen.g, c[1], 4);
        assert_near(seen.b, c[2], 4);
    }
}

static void test_poster_wrong_input(void **state)
{
    (void)state;
    static uint8_t rgb[64];
    struct rl_err err = {0};
    assert_int_equal(video_poster(path, rgb, 12, 0, 4, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "width");
    assert_int_equal(video_poster(path, rgb, 9, 4, 4, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "stride");
    assert_int_equal(video_poster("/nonexistent-folder/p.jpg", rgb, 12, 4, 4, &err), RL_IO_ERROR);
}

static void test_ready_names_one_that_opens(void **state)
{
    (void)state;
    struct video_params p = params_of(640, 360, 24);
    const char *name = NULL;
    p.path = NULL; /* nothing is written */
    assert_int_equal(video_ready(&p, &name, NULL), RL_OK);
    assert_true(encoder_there(name));
    assert_string_not_equal(name, "h264_nvenc"); /* no GPU was named */
    p.gpu = 0;
    assert_int_equal(video_ready(&p, &name, NULL), RL_OK);
    assert_true(encoder_there(name));
    assert_non_null(strstr(video_versions(), "Lavc"));
}

/* libx264 once refused crf 0, which stopped all work. */
static void test_ready_with_every_crf_that_may_be_configured(void **state)
{
    (void)state;
    static const char *const names[] = {"libx264", "libopenh264"};
    for (size_t i = 0; i < RL_ARRAY_LEN(names); i++)
        for (int crf = 0; encoder_there(names[i]) && crf <= 51; crf++) {
            struct video_params p = params_of(128, 64, 24);
            struct rl_err err = {0};
            p.encoder = names[i];
            p.crf = crf;
            if (video_ready(&p, NULL, &err) != RL_OK)
                fail_msg("%s, crf %d: %s", names[i], crf, err.reason);
        }
}

static void test_finish_crf_0_plays_everywhere(void **state)
{
    (void)state;
    struct video_params p = params_of(64, 64, 24);
    p.crf = 0;
    (void)write_clip(p, 5, 10, 200, 90);
    struct seen seen = probe(path);
    assert_int_equal(seen.frames, 5);
    assert_int_equal(seen.format, AV_PIX_FMT_YUV420P);
    assert_near(seen.g, 200, 3);
}

int main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_write_memory_does_not_grow_with_frames), /* first: a fresh heap */
        WITH_DIR(test_finish_libx264_is_a_playable_clip),
        WITH_DIR(test_finish_libopenh264_is_a_playable_clip),
        WITH_DIR(test_finish_nvenc_is_a_playable_clip),
        WITH_DIR(test_write_colours_survive),
        WITH_DIR(test_finish_puts_moov_before_mdat),
        WITH_DIR(test_write_rows_with_padding),
        WITH_DIR(test_open_wrong_params_name_the_field),
        WITH_DIR(test_open_unknown_encoder),
        WITH_DIR(test_open_no_folder),
        WITH_DIR(test_open_refuses_what_is_not_a_file),
        WITH_DIR(test_open_replaces_the_leftover_of_an_earlier_run),
        WITH_DIR(test_write_mismatched_frame_is_refused_and_forgotten),
        WITH_DIR(test_finish_without_frames),
        WITH_DIR(test_abort_removes_the_file),
        WITH_DIR(test_poster_is_a_good_jpeg),
        WITH_DIR(test_poster_wrong_input),
        WITH_DIR(test_ready_names_one_that_opens),
        WITH_DIR(test_ready_with_every_crf_that_may_be_configured),
        WITH_DIR(test_finish_crf_0_plays_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
