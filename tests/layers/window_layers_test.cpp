// Convolution, Deconvolution, Im2col, Pooling, LRN, InnerProduct, BatchNorm and Softmax: what they
// refuse and in which words, shapes worked by hand, and BatchNorm's running statistics.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/ops/op.h"
#include "shoal/proto/layers.pb.h"
#include "support/expect.h"
#include "support/layer_rig.h"
#include "support/solver_rig.h"

namespace shoal::test::window_layers_test {
namespace {

LayerParameter layer(const std::string& type, const std::string& rest, int bottoms = 1,
                     int tops = 1) {
  std::string text = str("layer { name: 'x' type: '", type, "' ");
  for (int i = 0; i < bottoms; ++i) text += str("bottom: 'b", i, "' ");
  for (int i = 0; i < tops; ++i) text += str("top: 't", i, "' ");
  return parse_layer(text + rest + " }");
}

// The words of the ConfigError that making the layer throws; "" if it throws none.
std::string refusal(const LayerParameter& param, const std::vector<Shape>& bottoms) {
  try {
    LayerRig rig(param, bottoms);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(WindowLayers, SayThatNdIsNotForced) {
  LogLines log;
  LayerRig rig(layer("Convolution",
                     "convolution_param { num_output: 2 kernel_size: 3 force_nd_im2col: true }"),
               {{1, 2, 5, 5}});
  EXPECT_TRUE(log.has(".*force_nd_im2col has no effect: .*"));
}

TEST(WindowLayers, SayWhatIsWrong) {
  const struct {
    const char *type, *rest;
    Shape bottom;
    const char* words;
  } kCases[] = {
      {"Convolution",
       "convolution_param { kernel_size: 3 }",
       {1, 2, 5, 5},
       "num_output must be given, and be 1 or more"},
      {"Convolution",
       "convolution_param { num_output: 2 }",
       {1, 2, 5, 5},
       "needs kernel_size, or kernel_h and kernel_w"},
      {"Convolution",
       "convolution_param { num_output: 2 kernel_h: 2 }",
       {1, 2, 5, 5},
       "needs kernel_size, or kernel_h and kernel_w"},
      {"Convolution",
       "convolution_param { num_output: 2 kernel_size: 0 }",
       {1, 2, 5, 5},
       "the kernel's size is 0"},
      {"Convolution",
       "convolution_param { num_output: 2 kernel_size: 3 stride: 0 }",
       {1, 2, 5, 5},
       "stride is 0"},
      {"Convolution",
       "convolution_param { num_output: 2 kernel_size: 3 dilation: 0 }",
       {1, 2, 5, 5},
       "dilation is 0"},
      {"Convolution",
       "convolution_param { num_output: 2 kernel_size: 3 kernel_h: 3 kernel_w: 3 }",
       {1, 2, 5, 5},
       "kernel is given both for all axes and as kernel_h or kernel_w"},
      {"Convolution",
       "convolution_param { num_output: 2 kernel_size: 3 kernel_size: 3 kernel_size: 3 }",
       {1, 2, 5, 5},
       "kernel has 3 values for 2 spatial axes"},
      {"Convolution",
       "convolution_param { num_output: 2 kernel_h: 3 kernel_w: 3 }",
       {1, 2, 5},
       "kernel_h and kernel_w are for 2 spatial axes; the bottom has 1"},
      {"Convolution",
       "convolution_param { num_output: 2 kernel_size: 7 pad: 0 }",
       {1, 2, 5, 9},
       "the kernel spans 7 on spatial axis 0, but the input there is 5; bottom: 1 2 5 9 (90)"},
      {"Convolution",
       "convolution_param { num_output: 2 kernel_size: 3 dilation: 4 pad: 1 }",
       {1, 2, 9, 5},
       "the kernel spans 9 on spatial axis 1, but the input there is 5 and 7 with its padding"},
      {"Convolution",
       "convolution_param { num_output: 4 kernel_size: 3 group: 3 }",
       {1, 4, 5, 5},
       "group 3 does not divide the bottom's 4 channels"},
      {"Convolution",
       "convolution_param { num_output: 3 kernel_size: 3 group: 2 }",
       {1, 4, 5, 5},
       "group 2 does not divide num_output 3"},
      {"Convolution",
       "convolution_param { num_output: 3 kernel_size: 3 group: 0 }",
       {1, 4, 5, 5},
       "group is 0"},
      {"Convolution",
       "convolution_param { num_output: 3 kernel_size: 3 axis: 4 }",
       {1, 4, 5, 5},
       "axis is 4, but the bottom's shape"},
      {"Convolution",
       "convolution_param { num_output: 2 kernel_size: 3 engine: CUDNN } engine: 'cudnn'",
       {1, 2, 5, 5},
       "engine \"cudnn\" was asked for"},
      {"Convolution",
       "convolution_param { num_output: 2 kernel_size: 3 engine: CAFFE } engine: 'cudnn'",
       {1, 2, 5, 5},
       "contradicts engine: CAFFE"},
      {"Convolution",
       "convolution_param { num_output: 2 kernel_size: 3 } engine: 'plan'",
       {1, 2, 5, 5},
       "engine \"plan\" was asked for"},
      {"Convolution",
       "convolution_param { num_output: 2 kernel_size: 1 pad: 40000 }",
       {1, 2, 5, 5},
       "more than 2147483647 elements"},
      {"Deconvolution",
       "convolution_param { num_output: 2 kernel_size: 2 pad: 4 }",
       {1, 2, 3, 3},
       "pad 4 leaves nothing of the top on spatial axis 0"},
      {"Im2col",
       "convolution_param { kernel_size: 4 }",
       {1, 2, 3, 5},
       "the kernel spans 4 on spatial axis 0, but the input there is 3"},
      {"Im2col",
       "convolution_param { kernel_size: 1 }",
       {3, 2},
       "has no spatial axes behind axis 1"},
      {"Pooling",
       "pooling_param { kernel_size: 2 }",
       {1, 2, 5},
       "must have 4 axes (N, C, H, W), not 1 2 5 (10)"},
      {"Pooling",
       "pooling_param { }",
       {1, 2, 5, 5},
       "needs kernel_size, or kernel_h and kernel_w, or global_pooling"},
      {"Pooling",
       "pooling_param { kernel_h: 2 }",
       {1, 2, 5, 5},
       "the kernel's size is 0 or missing on axis w"},
      {"Pooling",
       "pooling_param { kernel_size: 2 kernel_w: 2 }",
       {1, 2, 5, 5},
       "kernel_size and kernel_w are both given"},
      {"Pooling",
       "pooling_param { kernel_size: 2 stride: 1 stride_h: 2 }",
       {1, 2, 5, 5},
       "stride and stride_h are both given"},
      {"Pooling",
       "pooling_param { kernel_size: 2 pad: 1 pad_w: 1 }",
       {1, 2, 5, 5},
       "pad and pad_w are both given"},
      {"Pooling", "pooling_param { kernel_size: 2 stride: 0 }", {1, 2, 5, 5}, "stride is 0"},
      {"Pooling",
       "pooling_param { kernel_size: 2 pad: 2 }",
       {1, 2, 5, 5},
       "pad 2 is not smaller than the kernel, 2"},
      {"Pooling",
       "pooling_param { kernel_size: 8 pad: 1 }",
       {1, 2, 9, 5},
       "kernel 8 is larger than the input on axis 3, 5 and 7 with its padding"},
      {"Pooling",
       "pooling_param { kernel_size: 8 global_pooling: true }",
       {1, 2, 9, 9},
       "so give no kernel size"},
      {"Pooling",
       "pooling_param { global_pooling: true stride: 2 }",
       {1, 2, 9, 9},
       "global_pooling needs pad 0 and stride 1"},
      {"LRN", "lrn_param { local_size: 4 }", {1, 2, 3, 3}, "local_size is 4; it must be odd"},
      {"LRN", "", {1, 2}, "must have 4 axes (N, C, H, W), not 1 2 (2)"},
      {"InnerProduct",
       "inner_product_param { }",
       {1, 2},
       "num_output must be given, and be 1 or more"},
      {"InnerProduct",
       "inner_product_param { num_output: 2 axis: -3 }",
       {1, 2},
       "axis is -3, but the bottom's shape 1 2 (2) has 2 axes"},
      {"InnerProduct",
       "inner_product_param { num_output: 4000000000 }",
       {1, 2},
       "more than 2147483647 elements"},
      {"BatchNorm",
       "param { lr_mult: 1 }",
       {2, 2},
       "param { lr_mult: 1 }: the running statistics are not learned"},
      {"Softmax", "softmax_param { axis: 2 }", {2, 2}, "axis is 2, but the bottom's shape"},
  };
  for (const auto& [type, rest, bottom, words] : kCases) {
    const std::string said = refusal(layer(type, rest), {bottom});
    EXPECT_NE(said.find(words), std::string::npos)
        << type << " " << rest << "\nsaid: " << said << "\nwant: " << words;
  }
  EXPECT_NE(
      refusal(layer("Pooling", "pooling_param { kernel_size: 2 pool: AVE }", 1, 2), {{1, 1, 4, 4}})
          .find("only pool: MAX has"),
      std::string::npos);
  const LayerParameter two =
      layer("Convolution", "convolution_param { num_output: 2 kernel_size: 3 }", 2, 2);
  EXPECT_NE(
      refusal(two, {{1, 2, 5, 5}, {1, 2, 5, 6}})
          .find("all bottoms must have one shape; 'b0' is 1 2 5 5 (50), 'b1' is 1 2 5 6 (60)"),
      std::string::npos);
}

TEST(WindowLayers, ReshapeSaysWhatTheyWereMadeFor) {
  const struct {
    const char *type, *rest;
    Shape first, then;
    const char* words;
  } kCases[] = {
      {"Convolution",
       "convolution_param { num_output: 2 kernel_size: 1 }",
       {1, 2, 5, 5},
       {1, 3, 5, 5},
       "was made for 2 channels on axis 1"},
      {"InnerProduct",
       "inner_product_param { num_output: 2 }",
       {1, 2, 5},
       {1, 2, 6},
       "was made for 10 inputs from axis 1 on"},
      {"BatchNorm", "", {2, 3}, {2, 4}, "was made for 3 channels; the bottom is now 2 4 (8)"},
  };
  for (const auto& [type, rest, first, then, words] : kCases) {
    LayerRig rig(layer(type, rest), {first});
    std::string said;
    try {
      rig.reshape({then});
    } catch (const ConfigError& error) {
      said = error.what();
    }
    EXPECT_NE(said.find(words), std::string::npos) << type << " said: " << said;
  }
}

Shape top_of(const LayerParameter& param, const Shape& bottom) {
  return LayerRig(param, {bottom}).top(0).shape();
}

TEST(WindowLayers, StochasticPoolingDrawsNumbersByTheirSize) {
  constexpr int kPlanes = 8000;
  const std::string pool = "pooling_param { pool: STOCHASTIC kernel_size: 2 } phase: ";
  const Numbers window{1, 0, 2, 5};
  LayerRig rig(layer("Pooling", pool + "TRAIN"), {{kPlanes, 1, 2, 2}}, 2);
  for (std::size_t i = 0; i < rig.input(0).size(); ++i) rig.input(0)[i] = window[i % 4];
  rig.forward();
  const Numbers drawn = rig.top_values()[0];
  const auto count = [&](float value) { return std::ranges::count(drawn, value); };
  // Four standard deviations of the rarest are 120.
  EXPECT_NEAR(static_cast<double>(count(1)), kPlanes / 8.0, 120);
  EXPECT_NEAR(static_cast<double>(count(2)), kPlanes / 4.0, 160);
  EXPECT_EQ(count(1) + count(2) + count(5), kPlanes);  // a 0 has no chance

  rig.backward({Numbers(kPlanes, 1.0f)}, {true});
  const Numbers gradient = rig.bottom_grads()[0];
  for (std::size_t i = 0; i < gradient.size(); ++i)
    ASSERT_EQ(gradient[i], window[i % 4] == drawn[i / 4] ? 1.0f : 0.0f) << i;

  LayerRig test(layer("Pooling", pool + "TEST"), {{3, 1, 2, 2}});
  test.input(0) = {1, 0, 2, 5, 0, 0, 0, 0, -1, -2, 3, -4};
  test.forward();
  EXPECT_EQ(test.top_values()[0], (Numbers{30.0f / 8, 0, 3}));

  LayerRig nothing(layer("Pooling", pool + "TRAIN"), {{1, 1, 2, 2}});
  nothing.input(0) = {-1, -2, -3, -4};
  nothing.forward();
  EXPECT_EQ(nothing.top_values()[0], Numbers{-1}) << "the first, if none is positive";
}

TEST(WindowLayers, ShapesByHand) {
  // AlexNet's first: (227 - 11) / 4 + 1 = 55, pooled ceil((55 - 3) / 2) + 1 = 27.
  EXPECT_EQ(
      top_of(layer("Convolution", "convolution_param { num_output: 8 kernel_size: 11 stride: 4 }"),
             {1, 3, 227, 227}),
      (Shape{1, 8, 55, 55}));
  EXPECT_EQ(top_of(layer("Pooling", "pooling_param { kernel_size: 3 stride: 2 }"), {1, 8, 55, 55}),
            (Shape{1, 8, 27, 27}));
  // 112: ceil(109 / 2) + 1 = 56 rounded up, 55 rounded down.
  EXPECT_EQ(
      top_of(layer("Pooling", "pooling_param { kernel_size: 3 stride: 2 }"), {1, 1, 112, 112}),
      (Shape{1, 1, 56, 56}));
  EXPECT_EQ(top_of(layer("Pooling", "pooling_param { kernel_size: 3 stride: 2 round_mode: FLOOR }"),
                   {1, 1, 112, 112}),
            (Shape{1, 1, 55, 55}));
  // Height 3, kernel 2, stride 2, pad 1: ceil(3 / 2) + 1 = 3 windows, the third would start at 4 =
  // H + pad: dropped. Width has no padding, but as height has, a window of it that starts at 4 or
  // beyond is dropped too.
  EXPECT_EQ(
      top_of(layer("Pooling", "pooling_param { kernel_size: 2 stride: 2 pad_h: 1 }"), {1, 1, 3, 4}),
      (Shape{1, 1, 2, 2}));
  EXPECT_EQ(top_of(layer("Pooling", "pooling_param { kernel_size: 1 stride: 3 }"), {1, 1, 3, 3}),
            (Shape{1, 1, 2, 2}));
  EXPECT_EQ(top_of(layer("Pooling", "pooling_param { kernel_h: 2 kernel_w: 1 stride: 3 pad_h: 1 }"),
                   {1, 1, 3, 3}),
            (Shape{1, 1, 2, 1}));
  // Deconvolution undoes the shape: 2 (5 - 1) + 4 - 2 = 10.
  EXPECT_EQ(top_of(layer("Deconvolution",
                         "convolution_param { num_output: 3 kernel_size: 4 stride: 2 pad: 1 }"),
                   {2, 4, 5, 5}),
            (Shape{2, 3, 10, 10}));
  EXPECT_EQ(
      top_of(layer("InnerProduct", "inner_product_param { num_output: 7 axis: 2 }"), {2, 3, 4, 5}),
      (Shape{2, 3, 7}));
  EXPECT_EQ(top_of(layer("InnerProduct", "inner_product_param { num_output: 7 axis: 0 }"), {2, 3}),
            (Shape{7}));
}

// There is ceil((2 - 3) / 2) + 1 = 1 window, of the four numbers that are there.
TEST(WindowLayers, APoolingKernelMayBeLargerThanItsInput) {
  for (const auto& [method, want] : {std::pair("MAX", 7.0f), std::pair("AVE", 3.5f)}) {
    LayerRig rig(
        layer("Pooling", str("pooling_param { kernel_size: 3 stride: 2 pool: ", method, " }")),
        {{1, 1, 2, 2}});
    const float numbers[] = {1, 2, 4, 7};
    for (std::size_t i = 0; i < 4; ++i) rig.input(0)[i] = numbers[i];
    rig.forward();
    EXPECT_EQ(rig.top_values()[0], std::vector<float>{want}) << method;
  }
  EXPECT_EQ(
      top_of(layer("Pooling", "pooling_param { kernel_size: 5 stride: 3 pad: 1 }"), {1, 1, 2, 2}),
      (Shape{1, 1, 1, 1}));
  EXPECT_HAS(
      refusal(layer("Pooling", "pooling_param { kernel_size: 3 stride: 2 round_mode: FLOOR }"),
              {{1, 1, 2, 2}}),
      "kernel 3 is larger than the input on axis 2, 2");
}

TEST(WindowLayers, EnginesOfOurOwnServeCaffe) {
  LayerRig caffe(
      layer("Convolution", "convolution_param { num_output: 2 kernel_size: 3 engine: CAFFE }"),
      {{1, 2, 5, 5}});
  ASSERT_EQ(caffe.layer().choices().size(), 1u);
  EXPECT_NE(caffe.layer().choices()[0].impl, "");
  const char* wide = "convolution_param { num_output: 16 kernel_size: 3 } engine: 'plain'";
  LayerRig plain(layer("Convolution", wide), {{1, 16, 5, 5}});
  ASSERT_EQ(plain.layer().choices().size(), 1u);
  EXPECT_EQ(plain.layer().choices()[0].impl, "plain");
  EXPECT_FALSE(plain.layer().choices()[0].refused.empty())
      << "the faster one says why it was not taken";
}

TEST(BatchNormLayer, RunningStatisticsByHand) {
  LayerRig rig(
      layer("BatchNorm", "phase: TRAIN batch_norm_param { moving_average_fraction: 0.5 eps: 0 }"),
      {{4, 1}});
  rig.input(0) = {1, 2, 3, 6};  // mean 3, variance 3.5, unbiased 14 / 3
  rig.forward();
  EXPECT_NEAR(rig.top_values()[0][0], -2 / std::sqrt(3.5), 1e-6);
  rig.input(0) = {0, 0, 0, 4};  // mean 1, variance 3, unbiased 4
  rig.forward();
  EXPECT_NEAR(values(rig.param(0).data)[0], 3 * 0.5 + 1, 1e-6);
  EXPECT_NEAR(values(rig.param(1).data)[0], 14.0 / 3 * 0.5 + 4, 1e-6);
  EXPECT_NEAR(values(rig.param(2).data)[0], 1.5, 1e-6);
  EXPECT_EQ(rig.layer().default_lr_mult(0), 0);

  LayerRig test(layer("BatchNorm", "phase: TEST batch_norm_param { eps: 0 }"), {{2, 1}});
  put({6}, test.param(0).data), put({8}, test.param(1).data), put({2}, test.param(2).data);
  test.input(0) = {5, 3};  // mean 6 / 2, deviation sqrt(8 / 2)
  test.forward();
  EXPECT_NEAR(test.top_values()[0][0], 1, 1e-6);
  EXPECT_NEAR(test.top_values()[0][1], 0, 1e-6);
  EXPECT_EQ(values(test.param(2).data)[0], 2) << "statistics that are used are not updated";
}

TEST(BatchNormLayer, InPlaceBackwardDoesNotNeedTheTop) {
  const LayerParameter in_place =
      parse_layer("layer { name: 'x' type: 'BatchNorm' bottom: 'b0' top: 'b0' phase: TRAIN }");
  LayerRig apart(layer("BatchNorm", "phase: TRAIN"), {{3, 2, 4}}), within(in_place, {{3, 2, 4}});
  const Numbers x{1, 2, 3, 5, -1, 0, 2, 2, 7, 1, 1, 0, 3, 3, 4, 5, 0, 1, 0, 2, 8, 9, 1, 2},
      dy{x.rbegin(), x.rend()};
  apart.input(0) = x, within.input(0) = x;
  apart.forward(), within.forward();
  EXPECT_FALSE(within.layer().reads().top_data);
  poison(within.top(0).data);  // as a layer that works in place on the same blob may
  apart.backward({dy}, {true}), within.backward({dy}, {true});
  EXPECT_LT(relative_error(within.bottom_grads()[0], apart.bottom_grads()[0]), 1e-5);
}

}  // namespace
}  // namespace shoal::test::window_layers_test
