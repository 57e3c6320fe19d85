/* The matrix products and what they do with a result before storing it. The fast form works on
 * blocks of rows × BLOCK_COLS columns, one thread each. */
#include "engine/wan/cpu/cpu.h"

#include <math.h>

static double silu(double r)
{
    return r / (1 + exp(-r));
}

static double gelu_tanh(double r)
{
    return 0.5 * r * (1 + tanh(0.79788456080286536 * (r + 0.044715 * r * r * r)));
}

void plain_epilogue(float *y, double r, double gate, enum ops_epilogue epilogue)
{
    switch (epilogue) {
    case OPS_STORE_ACT:
    case OPS_STORE_F32:
        *y = (float)r;
        break;
    case OPS_GELU_ACT:
        *y = (float)gelu_tanh(r);
        break;
    case OPS_SILU_F32:
        *y = (float)silu(r);
        break;
    case OPS_GELU_GATE_ACT:
        *y = (float)(*y * gelu_tanh(r));
        break;
    case OPS_ADD_F32:
        *y = (float)(*y + r);
        break;
    case OPS_ADD_GATED_F32:
        *y = (float)(*y + gate * r);
        break;
    }
}

void plain_gemm(struct ops_ctx *ctx, void *y, const void *x, const struct ops_weight *w,
                const float *bias, const float *gate, int64_t m, enum ops_epilogue epilogue)
{
    const float *rows = x;
    float *out = y;
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < w->n; j++) {
            double r = bias ? bias[j] : 0;
            for (int64_t p = 0; p < w->k; p++)
                r += (double)rows[i * w->k + p] * w->rows[j * w->k + p];
            plain_epilogue(out + i * w->n + j, r, gate ? gate[j] : 0, epilogue);
        }
}

void plain_gemm_f32(struct ops_ctx *ctx, float *y, const float *x, const float *w,
                    const float *bias, int64_t m, int64_t n, int64_t k, bool with_silu)
{
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double r = bias ? bias[j] : 0;
            for (int64_t p = 0; p < k; p++)
                r += (double)x[i * k + p] * w[j * k + p];
            y[i * n + j] = (float)(with_silu ? silu(r) : r);
        }
}

struct gemm_job {
    const struct ops_ctx *ctx;
    const struct ops_weight *w;
    const char *x;
    struct finish finish; /* y, bias and gate as a whole */
    int64_t m;
    int64_t blocks; /* of columns */
    int rows;       /* of a block */
};

static void gemm_block(void *arg, int64_t i, int worker)
{
    const struct gemm_job *job = arg;
    const struct kernels *kernels = job->ctx->kernels;
    int64_t row = i / job->blocks * job->rows, col = i % job->blocks * BLOCK_COLS;
    const void *a = job->x + row * job->w->k * (int64_t)kernels->act_bytes;
    const void *b = (const char *)job->w->panels + col * job->w->units * 4;
    struct product p = {.a = &a,
                        .b = &b,
                        .runs = 1,
                        .rows = job->m - row < job->rows ? (int)(job->m - row) : job->rows,
                        .k = job->w->k,
                        .lda = job->w->k,
                        .b_panel = job->w->units * kernels->panel,
                        .c = (float *)(void *)cpu_scratch(job->ctx, worker),
                        .ldc = BLOCK_COLS};
    struct finish finish = job->finish;
    p.cols = job->w->n - col < BLOCK_COLS ? (int)(job->w->n - col) : BLOCK_COLS;
    cpu_multiply(kernels, &p);
    finish.r = p.c;
    finish.rows = p.rows;
    cpu_finish(kernels, finish, row, col);
}

void cpu_gemm(struct ops_ctx *ctx, void *y, const void *x, const struct ops_weight *w,
              const float *bias, const float *gate, int64_t m, enum ops_epilogue epilogue)
{
    struct gemm_job job = {
        .ctx = ctx,
        .w = w,
        .x = x,
        .finish = {.y = y, .ldy = w->n, .bias = bias, .gate = gate, .epilogue = epilogue},
        .m = m,
        .blocks = (w->n + BLOCK_COLS - 1) / BLOCK_COLS,
        .rows = CPU_ROWS};
    /* few and large for one thread, enough of them for many */
    while (ctx->kernels->any_cut && job.rows > 24 &&
           (m + job.rows - 1) / job.rows * job.blocks < 4 * (int64_t)threads_count(ctx->threads))
        job.rows /= 2;
    threads_run(ctx->threads, (m + job.rows - 1) / job.rows * job.blocks, gemm_block, &job);
}

struct dots_job {
    const struct kernels *kernels;
    float *y;
    const float *x, *w, *bias;
    int64_t m, n, k;
};

static void dots_cols(const void *arg, int64_t first, int64_t end)
{
    const struct dots_job *job = arg;
    for (int64_t j = first; j < end; j++) {
        job->kernels->dots(job->y + j, job->x, job->w + j * job->k, job->m, job->n, job->k);
        for (int64_t i = 0; job->bias && i < job->m; i++)
            job->y[i * job->n + j] += job->bias[j];
    }
}

void cpu_gemm_f32(struct ops_ctx *ctx, float *y, const float *x, const float *w, const float *bias,
                  int64_t m, int64_t n, int64_t k, bool with_silu)
{
    const struct dots_job job = {
        .kernels = ctx->kernels, .y = y, .x = x, .w = w, .bias = bias, .m = m, .n = n, .k = k};
    cpu_share(ctx, n, m * k, dots_cols, &job);
    if (with_silu)
        ctx->kernels->silu(y, m * n);
}
