// Marks small functions that host code and device kernels share.
#pragma once

#if defined(__CUDACC__)
#define SHOAL_ON_ANY_DEVICE __host__ __device__
#else
#define SHOAL_ON_ANY_DEVICE
#endif
