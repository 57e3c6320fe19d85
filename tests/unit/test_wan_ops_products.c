/* Matrix products and convolutions of every set of inner loops against the plain forms.
 *
 * Tolerances: the numbers that go in are exact in bf16, products are exact in f32, and sums of k of
 * them are f32 in another order than the reference's double: an error of at most k · 2⁻²⁴ · Σ|xw|,
 * far below 2⁻²⁰ · k for numbers up to 1. What is stored as bf16 is off by 2⁻⁸ of itself more, and
 * eˣ within an activation by 2⁻²². */
#include "wan_ops.h"

struct product_case {
    int64_t m, n, k;
    enum ops_epilogue epilogue;
    bool bias;
    const float *x, *w, *b, *gate, *y;
};

static bool stores_act(enum ops_epilogue epilogue)
{
    return epilogue == OPS_STORE_ACT || epilogue == OPS_GELU_ACT || epilogue == OPS_GELU_GATE_ACT;
}

static void run_gemm(const struct side *s, const void *args, float *y)
{
    const struct product_case *c = args;
    struct ops_weight *w = as_weight(s, c->w, c->n, c->k);
    void *x = as_act(s, c->x, c->m * c->k);
    float *y_f32 = exact((size_t)(c->m * c->n) * sizeof *y);
    void *y_act = as_act(s, c->y, c->m * c->n);
    memcpy(y_f32, c->y, (size_t)(c->m * c->n) * sizeof *y);
    s->ops->gemm(s->ctx, stores_act(c->epilogue) ? y_act : y_f32, x, w, c->bias ? c->b : NULL,
                 c->epilogue == OPS_ADD_GATED_F32 ? c->gate : NULL, c->m, c->epilogue);
    if (stores_act(c->epilogue))
        from_act(s, y, y_act, c->m * c->n);
    else
        memcpy(y, y_f32, (size_t)(c->m * c->n) * sizeof *y);
    s->ops->weight_free(s->ctx, w);
    free(x);
    free(y_act);
    free(y_f32);
}

static void gemm_case(const struct world *w, int64_t m, int64_t n, int64_t k,
                      enum ops_epilogue epilogue, bool bias)
{
    char what[100];
    float *x = numbers(m * k, 1, 1), *weight = numbers(n * k, 1, 2), *b = numbers(n, 1, 3),
          *gate = numbers(n, 1, 4), *y = numbers(m * n, 1, 5);
    const struct product_case c = {.m = m,
                                   .n = n,
                                   .k = k,
                                   .epilogue = epilogue,
                                   .bias = bias,
                                   .x = x,
                                   .w = weight,
                                   .b = b,
                                   .gate = gate,
                                   .y = y};
    (void)snprintf(what, sizeof what, "gemm %lld x %lld x %lld, epilogue %d", (long long)m,
                   (long long)n, (long long)k, (int)epilogue);
    compare(w, what, run_gemm, &c, m * n, stores_act(epilogue) ? act_rounding(w) : 0x1p-20,
            0x1p-21 * (double)(k + 1));
    free(x);
    free(weight);
    free(b);
    free(gate);
    free(y);
}

/* Around the edges of tiles (1 … 16 rows, 16 columns, 64), blocks (96 rows) and pieces of k
 * (1024). */
static void gemm_sizes(const struct world *w)
{
    static const int64_t few[] = {1, 2, 3, 5, 7, 13, 16, 17};
    for (size_t m = 0; m < RL_ARRAY_LEN(few); m++)
        for (size_t n = 0; n < RL_ARRAY_LEN(few); n++)
            for (size_t k = 0; k < RL_ARRAY_LEN(few); k++)
                gemm_case(w, few[m], few[n], few[k], OPS_STORE_F32, true);
    static const int64_t odd[][3] = {{1, 257, 1031}, {97, 63, 64},  {96, 64, 1024},  {95, 65, 1025},
                                     {80, 256, 256}, {193, 1, 31},  {31, 129, 2049}, {6, 48, 3},
                                     {14, 16, 2050}, {29, 112, 66}, {1, 1, 1}};
    for (size_t i = 0; i < RL_ARRAY_LEN(odd); i++) {
        gemm_case(w, odd[i][0], odd[i][1], odd[i][2], OPS_STORE_F32, false);
        gemm_case(w, odd[i][0], odd[i][1], odd[i][2], OPS_STORE_ACT, true);
    }
}

static void test_gemm_sizes(void **state)
{
    (void)state;
    on_every_level(gemm_sizes);
}

