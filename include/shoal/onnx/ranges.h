// The ranges of a net's values, from which onnxruntime's quantiser chooses its steps.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>

#include "shoal/base/error.h"

namespace shoal::onnx {

// The smallest and the largest number of each value that was added.
class Ranges {
 public:
  void add(const std::string& value, std::span<const float> numbers);
  const std::map<std::string, std::pair<float, float>>& all() const { return ranges_; }
  // Writes what onnxruntime.quantization's load_tensors_data reads, and quantize_static as
  // calibration_cache_path: a TensorsData of method MinMax, as JSON.
  Status write(const std::string& path) const;

 private:
  std::map<std::string, std::pair<float, float>> ranges_;
};

}  // namespace shoal::onnx
