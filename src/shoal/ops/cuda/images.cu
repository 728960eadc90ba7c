// Images of bytes become numbers, on a CUDA device.
#include "shoal/ops/images.h"

#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/launch.h"

namespace shoal::ops::cuda {

void transform_images(Context& ctx, const ByteImages& images, const std::shared_ptr<Memory>& block,
                      const Tensor& mean, float scale, Tensor& y) {
  const MeanSteps steps = mean_steps(images, mean, y);
  const auto* const pixels = reinterpret_cast<const std::uint8_t*>(block->data());
  const auto* const crops = reinterpret_cast<const ImageCrop*>(block->data() + images.crops_at());
  const float* const means = read(ctx, mean);
  float* const out = write(ctx, y);
  const Divisor width(images.width), height(images.height), channels(images.channels);
  each(ctx, "images", y.count(), [=] __host__ __device__(std::int64_t i) {
    const std::int64_t rows = i / width, planes = rows / height, n = planes / channels;
    const std::int64_t x = i % width, row = rows % height, c = planes % channels;
    const ImageCrop crop = crops[n];
    const std::int64_t column = crop.mirrored ? width.value() - 1 - x : x;
    const std::int64_t image = n * channels.value() * height.value() * width.value();
    const std::int64_t at = crop.side_by_side
                                ? image + (row * width.value() + column) * channels.value() + c
                                : rows * width.value() + column;
    const float subtracted = means[c * steps.channel + (crop.top + row) * steps.row +
                                   (crop.left + column) * steps.column];
    out[i] = (static_cast<float>(pixels[at]) - subtracted) * scale;
  });
}

}  // namespace shoal::ops::cuda
