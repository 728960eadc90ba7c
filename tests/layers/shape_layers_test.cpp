// The layers that move, join and broadcast blobs: what they refuse, and in what words; corners
// worked by hand.
#include <gtest/gtest.h>

#include <optional>

#include "shoal/base/error.h"
#include "shoal/proto/layers.pb.h"
#include "support/layer_rig.h"
#include "support/refused.h"

namespace shoal::test::shape_layers_test {
namespace {

const Refused kRefused[] = {
    {"Concat",
     {{2, 3, 4}, {2, 3, 5}},
     "",
     "bottom 'b1' has shape 2 3 5 (30), bottom 'b0' 2 3 4 (24); they may differ only on axis 1"},
    {"Concat",
     {{2, 3}, {2, 3, 1}},
     "",
     "bottom 'b1' has shape 2 3 1 (6), bottom 'b0' 2 3 (6); they may differ only on axis 1"},
    {"Concat", {{2}}, "", "axis is 1, but the bottom's shape 2 (2) has 1 axes"},
    {"Concat",
     {{2, 3}},
     "concat_param { axis: 1 concat_dim: 1 }",
     "has both 'axis' and its older spelling 'concat_dim'; give one of them"},
    {"Concat",
     {{2, 3}},
     "concat_param { concat_dim: 4000000000 }",
     "concat_dim is 4000000000, but a blob has at most 32 axes"},
    {"Slice",
     {{2, 5}},
     "",
     "axis 1 of the bottom's shape 2 5 (10) does not divide into 2 equal tops; give slice_point",
     2},
    {"Slice",
     {{2, 5}},
     "slice_param { slice_point: 2 }",
     "has 1 slice_point for 3 tops; give one less than there are tops",
     3},
    {"Slice",
     {{2, 5}},
     "slice_param { slice_point: 2 slice_point: 2 }",
     "slice_point 2 does not lie after 2 and before 5, the size of axis 1 of the bottom's shape 2 "
     "5 (10)",
     3},
    {"Slice",
     {{2, 5}},
     "slice_param { slice_point: 5 }",
     "slice_point 5 does not lie after 0 and before 5, the size of axis 1 of the bottom's shape 2 "
     "5 (10)",
     2},
    {"Crop",
     {{1, 1, 4, 4}, {1, 4, 4}},
     "",
     "bottom 'b0' has shape 1 1 4 4 (16), bottom 'b1' 1 4 4 (16); they must have the same number "
     "of axes"},
    {"Crop",
     {{1, 1, 4, 4}, {1, 1, 3, 3}},
     "crop_param { offset: 1 offset: 2 }",
     "on axis 3 the crop of bottom 'b0', 1 1 4 4 (16), to the size of 'b1', 1 1 3 3 (9), ends at 2 "
     "+ 3, past 4"},
    {"Crop",
     {{1, 1, 4, 4}, {1, 1, 3, 3}},
     "crop_param { offset: 1 offset: 2 offset: 3 }",
     "has 3 offset for 2 cropped axes; give none, one, or one an axis"},
    {"Tile", {{2, 3}}, "", "tiles is 0; it must be 1 or more"},
    {"Tile",
     {{2, 3}},
     "tile_param { tiles: 2 axis: -3 }",
     "axis is -3, but the bottom's shape 2 3 (6) has 2 axes"},
    {"Flatten",
     {{2, 3, 4}},
     "flatten_param { axis: 2 end_axis: 1 }",
     "end_axis 1 comes before axis 2 in the bottom's shape 2 3 4 (24)"},
    {"Reshape",
     {{2, 3, 4}},
     "reshape_param { shape { dim: 5 dim: -1 } }",
     "the bottom's shape 2 3 4 (24) has 24 numbers from axis 0 to 2; the new shape has a multiple "
     "of 5"},
    {"Reshape",
     {{2, 3, 4}},
     "reshape_param { shape { dim: 5 } }",
     "the bottom's shape 2 3 4 (24) has 24 numbers from axis 0 to 2; the new shape has 5"},
    {"Reshape",
     {{2, 3}},
     "reshape_param { shape { dim: -1 dim: -1 } }",
     "shape has a size of -1 twice; only one can be what is left"},
    {"Reshape",
     {{2, 3}},
     "reshape_param { shape { dim: -2 } }",
     "shape has a size of -2; 0 copies one, -1 takes what is left"},
    {"Reshape",
     {{2, 3}},
     "reshape_param { shape { dim: 0 dim: 0 dim: 0 } }",
     "shape copies axis 2 (size 0), but the bottom's shape is 2 3 (6)"},
    {"Reshape",
     {{2, 3}},
     "reshape_param { axis: 3 }",
     "axis is 3, but the bottom's shape 2 3 (6) has 2 axes"},
    {"Reshape",
     {{2, 3}},
     "reshape_param { axis: 1 num_axes: 2 }",
     "num_axes is 2 from axis 1 on, but the bottom's shape 2 3 (6) has 2 axes"},
    {"Reshape",
     {{2, 3}},
     "reshape_param { axis: 1 num_axes: 2147483647 }",
     "num_axes is 2147483647 from axis 1 on, but the bottom's shape 2 3 (6) has 2 axes"},
    {"Scale",
     {{2, 3}},
     "scale_param { num_axes: 2147483647 }",
     "num_axes is 2147483647 from axis 1 on, but the bottom's shape 2 3 (6) has 2 axes"},
    {"Eltwise",
     {{2, 3}, {3, 2}},
     "",
     "bottom 'b1' has shape 3 2 (6), bottom 'b0' 2 3 (6); they must be equal"},
    {"Eltwise",
     {{2}, {2}},
     "eltwise_param { coeff: 1 }",
     "has 1 coeff for 2 bottoms; give none, or one a bottom"},
    {"Eltwise",
     {{2}, {2}},
     "eltwise_param { operation: MAX coeff: 1 coeff: 1 }",
     "coeff goes with operation SUM only"},
    {"Scale",
     {{2, 3, 4}, {4}},
     "",
     "bottom 'b1' has shape 4 (4), which is not that of bottom 'b0', 2 3 4 (24), from axis 1 on"},
    {"Scale",
     {{2, 3}},
     "scale_param { num_axes: 2 }",
     "num_axes is 2 from axis 1 on, but the bottom's shape 2 3 (6) has 2 axes"},
    {"Scale", {{2}}, "", "axis is 1, but the bottom's shape 2 (2) has 1 axes"},
    {"Scale",
     {{2, 3}},
     "scale_param { filler { type: 'gaussianish' } }",
     "filler 'gaussianish' is unknown; known: bilinear, constant, gaussian, msra, "
     "positive_unitball, uniform, xavier"},
    {"Bias",
     {{2, 3}, {2, 3}},
     "",
     "bottom 'b1' has shape 2 3 (6), which is not that of bottom 'b0', 2 3 (6), from axis 1 on"},
    {"Bias",
     {{2, 3}},
     "bias_param { num_axes: -2 }",
     "num_axes is -2; it must be -1 (to the last axis), 0 (a single number) or more"},
    {"Reduction",
     {{2, 3}},
     "reduction_param { axis: 2 }",
     "axis is 2, but the bottom's shape 2 3 (6) has 2 axes"},
    {"DummyData", {}, "", "dummy_data_param has 0 of 'shape' for 1 tops; give one, or one a top"},
    {"DummyData",
     {},
     "dummy_data_param { num: 1 channels: 1 height: 1 width: 1 width: 2 }",
     "dummy_data_param has 2 of 'width' for 3 tops; give one, or one a top",
     3},
    {"DummyData",
     {},
     "dummy_data_param { shape { dim: 1 } num: 1 }",
     "dummy_data_param has both 'shape' and the older num, channels, height, width; give one of "
     "them"},
    {"DummyData",
     {},
     "dummy_data_param { shape { dim: 1 } shape { dim: -1 } }",
     "top 1: the shape -1 has a negative size",
     2},
    {"DummyData",
     {},
     "dummy_data_param { shape { dim: 65536 dim: 65536 } }",
     "top 0: the shape 65536 65536 has more than 2147483647 elements"},
    {"Embed",
     {{2}},
     "embed_param { num_output: 3 }",
     "num_output is 3 and input_dim 0; both must be 1 or more"},
    {"BatchReindex",
     {{2, 3}, {2, 1}},
     "",
     "bottom 'b1' holds item numbers and needs one axis; its shape is 2 1 (2)"},
    {"MVN", {{1, 1, 1, 1, 2}}, "", "takes at most 4 axes; the bottom's shape is 1 1 1 1 2 (2)"},
    {"SPP",
     {{1, 1, 5, 9}},
     "spp_param { pyramid_height: 3 }",
     "the bottom's shape 1 1 5 9 (45) is too small on axis 2 for 4 bins; lower pyramid_height"},
    {"SPP", {{1, 1, 5, 9}}, "", "pyramid_height is 0; it must be from 1 to 16"},
    {"SPP",
     {{1, 5, 9}},
     "spp_param { pyramid_height: 1 }",
     "the bottom must have 4 axes (N, C, H, W), not 1 5 9 (45)"},
};

TEST(ShapeLayers, SayWhatDoesNotFit) { expect_refused(kRefused); }

TEST(ShapeLayers, ParamsDoNotFollowABottomThatChangesItsChannels) {
  LayerRig rig(layer_with("Scale", 1, "scale_param { bias_term: true }"), {{2, 3, 4}});
  rig.reshape({{5, 3, 2}});
  EXPECT_EQ(rig.top(0).shape(), (Shape{5, 3, 2}));
  EXPECT_THROW(rig.reshape({{2, 4, 4}}), ConfigError);
}

TEST(ShapeLayers, LookAtTheirBottomsBytesWhereNothingMoves) {
  for (const char* type : {"Flatten", "Split", "Concat"}) {
    LayerRig rig(layer_with(type, 1, ""), {{2, 3, 4}});
    EXPECT_TRUE(rig.top(0).data.shares_with(rig.bottom(0).data)) << type;
    EXPECT_TRUE(rig.top(0).grad.shares_with(rig.bottom(0).grad)) << type;
  }
  LayerRig split(layer_with("Split", 1, "", 2), {{2, 3}});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(split.top(i).data.shares_with(split.bottom(0).data));
  EXPECT_FALSE(split.top(0).grad.shares_with(split.top(1).grad))
      << "two readers write their own gradients";
}

TEST(ShapeLayers, SplitWithoutAnyGradientMakesZeros) {
  LayerRig rig(layer_with("Split", 1, "", 2), {{3}});
  rig.layer().set_missing_gradients({true, true});
  rig.forward();
  rig.backward({{1, 2, 3}, {4, 5, 6}}, {true});
  EXPECT_EQ(rig.bottom_grads()[0], (Numbers{0, 0, 0}));
}

TEST(ShapeLayers, EltwiseGivesATieToTheSecondAndThenToTheFirstThatIsLarger) {
  LayerRig rig(layer_with("Eltwise", 3, "eltwise_param { operation: MAX }"), {{4}, {4}, {4}});
  rig.input(0) = {1, 2, 0, 5};
  rig.input(1) = {1, 1, 0, 5};
  rig.input(2) = {1, 2, 3, 4};
  rig.forward();
  EXPECT_EQ(rig.top_values()[0], (Numbers{1, 2, 3, 5}));
  rig.backward({{1, 2, 3, 4}}, {true, true, true});
  EXPECT_EQ(rig.bottom_grads()[0], (Numbers{0, 2, 0, 0}));
  EXPECT_EQ(rig.bottom_grads()[1], (Numbers{1, 0, 0, 4}));
  EXPECT_EQ(rig.bottom_grads()[2], (Numbers{0, 0, 3, 0}));
}

TEST(ShapeLayers, ProductsWithAZeroHaveAGradientUnlessDivided) {
  LayerRig rig(layer_with("Eltwise", 2, "eltwise_param { operation: PROD }"), {{2}, {2}});
  rig.input(0) = {0, 3};
  rig.input(1) = {2, 0};
  rig.forward();
  rig.backward({{10, 10}}, {true, true});
  EXPECT_EQ(rig.bottom_grads()[0], (Numbers{20, 0}));
  EXPECT_EQ(rig.bottom_grads()[1], (Numbers{0, 30}));
}

TEST(ShapeLayers, AFrozenFactorGetsNoGradient) {
  LayerRig rig(layer_with("Scale", 1, "scale_param { bias_term: true }"), {{2, 3}});
  rig.layer().set_param_propagates({false, true});
  rig.input(0) = {1, 2, 3, 4, 5, 6};
  rig.forward();
  rig.clear_param_grads();
  rig.backward({{1, 1, 1, 1, 1, 1}}, {false});
  EXPECT_EQ(rig.param_grads()[0], (Numbers{0, 0, 0}));
  EXPECT_EQ(rig.param_grads()[1], (Numbers{2, 2, 2}));
}

TEST(ShapeLayers, ARowThatIsNotThereEndsThePass) {
  const auto failure = [](const std::string& type, const std::string& rest,
                          const std::vector<Shape>& shapes, float number) {
    LayerRig rig(layer_with(type, shapes.size(), rest), shapes);
    const int index = rig.bottoms() - 1;
    put({0, 1, number}, rig.bottom(index).data);
    rig.layer().forward(rig.context(), rig.bottom_blobs(), rig.top_blobs());
    const std::optional<Failure> noted = rig.context().take_failure();
    if (!noted) return std::string("nothing was noted");
    EXPECT_EQ(noted->error.code, Code::kData);
    EXPECT_EQ(noted->item, 2);
    return noted->error.message;
  };
  const std::string embed = "embed_param { num_output: 2 input_dim: 4 }";
  EXPECT_EQ(failure("Embed", embed, {{3}}, 4),
            "number 4 of 'b0' at item 2 is not a whole number in 0..3; is input_dim too small?");
  EXPECT_EQ(failure("Embed", embed, {{3}}, 0.5f),
            "number 0.5 of 'b0' at item 2 is not a whole number in 0..3; is input_dim too small?");
  EXPECT_EQ(failure("BatchReindex", "", {{2, 2}, {3}}, -1),
            "number -1 of 'b1' at item 2 is not a whole number in 0..1");
  EXPECT_EQ(failure("BatchReindex", "", {{2, 2}, {3}}, 1), "nothing was noted");
}

TEST(ShapeLayers, DummyDataDrawsAnewUnlessAllIsConstant) {
  const std::string shape = "shape { dim: 3 } ";
  const std::string fillers = "data_filler { value: 2 } data_filler { type: 'uniform' } ";
  LayerRig mixed(layer_with("DummyData", 0, "dummy_data_param { " + shape + fillers + "}", 2), {});
  EXPECT_FALSE(mixed.layer().keeps_tops());
  mixed.forward();
  EXPECT_EQ(mixed.top_values()[0], (Numbers{2, 2, 2}));
  const Numbers first = mixed.top_values()[1];
  for (const float x : first) EXPECT_TRUE(x >= 0 && x < 1) << x;
  mixed.layer().forward(mixed.context(), {}, mixed.top_blobs());
  EXPECT_NE(mixed.top_values()[1], first) << "the same numbers twice";
  LayerRig constant(
      layer_with("DummyData", 0, "dummy_data_param { " + shape + "data_filler { value: 2 } }"), {});
  EXPECT_TRUE(constant.layer().keeps_tops());
  constant.forward();
  put({7, 8, 9}, constant.top(0).data);
  constant.forward();
  EXPECT_EQ(constant.top_values()[0], (Numbers{7, 8, 9})) << "constants are put there once";
}

}  // namespace
}  // namespace shoal::test::shape_layers_test
