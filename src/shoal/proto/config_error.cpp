// Puts the place of a layer in front of an error.
#include "shoal/proto/config_error.h"

#include "shoal/proto/layers.pb.h"

namespace shoal {

std::string layer_place(const LayerParameter& layer) {
  const std::string place = layer.origin().empty() ? "" : layer.origin() + ": ";
  return place + "layer '" + layer.name() + "' (" + layer.type() + ")";
}

}  // namespace shoal
