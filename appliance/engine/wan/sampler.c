/* The samplers: a grid of σ, and per step one or two weighted sums of buffers. Owns the buffers of
 * its history: `last` is the latent before the newest prediction step (already corrected), m[0] the
 * newest and m[1] the second newest prediction of x0. Invariant: after k steps, m[0] belongs to
 * σ[k−1] and m[1] to σ[k−2]. */
#include "engine/wan/sampler.h"

#include <math.h>
#include <string.h>

#define SIGMA_TOP  0.999 /* of the Wan grid */
#define LAMBDA_MIN 1e-12 /* keeps the logarithm finite at both ends */

struct sampler {
    const struct ops *ops;
    struct ops_ctx *ctx;
    enum sampler_method method;
    int steps, step;
    int64_t n;
    float *last, *m[2];
    double sigma[SAMPLER_STEPS + 1];
};

bool sampler_method_parse(const char *name, enum sampler_method *ret_method)
{
    bool unipc = !strcmp(name, "unipc");
    if (!unipc && strcmp(name, "euler") != 0)
        return false;
    *ret_method = unipc ? SAMPLER_UNIPC : SAMPLER_EULER;
    return true;
}

bool sampler_grid_parse(const char *name, enum sampler_grid *ret_grid)
{
    bool wan = !strcmp(name, "wan");
    if (!wan && strcmp(name, "diffusers") != 0)
        return false;
    *ret_grid = wan ? SAMPLER_WAN : SAMPLER_DIFFUSERS;
    return true;
}

enum rl_rc sampler_new(const struct ops *ops, struct ops_ctx *ctx, enum sampler_method method,
                       enum sampler_grid grid, int steps, double shift, int64_t n,
                       struct sampler **ret_sampler, struct rl_err *err)
{
    if (steps < 1 || steps > SAMPLER_STEPS)
        return rl_fail_field(err, RL_INVALID_FIELD, "steps", "must be 1 to %d", SAMPLER_STEPS);
    struct sampler *s = calloc(1, sizeof *s);
    if (!s)
        return rl_fail(err, RL_NO_MEMORY, "sampler");
    *s = (struct sampler){.ops = ops, .ctx = ctx, .method = method, .steps = steps, .n = n};
    double top = grid == SAMPLER_WAN ? SIGMA_TOP : 1;
    for (int i = 0; i < steps; i++) {
        double even = top * (1 - (double)i / steps);
        s->sigma[i] = shift * even / (1 + (shift - 1) * even);
    }
    float **buffers[] = {&s->last, &s->m[0], &s->m[1]};
    for (size_t i = 0; i < RL_ARRAY_LEN(buffers); i++) {
        void *mem = NULL;
        enum rl_rc rc = ops->alloc(ctx, (size_t)n * sizeof(float), &mem, err);
        *buffers[i] = mem;
        if (rc != RL_OK) {
            sampler_free(s);
            return rc;
        }
        ops->zero(ctx, mem, (size_t)n * sizeof(float));
    }
    *ret_sampler = s;
    return RL_OK;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    s->ops->free(s->ctx, s->last);
    s->ops->free(s->ctx, s->m[0]);
    s->ops->free(s->ctx, s->m[1]);
    free(s);
}

int sampler_step(const struct sampler *s)
{
    return s->step;
}

double sampler_sigma(const struct sampler *s)
{
    return s->sigma[s->step];
}

int sampler_time(const struct sampler *s)
{
    int time = (int)(1000 * s->sigma[s->step]);
    return time > 999 ? 999 : time;
}

/* ---- the steps ---- */

static double lambda(double sigma)
{
    return log(fmax(1 - sigma, LAMBDA_MIN)) - log(fmax(sigma, LAMBDA_MIN));
}

/* y = Σ a[i]·x[i]; terms of factor 0 are left out. */
static void sum(const struct sampler *s, float *y, int count, const double *a,
                const float *const *x)
{
    const float *terms[4];
    float factors[4];
    int used = 0;
    for (int i = 0; i < count; i++)
        if (a[i] != 0) {
            terms[used] = x[i];
            factors[used++] = (float)a[i];
        }
    s->ops->combine(s->ctx, y, terms, factors, used, s->n);
}

