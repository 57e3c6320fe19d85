/* Every operator against PyTorch's answer (tests/unit/wan/operators.py): the plain forms, and each
 * set of inner loops with one, two and five threads.
 *
 * Tolerances: what goes in is exact in bf16 and sums are short, so that f32 is off by some 2⁻²² of
 * the largest term; what is stored as bf16 is off by 2⁻⁸ of itself more. Attention in bf16 has
 * probabilities of bf16, too: off by 2⁻⁹ · Σ p|v|, and |v| is below 4. */
#include "wan_ops.h"

#include "engine/wan/safetensors.h"

#define F32_RELATIVE 0x1p-19
#define F32_ABSOLUTE 4e-6

static struct safetensors *file;

struct ran {
    const struct side *side;
    bool bf16;
    const char *name; /* of the loops */
};

static const struct tensor *tensor(const char *name)
{
    const struct tensor *t = safetensors_find(file, name);
    if (!t)
        fail_msg("no tensor %s", name);
    return t;
}

static int64_t count(const char *name)
{
    const struct tensor *t = tensor(name);
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->dims[i];
    return n;
}

/* A copy in aligned memory; free it. */
static float *f32(const char *name)
{
    const struct tensor *t = tensor(name);
    float *copy = exact(t->bytes);
    memcpy(copy, t->data, t->bytes);
    return copy;
}

static void *act(const struct ran *r, const char *name)
{
    float *x = f32(name);
    void *y = as_act(r->side, x, count(name));
    free(x);
    return y;
}

static struct ops_weight *weight(const struct ran *r, const char *name, int64_t rows)
{
    const struct tensor *t = tensor(name);
    struct ops_weight *w = NULL;
    struct rl_err err;
    const struct ops_source source = {
        .data = t->data, .type = t->type, .rows = rows, .cols = count(name) / rows, .scale = 1};
    assert_int_equal(r->side->ops->weight_new(r->side->ctx, &source, &w, &err), RL_OK);
    return w;
}

static void expect_near(const struct ran *r, const char *name, const float *got, bool is_act,
                        double absolute)
{
    float *want = f32(name);
    int64_t n = count(name);
    double relative = F32_RELATIVE + (is_act && r->bf16 ? 0x1p-8 : 0);
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - want[i]);
        if (!(off <= relative * fabs((double)want[i]) + absolute))
            fail_msg("%s, %s: number %lld of %lld is %.9g, not %.9g", r->name, name, (long long)i,
                     (long long)n, (double)got[i], (double)want[i]);
    }
    free(want);
}

static void expect(const struct ran *r, const char *name, const float *got, bool is_act)
{
    expect_near(r, name, got, is_act, F32_ABSOLUTE);
}

static void expect_attention(const struct ran *r, const char *name, const void *got)
{
    float *x = exact((size_t)count(name) * sizeof *x);
    from_act(r->side, x, got, count(name));
    expect_near(r, name, x, true, r->bf16 ? 0x1p-7 : F32_ABSOLUTE);
    free(x);
}

static void expect_act(const struct ran *r, const char *name, const void *got)
{
    float *x = exact((size_t)count(name) * sizeof *x);
    from_act(r->side, x, got, count(name));
    expect(r, name, x, true);
    free(x);
}

static void over_everything(void (*test)(const struct ran *r))
{
    const struct ops *plain = ops_reference();
    struct side side = {.ops = plain};
    struct rl_err err;
    assert_int_equal(plain->open(0, 1, &side.ctx, &err), RL_OK);
    test(&(struct ran){.side = &side, .name = "plain forms"});
    plain->close(side.ctx);
    for (size_t level = 0; level < cpu_levels(); level++) {
        struct world w;
        if (!world_open(&w, level))
            continue;
        for (size_t i = 0; i < SIDES; i++)
            test(&(struct ran){.side = &w.fast[i], .bf16 = w.bf16, .name = w.name});
        world_close(&w);
    }
}

/* ---- products ---- */

