/* The CPU's operators, one thread: GFLOP/s of products and convolutions in the shapes of the
 * starter model and of Wan 1.3B, against the best CPU library at hand on the same cases (OpenBLAS
 * in f32; oneDNN in bf16 by way of bench_ops_peer.py, whose lines come on stdin), attention against
 * the products it consists of, and what a second thread brings. */
#include "bench.h"

#include <dlfcn.h>
#include <time.h>

#include "engine/wan/cpu/cpu.h"

#define RUNS 12

struct sizes {
    const char
        *kind; /* "gemm": m n k; "conv": h w ci co, window 3 x 3 x 3; attention: l heads hd */
    int64_t at[4];
};

static const struct sizes cases[] = {{"gemm", {80, 256, 256}},     {"gemm", {80, 1024, 256}},
                                     {"gemm", {80, 256, 1024}},    {"gemm", {320, 768, 256}},
                                     {"gemm", {1560, 1536, 1536}}, {"gemm", {1560, 8960, 1536}},
                                     {"gemm", {1560, 1536, 8960}}, {"conv", {64, 64, 16, 16}},
                                     {"conv", {32, 32, 32, 32}},   {"conv", {60, 104, 384, 384}}};
static const struct sizes attentions[] = {
    {"attention", {80, 2, 128}}, {"attention", {1560, 12, 128}}, {"attention", {3120, 1, 384}}};

static double flop(const struct sizes *s)
{
    const int64_t *at = s->at;
    if (s->kind[0] == 'g')
        return 2.0 * (double)(at[0] * at[1] * at[2]);
    if (s->kind[0] == 'c')
        return 2.0 * 27 * (double)(at[0] * at[1] * at[2] * at[3]);
    return 4.0 * (double)(at[0] * at[0] * at[1] * at[2]);
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now); /* both clocks exist */
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The shortest of a few runs within a third of a second; flop per second / 10⁹. */
static double measure(const struct sizes *s, clockid_t clock, void (*run)(void *), void *arg)
{
    run(arg);
    double begun = seconds(clock);
    run(arg);
    double shortest = seconds(clock) - begun, spent = shortest;
    int count = shortest < 0.02 ? (int)(0.02 / (shortest + 1e-7)) + 1 : 1;
    for (int i = 0; i < RUNS && spent < 0.3; i++) {
        begun = seconds(clock);
        for (int j = 0; j < count; j++)
            run(arg);
        double took = seconds(clock) - begun;
        spent += took;
        shortest = took / count < shortest ? took / count : shortest;
    }
    return flop(s) / shortest / 1e9;
}

static void *buffer(int64_t numbers)
{
    float *mem = malloc((size_t)numbers * sizeof *mem);
    if (!mem)
        bench_die("buffer", "out of memory");
    for (int64_t i = 0; i < numbers; i++)
        mem[i] = (float)(i % 61) / 61 - 0.5F;
    return mem;
}

/* ---- ours ---- */

struct ours {
    const struct ops *ops;
    struct ops_ctx *ctx;
    const struct sizes *s;
    struct ops_weight *w;
    void *x, *y;
};

static void run_ours(void *arg)
{
    const struct ours *o = arg;
    const int64_t *at = o->s->at;
    const void *frames[] = {o->x, o->x, o->x};
    const struct ops_conv shape = {.in = frames,
                                   .h = (int)at[0],
                                   .w = (int)at[1],
                                   .ci = (int)at[2],
                                   .co = (int)at[3],
                                   .kt = 3,
                                   .kh = 3,
                                   .kw = 3};
    if (o->s->kind[0] == 'g')
        o->ops->gemm(o->ctx, o->y, o->x, o->w, NULL, NULL, at[0], OPS_STORE_ACT);
    else if (o->s->kind[0] == 'c')
        o->ops->conv(o->ctx, o->y, &shape, o->w, NULL, OPS_STORE_ACT);
    else
        o->ops->attention(o->ctx, o->y, o->x, o->x, o->x, at[0], at[0], (int)at[1], (int)at[2],
                          0.088F, NULL, 0);
}

