/* The test card: what every frame of a clip looks like. */
#ifndef RL_ENGINE_TESTPATTERN_CARD_H
#define RL_ENGINE_TESTPATTERN_CARD_H

#include "engine/testpattern/scene.h"

struct engine_request;
struct card; /* the still parts, painted once, and the frame being painted */

/* Returns new. The request is borrowed for the call. */
enum rl_rc card_new(const struct engine_request *request, struct card **ret_card,
                    struct rl_err *err) RL_NODISCARD;
void card_free(struct card *card);
/* Paint frame `index`; rows of width*3 bytes, borrowed until the next call. */
const uint8_t *card_frame(struct card *card, int index);
/* A frame in which all pixels are equal. */
const uint8_t *card_constant(struct card *card);

#endif
