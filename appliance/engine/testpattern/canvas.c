/* The drawing primitives under the test card: spans with exact horizontal and four-fold vertical
 * coverage, a 5x7 font, colours. Whole numbers only (no libm, no floats), so results are the same
 * everywhere. Owns nothing; a canvas belongs to one thread. */
#include "engine/testpattern/canvas.h"

#include <string.h>

#define GLYPH_W    5
#define GLYPH_H    7
#define GLYPH_STEP 6
#define SUB_ROWS   4                       /* sample rows per pixel */
#define FULL_COVER (SUB_ROWS * CANVAS_SUB) /* of one pixel */

/* sin(i/256 turn) * 16384 for the first quarter. */
static const int16_t quarter_sine[65] = {
    0,     402,   804,   1205,  1606,  2006,  2404,  2801,  3196,  3590,  3981,  4370,  4756,
    5139,  5520,  5897,  6270,  6639,  7005,  7366,  7723,  8076,  8423,  8765,  9102,  9434,
    9760,  10080, 10394, 10702, 11003, 11297, 11585, 11866, 12140, 12406, 12665, 12916, 13160,
    13395, 13623, 13842, 14053, 14256, 14449, 14635, 14811, 14978, 15137, 15286, 15426, 15557,
    15679, 15791, 15893, 15986, 16069, 16143, 16207, 16261, 16305, 16340, 16364, 16379, 16384,
};

