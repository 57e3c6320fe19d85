/* A model of three files: the real thing's sizes from files full of holes, scaled F8,
 * metadata, and every way in which files do not belong together. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "wan_folder.h"

#include "base/fs.h"
#include "engine/wan/tokenizer.h"

#include <math.h>
#include <sys/resource.h>
#include <time.h>

/* ---- the real thing's sizes ---- */

/* The 1.3B in bf16, umT5-XXL in fp16 and the VAE: 14.5 GB, which take up the room of their
 * headers. */
static void test_model_open_full_size(void **state)
{
    struct rusage before;
    struct rusage after;
    struct timespec a;
    struct timespec b;
    uint8_t piece = 0;

    (void)state;
    fill(&wan_1_3b, "BF16");
    wan_file_add(&text, "U8", (int64_t[]){1}, 1, &piece, "spiece_model");
    wan_file_named(&vae, "BF16", WAN_DIMS(96, 3, 3, 3, 3),
                   "encoder.conv1.weight"); /* not asked for */
    write_comfy();
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &a), 0);
    struct wan_model *model = opened();
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &b), 0);
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    long ms = (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000;
    print_message("opened in %ld ms, %ld kB more\n", ms, after.ru_maxrss - before.ru_maxrss);
    assert_true(ms < 1000); /* a few ms alone; this much under a sanitizer on a busy machine */
    assert_true(after.ru_maxrss - before.ru_maxrss < 32 * 1024);

    assert_int_equal(wan_model_parameters(model, WAN_DIT), 1418996800);
    assert_int_equal(wan_model_parameters(model, WAN_TEXT), 5680910336);
    int64_t decoder = wan_model_parameters(model, WAN_VAE);
    assert_true(decoder > 73250000 && decoder < 73350000);

    const struct wan_config *c = wan_model_config(model);
    assert_string_equal(c->name, "Wan2.1-T2V-1.3B");
    assert_int_equal(c->dit.dim, 1536);
    assert_int_equal(c->dit.ffn, 8960);
    assert_int_equal(c->dit.heads, 12);
    assert_int_equal(c->dit.layers, 30);
    assert_int_equal(c->dit.channels, 16);
    assert_int_equal(c->dit.text_dim, 4096);
    assert_int_equal(c->dit.text_len, 512);
    assert_int_equal(c->dit.freq_dim, 256);
    assert_int_equal(c->text.vocab, 256384);
    assert_int_equal(c->text.ffn, 10240);
    assert_int_equal(c->text.layers, 24);
    assert_int_equal(c->text.heads, 64);
    assert_int_equal(c->text.inner, 4096);
    assert_int_equal(c->text.buckets, 32);
    assert_int_equal(c->vae.levels, 4);
    assert_int_equal(c->vae.blocks, 3);
    assert_true(c->vae.temporal[0] && c->vae.temporal[1] && !c->vae.temporal[2]);
    assert_int_equal(c->vae.width[0], 384);
    assert_int_equal(c->vae.width[3], 96);
    assert_int_equal(c->vae.scale_space, 8);
    assert_int_equal(c->vae.scale_time, 4);
    assert_true(c->vae.mean[7] == 1.5508F && c->vae.std[15] == 1.9160F);
    assert_int_equal(c->defaults.width, 832);
    assert_int_equal(c->defaults.frames, 81);
    assert_int_equal(c->defaults.fps, 16);
    assert_int_equal(c->defaults.steps, 50);
    assert_true(c->defaults.shift == 8 && c->defaults.guidance == 6);
    assert_string_equal(c->defaults.method, "unipc");
    assert_string_equal(c->defaults.grid, "wan");
    assert_int_equal(strncmp(c->defaults.negative_prompt, "色调艳丽，", 15), 0);
    wan_model_close(model);
}

