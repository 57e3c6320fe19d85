/* Norms, rotation, element-wise operators, latents, pictures, number formats and memory of every
 * set of inner loops against the plain forms, and the threads beneath.
 *
 * Tolerances: f32 sums of a row's d squares against double, at most d · 2⁻²⁴ of them, less by the
 * many partial sums; bf16 results are off by 2⁻⁸ of themselves more (act_rounding). */
// link: -Wl,--wrap=aligned_alloc -Wl,--wrap=pthread_create
#include "wan_ops.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

static const int64_t widths[] = {1, 2, 3, 5, 7, 16, 17, 31, 63, 64, 65, 96, 130, 256, 1031};

struct row_case {
    int64_t l, d;
    int heads, hd;
    bool silu;
    const float *x, *a, *b;
};

typedef void run_fn(const struct side *s, const void *args, float *y);

static void run_norm_modulate(const struct side *s, const void *args, float *y)
{
    const struct row_case *c = args;
    void *out = exact((size_t)(c->l * c->d) * s->ops->act_bytes);
    s->ops->norm_modulate(s->ctx, out, c->x, c->a, c->b, c->l, c->d);
    from_act(s, y, out, c->l * c->d);
    free(out);
}

static void run_norm_affine(const struct side *s, const void *args, float *y)
{
    const struct row_case *c = args;
    void *out = exact((size_t)(c->l * c->d) * s->ops->act_bytes);
    s->ops->norm_affine(s->ctx, out, c->x, c->a, c->b, c->l, c->d);
    from_act(s, y, out, c->l * c->d);
    free(out);
}

static void run_rms_norm(const struct side *s, const void *args, float *y)
{
    const struct row_case *c = args;
    void *out = exact((size_t)(c->l * c->d) * s->ops->act_bytes);
    s->ops->rms_norm(s->ctx, out, c->x, c->a, c->l, c->d);
    from_act(s, y, out, c->l * c->d);
    free(out);
}

static void run_channel_norm(const struct side *s, const void *args, float *y)
{
    const struct row_case *c = args;
    void *out = exact((size_t)(c->l * c->d) * s->ops->act_bytes);
    s->ops->channel_norm(s->ctx, out, c->x, c->a, c->l, c->d, c->silu);
    from_act(s, y, out, c->l * c->d);
    free(out);
}

static void norm_case(const struct world *w, int64_t l, int64_t d, float size, float offset)
{
    float *x = numbers(l * d, size, 1), *a = numbers(d, 1, 2), *b = numbers(d, 1, 3);
    for (int64_t i = 0; i < l * d; i++)
        x[i] = i / d == l - 1 ? 0 : x[i] + offset; /* the last row of zeros */
    struct row_case c = {.l = l, .d = d, .x = x, .a = a, .b = b};
    /* a row far from zero loses bits of its differences: 2⁻²³ of the offset */
    double absolute = 1e-5 + 0x1p-20 * fabs((double)offset / size);
    compare(w, "norm_modulate", run_norm_modulate, &c, l * d, act_rounding(w), absolute);
    compare(w, "norm_affine", run_norm_affine, &c, l * d, act_rounding(w), absolute);
    compare(w, "rms_norm", run_rms_norm, &c, l * d, act_rounding(w) + 0x1p-20, 1e-30);
    for (int silu = 0; silu < 2; silu++) {
        c.silu = silu;
        compare(w, "channel_norm", run_channel_norm, &c, l * d, act_rounding(w) + 0x1p-18, 1e-30);
    }
    free(x);
    free(a);
    free(b);
}

static void norms(const struct world *w)
{
    for (size_t i = 0; i < RL_ARRAY_LEN(widths); i++) {
        norm_case(w, 3, widths[i], 1, 0);
        norm_case(w, 2, widths[i], 3, 50);
    }
    norm_case(w, 70, 256, 1, 0); /* shared out */
    norm_case(w, 5000, 16, 1, 0);
    norm_case(w, 4, 64, 1e15F, 0); /* squares near the largest float */
    norm_case(w, 4, 64, 1e-15F, 0);
}

static void test_norms(void **state)
{
    (void)state;
    on_every_level(norms);
}

static void run_rms_rope(const struct side *s, const void *args, float *y)
{
    const struct row_case *c = args;
    void *x = as_act(s, c->x, c->l * c->d);
    s->ops->rms_rope(s->ctx, x, c->a, c->b, c->b ? c->b + c->l * c->hd / 2 : NULL, c->l, c->heads,
                     c->hd);
    from_act(s, y, x, c->l * c->d);
    free(x);
}

