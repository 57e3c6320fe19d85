/* Lists of what lies on the device, and the first error. Convolutions are turned round here, once:
 * files have the taps innermost, products want the channels there. One thread. */
#include "engine/wan/params.h"

#include <stdarg.h>
#include <string.h>

#define NAME_BYTES 160

struct item {
    enum { ITEM_ROOM, ITEM_WEIGHT, ITEM_HOST } kind;
    void *it;
};

struct params {
    const struct ops *ops;
    struct ops_ctx *ctx;
    const struct wan_model *model;
    enum wan_part part;
    const struct watch *watch; /* NULL: nobody waits */
    struct item *items;
    size_t count, room;
    struct rl_err err; /* code RL_OK: none yet */
};

struct params *params_new(const struct ops *ops, struct ops_ctx *ctx, const struct wan_model *model,
                          enum wan_part part, const struct watch *watch)
{
    struct params *p = calloc(1, sizeof *p);
    if (p)
        *p = (struct params){.ops = ops, .ctx = ctx, .model = model, .part = part, .watch = watch};
    return p;
}

void params_free(struct params *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->count; i++) {
        switch (p->items[i].kind) {
        case ITEM_ROOM:
            p->ops->free(p->ctx, p->items[i].it);
            break;
        case ITEM_WEIGHT:
            p->ops->weight_free(p->ctx, p->items[i].it);
            break;
        case ITEM_HOST:
            free(p->items[i].it);
            break;
        }
    }
    free(p->items);
    free(p);
}

enum rl_rc params_ok(struct params *p, struct rl_err *err)
{
    p->watch = NULL;
    if (p->err.code != RL_OK && err)
        *err = p->err;
    return p->err.code;
}

/* Room in the list for one more; false after the first error. */
static bool ready(struct params *p)
{
    if (p->err.code != RL_OK)
        return false;
    if (!watch_beat(p->watch, (int)p->count, 0)) {
        (void)rl_fail(&p->err, RL_CANCELED, "stopped while loading");
        return false;
    }
    if (p->count < p->room)
        return true;
    size_t room = p->room ? 2 * p->room : 64;
    struct item *items = realloc(p->items, room * sizeof *items);
    if (!items) {
        (void)rl_fail(&p->err, RL_NO_MEMORY, "list of tensors");
        return false;
    }
    p->items = items;
    p->room = room;
    return true;
}

void *params_room(struct params *p, size_t bytes, bool zero)
{
    void *mem = NULL;
    if (!ready(p) || p->ops->alloc(p->ctx, bytes, &mem, &p->err) != RL_OK)
        return NULL;
    p->items[p->count++] = (struct item){.kind = ITEM_ROOM, .it = mem};
    if (zero)
        p->ops->zero(p->ctx, mem, bytes);
    return mem;
}

/* [rows, cols, taps] to [rows, taps, cols]. */
static void turn(void *to, const void *from, const struct params_shape *s, size_t bytes)
{
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t c = 0; c < s->cols; c++)
            for (int64_t t = 0; t < s->taps; t++)
                memcpy((char *)to + (size_t)((r * s->taps + t) * s->cols + c) * bytes,
                       (const char *)from + (size_t)((r * s->cols + c) * s->taps + t) * bytes,
                       bytes);
}

/* Turned weights in host memory; NULL, with the error in p, when it is short. */
static void *turned_copy(struct params *p, const struct params_shape *s,
                         const struct ops_source *source)
{
    size_t bytes = wan_number_bytes(source->type);
    void *to = malloc((size_t)(s->rows * s->cols * s->taps) * bytes);
    if (to)
        turn(to, source->data, s, bytes);
    else
        (void)rl_fail(&p->err, RL_NO_MEMORY, "convolution");
    return to;
}

const struct ops_weight *params_matrix(struct params *p, const struct params_shape *wanted,
                                       const char *format, ...)
{
    struct params_shape s = *wanted;
    struct ops_source source;
    struct ops_weight *weight = NULL;
    AUTO_FREE void *turned = NULL;
    char name[NAME_BYTES];
    va_list args;
    s.taps = s.taps ? s.taps : 1;
    s.of = s.of ? s.of : s.rows;
    va_start(args, format);
    (void)vsnprintf(name, sizeof name, format, args); /* names of ours: they fit */
    va_end(args);
    if (!ready(p) ||
        wan_model_matrix(p->model, p->part, name, s.of, s.cols * s.taps, &source, &p->err) != RL_OK)
        return NULL;
    source.data = (const char *)source.data +
                  (size_t)(s.first * s.cols * s.taps) * wan_number_bytes(source.type);
    source.rows = s.rows;
    if (s.taps > 1) {
        turned = turned_copy(p, &s, &source);
        if (!turned)
            return NULL;
        source.data = turned;
    }
    if (p->ops->weight_new(p->ctx, &source, &weight, &p->err) != RL_OK)
        return NULL;
    p->items[p->count++] = (struct item){.kind = ITEM_WEIGHT, .it = weight};
    return weight;
}

/* Numbers of a tensor as f32 in host memory, not in the list yet. */
static float *read_host(struct params *p, const struct params_range *range, const char *format,
                        va_list args)
{
    char name[NAME_BYTES];
    if (!ready(p))
        return NULL;
    (void)vsnprintf(name, sizeof name, format, args); /* names of ours: they fit */
    AUTO_FREE float *host = malloc((size_t)range->n * sizeof *host);
    if (!host)
        (void)rl_fail(&p->err, RL_NO_MEMORY, "tensor %s", name);
    else if (wan_model_values(p->model, p->part, name, range->of ? range->of : range->n,
                              range->first, range->n, host, &p->err) == RL_OK)
        return STEAL(host);
    return NULL;
}

float *params_host(struct params *p, int64_t n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    float *host = read_host(p, &(struct params_range){.n = n}, format, args);
    va_end(args);
    if (host)
        p->items[p->count++] = (struct item){.kind = ITEM_HOST, .it = host};
    return host;
}

static float *to_device(struct params *p, const float *host, int64_t n)
{
    size_t bytes = (size_t)n * sizeof *host;
    float *device = host ? params_room(p, bytes, false) : NULL;
    if (device && p->ops->upload(p->ctx, device, host, bytes, &p->err) != RL_OK)
        return NULL;
    return device;
}

float *params_vector(struct params *p, int64_t n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    AUTO_FREE float *host = read_host(p, &(struct params_range){.n = n}, format, args);
    va_end(args);
    return to_device(p, host, n);
}

float *params_part(struct params *p, const struct params_range *range, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    AUTO_FREE float *host = read_host(p, range, format, args);
    va_end(args);
    return to_device(p, host, range->n);
}
