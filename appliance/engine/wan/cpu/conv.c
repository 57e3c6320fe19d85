/* Convolution of channel-last pictures over a few frames: a matrix product whose left side is never
 * written out. With channels last, the kw taps of a row of the window are one run of kw · ci
 * numbers, and the next pixel's run begins ci numbers later. So a run is a row of the product's
 * left side as it stands once the row of the picture has its borders of zeros: that row, or a piece
 * of it, is copied to the thread's scratch, doubled where the input is upsampled. Windows of one
 * pixel need no copy. */
#include "engine/wan/cpu/cpu.h"

#include <assert.h>
#include <string.h>

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
                plain_epilogue(out, r + (bias ? bias[c] : 0), 0, epilogue);
                out++;
            }
}

#define RUNS 64 /* kt · kh at most */

struct conv_job {
    const struct ops_ctx *ctx;
    const struct ops_conv *shape;
    const struct ops_weight *w;
    struct finish finish;  /* y and bias as a whole */
    int64_t width, pieces; /* of an output row: pixels, and into how many it is cut */
    int piece;             /* pixels */
    bool direct;           /* windows of one pixel: the picture is one row */
    int64_t run;           /* numbers */
};

/* Pixels x0 − kw/2 … of a row of the input, as many as `count` windows see. */
static void copy_line(const struct conv_job *job, char *line, const char *row, int64_t x0,
                      int64_t count)
{
    const struct ops_conv *s = job->shape;
    size_t pixel = (size_t)s->ci * job->ctx->kernels->act_bytes;
    int64_t first = x0 - s->kw / 2, end = first + count + s->kw - 1;
    int64_t from = first < 0 ? 0 : first, to = end < job->width ? end : job->width;
    char *at = line + (size_t)(from - first) * pixel;
    memset(line, 0, (size_t)(from - first) * pixel);
    if (!s->upsample)
        memcpy(at, row + (size_t)from * pixel, (size_t)(to - from) * pixel);
    else
        for (int64_t x = from; x < to; x++)
            memcpy(at + (size_t)(x - from) * pixel, row + (size_t)(x / 2) * pixel, pixel);
    memset(at + (size_t)(to - from) * pixel, 0, (size_t)(end - to) * pixel);
}

/* The runs of `count` windows from (y, x0) on; a frame or row that is not there has none. */
static int gather(const struct conv_job *job, char *lines, int64_t y, int64_t x0, int64_t count,
                  const void **a, const void **b)
{
    const struct ops_conv *s = job->shape;
    int64_t number = (int64_t)job->ctx->kernels->act_bytes, scale = s->upsample ? 2 : 1;
    int64_t line = (count + s->kw - 1) * s->ci * number;
    int runs = 0;
    for (int t = 0; t < s->kt; t++)
        for (int dy = 0; s->in[t] && dy < s->kh; dy++) {
            int64_t row = y + dy - s->kh / 2;
            if (!job->direct && (row < 0 || row >= s->h * scale))
                continue;
            const char *from =
                (const char *)s->in[t] + (job->direct ? x0 : row / scale * s->w) * s->ci * number;
            if (!job->direct) {
                copy_line(job, lines, from, x0, count);
                from = lines;
                lines += line;
            }
            a[runs] = from;
            b[runs] = (const char *)job->w->panels +
                      (t * s->kh + dy) * job->run * number * job->ctx->kernels->panel;
            runs++;
        }
    return runs;
}

static void conv_piece(void *arg, int64_t i, int worker)
{
    const struct conv_job *job = arg;
    const struct kernels *kernels = job->ctx->kernels;
    float *results = (float *)(void *)cpu_scratch(job->ctx, worker);
    const void *a[RUNS] = {NULL}, *b[RUNS] = {NULL}, *block[RUNS] = {NULL};
    int64_t y = i / job->pieces, x0 = i % job->pieces * job->piece;
    int count = job->width - x0 < job->piece ? (int)(job->width - x0) : job->piece;
    int runs = gather(job, (char *)(results + CPU_TILE), y, x0, count, a, b);
    for (int64_t col = 0; col < job->w->n; col += BLOCK_COLS) {
        for (int run = 0; run < runs; run++)
            block[run] = (const char *)b[run] + col * job->w->units * 4;
        struct product p = {.a = a,
                            .b = block,
                            .runs = runs,
                            .rows = count,
                            .cols =
                                job->w->n - col < BLOCK_COLS ? (int)(job->w->n - col) : BLOCK_COLS,
                            .k = job->run,
                            .lda = job->shape->ci,
                            .b_panel = job->w->units * kernels->panel,
                            .c = results,
                            .ldc = BLOCK_COLS};
        struct finish finish = job->finish;
        cpu_multiply(kernels, &p);
        finish.r = results;
        finish.rows = count;
        cpu_finish(kernels, finish, y * job->width + x0, col);
    }
}

/* The longest piece of a row of which the thread's scratch takes the lines; pieces of one length.
 */
static void cut(struct conv_job *job)
{
    const struct ops_conv *s = job->shape;
    size_t room = job->ctx->scratch_bytes - CPU_TILE * sizeof(float);
    size_t column = (size_t)(s->kt * s->kh * s->ci) * job->ctx->kernels->act_bytes;
    int64_t most = CPU_ROWS;
    if (!job->direct && room / column < (size_t)(most + s->kw - 1))
        most = (int64_t)(room / column) - s->kw + 1;
    assert(most > 0); /* weight_new has made room for 8 */
    job->pieces = (job->width + most - 1) / most;
    job->piece = (int)((job->width + job->pieces - 1) / job->pieces);
}

void cpu_conv(struct ops_ctx *ctx, void *y, const struct ops_conv *shape,
              const struct ops_weight *w, const float *bias, enum ops_epilogue epilogue)
{
    int64_t scale = shape->upsample ? 2 : 1, height = shape->h * scale;
    struct conv_job job = {
        .ctx = ctx,
        .shape = shape,
        .w = w,
        .finish = {.y = y, .ldy = w->n, .bias = bias, .epilogue = epilogue},
        .width = shape->w * scale,
        .direct = shape->kh == 1 && shape->kw == 1 && !shape->upsample,
        .run = (int64_t)shape->kw * shape->ci,
    };
    assert(shape->kt * shape->kh <= RUNS);
    assert(shape->ci % 2 == 0 || ctx->kernels->act_bytes == 4);
    if (job.direct) {
        job.width *= height;
        height = 1;
    }
    cut(&job);
    threads_run(ctx->threads, height * job.pieces, conv_piece, &job);
}