/* What the parts take on a device: the published file sizes, but for the table and the encoder. */
static void test_model_bytes(void **state)
{
    const int64_t layer = 4 * INT64_C(4096) * 4096 + 3 * INT64_C(4096) * 10240;
    const int64_t layer_f32 = 2 * 4096 + 32 * 64;
    const int64_t dit_f32 = 30 * (6 + 4 + 2) * INT64_C(1536)  /* modulation, norms */
                            + 30 * (8 + 1) * INT64_C(1536)    /* biases of attention and ffn.2 */
                            + 30 * INT64_C(8960)              /* bias of ffn.0 */
                            + (1 + 1 + 1 + 2) * INT64_C(1536) /* patch, text 2, head.modulation */
                            + 64                              /* bias of the head */
                            + (256 + 1 + 1536 + 1) * INT64_C(1536) /* time embedding */
                            + 6 * INT64_C(1537) * 1536;            /* time projection */

    (void)state;
    fill(&wan_1_3b, "BF16");
    write_comfy();
    struct wan_model *model = opened();
    assert_int_equal(wan_config_bytes(wan_model_config(model), WAN_DIT, 2, true),
                     2 * (1418996800 - dit_f32) + 4 * dit_f32);
    assert_int_equal(wan_config_bytes(wan_model_config(model), WAN_DIT, 4, false),
                     4 * INT64_C(1418996800));
    assert_int_equal(wan_config_bytes(wan_model_config(model), WAN_TEXT, 2, true),
                     24 * (2 * layer + 4 * layer_f32) + 4 * 4096);
    assert_int_equal(wan_config_bytes(wan_model_config(model), WAN_TEXT, 2, false),
                     2 * layer + 4 * layer_f32 + 4 * 4096);
    assert_int_equal(wan_config_bytes(wan_model_config(model), WAN_VAE, 4, true),
                     4 * wan_model_parameters(model, WAN_VAE));
    wan_model_close(model);
}

/* The published F8 encoder: 168 matrices in F8 with a scale each, the rest in fp16. */
static void add_scales(float value)
{
    static float scales[256];
    size_t count = text.count;
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        char *end = strstr(text.tensors[i].name, "weight");
        char name[140];
        if (strcmp(text.tensors[i].dtype, "F8_E4M3") != 0)
            continue;
        (void)snprintf(name, sizeof(name), "%.*sscale_weight", (int)(end - text.tensors[i].name),
                       text.tensors[i].name);
        scales[n] = value * (float)(n + 1);
        wan_file_add(&text, "F32", NULL, 0, &scales[n++], name);
    }
    wan_file_named(&text, "F8_E4M3", WAN_DIMS(0), "scaled_fp8");
}

static void test_model_scaled_f8(void **state)
{
    struct ops_source source = {0};
    struct rl_err err = {0};
    static const uint8_t bytes[32 * 24] = {0x38, 0xb8, 0x7e, 0x01}; /* 1, -1, 448, 2^-9 */
    float row[24];

    (void)state;
    text.count = 0;
    wan_file_text(&text, &wan_tiny, "F16", "F8_E4M3");
    named(&text, "encoder.block.0.layer.0.SelfAttention.q.weight")->data = bytes;
    add_scales(0.25F);
    write_comfy();
    struct wan_model *model = opened();
    assert_int_equal(wan_model_matrix(model, WAN_TEXT,
                                      "encoder.block.1.layer.1.DenseReluDense.wo.weight", 24, 20,
                                      &source, &err),
                     RL_OK);
    assert_int_equal(source.type, OPS_F8_E4M3);
    assert_true(source.scale == 14 * 0.25F);
    assert_int_equal(wan_model_row(model, WAN_TEXT,
                                   "encoder.block.0.layer.0.SelfAttention.q.weight", 0, 24, row,
                                   &err),
                     RL_OK);
    assert_true(row[0] == 0.25F && row[1] == -0.25F && row[2] == 112 && row[3] == 0x1p-11F);
    assert_int_equal(wan_model_matrix(model, WAN_TEXT, "shared.weight", 40, 24, &source, &err),
                     RL_OK);
    assert_true(source.scale == 1 && source.type == OPS_F16);
    wan_model_close(model);
}