static void rms_rope(const struct world *w)
{
    static const int shapes[][3] = {{1, 1, 2},  {80, 2, 128}, {7, 3, 64}, {5, 2, 6},
                                    {3, 1, 34}, {2, 12, 128}, {9, 5, 10}, {300, 2, 128}};
    for (size_t i = 0; i < RL_ARRAY_LEN(shapes); i++)
        for (int rope = 0; rope < 2; rope++) {
            struct row_case c = {.l = shapes[i][0], .heads = shapes[i][1], .hd = shapes[i][2]};
            c.d = (int64_t)c.heads * c.hd;
            float *x = numbers(c.l * c.d, 4, 1), *weight = numbers(c.d, 1, 2),
                  *angles = numbers(c.l * c.hd, 1, 3);
            for (int64_t j = 0; j < c.l * c.hd / 2; j++) {
                float angle = angles[j] * 3;
                angles[j] = cosf(angle);
                angles[c.l * c.hd / 2 + j] = sinf(angle);
            }
            c.x = x;
            c.a = weight;
            c.b = rope ? angles : NULL;
            /* absolute: a difference of two products of numbers up to 2 */
            compare(w, "rms_rope", run_rms_rope, &c, c.l * c.d, act_rounding(w) + 0x1p-20, 2e-6);
            free(x);
            free(weight);
            free(angles);
        }
}

static void test_rms_rope(void **state)
{
    (void)state;
    on_every_level(rms_rope);
}

static void run_convert(const struct side *s, const void *args, float *y)
{
    const struct row_case *c = args;
    void *x = as_act(s, c->x, c->l);
    from_act(s, y, x, c->l);
    free(x);
}

static void run_combine(const struct side *s, const void *args, float *y)
{
    const struct row_case *c = args;
    const float *x[6];
    for (int i = 0; i < 6; i++)
        x[i] = c->x + i * c->l;
    memcpy(y, x[1], (size_t)c->l * sizeof *y); /* in place */
    x[1] = y;
    s->ops->combine(s->ctx, y, x, c->a, (int)c->d, c->l);
}

static void elementwise(const struct world *w)
{
    static const int64_t sizes[] = {1, 15, 16, 17, 4095, 4096, 4097, 40001};
    for (size_t i = 0; i < RL_ARRAY_LEN(sizes); i++) {
        float *x = numbers(6 * sizes[i], 1, 1), a[6] = {0.5F, -1.25F, 3, -0.1F, 2, 7};
        struct row_case c = {.l = sizes[i], .x = x, .a = a};
        compare(w, "to_act and to_f32", run_convert, &c, c.l, 0, 0); /* exact in bf16 */
        for (int64_t j = 0; j < 6 * sizes[i]; j++)
            x[j] *= 1.2345678F;
        compare(w, "to_act and to_f32", run_convert, &c, c.l, act_rounding(w), 0);
        for (c.d = 2; c.d <= 6; c.d++)
            compare(w, "combine", run_combine, &c, c.l, 0x1p-22, 2e-6);
        free(x);
    }
}

static void test_elementwise(void **state)
{
    (void)state;
    on_every_level(elementwise);
}

/* ---- latents and pictures ---- */

static void run_patchify(const struct side *s, const void *args, float *y)
{
    const struct row_case *c = args;
    void *out = exact((size_t)(5 * 3 * 4 * 6) * s->ops->act_bytes);
    s->ops->patchify(s->ctx, out, c->x, 5, 3, 4, 6);
    from_act(s, y, out, 5 * 3 * 4 * 6);
    free(out);
}

static void latents(const struct world *w)
{
    enum { C = 5, F = 3, H = 4, W = 6, N = C * F * H * W };
    float *x = numbers(N, 1, 1), y[N], back[N], tokens[N];
    const struct side *s = &w->fast[0];
    struct row_case c = {.x = x};
    compare(w, "patchify", run_patchify, &c, N, 0, 0);
    run_patchify(s, &c, y);
    /* token (1, 1, 2), its channel 3, row 1, column 0; then the same in the order of the way back
     */
    int token = (1 * (H / 2) + 1) * (W / 2) + 2;
    assert_true(y[token * 4 * C + 3 * 4 + 1 * 2 + 0] == x[((3 * F + 1) * H + 3) * W + 4]);
    for (int t = 0; t < N / (4 * C); t++)
        for (int channel = 0; channel < C; channel++)
            for (int rq = 0; rq < 4; rq++)
                tokens[t * 4 * C + rq * C + channel] = y[t * 4 * C + channel * 4 + rq];
    s->ops->unpatchify(s->ctx, back, tokens, C, F, H, W);
    assert_memory_equal(back, x, sizeof back);
    free(x);
}

static void test_latents(void **state)
{
    (void)state;
    on_every_level(latents);
}