static void gemm_once(const struct ran *r, const char *matrix, bool biased,
                      enum ops_epilogue epilogue, const char *want)
{
    const struct ops *o = r->side->ops;
    int64_t m = tensor("gemm.x")->dims[0], n = tensor("gemm.w")->dims[0];
    bool is_act =
        epilogue == OPS_STORE_ACT || epilogue == OPS_GELU_ACT || epilogue == OPS_GELU_GATE_ACT;
    float *bias = f32("gemm.bias"), *gate = f32("gemm.gate"), *y = f32("gemm.y");
    void *x = act(r, "gemm.x"), *y_act = act(r, "gemm.y");
    struct ops_weight *w = weight(r, matrix, n);
    o->gemm(r->side->ctx, is_act ? y_act : y, x, w, biased ? bias : NULL,
            epilogue == OPS_ADD_GATED_F32 ? gate : NULL, m, epilogue);
    if (is_act)
        expect_act(r, want, y_act);
    else
        expect(r, want, y, false);
    o->weight_free(r->side->ctx, w);
    free(bias);
    free(gate);
    free(y);
    free(x);
    free(y_act);
}

static void gemm(const struct ran *r)
{
    static const struct {
        enum ops_epilogue epilogue;
        const char *want;
    } cases[] = {{OPS_STORE_ACT, "gemm.store"},
                 {OPS_STORE_F32, "gemm.store"},
                 {OPS_GELU_ACT, "gemm.gelu"},
                 {OPS_SILU_F32, "gemm.silu"},
                 {OPS_ADD_F32, "gemm.add"},
                 {OPS_GELU_GATE_ACT, "gemm.gelu_gate"},
                 {OPS_ADD_GATED_F32, "gemm.add_gated"}};
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++)
        gemm_once(r, "gemm.w", true, cases[i].epilogue, cases[i].want);
    gemm_once(r, "gemm.w", false, OPS_STORE_F32, "gemm.without_bias");
    gemm_once(r, "gemm.w_f16", true, OPS_STORE_F32, "gemm.store");
    gemm_once(r, "gemm.w_bf16", true, OPS_STORE_F32, "gemm.store");
}

static void gemm_f32(const struct ran *r)
{
    const int64_t *x_dims = tensor("gemm.x")->dims, n = tensor("gemm.w")->dims[0];
    float *x = f32("gemm.x"), *w = f32("gemm.w"), *bias = f32("gemm.bias"), *y = f32("gemm.y");
    r->side->ops->gemm_f32(r->side->ctx, y, x, w, bias, x_dims[0], n, x_dims[1], true);
    expect(r, "gemm_f32.silu", y, false);
    r->side->ops->gemm_f32(r->side->ctx, y, x, w, bias, x_dims[0], n, x_dims[1], false);
    expect(r, "gemm_f32.store", y, false);
    free(x);
    free(w);
    free(bias);
    free(y);
}

static void attention(const struct ran *r)
{
    const struct ops *o = r->side->ops;
    const int64_t *dims = tensor("attention.bias")->dims; /* heads, lq, lk */
    int heads = (int)dims[0], hd = (int)(tensor("attention.q")->dims[1] / heads);
    void *q = act(r, "attention.q"), *k = act(r, "attention.k"), *v = act(r, "attention.v"),
         *out = act(r, "attention.q");
    float *bias = f32("attention.bias"), *last = f32("attention.last_logit");
    o->attention(r->side->ctx, out, q, k, v, dims[1], dims[2], heads, hd, 0.4F, NULL, 0);
    expect_attention(r, "attention.plain", out);
    o->attention(r->side->ctx, out, q, k, v, dims[1], dims[2], heads, hd, 0.4F, bias, 0);
    expect_attention(r, "attention.biased", out);
    o->attention(r->side->ctx, out, q, k, v, dims[1], dims[2], heads, hd, 0.4F, NULL, *last);
    expect_attention(r, "attention.repeated", out);
    free(q);
    free(k);
    free(v);
    free(out);
    free(bias);
    free(last);
}