/* Without its scale a matrix would be off by a factor that nothing reports. */
static void test_model_scaled_f8_refused(void **state)
{
    static const float bad = NAN;
    const char *name = "encoder.block.1.layer.0.SelfAttention.v.scale_weight";

    (void)state;
    text.count = 0;
    wan_file_text(&text, &wan_tiny, "F16", "F8_E4M3");
    add_scales(1);
    struct wan_file_tensor *t = named(&text, name);
    t->data = &bad;
    write_comfy();
    refused("SelfAttention.v.weight", "not a positive number");
    t->ndim = 1;
    t->dims[0] = 2;
    t->bytes = 8;
    t->data = NULL;
    write_comfy();
    refused("SelfAttention.v.scale_weight", "one number");
    *t = text.tensors[--text.count];
    write_comfy();
    refused("text.safetensors: tensor encoder.block.1.layer.0.SelfAttention.v.weight",
            "without its scale");
    /* a plain F8 file says nothing of scales */
    text.count = 0;
    wan_file_text(&text, &wan_tiny, "F16", "F8_E4M3");
    write_comfy();
    wan_model_close(opened());
    /* the later spelling */
    wan_file_add(&text, "F32", NULL, 0, NULL,
                 "encoder.block.0.layer.0.SelfAttention.q.weight_scale");
    write_comfy();
    refused("tensor encoder.block.0.layer.0.SelfAttention.q.weight", "not a positive number");
}

/* ---- metadata ---- */

#define SIXTEEN(x)                                                                                 \
    x "," x "," x "," x "," x "," x "," x "," x "," x "," x "," x "," x "," x "," x "," x

static void test_model_metadata(void **state)
{
    (void)state;
    dit.metadata =
        "{\"format\":\"pt\",\"model\":\"starter\",\"heads\":\"4\",\"text_len\":\"32\","
        "\"width\":\"64\",\"height\":\"48\",\"frames\":\"17\",\"fps\":\"8\",\"steps\":\"20\","
        "\"shift\":\"3\",\"cfg\":\"3.5\",\"solver\":\"euler\",\"schedule\":\"diffusers\","
        "\"negative_prompt\":\"\"}";
    vae.metadata =
        "{\"latents_mean\":\"-1.5," SIXTEEN("0.25") "\",\"latents_std\":\"" SIXTEEN("2") ",1e-3\"}";
    write_comfy();
    struct wan_model *model = opened();
    const struct wan_config *c = wan_model_config(model);
    assert_string_equal(c->name, "starter");
    assert_int_equal(c->dit.heads, 4);
    assert_int_equal(c->dit.text_len, 32);
    assert_int_equal(c->defaults.width, 64);
    assert_int_equal(c->defaults.height, 48);
    assert_int_equal(c->defaults.frames, 17);
    assert_int_equal(c->defaults.fps, 8);
    assert_int_equal(c->defaults.steps, 20);
    assert_true(c->defaults.shift == 3 && c->defaults.guidance == 3.5);
    assert_string_equal(c->defaults.method, "euler");
    assert_string_equal(c->defaults.grid, "diffusers");
    assert_string_equal(c->defaults.negative_prompt, "");
    assert_true(c->vae.mean[0] == -1.5F && c->vae.mean[15] == 0.25F);
    assert_true(c->vae.std[0] == 2 && c->vae.std[15] == 1e-3F);
    assert_int_equal(c->vae.scale_space, 2);
    assert_int_equal(c->vae.scale_time, 2);
    wan_model_close(model);
}

static void test_model_metadata_refused(void **state)
{
    static const struct {
        const char *dit, *vae, *word;
    } cases[] = {
        {"{\"heads\":\"3\"}", NULL, "patch_embedding"},
        {"{\"heads\":\"256\"}", NULL, "patch_embedding"}, /* of width 1 */
        {"{\"heads\":\"0\"}", NULL, "heads"},
        {"{\"heads\":\"2.5\"}", NULL, "heads"},
        {"{\"heads\":\"two\"}", NULL, "heads"},
        {"{\"heads\":\"\"}", NULL, "heads"},
        {"{\"heads\":\"2 \"}", NULL, "heads"},
        {"{\"heads\":\"nan\"}", NULL, "heads"},
        {"{\"text_len\":\"100000\"}", NULL, "text_len"},
        {"{\"width\":\"62\"}", NULL, "width"},
        {"{\"frames\":\"16\"}", NULL, "frames"},
        {"{\"shift\":\"inf\"}", NULL, "shift"},
        {"{\"solver\":\"a very long name of a solver\"}", NULL, "solver"},
        {NULL, "{\"latents_mean\":\"1,2,3\"}", "latents_mean"},
        {NULL, "{\"latents_mean\":\"" SIXTEEN("1") ",1,1\"}", "latents_mean"},
        {NULL, "{\"latents_mean\":\"" SIXTEEN("1") ",x\"}", "latents_mean"},
        {NULL, "{\"latents_std\":\"" SIXTEEN("1") ",0\"}", "latents_std"},
    };

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        dit.metadata = cases[i].dit;
        vae.metadata = cases[i].vae;
        write_comfy();
        refused(cases[i].word, cases[i].dit ? "dit.safetensors" : "vae.safetensors");
    }
}