static void to_rgb(const struct world *w)
{
    enum { H = 40, W = 50 };
    static const float x[] = {-1,     1,        0,         -2,  2,    1e30F,
                              -1e30F, INFINITY, -INFINITY, NAN, 0.5F, -0.5F};
    static const uint8_t want[] = {0, 255, 128, 0, 255, 255, 0, 255, 0, 0, 191, 64};
    uint8_t rgb[H * W * 3];
    struct rl_err err;
    float *many = numbers(H * W * 3, 1.1F, 1);
    memcpy(many, x, sizeof x);
    for (size_t i = 0; i <= SIDES; i++) {
        const struct side *s = i < SIDES ? &w->fast[i] : &w->reference;
        void *picture = as_act(s, many, H * W * 3);
        assert_int_equal(s->ops->to_rgb(s->ctx, rgb, picture, H, W, &err), RL_OK);
        assert_memory_equal(rgb, want, sizeof want);
        for (int j = sizeof want; j < H * W * 3; j++) {
            float value = fminf(fmaxf(many[j], -1), 1);
            assert_true(fabsf((float)rgb[j] - (value + 1) * 127.5F) <= 0.5001F);
        }
        free(picture);
    }
    free(many);
}

static void test_to_rgb(void **state)
{
    (void)state;
    on_every_level(to_rgb);
}

/* ---- weights ---- */

/* All 256 numbers of F8, and numbers of every kind of F16 and BF16, at an odd address. */
static void test_source_read(void **state)
{
    static const struct {
        enum ops_type type;
        uint16_t bits;
        float value;
    } known[] = {{OPS_F16, 0x3c00, 1},
                 {OPS_F16, 0xc000, -2},
                 {OPS_F16, 0x7bff, 65504},
                 {OPS_F16, 0x0001, 0x1p-24F},
                 {OPS_F16, 0x83ff, -0x1.ff8p-15F},
                 {OPS_F16, 0x0400, 0x1p-14F},
                 {OPS_F16, 0x7c00, INFINITY},
                 {OPS_F16, 0xfc00, -INFINITY},
                 {OPS_F16, 0x8000, -0.0F},
                 {OPS_BF16, 0x3f80, 1},
                 {OPS_BF16, 0xff80, -INFINITY},
                 {OPS_BF16, 0x4049, 3.140625F},
                 {OPS_F8_E4M3, 0x38, 1},
                 {OPS_F8_E4M3, 0x7e, 448},
                 {OPS_F8_E4M3, 0x01, 0x1p-9F},
                 {OPS_F8_E4M3, 0x87, -7 * 0x1p-9F},
                 {OPS_F8_E4M3, 0x08, 0x1p-6F},
                 {OPS_F8_E4M3, 0xc0, -2}};
    unsigned char bytes[9];
    float y[2];
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(known); i++) {
        struct ops_source source = {
            .data = bytes + 1, .type = known[i].type, .rows = 1, .cols = 2, .scale = 0.5F};
        bool f8 = known[i].type == OPS_F8_E4M3;
        uint8_t byte = (uint8_t)known[i].bits;
        memcpy(bytes + 1 + (f8 ? 1 : 2), f8 ? (const void *)&byte : &known[i].bits, f8 ? 1 : 2);
        cpu_source_read(&source, 1, 1, y);
        float want = known[i].value * (f8 ? 0.5F : 1);
        assert_memory_equal(y, &want, sizeof want);
    }
    float x = -1.5F;
    memcpy(bytes + 5, &x, sizeof x);
    const struct ops_source source = {.data = bytes + 1, .type = OPS_F32, .rows = 2, .cols = 1};
    cpu_source_read(&source, 1, 1, y);
    assert_true(y[0] == x);
    static const uint16_t no_numbers[] = {0x7e00, 0x7fc0, 0x7f};
    for (int type = OPS_F16; type <= OPS_F8_E4M3; type++) {
        memcpy(bytes + 1, &no_numbers[type - OPS_F16], 2);
        const struct ops_source none = {
            .data = bytes + 1, .type = (enum ops_type)type, .rows = 1, .cols = 1, .scale = 1};
        cpu_source_read(&none, 0, 1, y);
        assert_true(isnan(y[0]));
    }
}

/* ---- memory and threads ---- */

static int fail_at, calls; /* 0: none fails */

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *),
                          void *arg);

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fail_at && ++calls == fail_at ? NULL : __real_aligned_alloc(alignment, size);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *),
                          void *arg)
{
    return fail_at && ++calls == fail_at ? EAGAIN : __real_pthread_create(thread, attr, main, arg);
}

/* Opens, loads a weight that makes scratch grow, allocates: fails at each allocation in turn, and
 * gives all back. */
