/* The catalogue against what is known of the networks, from files of full size whose numbers are
 * holes; and what a check of a model's numbers tells. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "wan_folder.h"

#include "config/config.h"
#include "engine/engine.h"
#include "engine/wan/estimate.h"
#include "engine/wan/inspect.h"
#include "engine/wan/published.h"
#include "engine/wan/text.h"

#include <math.h>

static void test_published_models_are_sane(void **state)
{
    static const char *const dirs[WAN_PARTS] = {"diffusion_models/", "text_encoders/", "vae/"};

    (void)state;
    assert_true(published_count >= 3);
    for (size_t i = 0; i < published_count; i++) {
        const struct published_model *m = &published_models[i];
        assert_ptr_equal(published_find(m->name), m);
        assert_true(strlen(m->title) > 0 && strcmp(m->licence, "Apache-2.0") == 0);
        for (int k = 0; k < WAN_PARTS; k++) {
            const struct published_file *f = &m->files[k];
            assert_int_equal(f->part, k);
            assert_int_equal(strncmp(f->path, dirs[k], strlen(dirs[k])), 0);
            assert_non_null(strstr(f->source, f->path));
            if (f->sha256)
                assert_true(strlen(f->sha256) == 64 && strspn(f->sha256, "0123456789abcdef") == 64);
        }
    }
    assert_null(published_find("wan"));
    assert_int_equal(published_bytes(published_find("wan2.1-t2v-1.3b")), INT64_C(14458319231));
}

/* Sizes of files are the parameters in their dtype, a header, and a tokenizer or the encoder half
 * of the VAE. */
static void test_published_sizes_are_the_networks(void **state)
{
    const struct published_model *m = published_find("wan2.1-t2v-1.3b");
    const struct published_model *f8 = published_find("wan2.1-t2v-1.3b-fp8");

    (void)state;
    fill(&wan_1_3b, "BF16");
    write_comfy();
    struct wan_model *model = opened();
    int64_t dit_rest = m->files[WAN_DIT].bytes - 2 * wan_model_parameters(model, WAN_DIT);
    int64_t text_rest = m->files[WAN_TEXT].bytes - 2 * wan_model_parameters(model, WAN_TEXT);
    int64_t table = INT64_C(256384) * 4096;
    int64_t f8_rest = f8->files[WAN_TEXT].bytes - wan_model_parameters(model, WAN_TEXT) - table;
    assert_true(dit_rest > 50000 && dit_rest < 200000);      /* the header */
    assert_true(text_rest > 4500000 && text_rest < 4700000); /* and the tokenizer */
    assert_true(f8_rest > 4500000 && f8_rest < 5000000); /* matrices in one byte, table in two */
    assert_int_equal(m->files[WAN_VAE].bytes / 2 / 1000000, 126); /* 126.9 million, both halves */
    wan_model_close(model);
}

/* What the catalogue says of memory is what the engine reckons, to a twentieth. */
static void test_published_memory_is_the_estimate(void **state)
{
    (void)state;
    fill(&wan_1_3b, "BF16");
    write_comfy();
    struct wan_model *model = opened();
    double estimate = (double)estimate_default(wan_model_config(model), 2);
    for (size_t i = 0; i < published_count; i++) {
        double told = (double)published_models[i].memory_bytes;
        if (fabs(told / estimate - 1) > 0.05)
            fail_msg("%s: %.0f bytes, the estimate is %.0f", published_models[i].name, told,
                     estimate);
    }
    wan_model_close(model);
}

/* What the engine says of the model `odd`, which is in the folder; NULL: it is left out. The engine
 * opens in either case. */
