/* Numbers as they lie in weight files. No state; any thread. */
#ifndef RL_ENGINE_WAN_NUMBERS_H
#define RL_ENGINE_WAN_NUMBERS_H

#include "engine/wan/ops.h"

size_t wan_number_bytes(enum ops_type type); /* of one */
/* n numbers as they lie in a file, at any alignment, to f32, times scale. Exact before the scale:
 * every value of the four types is an f32. */
void wan_numbers(enum ops_type type, const void *data, int64_t n, float scale, float *ret_values);

#endif
