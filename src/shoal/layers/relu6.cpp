// ReLU6 layer, of MobileNet's forks: the ReLU, 6 at most.
#include "shoal/layers/elementwise.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// Computes min(x, 6) for x above 0, else negative_slope x.
std::unique_ptr<Layer> make_ReLU6(const LayerParameter& param) {
  const float slope = param.relu6_param().negative_slope();
  return std::make_unique<Elementwise>(param, ops::Map{ops::MapKind::kCapped, slope, 6});
}

}  // namespace shoal
