// Reads from a layer's prototxt which engine may carry out its op.
#include "shoal/layers/selected_kernel.h"

namespace shoal {

std::string engine_of(const LayerParameter& param, int caffe_engine) {
  const std::string& named = param.engine();
  if (caffe_engine != ConvolutionParameter::CAFFE) return named;
  const bool agree = named.empty() || named == ops::kOwnEngine || ops::is_own(named);
  if (!agree)
    throw config_error(param, "engine: \"", named,
                       "\" of the layer contradicts engine: CAFFE of its parameters; give one of "
                       "them");
  return named.empty() ? ops::kOwnEngine : named;
}

}  // namespace shoal
