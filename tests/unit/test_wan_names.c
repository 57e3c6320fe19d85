/* The three dialects of tensor names against each other. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "wan_folder.h"

static const char *const dit_dialect[][2] = {
    {"patch_embedding.weight", "patch_embedding.weight"},
    {"patch_embedding.bias", "patch_embedding.bias"},
    {"head.modulation", "scale_shift_table"},
    {"text_embedding.0.weight", "condition_embedder.text_embedder.linear_1.weight"},
    {"text_embedding.0.bias", "condition_embedder.text_embedder.linear_1.bias"},
    {"text_embedding.2.weight", "condition_embedder.text_embedder.linear_2.weight"},
    {"text_embedding.2.bias", "condition_embedder.text_embedder.linear_2.bias"},
    {"time_embedding.0.weight", "condition_embedder.time_embedder.linear_1.weight"},
    {"time_embedding.0.bias", "condition_embedder.time_embedder.linear_1.bias"},
    {"time_embedding.2.weight", "condition_embedder.time_embedder.linear_2.weight"},
    {"time_embedding.2.bias", "condition_embedder.time_embedder.linear_2.bias"},
    {"time_projection.1.weight", "condition_embedder.time_proj.weight"},
    {"time_projection.1.bias", "condition_embedder.time_proj.bias"},
    {"head.head.weight", "proj_out.weight"},
    {"head.head.bias", "proj_out.bias"},
    {"blocks.0.modulation", "blocks.0.scale_shift_table"},
    {"blocks.0.self_attn.q.weight", "blocks.0.attn1.to_q.weight"},
    {"blocks.0.self_attn.q.bias", "blocks.0.attn1.to_q.bias"},
    {"blocks.0.self_attn.k.weight", "blocks.0.attn1.to_k.weight"},
    {"blocks.0.self_attn.k.bias", "blocks.0.attn1.to_k.bias"},
    {"blocks.0.self_attn.v.weight", "blocks.0.attn1.to_v.weight"},
    {"blocks.0.self_attn.v.bias", "blocks.0.attn1.to_v.bias"},
    {"blocks.0.self_attn.o.weight", "blocks.0.attn1.to_out.0.weight"},
    {"blocks.0.self_attn.o.bias", "blocks.0.attn1.to_out.0.bias"},
    {"blocks.0.self_attn.norm_q.weight", "blocks.0.attn1.norm_q.weight"},
    {"blocks.0.self_attn.norm_k.weight", "blocks.0.attn1.norm_k.weight"},
    {"blocks.0.cross_attn.q.weight", "blocks.0.attn2.to_q.weight"},
    {"blocks.0.cross_attn.q.bias", "blocks.0.attn2.to_q.bias"},
    {"blocks.0.cross_attn.k.weight", "blocks.0.attn2.to_k.weight"},
    {"blocks.0.cross_attn.k.bias", "blocks.0.attn2.to_k.bias"},
    {"blocks.0.cross_attn.v.weight", "blocks.0.attn2.to_v.weight"},
    {"blocks.0.cross_attn.v.bias", "blocks.0.attn2.to_v.bias"},
    {"blocks.0.cross_attn.o.weight", "blocks.0.attn2.to_out.0.weight"},
    {"blocks.0.cross_attn.o.bias", "blocks.0.attn2.to_out.0.bias"},
    {"blocks.0.cross_attn.norm_q.weight", "blocks.0.attn2.norm_q.weight"},
    {"blocks.0.cross_attn.norm_k.weight", "blocks.0.attn2.norm_k.weight"},
    {"blocks.0.norm3.weight", "blocks.0.norm2.weight"},
    {"blocks.0.norm3.bias", "blocks.0.norm2.bias"},
    {"blocks.0.ffn.0.weight", "blocks.0.ffn.net.0.proj.weight"},
    {"blocks.0.ffn.0.bias", "blocks.0.ffn.net.0.proj.bias"},
    {"blocks.0.ffn.2.weight", "blocks.0.ffn.net.2.weight"},
    {"blocks.0.ffn.2.bias", "blocks.0.ffn.net.2.bias"},
};

static const char *const text_dialect[][2] = {
    {"shared.weight", "token_embedding.weight"},
    {"encoder.final_layer_norm.weight", "norm.weight"},
    {"encoder.block.0.layer.0.layer_norm.weight", "blocks.0.norm1.weight"},
    {"encoder.block.0.layer.1.layer_norm.weight", "blocks.0.norm2.weight"},
    {"encoder.block.0.layer.0.SelfAttention.q.weight", "blocks.0.attn.q.weight"},
    {"encoder.block.0.layer.0.SelfAttention.k.weight", "blocks.0.attn.k.weight"},
    {"encoder.block.0.layer.0.SelfAttention.v.weight", "blocks.0.attn.v.weight"},
    {"encoder.block.0.layer.0.SelfAttention.o.weight", "blocks.0.attn.o.weight"},
    {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "blocks.0.pos_embedding.embedding.weight"},
    {"encoder.block.0.layer.1.DenseReluDense.wi_0.weight", "blocks.0.ffn.gate.0.weight"},
    {"encoder.block.0.layer.1.DenseReluDense.wi_1.weight", "blocks.0.ffn.fc1.weight"},
    {"encoder.block.0.layer.1.DenseReluDense.wo.weight", "blocks.0.ffn.fc2.weight"},
};

/* Two levels of two blocks: upsamples 0, 1, up 2, 3, 4. */
static const char *const vae_dialect[][2] = {
    {"conv2.weight", "post_quant_conv.weight"},
    {"conv2.bias", "post_quant_conv.bias"},
    {"decoder.conv1.weight", "decoder.conv_in.weight"},
    {"decoder.conv1.bias", "decoder.conv_in.bias"},
    {"decoder.middle.0.residual.0.gamma", "decoder.mid_block.resnets.0.norm1.gamma"},
    {"decoder.middle.0.residual.2.weight", "decoder.mid_block.resnets.0.conv1.weight"},
    {"decoder.middle.0.residual.2.bias", "decoder.mid_block.resnets.0.conv1.bias"},
    {"decoder.middle.0.residual.3.gamma", "decoder.mid_block.resnets.0.norm2.gamma"},
    {"decoder.middle.0.residual.6.weight", "decoder.mid_block.resnets.0.conv2.weight"},
    {"decoder.middle.0.residual.6.bias", "decoder.mid_block.resnets.0.conv2.bias"},
    {"decoder.middle.1.norm.gamma", "decoder.mid_block.attentions.0.norm.gamma"},
    {"decoder.middle.1.to_qkv.weight", "decoder.mid_block.attentions.0.to_qkv.weight"},
    {"decoder.middle.1.to_qkv.bias", "decoder.mid_block.attentions.0.to_qkv.bias"},
    {"decoder.middle.1.proj.weight", "decoder.mid_block.attentions.0.proj.weight"},
    {"decoder.middle.1.proj.bias", "decoder.mid_block.attentions.0.proj.bias"},
    {"decoder.middle.2.residual.0.gamma", "decoder.mid_block.resnets.1.norm1.gamma"},
    {"decoder.middle.2.residual.2.weight", "decoder.mid_block.resnets.1.conv1.weight"},
    {"decoder.middle.2.residual.2.bias", "decoder.mid_block.resnets.1.conv1.bias"},
    {"decoder.middle.2.residual.3.gamma", "decoder.mid_block.resnets.1.norm2.gamma"},
    {"decoder.middle.2.residual.6.weight", "decoder.mid_block.resnets.1.conv2.weight"},
    {"decoder.middle.2.residual.6.bias", "decoder.mid_block.resnets.1.conv2.bias"},
    {"decoder.upsamples.0.residual.0.gamma", "decoder.up_blocks.0.resnets.0.norm1.gamma"},
    {"decoder.upsamples.0.residual.2.weight", "decoder.up_blocks.0.resnets.0.conv1.weight"},
    {"decoder.upsamples.0.residual.2.bias", "decoder.up_blocks.0.resnets.0.conv1.bias"},
    {"decoder.upsamples.0.residual.3.gamma", "decoder.up_blocks.0.resnets.0.norm2.gamma"},
    {"decoder.upsamples.0.residual.6.weight", "decoder.up_blocks.0.resnets.0.conv2.weight"},
    {"decoder.upsamples.0.residual.6.bias", "decoder.up_blocks.0.resnets.0.conv2.bias"},
    {"decoder.upsamples.1.residual.0.gamma", "decoder.up_blocks.0.resnets.1.norm1.gamma"},
    {"decoder.upsamples.1.residual.2.weight", "decoder.up_blocks.0.resnets.1.conv1.weight"},
    {"decoder.upsamples.1.residual.2.bias", "decoder.up_blocks.0.resnets.1.conv1.bias"},
    {"decoder.upsamples.1.residual.3.gamma", "decoder.up_blocks.0.resnets.1.norm2.gamma"},
    {"decoder.upsamples.1.residual.6.weight", "decoder.up_blocks.0.resnets.1.conv2.weight"},
    {"decoder.upsamples.1.residual.6.bias", "decoder.up_blocks.0.resnets.1.conv2.bias"},
    {"decoder.upsamples.2.resample.1.weight", "decoder.up_blocks.0.upsamplers.0.resample.1.weight"},
    {"decoder.upsamples.2.resample.1.bias", "decoder.up_blocks.0.upsamplers.0.resample.1.bias"},
    {"decoder.upsamples.2.time_conv.weight", "decoder.up_blocks.0.upsamplers.0.time_conv.weight"},
    {"decoder.upsamples.2.time_conv.bias", "decoder.up_blocks.0.upsamplers.0.time_conv.bias"},
    {"decoder.upsamples.3.residual.0.gamma", "decoder.up_blocks.1.resnets.0.norm1.gamma"},
    {"decoder.upsamples.3.residual.2.weight", "decoder.up_blocks.1.resnets.0.conv1.weight"},
    {"decoder.upsamples.3.residual.2.bias", "decoder.up_blocks.1.resnets.0.conv1.bias"},
    {"decoder.upsamples.3.residual.3.gamma", "decoder.up_blocks.1.resnets.0.norm2.gamma"},
    {"decoder.upsamples.3.residual.6.weight", "decoder.up_blocks.1.resnets.0.conv2.weight"},
    {"decoder.upsamples.3.residual.6.bias", "decoder.up_blocks.1.resnets.0.conv2.bias"},
    {"decoder.upsamples.3.shortcut.weight", "decoder.up_blocks.1.resnets.0.conv_shortcut.weight"},
    {"decoder.upsamples.3.shortcut.bias", "decoder.up_blocks.1.resnets.0.conv_shortcut.bias"},
    {"decoder.upsamples.4.residual.0.gamma", "decoder.up_blocks.1.resnets.1.norm1.gamma"},
    {"decoder.upsamples.4.residual.2.weight", "decoder.up_blocks.1.resnets.1.conv1.weight"},
    {"decoder.upsamples.4.residual.2.bias", "decoder.up_blocks.1.resnets.1.conv1.bias"},
    {"decoder.upsamples.4.residual.3.gamma", "decoder.up_blocks.1.resnets.1.norm2.gamma"},
    {"decoder.upsamples.4.residual.6.weight", "decoder.up_blocks.1.resnets.1.conv2.weight"},
    {"decoder.upsamples.4.residual.6.bias", "decoder.up_blocks.1.resnets.1.conv2.bias"},
    {"decoder.head.0.gamma", "decoder.norm_out.gamma"},
    {"decoder.head.2.weight", "decoder.conv_out.weight"},
    {"decoder.head.2.bias", "decoder.conv_out.bias"},
};

