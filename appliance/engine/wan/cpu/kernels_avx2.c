/* The inner loops for AVX2 and FMA (compile options: CMakeLists.txt). */
#if defined(__AVX2__)
#define KERNELS kernels_avx2
#define BF16    0
#include "engine/wan/cpu/kernels.inc"
#endif
