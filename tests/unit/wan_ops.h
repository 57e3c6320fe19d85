/* What the tests of the operators share: every set of inner loops that this machine has, with 1, 2
 * and 5 threads, against the plain forms. Buffers are of the exact size, so that the sanitizer sees
 * a step beyond. */
#ifndef WAN_OPS_H
#define WAN_OPS_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "engine/wan/cpu/cpu.h"

struct side {
    const struct ops *ops;
    struct ops_ctx *ctx;
};

static const int thread_counts[] = {1, 2, 5};
#define SIDES RL_ARRAY_LEN(thread_counts)

struct world {
    const char *name;
    struct side reference, fast[SIDES];
    bool bf16;
};

static inline bool world_open(struct world *w, size_t level)
{
    struct rl_err err;
    const struct ops *ops = cpu_table(level, &w->name);
    w->reference.ops = ops_reference();
    if (!ops)
        return false;
    w->bf16 = ops->act_bytes == 2;
    assert_int_equal(w->reference.ops->open(0, 1, &w->reference.ctx, &err), RL_OK);
    for (size_t i = 0; i < SIDES; i++) {
        w->fast[i].ops = ops;
        assert_int_equal(ops->open(0, thread_counts[i], &w->fast[i].ctx, &err), RL_OK);
    }
    return true;
}

static inline void world_close(struct world *w)
{
    w->reference.ops->close(w->reference.ctx);
    for (size_t i = 0; i < SIDES; i++)
        w->fast[i].ops->close(w->fast[i].ctx);
}

/* test(world) over all that there is */
static inline void on_every_level(void (*test)(const struct world *w))
{
    for (size_t level = 0; level < cpu_levels(); level++) {
        struct world w;
        if (!world_open(&w, level))
            continue;
        test(&w);
        world_close(&w);
    }
}

/* ---- numbers ---- */

static inline void *exact(size_t bytes)
{
    void *mem = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(mem);
    return mem;
}

static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

/* Uniform in ±size, with 8 bits of mantissa, so that bf16 holds them exactly. Returns new. */
static inline float *numbers(int64_t n, float size, uint32_t seed)
{
    float *x = exact((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        x[i] = ((float)next_random(&seed) / 8388608.0F - 1) * size;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0xffff0000U;
        memcpy(x + i, &bits, sizeof bits);
    }
    return x;
}

/* The same as act. Returns new. */
static inline void *as_act(const struct side *s, const float *x, int64_t n)
{
    void *y = exact((size_t)n * s->ops->act_bytes);
    s->ops->to_act(s->ctx, y, x, n);
    return y;
}

static inline void from_act(const struct side *s, float *y, const void *x, int64_t n)
{
    s->ops->to_f32(s->ctx, y, x, n);
}

static inline struct ops_weight *as_weight(const struct side *s, const float *w, int64_t rows,
                                           int64_t cols)
{
    struct rl_err err;
    struct ops_weight *weight = NULL;
    const struct ops_source source = {
        .data = w, .type = OPS_F32, .rows = rows, .cols = cols, .scale = 1};
    assert_int_equal(s->ops->weight_new(s->ctx, &source, &weight, &err), RL_OK);
    return weight;
}

/* ---- comparison ---- */

/* op(side, args, y) fills y [n] with its result as f32. The fast forms give the same bits with any
 * number of threads, and those of the reference within relative · |y| + absolute. */
static inline void compare(const struct world *w, const char *what,
                           void (*op)(const struct side *s, const void *args, float *y),
                           const void *args, int64_t n, double relative, double absolute)
{
    float *want = exact((size_t)n * sizeof *want), *got[SIDES];
    op(&w->reference, args, want);
    for (size_t i = 0; i < SIDES; i++) {
        got[i] = exact((size_t)n * sizeof *want);
        op(&w->fast[i], args, got[i]);
        if (memcmp(got[i], got[0], (size_t)n * sizeof *want) != 0)
            fail_msg("%s, %s: other bits with %d threads", w->name, what, thread_counts[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)got[0][i] - want[i]);
        if (!(off <= relative * fabs((double)want[i]) + absolute))
            fail_msg("%s, %s: number %lld of %lld is %.9g, not %.9g", w->name, what, (long long)i,
                     (long long)n, (double)got[0][i], (double)want[i]);
    }
    for (size_t i = 0; i < SIDES; i++)
        free(got[i]);
    free(want);
}

/* Half of the last bit of a result that is stored as act: bf16 has 8 bits, f32 24. */
static inline double act_rounding(const struct world *w)
{
    return w->bf16 ? 0x1p-8 : 0x1p-23;
}

#endif
