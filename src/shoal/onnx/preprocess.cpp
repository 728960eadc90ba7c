#include "shoal/onnx/preprocess.h"

#include <algorithm>

#include "shoal/base/error.h"
#include "shoal/base/log.h"

namespace shoal::onnx {

void check_preprocessing(const Preprocessing& how, const Shape& images) {
  if (how.is_nothing()) return;
  if (images.axes() != 4)
    throw ConfigError(Code::kConfig, "mean, scale and channel order are for images (N, C, H, W); ",
                      "the net's input has shape ", images.str());
  if (how.swap_channels && images[1] != 3)
    throw ConfigError(Code::kConfig, "the net's input has ", images[1],
                      " channels; three can be swapped");
  const auto& mean = how.mean_dims;
  if (how.mean.empty()) return;
  if (mean.size() == 1 ? mean[0] != 1 && mean[0] != images[1] : mean[0] != images[1])
    throw ConfigError(Code::kConfig, "the mean has ", mean[0], " channels, the net's input ",
                      images[1]);
  if (mean.size() == 3 && (mean[1] < images[2] || mean[2] < images[3]))
    throw ConfigError(Code::kConfig, "the mean image is ", mean[1], " x ", mean[2],
                      ", smaller than the net's input, ", images[2], " x ", images[3]);
}

MeanImage mean_for(const Preprocessing& how, const Shape& images) {
  if (how.mean_dims.size() == 1) return {{how.mean_dims[0], 1, 1}, how.mean};
  CHECK(how.mean_dims.size() == 3) << how.mean_dims.size();
  const std::int64_t channels = images[1], height = images[2], width = images[3];
  MeanImage mean{{channels, height, width}, {}};
  const std::int64_t h = how.mean_dims[1], w = how.mean_dims[2], top = (h - height) / 2,
                     left = (w - width) / 2;
  for (std::int64_t row = 0; row < channels * height; ++row) {
    const std::int64_t begin = (row / height * h + top + row % height) * w + left;
    const auto first = how.mean.begin() + begin;
    mean.numbers.insert(mean.numbers.end(), first, first + width);
  }
  return mean;
}

void preprocess(const Preprocessing& how, const Shape& shape, std::span<float> images) {
  if (how.is_nothing()) return;
  const auto plane = static_cast<std::size_t>(shape.count(2)),
             item = static_cast<std::size_t>(shape.count(1));
  const MeanImage mean = how.mean.empty() ? MeanImage{{1, 1, 1}, {0}} : mean_for(how, shape);
  const std::size_t each = mean.dims[2] == 1 && mean.dims[1] == 1 ? plane : 1;
  for (std::size_t at = 0; at < images.size(); at += item) {
    const std::span<float> image = images.subspan(at, item);
    if (how.swap_channels)
      std::swap_ranges(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(plane),
                       image.end() - static_cast<std::ptrdiff_t>(plane));
    for (std::size_t i = 0; i < item; ++i)
      image[i] = (image[i] - mean.numbers[i / each % mean.numbers.size()]) * how.scale;
  }
}

}  // namespace shoal::onnx