/* ---- files that do not belong together ---- */

static void test_model_refuses_wrong_tensors(void **state)
{
    struct wan_file_tensor *t = named(&dit, "blocks.1.cross_attn.o.bias");

    (void)state;
    t->name[0] = 'x';
    write_comfy();
    refused("dit.safetensors: tensor blocks.1.cross_attn.o.bias", "missing");

    fill(&wan_tiny, "F32");
    t = named(&dit, "blocks.1.ffn.2.weight"); /* transposed */
    t->dims[0] = 48;
    t->dims[1] = 256;
    write_comfy();
    refused("dit.safetensors: tensor blocks.1.ffn.2.weight", "shape");

    fill(&wan_tiny, "F32");
    named(&text, "encoder.block.1.layer.1.layer_norm.weight")->dtype = "I32";
    write_comfy();
    refused("text.safetensors: tensor encoder.block.1.layer.1.layer_norm.weight", "dtype");

    fill(&wan_tiny, "F32");
    named(&vae, "decoder.upsamples.3.shortcut.bias")->name[0] = 'x';
    write_comfy();
    refused("vae.safetensors: tensor decoder.upsamples.3.shortcut.bias", "missing");

    /* a T5 that is no umT5 has a position bias in its first layer only */
    fill(&wan_tiny, "F32");
    named(&text, "encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight")->name[0] =
        'x';
    write_comfy();
    refused("encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight", "missing");
}

/* Sizes for which the operators are not made. */
static void test_model_refuses_impossible_sizes(void **state)
{
    struct wan_sizes wide = wan_tiny, text_wide = wan_tiny, far = wan_tiny, odd = wan_tiny,
                     half = wan_tiny, latents = wan_tiny, decoder = wan_tiny;

    (void)state;
    wide.dim = 2048;
    text_wide.inner = 1032;
    text_wide.heads = 1;
    far.buckets = 512;
    odd.width[1] = 7;
    half.width[0] = 14;
    latents.channels = 15;
    decoder.width[0] = 1028;
    const struct {
        const struct wan_sizes *sizes;
        const char *where, *metadata;
    } cases[] = {{&wide, "patch_embedding", "{\"heads\":\"1\"}"},
                 {&text_wide, "relative_attention_bias", NULL},
                 {&far, "relative_attention_bias", NULL},
                 {&odd, "decoder.upsamples", NULL},
                 {&half, "decoder.upsamples", NULL},
                 {&latents, "conv2.weight", NULL},
                 {&decoder, "decoder.upsamples.0", NULL}};
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        fill(cases[i].sizes, "F32");
        dit.metadata = cases[i].metadata;
        write_comfy();
        refused(cases[i].where, "tensor");
    }
}

/* Each tensor of each part: without it, and with one row too many. */
static void test_model_every_tensor_counts(void **state)
{
    struct wan_file *const files[] = {&dit, &text, &vae};

    (void)state;
    for (size_t f = 0; f < RL_ARRAY_LEN(files); f++) {
        for (size_t i = 0; i < files[f]->count; i++) {
            struct wan_file_tensor *t = &files[f]->tensors[i];
            struct wan_file_tensor kept = *t;

            t->name[0] = 'X';
            write_comfy();
            refused(".safetensors", "");
            *t = kept;
            t->bytes = t->bytes / (size_t)t->dims[0] * (size_t)(t->dims[0] + 1);
            t->dims[0]++;
            write_comfy();
            /* the vocabulary is whatever the table has */
            if (strcmp(t->name, "shared.weight") == 0)
                wan_model_close(opened());
            else
                refused(".safetensors: ", "");
            *t = kept;
        }
    }
}

