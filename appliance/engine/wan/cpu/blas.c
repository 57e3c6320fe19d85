/* OpenBLAS, the floor: where there are no inner products of our own for the processor, its sgemm
 * serves, loaded by its soname when the first context opens, called with one thread from ours. The
 * table is written under pthread_once and only read afterwards; the library stays loaded. */
#include "engine/wan/cpu/cpu.h"

#include <dlfcn.h>
#include <pthread.h>

#define SONAME "libopenblas.so.0"

/* of cblas.h */
enum { ROW_MAJOR = 101, AS_IT_IS = 111 };
typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                      const float *a, int lda, const float *b, int ldb, float beta, float *c,
                      int ldc);

static struct kernels table;
static sgemm_fn *sgemm; /* NULL: not loaded */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* sgemm wants rows at least as far apart as they are long: a convolution's run goes pixel by
 * pixel. */
static void blas_multiply(const struct product *p)
{
    float beta = p->add ? 1 : 0;
    int64_t step = p->lda < p->k ? p->lda : p->k;
    if (p->runs == 0 && !p->add)
        for (int i = 0; i < p->rows; i++)
            for (int j = 0; j < p->cols; j++)
                p->c[i * p->ldc + j] = 0;
    for (int run = 0; run < p->runs; run++)
        for (int64_t at = 0; at < p->k; at += step, beta = 1) {
            int64_t k = p->k - at < step ? p->k - at : step;
            sgemm(ROW_MAJOR, AS_IT_IS, AS_IT_IS, p->rows, p->cols, (int)k, 1,
                  (const float *)p->a[run] + at, (int)p->lda,
                  (const float *)p->b[run] + at * BLOCK_COLS, BLOCK_COLS, beta, p->c, (int)p->ldc);
        }
}

static void load(void)
{
    void *library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
    void (*set_threads)(int) = NULL;
    sgemm_fn *found = NULL;
    if (!library)
        return;
    *(void **)&set_threads = dlsym(library, "openblas_set_num_threads");
    *(void **)&found = dlsym(library, "cblas_sgemm");
    if (!set_threads || !found)
        return;
    set_threads(1);
    table = kernels_lanes;
    table.panel = BLOCK_COLS;
    table.any_cut = false; /* the edges of a matrix have kernels of their own */
    table.multiply = blas_multiply;
    sgemm = found;
}

const struct kernels *cpu_blas(void)
{
    (void)pthread_once(&once, load); /* cannot fail with a valid control */
    return sgemm ? &table : NULL;
}
