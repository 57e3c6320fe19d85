/* Latents to tokens and back, and pictures to bytes. */
#include "engine/wan/cpu/cpu.h"

void plain_patchify(struct ops_ctx *ctx, void *y, const float *x, int c, int f, int h, int w)
{
    float *out = y;
    (void)ctx;
    for (int frame = 0; frame < f; frame++)
        for (int row = 0; row < h; row += 2)
            for (int col = 0; col < w; col += 2)
                for (int channel = 0; channel < c; channel++) {
                    const float *at = x + (((int64_t)channel * f + frame) * h + row) * w + col;
                    *out++ = at[0];
                    *out++ = at[1];
                    *out++ = at[w];
                    *out++ = at[w + 1];
                }
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

enum rl_rc plain_to_rgb(struct ops_ctx *ctx, uint8_t *rgb, const void *x, int h, int w,
                        struct rl_err *err)
{
    const float *from = x;
    (void)ctx;
    (void)err;
    for (int64_t i = 0; i < (int64_t)3 * h * w; i++) {
        float r = from[i] * 127.5F + 127.5F;
        rgb[i] = (uint8_t)(r > 0 ? (r < 255 ? r + 0.5F : 255) : 0); /* not a number: 0 */
    }
    return RL_OK;
}
