/* What the operators that multiply share: cutting along k, and the way out of results. */
#include "engine/wan/cpu/cpu.h"

/* Bytes along k at a time: BLOCK_COLS columns of them stay in a second-level cache. */
#define DEPTH_BYTES 3072

/* One run at a time, in pieces. */
static void multiply_deep(const struct kernels *kernels, const struct product *whole)
{
    int64_t number = (int64_t)kernels->act_bytes, depth = DEPTH_BYTES / number;
    struct product p = *whole;
    for (int run = 0; run < whole->runs; run++)
        for (int64_t at = 0; at < whole->k; at += depth) {
            const void *a = (const char *)whole->a[run] + at * number;
            const void *b = (const char *)whole->b[run] + at * number * kernels->panel;
            p.a = &a;
            p.b = &b;
            p.runs = 1;
            p.k = whole->k - at < depth ? whole->k - at : depth;
            kernels->multiply(&p);
            p.add = true;
        }
}

void cpu_multiply(const struct kernels *kernels, const struct product *whole)
{
    int64_t depth = DEPTH_BYTES / (int64_t)kernels->act_bytes;
    if (whole->k > depth && whole->runs > 0) {
        multiply_deep(kernels, whole);
        return;
    }
    struct product p = *whole;
    int most = p.k > 0 ? (int)(depth / p.k) : 1;
    for (int run = 0; run < whole->runs || run == 0; run += most) { /* no run at all: zeros */
        p.a = whole->a + run;
        p.b = whole->b + run;
        p.runs = whole->runs - run < most ? whole->runs - run : most;
        kernels->multiply(&p);
        p.add = true;
    }
}

void cpu_finish(const struct kernels *kernels, struct finish finish, int64_t row, int64_t col)
{
    bool is_f32 = finish.epilogue == OPS_STORE_F32 || finish.epilogue == OPS_SILU_F32 ||
                  finish.epilogue == OPS_ADD_F32 || finish.epilogue == OPS_ADD_GATED_F32;
    size_t number = is_f32 ? sizeof(float) : kernels->act_bytes;
    finish.y = (char *)finish.y + (size_t)(row * finish.ldy + col) * number;
    finish.cols = finish.ldy - col < BLOCK_COLS ? (int)(finish.ldy - col) : BLOCK_COLS;
    finish.bias = finish.bias ? finish.bias + col : NULL;
    finish.gate = finish.gate ? finish.gate + col : NULL;
    kernels->finish(&finish);
}
