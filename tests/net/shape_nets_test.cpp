// Layers that share bytes with their neighbours, in nets where that could go wrong: the gradient of
// the whole net is the slope of its loss, with memory planned and in place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "shoal/base/random.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"

namespace shoal::shape_nets_test {
namespace {

struct LearningNet {
  explicit LearningNet(const std::string& text)
      : context({.device = {}, .threads = 1, .seed = 3}), net(parse(text), context) {
    Random random(5);
    for (const char* input : {"x", "t"})
      for (float& number : net.blob(input)->data.host_out()) number = random.gaussian(0, 1);
    for (const NetParam& param : net.params())
      if (param.lr_mult != 0)
        for (float& number : param.blob->data.host_mut()) number = random.gaussian(0, 0.5f);
  }
  static NetParameter parse(const std::string& text) {
    NetParameter net = parse_net(text, "test.prototxt");
    net.mutable_state()->set_phase(TRAIN);
    return net;
  }
  double loss() { return net.forward().value(); }
  Context context;
  Net net;
};

// Central differences of up to 20 numbers of each param. The loss is a float: about a thousandth of
// the largest slope is noise.
void expect_slopes(const std::string& text) {
  LearningNet learning(text);
  learning.net.clear_gradients();
  learning.loss();
  ASSERT_TRUE(learning.net.backward().ok());
  for (const NetParam& param : learning.net.params()) {
    if (param.lr_mult == 0) continue;
    SCOPED_TRACE(param.blob->name);
    const std::vector<float> grad(param.blob->grad.host().begin(), param.blob->grad.host().end());
    double largest = 0, worst = 0;
    for (std::size_t i = 0; i < grad.size(); i += std::max<std::size_t>(1, grad.size() / 20)) {
      float& number = param.blob->data.host_mut()[i];
      const float middle = number, step = 0.01f;
      number = middle + step;
      const double above = learning.loss();
      number = middle - step;
      const double slope = (above - learning.loss()) / (2 * step);
      number = middle;
      largest = std::max(largest, std::fabs(slope));
      worst = std::max(worst, std::fabs(slope - grad[i]));
    }
    EXPECT_GT(largest, 0);
    EXPECT_LT(worst, 0.01 * largest);
  }
}

const std::string kInputs =
    "layer { name: 'in' type: 'Input' top: 'x' top: 't' input_param { shape { dim: 4 dim: 6 dim: 5 "
    "dim: 5 } shape { dim: 4 dim: 3 } } }\n";

std::string conv(const std::string& name, const std::string& bottom, const std::string& more = "") {
  return "layer { name: '" + name + "' type: 'Convolution' bottom: '" + bottom + "' top: '" + name +
         "' convolution_param { num_output: 6 kernel_size: 3 pad: 1 " + more +
         " weight_filler { type: 'xavier' } } }\n";
}

std::string in_place(const std::string& type, const std::string& blob,
                     const std::string& more = "") {
  return "layer { name: '" + type + "_" + blob + "' type: '" + type + "' bottom: '" + blob +
         "' top: '" + blob + "' " + more + " }\n";
}

std::string one(const std::string& type, const std::string& bottoms, const std::string& top,
                const std::string& more = "") {
  return "layer { name: '" + top + "' type: '" + type + "' " + bottoms + " top: '" + top + "' " +
         more + " }\n";
}

std::string loss_after(const std::string& blob) {
  return one("InnerProduct", "bottom: '" + blob + "'", "ip",
             "inner_product_param { num_output: 3 weight_filler { type: 'xavier' } }") +
         "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'ip' bottom: 't' }\n";
}

const std::string kNoBias = "bias_term: false";  // before a BatchNorm, which takes it away again
const std::string kScale = "scale_param { bias_term: true }";

TEST(ShapeNets, AResidualBlockLearns) {
  // Twice, with the shortcut as the first and as the last bottom of the sum; TanH has no kinks.
  std::string text = kInputs + conv("stem", "x") + in_place("TanH", "stem");
  text += conv("a", "stem", kNoBias) + in_place("BatchNorm", "a") + in_place("Scale", "a", kScale) +
          in_place("TanH", "a");
  text += one("Eltwise", "bottom: 'stem' bottom: 'a'", "first") + in_place("TanH", "first");
  text += conv("b", "first", kNoBias) + in_place("BatchNorm", "b") + in_place("Scale", "b", kScale);
  text += one("Eltwise", "bottom: 'b' bottom: 'first'", "second",
              "eltwise_param { coeff: 0.5 coeff: -1 }") +
          in_place("TanH", "second");
  expect_slopes(text + loss_after("second"));
}

TEST(ShapeNets, GatesAndShapesLearn) {
  // One blob read four ways: by a product, a largest, a slice that is joined again, and a view of
  // another shape.
  std::string text =
      kInputs + conv("stem", "x") + conv("gate", "stem") + in_place("Sigmoid", "gate");
  text +=
      one("Eltwise", "bottom: 'stem' bottom: 'gate'", "gated", "eltwise_param { operation: PROD }");
  text +=
      one("Bias", "bottom: 'stem'", "shifted") + one("Scale", "bottom: 'stem'", "scaled", kScale);
  text +=
      "layer { name: 'cut' type: 'Slice' bottom: 'shifted' top: 's0' top: 's1' slice_param { "
      "slice_point: 2 } }\n";
  text +=
      in_place("TanH", "s0") + one("Concat", "bottom: 's1' bottom: 's0' bottom: 'gated'", "joined");
  text += one("Reshape", "bottom: 'scaled'", "flat", "reshape_param { shape { dim: 0 dim: -1 } }");
  text += one("Flatten", "bottom: 'joined'", "flat_too") +
          one("Concat", "bottom: 'flat' bottom: 'flat_too'", "all");
  expect_slopes(text + loss_after("all"));
}

TEST(ShapeNets, AScalePerItemFromAnotherBranchLearns) {
  // Squeeze and excite: a second bottom scales the channels of each item.
  std::string text = kInputs + conv("stem", "x");
  text +=
      one("Pooling", "bottom: 'stem'", "pool", "pooling_param { pool: AVE global_pooling: true }");
  text += one("InnerProduct", "bottom: 'pool'", "weights",
              "inner_product_param { num_output: 6 weight_filler { type: 'xavier' } }");
  text += in_place("Sigmoid", "weights") +
          one("Scale", "bottom: 'stem' bottom: 'weights'", "weighted", "scale_param { axis: 0 }");
  expect_slopes(text + loss_after("weighted"));
}

const std::string kTriple = "power_param { scale: 3 }";

// An earlier layer may still need what a layer writes in place.
TEST(ShapeNets, InPlaceLayersLeaveWhatABackwardStillReads) {
  expect_slopes(kInputs + conv("stem", "x") + in_place("TanH", "stem") +
                in_place("Power", "stem", kTriple) + loss_after("stem"));
  expect_slopes(kInputs + conv("stem", "x") + in_place("TanH", "stem") +
                one("Flatten", "bottom: 'stem'", "flat") + in_place("Power", "flat", kTriple) +
                loss_after("flat"));
}

TEST(ShapeNets, InPlaceLayersLeaveWhatAnotherLayerReads) {
  std::string text = kInputs + conv("stem", "x") + one("Flatten", "bottom: 'stem'", "flat") +
                     in_place("Power", "flat", kTriple);
  text += one("Power", "bottom: 'stem'", "same") + one("Flatten", "bottom: 'same'", "flat_too");
  text += one("Concat", "bottom: 'flat' bottom: 'flat_too'", "both");
  expect_slopes(text + loss_after("both"));
  LearningNet learning(text);
  ASSERT_TRUE(learning.net.forward().ok());
  // An item is 150 numbers three times as large, then the same as they were.
  const auto both = learning.net.blob("both")->data.host();
  for (std::size_t i = 0; i < 150; ++i) ASSERT_EQ(both[i], 3 * both[150 + i]) << i;
}

TEST(ShapeNets, OtherInPlaceLayersStayInPlace) {
  const std::string text =
      kInputs + conv("stem", "x") + in_place("ReLU", "stem") + loss_after("stem");
  LearningNet learning(text);
  EXPECT_EQ(learning.net.tops(1)[0], learning.net.tops(2)[0]);
}

}  // namespace
}  // namespace shoal::shape_nets_test