/* ' ' to '_', a row per byte, the leftmost pixel in bit 4. Drawn for this file. */
static const uint8_t glyphs[64][GLYPH_H] = {
    {0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00}, /*   */
    {0x04, 0x04, 0x04, 0x04, 0x04, 0x00, 0x04}, /* ! */
    {0x0a, 0x0a, 0x00, 0x00, 0x00, 0x00, 0x00}, /* " */
    {0x0a, 0x1f, 0x0a, 0x0a, 0x0a, 0x1f, 0x0a}, /* # */
    {0x04, 0x0f, 0x14, 0x0e, 0x05, 0x1e, 0x04}, /* $ */
    {0x19, 0x19, 0x02, 0x04, 0x08, 0x13, 0x13}, /* % */
    {0x0c, 0x12, 0x14, 0x08, 0x15, 0x12, 0x0d}, /* & */
    {0x04, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00}, /* ' */
    {0x02, 0x04, 0x08, 0x08, 0x08, 0x04, 0x02}, /* ( */
    {0x08, 0x04, 0x02, 0x02, 0x02, 0x04, 0x08}, /* ) */
    {0x00, 0x15, 0x0e, 0x1f, 0x0e, 0x15, 0x00}, /* star */
    {0x00, 0x04, 0x04, 0x1f, 0x04, 0x04, 0x00}, /* + */
    {0x00, 0x00, 0x00, 0x00, 0x0c, 0x04, 0x08}, /* , */
    {0x00, 0x00, 0x00, 0x1f, 0x00, 0x00, 0x00}, /* - */
    {0x00, 0x00, 0x00, 0x00, 0x00, 0x0c, 0x0c}, /* . */
    {0x01, 0x01, 0x02, 0x04, 0x08, 0x10, 0x10}, /* slash */
    {0x0e, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0e}, /* 0 */
    {0x04, 0x0c, 0x04, 0x04, 0x04, 0x04, 0x0e}, /* 1 */
    {0x0e, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1f}, /* 2 */
    {0x1f, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0e}, /* 3 */
    {0x02, 0x06, 0x0a, 0x12, 0x1f, 0x02, 0x02}, /* 4 */
    {0x1f, 0x10, 0x1e, 0x01, 0x01, 0x11, 0x0e}, /* 5 */
    {0x06, 0x08, 0x10, 0x1e, 0x11, 0x11, 0x0e}, /* 6 */
    {0x1f, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08}, /* 7 */
    {0x0e, 0x11, 0x11, 0x0e, 0x11, 0x11, 0x0e}, /* 8 */
    {0x0e, 0x11, 0x11, 0x0f, 0x01, 0x02, 0x0c}, /* 9 */
    {0x00, 0x0c, 0x0c, 0x00, 0x0c, 0x0c, 0x00}, /* : */
    {0x00, 0x0c, 0x0c, 0x00, 0x0c, 0x04, 0x08}, /* ; */
    {0x02, 0x04, 0x08, 0x10, 0x08, 0x04, 0x02}, /* < */
    {0x00, 0x00, 0x1f, 0x00, 0x1f, 0x00, 0x00}, /* = */
    {0x08, 0x04, 0x02, 0x01, 0x02, 0x04, 0x08}, /* > */
    {0x0e, 0x11, 0x01, 0x02, 0x04, 0x00, 0x04}, /* ? */
    {0x0e, 0x11, 0x17, 0x15, 0x16, 0x10, 0x0e}, /* @ */
    {0x0e, 0x11, 0x11, 0x1f, 0x11, 0x11, 0x11}, /* A */
    {0x1e, 0x11, 0x11, 0x1e, 0x11, 0x11, 0x1e}, /* B */
    {0x0e, 0x11, 0x10, 0x10, 0x10, 0x11, 0x0e}, /* C */
    {0x1e, 0x11, 0x11, 0x11, 0x11, 0x11, 0x1e}, /* D */
    {0x1f, 0x10, 0x10, 0x1e, 0x10, 0x10, 0x1f}, /* E */
    {0x1f, 0x10, 0x10, 0x1e, 0x10, 0x10, 0x10}, /* F */
    {0x0e, 0x11, 0x10, 0x17, 0x11, 0x11, 0x0f}, /* G */
    {0x11, 0x11, 0x11, 0x1f, 0x11, 0x11, 0x11}, /* H */
    {0x0e, 0x04, 0x04, 0x04, 0x04, 0x04, 0x0e}, /* I */
    {0x07, 0x02, 0x02, 0x02, 0x02, 0x12, 0x0c}, /* J */
    {0x11, 0x12, 0x14, 0x18, 0x14, 0x12, 0x11}, /* K */
    {0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x1f}, /* L */
    {0x11, 0x1b, 0x15, 0x15, 0x11, 0x11, 0x11}, /* M */
    {0x11, 0x19, 0x19, 0x15, 0x13, 0x13, 0x11}, /* N */
    {0x0e, 0x11, 0x11, 0x11, 0x11, 0x11, 0x0e}, /* O */
    {0x1e, 0x11, 0x11, 0x1e, 0x10, 0x10, 0x10}, /* P */
    {0x0e, 0x11, 0x11, 0x11, 0x15, 0x12, 0x0d}, /* Q */
    {0x1e, 0x11, 0x11, 0x1e, 0x14, 0x12, 0x11}, /* R */
    {0x0f, 0x10, 0x10, 0x0e, 0x01, 0x01, 0x1e}, /* S */
    {0x1f, 0x04, 0x04, 0x04, 0x04, 0x04, 0x04}, /* T */
    {0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x0e}, /* U */
    {0x11, 0x11, 0x11, 0x11, 0x11, 0x0a, 0x04}, /* V */
    {0x11, 0x11, 0x11, 0x15, 0x15, 0x1b, 0x11}, /* W */
    {0x11, 0x11, 0x0a, 0x04, 0x0a, 0x11, 0x11}, /* X */
    {0x11, 0x11, 0x0a, 0x04, 0x04, 0x04, 0x04}, /* Y */
    {0x1f, 0x01, 0x02, 0x04, 0x08, 0x10, 0x1f}, /* Z */
    {0x0e, 0x08, 0x08, 0x08, 0x08, 0x08, 0x0e}, /* [ */
    {0x10, 0x10, 0x08, 0x04, 0x02, 0x01, 0x01}, /* backslash */
    {0x0e, 0x02, 0x02, 0x02, 0x02, 0x02, 0x0e}, /* ] */
    {0x04, 0x0a, 0x11, 0x00, 0x00, 0x00, 0x00}, /* ^ */
    {0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x1f}, /* _ */
};

int sine_of(int angle)
{
    int a = angle & 255;
    int i = a & 127;
    int v = quarter_sine[i <= 64 ? i : 128 - i];
    return a < 128 ? v : -v;
}

