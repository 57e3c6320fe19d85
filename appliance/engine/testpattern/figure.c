/* A ball, square, triangle, star or diamond with a shadow, on one of a few paths. Pure functions
 * of (scene, stage, frame number) in whole numbers. */
#include "engine/testpattern/figure.h"

#define LAYERS 18 /* of shading, from the dark rim to the highlight */

/* How far through its path the figure is, 0..65535. A short clip is one pass; a long one repeats
 * passes of at most 72 frames, so that the movement stays visible. */
static int pass_of(const struct stage *stage, int index)
{
    int passes = (stage->frames + 71) / 72;
    return (int)((int64_t)index * passes * 65536 / stage->frames % 65536);
}

/* 0 -> 65536 -> 0 over one pass. */
static int there_and_back(int t)
{
    return t < 32768 ? t * 2 : (65536 - t) * 2;
}

static int between(int a, int b, int t)
{
    return a + (int)((int64_t)(b - a) * t / 65536);
}

static struct point place_of(const struct scene *scene, const struct stage *stage, int r, int t)
{
    int edge = stage->unit * CANVAS_SUB + r;
    int left = edge, right = stage->width * CANVAS_SUB - edge;
    int top = edge, bottom = stage->height * CANVAS_SUB - edge;
    int ground = stage->ground * CANVAS_SUB - r;
    struct point p = {stage->width * CANVAS_SUB / 2, stage->height * CANVAS_SUB / 2};
    int back = there_and_back(t), jump;
    switch (scene->path) {
    case SCENE_LEFT:
        p.x = between(right, left, t);
        break;
    case SCENE_RIGHT:
        p.x = between(left, right, t);
        break;
    case SCENE_UP:
        p.y = between(bottom, top, t);
        break;
    case SCENE_DOWN:
        p.y = between(top, bottom, t);
        break;
    case SCENE_DIAGONAL:
        p.x = between(left, right, t);
        p.y = between(top, ground, t);
        break;
    case SCENE_ORBIT:
        p.x += (int)((int64_t)(right - left) * sine_of(t / 256) / (3 * 16384));
        p.y -= (int)((int64_t)(bottom - top) * cosine_of(t / 256) / (3 * 16384));
        break;
    case SCENE_BOUNCE: /* twice across, a parabola per half pass */
        p.x = between(left, right, back);
        jump = back * 2 % 65536;
        p.y = ground - (int)((int64_t)(ground - top) * jump / 65536 * (65536 - jump) * 4 / 65536);
        break;
    }
    return p;
}

/* The outline of a shape that is no ball; returns the number of points. */
static size_t outline_of(enum scene_shape shape, struct point at, int r, int angle,
                         struct point *points)
{
    size_t n = shape == SCENE_STAR ? 10 : shape == SCENE_TRIANGLE ? 3 : 4;
    int start = shape == SCENE_SQUARE ? 32 : 0;
    for (size_t i = 0; i < n; i++) {
        int a = angle + start + (int)((i * 256 + n / 2) / n), reach = r;
        if (shape == SCENE_STAR && i % 2)
            reach = r * 2 / 5;
        if (shape == SCENE_DIAMOND && i % 2)
            reach = r * 7 / 10;
        points[i].x = at.x + (int)((int64_t)reach * sine_of(a) / 16384);
        points[i].y = at.y - (int)((int64_t)reach * cosine_of(a) / 16384);
    }
    if (shape == SCENE_TRIANGLE) /* stand it on the middle of its weight */
        for (size_t i = 0; i < n; i++)
            points[i].y += angle ? 0 : r / 6;
    return n;
}

static void paint_layer(struct canvas *c, enum scene_shape shape, struct point at, int r, int angle,
                        struct colour colour, int alpha)
{
    struct point points[CANVAS_POINTS] = {{0, 0}};
    if (shape == SCENE_BALL)
        canvas_ring(c, at, r, r, 0, colour, alpha);
    else
        canvas_polygon(c, points, outline_of(shape, at, r, angle, points), colour, alpha);
}

void figure_paint(struct canvas *c, const struct scene *scene, const struct stage *stage, int index)
{
    static const struct colour white = {255, 255, 255}, black = {0, 0, 0};
    int r = stage->unit * 5 * CANVAS_SUB, t = pass_of(stage, index);
    int angle = scene->spin ? t / 256 + (int)(scene->hash >> 48 & 255) : 0;
    struct point at = place_of(scene, stage, r, t);
    /* The shadow shrinks and fades with the height above the ground. */
    int height = stage->ground * CANVAS_SUB - at.y - r;
    int far = height > 0 ? (int)((int64_t)height * 256 / (stage->height * CANVAS_SUB)) : 0;
    struct point below = {at.x, stage->ground * CANVAS_SUB};
    int wide = r - r * far / 400;
    canvas_ring(c, below, wide, wide / 6, 0, black, 120 - far / 4);
    canvas_ring(c, below, wide * 4 / 5, wide / 8, 0, black, 90 - far / 4);

    paint_layer(c, scene->shape, at, r + r / 14, angle, white, 110); /* stands out on any colour */
    for (int i = 0; i < LAYERS; i++) {
        int size = r - r * i / (LAYERS + 1);
        int depth = i * 256 / LAYERS;
        struct colour colour = depth < 128
                                   ? colour_mix(black, scene->figure, 170 + depth * 86 / 128)
                                   : colour_mix(scene->figure, white, (depth - 128) * 2 / 3);
        struct point centre = {at.x - r * i / (LAYERS * 3), at.y - r * i / (LAYERS * 3)};
        if (scene->shape != SCENE_BALL) /* flat faces: a bevel only */
            centre = at;
        if (scene->shape == SCENE_BALL || i < 3)
            paint_layer(c, scene->shape, centre, size, angle, colour, CANVAS_OPAQUE);
    }
    if (scene->shape != SCENE_BALL)
        paint_layer(c, scene->shape, at, r * 4 / 5, angle, scene->figure, CANVAS_OPAQUE);
}
