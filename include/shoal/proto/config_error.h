// Makes errors about a layer that name its place: "net.prototxt:12: layer 'conv1' (Convolution):
// kernel 7 is larger than ...".
#pragma once

#include <string>

#include "shoal/base/error.h"

namespace shoal {

class LayerParameter;

// "net.prototxt:12: layer 'conv1' (Convolution)"; without the place if the layer was not read from
// a file.
std::string layer_place(const LayerParameter& layer);

// An error about one layer; `args` are joined into the sentence. For throw.
template <class... Args>
ConfigError config_error(const LayerParameter& layer, const Args&... args) {
  return ConfigError(Code::kConfig, layer_place(layer), ": ", args...);
}

// The same with another code: kData where a record or a database is at fault.
template <class... Args>
ConfigError config_error(Code code, const LayerParameter& layer, const Args&... args) {
  return ConfigError(code, layer_place(layer), ": ", args...);
}

}  // namespace shoal
