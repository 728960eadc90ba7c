// The layers of Faster R-CNN, R-FCN and YOLO: what they refuse and in what words, which of two
// layers of one name they are, corners worked by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "shoal/base/error.h"
#include "shoal/layers/yolo_boxes.h"
#include "shoal/proto/layers.pb.h"
#include "support/expect.h"
#include "support/layer_rig.h"
#include "support/refused.h"

namespace shoal::test::box_layers_test {
namespace {

// One layer with inputs, where a failure is an answer.
class Bench {
 public:
  Bench(const std::string& type, const std::vector<Shape>& bottoms, const std::string& rest,
        int tops = 1)
      : rig_(layer_with(type, bottoms.size(), rest, tops), bottoms) {}
  Bench& put(int bottom, const Numbers& numbers) {
    test::put(numbers, rig_.bottom(bottom).data);
    return *this;
  }
  Numbers forward(int top = 0) {
    rig_.size_tops();
    rig_.layer().forward(rig_.context(), rig_.bottom_blobs(), rig_.top_blobs());
    return values(rig_.top(top).data);
  }
  // Returns why the pass failed; empty if it did not.
  std::string failure() {
    forward();
    const std::optional<Failure> failure = rig_.context().take_failure();
    if (!failure) return "";
    EXPECT_EQ(failure->error.code, Code::kData);
    return failure->error.message;
  }
  LayerRig& rig() { return rig_; }

