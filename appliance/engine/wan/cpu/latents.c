/* Latents to tokens and back, and pictures to bytes. */
#include "engine/wan/cpu/cpu.h"

#include <assert.h>

/* The 4c numbers of the token at (frame, row, col). */
static void patch(float *out, const float *x, int c, int f, int h, int w, int frame, int row,
                  int col)
{
    for (int channel = 0; channel < c; channel++) {
        const float *at = x + (((int64_t)channel * f + frame) * h + row) * w + col;
        *out++ = at[0];
        *out++ = at[1];
        *out++ = at[w];
        *out++ = at[w + 1];
    }
}

void plain_patchify(struct ops_ctx *ctx, void *y, const float *x, int c, int f, int h, int w)
{
    float *out = y;
    (void)ctx;
    for (int frame = 0; frame < f; frame++)
        for (int row = 0; row < h; row += 2)
            for (int col = 0; col < w; col += 2, out += (int64_t)4 * c)
                patch(out, x, c, f, h, w, frame, row, col);
}

void cpu_unpatchify(struct ops_ctx *ctx, float *y, const float *x, int c, int f, int h, int w)
{
    (void)ctx;
    for (int frame = 0; frame < f; frame++)
        for (int row = 0; row < h; row += 2)
            for (int col = 0; col < w; col += 2, x += (int64_t)4 * c)
                for (int channel = 0; channel < c; channel++) {
                    float *at = y + (((int64_t)channel * f + frame) * h + row) * w + col;
                    at[0] = x[channel];
                    at[1] = x[c + channel];
                    at[w] = x[2 * c + channel];
                    at[w + 1] = x[3 * c + channel];
                }
}

void cpu_patchify(struct ops_ctx *ctx, void *y, const float *x, int c, int f, int h, int w)
{
    float *token = (float *)(void *)cpu_scratch(ctx, 0);
    char *out = y;
    assert((size_t)c * 4 * sizeof *token <= ctx->scratch_bytes);
    for (int frame = 0; frame < f; frame++)
        for (int row = 0; row < h; row += 2)
            for (int col = 0; col < w; col += 2, out += (size_t)c * 4 * ctx->kernels->act_bytes) {
                patch(token, x, c, f, h, w, frame, row, col);
                ctx->kernels->to_act(out, token, (int64_t)4 * c);
            }
}

static uint8_t to_byte(float x)
{
    float r = x * 127.5F + 127.5F;
    return (uint8_t)(r > 0 ? (r < 255 ? r + 0.5F : 255) : 0); /* not a number: 0 */
}

enum rl_rc plain_to_rgb(struct ops_ctx *ctx, uint8_t *rgb, const void *x, int h, int w,
                        struct rl_err *err)
{
    const float *from = x;
    (void)ctx;
    (void)err;
    for (int64_t i = 0; i < (int64_t)3 * h * w; i++)
        rgb[i] = to_byte(from[i]);
    return RL_OK;
}

#define SOME 4096 /* numbers at a time */

enum rl_rc cpu_to_rgb(struct ops_ctx *ctx, uint8_t *rgb, const void *x, int h, int w,
                      struct rl_err *err)
{
    float *some = (float *)(void *)cpu_scratch(ctx, 0);
    (void)err;
    for (int64_t at = 0, n = (int64_t)3 * h * w; at < n; at += SOME) {
        int64_t count = n - at < SOME ? n - at : SOME;
        ctx->kernels->to_f32(some, (const char *)x + at * (int64_t)ctx->kernels->act_bytes, count);
        for (int64_t i = 0; i < count; i++)
            rgb[at + i] = to_byte(some[i]);
    }
    return RL_OK;
}
