// Power layer: (shift + scale x)^power of each number.
#include "shoal/layers/elementwise.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// (shift + scale x) ^ power; shift ^ power, without a gradient, if power or scale is 0.
std::unique_ptr<Layer> make_Power(const LayerParameter& param) {
  const PowerParameter& power = param.power_param();
  return std::make_unique<Elementwise>(
      param, ops::Map{ops::MapKind::kPower, power.power(), power.scale(), power.shift()});
}

}  // namespace shoal
