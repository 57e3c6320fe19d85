/* A separable filter: rows first, into f32, then columns. Weights are made once. Invariant: the
 * weights of every output position sum to 1 and point into the picture. */
#include "engine/wan/scale.h"

#include <math.h>

#define COLORS  3
#define SUPPORT 2.0 /* of the cubic, in source pixels at its own size */

/* One direction. */
struct axis {
    int from, to, taps;
    int *at;       /* [to, taps] source positions */
    float *weight; /* [to, taps] */
};

struct scaler {
    struct axis x, y;
    float *rows;  /* [h, to_w, 3] */
    float *line;  /* [to_w, 3] */
    uint8_t *rgb; /* [to_h, to_w, 3] */
};

/* Source: Keys 1981, a = -1/2. */
static double cubic(double t)
{
    t = fabs(t);
    if (t >= SUPPORT)
        return 0;
    return t < 1 ? (1.5 * t - 2.5) * t * t + 1 : ((-0.5 * t + 2.5) * t - 4) * t + 2;
}

static bool axis_init(struct axis *a, int from, int to, double scale)
{
    double wide = scale < 1 ? 1 / scale : 1, start = (to - from * scale) / 2;
    *a = (struct axis){.from = from, .to = to, .taps = (int)ceil(2 * SUPPORT * wide) + 1};
    a->at = calloc((size_t)to * (size_t)a->taps, sizeof *a->at);
    a->weight = calloc((size_t)to * (size_t)a->taps, sizeof *a->weight);
    if (!a->at || !a->weight)
        return false;
    for (int i = 0; i < to; i++) {
        double centre = (i + 0.5 - start) / scale - 0.5, sum = 0;
        int first = (int)ceil(centre - SUPPORT * wide);
        for (int k = 0; k < a->taps; k++)
            sum += cubic((first + k - centre) / wide);
        for (int k = 0; k < a->taps; k++) {
            int at = first + k < 0 ? 0 : first + k >= from ? from - 1 : first + k;
            a->at[i * a->taps + k] = at;
            a->weight[i * a->taps + k] = (float)(cubic((first + k - centre) / wide) / sum);
        }
    }
    return true;
}

enum rl_rc scaler_new(int w, int h, int to_w, int to_h, struct scaler **ret_scaler,
                      struct rl_err *err)
{
    double across = (double)to_w / w, down = (double)to_h / h;
    double scale = across < down ? across : down;
    size_t width = (size_t)to_w * COLORS;
    struct scaler *s = calloc(1, sizeof *s);
    if (!s)
        return rl_fail(err, RL_NO_MEMORY, "scaler");
    s->rows = malloc((size_t)h * width * sizeof *s->rows);
    s->line = malloc(width * sizeof *s->line);
    s->rgb = malloc((size_t)to_h * width);
    if (!axis_init(&s->x, w, to_w, scale) || !axis_init(&s->y, h, to_h, scale) || !s->rows ||
        !s->line || !s->rgb) {
        scaler_free(s);
        return rl_fail(err, RL_NO_MEMORY, "scaler");
    }
    *ret_scaler = s;
    return RL_OK;
}

void scaler_free(struct scaler *s)
{
    if (!s)
        return;
    free(s->x.at);
    free(s->x.weight);
    free(s->y.at);
    free(s->y.weight);
    free(s->rows);
    free(s->line);
    free(s->rgb);
    free(s);
}

static void scale_row(const struct axis *x, const uint8_t *from, float *to)
{
    for (int i = 0; i < x->to; i++, to += COLORS) {
        float sum[COLORS] = {0};
        for (int k = 0; k < x->taps; k++) {
            const uint8_t *pixel = from + COLORS * x->at[i * x->taps + k];
            float weight = x->weight[i * x->taps + k];
            for (int c = 0; c < COLORS; c++)
                sum[c] += weight * pixel[c];
        }
        for (int c = 0; c < COLORS; c++)
            to[c] = sum[c];
    }
}

const uint8_t *scaler_run(struct scaler *s, const uint8_t *rgb)
{
    int width = s->x.to * COLORS;
    for (int y = 0; y < s->y.from; y++)
        scale_row(&s->x, rgb + (size_t)y * (size_t)s->x.from * COLORS,
                  s->rows + (size_t)y * (size_t)width);
    for (int y = 0; y < s->y.to; y++) {
        uint8_t *to = s->rgb + (size_t)y * (size_t)width;
        for (int i = 0; i < width; i++)
            s->line[i] = 0.5f; /* rounds */
        for (int k = 0; k < s->y.taps; k++) {
            const float *row = s->rows + (size_t)s->y.at[y * s->y.taps + k] * (size_t)width;
            float weight = s->y.weight[y * s->y.taps + k];
            for (int i = 0; i < width; i++)
                s->line[i] += weight * row[i];
        }
        for (int i = 0; i < width; i++)
            to[i] = (uint8_t)(s->line[i] < 0 ? 0 : s->line[i] > 255 ? 255 : s->line[i]);
    }
    return s->rgb;
}
