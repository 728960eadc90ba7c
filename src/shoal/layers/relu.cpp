// ReLU layer: max(x, 0), or a small slope below 0.
#include "shoal/layers/elementwise.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// Computes x if x > 0, else negative_slope x. At 0 the gradient is that of the left side.
std::unique_ptr<Layer> make_ReLU(const LayerParameter& param) {
  return std::make_unique<Elementwise>(
      param, ops::Map{ops::MapKind::kRelu, param.relu_param().negative_slope()});
}

}  // namespace shoal
