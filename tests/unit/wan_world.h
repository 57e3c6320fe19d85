/* What the tests of the networks share: models (the tiny one of tests/unit/wan, and the starter
 * where the tree has its weights), what PyTorch says that they compute, and the implementations to
 * hold against it. */
#ifndef TEST_WAN_WORLD_H
#define TEST_WAN_WORLD_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/wan/cpu/cpu.h"
#include "engine/wan/model.h"
#include "engine/wan/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How far a result may be from PyTorch's, as RMS of the difference over RMS of the result. Both
 * sides of the plain forms are f32 and only sum in another order. bf16 keeps 8 bits: each operand
 * of a product is off by up to 0.2 %, and the tiny model's random layers hand that on through some
 * twenty products without averaging much of it away. */
#define PLAIN_ERROR 1e-5
#define BF16_ERROR  3e-2

struct world {
    const struct ops *ops;
    struct ops_ctx *ctx;
    struct wan_model *model;
    struct safetensors *expected;
    double error;   /* allowed */
    size_t at_open; /* bytes: what the context keeps for itself */
};

static inline void must(enum rl_rc rc, const struct rl_err *err)
{
    if (rc != RL_OK)
        fail_msg("%s: %s", rl_code_name(rc), err->reason);
}

static inline void world_open_model(struct world *w, const struct ops *ops, const char *folder,
                                    const char *expected)
{
    struct rl_err err = {0};
    *w = (struct world){.ops = ops, .error = ops->act_bytes == 2 ? BF16_ERROR : PLAIN_ERROR};
    size_t peak;
    must(ops->open(0, 1, &w->ctx, &err), &err);
    ops->memory(w->ctx, false, &w->at_open, &peak);
    must(wan_model_open(folder, &w->model, &err), &err);
    must(safetensors_open(expected, &w->expected, &err), &err);
}

static inline void world_open(struct world *w, const struct ops *ops)
{
    world_open_model(w, ops, WAN_TINY, WAN_TINY "/expected.safetensors");
}

/* Nothing may be left on the device but what was there at first. */
static inline void world_close(struct world *w)
{
    size_t now, peak;
    w->ops->memory(w->ctx, false, &now, &peak);
    assert_int_equal(now, w->at_open);
    safetensors_close(w->expected);
    wan_model_close(w->model);
    w->ops->close(w->ctx);
}

static inline const struct tensor *expected(const struct world *w, const char *name)
{
    const struct tensor *t = safetensors_find(w->expected, name);
    if (!t)
        fail_msg("no tensor %s", name);
    return t;
}

/* A copy in aligned memory; free it. */
static inline void *values(const struct world *w, const char *name, size_t *ret_count)
{
    const struct tensor *t = expected(w, name);
    void *copy = malloc(t->bytes + 1);
    assert_non_null(copy);
    memcpy(copy, t->data, t->bytes);
    if (ret_count)
        *ret_count = t->bytes / 4; /* f32 and i32 alone */
    return copy;
}

static inline void assert_close(const struct world *w, const char *name, const float *got,
                                const float *want, size_t n)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(got[i]))
            fail_msg("%s over %s: [%zu] is %g", name, w->ops->name, i, (double)got[i]);
        difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += (double)want[i] * want[i];
    }
    double error = sqrt(difference / size);
    print_message("%-12s over %-9s off by %.2g\n", name, w->ops->name, error);
    if (!(error <= w->error))
        fail_msg("%s over %s is off by %g, %g is allowed", name, w->ops->name, error, w->error);
}

static inline void *on_device(const struct world *w, const void *host, size_t bytes)
{
    struct rl_err err = {0};
    void *mem = NULL;
    must(w->ops->alloc(w->ctx, bytes, &mem, &err), &err);
    if (host)
        must(w->ops->upload(w->ctx, mem, host, bytes, &err), &err);
    return mem;
}

/* n act elements on the device as f32 on the host; free both. */
static inline float *act_values(const struct world *w, const void *act, size_t n)
{
    struct rl_err err = {0};
    float *f32 = on_device(w, NULL, n * sizeof *f32), *host = malloc(n * sizeof *host);
    assert_non_null(host);
    w->ops->to_f32(w->ctx, f32, act, (int64_t)n);
    must(w->ops->download(w->ctx, host, f32, n * sizeof *host, &err), &err);
    w->ops->free(w->ctx, f32);
    return host;
}

/* The other way. */
static inline void *to_act(const struct world *w, const float *host, size_t n)
{
    float *f32 = on_device(w, host, n * sizeof *f32);
    void *act = on_device(w, NULL, n * w->ops->act_bytes);
    w->ops->to_act(w->ctx, act, f32, (int64_t)n);
    w->ops->free(w->ctx, f32);
    return act;
}

static inline void over_both(const struct ops *ops, bool tiny_alone,
                             void (*test)(const struct world *w))
{
    static const struct {
        const char *folder, *expected;
    } models[] = {{WAN_TINY, WAN_TINY "/expected.safetensors"},
                  {WAN_STARTER, WAN_TINY "/starter.safetensors"}};
    for (size_t m = 0; ops && m < (tiny_alone ? 1 : RL_ARRAY_LEN(models)); m++) {
        struct world w;
        world_open_model(&w, ops, models[m].folder, models[m].expected);
        print_message("%s\n", wan_model_config(w.model)->name);
        test(&w);
        world_close(&w);
    }
}

/* Runs the test with both models over the plain forms and over everything this CPU can do. slow:
 * the starter only over the best of that and over what every CPU can do; not at all where each
 * instruction is watched (packaging/check): there it would take minutes and walk no other line. */
static inline void over_all(bool slow, void (*test)(const struct world *w))
{
    const bool watched = getenv("REELD_WATCHED");
    over_both(ops_reference(), slow, test);
    for (size_t level = 0; level < cpu_levels(); level++) {
        const char *name;
        const struct ops *ops = cpu_table(level, &name);
        print_message("%s: %s\n", name, ops ? "" : "not on this CPU");
        bool ends = ops == ops_cpu() || level + 1 == cpu_levels();
        over_both(ops, slow && (watched || !ends), test);
    }
}

#endif
