// BNLL layer: ln(1 + exp(x)) of each number.
#include "shoal/layers/elementwise.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// Computes ln(1 + e^x), the binomial normal log likelihood.
std::unique_ptr<Layer> make_BNLL(const LayerParameter& param) {
  return std::make_unique<Elementwise>(param, ops::Map{ops::MapKind::kSoftplus});
}

}  // namespace shoal