/* Time is that of the processor, of all threads together, unless said otherwise. */
static double ours(const struct ops *ops, const struct sizes *s, int threads, clockid_t clock)
{
    struct rl_err err;
    struct ours o = {.ops = ops, .s = s};
    const int64_t *at = s->at;
    int64_t in = at[0] * (s->kind[0] == 'g' ? at[2] : at[1] * at[2]);
    int64_t out = at[0] * at[1] * (s->kind[0] == 'g' ? 1 : s->kind[0] == 'c' ? at[3] : at[2]);
    struct ops_source source = {.rows = at[1], .cols = at[2], .scale = 1};
    if (s->kind[0] == 'c')
        source = (struct ops_source){.rows = at[3], .cols = 27 * at[2], .scale = 1};
    void *weights = buffer(source.rows * source.cols), *x = buffer(in);
    source.data = weights;
    o.x = buffer(in);
    o.y = buffer(out);
    bench_ok(ops->open(0, threads, &o.ctx, &err), &err);
    ops->to_act(o.ctx, o.x, x, in);
    bench_ok(ops->weight_new(o.ctx, &source, &o.w, &err), &err);
    double gflops = measure(s, clock, run_ours, &o);
    ops->weight_free(o.ctx, o.w);
    ops->close(o.ctx);
    free(weights);
    free(x);
    free(o.x);
    free(o.y);
    return gflops;
}

/* ---- peers ---- */

typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                      const float *a, int lda, const float *b, int ldb, float beta, float *c,
                      int ldc);

struct peer {
    sgemm_fn *sgemm;
    const struct sizes *s;
    float *x, *w, *y;
};

static void run_openblas(void *arg)
{
    const struct peer *p = arg;
    int m = (int)p->s->at[0], n = (int)p->s->at[1], k = (int)p->s->at[2];
    p->sgemm(101, 111, 112, m, n, k, 1, p->x, k, p->w, k, 0, p->y, n);
}

static double openblas(const struct sizes *s)
{
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    void (*set_threads)(int) = NULL;
    struct peer p = {.s = s};
    if (!library || s->kind[0] != 'g')
        return 0;
    *(void **)&set_threads = dlsym(library, "openblas_set_num_threads");
    *(void **)&p.sgemm = dlsym(library, "cblas_sgemm");
    if (!set_threads || !p.sgemm)
        return 0;
    set_threads(1);
    p.x = buffer(s->at[0] * s->at[2]);
    p.w = buffer(s->at[1] * s->at[2]);
    p.y = buffer(s->at[0] * s->at[1]);
    double gflops = measure(s, CLOCK_PROCESS_CPUTIME_ID, run_openblas, &p);
    free(p.x);
    free(p.w);
    free(p.y);
    return gflops;
}

/* oneDNN's figure for a case among the lines of bench_ops_peer.py; 0 when it has none. */
static double onednn(const char *lines, const struct sizes *s)
{
    char key[100];
    int len = s->kind[0] == 'g' ? snprintf(key, sizeof key, "gemm %d %d %d ", (int)s->at[0],
                                           (int)s->at[1], (int)s->at[2])
                                : snprintf(key, sizeof key, "conv %d %d %d %d ", (int)s->at[0],
                                           (int)s->at[1], (int)s->at[2], (int)s->at[3]);
    const char *found = strstr(lines, key);
    return found ? strtod(found + len, NULL) : 0;
}

static void title(char *text, size_t size, const struct sizes *s, const char *level)
{
    int len = s->kind[0] == 'c'
                  ? snprintf(text, size, "conv 3x3x3 of %d x %d, %d to %d channels, %s",
                             (int)s->at[0], (int)s->at[1], (int)s->at[2], (int)s->at[3], level)
                  : snprintf(text, size,
                             s->kind[0] == 'g' ? "gemm %d x %d x %d, %s"
                                               : "attention of %d, %d heads of %d, %s",
                             (int)s->at[0], (int)s->at[1], (int)s->at[2], level);
    if (len < 0 || (size_t)len >= size)
        bench_die("title", "too long");
}

