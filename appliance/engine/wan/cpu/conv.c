/* Convolution of channel-last pictures over a few frames. */
#include "engine/wan/cpu/cpu.h"

/* One output value: the weights of one output channel over the window at (row, col). */
static double plain_window(const struct ops_conv *s, const float *w, int row, int col)
{
    int scale = s->upsample ? 2 : 1;
    double sum = 0;
    for (int t = 0; t < s->kt; t++) {
        const float *frame = s->in[t];
        for (int dy = 0; frame && dy < s->kh; dy++)
            for (int dx = 0; dx < s->kw; dx++) {
                int y = row + dy - s->kh / 2, x = col + dx - s->kw / 2;
                if (y < 0 || y >= s->h * scale || x < 0 || x >= s->w * scale)
                    continue;
                const float *pixel = frame + ((int64_t)(y / scale) * s->w + x / scale) * s->ci;
                const float *tap = w + (((int64_t)t * s->kh + dy) * s->kw + dx) * s->ci;
                for (int c = 0; c < s->ci; c++)
                    sum += (double)pixel[c] * tap[c];
            }
    }
    return sum;
}

void plain_conv(struct ops_ctx *ctx, void *y, const struct ops_conv *shape,
                const struct ops_weight *w, const float *bias, enum ops_epilogue epilogue)
{
    int scale = shape->upsample ? 2 : 1;
    float *out = y;
    (void)ctx;
    for (int row = 0; row < shape->h * scale; row++)
        for (int col = 0; col < shape->w * scale; col++)
            for (int c = 0; c < shape->co; c++) {
                double r = plain_window(shape, w->rows + c * w->k, row, col);
                plain_epilogue(out, r + (bias ? bias[c] : 0), NULL, epilogue);
                out++;
            }
}
