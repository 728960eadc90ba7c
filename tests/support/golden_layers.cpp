#include "support/golden_layers.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "shoal/base/log.h"

namespace shoal::test {
namespace {

using nlohmann::json;

// The files' 9 digits name one float each, but not all of them fit one before rounding (1e-45 and
// such).
Numbers numbers(const json& array) {
  Numbers out;
  for (const json& x : array) out.push_back(static_cast<float>(x.get<double>()));
  return out;
}

std::vector<Numbers> lists(const json& array) {
  std::vector<Numbers> out;
  for (const json& x : array) out.push_back(numbers(x));
  return out;
}

std::vector<ShapedNumbers> shaped(const json& array) {
  std::vector<ShapedNumbers> out;
  for (const json& x : array)
    out.push_back({Shape(x.at("shape").get<std::vector<std::int64_t>>()), numbers(x.at("data"))});
  return out;
}

}  // namespace

GoldenLayer read_golden_layer(const std::filesystem::path& file) {
  std::ifstream in(file);
  CHECK(in) << file << " cannot be read";
  const json all = json::parse(in);
  GoldenLayer golden;
  golden.name = all.at("name"), golden.type = all.at("type"), golden.layer = all.at("layer"),
  golden.phase = all.at("phase");
  golden.forwards = all.value("forwards", 1);
  golden.in_place = all.value("in_place", false);
  golden.backward = all.value("backward", true);
  golden.bottoms = shaped(all.at("bottoms")), golden.params = shaped(all.at("params")),
  golden.tops = shaped(all.at("tops"));
  if (all.contains("loss")) golden.loss = all.at("loss").get<double>();
  if (all.contains("params_after")) golden.params_after = shaped(all.at("params_after"));
  if (!golden.backward) return golden;
  golden.top_diffs = lists(all.at("top_diffs")), golden.param_diffs = lists(all.at("param_diffs"));
  for (const json& x : all.at("bottom_diffs"))
    golden.bottom_diffs.push_back(x.is_null() ? std::nullopt : std::optional(numbers(x)));
  return golden;
}

}  // namespace shoal::test
