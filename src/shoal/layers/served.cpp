#include "shoal/layers/served.h"

namespace shoal {

std::string engine_of(const LayerParameter& param, int caffe_engine) {
  constexpr int kCaffe = 1, kCudnn = 2;
  const std::string& ours = param.engine();
  const std::string caffe = caffe_engine == kCaffe   ? ops::kOwnEngine
                            : caffe_engine == kCudnn ? "cudnn"
                                                     : "";
  if (ours.empty() || caffe.empty()) return ours.empty() ? caffe : ours;
  const bool agree = caffe_engine == kCudnn ? ours == caffe : ops::is_own(ours);
  if (!agree)
    throw config_error(param, "engine: \"", ours, "\" of the layer contradicts engine: ",
                       caffe_engine == kCudnn ? "CUDNN" : "CAFFE",
                       " of its parameters; give one of them");
  return ours;
}

}  // namespace shoal
