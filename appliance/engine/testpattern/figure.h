/* The moving figure of the test card. */
#ifndef RL_ENGINE_TESTPATTERN_FIGURE_H
#define RL_ENGINE_TESTPATTERN_FIGURE_H

#include "engine/testpattern/scene.h"

struct stage {
    int width, height, unit; /* px */
    int ground;              /* px: where shadows fall */
    int frames;              /* of the clip */
};

/* Paint the figure and its shadow as they stand in frame `index`. */
void figure_paint(struct canvas *c, const struct scene *scene, const struct stage *stage,
                  int index);

#endif
