// Files of params and ranges, read back by the formats' own rules.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "shoal/base/file.h"
#include "shoal/onnx/export.h"
#include "shoal/onnx/ranges.h"
#include "shoal/onnx/weight_files.h"
#include "support/data_files.h"
#include "support/expect.h"

namespace shoal::onnx_weight_files_test {
namespace {

using onnx::NamedArray;

constexpr float kMatrix[] = {1, 2, 3, 4, 5, 6}, kScalar[] = {7};

std::vector<NamedArray> arrays() { return {{"a/b.weight", {2, 3}, kMatrix}, {"s", {}, kScalar}}; }

std::uint64_t number(const std::string& bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, size);
  return value;
}

TEST(OnnxWeightFiles, NpzIsAZipOfNpyFiles) {
  const std::string folder = test::fresh_directory("onnx_files");
  const std::string path = folder + "/x.npz";
  ASSERT_OK(onnx::write_npz(path, arrays()));
  const std::string zip = test::get_file(path);
  const std::size_t end = zip.size() - 22;
  ASSERT_EQ(zip.substr(end, 4), "PK\x05\x06");
  ASSERT_EQ(number(zip, end + 10, 2), 2u) << "files";
  std::size_t entry = number(zip, end + 16, 4);
  ASSERT_EQ(number(zip, end + 12, 4), end - entry) << "bytes of the list";
  const char* const names[] = {"a/b.weight.npy", "s.npy"};
  const char* const shapes[] = {"(2,3,)", "()"};
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(zip.substr(entry, 4), "PK\x01\x02");
    const std::size_t at = number(zip, entry + 42, 4), size = number(zip, entry + 24, 4),
                      name = number(zip, entry + 28, 2);
    EXPECT_EQ(zip.substr(entry + 46, name), names[i]);
    ASSERT_EQ(zip.substr(at, 4), "PK\x03\x04");
    EXPECT_EQ(zip.substr(at + 4, 26), zip.substr(entry + 6, 26)) << "the same fields twice";
    const std::string npy = zip.substr(at + 30 + name, size);
    EXPECT_EQ(number(zip, entry + 16, 4),
              crc32(0, reinterpret_cast<const Bytef*>(npy.data()), static_cast<uInt>(npy.size())));
    EXPECT_EQ(npy.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
    const std::size_t header = 10 + number(npy, 8, 2);
    EXPECT_EQ(header % 64, 0u);
    EXPECT_HAS(npy.substr(0, header), shapes[i]);
    const std::span<const float> want = arrays()[i].numbers;
    ASSERT_EQ(npy.size() - header, want.size_bytes());
    EXPECT_EQ(std::memcmp(npy.data() + header, want.data(), want.size_bytes()), 0);
    entry += 46 + name;
  }
}

TEST(OnnxWeightFiles, SafetensorsHaveAHeaderOfJson) {
  const std::string folder = test::fresh_directory("onnx_files");
  const std::string path = folder + "/x.safetensors";
  ASSERT_OK(onnx::write_safetensors(path, arrays()));
  const std::string bytes = test::get_file(path);
  const std::size_t length = number(bytes, 0, 8);
  EXPECT_EQ(length % 8, 0u);
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  EXPECT_EQ(header["a/b.weight"],
            nlohmann::json::parse(R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})"));
  EXPECT_EQ(header["s"],
            nlohmann::json::parse(R"({"dtype":"F32","shape":[],"data_offsets":[24,28]})"));
  ASSERT_EQ(bytes.size(), 8 + length + 28);
  EXPECT_EQ(std::memcmp(bytes.data() + 8 + length, kMatrix, sizeof kMatrix), 0);
}

TEST(OnnxWeightFiles, RangesAreThoseOfOnnxruntime) {
  const std::string folder = test::fresh_directory("onnx_files");
  onnx::Ranges ranges;
  ranges.add("x", std::vector<float>{1, -2});
  ranges.add("x", std::vector<float>{0.5f, 3});
  ranges.add("none", {});
  ASSERT_OK(ranges.write(folder + "/r.json"));
  const auto all = nlohmann::json::parse(test::get_file(folder + "/r.json"));
  EXPECT_EQ(all["calibration_method"]["value"], "CalibrationMethod.MinMax");
  EXPECT_EQ(all["data"].size(), 1u);
  EXPECT_EQ(all["data"]["x"]["lowest"]["data"], -2);
  EXPECT_EQ(all["data"]["x"]["highest"]["data"], 3);
}

onnx::Graph graph_of(std::vector<float> numbers) {
  onnx::Graph graph;
  graph.name = "g";
  const auto count = static_cast<std::int64_t>(numbers.size());
  graph.constants.push_back({.name = "w", .dims = {count}, .own = std::move(numbers)});
  graph.constants.push_back({.name = "small", .dims = {1}, .own = {1}});
  graph.operations.push_back({"Add", "a", {"x", "w"}, {"y"}, {}});
  graph.inputs.push_back({"x", {{1, onnx::Dim::Kind::kBatch}, {count}}});
  graph.outputs.push_back({"y", {{1, onnx::Dim::Kind::kBatch}, {count}}});
  return graph;
}

TEST(OnnxFile, KeepsWeightsInsideOrBeside) {
  if (!onnx::why_no_onnx().empty()) GTEST_SKIP() << onnx::why_no_onnx();
  const std::string folder = test::fresh_directory("onnx_files");
  const std::string path = folder + "/x.onnx";
  const onnx::Graph graph = graph_of(std::vector<float>(300, 2.5f));
  ASSERT_OK(onnx::write_model(graph, path));
  EXPECT_GT(test::get_file(path).size(), 1200u);
  EXPECT_FALSE(file_exists(path + ".data"));
  ASSERT_OK(onnx::write_model(graph, path, {.external_data = true}));
  const std::string model = test::get_file(path), data = test::get_file(path + ".data");
  EXPECT_LT(model.size(), 400u);
  EXPECT_HAS(model, "x.onnx.data");
  EXPECT_EQ(data.size(), 1200u) << "small constants stay in the model";
}

TEST(OnnxFile, SaysWhatABuildWithoutTheSchemaNeeds) {
  if (onnx::why_no_onnx().empty()) GTEST_SKIP() << "this build has the schema";
  EXPECT_HAS(onnx::why_no_onnx(), "libonnx-dev");
  EXPECT_FAILS_WITH("libonnx-dev", onnx::write_model(graph_of({1}), "/nowhere/x.onnx"));
}

}  // namespace
}  // namespace shoal::onnx_weight_files_test
