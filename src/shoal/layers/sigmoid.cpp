// Sigmoid layer: 1 / (1 + exp(-x)) of each number.
#include "shoal/layers/elementwise.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// 1 / (1 + e^-x).
std::unique_ptr<Layer> make_Sigmoid(const LayerParameter& param) {
  return std::make_unique<Elementwise>(param, ops::Map{ops::MapKind::kSigmoid});
}

}  // namespace shoal
