/* Three dialects for the same tensors. A name is taken apart at its numbers: `blocks.7.` or
 * `decoder.upsamples.5.`, and what is left is looked up in a small table. No state, any thread.
 * Source: huggingface/diffusers scripts/convert_wan_to_diffusers.py; Wan 2.1 wan/modules/t5.py. */
#include "engine/wan/names.h"

#include <string.h>

#define MAX_BLOCKS 16

struct rename {
    const char *from, *to; /* beginnings of a name */
};

/* diffusers numbers the norms by where they stand: its norm2 is Wan's norm3. */
static const struct rename dit_block[] = {
    {"modulation", "scale_shift_table"},
    {"self_attn.q.", "attn1.to_q."},
    {"self_attn.k.", "attn1.to_k."},
    {"self_attn.v.", "attn1.to_v."},
    {"self_attn.o.", "attn1.to_out.0."},
    {"self_attn.", "attn1."},
    {"cross_attn.q.", "attn2.to_q."},
    {"cross_attn.k.", "attn2.to_k."},
    {"cross_attn.v.", "attn2.to_v."},
    {"cross_attn.o.", "attn2.to_out.0."},
    {"cross_attn.", "attn2."},
    {"norm3.", "norm2."},
    {"ffn.0.", "ffn.net.0.proj."},
    {"ffn.2.", "ffn.net.2."},
    {NULL, NULL},
};

static const struct rename dit_whole[] = {
    {"time_embedding.0.", "condition_embedder.time_embedder.linear_1."},
    {"time_embedding.2.", "condition_embedder.time_embedder.linear_2."},
    {"text_embedding.0.", "condition_embedder.text_embedder.linear_1."},
    {"text_embedding.2.", "condition_embedder.text_embedder.linear_2."},
    {"time_projection.1.", "condition_embedder.time_proj."},
    {"head.modulation", "scale_shift_table"},
    {"head.head.", "proj_out."},
    {NULL, NULL},
};

static const struct rename text_block[] = {
    {"layer.0.layer_norm.", "norm1."},
    {"layer.0.SelfAttention.relative_attention_bias.", "pos_embedding.embedding."},
    {"layer.0.SelfAttention.", "attn."},
    {"layer.1.layer_norm.", "norm2."},
    {"layer.1.DenseReluDense.wi_0.", "ffn.gate.0."},
    {"layer.1.DenseReluDense.wi_1.", "ffn.fc1."},
    {"layer.1.DenseReluDense.wo.", "ffn.fc2."},
    {NULL, NULL},
};

static const struct rename text_whole[] = {
    {"shared.", "token_embedding."},
    {"encoder.final_layer_norm.", "norm."},
    {NULL, NULL},
};

static const struct rename vae_block[] = {
    {"residual.0.", "norm1."}, {"residual.2.", "conv1."},       {"residual.3.", "norm2."},
    {"residual.6.", "conv2."}, {"shortcut.", "conv_shortcut."}, {NULL, NULL},
};

static const struct rename vae_whole[] = {
    {"conv2.", "post_quant_conv."},
    {"decoder.conv1.", "decoder.conv_in."},
    {"decoder.middle.1.", "decoder.mid_block.attentions.0."},
    {"decoder.head.0.", "decoder.norm_out."},
    {"decoder.head.2.", "decoder.conv_out."},
    {NULL, NULL},
};

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* prefix + tail, with the beginning of the tail replaced by the table's first match. */
static bool put(const char *prefix, const struct rename *table, const char *tail,
                char ret_name[WAN_NAME])
{
    int n;

    while (table && table->from && !begins(tail, table->from))
        table++;
    if (table && table->from)
        n = snprintf(ret_name, WAN_NAME, "%s%s%s", prefix, table->to, tail + strlen(table->from));
    else
        n = snprintf(ret_name, WAN_NAME, "%s%s", prefix, tail);
    return n > 0 && n < WAN_NAME;
}

/* A number and the dot behind it at *p, stepped over; -1 when there is none. */
static int number(const char **p)
{
    const char *start = *p;
    int v = 0;

    while (**p >= '0' && **p <= '9' && v < 100000)
        v = v * 10 + (*(*p)++ - '0');
    if (*p == start || **p != '.')
        return -1;
    ++*p;
    return v;
}

