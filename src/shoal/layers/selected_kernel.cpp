// Reads from a layer's prototxt which engine may carry out its op.
#include "shoal/layers/selected_kernel.h"

namespace shoal {

std::string engine_of(const LayerParameter& param, int caffe_engine) {
  const std::string& named = param.engine();
  const std::string caffe = ops::engine_of_caffe(caffe_engine);
  if (named.empty() || caffe.empty()) return named.empty() ? caffe : named;
  const bool agree = named == caffe || (caffe == ops::kOwnEngine && ops::is_own(named));
  if (!agree)
    throw config_error(param, "engine: \"", named, "\" of the layer contradicts engine: ",
                       ConvolutionParameter::Engine_Name(caffe_engine),
                       " of its parameters; give one of them");
  return named;
}

}  // namespace shoal
