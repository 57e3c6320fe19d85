/* The test card. The still parts (gradient, grid, ring, colour bars, captions) are painted once per
 * run; each frame copies them and adds the moving figure, the counter and the progress line. Owns
 * two pictures of the clip's size. Invariant: a frame depends on (prompt, seed, size, frames,
 * index) and on nothing else, so that a resumed run gives the same bytes. One thread, that of the
 * run. */
#include "engine/testpattern/card.h"

#include <string.h>

#include "engine/engine.h"
#include "engine/testpattern/figure.h"

#define CAPTION_CHARS 40

static const struct colour white = {255, 255, 255};
static const struct colour black = {0, 0, 0};

struct card {
    struct scene scene;
    int width, height, frames;
    int unit;        /* 1/36 of the shorter side, at least 1 px: the measure of everything */
    size_t bytes;    /* of one picture */
    uint8_t *still;  /* owned */
    uint8_t *frame;  /* owned */
    uint16_t *cover; /* owned, width entries */
};

static struct canvas canvas_on(struct card *card, uint8_t *rgb)
{
    return (struct canvas){rgb, card->width, card->height, card->cover};
}

/* Top to bottom, with an ordered dither so that the dark gradient shows no bands. */
static void paint_gradient(struct card *card)
{
    static const uint8_t bayer[4][4] = {
        {0, 8, 2, 10}, {12, 4, 14, 6}, {3, 11, 1, 9}, {15, 7, 13, 5}};
    const uint8_t top[3] = {card->scene.top.r, card->scene.top.g, card->scene.top.b};
    const uint8_t end[3] = {card->scene.bottom.r, card->scene.bottom.g, card->scene.bottom.b};
    uint8_t *p = card->still;
    for (int y = 0; y < card->height; y++)
        for (int x = 0; x < card->width; x++)
            for (int k = 0; k < 3; k++) {
                int v = (top[k] * (card->height - 1 - y) + end[k] * y) * 16 / (card->height - 1);
                *p++ = (uint8_t)((v + bayer[y & 3][x & 3]) >> 4);
            }
}

/* Lines through the middle and on both sides of it, and the big ring of a television test card. */
static void paint_grid(struct card *card)
{
    struct canvas c = canvas_on(card, card->still);
    int cell = card->unit * 4, line = card->unit >= 20 ? 2 : 1;
    for (int x = card->width / 2 % cell; x < card->width; x += cell)
        canvas_rect(&c, x, 0, line, card->height, white, 22);
    for (int y = card->height / 2 % cell; y < card->height; y += cell)
        canvas_rect(&c, 0, y, card->width, line, white, 22);
    struct point middle = {card->width * CANVAS_SUB / 2, card->height * CANVAS_SUB / 2};
    int r = card->unit * 15 * CANVAS_SUB;
    canvas_ring(&c, middle, r, r, 6 + card->unit * 3, white, 90);
}

/* Alternating blocks around the edge: whatever a player crops is seen at once. */
static void paint_border(struct card *card)
{
    struct canvas c = canvas_on(card, card->still);
    int b = card->unit, w = card->width, h = card->height;
    for (int i = 0, n = w / (2 * b) | 1; i < n; i++) {
        int x = w * i / n, next = w * (i + 1) / n;
        canvas_rect(&c, x, 0, next - x, b, i % 2 ? black : white, 225);
        canvas_rect(&c, x, h - b, next - x, b, i % 2 ? black : white, 225);
    }
    for (int i = 0, n = h / (2 * b) | 1; i < n; i++) {
        int y = h * i / n, next = h * (i + 1) / n;
        canvas_rect(&c, 0, y, b, next - y, i % 2 ? black : white, 225);
        canvas_rect(&c, w - b, y, b, next - y, i % 2 ? black : white, 225);
    }
}

static bool is_thumbnail(const struct card *card)
{
    return card->height < 96 || card->width < 96;
}

static int text_scale(const struct card *card)
{
    int scale = card->height / 180 < card->width / 320 ? card->height / 180 : card->width / 320;
    return scale > 0 ? scale : 1;
}

/* Where the caption and the bars above it are, px. */
static int caption_top(const struct card *card)
{
    return card->height - card->unit * 2 - 9 * text_scale(card);
}

static int bars_top(const struct card *card)
{
    if (is_thumbnail(card))
        return card->height - card->unit * 9;
    return caption_top(card) - 2 * text_scale(card) - card->unit * 9 / 2;
}

static void paint_bars(struct card *card)
{
    static const struct colour bars[] = {{191, 191, 191}, {191, 191, 0}, {0, 191, 191},
                                         {0, 191, 0},     {191, 0, 191}, {191, 0, 0},
                                         {0, 0, 191},     {12, 12, 12}};
    struct canvas c = canvas_on(card, card->still);
    int left = card->unit * 2, wide = card->width - card->unit * 4, y = bars_top(card);
    int n = (int)RL_ARRAY_LEN(bars);
    for (int i = 0; i < n; i++) {
        int x = left + wide * i / n, next = left + wide * (i + 1) / n;
        canvas_rect(&c, x, y, next - x, card->unit * 2, bars[i], CANVAS_OPAQUE);
    }
    for (int i = 0; i < 2 * n; i++) { /* and sixteen greys */
        int x = left + wide * i / (2 * n), next = left + wide * (i + 1) / (2 * n);
        uint8_t grey = (uint8_t)(i * 255 / (2 * n - 1));
        canvas_rect(&c, x, y + card->unit * 2, next - x, card->unit,
                    (struct colour){grey, grey, grey}, CANVAS_OPAQUE);
    }
}