static enum rl_rc whole_way(const struct ops *ops, struct rl_err *err)
{
    static const float numbers_of_it[2 * 20000];
    const struct ops_source source = {
        .data = numbers_of_it, .type = OPS_F32, .rows = 1, .cols = 40000, .scale = 1};
    struct ops_ctx *ctx = NULL;
    struct ops_weight *weight = NULL;
    void *mem = NULL;
    size_t before, now, peak;
    enum rl_rc rc = ops->open(0, 3, &ctx, err);
    if (rc != RL_OK) {
        assert_null(ctx);
        return rc;
    }
    ops->memory(ctx, true, &before, &peak);
    rc = ops->weight_new(ctx, &source, &weight, err);
    if (rc == RL_OK)
        rc = ops->alloc(ctx, 1000, &mem, err);
    ops->memory(ctx, true, &now, &peak);
    assert_true(peak >= now);
    if (rc == RL_OK)
        assert_true(now >= before + 40000 * ops->act_bytes + 1000);
    ops->free(ctx, mem);
    ops->weight_free(ctx, weight);
    ops->memory(ctx, false, &before, &peak);
    assert_true(peak == now);
    if (ctx->scratch) /* grown or not, there is one of it */
        assert_true(before == 3 * ctx->scratch_bytes + CPU_ALIGN);
    assert_true(ops->sync(ctx, err) == RL_OK);
    ops->close(ctx);
    return rc;
}

static void test_memory_faults(void **state)
{
    (void)state;
    for (size_t level = 0; level <= cpu_levels(); level++) {
        const struct ops *ops = level ? cpu_table(level - 1, NULL) : ops_reference();
        struct rl_err err;
        enum rl_rc rc = RL_INTERNAL;
        for (fail_at = 1; ops && rc != RL_OK; fail_at++) {
            calls = 0;
            rc = whole_way(ops, &err);
            assert_true(rc == RL_OK || rc == RL_NO_MEMORY || rc == RL_UNAVAILABLE);
            assert_true(fail_at < 20);
        }
        fail_at = 0;
    }
}

static void test_memory_host_is_device(void **state)
{
    const struct ops *ops = ops_cpu();
    struct ops_ctx *ctx;
    struct rl_err err;
    void *a, *b;
    char text[8] = "abcdefg", back[8];
    (void)state;
    assert_int_equal(ops->open(0, 1, &ctx, &err), RL_OK);
    assert_int_equal(ops->alloc(ctx, SIZE_MAX, &a, &err), RL_NO_MEMORY);
    assert_int_equal(ops->alloc(ctx, 8, &a, &err), RL_OK);
    assert_int_equal(ops->alloc(ctx, 8, &b, &err), RL_OK);
    assert_true((uintptr_t)a % CPU_ALIGN == 0);
    assert_int_equal(ops->upload(ctx, a, text, 8, &err), RL_OK);
    ops->copy(ctx, b, a, 8);
    ops->zero(ctx, a, 4);
    assert_int_equal(ops->download(ctx, back, b, 8, &err), RL_OK);
    assert_string_equal(back, text);
    assert_int_equal(ops->download(ctx, back, a, 8, &err), RL_OK);
    assert_memory_equal(back, "\0\0\0\0efg", 8);
    ops->free(ctx, a);
    ops->free(ctx, b);
    ops->free(ctx, NULL);
    ops->weight_free(ctx, NULL);
    ops->close(ctx);
    ops->close(NULL);
}

struct counted {
    _Atomic int done[1000];
    _Atomic int inside[8]; /* of each worker */
};

static void count_task(void *arg, int64_t i, int worker)
{
    struct counted *c = arg;
    /* cmocka's checks are for the main thread: what is wrong shows in the counts */
    int others = atomic_fetch_add(&c->inside[worker], 1);
    atomic_fetch_add(&c->done[i], others == 0 ? 1 : 100);
    atomic_fetch_sub(&c->inside[worker], 1);
}

static void test_threads_each_task_once(void **state)
{
    static const int64_t tasks[] = {0, 1, 2, 3, 10, 1000};
    (void)state;
    for (int count = 1; count <= 8; count += 1 + count / 2) {
        struct threads *threads = NULL;
        struct rl_err err;
        assert_int_equal(threads_new(count, &threads, &err), RL_OK);
        assert_int_equal(threads_count(threads), count);
        for (size_t round = 0; round < 200; round++) {
            struct counted c = {0};
            int64_t n = tasks[round % RL_ARRAY_LEN(tasks)];
            threads_run(threads, n, count_task, &c);
            for (int64_t i = 0; i < 1000; i++)
                assert_int_equal(c.done[i], i < n);
        }
        threads_free(threads);
    }
    threads_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_rms_rope),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_latents),
        cmocka_unit_test(test_to_rgb),
        cmocka_unit_test(test_source_read),
        cmocka_unit_test(test_memory_faults),
        cmocka_unit_test(test_memory_host_is_device),
        cmocka_unit_test(test_threads_each_task_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
