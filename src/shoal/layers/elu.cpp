// ELU layer: x where x > 0, else alpha (exp(x) - 1).
#include "shoal/layers/elementwise.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// Computes x if x > 0, else alpha (e^x - 1).
std::unique_ptr<Layer> make_ELU(const LayerParameter& param) {
  return std::make_unique<Elementwise>(param,
                                       ops::Map{ops::MapKind::kElu, param.elu_param().alpha()});
}

}  // namespace shoal