static void test_model_refuses_other_models(void **state)
{
    struct wan_sizes sizes = wan_tiny;

    (void)state;
    sizes.text_dim = 32;
    dit.count = 0;
    wan_file_dit(&dit, &sizes, "F32");
    write_comfy();
    refused("dit.safetensors takes text of width 32", "text.safetensors gives 24");

    sizes = wan_tiny;
    sizes.channels = 8;
    fill(&wan_tiny, "F32");
    vae.count = 0;
    wan_file_vae(&vae, &sizes, "F32");
    vae.metadata = "{\"latents_mean\":\"0,0,0,0,0,0,0,0\",\"latents_std\":\"1,1,1,1,1,1,1,1\"}";
    write_comfy();
    refused("latents of 16 channels", "vae.safetensors takes 8");
    vae.metadata = NULL;
    write_comfy();
    refused("vae.safetensors: no latents_mean", "not those of Wan 2.1");

    fill(&wan_tiny, "F32");
    named(&dit, "patch_embedding.weight")->dims[1] = 36;
    named(&dit, "patch_embedding.weight")->bytes = (size_t)256 * 36 * 4 * 4;
    write_comfy();
    refused("dit.safetensors", "not a text-to-video model");

    fill(&wan_tiny, "F32");
    wan_file_named(&dit, "F32", WAN_DIMS(1), "blocks.0.cross_attn.k_img.weight");
    write_comfy();
    refused("dit.safetensors", "image-to-video");

    fill(&wan_tiny, "F32");
    wan_file_named(&vae, "F32", WAN_DIMS(1), "decoder.upsamples.0.upsamples.0.residual.2.weight");
    write_comfy();
    refused("vae.safetensors", "Wan 2.2");

    fill(&wan_tiny, "F32");
    write_comfy();
    write_to(&vae, "diffusion_models/dit.safetensors");
    refused("dit.safetensors holds no transformer", "other names");
}

static struct wan_model *opened_with_vocab(int64_t vocab)
{
    struct wan_file_tensor *t = named(&text, "shared.weight");

    t->dims[0] = vocab;
    t->bytes = (size_t)(vocab * t->dims[1]) * sizeof(float);
    write_comfy();
    return opened();
}

static void test_model_folders(void **state)
{
    struct wan_model *model = NULL;
    struct rl_err err = {0};
    char path[160];

    (void)state;
    assert_int_equal(wan_model_open("/nonexistent", &model, &err), RL_NOT_FOUND);
    write_to(&dit, "diffusion_models/dit.safetensors");
    write_to(&text, "text_encoders/text.safetensors");
    assert_int_equal(wan_model_open(folder, &model, &err), RL_NOT_FOUND);
    assert_non_null(strstr(err.reason, "/vae"));
    /* only a pickle there: which file to take instead */
    write_to(&vae, "vae/Wan2.1_VAE.pth");
    refused("Wan2.1_VAE.pth is a Python pickle", "wan_2.1_vae.safetensors");
    write_to(&vae, "vae/vae.safetensors");
    write_to(&vae, "vae/.hidden.safetensors");
    wan_model_close(opened());
    write_to(&vae, "vae/second.safetensors");
    refused("/vae holds 2 .safetensors files", "which one");

    (void)snprintf(path, sizeof(path), "%s/vae/second.safetensors", folder);
    char a[160];
    char b[160];
    (void)snprintf(a, sizeof(a), "%s/diffusion_models/dit.safetensors", folder);
    (void)snprintf(b, sizeof(b), "%s/text_encoders/text.safetensors", folder);
    const struct wan_files files = {.part = {a, b, path}};
    assert_int_equal(wan_model_open_files(&files, &model, &err), RL_OK);
    wan_model_close(model);
    const struct wan_files none = {.part = {a, NULL, path}};
    assert_int_equal(wan_model_open_files(&none, &model, &err), RL_NOT_FOUND);
    assert_non_null(strstr(err.reason, "text encoder"));
    wan_model_close(NULL);
}

