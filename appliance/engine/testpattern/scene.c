/* A prompt read like a child would: the first colour word is the figure's colour (a colour before
 * "background" is the background's), the first shape and the first movement count. Everything that
 * the words leave open follows from a hash of prompt and seed. Pure functions. */
#include "engine/testpattern/scene.h"

#include <string.h>

#define WORD_BYTES 16

struct word_colour {
    const char *word;
    struct colour colour;
};
static const struct word_colour colours[] = {
    {"red", {235, 38, 38}},     {"green", {46, 190, 70}},      {"blue", {44, 98, 235}},
    {"yellow", {250, 215, 40}}, {"orange", {250, 140, 25}},    {"purple", {150, 60, 215}},
    {"violet", {150, 60, 215}}, {"pink", {250, 120, 180}},     {"magenta", {225, 40, 200}},
    {"cyan", {40, 210, 225}},   {"turquoise", {45, 205, 190}}, {"brown", {145, 92, 50}},
    {"gold", {235, 180, 50}},   {"golden", {235, 180, 50}},    {"silver", {190, 196, 205}},
    {"grey", {150, 152, 158}},  {"gray", {150, 152, 158}},     {"white", {245, 245, 245}},
    {"black", {22, 22, 26}},
};

struct word_value {
    const char *word;
    int value;
};
static const struct word_value shapes[] = {
    {"circle", SCENE_BALL},      {"ball", SCENE_BALL},     {"sphere", SCENE_BALL},
    {"disc", SCENE_BALL},        {"dot", SCENE_BALL},      {"moon", SCENE_BALL},
    {"sun", SCENE_BALL},         {"square", SCENE_SQUARE}, {"box", SCENE_SQUARE},
    {"cube", SCENE_SQUARE},      {"block", SCENE_SQUARE},  {"triangle", SCENE_TRIANGLE},
    {"pyramid", SCENE_TRIANGLE}, {"star", SCENE_STAR},     {"diamond", SCENE_DIAMOND},
};
static const struct word_value paths[] = {
    {"left", SCENE_LEFT},
    {"leftward", SCENE_LEFT},
    {"leftwards", SCENE_LEFT},
    {"right", SCENE_RIGHT},
    {"rightward", SCENE_RIGHT},
    {"rightwards", SCENE_RIGHT},
    {"up", SCENE_UP},
    {"upward", SCENE_UP},
    {"upwards", SCENE_UP},
    {"rising", SCENE_UP},
    {"down", SCENE_DOWN},
    {"downward", SCENE_DOWN},
    {"downwards", SCENE_DOWN},
    {"falling", SCENE_DOWN},
    {"diagonal", SCENE_DIAGONAL},
    {"diagonally", SCENE_DIAGONAL},
    {"orbit", SCENE_ORBIT},
    {"orbiting", SCENE_ORBIT},
    {"circling", SCENE_ORBIT},
    {"around", SCENE_ORBIT},
    {"bounce", SCENE_BOUNCE},
    {"bouncing", SCENE_BOUNCE},
    {"jumping", SCENE_BOUNCE},
};
static const struct word_value spins[] = {
    {"spinning", 1}, {"spin", 1}, {"rotating", 1}, {"turning", 1}, {"rolling", 1}};

/* The value of a word, or -1. */
static int value_of(const struct word_value *table, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i].word, word) == 0)
            return table[i].value;
    return -1;
}

static const struct colour *colour_of(const char *word)
{
    for (size_t i = 0; i < RL_ARRAY_LEN(colours); i++)
        if (strcmp(colours[i].word, word) == 0)
            return &colours[i].colour;
    return NULL;
}

/* FNV-1a over the prompt and the seed's bytes, then a finalizer (splitmix64) to spread them. */
static uint64_t hash_of(const char *prompt, int64_t seed)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *prompt; prompt++)
        h = (h ^ (unsigned char)*prompt) * UINT64_C(0x100000001b3);
    for (int i = 0; i < 8; i++)
        h = (h ^ ((uint64_t)seed >> (8 * i) & 255)) * UINT64_C(0x100000001b3);
    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 31;
}

/* The next word in lower case into word[WORD_BYTES] (a longer one is cut); NULL at the end. */
static const char *next_word(const char *at, char *word)
{
    size_t len = 0;
    while (*at && !((*at | 32) >= 'a' && (*at | 32) <= 'z'))
        at++;
    if (!*at)
        return NULL;
    for (; (*at | 32) >= 'a' && (*at | 32) <= 'z'; at++)
        if (len < WORD_BYTES - 1)
            word[len++] = (char)(*at | 32);
    word[len] = 0;
    return at;
}

static void dark_background(struct scene *s, struct colour c)
{
    static const struct colour black = {6, 7, 12};
    s->top = colour_mix(black, c, 120);
    s->bottom = colour_mix(black, c, 44);
}

struct scene scene_of(const char *prompt, int64_t seed)
{
    uint64_t h = hash_of(prompt, seed);
    int hue = (int)(h % 1536);
    struct scene s = {.hash = h,
                      .shape = (enum scene_shape)((h >> 16) % 5),
                      .path = (enum scene_path)((h >> 24) % 7),
                      .spin = (h >> 32) % 2};
    s.figure = colour_hsv(hue + 640 + (int)((h >> 40) % 256), 205, 250);
    dark_background(&s, colour_hsv(hue, 190, 235));

    bool have_colour = false, have_shape = false, have_path = false;
    const struct colour *last = NULL; /* the colour word just read, not yet spent */
    char word[WORD_BYTES];
    for (const char *at = next_word(prompt, word); at; at = next_word(at, word)) {
        const struct colour *c = colour_of(word);
        int shape = value_of(shapes, RL_ARRAY_LEN(shapes), word);
        int path = value_of(paths, RL_ARRAY_LEN(paths), word);
        if (last && strcmp(word, "background") == 0) {
            dark_background(&s, *last);
        } else if (last && !have_colour) {
            s.figure = *last;
            have_colour = true;
        }
        last = c;
        if (shape >= 0 && !have_shape) {
            s.shape = (enum scene_shape)shape;
            s.spin = false;
            have_shape = true;
        }
        if (path >= 0 && !have_path) {
            s.path = (enum scene_path)path;
            have_path = true;
        }
        if (value_of(spins, RL_ARRAY_LEN(spins), word) == 1)
            s.spin = true;
    }
    if (last && !have_colour)
        s.figure = *last;
    return s;
}
