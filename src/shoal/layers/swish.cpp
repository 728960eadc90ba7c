// Swish layer: x sigmoid(beta x) of each number.
#include "shoal/layers/elementwise.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// Computes x / (1 + e^(-beta x)).
std::unique_ptr<Layer> make_Swish(const LayerParameter& param) {
  return std::make_unique<Elementwise>(param,
                                       ops::Map{ops::MapKind::kSwish, param.swish_param().beta()});
}

}  // namespace shoal
