// Exp layer: base^(shift + scale x) of each number.
#include <cmath>

#include "shoal/layers/elementwise.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// Computes base ^ (shift + scale x), as base ^ shift times e ^ (ln(base) scale x). Throws
// ConfigError unless base is -1 (e) or above 0.
std::unique_ptr<Layer> make_Exp(const LayerParameter& param) {
  const ExpParameter& exp = param.exp_param();
  const float log_base = log_of_base(param, exp.base());
  return std::make_unique<Elementwise>(param, ops::Map{ops::MapKind::kExp, log_base * exp.scale(),
                                                       std::exp(log_base * exp.shift())});
}

}  // namespace shoal