int cosine_of(int angle)
{
    return sine_of(angle + 64);
}

static uint8_t mix8(int a, int b, int b_of_256)
{
    return (uint8_t)((a * (256 - b_of_256) + b * b_of_256 + 128) >> 8);
}

struct colour colour_mix(struct colour a, struct colour b, int b_of_256)
{
    return (struct colour){mix8(a.r, b.r, b_of_256), mix8(a.g, b.g, b_of_256),
                           mix8(a.b, b.b, b_of_256)};
}

struct colour colour_hsv(int hue, int saturation, int value)
{
    int h = ((hue % 1536) + 1536) % 1536;
    int rise = h & 255, fall = 255 - rise;
    static const uint8_t order[6][3] = {{3, 1, 0}, {2, 3, 0}, {0, 3, 1},
                                        {0, 2, 3}, {1, 0, 3}, {3, 0, 2}};
    int level[4] = {0, rise, fall, 255};
    uint8_t out[3];
    for (int k = 0; k < 3; k++) {
        int pure = level[order[h >> 8][k]];
        int faded = 255 - (255 - pure) * saturation / 255;
        out[k] = (uint8_t)(faded * value / 255);
    }
    return (struct colour){out[0], out[1], out[2]};
}

static void blend(struct canvas *c, int x, int y, struct colour colour, int alpha)
{
    uint8_t *p = c->rgb + ((size_t)y * (size_t)c->width + (size_t)x) * 3;
    p[0] = mix8(p[0], colour.r, alpha);
    p[1] = mix8(p[1], colour.g, alpha);
    p[2] = mix8(p[2], colour.b, alpha);
}

static int clip(int v, int min, int max)
{
    return v < min ? min : v > max ? max : v;
}

void canvas_rect(struct canvas *c, int x_px, int y_px, int w_px, int h_px, struct colour colour,
                 int alpha)
{
    int x0 = clip(x_px, 0, c->width), x1 = clip(x_px + w_px, 0, c->width);
    int y0 = clip(y_px, 0, c->height), y1 = clip(y_px + h_px, 0, c->height);
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++)
            blend(c, x, y, colour, alpha);
}

/* Add the span [x0, x1) of one sample row to the row's coverage. */
static void add_span(struct canvas *c, int x0, int x1)
{
    x0 = clip(x0, 0, c->width * CANVAS_SUB);
    x1 = clip(x1, 0, c->width * CANVAS_SUB);
    if (x0 >= x1)
        return;
    int first = x0 / CANVAS_SUB, last = x1 / CANVAS_SUB;
    if (first == last) {
        c->cover[first] = (uint16_t)(c->cover[first] + x1 - x0);
        return;
    }
    c->cover[first] = (uint16_t)(c->cover[first] + CANVAS_SUB - x0 % CANVAS_SUB);
    for (int x = first + 1; x < last; x++)
        c->cover[x] = (uint16_t)(c->cover[x] + CANVAS_SUB);
    if (last < c->width)
        c->cover[last] = (uint16_t)(c->cover[last] + x1 % CANVAS_SUB);
}

/* Paint what the row has gathered between the sub positions x0 and x1, and clear it. */
static void flush_row(struct canvas *c, int y, int x0, int x1, struct colour colour, int alpha)
{
    int first = clip(x0 / CANVAS_SUB - 1, 0, c->width);
    int last = clip(x1 / CANVAS_SUB + 2, 0, c->width);
    for (int x = first; x < last; x++) {
        int cover = c->cover[x];
        c->cover[x] = 0;
        if (cover)
            blend(c, x, y, colour, alpha * (cover > FULL_COVER ? FULL_COVER : cover) / FULL_COVER);
    }
}

static int64_t root_of(int64_t v)
{
    int64_t r = 0;
    for (int64_t bit = INT64_C(1) << 30; bit; bit >>= 1)
        if ((r + bit) * (r + bit) <= v)
            r += bit;
    return r;
}

/* Half the width of an ellipse at height dy from its centre; -1 outside. */
static int half_width(int rx, int ry, int dy)
{
    if (ry <= 0 || dy <= -ry || dy >= ry)
        return -1;
    int64_t squared = (int64_t)ry * ry - (int64_t)dy * dy;
    return (int)(root_of(squared * 256) * rx / ((int64_t)ry * 16));
}

