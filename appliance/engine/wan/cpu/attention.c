/* Attention. The fast form takes some queries of one head through all keys, a block of keys at a
 * time, and keeps only that block's logits. source: Dao et al., FlashAttention (2022) */
#include "engine/wan/cpu/cpu.h"

#include <assert.h>
#include <math.h>

/* One query of one head against one key. */
static double logit(const float *q, const float *k, int hd, double scale)
{
    double sum = 0;
    for (int i = 0; i < hd; i++)
        sum += (double)q[i] * k[i];
    return sum * scale;
}

/* One row of one head: the logits are worked out twice, so that no row of them need be kept. */
static void plain_row(float *out, const float *q, const float *k, const float *v, int64_t lk,
                      int64_t stride, int hd, double scale, const float *bias, double last_logit)
{
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < lk; j++) {
        double s = logit(q, k + j * stride, hd, scale) + (bias ? bias[j] : 0) +
                   (j == lk - 1 ? last_logit : 0);
        top = s > top ? s : top;
    }
    for (int i = 0; i < hd; i++)
        out[i] = 0;
    for (int64_t j = 0; j < lk; j++) {
        double s = logit(q, k + j * stride, hd, scale) + (bias ? bias[j] : 0) +
                   (j == lk - 1 ? last_logit : 0);
        double p = exp(s - top);
        sum += p;
        for (int i = 0; i < hd; i++)
            out[i] = (float)(out[i] + p * v[j * stride + i]);
    }
    for (int i = 0; i < hd; i++)
        out[i] = (float)(out[i] / sum);
}

void plain_attention(struct ops_ctx *ctx, void *out, const void *q, const void *k, const void *v,
                     int64_t lq, int64_t lk, int heads, int hd, float scale, const float *bias,
                     float last_logit)
{
    const float *queries = q, *keys = k, *values = v;
    float *results = out;
    int64_t stride = (int64_t)heads * hd;
    (void)ctx;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < lq; i++)
            plain_row(results + i * stride + h * hd, queries + i * stride + h * hd, keys + h * hd,
                      values + h * hd, lk, stride, hd, scale,
                      bias ? bias + (h * lq + i) * lk : NULL, last_logit);
}

#define QUERIES 128 /* of a task */
#define KEYS    128 /* of a block, half as many for wide heads; BLOCK_COLS at least */

struct attention_job {
    const struct ops_ctx *ctx;
    char *out;
    const char *q, *k, *v;
    int64_t lq, lk, chunks;
    int heads, hd;
    float scale;
    const float *bias;
    float last_logit;
    int queries, keys; /* of a task, of a block */
    int64_t hd_padded; /* to whole blocks of columns */
};

/* A thread's scratch (NULL: what size it must have), cut up. */
struct attention_room {
    float *logits, *out, *top, *sum;
    char *p, *k, *v;
    size_t bytes; /* all of it */
};

static struct attention_room cut(const struct attention_job *job, char *scratch)
{
    struct attention_room room = {0};
    size_t queries = (size_t)job->queries, keys = (size_t)job->keys;
    size_t number = job->ctx->kernels->act_bytes, padded = (size_t)job->hd_padded;
#define TAKE(member, count, size)                                                                  \
    (room.member = scratch ? (void *)(scratch + room.bytes) : NULL,                                \
     room.bytes += ((count) * (size) + CPU_ALIGN - 1) / CPU_ALIGN * CPU_ALIGN)
    TAKE(logits, queries * keys, sizeof(float));
    TAKE(out, queries * padded, sizeof(float));
    TAKE(top, queries, sizeof(float));
    TAKE(sum, queries, sizeof(float));
    TAKE(p, queries * keys, number);
    TAKE(k, keys * padded, number);
    TAKE(v, keys * padded, number);
#undef TAKE
    return room;
}

/* c [rows, cols] = or += a [rows, k] · panels, a block of columns at a time. */
static void multiply_wide(const struct kernels *kernels, struct product p, int64_t cols,
                          const char *panels)
{
    for (int64_t col = 0; col < cols; col += BLOCK_COLS) {
        const void *b = panels + col / kernels->panel * p.b_panel * 4;
        struct product part = p;
        part.b = &b;
        part.c = p.c + col;
        part.cols = cols - col < BLOCK_COLS ? (int)(cols - col) : BLOCK_COLS;
        cpu_multiply(kernels, &part);
    }
}

