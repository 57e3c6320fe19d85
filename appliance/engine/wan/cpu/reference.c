/* The table of plain forms: one thread, act = f32. */
#include "engine/wan/cpu/cpu.h"

static enum rl_rc open_plain(int device, int threads, struct ops_ctx **ret_ctx, struct rl_err *err)
{
    (void)device;
    (void)threads;
    struct ops_ctx *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    *ret_ctx = ctx;
    return RL_OK;
}

static void close_plain(struct ops_ctx *ctx)
{
    free(ctx);
}

static const struct ops reference = {
    .name = "reference",
    .act_bytes = sizeof(float),
    .open = open_plain,
    .close = close_plain,
    .sync = cpu_sync,
    .memory = cpu_memory,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_upload,
    .download = cpu_download,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .to_act = plain_to_act,
    .to_f32 = plain_to_f32,
    .weight_new = plain_weight_new,
    .weight_free = cpu_weight_free,
    .gemm = plain_gemm,
    .attention = plain_attention,
    .gemm_f32 = plain_gemm_f32,
    .conv = plain_conv,
    .norm_modulate = plain_norm_modulate,
    .norm_affine = plain_norm_affine,
    .rms_norm = plain_rms_norm,
    .rms_rope = plain_rms_rope,
    .channel_norm = plain_channel_norm,
    .combine = plain_combine,
    .patchify = plain_patchify,
    .unpatchify = cpu_unpatchify,
    .noise = plain_noise,
    .to_rgb = plain_to_rgb,
};

const struct ops *ops_reference(void)
{
    return &reference;
}
