/* The inner loops in what every processor of the build's architecture has. */
#define KERNELS kernels_lanes
#define BF16    0
#include "engine/wan/cpu/kernels.inc"