static const struct ops *best_table(const char **ret_name)
{
    size_t level = 0;
    while (cpu_table(level, ret_name) != ops_cpu())
        level++;
    return ops_cpu();
}

static void against(const struct ops *ops, const char *name, const char *lines,
                    const struct sizes *s)
{
    char text[120];
    double mine = ours(ops, s, 1, CLOCK_PROCESS_CPUTIME_ID), blas = openblas(s),
           dnn = lines ? onednn(lines, s) : 0;
    double peer = blas > dnn ? blas : dnn;
    title(text, sizeof text, s, name);
    if (peer > 0)
        bench_line(text, ">= 0.7 of it", mine >= 0.7 * peer, "%.0f GFLOP/s, %.2f of %s's %.0f",
                   mine, mine / peer, peer > blas ? "oneDNN" : "OpenBLAS", peer);
    else
        bench_line(text, "no peer here", true, "%.0f GFLOP/s", mine);
}

/* All cases with the best inner loops; the starter's and Wan's first product with the others that
 * have kernels of their own (OpenBLAS would be compared with itself). */
static void against_peers(const char *lines)
{
    const char *name;
    const struct ops *best = best_table(&name);
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++)
        against(best, name, lines, &cases[i]);
    for (size_t level = 0; level < cpu_levels(); level++) {
        const struct ops *ops = cpu_table(level, &name);
        if (ops && ops != best && strncmp(name, "AVX", 3) == 0) {
            against(ops, name, NULL, &cases[0]);
            against(ops, name, NULL, &cases[4]);
        }
    }
}

static void alone(void)
{
    const char *name;
    char text[120];
    const struct ops *ops = best_table(&name);
    double product = ours(ops, &cases[4], 1, CLOCK_PROCESS_CPUTIME_ID);
    for (size_t i = 0; i < RL_ARRAY_LEN(attentions); i++) {
        double mine = ours(ops, &attentions[i], 1, CLOCK_PROCESS_CPUTIME_ID);
        title(text, sizeof text, &attentions[i], name);
        bench_line(text, ">= 0.5 of the large gemm", mine >= 0.5 * product, "%.0f GFLOP/s, %.2f",
                   mine, mine / product);
    }
    for (size_t i = 1; i < RL_ARRAY_LEN(cases); i += 3) {
        double one = ours(ops, &cases[i], 1, CLOCK_PROCESS_CPUTIME_ID);
        double two = ours(ops, &cases[i], 2, CLOCK_PROCESS_CPUTIME_ID);
        double clock = ours(ops, &cases[i], 2, CLOCK_MONOTONIC);
        title(text, sizeof text, &cases[i], "2 threads");
        bench_line(
            text, ">= 0.75 of one thread per CPU second", two >= 0.75 * one,
            "%.2f of one per CPU second; %.0f GFLOP/s by the clock, as busy as the machine is",
            two / one, clock);
    }
}

/* `bench_ops cases` prints what the peer should measure; without, its lines come on stdin. */
int main(int argc, char **argv)
{
    char lines[4096];
    (void)argv;
    for (size_t i = 0; argc > 1 && i < RL_ARRAY_LEN(cases); i++) {
        const int64_t *at = cases[i].at;
        printf(cases[i].kind[0] == 'g' ? "gemm %d %d %d\n" : "conv %d %d %d %d\n", (int)at[0],
               (int)at[1], (int)at[2], (int)at[3]);
    }
    if (argc > 1)
        return 0;
    size_t n = fread(lines, 1, sizeof lines - 1, stdin);
    lines[n] = '\0';
    if (n == 0)
        (void)fprintf(stderr, "ops: no PyTorch here, so no oneDNN to compare with\n");
    against_peers(lines);
    alone();
    return 0;
}
