// The ReLU of one number and of a run of numbers, for the map over a tensor and for kernels that
// end with it.
#pragma once

#include <cstdint>

namespace shoal::ops::cpu {

inline float relu(float x) { return x < 0 ? 0.0f : x; }
inline float leaky_relu(float slope, float x) { return x > 0 ? x : slope * x; }

inline void relu_in_place(float slope, float* x, std::int64_t n) {
  if (slope == 0)
    for (std::int64_t i = 0; i < n; ++i) x[i] = relu(x[i]);
  else
    for (std::int64_t i = 0; i < n; ++i) x[i] = leaky_relu(slope, x[i]);
}

}  // namespace shoal::ops::cpu
