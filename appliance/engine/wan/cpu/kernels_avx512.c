/* The inner loops for AVX-512 F, BW, DQ and VL (compile options: CMakeLists.txt). */
#if defined(__AVX512F__)
#define KERNELS kernels_avx512
#define BF16    0
#include "engine/wan/cpu/kernels.inc"
#endif
