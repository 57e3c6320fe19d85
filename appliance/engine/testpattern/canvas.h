/* Drawing on an RGB picture with whole numbers only, so that a frame has the same bytes on every
 * machine and compiler. Positions and radii of shapes are in sixteenths of a pixel ("sub"). */
#ifndef RL_ENGINE_TESTPATTERN_CANVAS_H
#define RL_ENGINE_TESTPATTERN_CANVAS_H

#include "base/rl.h"

#define CANVAS_SUB    16 /* sub units per pixel */
#define CANVAS_OPAQUE 256

struct colour {
    uint8_t r, g, b;
};
struct point {
    int x, y; /* sub */
};
struct canvas {
    uint8_t *rgb;      /* [height, width, 3], borrowed */
    int width, height; /* px */
    uint16_t *cover;   /* one row of coverage, width entries, all 0 between calls; borrowed */
};

struct colour colour_mix(struct colour a, struct colour b, int b_of_256);
/* hue 0..1535 (six sextants of 256), saturation and value 0..255. */
struct colour colour_hsv(int hue, int saturation, int value);
/* sin and cos of angle/256 turns, times 16384. */
int sine_of(int angle);
int cosine_of(int angle);

/* alpha 0..CANVAS_OPAQUE. All are clipped to the picture. */
void canvas_rect(struct canvas *c, int x_px, int y_px, int w_px, int h_px, struct colour colour,
                 int alpha);
void canvas_ring(struct canvas *c, struct point centre, int rx, int ry, int thickness,
                 struct colour colour, int alpha); /* thickness 0: a filled ellipse */
#define CANVAS_POINTS 16
void canvas_polygon(struct canvas *c, const struct point *points, size_t n, struct colour colour,
                    int alpha); /* even-odd */
/* 5x7 glyphs, 6 px apart, times scale; upper case, '?' outside ASCII. */
void canvas_text(struct canvas *c, int x_px, int y_px, int scale, const char *text,
                 struct colour colour);
int canvas_text_px(const char *text, int scale); /* width */

#endif
