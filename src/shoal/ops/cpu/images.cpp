// Images of bytes become numbers, on the CPU.
#include "shoal/ops/images.h"

#include "shoal/ops/cpu/elementary.h"

namespace shoal::ops::cpu {

// The plain oracle: on a CPU the threads that decode an image transform it at once.
void transform_images(Context&, const ByteImages& images, const std::shared_ptr<Memory>& block,
                      const Tensor& mean, float scale, Tensor& y) {
  const MeanSteps steps = mean_steps(images, mean, y);
  const auto* pixels = reinterpret_cast<const std::uint8_t*>(block->data());
  const auto* crops = reinterpret_cast<const ImageCrop*>(block->data() + images.crops_at());
  const float* means = mean.in();
  float* out = y.out();
  for (std::int64_t n = 0; n < images.images; ++n, pixels += images.image_bytes()) {
    const ImageCrop& crop = crops[n];
    for (std::int64_t c = 0; c < images.channels; ++c) {
      for (std::int64_t row = 0; row < images.height; ++row) {
        for (std::int64_t x = 0; x < images.width; ++x) {
          const std::int64_t column = crop.mirrored ? images.width - 1 - x : x;
          const std::int64_t at = crop.side_by_side
                                      ? (row * images.width + column) * images.channels + c
                                      : (c * images.height + row) * images.width + column;
          const float subtracted = means[c * steps.channel + (crop.top + row) * steps.row +
                                         (crop.left + column) * steps.column];
          *out++ = (static_cast<float>(pixels[at]) - subtracted) * scale;
        }
      }
    }
  }
}

}  // namespace shoal::ops::cpu
