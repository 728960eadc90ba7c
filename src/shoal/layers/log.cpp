// Log layer: the logarithm of shift + scale x.
#include "shoal/layers/elementwise.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// Computes the logarithm of (shift + scale x) to `base`. Throws ConfigError unless base is -1 (e)
// or above 0, and not 1.
std::unique_ptr<Layer> make_Log(const LayerParameter& param) {
  const LogParameter& log = param.log_param();
  const float log_base = log_of_base(param, log.base());
  if (log_base == 0) throw config_error(param, "base is 1, to which there is no logarithm");
  return std::make_unique<Elementwise>(
      param, ops::Map{ops::MapKind::kLog, log.scale(), log.shift(), 1 / log_base});
}

}  // namespace shoal