/* Text on a dark plate. Cut on the right when the picture is too narrow for it. */
static void paint_label(struct canvas *c, int x, int y, int scale, const char *text,
                        struct colour colour)
{
    char cut[64];
    (void)snprintf(cut, sizeof(cut), "%s", text); /* cut is what we want */
    size_t len = strlen(cut);
    while (len > 0 && x + canvas_text_px(cut, scale) + 2 * scale > c->width)
        cut[--len] = 0;
    if (len == 0)
        return;
    canvas_rect(c, x - 2 * scale, y - 2 * scale, canvas_text_px(cut, scale) + 4 * scale, 11 * scale,
                black, 140);
    canvas_text(c, x, y, scale, cut, colour);
}

/* The first characters of the prompt on one line: control characters become spaces, anything
 * outside ASCII one '?' per character. */
static void caption_of(const char *prompt, char *text)
{
    size_t n = 0;
    for (; *prompt && n < CAPTION_CHARS; prompt++) {
        unsigned char u = (unsigned char)*prompt;
        if ((u & 0xc0) == 0x80)
            continue; /* inside a UTF-8 character */
        text[n++] = (char)(u < ' ' ? ' ' : u > '~' ? '?' : u);
    }
    text[n] = 0;
}

static void paint_captions(struct card *card, const struct engine_request *request)
{
    static const struct colour pale = {170, 180, 195}, cream = {255, 236, 170};
    struct canvas c = canvas_on(card, card->still);
    char text[CAPTION_CHARS + 24];
    int scale = text_scale(card), x = card->unit * 2 + 2 * scale, y = card->unit * 2 + scale;
    if (is_thumbnail(card))
        return; /* only the counter has room */
    paint_label(&c, x, y, scale, card->width < 200 ? "REELD" : "REELD TESTPATTERN", white);
    if (card->height >= 144) {
        (void)snprintf(text, sizeof(text), "%dX%d  %d FPS", request->width, request->height,
                       request->fps); /* fits */
        paint_label(&c, x, y + 12 * scale, scale, text, pale);
        (void)snprintf(text, sizeof(text), "SEED %lld", (long long)request->seed); /* fits */
        paint_label(&c, x, y + 24 * scale, scale, text, pale);
    }
    caption_of(request->prompt, text);
    paint_label(&c, x, caption_top(card), scale, text, cream);
}

static void paint_counter(struct card *card, struct canvas *c, int index)
{
    char text[24];
    int scale = text_scale(card) * 2, digits = card->frames > 999 ? 4 : 3;
    (void)snprintf(text, sizeof(text), "%0*d/%0*d", digits, index + 1, digits,
                   card->frames); /* fits */
    if (canvas_text_px(text, scale) > card->width / 2)
        scale = 1;
    if (canvas_text_px(text, scale) > card->width - 4)
        text[digits] = 0; /* thumbnails: no total */
    int x = card->width - card->unit * 2 - canvas_text_px(text, scale) - 2 * scale;
    paint_label(c, x, card->unit * 2 + 2 * scale, scale, text, white);
}

enum rl_rc card_new(const struct engine_request *request, struct card **ret_card,
                    struct rl_err *err)
{
    struct card *card = calloc(1, sizeof(*card));
    if (!card)
        return rl_fail(err, RL_NO_MEMORY, "no memory for the test card");
    int shorter = request->width < request->height ? request->width : request->height;
    card->scene = scene_of(request->prompt, request->seed);
    card->width = request->width;
    card->height = request->height;
    card->frames = request->frames;
    card->unit = shorter / 36 > 0 ? shorter / 36 : 1;
    card->bytes = (size_t)card->width * (size_t)card->height * 3;
    card->still = malloc(card->bytes);
    card->frame = malloc(card->bytes);
    card->cover = calloc((size_t)card->width, sizeof(*card->cover));
    if (!card->still || !card->frame || !card->cover) {
        card_free(card);
        return rl_fail(err, RL_NO_MEMORY, "no memory for the test card");
    }
    paint_gradient(card);
    paint_grid(card);
    paint_border(card);
    paint_bars(card);
    paint_captions(card, request);
    *ret_card = card;
    return RL_OK;
}

void card_free(struct card *card)
{
    if (!card)
        return;
    free(card->still);
    free(card->frame);
    free(card->cover);
    free(card);
}

const uint8_t *card_frame(struct card *card, int index)
{
    struct canvas c = canvas_on(card, card->frame);
    const struct stage stage = {.width = card->width,
                                .height = card->height,
                                .unit = card->unit,
                                .ground = bars_top(card) - card->unit * 2,
                                .frames = card->frames};
    int left = card->unit * 2, wide = card->width - card->unit * 4;
    memcpy(card->frame, card->still, card->bytes);
    figure_paint(&c, &card->scene, &stage, index);
    canvas_rect(&c, left, bars_top(card) + card->unit * 3, wide, (card->unit + 1) / 2, black, 170);
    canvas_rect(&c, left, bars_top(card) + card->unit * 3, wide * (index + 1) / card->frames,
                (card->unit + 1) / 2, card->scene.figure, CANVAS_OPAQUE);
    paint_counter(card, &c, index);
    return card->frame;
}

const uint8_t *card_constant(struct card *card)
{
    memset(card->frame, 0, card->bytes);
    return card->frame;
}
