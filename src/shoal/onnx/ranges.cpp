#include "shoal/onnx/ranges.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shoal/base/file.h"

namespace shoal::onnx {

void Ranges::add(const std::string& value, std::span<const float> numbers) {
  if (numbers.empty()) return;
  const auto [low, high] = std::ranges::minmax(numbers);
  const auto [range, is_new] = ranges_.try_emplace(value, low, high);
  if (is_new) return;
  range->second.first = std::min(range->second.first, low);
  range->second.second = std::max(range->second.second, high);
}

Status Ranges::write(const std::string& path) const {
  const auto number = [](float value) {
    return nlohmann::ordered_json{{"data", value}, {"dtype", "float32"}, {"CLS", "numpy.array"}};
  };
  nlohmann::ordered_json data = nlohmann::ordered_json::object();
  for (const auto& [value, range] : ranges_)
    data[value] = {
        {"lowest", number(range.first)}, {"highest", number(range.second)}, {"CLS", "TensorData"}};
  const nlohmann::ordered_json all = {
      {"CLS", "TensorsData"},
      {"data", data},
      {"calibration_method", {{"CLS", "CalibrationMethod"}, {"value", "CalibrationMethod.MinMax"}}},
      {"smooth_quant", false}};
  return write_file(path, all.dump(1) + "\n", Code::kConfig);
}

}  // namespace shoal::onnx
