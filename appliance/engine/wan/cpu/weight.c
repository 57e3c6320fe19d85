/* Weights: the number formats of files, and matrices in the layout that the products read. */
#include "engine/wan/cpu/cpu.h"

#include "engine/wan/numbers.h"

#include <math.h>
#include <string.h>

void cpu_source_read(const struct ops_source *source, int64_t first, int64_t count, float *to)
{
    const char *from = source->data;
    wan_numbers(source->type, from + (size_t)first * wan_number_bytes(source->type), count,
                source->type == OPS_F8_E4M3 ? source->scale : 1, to);
}

enum rl_rc plain_weight_new(struct ops_ctx *ctx, const struct ops_source *source,
                            struct ops_weight **ret_weight, struct rl_err *err)
{
    void *head = NULL, *rows = NULL;
    enum rl_rc rc = cpu_alloc(ctx, sizeof(struct ops_weight), &head, err);
    if (rc != RL_OK)
        return rc;
    rc = cpu_alloc(ctx, (size_t)source->rows * (size_t)source->cols * sizeof(float), &rows, err);
    if (rc != RL_OK) {
        cpu_free(ctx, head);
        return rc;
    }
    cpu_source_read(source, 0, source->rows * source->cols, rows);
    struct ops_weight *weight = head;
    *weight = (struct ops_weight){.n = source->rows, .k = source->cols, .rows = rows};
    *ret_weight = weight;
    return RL_OK;
}

#define PACK_K 512 /* numbers of a row at a time, even */

struct pack_job {
    const struct ops_ctx *ctx;
    const struct ops_source *source;
    const struct ops_weight *weight;
};

/* One panel: its rows in pieces, read as f32, made act, turned over. */
static void pack_panel(void *arg, int64_t i, int worker)
{
    const struct pack_job *job = arg;
    const struct kernels *kernels = job->ctx->kernels;
    int64_t k = job->weight->k, first = i * kernels->panel, left = job->weight->n - first;
    int count = left < kernels->panel ? (int)left : kernels->panel;
    float *numbers = (float *)(void *)cpu_scratch(job->ctx, worker);
    char *rows = (char *)(numbers + PACK_K);
    uint32_t *panel = (uint32_t *)job->weight->panels + first * job->weight->units;
    for (int64_t at = 0; at < k; at += PACK_K) {
        int64_t some = k - at < PACK_K ? k - at : PACK_K;
        for (int row = 0; row < count; row++) {
            cpu_source_read(job->source, (first + row) * k + at, some, numbers);
            kernels->to_act(rows + (size_t)(row * some) * kernels->act_bytes, numbers, some);
        }
        kernels->pack_rows(panel + at * (int64_t)kernels->act_bytes / 4 * kernels->panel, rows,
                           some, count, some, kernels->panel);
    }
}

/* A convolution puts eight pixels' windows beside the results, or more when there is room. */
static enum rl_rc grow_scratch(struct ops_ctx *ctx, int64_t k, struct rl_err *err)
{
    size_t need = CPU_TILE * sizeof(float) + (size_t)k * 8 * ctx->kernels->act_bytes;
    void *grown = NULL;
    need = (need + CPU_ALIGN - 1) / CPU_ALIGN * CPU_ALIGN;
    if (need <= ctx->scratch_bytes)
        return RL_OK;
    enum rl_rc rc = cpu_alloc(ctx, need * (size_t)threads_count(ctx->threads), &grown, err);
    if (rc != RL_OK)
        return rc;
    cpu_free(ctx, ctx->scratch);
    ctx->scratch = grown;
    ctx->scratch_bytes = need;
    return RL_OK;
}

enum rl_rc cpu_weight_new(struct ops_ctx *ctx, const struct ops_source *source,
                          struct ops_weight **ret_weight, struct rl_err *err)
{
    int64_t number = (int64_t)ctx->kernels->act_bytes, panel = ctx->kernels->panel;
    int64_t panels = (source->rows + panel - 1) / panel, units = (source->cols * number + 3) / 4;
    void *head = NULL, *memory = NULL;
    enum rl_rc rc = grow_scratch(ctx, source->cols, err);
    if (rc == RL_OK)
        rc = cpu_alloc(ctx, sizeof(struct ops_weight), &head, err);
    if (rc != RL_OK)
        return rc;
    rc = cpu_alloc(ctx, (size_t)(panels * panel) * (size_t)units * 4, &memory, err);
    if (rc != RL_OK) {
        cpu_free(ctx, head);
        return rc;
    }
    struct ops_weight *weight = head;
    *weight =
        (struct ops_weight){.n = source->rows, .k = source->cols, .panels = memory, .units = units};
    struct pack_job job = {.ctx = ctx, .source = source, .weight = weight};
    threads_run(ctx->threads, panels, pack_panel, &job);
    *ret_weight = weight;
    return RL_OK;
}

void cpu_weight_free(struct ops_ctx *ctx, struct ops_weight *weight)
{
    if (!weight)
        return;
    cpu_free(ctx, weight->panels);
    cpu_free(ctx, weight->rows);
    cpu_free(ctx, weight);
}
