// Clip layer: limits each number to a range.
#include "shoal/layers/elementwise.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// Cuts x to [min, max]; the gradient passes inside and at both ends. Throws ConfigError unless both
// are given and min <= max.
std::unique_ptr<Layer> make_Clip(const LayerParameter& param) {
  const ClipParameter& clip = param.clip_param();
  if (!clip.has_min() || !clip.has_max())
    throw config_error(param, "clip_param must give both min and max");
  if (!(clip.min() <= clip.max()))
    throw config_error(param, "min is ", clip.min(), ", above max, ", clip.max());
  return std::make_unique<Elementwise>(param,
                                       ops::Map{ops::MapKind::kClip, clip.min(), clip.max()});
}

}  // namespace shoal
