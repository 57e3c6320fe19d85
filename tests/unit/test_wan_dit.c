/* The transformer against PyTorch (tests/unit/wan/make.py). */
#include "wan_world.h"

#include "engine/wan/dit.h"

#define F 3
#define H 4
#define W 8

struct prompts {
    const struct dit_prompt *list[DIT_PROMPTS];
    struct dit_prompt *own[DIT_PROMPTS];
    int count;
};

/* rows: the tensor with the encoder's rows of a prompt. */
static void add_prompt(const struct world *w, const struct dit *dit, struct prompts *to,
                       const char *rows)
{
    size_t n;
    struct rl_err err = {0};
    int text_dim = wan_model_config(w->model)->dit.text_dim;
    float *host = values(w, rows, &n);
    void *act = to_act(w, host, n);
    struct dit_prompt **prompt = &to->own[to->count];
    must(dit_prompt_new(dit, act, (int)n / text_dim, prompt, &err), &err);
    to->list[to->count++] = *prompt;
    w->ops->free(w->ctx, act);
    free(host);
}

static void free_prompts(struct prompts *prompts)
{
    for (int i = 0; i < prompts->count; i++)
        dit_prompt_free(prompts->own[i]);
}

/* The velocity of each of the prompts at `time` against the tensors of those names. */
static void check(const struct world *w, const struct dit *dit, const struct prompts *prompts,
                  double time, const char *const *want_names)
{
    struct dit_clip *clip = NULL;
    struct rl_err err = {0};
    size_t n, bytes;
    const int64_t *dims = expected(w, "dit0.x")->dims; /* c, f, h, w */
    float *x = values(w, "dit0.x", &n), *v[DIT_PROMPTS], *got = malloc(n * sizeof *got);
    assert_non_null(got);
    bytes = n * sizeof *x;
    void *device = on_device(w, x, bytes);
    for (int i = 0; i < prompts->count; i++)
        v[i] = on_device(w, NULL, bytes);
    must(dit_clip_new(dit, (int)dims[1], (int)dims[2], (int)dims[3], prompts->count, &clip, &err),
         &err);
    for (int again = 0; again < 2; again++) { /* a clip is used for many steps */
        must(dit_time(clip, again ? time : 1, &err), &err);
        must(dit_forward(clip, device, prompts->list, NULL, v, &err), &err);
    }
    for (int i = 0; i < prompts->count; i++) {
        float *want = values(w, want_names[i], NULL);
        must(w->ops->download(w->ctx, got, v[i], bytes, &err), &err);
        assert_close(w, want_names[i], got, want, n);
        free(want);
        w->ops->free(w->ctx, v[i]);
    }
    dit_clip_free(clip);
    w->ops->free(w->ctx, device);
    free(x);
    free(got);
}

static struct dit *open_dit(const struct world *w)
{
    struct dit *dit = NULL;
    struct rl_err err = {0};
    must(dit_new(w->ops, w->ctx, w->model, NULL, &dit, &err), &err);
    return dit;
}

static void one_prompt(const struct world *w)
{
    static const struct {
        const char *rows, *want;
        double time;
    } cases[] = {{"text0.rows", "dit0.v", 937},
                 {"text1.rows", "dit1.v", 214},
                 {"dit_full.context", "dit_full.v", 500}};
    struct dit *dit = open_dit(w);
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        struct prompts prompts = {.count = 0};
        add_prompt(w, dit, &prompts, cases[i].rows);
        check(w, dit, &prompts, cases[i].time, &cases[i].want);
        free_prompts(&prompts);
    }
    dit_free(dit);
}

static void test_forward_gives_the_velocity_of_pytorch(void **state)
{
    (void)state;
    over_all(false, one_prompt);
}

/* Two prompts in one call give what they give alone. */
static void two_prompts(const struct world *w)
{
    static const char *const names[] = {"dit0.v", "dit_both1.v"};
    struct dit *dit = open_dit(w);
    struct prompts prompts = {.count = 0};
    add_prompt(w, dit, &prompts, "text0.rows");
    add_prompt(w, dit, &prompts, "text1.rows");
    check(w, dit, &prompts, 937, names);
    free_prompts(&prompts);
    dit_free(dit);
}

static void test_forward_with_two_prompts(void **state)
{
    (void)state;
    over_all(false, two_prompts);
}

static void test_rope_as_pytorch(void **state)
{
    enum { N = F * (H / 2) * (W / 2) * 16 };
    float cosine[N], sine[N];
    struct world w;
    (void)state;
    world_open(&w, ops_reference());
    float *want_cos = values(&w, "rope.cos", NULL), *want_sin = values(&w, "rope.sin", NULL);
    dit_rope(F, H / 2, W / 2, 32, cosine, sine);
    for (int i = 0; i < N; i++) {
        assert_float_equal(cosine[i], want_cos[i], 1e-7);
        assert_float_equal(sine[i], want_sin[i], 1e-7);
    }
    free(want_cos);
    free(want_sin);
    world_close(&w);
}

/* Wan's head of 128: 22, 21 and 21 lanes, each axis with an exponent of its own. */
static void test_rope_of_wide_heads(void **state)
{
    float cosine[2 * 2 * 2 * 64], sine[2 * 2 * 2 * 64];
    (void)state;
    dit_rope(2, 2, 2, 128, cosine, sine);
    const float *last = cosine + 7 * 64, *last_sine = sine + 7 * 64; /* the token at (1, 1, 1) */
    assert_float_equal(last[0], cos(1), 1e-7);
    assert_float_equal(last[21], cos(pow(10000, -42 / 44.)), 1e-7);
    assert_float_equal(last[22], cos(1), 1e-7);
    assert_float_equal(last[42], cos(pow(10000, -40 / 42.)), 1e-7);
    assert_float_equal(last[43], cos(1), 1e-7);
    assert_float_equal(last_sine[63], sin(pow(10000, -40 / 42.)), 1e-7);
    assert_float_equal(cosine[7 * 64 - 64 + 43], 1, 0); /* (1, 1, 0) */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_gives_the_velocity_of_pytorch),
        cmocka_unit_test(test_forward_with_two_prompts),
        cmocka_unit_test(test_rope_as_pytorch),
        cmocka_unit_test(test_rope_of_wide_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
