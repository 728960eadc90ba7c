// Preprocessing: the changes of images before a net sees them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/tensor/shape.h"

namespace shoal::onnx {

// (x with channels reversed - mean) scale, for images (N, C, H, W).
struct Preprocessing {
  bool swap_channels = false;  // of three
  // (C), (1) for all channels, or (C, H, W), which may be larger than the images: its middle counts
  // then. Empty: nothing is subtracted.
  std::vector<float> mean{};
  std::vector<std::int64_t> mean_dims{};
  float scale = 1;
  bool is_nothing() const { return !swap_channels && mean.empty() && scale == 1; }
};

// The mean as images of a shape take it: (C, 1, 1), (1, 1, 1) or (C, H, W).
struct MeanImage {
  std::vector<std::int64_t> dims;
  std::vector<float> numbers;
};
MeanImage mean_for(const Preprocessing& preprocessing, const Shape& images);

// Throws ConfigError if images of this shape cannot be treated so.
void check_preprocessing(const Preprocessing& preprocessing, const Shape& images);
// Does it in place, after check_preprocessing.
void preprocess(const Preprocessing& preprocessing, const Shape& shape, std::span<float> images);

}  // namespace shoal::onnx
