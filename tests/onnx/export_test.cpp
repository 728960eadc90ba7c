// The structure of exported graphs: names, batches, pooling, preprocessing, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "shoal/net/net.h"
#include "shoal/onnx/export.h"
#include "shoal/proto/net.pb.h"
#include "support/expect.h"
#include "support/layer_rig.h"

namespace shoal::onnx_export_test {
namespace {

using onnx::Export;
using onnx::ExportOptions;
using onnx::Graph;
using onnx::Operation;

// A net in phase TEST of layers in prototxt, behind an input "data" of these sizes.
class TestNet {
 public:
  TestNet(const std::vector<std::int64_t>& sizes, const std::vector<std::string>& layers)
      : context_({}) {
    NetParameter param;
    param.set_name("n");
    param.mutable_state()->set_phase(TEST);
    *param.add_layer() = test::parse_layer("layer { name: 'data' type: 'Input' top: 'data' }");
    BlobShape& shape = *param.mutable_layer(0)->mutable_input_param()->add_shape();
    for (const std::int64_t size : sizes) shape.add_dim(size);
    for (const std::string& layer : layers)
      *param.add_layer() = test::parse_layer("layer { " + layer + " }");
    net_ = std::make_unique<Net>(
        param, context_, NetOptions{.share_memory = false, .fuse = false, .forward_only = true});
  }
  Export run(const ExportOptions& options = {}) { return onnx::export_net(*net_, options); }
  Net& net() { return *net_; }

