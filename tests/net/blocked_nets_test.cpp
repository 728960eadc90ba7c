// Nets whose images lie in blocks of channels: which layers reorder numbers, and where the plan has
// room for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "shoal/net/net.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/blocked_channels.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/places.h"

namespace shoal::blocked_nets_test {
namespace {

bool by_onednn(const Net& net) {
  return std::ranges::any_of(net.layers(), [](const auto& layer) {
    return std::ranges::any_of(layer->choices(),
                               [](const ops::Choice& choice) { return choice.impl == "onednn"; });
  });
}

std::string conv(const std::string& name, const std::string& bottom, int outputs = 32) {
  return "layer { name: '" + name + "' type: 'Convolution' bottom: '" + bottom + "' top: '" + name +
         "' convolution_param { kernel_size: 3 pad: 1 num_output: " + std::to_string(outputs) +
         " weight_filler { type: 'xavier' } } }\n";
}

// A convolution, the layers, which make 'y' of 'c', and another convolution.
std::string around(const std::string& layers, int channels = 32) {
  return "layer { name: 'x' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 2 dim: 3 "
         "dim: 8 dim: 8 } data_filler { type: 'gaussian' } } }\n" +
         conv("c", "x", channels) + layers + conv("d", "y") +
         "layer { name: 'sum' type: 'Reduction' bottom: 'd' top: 'sum' loss_weight: 1 "
         "reduction_param { operation: SUMSQ } }\n";
}

NetParameter parse(const std::string& text) {
  NetParameter net = parse_net(text, "test.prototxt");
  net.mutable_state()->set_phase(TRAIN);
  return net;
}

// Counts those of a pass forward and backward, once the memory is there.
std::int64_t reorders_of(Net& net, int passes = 3) {
  std::int64_t before = 0;
  for (int pass = 0; pass < passes; ++pass) {
    before = net.context().stream()->conversions.reorders;
    EXPECT_TRUE(net.forward().ok() && net.backward().ok());
  }
  return net.context().stream()->conversions.reorders - before;
}

struct Case {
  const char *name, *layers;
  int reorders;  // but for the loss
  int channels = 32;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class BlockedNets : public testing::TestWithParam<Case> {};

TEST_P(BlockedNets, ReorderAsFewNumbersAsCanBe) {
  const Case& c = GetParam();
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
    Context context({.seed = 3, .precision = precision});
    Net net(parse(around(c.layers, c.channels)), context);
    if (!by_onednn(net)) GTEST_SKIP() << "oneDNN convolves nothing on this machine";
    // The loss reads d in plain order and writes its gradient so; data of 16 bits is the third.
    const int others = precision == Precision::kFloat32 ? 2 : 3;
    EXPECT_EQ(reorders_of(net), c.reorders + others) << static_cast<int>(precision);
    if (c.reorders > 0) continue;
    const Blob &c_blob = *net.blob("c"), &y = *net.blob("y");
    EXPECT_NE(ops::as_blocked(y.data.layout()), nullptr);
    EXPECT_EQ(y.data.storage()->home_memory(), c_blob.data.storage()->home_memory())
        << "y has memory of its own";
    EXPECT_EQ(y.grad.storage()->home_memory(), c_blob.grad.storage()->home_memory())
        << "the gradient of y has memory of its own";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BlockedNets,
    testing::Values(
        Case{"scale",
             "layer { name: 's' type: 'Scale' bottom: 'c' top: 'y' scale_param { bias_term: true } "
             "}",
             0},
        Case{"scale_in_place",
             "layer { name: 's' type: 'Scale' bottom: 'c' top: 'c' } layer { name: 'r' type: "
             "'PReLU' bottom: 'c' top: 'y' }",
             0},
        Case{"scale_of_padded_blocks", "layer { name: 's' type: 'Scale' bottom: 'c' top: 'y' }", 0,
             28},
        Case{"one_factor",
             "layer { name: 's' type: 'Scale' bottom: 'c' top: 'y' scale_param { axis: 0 num_axes: "
             "0 } }",
             0},
        Case{
            "scale_by_a_bottom",
            "layer { name: 'f' type: 'DummyData' top: 'f' dummy_data_param { shape { dim: 2 dim: "
            "32 } data_filler { type: 'gaussian' } } } layer { name: 's' type: 'Scale' bottom: 'c' "
            "bottom: 'f' top: 'y' scale_param { axis: 0 } }",
            0},
        Case{"bias", "layer { name: 'b' type: 'Bias' bottom: 'c' top: 'y' }", 0},
        Case{"prelu", "layer { name: 'r' type: 'PReLU' bottom: 'c' top: 'y' }", 0},
        Case{"shared_prelu",
             "layer { name: 'r' type: 'PReLU' bottom: 'c' top: 'y' prelu_param { channel_shared: "
             "true } }",
             0},
        // Reorders c and y and their gradients; Bias does not read c to find its own.
        Case{"scale_of_rows",
             "layer { name: 's' type: 'Scale' bottom: 'c' top: 'y' scale_param { axis: 2 num_axes: "
             "1 } }",
             4},
        Case{
            "bias_of_places",
            "layer { name: 'b' type: 'Bias' bottom: 'c' top: 'y' bias_param { axis: 1 num_axes: -1 "
            "} }",
            3}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

// A pass of each net of models/ reorders images for inner products, where it would be more work to
// reorder their weights, and around convolutions for which the library has no code: one of nin, and
// those by depth of small maps.
TEST(BlockedNetsTest, ModelsReorderAsFewNumbersAsCanBe) {
  struct Model {
    const char* name;
    int images, reorders;
  };
  // A model has as many images as it is trained with, or one where that decides nothing.
  constexpr Model kModels[] = {{"lenet", 64, 0},
                               {"cifar10_quick", 100, 0},
                               {"cifar10_full", 100, 0},
                               {"caffenet", 1, 2},
                               {"alexnet", 1, 2},
                               {"googlenet", 1, 4},
                               {"nin", 1, 4},
                               {"vgg16", 1, 2},
                               {"resnet18", 1, 0},
                               {"resnet50", 1, 0},
                               {"fashion_resnet18", 1, 0},
                               {"fashion_resnet50", 1, 0},
                               {"fashion_resnet50_v2", 1, 0},
                               {"fashion_mobilenet", 1, 22},
                               {"fashion_mobilenet_v2", 1, 26},
                               {"fashion_inception_v3", 1, 0},
                               {"fashion_alexnet", 1, 2}};
  for (const Model& model : kModels) {
    SCOPED_TRACE(model.name);
    const auto file = test::repository_root() / "models" / model.name / "train_val.prototxt";
    NetParameter param = read_net(file.string());
    param.mutable_state()->set_phase(TRAIN);
    param.mutable_state()->add_stage("dummy");
    for (LayerParameter& layer : *param.mutable_layer()) {
      // Weights are zeros, which are made sooner.
      if (layer.has_convolution_param()) layer.mutable_convolution_param()->clear_weight_filler();
      if (layer.has_inner_product_param())
        layer.mutable_inner_product_param()->clear_weight_filler();
      if (layer.has_dummy_data_param())
        for (BlobShape& shape : *layer.mutable_dummy_data_param()->mutable_shape())
          shape.set_dim(0, model.images);
    }
    Context context({});
    Net net(param, context);
    if (!by_onednn(net)) {
      if (model.name == std::string("lenet")) continue;  // its channels fill no blocks
      GTEST_SKIP() << "oneDNN convolves nothing on this machine";
    }
    EXPECT_EQ(reorders_of(net, 2), model.reorders);
  }
}

}  // namespace
}  // namespace shoal::blocked_nets_test