void canvas_ring(struct canvas *c, struct point centre, int rx, int ry, int thickness,
                 struct colour colour, int alpha)
{
    int y0 = clip((centre.y - ry) / CANVAS_SUB - 1, 0, c->height);
    int y1 = clip((centre.y + ry) / CANVAS_SUB + 2, 0, c->height);
    for (int y = y0; y < y1; y++) {
        for (int s = 0; s < SUB_ROWS; s++) {
            int dy = y * CANVAS_SUB + s * (CANVAS_SUB / SUB_ROWS) + 2 - centre.y;
            int outer = half_width(rx, ry, dy);
            int inner = thickness ? half_width(rx - thickness, ry - thickness, dy) : -1;
            if (outer < 0)
                continue;
            if (inner < 0) {
                add_span(c, centre.x - outer, centre.x + outer);
                continue;
            }
            add_span(c, centre.x - outer, centre.x - inner);
            add_span(c, centre.x + inner, centre.x + outer);
        }
        flush_row(c, y, centre.x - rx, centre.x + rx, colour, alpha);
    }
}

/* The x positions where the outline crosses the sample row at `y`, in order. */
static size_t crossings(const struct point *p, size_t n, int y, int *xs)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        struct point a = p[i], b = p[(i + 1) % n];
        if ((a.y <= y) == (b.y <= y))
            continue;
        int x = a.x + (int)((int64_t)(y - a.y) * (b.x - a.x) / (b.y - a.y));
        size_t k = count++;
        for (; k > 0 && xs[k - 1] > x; k--)
            xs[k] = xs[k - 1];
        xs[k] = x;
    }
    return count;
}

void canvas_polygon(struct canvas *c, const struct point *points, size_t n, struct colour colour,
                    int alpha)
{
    int xs[CANVAS_POINTS];
    if (n < 3 || n > CANVAS_POINTS)
        return;
    struct point low = points[0], high = points[0];
    for (size_t i = 1; i < n; i++) {
        low.x = points[i].x < low.x ? points[i].x : low.x;
        low.y = points[i].y < low.y ? points[i].y : low.y;
        high.x = points[i].x > high.x ? points[i].x : high.x;
        high.y = points[i].y > high.y ? points[i].y : high.y;
    }
    int y0 = clip(low.y / CANVAS_SUB - 1, 0, c->height);
    int y1 = clip(high.y / CANVAS_SUB + 2, 0, c->height);
    for (int y = y0; y < y1; y++) {
        for (int s = 0; s < SUB_ROWS; s++) {
            int row = y * CANVAS_SUB + s * (CANVAS_SUB / SUB_ROWS) + 2;
            size_t count = crossings(points, n, row, xs);
            for (size_t i = 0; i + 1 < count; i += 2)
                add_span(c, xs[i], xs[i + 1]);
        }
        flush_row(c, y, low.x, high.x, colour, alpha);
    }
}

static const uint8_t *glyph_of(char ch)
{
    unsigned char u = (unsigned char)ch;
    if (u >= 'a' && u <= 'z')
        u = (unsigned char)(u - 'a' + 'A');
    if (u < ' ' || u > '_')
        u = '?';
    return glyphs[u - ' '];
}

void canvas_text(struct canvas *c, int x_px, int y_px, int scale, const char *text,
                 struct colour colour)
{
    for (; *text; text++, x_px += GLYPH_STEP * scale) {
        const uint8_t *rows = glyph_of(*text);
        for (int y = 0; y < GLYPH_H; y++)
            for (int x = 0; x < GLYPH_W; x++)
                if (rows[y] >> (GLYPH_W - 1 - x) & 1)
                    canvas_rect(c, x_px + x * scale, y_px + y * scale, scale, scale, colour,
                                CANVAS_OPAQUE);
    }
}

int canvas_text_px(const char *text, int scale)
{
    int n = (int)strlen(text);
    return n ? (n * GLYPH_STEP - 1) * scale : 0;
}
