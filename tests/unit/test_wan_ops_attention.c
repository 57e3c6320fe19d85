/* Attention of every set of inner loops against the plain form.
 *
 * Tolerances: bf16 rounds the probabilities (2⁻⁸ each, so the mean of the values by at most 2⁻⁸ of
 * their size, here 1) and the result (2⁻⁸ again); eˣ and the sums in f32 are 2⁻²⁰ or better. A
 * logit s is off by 2⁻²³ |s|, so its probability by as much of itself. */
#include "wan_ops.h"

struct attention_case {
    int64_t lq, lk;
    int heads, hd;
    float scale, last_logit;
    const float *q, *k, *v, *bias;
};

static void run_attention(const struct side *s, const void *args, float *y)
{
    const struct attention_case *c = args;
    int64_t d = (int64_t)c->heads * c->hd;
    void *q = as_act(s, c->q, c->lq * d), *k = as_act(s, c->k, c->lk * d),
         *v = as_act(s, c->v, c->lk * d), *out = exact((size_t)(c->lq * d) * s->ops->act_bytes);
    s->ops->attention(s->ctx, out, q, k, v, c->lq, c->lk, c->heads, c->hd, c->scale, c->bias,
                      c->last_logit);
    from_act(s, y, out, c->lq * d);
    free(q);
    free(k);
    free(v);
    free(out);
}

/* size: of queries and keys */
static void attention_case(const struct world *w, struct attention_case c, float size, bool bias)
{
    char what[160];
    int64_t d = (int64_t)c.heads * c.hd;
    float *q = numbers(c.lq * d, size, 1), *k = numbers(c.lk * d, size, 2),
          *v = numbers(c.lk * d, 1, 3), *b = numbers(c.heads * c.lq * c.lk, 5, 4);
    c.q = q;
    c.k = k;
    c.v = v;
    c.bias = bias ? b : NULL;
    (void)snprintf(what, sizeof what, "attention %lld x %lld, %d heads of %d%s, size %g",
                   (long long)c.lq, (long long)c.lk, c.heads, c.hd, bias ? ", bias" : "",
                   (double)size);
    double logit = (double)(size * size * c.scale) * c.hd + fabs((double)c.last_logit) + 5;
    compare(w, what, run_attention, &c, c.lq * d, act_rounding(w),
            (w->bf16 ? 0x1p-8 : 0x1p-19) + logit * 0x1p-21);
    free(q);
    free(k);
    free(v);
    free(b);
}

static void attention_shapes(const struct world *w)
{
    static const struct attention_case shapes[] = {
        {.lq = 1, .lk = 1, .heads = 1, .hd = 2},      {.lq = 3, .lk = 1, .heads = 2, .hd = 64},
        {.lq = 80, .lk = 80, .heads = 2, .hd = 128},  {.lq = 80, .lk = 9, .heads = 2, .hd = 128},
        {.lq = 7, .lk = 127, .heads = 3, .hd = 64},   {.lq = 5, .lk = 128, .heads = 1, .hd = 384},
        {.lq = 131, .lk = 129, .heads = 1, .hd = 16}, {.lq = 260, .lk = 300, .heads = 2, .hd = 6},
        {.lq = 17, .lk = 31, .heads = 4, .hd = 32},   {.lq = 9, .lk = 200, .heads = 1, .hd = 1024},
        {.lq = 2, .lk = 385, .heads = 5, .hd = 66},
    };
    for (size_t i = 0; i < RL_ARRAY_LEN(shapes); i++)
        for (int way = 0; way < 4; way++) {
            struct attention_case c = shapes[i];
            c.scale = 1 / sqrtf((float)c.hd);
            c.last_logit = way & 2 ? 6.2F : 0;
            attention_case(w, c, 2, way & 1);
        }
}

static void test_attention_shapes(void **state)
{
    (void)state;
    on_every_level(attention_shapes);
}

/* Logits in the thousands, all alike, or in an order in which each block of keys tops the last. */
static void attention_extremes(const struct world *w)
{
    struct attention_case c = {.lq = 20, .lk = 300, .heads = 2, .hd = 64, .scale = 1};
    attention_case(w, c, 30, true);
    c.scale = 0;
    attention_case(w, c, 1, false);
    c.scale = 0.125F;
    c.last_logit = -50;
    attention_case(w, c, 4, false);
    c.last_logit = 1000; /* the last key alone */
    attention_case(w, c, 4, false);
    c.lk = 1;
    c.last_logit = -1000;
    attention_case(w, c, 4, true);

    int64_t d = 64, lk = 400;
    float *q = numbers(3 * d, 1, 1), *k = numbers(lk * d, 1, 2), *v = numbers(lk * d, 1, 3),
          *bias = exact((size_t)(3 * lk) * sizeof *bias);
    for (int64_t i = 0; i < 3 * lk; i++) /* rising, falling, and a mountain no float's eˣ climbs */
        bias[i] = i < lk ? (float)i : i < 2 * lk ? (float)-i : i % lk == 200 ? 3e38F : -3e38F;
    const struct attention_case steep = {.lq = 3,
                                         .lk = lk,
                                         .heads = 1,
                                         .hd = (int)d,
                                         .scale = 0.125F,
                                         .q = q,
                                         .k = k,
                                         .v = v,
                                         .bias = bias};
    compare(w, "steep", run_attention, &steep, 3 * d, act_rounding(w), w->bf16 ? 0x1p-8 : 1e-4);
    free(q);
    free(k);
    free(v);
    free(bias);
}

static void test_attention_extremes(void **state)
{
    (void)state;
    on_every_level(attention_extremes);
}

/* One key said to stand for n gives what n equal keys give. */
static void test_attention_last_key_stands_for_many(void **state)
{
    struct world w;
    (void)state;
    enum { LQ = 4, LK = 6, MANY = 37, D = 32 };
    assert_true(world_open(&w, cpu_levels() - 1));
    float *q = numbers(LQ * D, 2, 1), *k = numbers((LK + MANY) * D, 2, 2),
          *v = numbers((LK + MANY) * D, 1, 3), few[LQ * D], many[LQ * D];
    for (int i = 1; i < MANY; i++) {
        memcpy(k + (LK + i) * D, k + LK * D, D * sizeof *k);
        memcpy(v + (LK + i) * D, v + LK * D, D * sizeof *v);
    }
    struct attention_case c = {
        .lq = LQ, .lk = LK + MANY, .heads = 1, .hd = D, .scale = 0.25F, .q = q, .k = k, .v = v};
    run_attention(&w.fast[0], &c, many);
    c.lk = LK + 1;
    c.last_logit = logf(MANY);
    run_attention(&w.fast[0], &c, few);
    for (int i = 0; i < LQ * D; i++)
        assert_true(fabsf(few[i] - many[i]) < 1e-6F);
    free(q);
    free(k);
    free(v);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_shapes),
        cmocka_unit_test(test_attention_extremes),
        cmocka_unit_test(test_attention_last_key_stands_for_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