/* The order that a step has: 1 at both ends. */
static int order_at(const struct sampler *s, int step)
{
    return step == 0 || step == s->steps - 1 ? 1 : 2;
}

/* x at σ[k] again, now that its x0 is known: from `last` at σ[k−1], of the order of that step. */
static void correct(const struct sampler *s, float *x, const float *x0)
{
    int k = s->step;
    double now = s->sigma[k], then = s->sigma[k - 1];
    double h = lambda(now) - lambda(then), e = expm1(-h), f = (1 - now) * e;
    double newest = 0.5, older = 0; /* of x0 − m[0] and of m[1] − m[0] */
    if (order_at(s, k - 1) == 2) {
        double r = (lambda(s->sigma[k - 2]) - lambda(then)) / h;
        double k1 = e / -h - 1, k2 = k1 / -h - 0.5, b1 = k1 / e, b2 = 2 * k2 / e;
        double rho = (b1 - b2) / (1 - r);
        newest = b1 - rho;
        older = rho / r;
    }
    sum(s, x, 4, (const double[]){now / then, -f * (1 - newest - older), -f * older, -f * newest},
        (const float *const[]){s->last, s->m[0], s->m[1], x0});
}

/* x at the next σ, from x and the newest predictions. */
static void predict(const struct sampler *s, float *x)
{
    int k = s->step;
    double now = s->sigma[k], next = s->sigma[k + 1];
    if (next <= 0) {
        s->ops->copy(s->ctx, x, s->m[0], (size_t)s->n * sizeof(float));
        return;
    }
    double h = lambda(next) - lambda(now), f = (1 - next) * expm1(-h), older = 0;
    if (order_at(s, k) == 2)
        older = 0.5 / ((lambda(s->sigma[k - 1]) - lambda(now)) / h);
    sum(s, x, 3, (const double[]){next / now, -f * (1 - older), -f * older},
        (const float *const[]){x, s->m[0], s->m[1]});
}

void sampler_advance(struct sampler *s, float *x, float *v)
{
    double now = s->sigma[s->step], next = s->sigma[s->step + 1];
    if (s->method == SAMPLER_EULER) {
        sum(s, x, 2, (const double[]){1, next - now}, (const float *const[]){x, v});
    } else {
        sum(s, v, 2, (const double[]){1, -now}, (const float *const[]){x, v}); /* x0 */
        if (s->step > 0)
            correct(s, x, v);
        float *oldest = s->m[1];
        s->m[1] = s->m[0];
        s->m[0] = oldest;
        s->ops->copy(s->ctx, s->m[0], v, (size_t)s->n * sizeof(float));
        s->ops->copy(s->ctx, s->last, x, (size_t)s->n * sizeof(float));
        predict(s, x);
    }
    s->step++;
}

/* ---- checkpoints ---- */

size_t sampler_state_bytes(const struct sampler *s)
{
    return 3 * (size_t)s->n * sizeof(float);
}

enum rl_rc sampler_save(const struct sampler *s, void *bytes, struct rl_err *err)
{
    size_t one = (size_t)s->n * sizeof(float);
    char *at = bytes;
    enum rl_rc rc = s->ops->download(s->ctx, at, s->last, one, err);
    for (int i = 0; i < 2 && rc == RL_OK; i++)
        rc = s->ops->download(s->ctx, at + (size_t)(i + 1) * one, s->m[i], one, err);
    return rc;
}

enum rl_rc sampler_restore(struct sampler *s, int step, const void *bytes, struct rl_err *err)
{
    size_t one = (size_t)s->n * sizeof(float);
    const char *at = bytes;
    if (step < 0 || step > s->steps)
        return rl_fail(err, RL_INVALID_FIELD, "step %d of %d", step, s->steps);
    enum rl_rc rc = s->ops->upload(s->ctx, s->last, at, one, err);
    for (int i = 0; i < 2 && rc == RL_OK; i++)
        rc = s->ops->upload(s->ctx, s->m[i], at + (size_t)(i + 1) * one, one, err);
    if (rc == RL_OK)
        s->step = step;
    return rc;
}
