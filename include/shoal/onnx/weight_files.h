// Params of a net as files of arrays that other programs read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/net/net.h"

namespace shoal::onnx {

// An array of floats that someone else keeps.
struct NamedArray {
  std::string name;
  std::vector<std::int64_t> dims;
  std::span<const float> numbers;
};

// Returns "<layer>.weight" and the like: weight and bias of convolutions, inner products, Embed,
// Scale and Bias; mean, variance, factor, scale and shift of BatchNorm; else the param's number.
std::string param_name(const Layer& layer, int param);
// Returns all params; those that layers share once for each.
std::vector<NamedArray> param_arrays(const Net& net);

// Writes NumPy's archive: a zip file, not compressed, of one .npy file an array. Errors (kConfig)
// are the system's, or name an archive that zip's 32 bits cannot hold (4 GiB).
Status write_npz(const std::string& path, std::span<const NamedArray> arrays);
// Writes Hugging Face's format: 8 bytes with the length of a JSON header, it, and the numbers.
Status write_safetensors(const std::string& path, std::span<const NamedArray> arrays);

}  // namespace shoal::onnx
