// Every layer of the conformance tests that can be exported, as a net of its own. With the variable
// SHOAL_ONNX_CASES, a folder, the models are written there with inputs and outputs, for
// scripts/ecosystem_test.py, which runs them in onnxruntime.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "shoal/net/net.h"
#include "shoal/onnx/export.h"
#include "shoal/onnx/weight_files.h"
#include "shoal/proto/net.pb.h"
#include "support/expect.h"
#include "support/layer_cases.h"

namespace shoal::onnx_layer_cases_test {
namespace {

using onnx::Export;
using test::LayerCase;

// Cases of exported types that are refused, and a word of the reason.
constexpr std::pair<const char*, const char*> kRefused[] = {
    {"dropout_sampled_in_test_phase", "at random"},
    {"roialign_corners", "corners"},
};

NetParameter net_of(const LayerCase& c) {
  NetParameter net;
  net.set_name(c.name);
  net.mutable_state()->set_phase(TEST);
  for (std::size_t i = 0; i < c.bottoms.size(); ++i) {
    LayerParameter& input = *net.add_layer();
    input.set_name(str("input", i));
    input.set_type("Input");
    input.add_top(str("b", i));
    BlobShape& shape = *input.mutable_input_param()->add_shape();
    for (const std::int64_t dim : c.bottoms[i].shape.dims()) shape.add_dim(dim);
  }
  *net.add_layer() = test::layer_of(c);
  return net;
}

// A net of one case, with the case's numbers.
class CaseNet {
 public:
  explicit CaseNet(LayerCase c)
      : rig_(test::make_rig(c, {})),
        context_({}),
        net_(net_of(c), context_, {.share_memory = false, .fuse = false, .forward_only = true}) {
    Layer& layer = *net_.layers().back();
    for (std::size_t i = 0; i < layer.params().size(); ++i)
      test::put(rig_->param_value(static_cast<int>(i)), layer.params()[i]->data);
    for (Blob* input : onnx::input_blobs(net_))
      test::put(rig_->input(static_cast<int>(at_++)), input->data);
  }
  Net& net() { return net_; }
  // Repeats the first item of each input of the batch.
  void add_item() {
    const std::vector<Blob*> inputs = onnx::input_blobs(net_);
    std::vector<test::Numbers> numbers;
    for (const Blob* input : inputs) numbers.push_back(test::values(input->data));
    ASSERT_EQ(onnx::set_batch(net_, inputs[0]->shape()[0] + 1), "");
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto count = static_cast<std::size_t>(inputs[i]->data.count());
      for (std::size_t k = 0; numbers[i].size() < count; ++k) numbers[i].push_back(numbers[i][k]);
      test::put(numbers[i], inputs[i]->data);
    }
  }

 private:
  std::unique_ptr<test::LayerRig> rig_;
  std::size_t at_ = 0;
  Context context_;
  Net net_;
};

void write_run(Net& net, const std::string& stem) {
  std::vector<onnx::NamedArray> arrays;
  for (const Blob* input : onnx::input_blobs(net))
    arrays.push_back({input->name, input->shape().dims(), input->data.host()});
  or_throw(onnx::write_npz(stem + ".in.npz", arrays));
  or_throw(net.forward());
  arrays.clear();
  for (const Blob* output : net.outputs())
    arrays.push_back({output->name, output->shape().dims(), output->data.host()});
  or_throw(onnx::write_npz(stem + ".want.npz", arrays));
}

// Each value is made once, before it is taken.
void expect_in_order(const onnx::Graph& graph) {
  std::set<std::string> made{""}, operations;
  const auto make = [&](const std::string& name) {
    EXPECT_TRUE(made.insert(name).second) << name << " is made twice";
  };
  for (const onnx::Value& input : graph.inputs) make(input.name);
  for (const onnx::Constant& constant : graph.constants) make(constant.name);
  for (const onnx::Operation& operation : graph.operations) {
    EXPECT_TRUE(operations.insert(operation.name).second)
        << operation.name << " is the name of two operations";
    for (const std::string& input : operation.inputs)
      EXPECT_TRUE(made.contains(input)) << operation.name << " takes " << input;
    for (const std::string& output : operation.outputs) make(output);
  }
  for (const onnx::Value& output : graph.outputs)
    EXPECT_TRUE(made.contains(output.name)) << "output " << output.name;
}

std::vector<LayerCase> exported_cases() {
  const std::vector<std::string> types = onnx::exported_types();
  std::vector<LayerCase> cases;
  for (LayerCase c : test::every_layer_case()) {
    if (std::ranges::find(types, c.type) == types.end()) continue;
    c.phase = TEST;
    cases.push_back(c);
  }
  return cases;
}

class OnnxCases : public testing::TestWithParam<LayerCase> {};

TEST_P(OnnxCases, AreExported) {
  const LayerCase& c = GetParam();
  CaseNet net(c);
  const auto refused =
      std::ranges::find(kRefused, c.name, [](const auto& one) { return std::string(one.first); });
  if (refused != std::end(kRefused)) {
    EXPECT_HAS(test::message_of([&] { onnx::export_net(net.net()); }), refused->second);
    return;
  }
  const Export exported = onnx::export_net(net.net());
  expect_in_order(exported.graph);
  ASSERT_EQ(exported.graph.outputs.size(), net.net().outputs().size());
  for (std::size_t i = 0; i < exported.graph.outputs.size(); ++i)
    EXPECT_EQ(exported.graph.outputs[i].name, net.net().outputs()[i]->name);
  const char* const folder = std::getenv("SHOAL_ONNX_CASES");
  if (folder == nullptr || c.tops == 0) return;
  const std::string stem = str(folder, "/", c.name);
  or_throw(onnx::write_model(exported.graph, stem + ".onnx"));
  CaseNet again(c);
  write_run(again.net(), stem + ".0");
  if (!exported.fixed_by.empty()) return;
  CaseNet more(c);
  more.add_item();
  write_run(more.net(), stem + ".1");
}

INSTANTIATE_TEST_SUITE_P(All, OnnxCases, testing::ValuesIn(exported_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(OnnxTypes, HaveACaseEach) {
  std::set<std::string> tried;
  for (const LayerCase& c : exported_cases()) tried.insert(c.type);
  for (const std::string& type : onnx::exported_types()) EXPECT_TRUE(tried.contains(type)) << type;
}

}  // namespace
}  // namespace shoal::onnx_layer_cases_test
