// Looks at the shapes that transform_images is given.
#include "shoal/ops/images.h"

#include "shoal/base/log.h"

namespace shoal::ops {

MeanSteps mean_steps(const ByteImages& images, const Tensor& mean, const Tensor& y) {
  CHECK(y.count() == images.images * images.image_bytes())
      << y.shape().str() << " of " << images.images << " images";
  if (mean.count() == 1) return {};
  const Shape& shape = mean.shape();
  CHECK(shape[0] == images.channels) << "mean " << shape.str() << " for " << y.shape().str();
  if (shape.axes() == 1) return {.channel = 1};
  CHECK(shape.axes() == 3 && shape[1] >= images.height && shape[2] >= images.width)
      << "mean " << shape.str() << " for " << y.shape().str();
  return {.channel = shape[1] * shape[2], .row = shape[2], .column = 1};
}

}  // namespace shoal::ops
