/* Pictures of a small model to the size that was asked for. One thread per scaler. */
#ifndef RL_ENGINE_WAN_SCALE_H
#define RL_ENGINE_WAN_SCALE_H

#include "base/rl.h"

struct scaler;

/* From w × h to to_w × to_h, by a cubic filter (Catmull-Rom; widened where pictures shrink). The
 * shape of things is kept: the picture fills the shorter side, in the middle, and its border goes
 * on to both sides of the longer one. Returns new. */
enum rl_rc scaler_new(int w, int h, int to_w, int to_h, struct scaler **ret_scaler,
                      struct rl_err *err) RL_NODISCARD;
void scaler_free(struct scaler *scaler); /* NULL allowed */
/* rgb [h, w, 3]; the result [to_h, to_w, 3] is the scaler's, until the next call. */
const uint8_t *scaler_run(struct scaler *scaler, const uint8_t *rgb);

#endif