/* Some queries (q: the first) against keys first…, count of them. */
static void attend(const struct attention_job *job, const struct attention_room *room,
                   const char *q, const float *bias, int rows, int64_t head, int64_t first,
                   int count)
{
    const struct kernels *kernels = job->ctx->kernels;
    int64_t number = (int64_t)kernels->act_bytes, stride = (int64_t)job->heads * job->hd;
    int64_t from = (first * stride + head * job->hd) * number;
    int64_t units = (job->hd * number + 3) / 4, v_units = (count * number + 3) / 4;
    for (int key = 0; key < count; key += kernels->panel)
        kernels->pack_rows(room->k + key * units * 4, job->k + from + key * stride * number, stride,
                           count - key < kernels->panel ? count - key : kernels->panel, job->hd,
                           kernels->panel);
    kernels->pack_cols(room->v, job->v + from, stride, count, job->hd, v_units * kernels->panel,
                       kernels->panel);
    const void *a = q;
    struct product logits = {.a = &a,
                             .runs = 1,
                             .rows = rows,
                             .k = job->hd,
                             .lda = stride,
                             .b_panel = units * kernels->panel,
                             .c = room->logits,
                             .ldc = job->keys};
    multiply_wide(kernels, logits, count, room->k);
    const struct softmax softmax = {.logits = room->logits,
                                    .p = room->p,
                                    .bias = bias ? bias + first : NULL,
                                    .top = room->top,
                                    .sum = room->sum,
                                    .out = room->out,
                                    .rows = rows,
                                    .cols = count,
                                    .ld = job->keys,
                                    .bias_ld = job->lk,
                                    .out_ld = job->hd_padded,
                                    .out_cols = job->hd,
                                    .scale = job->scale,
                                    .last_logit = first + count == job->lk ? job->last_logit : 0,
                                    .first = first == 0};
    kernels->softmax(&softmax);
    a = room->p;
    struct product out = {.a = &a,
                          .runs = 1,
                          .rows = rows,
                          .k = count,
                          .lda = job->keys,
                          .b_panel = v_units * kernels->panel,
                          .c = room->out,
                          .ldc = job->hd_padded,
                          .add = first > 0};
    multiply_wide(kernels, out, job->hd, room->v);
}

static void attention_chunk(void *arg, int64_t i, int worker)
{
    const struct attention_job *job = arg;
    const struct kernels *kernels = job->ctx->kernels;
    struct attention_room room = cut(job, cpu_scratch(job->ctx, worker));
    int64_t head = i / job->chunks, row = i % job->chunks * job->queries;
    int64_t stride = (int64_t)job->heads * job->hd;
    int64_t at = (row * stride + head * job->hd) * (int64_t)kernels->act_bytes;
    int rows = job->lq - row < job->queries ? (int)(job->lq - row) : job->queries;
    const float *bias = job->bias ? job->bias + (head * job->lq + row) * job->lk : NULL;
    for (int64_t first = 0; first < job->lk; first += job->keys)
        attend(job, &room, job->q + at, bias, rows, head, first,
               job->lk - first < job->keys ? (int)(job->lk - first) : job->keys);
    kernels->divide(job->out + at, stride, room.out, job->hd_padded, room.sum, rows, job->hd);
}

void cpu_attention(struct ops_ctx *ctx, void *out, const void *q, const void *k, const void *v,
                   int64_t lq, int64_t lk, int heads, int hd, float scale, const float *bias,
                   float last_logit)
{
    struct attention_job job = {
        .ctx = ctx,
        .out = out,
        .q = q,
        .k = k,
        .v = v,
        .lq = lq,
        .lk = lk,
        .heads = heads,
        .hd = hd,
        .scale = scale,
        .bias = bias,
        .last_logit = last_logit,
        .queries = lq < QUERIES ? (int)lq : QUERIES,
        .keys = hd <= 512 ? KEYS : KEYS / 2,
        .hd_padded = (int64_t)(hd + BLOCK_COLS - 1) / BLOCK_COLS * BLOCK_COLS,
    };
    while (job.queries > 8 && cut(&job, NULL).bytes > CPU_SCRATCH)
        job.queries /= 2;
    while (job.queries > 8 && ctx->kernels->any_cut &&
           (lq + job.queries - 1) / job.queries * heads < threads_count(ctx->threads))
        job.queries = (job.queries + 1) / 2;
    bool fits = cut(&job, NULL).bytes <= CPU_SCRATCH;
    assert(fits);
    (void)fits; /* without asserts */
    job.chunks = (lq + job.queries - 1) / job.queries;
    threads_run(ctx->threads, job.chunks * heads, attention_chunk, &job);
}
