// Images of bytes become a net's input.
#pragma once

#include <memory>

#include "shoal/tensor/byte_images.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

// Overwrites y (N, C, H, W) with (pixel - mean) x scale, in float32 and in this order, of the N
// crops in `block`, memory of the context's device, some of them mirrored.
//   mean (1), (C), or (C, IH, IW) of the whole images, looked up where a pixel was before the crop
//   and the mirror
// The same bits on every device, and as Transform::apply (data/transform.h) has them.
void transform_images(Context& ctx, const ByteImages& images, const std::shared_ptr<Memory>& block,
                      const Tensor& mean, float scale, Tensor& y);

// Says how far apart the mean's numbers lie for neighbours of one image. mean_steps CHECKs the
// shapes.
struct MeanSteps {
  std::int64_t channel = 0, row = 0, column = 0;
};
MeanSteps mean_steps(const ByteImages& images, const Tensor& mean, const Tensor& y);

}  // namespace shoal::ops