/* Rename the file's tensors; the first value of each becomes its number in the dialect. */
static void translate(struct wan_file *file, const char *const dialect[][2], size_t count)
{
    static float values[3][64][1];
    static int part;
    float(*first)[1] = values[part++ % 3];

    assert_int_equal(file->count, count); /* the dialect has them all */
    assert_true(count <= 64);
    for (size_t i = 0; i < count; i++) {
        struct wan_file_tensor *t = named(file, dialect[i][0]);

        first[i][0] = (float)i + 1;
        assert_true(rl_copy_str(t->name, sizeof(t->name), dialect[i][1]));
        t->data = calloc(1, t->bytes);
        assert_non_null(t->data);
        memcpy((void *)(uintptr_t)t->data, first[i], sizeof(float));
    }
}

static void check_dialect(const struct wan_model *model, enum wan_part part, struct wan_file *file,
                          const char *const dialect[][2], size_t count)
{
    struct rl_err err = {0};

    for (size_t i = 0; i < count; i++) {
        const struct tensor *t = wan_model_find(model, part, dialect[i][0]);
        float value = 0;

        assert_non_null(t);
        assert_string_equal(t->name, dialect[i][1]);
        assert_int_equal(
            wan_model_values(model, part, dialect[i][0], (int64_t)t->bytes / 4, 0, 1, &value, &err),
            RL_OK);
        assert_true(value == (float)i + 1);
    }
    for (size_t i = 0; i < file->count; i++)
        free((void *)(uintptr_t)file->tensors[i].data);
}