static void gemm_epilogues(const struct world *w)
{
    for (int epilogue = OPS_STORE_ACT; epilogue <= OPS_ADD_GATED_F32; epilogue++)
        for (int bias = 0; bias < 2; bias++) {
            gemm_case(w, 11, 77, 9, (enum ops_epilogue)epilogue, bias);
            gemm_case(w, 3, 16, 4, (enum ops_epilogue)epilogue, bias);
        }
}

static void test_gemm_epilogues(void **state)
{
    (void)state;
    on_every_level(gemm_epilogues);
}

/* Activations of numbers whose exponentials no float holds, of zeros, and of the smallest. */
static void gemm_extremes(const struct world *w)
{
    static const float extremes[] = {0,      -0.0F,   88,     -88,   89,    -89,    104,   -104,
                                     1000,   -1000,   3e4F,   -3e4F, 1e15F, -1e15F, 1e30F, -1e30F,
                                     1e-30F, -1e-30F, 1e-20F, -10,   10,    0.5F};
    const int64_t m = RL_ARRAY_LEN(extremes);
    float *x = numbers(m, 1, 1), one = 1, zero = 0, *y = numbers(m, 1, 2);
    for (int64_t i = 0; i < m; i++)
        x[i] = extremes[i];
    struct side bits = w->fast[0]; /* what bf16 makes of them */
    void *rounded = as_act(&bits, x, m);
    from_act(&bits, x, rounded, m);
    struct product_case c = {.m = m, .n = 1, .k = 1, .x = x, .w = &one, .b = &zero, .gate = &one};
    c.y = y;
    for (int epilogue = OPS_STORE_ACT; epilogue <= OPS_ADD_GATED_F32; epilogue++) {
        c.epilogue = (enum ops_epilogue)epilogue;
        /* absolute: 1e30 · e⁻⁸⁷, where the reference has zero */
        compare(w, "extremes", run_gemm, &c, m, act_rounding(w) + 0x1p-20, 1e-7);
    }
    free(rounded);
    free(x);
    free(y);
}

static void test_gemm_extremes(void **state)
{
    (void)state;
    on_every_level(gemm_extremes);
}

static void run_gemm_f32(const struct side *s, const void *args, float *y)
{
    const struct product_case *c = args;
    s->ops->gemm_f32(s->ctx, y, c->x, c->w, c->bias ? c->b : NULL, c->m, c->n, c->k,
                     c->epilogue == OPS_SILU_F32);
}

static void gemm_f32_sizes(const struct world *w)
{
    static const int64_t sizes[][3] = {{1, 1, 1},   {1, 6, 256},  {2, 1536, 255}, {3, 7, 63},
                                       {5, 33, 64}, {1, 300, 65}, {4, 17, 129}};
    for (size_t i = 0; i < RL_ARRAY_LEN(sizes); i++)
        for (int way = 0; way < 4; way++) {
            int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            float *x = numbers(m * k, 1, 1), *weight = numbers(n * k, 1, 2), *b = numbers(n, 1, 3);
            const struct product_case c = {.m = m,
                                           .n = n,
                                           .k = k,
                                           .bias = way & 1,
                                           .epilogue = way & 2 ? OPS_SILU_F32 : OPS_STORE_F32,
                                           .x = x,
                                           .w = weight,
                                           .b = b};
            compare(w, "gemm_f32", run_gemm_f32, &c, m * n, 0x1p-20, 0x1p-21 * (double)(k + 1));
            free(x);
            free(weight);
            free(b);
        }
}

static void test_gemm_f32_sizes(void **state)
{
    (void)state;
    on_every_level(gemm_f32_sizes);
}

/* ---- convolutions ---- */

struct conv_case {
    struct ops_conv shape;
    bool missing[3]; /* frames of zeros */
    enum ops_epilogue epilogue;
    bool bias;
    const float *x, *w, *b, *y;
};

static int64_t conv_size(const struct ops_conv *s)
{
    return (int64_t)s->h * s->w * s->co * (s->upsample ? 4 : 1);
}