static bool other_vae(int blocks, const char *name, char ret_name[WAN_NAME])
{
    static const char middle[] = "decoder.middle.";
    static const char ups[] = "decoder.upsamples.";
    char prefix[64];
    const char *tail = NULL;

    if (begins(name, middle) &&
        (name[sizeof(middle) - 1] == '0' || name[sizeof(middle) - 1] == '2')) {
        tail = name + sizeof(middle) - 1;
        (void)snprintf(prefix, sizeof(prefix), "decoder.mid_block.resnets.%d.", number(&tail) / 2);
        return put(prefix, vae_block, tail, ret_name);
    }
    if (!begins(name, ups))
        return put("", vae_whole, name, ret_name);

    tail = name + sizeof(ups) - 1;
    int k = number(&tail);
    if (k < 0)
        return false;
    int level = k / (blocks + 1);
    int block = k % (blocks + 1);
    if (block < blocks)
        (void)snprintf(prefix, sizeof(prefix), "decoder.up_blocks.%d.resnets.%d.", level, block);
    else
        (void)snprintf(prefix, sizeof(prefix), "decoder.up_blocks.%d.upsamplers.0.", level);
    return put(prefix, vae_block, tail, ret_name);
}

/* `from`N.tail -> `to`N.tail by the one table, everything else by the other. */
static bool other_blocks(const char *name, const char *from, const char *to,
                         const struct rename *block, const struct rename *whole,
                         char ret_name[WAN_NAME])
{
    char prefix[64];

    if (!begins(name, from))
        return put("", whole, name, ret_name);
    const char *tail = name + strlen(from);
    int k = number(&tail);
    if (k < 0)
        return false;
    (void)snprintf(prefix, sizeof(prefix), "%s%d.", to, k);
    return put(prefix, block, tail, ret_name);
}

bool names_in_file(const struct names *names, const char *name, char ret_name[WAN_NAME])
{
    char other[WAN_NAME];

    if (names->other && names->part == WAN_DIT) {
        if (!other_blocks(name, "blocks.", "blocks.", dit_block, dit_whole, other))
            return false;
        name = other;
    } else if (names->other && names->part == WAN_TEXT) {
        if (!other_blocks(name, "encoder.block.", "blocks.", text_block, text_whole, other))
            return false;
        name = other;
    } else if (names->other) {
        if (!other_vae(names->blocks, name, other))
            return false;
        name = other;
    }
    return put(names->prefix, NULL, name, ret_name);
}

/* ---- detection ---- */

static bool has(const struct safetensors *file, const char *prefix, const char *name)
{
    char whole[WAN_NAME];

    return put(prefix, NULL, name, whole) && safetensors_find(file, whole);
}

/* Residual blocks per level, by the first level: up to its upsampling, or as many as there are. */
static int count_blocks(const struct safetensors *file, const struct names *names)
{
    const char *format = names->other ? "decoder.up_blocks.0.resnets.%d.conv1.weight"
                                      : "decoder.upsamples.%d.residual.2.weight";
    char name[WAN_NAME];
    int n = 0;

    do {
        (void)snprintf(name, sizeof(name), format, n);
    } while (has(file, names->prefix, name) && ++n < MAX_BLOCKS);
    return n;
}

bool names_detect(const struct safetensors *file, enum wan_part part, struct names *ret_names)
{
    static const struct {
        const char *prefix, *witness;
        enum wan_part part;
        bool other;
    } layouts[] = {
        {"", "head.modulation", WAN_DIT, false},
        {"model.diffusion_model.", "head.modulation", WAN_DIT, false},
        {"diffusion_model.", "head.modulation", WAN_DIT, false},
        {"", "condition_embedder.time_proj.weight", WAN_DIT, true},
        {"", "encoder.final_layer_norm.weight", WAN_TEXT, false},
        {"", "token_embedding.weight", WAN_TEXT, true},
        {"", "decoder.middle.0.residual.0.gamma", WAN_VAE, false},
        {"first_stage_model.", "decoder.middle.0.residual.0.gamma", WAN_VAE, false},
        {"", "decoder.mid_block.resnets.0.norm1.gamma", WAN_VAE, true},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(layouts); i++) {
        struct names names = {.part = layouts[i].part, .other = layouts[i].other};

        if (layouts[i].part != part || !has(file, layouts[i].prefix, layouts[i].witness) ||
            !rl_copy_str(names.prefix, sizeof(names.prefix), layouts[i].prefix))
            continue;
        if (part == WAN_VAE)
            names.blocks = count_blocks(file, &names);
        *ret_names = names;
        return true;
    }
    return false;
}
