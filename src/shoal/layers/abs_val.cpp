// AbsVal layer: the absolute value of each number.
#include "shoal/layers/elementwise.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// |x|; at 0 the gradient is 0.
std::unique_ptr<Layer> make_AbsVal(const LayerParameter& param) {
  return std::make_unique<Elementwise>(param, ops::Map{ops::MapKind::kAbs});
}

}  // namespace shoal