static void conv_once(const struct ran *r, const char *name)
{
    char key[6][40];
    static const char *const parts[] = {"x", "w", "bias", "store", "before", "added"};
    for (int i = 0; i < 6; i++)
        (void)snprintf(key[i], sizeof key[i], "conv_%s.%s", name, parts[i]); /* fits */
    char shape_key[40];
    (void)snprintf(shape_key, sizeof shape_key, "conv_%s.shape", name); /* fits */
    int32_t s[9];
    memcpy(s, tensor(shape_key)->data, sizeof s);
    float *x = f32(key[0]), *bias = f32(key[2]), *y = f32(key[4]);
    void *y_act = act(r, key[4]), *in[3] = {NULL};
    struct ops_weight *w = weight(r, key[1], s[3]);
    struct ops_conv shape = {.in = (const void *const *)in,
                             .h = s[0],
                             .w = s[1],
                             .ci = s[2],
                             .co = s[3],
                             .kt = s[4],
                             .kh = s[5],
                             .kw = s[6],
                             .upsample = s[7]};
    int64_t frame = (int64_t)s[0] * s[1] * s[2];
    for (int t = s[8]; t < s[4]; t++) /* the missing ones are NULL */
        in[t] = as_act(r->side, x + t * frame, frame);
    r->side->ops->conv(r->side->ctx, y_act, &shape, w, bias, OPS_STORE_ACT);
    expect_act(r, key[3], y_act);
    r->side->ops->conv(r->side->ctx, y, &shape, w, bias, OPS_ADD_F32);
    expect(r, key[5], y, false);
    r->side->ops->conv(r->side->ctx, y, &shape, w, bias, OPS_STORE_F32);
    expect(r, key[3], y, false);
    for (int t = 0; t < 3; t++)
        free(in[t]);
    r->side->ops->weight_free(r->side->ctx, w);
    free(x);
    free(bias);
    free(y);
    free(y_act);
}

static void conv(const struct ran *r)
{
    static const char *const names[] = {"all", "first", "up", "time", "point"};
    for (size_t i = 0; i < RL_ARRAY_LEN(names); i++)
        conv_once(r, names[i]);
}

/* ---- rows ---- */

static void norms(const struct ran *r)
{
    const struct ops *o = r->side->ops;
    const int64_t l = tensor("norm.x")->dims[0], d = tensor("norm.x")->dims[1];
    float *x = f32("norm.x"), *a = f32("norm.a"), *b = f32("norm.b");
    void *y = exact((size_t)(l * d) * o->act_bytes);
    o->norm_modulate(r->side->ctx, y, x, a, b, l, d);
    expect_act(r, "norm.modulated", y);
    o->norm_affine(r->side->ctx, y, x, a, b, l, d);
    expect_act(r, "norm.affine", y);
    o->rms_norm(r->side->ctx, y, x, a, l, d);
    expect_act(r, "norm.rms", y);
    o->channel_norm(r->side->ctx, y, x, a, l, d, false);
    expect_act(r, "norm.channels", y);
    o->channel_norm(r->side->ctx, y, x, a, l, d, true);
    expect_act(r, "norm.channels_silu", y);
    free(x);
    free(a);
    free(b);
    free(y);
}

static void rms_rope(const struct ran *r)
{
    const struct ops *o = r->side->ops;
    int64_t l = tensor("rope.cos")->dims[0];
    int hd = 2 * (int)tensor("rope.cos")->dims[1], heads = (int)(count("rope.weight") / hd);
    float *weights = f32("rope.weight"), *cosine = f32("rope.cos"), *sine = f32("rope.sin");
    void *x = act(r, "rope.x");
    o->rms_rope(r->side->ctx, x, weights, NULL, NULL, l, heads, hd);
    expect_act(r, "rope.normed", x);
    free(x);
    x = act(r, "rope.x");
    o->rms_rope(r->side->ctx, x, weights, cosine, sine, l, heads, hd);
    expect_act(r, "rope.turned", x);
    free(x);
    free(weights);
    free(cosine);
    free(sine);
}