static const struct engine_model *published_odd(struct engines **ret_engines)
{
    struct rl_err err = {0};
    struct config *cfg = config_new();
    char *slash = strrchr(folder, '/');
    assert_non_null(cfg);
    *slash = '\0';
    assert_int_equal(config_set(cfg, "model.dir", folder, &err), RL_OK);
    *slash = '/';
    assert_int_equal(config_set(cfg, "engine.plugin_dir", "", &err), RL_OK);
    if (engines_open(cfg, ret_engines, &err) != RL_OK)
        fail_msg("%s", err.reason);
    config_free(cfg);
    const struct engine *wan = engines_find(*ret_engines, "wan");
    return wan ? engine_find_model(wan, "odd") : NULL;
}

/* A model for larger pictures is published with them; one whose metadata asks for what cannot be is
 * left out. Neither keeps the others away. */
static void test_published_odd_models_do_no_harm(void **state)
{
    (void)state;
    struct engines *engines = NULL;
    struct wan_sizes large = wan_1_3b;
    large.dim = 5120;
    large.ffn = 13824;
    large.layers = 40;
    (void)strcat(folder, "/odd"); /* fits */
    assert_int_equal(mkdir(folder, 0700), 0);
    make_dir("diffusion_models");
    make_dir("text_encoders");
    make_dir("vae");
    fill(&large, "BF16");
    write_comfy();
    const struct engine_model *odd = published_odd(&engines);
    assert_non_null(odd);
    assert_true(odd->width == 1280 && odd->height == 720 && odd->max_pixels >= 1280 * 720);
    engines_close(engines);
    static const char *const bad[] = {"{\"width\":\"512\",\"height\":\"16\"}",
                                      "{\"solver\":\"heun\"}", "{\"cfg\":\"0\"}",
                                      "{\"fps\":\"61\"}", "{\"width\":\"8192\"}"};
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++) {
        dit.metadata = bad[i];
        write_comfy();
        assert_null(published_odd(&engines));
        assert_non_null(engines_find(engines, "testpattern"));
        engines_close(engines);
    }
    *strrchr(folder, '/') = '\0';
}

/* KiB of mapped files that are in this process now. */
static long mapped_kib(void)
{
    char line[128];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "RssFile: %ld", &kib) != 1)
            kib = -1;
    (void)fclose(f);
    assert_true(kib > 0);
    return kib;
}

static bool keep_most(void *user, int done, int total)
{
    long *most = user, now = mapped_kib();
    assert_int_equal(total, 24);
    if (done > 0 && now > *most)
        *most = now;
    return true;
}

/* Of an encoder that is not resident, the file is not either: the layer at hand and the one ahead
 * are there at most. (Of a quarter of the published widths: 600 MB instead of 11 GB.) */
static void test_published_encoder_leaves_its_file(void **state)
{
    (void)state;
    static const int32_t ids[] = {5, 600, 70000, 1};
    long most = 0;
    const struct watch watch = {.user = &most, .beat = keep_most};
    struct ops_ctx *ctx = NULL;
    struct text *t = NULL;
    struct rl_err err = {0};
    void *rows = NULL;
    const struct ops *ops = ops_cpu();
    struct wan_sizes quarter = wan_1_3b;
    quarter.text_dim = quarter.inner = 1024;
    quarter.text_ffn = 2560;
    quarter.heads = 16;
    const long layer_kib = (4L * 1024 * 1024 + 3L * 1024 * 2560) * 2 / 1024;
    fill(&quarter, "BF16");
    write_comfy();
    struct wan_model *model = opened();
    assert_int_equal(ops->open(0, 1, &ctx, &err), RL_OK);
    assert_int_equal(text_new(ops, ctx, model, false, NULL, &t, &err), RL_OK);
    assert_int_equal(ops->alloc(ctx, 4 * 1024 * ops->act_bytes, &rows, &err), RL_OK);
    long before = mapped_kib();
    most = before; /* the kernel may take some away meanwhile */
    assert_int_equal(text_encode(t, ids, 4, &watch, rows, &err), RL_OK);
    print_message("%.1f layers\n", (double)(most - before) / (double)layer_kib);
    assert_in_range(most - before, 0, 5 * layer_kib / 2);
    ops->free(ctx, rows);
    text_free(t);
    ops->close(ctx);
    wan_model_close(model);
}