/* diffusers' folders and names, the transformer in two files with an index; its norm2 is the
 * published norm3. The text encoder under Wan's own names. */
static void test_names_dialects(void **state)
{
    struct wan_sizes sizes = wan_tiny;
    static struct wan_file half;
    char index[96];
    struct rl_buf b;
    struct rl_jw w;

    (void)state;
    sizes.layers = 1;
    sizes.text_layers = 1;
    fill(&sizes, "F32");
    translate(&dit, dit_dialect, RL_ARRAY_LEN(dit_dialect));
    translate(&text, text_dialect, RL_ARRAY_LEN(text_dialect));
    translate(&vae, vae_dialect, RL_ARRAY_LEN(vae_dialect));
    make_dir("transformer");
    make_dir("text_encoder");
    write_to(&text, "text_encoder/model.safetensors");
    write_to(&vae, "vae/diffusion_pytorch_model.safetensors");

    rl_buf_init(&b, 1 << 20);
    rl_jw_init(&w, &b, false);
    rl_jw_object(&w, NULL);
    rl_jw_object(&w, "weight_map");
    for (int part = 0; part < 2; part++) {
        half.count = 0;
        char name[64];
        (void)snprintf(name, sizeof(name), "m-0000%d-of-00002.safetensors", part + 1);
        for (size_t i = (size_t)part; i < dit.count; i += 2) {
            half.tensors[half.count++] = dit.tensors[i];
            rl_jw_str(&w, dit.tensors[i].name, name);
        }
        char place[96];
        (void)snprintf(place, sizeof(place), "transformer/%s", name);
        write_to(&half, place);
    }
    rl_jw_end_object(&w);
    rl_jw_end_object(&w);
    (void)snprintf(index, sizeof(index), "%s/transformer/m.safetensors.index.json", folder);
    wan_file_raw(index, b.data, b.len, 0);
    rl_buf_free(&b);

    struct wan_model *model = opened();
    assert_int_equal(wan_model_config(model)->dit.layers, 1);
    assert_int_equal(wan_model_config(model)->dit.heads, 2);
    assert_int_equal(wan_model_config(model)->text.layers, 1);
    assert_int_equal(wan_model_config(model)->vae.blocks, 2);
    assert_int_equal(wan_model_config(model)->vae.levels, 2);
    check_dialect(model, WAN_DIT, &dit, dit_dialect, RL_ARRAY_LEN(dit_dialect));
    check_dialect(model, WAN_TEXT, &text, text_dialect, RL_ARRAY_LEN(text_dialect));
    check_dialect(model, WAN_VAE, &vae, vae_dialect, RL_ARRAY_LEN(vae_dialect));
    wan_model_close(model);
}

/* Names behind a prefix, and the table's other name. */
static void test_names_prefixes(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        fill(&wan_tiny, "BF16");
        for (size_t k = 0; k < dit.count; k++) {
            struct wan_file_tensor *t = &dit.tensors[k];
            char name[120];
            memcpy(name, t->name, sizeof(name));
            (void)snprintf(t->name, sizeof(t->name), "%s%s",
                           i ? "diffusion_model." : "model.diffusion_model.", name);
        }
        assert_true(
            rl_copy_str(named(&text, "shared.weight")->name, 120, "encoder.embed_tokens.weight"));
        write_comfy();
        struct wan_model *model = opened();
        assert_string_equal(wan_model_find(model, WAN_DIT, "blocks.1.norm3.bias")->name,
                            i ? "diffusion_model.blocks.1.norm3.bias"
                              : "model.diffusion_model.blocks.1.norm3.bias");
        assert_non_null(wan_model_find(model, WAN_TEXT, "shared.weight"));
        assert_null(wan_model_find(model, WAN_DIT, "blocks.2.norm3.bias"));
        wan_model_close(model);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_names_dialects),
        TEST(test_names_prefixes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