static void elementwise(const struct ran *r)
{
    const struct ops *o = r->side->ops;
    int64_t n = count("combine.y");
    float *x = f32("combine.x"), *a = f32("combine.a"), *y = f32("combine.y");
    const float *terms[] = {x, x + n, x + 2 * n, x + 3 * n};
    memset(y, 0, (size_t)n * sizeof *y);
    o->combine(r->side->ctx, y, terms, a, 4, n);
    expect(r, "combine.y", y, false);
    free(x);
    free(a);
    free(y);
    x = f32("act.x");
    y = f32(r->bf16 ? "act.bf16" : "act.x");
    void *as = as_act(r->side, x, count("act.x"));
    from_act(r->side, x, as, count("act.x"));
    for (int64_t i = 0; i < count("act.x"); i++)
        if (memcmp(x + i, y + i, sizeof *x) != 0)
            fail_msg("%s: number %lld as act is %.9g, not %.9g", r->name, (long long)i,
                     (double)x[i], (double)y[i]);
    free(as);
    free(x);
    free(y);
}

/* ---- latents and pictures ---- */

/* The tokens times a kernel are the convolution with it. */
static void latents(const struct ran *r)
{
    const struct ops *o = r->side->ops;
    const int64_t *dims = tensor("patchify.x")->dims, n = tensor("patchify.weight")->dims[0];
    int c = (int)dims[0], f = (int)dims[1], h = (int)dims[2], w = (int)dims[3];
    int64_t tokens = (int64_t)f * (h / 2) * (w / 2);
    float *x = f32("patchify.x"), *y = f32("patchify.tokens");
    void *rows = exact((size_t)(tokens * 4 * c) * o->act_bytes);
    struct ops_weight *kernel = weight(r, "patchify.weight", n);
    o->patchify(r->side->ctx, rows, x, c, f, h, w);
    o->gemm(r->side->ctx, y, rows, kernel, NULL, NULL, tokens, OPS_STORE_F32);
    expect(r, "patchify.tokens", y, false);
    o->weight_free(r->side->ctx, kernel);
    free(rows);
    free(x);
    free(y);
    x = f32("unpatchify.x");
    y = f32("unpatchify.y");
    memset(y, 0, (size_t)count("unpatchify.y") * sizeof *y);
    o->unpatchify(r->side->ctx, y, x, c, f, h, w);
    expect(r, "unpatchify.y", y, false);
    free(x);
    free(y);
}

static void to_rgb(const struct ran *r)
{
    uint8_t rgb[3 * 4 * 3];
    struct rl_err err;
    assert_int_equal(count("to_rgb.rgb"), sizeof rgb);
    void *x = act(r, "to_rgb.x");
    assert_int_equal(r->side->ops->to_rgb(r->side->ctx, rgb, x, 3, 4, &err), RL_OK);
    assert_memory_equal(rgb, tensor("to_rgb.rgb")->data, sizeof rgb);
    free(x);
}

#define OVER_EVERYTHING(operators)                                                                 \
    static void test_##operators(void **state)                                                     \
    {                                                                                              \
        (void)state;                                                                               \
        over_everything(operators);                                                                \
    }
OVER_EVERYTHING(gemm)
OVER_EVERYTHING(gemm_f32)
OVER_EVERYTHING(attention)
OVER_EVERYTHING(conv)
OVER_EVERYTHING(norms)
OVER_EVERYTHING(rms_rope)
OVER_EVERYTHING(elementwise)
OVER_EVERYTHING(latents)
OVER_EVERYTHING(to_rgb)

static int open_file(void **state)
{
    struct rl_err err = {0};
    (void)state;
    if (safetensors_open(WAN_TINY "/operators.safetensors", &file, &err) != RL_OK)
        print_error("%s\n", err.reason);
    return file ? 0 : -1;
}

static int close_file(void **state)
{
    (void)state;
    safetensors_close(file);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),        cmocka_unit_test(test_gemm_f32),
        cmocka_unit_test(test_attention),   cmocka_unit_test(test_conv),
        cmocka_unit_test(test_norms),       cmocka_unit_test(test_rms_rope),
        cmocka_unit_test(test_elementwise), cmocka_unit_test(test_latents),
        cmocka_unit_test(test_to_rgb),
    };
    return cmocka_run_group_tests(tests, open_file, close_file);
}