/* ---- numbers ---- */

struct seen {
    struct inspected weight; /* of patch_embedding.bias */
    size_t tensors, all_zero, read;
    size_t stop_at;
};

static bool on_tensor(void *user, const struct inspected *f)
{
    struct seen *s = user;

    s->tensors++;
    s->all_zero += f->zeros == f->count;
    if (strcmp(f->tensor->name, "patch_embedding.bias") == 0)
        s->weight = *f;
    return s->tensors != s->stop_at;
}

static bool on_read(void *user, size_t bytes)
{
    struct seen *s = user;

    s->read += bytes;
    return true;
}

static void test_model_inspect(void **state)
{
    static float values[256];
    struct seen s = {0};
    const struct inspector inspector = {.user = &s, .each = on_tensor, .read = on_read};
    struct rl_err err = {0};
    int64_t bytes = 0;

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(values); i++)
        values[i] = i % 2 ? 1 : 2;
    values[7] = -3;
    values[9] = 0;
    values[20] = NAN;
    values[21] = INFINITY;
    values[22] = -INFINITY;
    named(&dit, "patch_embedding.bias")->data = values;
    write_comfy();
    struct wan_model *model = opened();
    assert_int_equal(wan_model_inspect(model, WAN_DIT, &inspector, &err), RL_OK);
    assert_int_equal(s.tensors, dit.count);
    assert_int_equal(s.all_zero, dit.count - 1); /* the other ones are holes */
    assert_int_equal(s.weight.count, 256);
    assert_int_equal(s.weight.nans, 1);
    assert_int_equal(s.weight.infinities, 2);
    assert_int_equal(s.weight.zeros, 1);
    assert_true(s.weight.min == -3 && s.weight.max == 2);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < RL_ARRAY_LEN(values); i++)
        if (isfinite(values[i])) {
            sum += (double)values[i];
            squares += (double)values[i] * (double)values[i];
        }
    assert_true(fabs(s.weight.mean - sum / 253) < 1e-12);
    assert_true(fabs(s.weight.rms - sqrt(squares / 253)) < 1e-12);
    assert_int_equal(wan_model_dtype(model, WAN_DIT, "F32", &bytes), dit.count);
    assert_int_equal(bytes, s.read);
    assert_int_equal(wan_model_dtype(model, WAN_DIT, "BF16", &bytes), 0);
    assert_int_equal(bytes, 0);
    s = (struct seen){.stop_at = 3};
    assert_int_equal(wan_model_inspect(model, WAN_DIT, &inspector, &err), RL_CANCELED);
    assert_int_equal(s.tensors, 3);
    wan_model_close(model);
}

static void test_file_part(void **state)
{
    static const char *const places[] = {"diffusion_models/dit.safetensors",
                                         "text_encoders/text.safetensors", "vae/vae.safetensors"};
    char path[160];
    struct rl_err err = {0};
    enum wan_part part = WAN_PARTS;

    (void)state;
    write_comfy();
    for (int i = 0; i < WAN_PARTS; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, places[i]);
        assert_int_equal(wan_file_part(path, &part, &err), RL_OK);
        assert_int_equal(part, i);
    }
    dit.count = 0;
    wan_file_named(&dit, "F32", WAN_DIMS(4), "something.weight");
    write_to(&dit, "vae/vae.safetensors");
    assert_int_equal(wan_file_part(path, &part, &err), RL_INVALID_FIELD);
    assert_non_null(strstr(err.reason, "vae.safetensors holds no part"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_models_are_sane),
        TEST(test_published_sizes_are_the_networks),
        TEST(test_published_memory_is_the_estimate),
        TEST(test_published_encoder_leaves_its_file),
        TEST(test_published_odd_models_do_no_harm),
        TEST(test_model_inspect),
        TEST(test_file_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