static void run_conv(const struct side *s, const void *args, float *y)
{
    const struct conv_case *c = args;
    struct ops_conv shape = c->shape;
    int64_t frame = (int64_t)shape.h * shape.w * shape.ci, n = conv_size(&shape);
    struct ops_weight *w =
        as_weight(s, c->w, shape.co, (int64_t)shape.kt * shape.kh * shape.kw * shape.ci);
    void *in[3] = {NULL}, *y_act = as_act(s, c->y, n);
    float *y_f32 = exact((size_t)n * sizeof *y);
    memcpy(y_f32, c->y, (size_t)n * sizeof *y);
    for (int t = 0; t < shape.kt; t++)
        in[t] = c->missing[t] ? NULL : as_act(s, c->x + t * frame, frame);
    shape.in = (const void *const *)in;
    s->ops->conv(s->ctx, c->epilogue == OPS_STORE_ACT ? y_act : y_f32, &shape, w,
                 c->bias ? c->b : NULL, c->epilogue);
    if (c->epilogue == OPS_STORE_ACT)
        from_act(s, y, y_act, n);
    else
        memcpy(y, y_f32, (size_t)n * sizeof *y);
    for (int t = 0; t < shape.kt; t++)
        free(in[t]);
    s->ops->weight_free(s->ctx, w);
    free(y_act);
    free(y_f32);
}

static void conv_case(const struct world *w, const struct ops_conv *shape, unsigned missing,
                      enum ops_epilogue epilogue)
{
    char what[160];
    int64_t k = (int64_t)shape->kt * shape->kh * shape->kw * shape->ci, n = conv_size(shape);
    float *x = numbers((int64_t)shape->kt * shape->h * shape->w * shape->ci, 1, 1),
          *weight = numbers(shape->co * k, 1, 2), *b = numbers(shape->co, 1, 3),
          *y = numbers(n, 1, 4);
    const struct conv_case c = {.shape = *shape,
                                .missing = {missing & 1, missing & 2, missing & 4},
                                .epilogue = epilogue,
                                .bias = missing != 2,
                                .x = x,
                                .w = weight,
                                .b = b,
                                .y = y};
    (void)snprintf(what, sizeof what, "conv %d x %d x %d to %d, window %d x %d x %d%s, missing %u",
                   shape->h, shape->w, shape->ci, shape->co, shape->kt, shape->kh, shape->kw,
                   shape->upsample ? ", upsampled" : "", missing);
    compare(w, what, run_conv, &c, n, epilogue == OPS_STORE_ACT ? act_rounding(w) : 0x1p-20,
            0x1p-21 * (double)(k + 1));
    free(x);
    free(weight);
    free(b);
    free(y);
}

static void conv_shapes(const struct world *w)
{
    static const int windows[][3] = {{1, 1, 1}, {3, 3, 3}, {1, 3, 3},
                                     {3, 1, 1}, {2, 3, 1}, {1, 1, 5}};
    static const int pictures[][4] = {{1, 1, 2, 1},   {2, 3, 4, 5},  {5, 7, 6, 17},
                                      {1, 130, 8, 3}, {9, 2, 2, 66}, {3, 97, 16, 16}};
    for (size_t i = 0; i < RL_ARRAY_LEN(windows); i++)
        for (size_t j = 0; j < RL_ARRAY_LEN(pictures); j++)
            for (int upsample = 0; upsample < 2; upsample++) {
                const struct ops_conv shape = {.h = pictures[j][0],
                                               .w = pictures[j][1],
                                               .ci = pictures[j][2],
                                               .co = pictures[j][3],
                                               .kt = windows[i][0],
                                               .kh = windows[i][1],
                                               .kw = windows[i][2],
                                               .upsample = upsample};
                conv_case(w, &shape, 0, OPS_STORE_F32);
                conv_case(w, &shape, 1, OPS_ADD_F32); /* of a window of one frame: nothing left */
                if (shape.kt == 3) {
                    conv_case(w, &shape, 3, OPS_STORE_ACT);
                    conv_case(w, &shape, 2, OPS_STORE_F32);
                }
            }
}

static void test_conv_shapes(void **state)
{
    (void)state;
    on_every_level(conv_shapes);
}

/* So many channels that a row is cut into pieces, the windows' runs too, and scratch grows. */
static void conv_wide(const struct world *w)
{
    const struct ops_conv deep = {.h = 2, .w = 70, .ci = 384, .co = 20, .kt = 3, .kh = 3, .kw = 3};
    const struct ops_conv deepest = {
        .h = 1, .w = 19, .ci = 6000, .co = 2, .kt = 1, .kh = 3, .kw = 3};
    conv_case(w, &deep, 0, OPS_STORE_ACT);
    conv_case(w, &deepest, 0, OPS_ADD_F32);
}

static void test_conv_wide(void **state)
{
    (void)state;
    on_every_level(conv_wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm_sizes),    cmocka_unit_test(test_gemm_epilogues),
        cmocka_unit_test(test_gemm_extremes), cmocka_unit_test(test_gemm_f32_sizes),
        cmocka_unit_test(test_conv_shapes),   cmocka_unit_test(test_conv_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