 private:
  Context context_;
  std::unique_ptr<Net> net_;
};

// "Conv(data, conv.weight) > conv" and so on; constants without names of params are left out.
std::vector<std::string> lines_of(const Graph& graph) {
  std::vector<std::string> lines;
  for (const Operation& one : graph.operations) {
    std::string line = one.op + "(";
    for (const std::string& input : one.inputs)
      if (input.find("/integers") == std::string::npos &&
          input.find("/numbers") == std::string::npos)
        line += (line.back() == '(' ? "" : ", ") + input;
    line += ") >";
    for (const std::string& output : one.outputs) line += " " + output;
    lines.push_back(line);
  }
  return lines;
}

const Operation& operation_of(const Graph& graph, const std::string& op) {
  return *std::ranges::find(graph.operations, op, &Operation::op);
}
std::vector<std::int64_t> integers_of(const Operation& operation, const std::string& name) {
  for (const auto& [attribute, value] : operation.attributes)
    if (attribute == name) return std::get<std::vector<std::int64_t>>(value);
  return {};
}
const onnx::Constant& constant_of(const Graph& graph, const std::string& name) {
  return *std::ranges::find(graph.constants, name, &onnx::Constant::name);
}

TEST(OnnxExport, KeepsTheNamesOfBlobsThatLayersOverwrite) {
  TestNet net({2, 3}, {"name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' "
                       "inner_product_param { num_output: 4 }",
                       "name: 'relu' type: 'ReLU' bottom: 'ip' top: 'ip'",
                       "name: 'drop' type: 'Dropout' bottom: 'ip' top: 'ip'",
                       "name: 'out' type: 'Sigmoid' bottom: 'ip' top: 'out'",
                       "name: 'gone' type: 'Dropout' bottom: 'out' top: 'end'"});
  EXPECT_EQ(lines_of(net.run().graph),
            (std::vector<std::string>{"Gemm(data, ip.weight, ip.bias) > ip/ip", "Relu(ip/ip) > ip",
                                      "Sigmoid(ip) > out", "Identity(out) > end"}));
}

TEST(OnnxExport, TakesNoNameTwice) {
  TestNet net({2, 3}, {"name: 'a' type: 'Swish' bottom: 'data' top: 'a/Sigmoid' "
                       "swish_param { beta: 2 }",
                       "name: 'a/Sigmoid' type: 'ReLU' bottom: 'a/Sigmoid' top: 'b'"});
  EXPECT_EQ(
      lines_of(net.run().graph),
      (std::vector<std::string>{"Mul(data) > a/Mul", "Sigmoid(a/Mul) > a/Sigmoid_2",
                                "Mul(data, a/Sigmoid_2) > a/Sigmoid", "Relu(a/Sigmoid) > b"}));
}

TEST(OnnxExport, LeavesTheBatchFree) {
  const std::vector<std::string> layers{
      "name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { num_output: "
      "4 axis: 2 }",
      "name: 'rows' type: 'Reshape' bottom: 'ip' top: 'rows' reshape_param { shape { dim: -1 dim: "
      "4 } }"};
  TestNet net({2, 3, 5}, layers);
  const Export free = net.run();
  using Kind = onnx::Dim::Kind;
  EXPECT_EQ(free.fixed_by, "");
  EXPECT_EQ(free.graph.inputs[0].dims, (onnx::Dims{{1, Kind::kBatch}, {3}, {5}}));
  EXPECT_EQ(free.graph.outputs[0].dims, (onnx::Dims{{3, Kind::kBatch}, {4}}));
  EXPECT_EQ(net.net().blob("rows")->shape(), (Shape{6, 4}));
  const Export held = net.run({.free_batch = false});
  EXPECT_EQ(held.graph.inputs[0].dims, (onnx::Dims{{2}, {3}, {5}}));
  EXPECT_EQ(held.graph.outputs[0].dims, (onnx::Dims{{6}, {4}}));
}

TEST(OnnxExport, SaysWhichLayerFixesTheBatch) {
  TestNet net({2, 6}, {"name: 'square' type: 'Reshape' bottom: 'data' top: 'x' reshape_param { "
                       "shape { dim: 2 dim: 3 dim: 2 } }"});
  const Export exported = net.run();
  EXPECT_HAS(exported.fixed_by, "layer 'square' (Reshape)");
  EXPECT_EQ(exported.graph.inputs[0].dims, (onnx::Dims{{2}, {6}}));
  EXPECT_EQ(net.net().blob("x")->shape(), (Shape{2, 3, 2}));
}

TEST(OnnxExport, WritesOutTheRoundingOfPooling) {
  const std::string pool = "name: 'p' type: 'Pooling' bottom: 'data' top: 'p' pooling_param { ";
  TestNet largest({1, 1, 6, 6}, {pool + "kernel_size: 3 stride: 2 }"});
  const Graph graph = largest.run().graph;
  EXPECT_EQ(lines_of(graph), (std::vector<std::string>{"MaxPool(data) > p"}));
  EXPECT_EQ(integers_of(graph.operations[0], "pads"), (std::vector<std::int64_t>{0, 0, 1, 1}));
  for (const auto& attribute : graph.operations[0].attributes)
    EXPECT_NE(attribute.first, "ceil_mode");

  TestNet mean({1, 1, 6, 6}, {pool + "pool: AVE kernel_size: 3 stride: 2 }"});
  const Graph means = mean.run().graph;
  EXPECT_EQ(lines_of(means), (std::vector<std::string>{"AveragePool(data) > p/AveragePool",
                                                       "Mul(p/AveragePool) > p"}));
  const std::span<const float> factors = constant_of(means, "p/numbers").floats();
  // The last windows see two of three rows and columns.
  EXPECT_EQ(std::vector<float>(factors.begin(), factors.end()),
            (std::vector<float>{1, 1, 1.5f, 1, 1, 1.5f, 1.5f, 1.5f, 2.25f}));
}

TEST(OnnxExport, FoldsStatisticsOfBatchNorm) {
  TestNet net({1, 2, 3, 3}, {"name: 'bn' type: 'BatchNorm' bottom: 'data' top: 'data' "
                             "batch_norm_param { eps: 0.5 }"});
  const Layer& layer = *net.net().layers()[1];
  test::put({2, 4}, layer.params()[0]->data);
  test::put({6, 8}, layer.params()[1]->data);
  test::put({2}, layer.params()[2]->data);
  const Graph graph = net.run().graph;
  const Operation& norm = operation_of(graph, "BatchNormalization");
  EXPECT_EQ(norm.outputs, std::vector<std::string>{"data/bn"}) << "the input has the name";
  const auto numbers = [&](std::size_t input) {
    const std::span<const float> all = constant_of(graph, norm.inputs[input]).floats();
    return std::vector<float>(all.begin(), all.end());
  };
  EXPECT_EQ(numbers(3), (std::vector<float>{1, 2}));
  EXPECT_EQ(numbers(4), (std::vector<float>{3, 4}));
}

TEST(OnnxExport, PutsPreprocessingFirst) {
  TestNet net({1, 3, 2, 2}, {"name: 'relu' type: 'ReLU' bottom: 'data' top: 'y'"});
  const Export exported =
      net.run({.preprocessing = {
                   .swap_channels = true, .mean = {1, 2, 3}, .mean_dims = {3}, .scale = 0.5f}});
  EXPECT_EQ(lines_of(exported.graph),
            (std::vector<std::string>{"Gather(data, data/channels) > data/preprocessed",
                                      "Sub(data/preprocessed, data/mean) > data/preprocessed_2",
                                      "Mul(data/preprocessed_2, data/scale) > data/preprocessed_3",
                                      "Relu(data/preprocessed_3) > y"}));
  ASSERT_EQ(exported.preprocessed.size(), 3u);
  std::vector<float> image{1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9};
  onnx::preprocess(exported.preprocessed[2].second, {1, 3, 2, 2}, image);
  EXPECT_EQ(image, (std::vector<float>{4, 4, 4, 4, 1.5f, 1.5f, 1.5f, 1.5f, -1, -1, -1, -1}));
}

TEST(OnnxExport, TakesTheMiddleOfALargerMean) {
  onnx::Preprocessing how{.mean_dims = {1, 4, 4}};
  for (int i = 0; i < 16; ++i) how.mean.push_back(static_cast<float>(i));
  EXPECT_EQ(onnx::mean_for(how, {1, 1, 2, 2}).numbers, (std::vector<float>{5, 6, 9, 10}));
  EXPECT_HAS(test::message_of([&] {
               onnx::check_preprocessing(how, {1, 1, 5, 2});
             }),
             "the mean image is 4 x 4, smaller than the net's input, 5 x 2");
  EXPECT_HAS(test::message_of([&] {
               onnx::check_preprocessing(how, {1, 3, 2, 2});
             }),
             "the mean has 1 channels, the net's input 3");
  EXPECT_HAS(test::message_of([&] { onnx::check_preprocessing(how, {1, 3}); }), "for images");
  EXPECT_HAS(test::message_of([&] {
               onnx::check_preprocessing({.swap_channels = true}, {1, 1, 2, 2});
             }),
             "three can be swapped");
}

TEST(OnnxExport, RefusesLayersByName) {
  TestNet net({2, 1, 4, 4},
              {"name: 'rois' type: 'Input' top: 'r' input_param { shape { dim: 1 dim: 5 } }",
               "name: 'ps' type: 'PSROIPooling' bottom: 'data' bottom: 'r' top: 'p' "
               "psroi_pooling_param { spatial_scale: 1 output_dim: 1 group_size: 1 }",
               "name: 'mse' type: 'EuclideanLoss' bottom: 'data' bottom: 'data' top: 'l'"});
  const std::string said = test::message_of([&] { net.run(); });
  EXPECT_HAS(said, "layer 'ps' (PSROIPooling), layer 'mse' (EuclideanLoss): have no counterpart");
}

TEST(OnnxExport, RefusesAdaptiveSuppression) {
  TestNet net({1, 8},
              {"name: 'more' type: 'Input' top: 's' top: 'p' input_param { shape { dim: 1 dim: 4 } "
               "shape { dim: 1 dim: 2 dim: 8 } }",
               "name: 'found' type: 'DetectionOutput' bottom: 'data' bottom: 's' bottom: 'p' top: "
               "'d' detection_output_param { num_classes: 2 nms_param { eta: 0.5 } }"});
  EXPECT_HAS(test::message_of([&] { net.run(); }), "adaptive NMS");
}

}  // namespace
}  // namespace shoal::onnx_export_test