/* The tokenizer comes with the text encoder, or lies beside it. */
static void test_model_tokenizer(void **state)
{
    struct wan_model *model = opened_with_vocab(1000);
    struct tokenizer *t = NULL;
    struct rl_err err = {0};
    char *bytes = NULL;
    size_t len = 0;
    char path[160];

    (void)state;
    assert_int_equal(wan_model_tokenizer(model, &t, &err), RL_NOT_FOUND);
    assert_non_null(strstr(err.reason, "text.safetensors: no tokenizer"));
    wan_model_close(model);

    assert_int_equal(rl_fs_read(TOKENIZER_DATA "/bytes.model", 1 << 20, &bytes, &len, &err), RL_OK);
    wan_file_add(&text, "U8", (int64_t[]){(int64_t)len}, 1, bytes, "spiece_model");
    write_comfy();
    model = opened();
    assert_int_equal(wan_model_tokenizer(model, &t, &err), RL_OK);
    assert_true(tokenizer_vocab(t) > 500);
    tokenizer_free(t);
    wan_model_close(model);

    text.count--;
    make_dir("tokenizer");
    (void)snprintf(path, sizeof(path), "%s/tokenizer/spiece.model", folder);
    wan_file_raw(path, bytes, len, 0);
    model = opened_with_vocab(1000);
    assert_int_equal(wan_model_tokenizer(model, &t, &err), RL_OK);
    tokenizer_free(t);
    wan_model_close(model);
    model = opened_with_vocab(40);
    assert_int_equal(wan_model_tokenizer(model, &t, &err), RL_INVALID_FIELD);
    assert_non_null(strstr(err.reason, "more pieces than the table"));
    wan_model_close(model);
    free(bytes);
}

/* ---- values ---- */

static void test_model_values_bounds(void **state)
{
    struct ops_source source = {0};
    struct rl_err err = {0};
    static float table[40 * 24];
    float row[24] = {0};

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(table); i++)
        table[i] = (float)i;
    named(&text, "shared.weight")->data = table;
    write_comfy();
    struct wan_model *model = opened();
    const char *name = "shared.weight";
    assert_int_equal(wan_model_row(model, WAN_TEXT, name, 39, 24, row, &err), RL_OK);
    assert_true(row[0] == 39 * 24 && row[23] == 40 * 24 - 1);
    assert_int_equal(wan_model_row(model, WAN_TEXT, name, 40, 24, row, &err), RL_INVALID_FIELD);
    assert_int_equal(wan_model_row(model, WAN_TEXT, name, -1, 24, row, &err), RL_INVALID_FIELD);
    assert_int_equal(wan_model_row(model, WAN_TEXT, name, 0, 25, row, &err), RL_INVALID_FIELD);
    assert_int_equal(wan_model_row(model, WAN_TEXT, "x", 0, 24, row, &err), RL_INVALID_FIELD);
    assert_int_equal(wan_model_values(model, WAN_TEXT, name, 960, 950, 10, row, &err), RL_OK);
    assert_true(row[9] == 959);
    assert_int_equal(wan_model_values(model, WAN_TEXT, name, 960, 950, 11, row, &err),
                     RL_INVALID_FIELD);
    assert_int_equal(wan_model_values(model, WAN_TEXT, name, 960, 961, 0, row, &err),
                     RL_INVALID_FIELD);
    assert_int_equal(wan_model_values(model, WAN_TEXT, name, 961, 0, 1, row, &err),
                     RL_INVALID_FIELD);
    assert_int_equal(wan_model_matrix(model, WAN_TEXT, name, 40, 24, &source, &err), RL_OK);
    assert_memory_equal(source.data, table, sizeof(table));
    assert_true(source.scale == 1 && source.rows == 40 && source.cols == 24);
    assert_int_equal(wan_model_matrix(model, WAN_TEXT, name, 24, 40, &source, &err),
                     RL_INVALID_FIELD);
    assert_int_equal(wan_model_matrix(model, WAN_TEXT, name, 40, 25, &source, &err),
                     RL_INVALID_FIELD);
    assert_int_equal(
        wan_model_matrix(model, WAN_VAE, "decoder.conv1.weight", 12, 16 * 27, &source, &err),
        RL_OK);
    wan_model_close(model);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_model_open_full_size),
        TEST(test_model_bytes),
        TEST(test_model_scaled_f8),
        TEST(test_model_scaled_f8_refused),
        TEST(test_model_metadata),
        TEST(test_model_metadata_refused),
        TEST(test_model_refuses_impossible_sizes),
        TEST(test_model_refuses_wrong_tensors),
        TEST(test_model_refuses_other_models),
        TEST(test_model_every_tensor_counts),
        TEST(test_model_folders),
        TEST(test_model_tokenizer),
        TEST(test_model_values_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
