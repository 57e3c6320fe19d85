/* A whole sampling run against PyTorch's (tests/unit/wan/make.py): two prompts, guidance, every
 * step of both solvers, the decoder. The noise is PyTorch's: the engine's own is another. */
#include "wan_film.h"

#define SHOWN 3 /* frames in the fixture: the first, the middle and the last */

/* A run amplifies what a step is off by: guidance alone by 2 · 4 − 1. Latents of bf16 end this far
 * from those of f32, and the tiny random decoder makes more of it. */
#define BF16_RUN_ERROR  0.08
#define PLAIN_RUN_ERROR 2e-5

struct frames {
    const struct world *w;
    int total, count;
    size_t picture; /* numbers of one */
    float *shown;   /* of those in the fixture */
};

static enum rl_rc take(void *user, const void *act, int h, int w, struct rl_err *err)
{
    struct frames *f = user;
    (void)err;
    assert_int_equal(h * w * 3, f->picture);
    if (f->count % (f->total / (SHOWN - 1)) == 0) {
        float *frame = act_values(f->w, act, f->picture);
        memcpy(f->shown + (size_t)(f->count / (f->total / (SHOWN - 1))) * f->picture, frame,
               f->picture * sizeof *frame);
        free(frame);
    }
    f->count++;
    return RL_OK;
}

static void one_run(const struct world *w, enum sampler_method method, const char *name)
{
    char key[3][32];
    static const char *const ends[] = {"noise", "z", "rgb"};
    struct world loose = *w;
    struct rl_err err = {0};
    size_t n, shown;
    for (int i = 0; i < 3; i++)
        (void)snprintf(key[i], sizeof key[i], "%s.%s", name, ends[i]); /* fits */
    loose.error = w->ops->act_bytes == 2 ? BF16_RUN_ERROR : PLAIN_RUN_ERROR;
    const int64_t *dims = expected(w, key[0])->dims;
    float *noise = values(w, key[0], &n), *want = values(w, key[1], NULL);
    float *rgb = values(w, key[2], &shown), *z = malloc(n * sizeof *z);
    struct frames frames = {.w = w,
                            .total = (int)(4 * dims[1] - 4),
                            .picture = shown / SHOWN,
                            .shown = malloc(shown * sizeof(float))};
    assert_true(z && frames.shown);
    float *x = on_device(w, noise, n * sizeof *z);
    film_denoise(w, method, dims, x);
    must(w->ops->download(w->ctx, z, x, n * sizeof *z, &err), &err);
    assert_close(&loose, key[1], z, want, n);
    const struct vae_sink sink = {.user = &frames, .frame = take};
    film_decode(w, dims, z, &sink);
    assert_int_equal(frames.count, frames.total + 1);
    assert_close(&loose, key[2], frames.shown, rgb, shown);
    w->ops->free(w->ctx, x);
    free(frames.shown);
    free(noise);
    free(want);
    free(rgb);
    free(z);
}

static void whole_run(const struct world *w)
{
    one_run(w, SAMPLER_UNIPC, "run_unipc");
    one_run(w, SAMPLER_EULER, "run_euler");
}

static void test_run_ends_where_pytorch_s_does(void **state)
{
    (void)state;
    over_all(true, whole_run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_ends_where_pytorch_s_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
