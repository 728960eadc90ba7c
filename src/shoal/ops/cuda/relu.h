// The ReLU with which a kernel of a CUDA device ends, if there is one. For .cu files alone.
#pragma once

#include <optional>

namespace shoal::ops::cuda {

struct Relu {
  explicit Relu(std::optional<float> negative_slope)
      : is_wanted(negative_slope.has_value()), slope(negative_slope.value_or(1)) {}
  __host__ __device__ float operator()(float x) const {
    if (!is_wanted) return x;
    if (slope == 0) return x < 0 ? 0.0f : x;  // a NaN stays
    return x > 0 ? x : slope * x;
  }
  // Returns the gradient before it, of that behind it, where it got x.
  __host__ __device__ float backward(float x, float dy) const {
    return !is_wanted || x > 0 ? dy : slope * dy;
  }
  bool is_wanted;
  float slope;
};

}  // namespace shoal::ops::cuda