 private:
  LayerRig rig_;
};

const Refused kRefused[] = {
    {"ROIPooling", {{1, 2, 4, 4}, {3, 5}}, "", "pooled_h is 0 and pooled_w 0; both must be 1"},
    {"ROIPooling",
     {{1, 2, 4, 4}, {3, 4}},
     "roi_pooling_param { pooled_h: 7 pooled_w: 7 }",
     "bottom 'b1', the rois, must have shape (R, 5): image, xmin, ymin, xmax, ymax; it is 3 4"},
    {"ROIPooling",
     {{2, 4}, {3, 5}},
     "roi_pooling_param { pooled_h: 7 pooled_w: 7 }",
     "bottom 'b0', the features, must have 4 axes (N, C, H, W), not 2 4"},
    {"ROIPooling",
     {{1, 2, 4, 4}, {3, 5}},
     "roi_pooling_param { pooled_h: 7 pooled_w: 7 spatial_scale: 0 }",
     "spatial_scale is 0; it must be above 0"},
    {"PSROIPooling",
     {{1, 10, 4, 4}, {3, 5}},
     "psroi_pooling_param { spatial_scale: 0.0625 output_dim: 2 group_size: 3 }",
     "bottom 'b0' of shape 1 10 4 4 (160) has 10 channels; output_dim 2 and group_size 3 need 18"},
    {"PSROIPooling",
     {{1, 18, 4, 4}, {3, 5}},
     "psroi_pooling_param { output_dim: 2 group_size: 3 }",
     "needs spatial_scale, output_dim and group_size"},
    {"ROIAlign",
     {{1, 2, 4, 4}, {3, 5}},
     "",
     "takes either roi_align_param, as Mask R-CNN's forks have it, or roi_pooling_param"},
    {"ROIAlign",
     {{1, 2, 4, 4}, {3, 5}},
     "roi_align_param { pooled_h: 7 pooled_w: 7 roi_end_mode: 1 }",
     "roi_end_mode is 1; 0, which leaves the box as it is"},
    {"SmoothL1Loss",
     {{3, 4}, {3, 5}},
     "",
     "bottom 'b1' of shape 3 5 (15) and bottom 'b0' of shape 3 4 (12) differ"},
    {"SmoothL1Loss", {{3, 4}, {3, 4}}, "smooth_l1_loss_param { sigma: -1 }", "sigma is -1"},
    {"SmoothL1LossOHEM",
     {{3, 4}, {3, 4}},
     "smooth_l1_loss_param { sigma: 3 }",
     "sigma is 3, which R-FCN's form of the layer does not have"},
    {"SmoothL1Loss",
     {{3, 4}, {3, 4}, {3, 4}, {3, 4}},
     "",
     "has 4 bottoms and 2 tops; R-FCN's form has 2 or 3 bottoms",
     2},
    {"BoxAnnotatorOHEM", {{3, 5}, {3}, {3}, {3, 8}}, "", "roi_per_img is not given or 0", 2},
    {"BoxAnnotatorOHEM",
     {{3, 5}, {3}, {2}, {3, 8}},
     "box_annotator_ohem_param { roi_per_img: 128 }",
     "labels 'b2' of 2 (2) and weights 'b3' of 3 8 (24) do not fit",
     2},
    {"Proposal",
     {{1, 18, 4, 4}, {1, 35, 4, 4}, {1, 3}},
     "",
     "do not fit 9 anchors (ratios times scales): they need (N, 18, H, W) and (N, 36, H, W)"},
    {"Proposal",
     {{2, 18, 4, 4}, {2, 36, 4, 4}, {3, 3}},
     "",
     "bottom 'b2', the sizes of the images, has shape 3 3 (9); it must be (1, 3)"},
    {"Proposal",
     {{1, 18, 4, 4}, {1, 36, 4, 4}, {1, 3}},
     "proposal_param { post_nms_topn: 0 }",
     "must be 1 or more; proposal_param gives 16, 16, 6000 and 0"},
    {"Proposal",
     {{1, 2, 4, 4}, {1, 4, 4, 4}, {1, 3}},
     "proposal_param { ratio: 1 scale: 0 }",
     "a ratio or scale is 0; it must be above 0"},
    {"RegionLoss",
     {{1, 50, 3, 3}, {1, 25}},
     "region_loss_param { num_class: 20 num: 2 }",
     "has 0 biases; 2 boxes need 4"},
    {"RegionLoss",
     {{1, 50, 3, 4}, {1, 25}},
     "region_loss_param { num: 2 biases: 1 biases: 1 biases: 2 biases: 2 }",
     "is not square; this layer takes square maps only"},
    {"RegionLoss",
     {{1, 40, 3, 3}, {1, 25}},
     "region_loss_param { num: 2 biases: 1 biases: 1 biases: 2 biases: 2 }",
     "must have 50 channels: 2 boxes a place of 5 numbers and 20 classes"},
    {"Yolov3",
     {{1, 25, 3, 3}, {1, 24}},
     "yolov3_param { num: 1 mask: 0 biases: 3 biases: 4 }",
     "bottom 'b1' of shape 1 24 (24) must have 1 items, of each box 5 numbers"},
    {"Yolov3",
     {{1, 25, 3, 3}, {1, 1, 3, 8}},
     "yolov3_param { num: 1 mask: 0 biases: 3 biases: 4 }",
     "width, height, as AnnotatedData makes them with yolo_data_type: 1"},
    {"Yolov3",
     {{1, 25, 3, 3}, {1, 25}},
     "yolov3_param { num: 1 mask: 1 biases: 3 biases: 4 }",
     "mask names bias 1, but biases has 1 pairs"},
    {"Yolov3",
     {{1, 25, 3, 3}, {1, 25}},
     "yolov3_param { num: 1 biases: 3 biases: 4 }",
     "has 0 numbers in mask; num is 1"},
    {"YoloDetectionOutput",
     {{1, 25, 3, 3}},
     "yolo_detection_output_param { num_classes: 20 num_box: 1 }",
     "has 0 biases; 1 boxes (num_box) need 2"},
    {"YoloDetectionOutput",
     {{1, 24, 3, 3}},
     "yolo_detection_output_param { num_classes: 20 num_box: 1 biases: 1 biases: 1 }",
     "must have 25 channels: 1 boxes a place of 25 numbers"},
    {"Yolov3DetectionOutput",
     {{1, 75, 3, 3}},
     "yolov3_detection_output_param { num_classes: 20 }",
     "has 1 bottoms; mask_group_num is 2"},
    {"Yolov3DetectionOutput",
     {{1, 75, 3, 3}},
     "yolov3_detection_output_param { num_classes: 20 mask_group_num: 1 mask: 0 }",
     "has 1 numbers in mask and 0 in anchors_scale; 1 bottoms of 3 boxes (num_box) need 3 and 1"},
};

TEST(BoxLayers, RefuseWhatDoesNotFitInWordsThatHelp) { expect_refused(kRefused); }

const std::string kPooled = "roi_pooling_param { pooled_h: 1 pooled_w: 1 }";

TEST(RoiPooling, ARoiOfNoImageEndsThePass) {
  const std::vector<Shape> shapes = {{2, 1, 3, 3}, {2, 5}};
  Bench bench("ROIPooling", shapes, kPooled);
  bench.put(0, Numbers(18, 1)).put(1, {0, 0, 0, 2, 2, 2, 0, 0, 2, 2});
  EXPECT_EQ(bench.failure(),
            "roi 1 of 'b1': its image is 2, but the features are of 2 images; a roi is image, "
            "xmin, ymin, xmax, ymax, the image counted from 0");
  bench.put(1, {0, 0, 0, 2, 2, 0.5f, 0, 0, 2, 2});
  EXPECT_NE(bench.failure().find("its image is 0.5"), std::string::npos);
  bench.put(1, {0, 0, 0, std::nanf(""), 2, 1, 0, 0, 2, 2});
  EXPECT_NE(bench.failure().find("roi 0 of 'b1': its number 3 is nan"), std::string::npos);
  bench.put(1, {0, 0, 0, 2, 2, 1, 0, 0, 2, 2});
  EXPECT_EQ(bench.failure(), "");
}

TEST(RoiPooling, ABoxHoldsBothItsCorners) {
  Bench bench("ROIPooling", {{1, 1, 3, 3}, {3, 5}}, kPooled);
  bench.put(0, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  bench.put(1, {0, 0, 0, 1, 1, 0, 1, 0, 2, 1, 0, 7, 7, 9, 9});
  EXPECT_EQ(bench.forward(), (Numbers{5, 6, 0}));  // the last lies outside
}

TEST(SmoothL1Loss, ItsBlobsAndFieldsTellWhichOfTwoItIs) {
  const auto loss = [](const std::string& type, int bottoms, const std::string& rest, int tops) {
    Bench bench(type, std::vector<Shape>(static_cast<std::size_t>(bottoms), Shape{2, 1, 1, 3}),
                rest, tops);
    for (int i = 0; i < bottoms; ++i) bench.put(i, Numbers(6, i == 1 ? 0.0f : 1.0f));
    return bench.forward()[0];
  };
  // Errors are 0.5 each: over 2 items 1.5, over 2 x 3 places 0.5.
  EXPECT_FLOAT_EQ(loss("SmoothL1Loss", 2, "", 1), 1.5f);
  EXPECT_FLOAT_EQ(loss("SmoothL1Loss", 4, "", 1), 1.5f);
  EXPECT_FLOAT_EQ(loss("SmoothL1Loss", 4, "loss_param { normalization: FULL }", 1), 1.5f);
  EXPECT_FLOAT_EQ(loss("SmoothL1Loss", 4, "loss_param { normalization: NONE }", 1), 3);
  EXPECT_FLOAT_EQ(loss("SmoothL1Loss", 2, "loss_param { normalization: FULL }", 1), 0.5f);
  EXPECT_FLOAT_EQ(loss("SmoothL1Loss", 3, "", 1), 0.5f);
  EXPECT_FLOAT_EQ(loss("SmoothL1Loss", 2, "", 2), 0.5f);
  EXPECT_FLOAT_EQ(loss("SmoothL1LossOHEM", 2, "", 1), 0.5f);
  EXPECT_FLOAT_EQ(loss("SmoothL1LossOHEM", 2, "loss_param { normalize: false }", 1), 1.5f);
}

// R-FCN's first nets ask BVLC's type for the loss of each item, which SoftmaxWithLossOHEM has.
TEST(SoftmaxWithLoss, AThirdTopHasTheLossOfEachItem) {
  for (const char* type : {"SoftmaxWithLoss", "SoftmaxWithLossOHEM"}) {
    Bench bench(type, {{3, 2}, {3}}, "loss_param { ignore_label: 1 }", 3);
    bench.put(0, {0, 0, 5, 7, 9, 9}).put(1, {0, 1, 0});
    EXPECT_FLOAT_EQ(bench.forward()[0], std::log(2.0f)) << type;
    const Numbers losses = bench.forward(2);
    ASSERT_EQ(losses.size(), 3u) << type;
    EXPECT_FLOAT_EQ(losses[0], std::log(2.0f)) << type;
    EXPECT_EQ(losses[1], 0) << type;
    EXPECT_FLOAT_EQ(losses[2], std::log(2.0f)) << type;
  }
}

TEST(BoxAnnotatorOHEM, TheFirstOfEqualLossesIsKeptAndNaNIsTheLargest) {
  Bench bench("BoxAnnotatorOHEM", {{4, 5}, {4}, {4}, {4, 1}},
              "box_annotator_ohem_param { roi_per_img: 2 }", 2);
  bench.put(0, Numbers(20)).put(1, {1, 2, 2, 2}).put(2, {5, 6, 7, 8}).put(3, {1, 1, 1, 1});
  EXPECT_EQ(bench.forward(), (Numbers{-1, 6, 7, -1}));
  bench.put(1, {1, 2, 2, std::nanf("")});
  EXPECT_EQ(bench.forward(), (Numbers{-1, 6, -1, 8}));
  EXPECT_EQ(bench.forward(1), (Numbers{0, 1, 0, 1}));
}

// Sizes count both pixels at the corners, and half of a size goes to each side of the centre, so
// that an anchor that does not move reaches one pixel further: -84 -40 99 55 becomes -84 -40
// 100 56.
TEST(Proposal, AnchorsAreThoseOfFasterRCnn) {
  Bench bench("Proposal", {{1, 18, 1, 1}, {1, 36, 1, 1}, {1, 3}},
              "proposal_param { nms_thresh: 1 }");
  Numbers scores(18, 0);
  for (std::size_t a = 0; a < 9; ++a) scores[9 + a] = 9 - static_cast<float>(a);
  bench.put(0, scores).put(1, Numbers(36, 0)).put(2, {1000, 1000, 1});
  const Numbers rois = bench.forward();
  ASSERT_EQ(rois.size(), 45u);
  EXPECT_EQ(rois[3], 100);
  EXPECT_EQ(rois[4], 56);
  EXPECT_EQ(rois[43], 184);  // the last of ratio 2: -167 -343 183 359
  EXPECT_EQ(rois[44], 360);
}

TEST(Proposal, BoxesThatAreTooSmallOrNoNumbersAreLeftOut) {
  const std::string param =
      "proposal_param { base_size: 8 feat_stride: 8 ratio: 1 scale: 1 min_size: 8 }";
  Bench bench("Proposal", {{1, 2, 1, 3}, {1, 4, 1, 3}, {1, 3}}, param);
  bench.put(0, {0, 0, 0, 1, 2, 3}).put(1, Numbers(12, 0)).put(2, {8, 24, 1});
  EXPECT_EQ(bench.forward(), (Numbers{0, 16, 0, 23, 7, 0, 8, 0, 16, 7, 0, 0, 0, 8, 7}));
  bench.put(2, {8, 20, 1});  // the last is 4 wide
  EXPECT_EQ(bench.forward(), (Numbers{0, 8, 0, 16, 7, 0, 0, 0, 8, 7}));
  bench.put(0, {0, 0, 0, 1, std::nanf(""), 3});
  EXPECT_EQ(bench.forward(), (Numbers{0, 0, 0, 8, 7}));
  bench.put(2, {8, 24, 2});
  EXPECT_EQ(bench.forward(), Numbers());
}

TEST(YoloLosses, ABoxThatCannotBeEndsThePass) {
  for (const auto& [type, param] :
       {std::pair<std::string, std::string>{"RegionLoss", "region_loss_param { num_class: 2"},
        {"Yolov3", "yolov3_param { num_class: 2 mask: 0"}}) {
    Bench bench(type, {{1, 7, 2, 2}, {1, 10}}, param + " num: 1 biases: 1 biases: 1 }");
    bench.put(0, Numbers(28, 0.1f)).put(1, {1, 0.5f, 0.5f, 0.2f, 0.2f, 0, 0, 0, 0, 0});
    EXPECT_EQ(bench.failure(), "");
    const float loss = bench.forward()[0];
    bench.put(1, {2, 0.5f, 0.5f, 0.2f, 0.2f, 0, 0, 0, 0, 0});
    EXPECT_EQ(bench.failure(),
              "box 0 of 'b1' at item 0 is class 2, centre 0.5, 0.5, size 0.2 x 0.2; a class is in "
              "0..1, a centre in 0..1, a size above 0, as parts of the image");
    bench.put(1, {1, 0.5f, 0.5f, 0.2f, 0.2f, 0, 1.5f, 0.5f, 0.2f, 0.2f});
    EXPECT_NE(bench.failure().find("box 1 of 'b1' at item 0 is class 0, centre 1.5"),
              std::string::npos);
    // Nothing of the failed pass counts in the next.
    bench.put(1, {1, 0.5f, 0.5f, 0.2f, 0.2f, 0, 0, 0, 0, 0});
    EXPECT_EQ(bench.forward()[0], loss);
    bench.put(1, {1, 1, 1, 0.2f, 0.2f, 0, 0, 0, 0, 0});  // on the border: the last cell
    EXPECT_EQ(bench.failure(), "");
  }
}

TEST(YoloBoxes, AgreementOfBoxesWorkedByHand) {
  const CentredBox a{0.25f, 0.5f, 0.5f, 1}, b{0.75f, 0.5f, 0.5f, 1}, both{0.5f, 0.5f, 1, 1};
  EXPECT_FLOAT_EQ(agreement(a, both, Agreement::kIou), 0.5f);
  EXPECT_FLOAT_EQ(agreement(a, b, Agreement::kIou), 0);
  EXPECT_FLOAT_EQ(agreement(a, b, Agreement::kGiou), 0);  // nothing is empty around them
  EXPECT_FLOAT_EQ(agreement(a, both, Agreement::kGiou), 0.5f);
  EXPECT_FLOAT_EQ(agreement(a, b, Agreement::kDiou), -std::pow(0.125f, 0.6f));
  EXPECT_FLOAT_EQ(agreement(a, b, Agreement::kCiou), -0.125f);  // the same aspect
}

TEST(YoloOutputs, ImagesOfABatchAreApart) {
  // One cell, one box: the same object in both images.
  Bench bench("YoloDetectionOutput", {{2, 6, 1, 1}},
              "yolo_detection_output_param { num_classes: 1 num_box: 1 biases: 1 biases: 1 }");
  bench.put(0, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  const Numbers rows = bench.forward();
  EXPECT_EQ(rows, (Numbers{0, 1, 0.5f, 0, 0, 1, 1, 1, 1, 0.5f, 0, 0, 1, 1}));
  EXPECT_EQ(bench.rig().top(0).shape(), (Shape{1, 1, 2, 7}));
}

}  // namespace
}  // namespace shoal::test::box_layers_test
