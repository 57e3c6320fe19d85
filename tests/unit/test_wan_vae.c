/* The video decoder, frame by frame, against PyTorch's of the whole clip (tests/unit/wan/make.py).
 */
#include "wan_world.h"

#include "engine/wan/vae.h"

struct frames {
    const struct world *w;
    float *all; /* owned */
    size_t pixels, frame;
    int count, stop_at;
};

static enum rl_rc take(void *user, const void *act, int h, int w, struct rl_err *err)
{
    struct frames *f = user;
    if (f->count == f->stop_at)
        return rl_fail(err, RL_CANCELED, "enough");
    f->frame = (size_t)h * (size_t)w * 3;
    float *frame = act_values(f->w, act, f->frame);
    f->all = realloc(f->all, (size_t)(f->count + 1) * f->frame * sizeof *f->all);
    assert_non_null(f->all);
    memcpy(f->all + (size_t)f->count++ * f->frame, frame, f->frame * sizeof *frame);
    free(frame);
    return RL_OK;
}

static void decode(const struct world *w)
{
    struct vae *vae = NULL;
    struct rl_err err = {0};
    size_t n, count;
    float *z = values(w, "vae.z", &n), *want = values(w, "vae.rgb", &count);
    const struct tensor *shape = expected(w, "vae.z");
    must(vae_new(w->ops, w->ctx, w->model, NULL, &vae, &err), &err);
    for (int again = 0; again < 2; again++) { /* a second clip sees nothing of the first */
        struct vae_clip *clip = NULL;
        struct frames frames = {.w = w, .stop_at = -1};
        const struct vae_sink sink = {.user = &frames, .frame = take};
        must(vae_clip_new(vae, (int)shape->dims[1], (int)shape->dims[2], &clip, &err), &err);
        for (int i = 0; i < shape->dims[0]; i++) {
            must(vae_decode(clip, z + (size_t)i * (n / (size_t)shape->dims[0]), &sink, &err), &err);
            assert_int_equal(frames.count, 1 + 4 * i);
        }
        assert_int_equal(frames.frame * (size_t)frames.count, count);
        assert_close(w, "vae.rgb", frames.all, want, count);
        assert_close(w, "first frame", frames.all, want, frames.frame);
        assert_close(w, "last frame", frames.all + 8 * frames.frame, want + 8 * frames.frame,
                     frames.frame);
        vae_clip_free(clip);
        free(frames.all);
    }
    vae_free(vae);
    free(z);
    free(want);
}

static void test_decode_gives_the_frames_of_pytorch(void **state)
{
    (void)state;
    over_all(false, decode);
}

static void test_decode_ends_with_the_sink_s_error(void **state)
{
    struct world w;
    struct vae *vae = NULL;
    struct vae_clip *clip = NULL;
    struct rl_err err = {0};
    (void)state;
    world_open(&w, ops_reference());
    struct frames frames = {.w = &w, .stop_at = 3};
    const struct vae_sink sink = {.user = &frames, .frame = take};
    float *z = values(&w, "vae.z", NULL);
    must(vae_new(w.ops, w.ctx, w.model, NULL, &vae, &err), &err);
    must(vae_clip_new(vae, 2, 3, &clip, &err), &err);
    must(vae_decode(clip, z, &sink, &err), &err);
    assert_int_equal(vae_decode(clip, z, &sink, &err), RL_CANCELED);
    assert_int_equal(frames.count, 3);
    vae_clip_free(clip);
    vae_free(vae);
    free(frames.all);
    free(z);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_gives_the_frames_of_pytorch),
        cmocka_unit_test(test_decode_ends_with_the_sink_s_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
