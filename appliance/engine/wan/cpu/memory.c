/* Memory of a context: aligned blocks that know their size, so that what is in use can be told.
 * The memory of this "device" is the host's: upload, download and copy are memcpy. All calls of a
 * context come from one thread. */
#include "engine/wan/cpu/cpu.h"

#include <string.h>

/* Before each block, as large as the alignment. */
struct block {
    size_t bytes; /* with this head */
};

_Static_assert(sizeof(struct block) <= CPU_ALIGN, "the head fits before the block");

enum rl_rc cpu_alloc(struct ops_ctx *ctx, size_t bytes, void **ret_mem, struct rl_err *err)
{
    if (bytes > SIZE_MAX / 2)
        return rl_fail(err, RL_NO_MEMORY, "out of memory: %zu bytes asked for", bytes);
    size_t whole = CPU_ALIGN + (bytes + CPU_ALIGN - 1) / CPU_ALIGN * CPU_ALIGN;
    struct block *block = aligned_alloc(CPU_ALIGN, whole);
    if (!block)
        return rl_fail(err, RL_NO_MEMORY, "out of memory: %zu bytes asked for, %zu in use", bytes,
                       ctx->now);
    block->bytes = whole;
    ctx->now += whole;
    if (ctx->peak < ctx->now)
        ctx->peak = ctx->now;
    *ret_mem = (char *)block + CPU_ALIGN;
    /* cppcheck-suppress memleak ; cpu_free finds the block by what is handed out */
    return RL_OK;
}

void cpu_free(struct ops_ctx *ctx, void *mem)
{
    if (!mem)
        return;
    struct block *block = (struct block *)((char *)mem - CPU_ALIGN);
    ctx->now -= block->bytes;
    free(block);
}

enum rl_rc cpu_sync(struct ops_ctx *ctx, struct rl_err *err)
{
    (void)ctx; /* every call here ends with its work done */
    (void)err;
    return RL_OK;
}

void cpu_memory(struct ops_ctx *ctx, bool reset, size_t *ret_now, size_t *ret_peak)
{
    *ret_now = ctx->now;
    *ret_peak = ctx->peak;
    if (reset)
        ctx->peak = ctx->now;
}

enum rl_rc cpu_upload(struct ops_ctx *ctx, void *mem, const void *host, size_t bytes,
                      struct rl_err *err)
{
    (void)err;
    cpu_copy(ctx, mem, host, bytes);
    return RL_OK;
}

enum rl_rc cpu_download(struct ops_ctx *ctx, void *host, const void *mem, size_t bytes,
                        struct rl_err *err)
{
    (void)err;
    cpu_copy(ctx, host, mem, bytes);
    return RL_OK;
}

void cpu_copy(struct ops_ctx *ctx, void *to, const void *from, size_t bytes)
{
    (void)ctx;
    if (bytes > 0)
        memcpy(to, from, bytes);
}

void cpu_zero(struct ops_ctx *ctx, void *mem, size_t bytes)
{
    (void)ctx;
    if (bytes > 0)
        memset(mem, 0, bytes);
}
