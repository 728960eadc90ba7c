// Says for which level of x86-64 this folder is compiled, in data alone: any processor may read it.
#include "shoal/ops/cpu_kernels.h"

namespace shoal::ops {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512CD__) && \
    defined(__AVX512DQ__) && defined(__AVX512VL__)
const int kCpuLevel = 4;
#elif defined(__AVX2__) && defined(__BMI2__) && defined(__F16C__) && defined(__FMA__)
const int kCpuLevel = 3;
#elif defined(__SSE4_2__) && defined(__POPCNT__)
const int kCpuLevel = 2;
#else
const int kCpuLevel = 1;
#endif

}  // namespace shoal::ops
