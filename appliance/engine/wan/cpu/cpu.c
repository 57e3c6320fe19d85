/* The CPU's tables of operators: one for each set of inner loops, since act_bytes differs, and the
 * choice among them by what the processor has. A context owns its threads and their scratch. */
#include "engine/wan/cpu/cpu.h"

#include <sched.h>

#define GRAIN       16384 /* numbers: some microseconds, about what waking a thread costs */
#define THREADS_MAX 256

static int cores(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < THREADS_MAX ? count : THREADS_MAX;
}

static void cpu_close(struct ops_ctx *ctx)
{
    if (!ctx)
        return;
    threads_free(ctx->threads);
    cpu_free(ctx, ctx->scratch);
    free(ctx);
}

static enum rl_rc open_with(const struct kernels *kernels, int threads, struct ops_ctx **ret_ctx,
                            struct rl_err *err)
{
    int count = threads > 0 ? threads : cores();
    void *scratch = NULL;
    struct ops_ctx *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    ctx->kernels = kernels;
    count = count < THREADS_MAX ? count : THREADS_MAX;
    enum rl_rc rc = threads_new(count, &ctx->threads, err);
    if (rc == RL_OK)
        rc = cpu_alloc(ctx, (size_t)count * CPU_SCRATCH, &scratch, err);
    if (rc != RL_OK) {
        cpu_close(ctx);
        return rc;
    }
    ctx->scratch = scratch;
    ctx->scratch_bytes = CPU_SCRATCH;
    *ret_ctx = ctx;
    return RL_OK;
}

struct share {
    int64_t rows, chunk;
    void (*task)(const void *job, int64_t first, int64_t end);
    const void *job;
};

static void share_chunk(void *arg, int64_t i, int worker)
{
    const struct share *share = arg;
    int64_t first = i * share->chunk, end = first + share->chunk;
    (void)worker;
    share->task(share->job, first, end < share->rows ? end : share->rows);
}

void cpu_share(const struct ops_ctx *ctx, int64_t rows, int64_t numbers_per_row,
               void (*task)(const void *job, int64_t first, int64_t end), const void *job)
{
    struct share share = {.rows = rows, .task = task, .job = job};
    share.chunk = numbers_per_row < GRAIN ? GRAIN / (numbers_per_row > 0 ? numbers_per_row : 1) : 1;
    threads_run(ctx->threads, (rows + share.chunk - 1) / share.chunk, share_chunk, &share);
}

static enum rl_rc open_lanes(int device, int threads, struct ops_ctx **ret_ctx, struct rl_err *err)
{
    (void)device;
    return open_with(&kernels_lanes, threads, ret_ctx, err);
}

static enum rl_rc open_blas(int device, int threads, struct ops_ctx **ret_ctx, struct rl_err *err)
{
    (void)device;
    return open_with(cpu_blas(), threads, ret_ctx, err); /* the table is given out when there */
}

#if defined(__x86_64__)

static enum rl_rc open_avx2(int device, int threads, struct ops_ctx **ret_ctx, struct rl_err *err)
{
    (void)device;
    return open_with(&kernels_avx2, threads, ret_ctx, err);
}

static enum rl_rc open_avx512(int device, int threads, struct ops_ctx **ret_ctx, struct rl_err *err)
{
    (void)device;
    return open_with(&kernels_avx512, threads, ret_ctx, err);
}

static enum rl_rc open_bf16(int device, int threads, struct ops_ctx **ret_ctx, struct rl_err *err)
{
    (void)device;
    return open_with(&kernels_bf16, threads, ret_ctx, err);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_bf16(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512bf16");
}

#endif

static bool has_blas(void)
{
    return cpu_blas() != NULL;
}

static bool always(void)
{
    return true;
}

#define TABLE(open_fn, bytes)                                                                      \
    {                                                                                              \
        .name = "cpu", .act_bytes = (bytes), .open = (open_fn), .close = cpu_close,                \
        .sync = cpu_sync, .memory = cpu_memory, .alloc = cpu_alloc, .free = cpu_free,              \
        .upload = cpu_upload, .download = cpu_download, .copy = cpu_copy, .zero = cpu_zero,        \
        .to_act = cpu_to_act, .to_f32 = cpu_to_f32, .weight_new = cpu_weight_new,                  \
        .weight_free = cpu_weight_free, .gemm = cpu_gemm, .attention = cpu_attention,              \
        .gemm_f32 = cpu_gemm_f32, .conv = cpu_conv, .norm_modulate = cpu_norm_modulate,            \
        .norm_affine = cpu_norm_affine, .rms_norm = cpu_rms_norm, .rms_rope = cpu_rms_rope,        \
        .channel_norm = cpu_channel_norm, .combine = cpu_combine, .patchify = cpu_patchify,        \
        .unpatchify = cpu_unpatchify, .noise = cpu_noise, .to_rgb = cpu_to_rgb,                    \
    }

/* Best first. */
static const struct level {
    const char *name;
    bool (*usable)(void);
    struct ops ops;
} levels[] = {
#if defined(__x86_64__)
    {"AVX512-BF16", has_bf16, TABLE(open_bf16, 2)}, {"AVX-512", has_avx512, TABLE(open_avx512, 4)},
    {"AVX2", has_avx2, TABLE(open_avx2, 4)},
#endif
    {"OpenBLAS", has_blas, TABLE(open_blas, 4)},    {"plain vectors", always, TABLE(open_lanes, 4)},
};

const struct ops *cpu_table(size_t level, const char **ret_name)
{
    if (ret_name)
        *ret_name = levels[level].name;
    return levels[level].usable() ? &levels[level].ops : NULL;
}

size_t cpu_levels(void)
{
    return RL_ARRAY_LEN(levels);
}

const struct ops *ops_cpu(void)
{
    size_t level = 0;
    while (!levels[level].usable()) /* the last one always is */
        level++;
    return &levels[level].ops;
}
