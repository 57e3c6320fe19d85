/* The inner loops for AVX512-BF16: act = bf16 (compile options: CMakeLists.txt). */
#if defined(__AVX512BF16__)
#define KERNELS kernels_bf16
#define BF16    1
#include "engine/wan/cpu/kernels.inc"
#endif
