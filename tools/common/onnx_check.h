// Compares a net with the ONNX file that was made of it, as onnxruntime runs that.
#pragma once

#include <cstdint>
#include <string>

#include "shoal/net/net.h"
#include "shoal/onnx/export.h"

namespace shoal {

struct OnnxCheck {
  std::vector<std::string> outputs{};  // names in the file of the net's outputs, in order
  int runs = 1;
  bool free_batch = true;  // the batches are 1 and 2, in turns
  onnx::Preprocessing preprocessing{};
  std::uint64_t seed = 1;
  int deadline = 600;  // seconds, for all runs
};
// Runs random inputs through both and logs the largest difference of each output. Returns whether
// all are within 1e-4 of the output's largest number, and sizes agree. Throws ConfigError if no
// python3 can import onnxruntime and numpy, or onnxruntime cannot run the file.
bool check_onnx(Net& net, const std::string& path, const OnnxCheck& check);

}  // namespace shoal
