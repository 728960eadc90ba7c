// Nets on whose blobs a caller works between passes and parts of passes (NetOptions::interactive),
// and layers of type Python, which a program brings.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "shoal/base/log.h"
#include "shoal/layers/layer.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/expect.h"

namespace shoal::interactive_test {
namespace {

// Makes one item more in each pass.
class Growing final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.min_bottoms = 0, .max_bottoms = 0}; }
  bool reshapes_each_pass() const override { return true; }
  void reshape(Context&, Bottoms, Tops tops) override { tops[0]->reshape({1, 2}); }
  void forward(Context&, Bottoms, Tops tops) override {
    tops[0]->reshape({++passes_, 2});
    std::ranges::fill(tops[0]->data.host_out(), static_cast<float>(passes_));
  }
  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) override {}

 private:
  std::int64_t passes_ = 0;
};

constexpr const char* kChain =
    "force_backward: true\n"
    "layer { name: 'data' type: 'Input' top: 'data' input_param { shape { dim: 2 dim: 3 } } }\n"
    "layer { name: 'a' type: 'Power' bottom: 'data' top: 'a' power_param { scale: 2 } }\n"
    "layer { name: 'b' type: 'Power' bottom: 'a' top: 'b' power_param { scale: 5 } }\n";
constexpr const char* kLoss =
    "layer { name: 'loss' type: 'Reduction' bottom: 'b' top: 'loss' loss_weight: 3 }\n";

class Interactive : public ::testing::Test {
 protected:
  explicit Interactive(const std::string& text = std::string(kChain) + kLoss)
      : net_(parse_net(text, "test.prototxt"), context_, {.interactive = true}) {}
  Blob& blob(const std::string& name) { return *net_.blob(name); }
  void fill(const std::string& name, float value) {
    std::ranges::fill(blob(name).data.host_out(), value);
  }
  static float sum(const Tensor& tensor) {
    return std::accumulate(tensor.host().begin(), tensor.host().end(), 0.f);
  }
  Context context_{{}};
  Net net_;
};

TEST_F(Interactive, PartsOfPassesTakeWhatTheBlobsHold) {
  fill("data", 1);
  EXPECT_EQ(net_.forward().value(), 3 * 60);
  fill("a", 1);
  EXPECT_EQ(net_.forward(2, 3).value(), 3 * 30);
  EXPECT_EQ(net_.forward(1, 2).value(), 0) << "the layers have no loss";
  EXPECT_EQ(sum(blob("b").data), 60);
  std::ranges::fill(blob("b").grad.host_out(), 1.f);
  EXPECT_TRUE(net_.backward(2, 1).ok());
  EXPECT_EQ(sum(blob("data").grad), 60);
}

TEST_F(Interactive, TheLossHasItsWeightUntilTheCallerChangesIt) {
  fill("data", 1);
  ASSERT_TRUE(net_.forward().ok());
  ASSERT_TRUE(net_.backward().ok());
  EXPECT_EQ(sum(blob("data").grad), 3 * 60);
  blob("loss").grad.host_mut()[0] = 1;
  ASSERT_TRUE(net_.backward().ok());
  EXPECT_EQ(sum(blob("data").grad), 60);
  net_.reshape();
  ASSERT_TRUE(net_.backward().ok());
  EXPECT_EQ(sum(blob("data").grad), 3 * 60);
}

TEST_F(Interactive, ALayerWithoutAForwardPassIsGivenOneBeforeItsBackwardPass) {
  const NetParameter net = parse_net(
      "force_backward: true\n"
      "layer { name: 'data' type: 'Input' top: 'x' input_param { shape { dim: 1 dim: 1 dim: 1 dim: "
      "2 "
      "} } }\n"
      "layer { name: 'pool' type: 'Pooling' bottom: 'x' top: 'y' pooling_param { kernel_w: 2 "
      "kernel_h: 1 } }\n",
      "test.prototxt");
  Net pools(net, context_, {.interactive = true});
  pools.blob("x")->data.host_out()[1] = 5;
  pools.blob("y")->grad.host_out()[0] = 3;
  ASSERT_TRUE(pools.backward().ok());
  EXPECT_EQ(pools.blob("x")->grad.host()[0], 0);
  EXPECT_EQ(pools.blob("x")->grad.host()[1], 3);
}

TEST_F(Interactive, LayersFollowShapesInThePass) {
  fill("data", 1);
  ASSERT_TRUE(net_.forward().ok());
  blob("data").reshape({4, 3});
  fill("data", 1);
  const Status early = net_.backward();
  ASSERT_FALSE(early.ok());
  EXPECT_NE(early.error().message.find("layer 'a' (Power): a bottom or top was reshaped"),
            std::string::npos)
      << early.error().message;
  EXPECT_EQ(net_.forward().value(), 3 * 120);
  ASSERT_TRUE(net_.backward().ok());
  blob("b").reshape({1, 1});
  EXPECT_EQ(net_.forward().value(), 3 * 120) << "a blob has the shape that its layer gives it";
}

class WithoutLoss : public Interactive {
 protected:
  WithoutLoss() : Interactive(kChain) {}
};

TEST_F(WithoutLoss, TheGradientOfAnOutputIsTheCallers) {
  fill("data", 1);
  ASSERT_TRUE(net_.forward().ok());
  ASSERT_TRUE(net_.backward().ok());
  EXPECT_EQ(sum(blob("data").grad), 0);
  std::ranges::fill(blob("b").grad.host_out(), 1.f);
  ASSERT_TRUE(net_.backward().ok());
  EXPECT_EQ(sum(blob("data").grad), 60);
}

TEST(ForcedBackward, StopsAtLabelsThatSeveralLayersRead) {
  const NetParameter net = parse_net(
      "force_backward: true\n"
      "layer { name: 'data' type: 'Input' top: 'data' top: 'label' input_param {"
      "        shape { dim: 2 dim: 3 } shape { dim: 2 } } }\n"
      "layer { name: 'a' type: 'SoftmaxWithLoss' bottom: 'data' bottom: 'label' top: 'a' }\n"
      "layer { name: 'b' type: 'Accuracy' bottom: 'data' bottom: 'label' top: 'b' }\n",
      "test.prototxt");
  Context context({});
  Net builds(net, context);
  ASSERT_TRUE(builds.forward().ok());
  ASSERT_TRUE(builds.backward().ok());
  EXPECT_NEAR(builds.blob("data")->grad.host()[0], -1. / 3, 1e-6);
}

TEST(PythonLayers, AreThoseThatTheProgramBrings) {
  const NetParameter net = parse_net(
      "layer { name: 'grow' type: 'Python' top: 'x' }\n"
      "layer { name: 'twice' type: 'Power' bottom: 'x' top: 'y' power_param { scale: 2 } }\n",
      "test.prototxt");
  Context context({});
  EXPECT_NE(test::message_of([&] { Net refused(net, context); }).find("need an interpreter"),
            std::string::npos);
  set_python_layers([](const LayerParameter& param) -> std::unique_ptr<Layer> {
    return std::make_unique<Growing>(param);
  });
  Net grows(net, context, {.interactive = true});
  set_python_layers(nullptr);
  for (std::int64_t pass = 1; pass <= 3; ++pass) {
    ASSERT_TRUE(grows.forward().ok());
    EXPECT_EQ(grows.blob("y")->shape(), (Shape{pass, 2}));
    EXPECT_EQ(grows.blob("y")->data.host()[0], static_cast<float>(2 * pass));
  }
}

}  // namespace
}  // namespace shoal::interactive_test
