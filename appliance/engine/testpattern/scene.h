/* What to draw: guessed from the words of a prompt, the rest from a hash of prompt and seed. */
#ifndef RL_ENGINE_TESTPATTERN_SCENE_H
#define RL_ENGINE_TESTPATTERN_SCENE_H

#include "engine/testpattern/canvas.h"

enum scene_shape { SCENE_BALL, SCENE_SQUARE, SCENE_TRIANGLE, SCENE_STAR, SCENE_DIAMOND };
enum scene_path {
    SCENE_LEFT,
    SCENE_RIGHT,
    SCENE_UP,
    SCENE_DOWN,
    SCENE_DIAGONAL,
    SCENE_ORBIT,
    SCENE_BOUNCE
};

struct scene {
    enum scene_shape shape;
    enum scene_path path;
    bool spin;
    struct colour figure;
    struct colour top, bottom; /* of the background */
    uint64_t hash;             /* of prompt and seed */
};

struct scene scene_of(const char *prompt, int64_t seed);

#endif
