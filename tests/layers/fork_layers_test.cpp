// The layers of forks that are no detectors: what they refuse, and in what words; corners worked by
// hand.
#include <gtest/gtest.h>

#include <cmath>

#include "shoal/base/error.h"
#include "shoal/layers/layer.h"
#include "shoal/proto/layers.pb.h"
#include "support/expect.h"
#include "support/layer_rig.h"
#include "support/refused.h"
#include "support/solver_rig.h"

namespace shoal::test::fork_layers_test {
namespace {

const Refused kRefused[] = {
    {"Axpy",
     {{2, 3, 2}, {2, 3, 2}, {2, 3, 2}},
     "",
     "bottom 'b0', the factors, has shape 2 3 2 (12); it needs one number for each channel of "
     "'b1', whose shape is 2 3 2 (12)"},
    {"Axpy",
     {{2, 3}, {2, 3, 2}, {2, 3, 1}},
     "",
     "bottom 'b1' has shape 2 3 2 (12), bottom 'b2' 2 3 1 (6); they are added"},
    {"BN",
     {{2, 3}},
     "",
     "nothing says which BN this is: give bn_param { frozen: false } for PSPNet's (4 blobs, "
     "running statistics) or bn_param { bn_mode: LEARN } for SegNet's (2 blobs, the statistics of "
     "each batch)"},
    {"BN",
     {{2, 3}},
     "bn_param { slope_filler { } bn_mode: INFERENCE }",
     "bn_param mixes fields of two layers: "},
    {"BN", {{3}}, "bn_param { frozen: true }", "the bottom must have 2 axes or more (N, C, ...)"},
    {"CenterLoss", {{2, 3}, {2}}, "", "num_output, the number of classes, must be given"},
    {"CenterLoss",
     {{2, 3}, {3}},
     "center_loss_param { num_output: 4 }",
     "bottom 'b0' of shape 2 3 (6) with 3 numbers a feature and bottom 'b1' of shape 3 (3) do not "
     "fit: there must be one label for each feature"},
    {"DepthwiseConvolution",
     {{2, 3, 4, 4}},
     "convolution_param { num_output: 6 kernel_size: 1 }",
     "num_output is 6; a DepthwiseConvolution has one group and one output for each channel of its "
     "bottom, 3; type Convolution takes other numbers"},
    {"FocalLoss",
     {{2, 3}, {2}},
     "focal_loss_param { gamma: -1 }",
     "alpha is 0.25 and gamma -1; alpha must be above 0, gamma 0 or more"},
    {"Interp",
     {{2, 3, 4, 4}},
     "",
     "interp_param needs height and width, or zoom_factor or shrink_factor"},
    {"Interp",
     {{2, 3, 4, 4}},
     "interp_param { zoom_factor: 2 pad_beg: 1 }",
     "pad_beg is 1 and pad_end 0; they cut rows and columns off: 0 or negative"},
    {"Interp",
     {{2, 3, 4, 4}},
     "interp_param { zoom_factor: 2 pad_beg: -2 pad_end: -2 }",
     "pad_beg -2 and pad_end -2 leave nothing of axis 2 of the bottom's shape 2 3 4 4 (96)"},
    {"Interp",
     {{2, 3, 4, 4}},
     "interp_param { height: -1 width: 2 }",
     "height of the top would be -1; it must be from 1 to "},
    {"Interp",
     {{2, 3, 4, 4}},
     "interp_param { shrink_factor: 0 }",
     "shrink_factor is 0 and zoom_factor 1; both must be 1 or more"},
    {"Normalize", {{2}}, "", "the bottom must have 2 axes or more (N, C, ...), not 2 (2)"},
    {"Permute",
     {{2, 3}},
     "permute_param { order: 2 }",
     "order names axis 2, but the bottom's shape 2 3 (6) has the axes 0 to 1"},
    {"Permute", {{2, 3}}, "permute_param { order: 1 order: 1 }", "order names axis 1 twice"},
    {"Permute",
     {{1, 1, 1, 1, 1, 1, 1, 1, 1}},
     "",
     "the bottom has 9 axes; at most 8 can be put in another order"},
    {"Reorg",
     {{2, 4, 4, 5}},
     "reorg_param { stride: 2 }",
     "stride 2 does not divide height and width of the bottom's shape 2 4 4 5 (160)"},
    {"Reorg",
     {{2, 6, 4, 4}},
     "reorg_param { stride: 2 }",
     "stride 2 squared does not divide the 6 channels of the bottom's shape 2 6 4 4 (192)"},
    {"Reorg", {{2, 4}}, "reorg_param { stride: 2 }", "the bottom must have 4 axes (N, C, H, W)"},
    {"Reorg", {{2, 4, 4, 4}}, "reorg_param { stride: 0 }", "stride is 0; it must be 1 or more"},
    {"ShuffleChannel",
     {{2, 4, 3}},
     "shuffle_channel_param { group: 3 }",
     "group 3 does not divide the channels, axis 1, of the bottom's shape 2 4 3 (24)"},
    {"SoftmaxWithLoss",
     {{2, 3}, {2}},
     "loss_param { weight_by_label_freqs: true class_weighting: 1 }",
     "class_weighting has 1 weights; bottom 'b0' of shape 2 3 (6) has 3 classes, and each needs "
     "one"},
    {"SoftmaxWithLoss",
     {{2, 3}, {2}},
     "loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 0 }",
     "pre_fixed_normalizer is 0; the loss is divided by it, so it must be above 0"},
    {"Pooling3D",
     {{1, 2, 4, 4}},
     "pooling_param { kernel_size: 2 kernel_depth: 2 }",
     "the bottom must have 5 axes (N, C, L, H, W), not 1 2 4 4 (32)"},
    {"Pooling3D",
     {{1, 2, 3, 4, 4}},
     "pooling_param { kernel_size: 2 }",
     "pooling_param needs kernel_size and kernel_depth, both above 0"},
    {"Pooling3D",
     {{1, 2, 3, 4, 4}},
     "pooling_param { kernel_size: 2 kernel_depth: 4 }",
     "kernel 4 is larger than the input on axis 2, 3; bottom: 1 2 3 4 4 (96)"},
    {"Pooling3D",
     {{1, 2, 3, 4, 4}},
     "pooling_param { kernel_size: 3 kernel_depth: 1 pad: 1 }",
     "pad is for pool: AVE"},
    {"Pooling3D",
     {{1, 2, 3, 4, 4}},
     "pooling_param { pool: STOCHASTIC kernel_size: 3 kernel_depth: 1 }",
     "pool: STOCHASTIC is for Pooling; here it is MAX or AVE"},
    {"Pooling3D",
     {{1, 2, 3, 4, 4}},
     "pooling_param { kernel_size: 3 kernel_depth: 1 temporal_stride: 0 }",
     "stride and temporal_stride must be 1 or more"},
    {"Pooling3D",
     {{1, 2, 3, 4, 4}},
     "pooling_param { kernel_h: 3 kernel_size: 1 kernel_depth: 1 }",
     "takes kernel_size, kernel_depth, stride, temporal_stride and pad here"},
    {"Upsample",
     {{2, 3, 4, 4}},
     "upsample_param { scale: 2 pad_out_h: true }",
     "with one bottom this is YOLO's Upsample, which has scale alone; SegNet's takes a second "
     "bottom, the mask of max Pooling"},
    {"Upsample",
     {{2, 3, 4, 4}, {2, 3, 4, 5}},
     "",
     "bottom 'b0' has shape 2 3 4 4 (96), the mask 'b1' 2 3 4 5 (120); is it the second top of the "
     "Pooling that made the size of 'b0'?"},
    {"Upsample",
     {{2, 3, 4, 4}, {2, 3, 4, 4}},
     "upsample_param { scale: 2 scale_h: 2 }",
     "scale is given, and scale_h or scale_w; give one of them"},
    {"Upsample",
     {{2, 3, 4, 4}, {2, 3, 4, 4}},
     "upsample_param { upsample_h: 0 upsample_w: 3 }",
     "the top would have 0 x 3 places; bottom: 2 3 4 4 (96)"},
    {"Upsample", {{2, 3}}, "upsample_param { scale: 2 }", "bottom 'b0' must have 4 axes"},
};

TEST(ForkLayers, BadInputIsRefusedInTheseWords) { expect_refused(kRefused); }

TEST(ForkLayers, AMaskOutsideTheTopEndsThePass) {
  LayerRig rig(layer_with("Upsample", 2, "upsample_param { scale: 2 }"),
               {{1, 1, 1, 2}, {1, 1, 1, 2}});
  Blob *bottoms[] = {&rig.bottom(0), &rig.bottom(1)}, *tops[] = {&rig.top(0)};
  put({1, 2}, rig.bottom(0).data);
  for (const Numbers& mask : {Numbers{0, 8}, Numbers{-1, 7}, Numbers{std::nanf(""), 7}}) {
    put(mask, rig.bottom(1).data);
    rig.layer().forward(rig.context(), bottoms, tops);
    const std::optional<Failure> failure = rig.context().take_failure();
    ASSERT_TRUE(failure);
    EXPECT_HAS(failure->error.message,
               "1 numbers of the mask 'b1' are no place of the top, whose planes have 2 x 4");
  }
  put({3, 7}, rig.bottom(1).data);
  rig.layer().forward(rig.context(), bottoms, tops);
  EXPECT_FALSE(rig.context().take_failure());
  EXPECT_EQ(values(rig.top(0).data), (Numbers{0, 0, 0, 1, 0, 0, 0, 2}));
}

TEST(ForkLayers, OfTwoNumbersWithOnePlaceTheLastStays) {
  LayerRig rig(layer_with("Upsample", 2, "upsample_param { scale: 1 }"),
               {{1, 1, 1, 3}, {1, 1, 1, 3}});
  rig.input(0) = {5, 6, 7};
  rig.input(1) = {1, 1, 0};
  rig.forward();
  EXPECT_EQ(values(rig.top(0).data), (Numbers{7, 6, 0}));
}

TEST(ForkLayers, FieldsTellWhetherABatchNormHasItsOwnScale) {
  const auto params = [](const std::string& fields) {
    return LayerRig(layer_with("BatchNorm", 1, "batch_norm_param { " + fields + " }"), {{2, 1}})
        .params();
  };
  EXPECT_EQ(params("eps: 0.1"), 3);
  EXPECT_EQ(params("scale_filler { value: 2 } bias_filler { }"), 3);  // NVIDIA's without scale_bias
  EXPECT_EQ(params("scale_bias: true scale_filler { value: 2 }"), 5);
  EXPECT_EQ(params("filler { value: 1 }"), 3);  // Intel's, which has a Scale behind it
  EXPECT_EQ(params("filler { value: 1 } use_weight_bias: true"), 5);
  EXPECT_EQ(params("use_weight_bias: true bias_term: false"), 4);
}

TEST(ForkLayers, ADepthwiseConvolutionHasTheGroupsThatAreGiven) {
  const auto top = [](const std::string& fields) {
    LayerRig rig(layer_with("DepthwiseConvolution", 1,
                            "convolution_param { kernel_size: 1 " + fields + " }"),
                 {{2, 4, 3, 3}});
    rig.forward();
    return rig.top(0).shape().str();
  };
  EXPECT_EQ(top(""), Shape({2, 4, 3, 3}).str());
  EXPECT_EQ(top("num_output: 6 group: 1"), Shape({2, 6, 3, 3}).str());
  EXPECT_EQ(top("num_output: 6 group: 2"), Shape({2, 6, 3, 3}).str());
}

TEST(ForkLayers, AConvolutionDepthwisePassesOverNumbersOfAnotherBottom) {
  const LogLines log;
  LayerRig rig(layer_with("ConvolutionDepthwise", 1,
                          "convolution_param { num_output: 6 group: 2 kernel_size: 1 }", 1),
               {{2, 3, 4, 4}});
  EXPECT_EQ(rig.top(0).shape(), Shape({2, 3, 4, 4}));
  EXPECT_EQ(rig.param(0).shape(), Shape({3, 1, 1, 1}));
  EXPECT_TRUE(log.has(".*num_output and group are passed over.*channel of the bottom, 3"));
}

TEST(ForkLayers, BlobsTellWhichBnItIs) {
  const auto params = [](const std::string& rest) {
    return LayerRig(layer_with("BN", 1, rest), {{2, 1}}).params();
  };
  const std::string blob = "blobs { data: 1 shape { dim: 1 dim: 1 dim: 1 dim: 1 } } ";
  EXPECT_EQ(params(blob + blob), 2);
  EXPECT_EQ(params(blob + blob + blob + blob), 4);
  EXPECT_EQ(params("param { } param { } param { lr_mult: 0 } param { lr_mult: 0 }"), 4);
}

TEST(ForkLayers, DropoutWithoutScaleKeepsNumbersAsTheyAre) {
  LayerRig rig(layer_with("Dropout", 1, "dropout_param { scale_train: false }"), {{64}});
  rig.input(0) = Numbers(64, 3.0f);
  rig.forward();
  const Numbers top = values(rig.top(0).data);
  EXPECT_GT(std::ranges::count(top, 0.0f), 10);
  EXPECT_GT(std::ranges::count(top, 3.0f), 10);
  EXPECT_EQ(std::ranges::count(top, 0.0f) + std::ranges::count(top, 3.0f), 64);
}

}  // namespace
}  // namespace shoal::test::fork_layers_test
