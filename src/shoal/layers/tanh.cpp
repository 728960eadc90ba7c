// TanH layer: the hyperbolic tangent of each number.
#include "shoal/layers/elementwise.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// (e^x - e^-x) / (e^x + e^-x).
std::unique_ptr<Layer> make_TanH(const LayerParameter& param) {
  return std::make_unique<Elementwise>(param, ops::Map{ops::MapKind::kTanh});
}

}  // namespace shoal
