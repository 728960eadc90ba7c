// Threshold layer: 1 where a number exceeds the threshold, else 0.
#include "shoal/layers/elementwise.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// Computes 1 if x > threshold, else 0. There is no gradient: a net that needs one through it is
// refused.
std::unique_ptr<Layer> make_Threshold(const LayerParameter& param) {
  return std::make_unique<Elementwise>(
      param, ops::Map{ops::MapKind::kThreshold, param.threshold_param().threshold()});
}

}  // namespace shoal
