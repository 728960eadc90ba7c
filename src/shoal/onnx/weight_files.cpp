#include "shoal/onnx/weight_files.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "shoal/base/file.h"
#include "shoal/proto/layers.pb.h"

namespace shoal::onnx {
namespace {

static_assert(std::endian::native == std::endian::little, "these files are little-endian");

std::string_view bytes_of(std::span<const float> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()};
}

// Appends the low bytes of a number, the lowest first.
void put(std::string& to, std::uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<char>(number >> (8 * i) & 0xff));
}

// Returns what stands before the numbers of an .npy file, version 1.0; the numbers begin at a
// multiple of 64.
std::string npy_header(const NamedArray& array) {
  std::string shape;
  for (const std::int64_t dim : array.dims) shape += std::to_string(dim) + ",";
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr std::size_t kPrefix = 10, kAlign = 64;
  text.append((kAlign - (kPrefix + text.size() + 1) % kAlign) % kAlign, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  put(header, text.size(), 2);
  return header + text;
}

std::uint32_t crc_of(std::uint32_t crc, std::string_view bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// The fields that a file's entry has both before its bytes and in the list at the end.
std::string zip_fields(const std::string& name, std::uint32_t crc, std::uint64_t size) {
  constexpr std::uint64_t kVersion = 20, kFlags = 0, kStored = 0, kTime = 0, kDate = 0x21;
  std::string fields;
  for (const std::uint64_t field : {kVersion, kFlags, kStored, kTime, kDate}) put(fields, field, 2);
  put(fields, crc, 4);
  put(fields, size, 4);
  put(fields, size, 4);
  put(fields, name.size(), 2);
  put(fields, 0, 2);  // no extra field
  return fields;
}

}  // namespace

std::string param_name(const Layer& layer, int param) {
  static constexpr std::string_view kWeighted[] = {"Bias",
                                                   "Convolution",
                                                   "ConvolutionDepthwise",
                                                   "Deconvolution",
                                                   "DepthwiseConvolution",
                                                   "Embed",
                                                   "InnerProduct",
                                                   "Scale"};
  static constexpr std::string_view kNorm[] = {"mean", "variance", "factor", "scale", "shift"};
  const auto at = static_cast<std::size_t>(param);
  const std::string prefix = layer.name() + ".";
  if (layer.type() == "BatchNorm" && at < std::size(kNorm)) return prefix + std::string(kNorm[at]);
  if (std::ranges::find(kWeighted, layer.type()) == std::end(kWeighted) || param > 1)
    return prefix + std::to_string(param);
  // Scale with two bottoms has a shift alone, and so has Bias.
  const bool shifts =
      layer.type() == "Bias" || (layer.type() == "Scale" && layer.param().bottom_size() == 2);
  return prefix + (param == 1 || shifts ? "bias" : "weight");
}

std::vector<NamedArray> param_arrays(const Net& net) {
  std::vector<NamedArray> arrays;
  for (const auto& layer : net.layers())
    for (int i = 0; i < static_cast<int>(layer->params().size()); ++i) {
      const Tensor& data = layer->params()[static_cast<std::size_t>(i)]->data;
      arrays.push_back({param_name(*layer, i), data.shape().dims(), data.host()});
    }
  return arrays;
}

Status write_npz(const std::string& path, std::span<const NamedArray> arrays) {
  Result<AtomicFile> made = AtomicFile::create(path, Code::kConfig);
  if (!made.ok()) return made.error();
  AtomicFile file = std::move(made.value());
  std::string list;
  std::uint64_t at = 0;
  for (const NamedArray& array : arrays) {
    const std::string name = array.name + ".npy", header = npy_header(array);
    const std::uint64_t size = header.size() + array.numbers.size_bytes();
    const std::uint32_t crc = crc_of(crc_of(0, header), bytes_of(array.numbers));
    const std::string fields = zip_fields(name, crc, size);
    std::string front = "PK\x03\x04";
    front.append(fields).append(name).append(header);
    list += "PK\x01\x02";
    put(list, 20, 2);  // made by: version 2.0
    list += fields;
    for (const int bytes : {2, 2, 2, 4}) put(list, 0, bytes);  // no comment, disk 0, no attributes
    put(list, at, 4);
    list += name;
    at += front.size() + array.numbers.size_bytes();
    if (at > std::numeric_limits<std::uint32_t>::max())
      return Error{Code::kConfig, path + ": an .npz file holds at most 4 GiB; write .safetensors"};
    for (const std::string_view part : {std::string_view(front), bytes_of(array.numbers)})
      if (Status written = file.write(part); !written.ok()) return written;
  }
  std::string end = list + "PK\x05\x06";
  put(end, 0, 4);  // disks
  put(end, arrays.size(), 2);
  put(end, arrays.size(), 2);
  put(end, list.size(), 4);
  put(end, at, 4);
  put(end, 0, 2);  // no comment
  if (Status written = file.write(end); !written.ok()) return written;
  return file.commit();
}

Status write_safetensors(const std::string& path, std::span<const NamedArray> arrays) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::uint64_t at = 0;
  for (const NamedArray& array : arrays) {
    const std::uint64_t end = at + array.numbers.size_bytes();
    header[array.name] = {{"dtype", "F32"}, {"shape", array.dims}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the numbers are aligned
  std::string length;
  put(length, text.size(), 8);
  Result<AtomicFile> made = AtomicFile::create(path, Code::kConfig);
  if (!made.ok()) return made.error();
  AtomicFile file = std::move(made.value());
  if (Status written = file.write(length + text); !written.ok()) return written;
  for (const NamedArray& array : arrays)
    if (Status written = file.write(bytes_of(array.numbers)); !written.ok()) return written;
  return file.commit();
}

}  // namespace shoal::onnx
