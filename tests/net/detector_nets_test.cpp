// Small nets of the kinds that public files have: Faster R-CNN, SegNet, R-FCN with hard examples,
// YOLO v3.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "shoal/base/random.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/devices.h"
#include "support/layer_rig.h"
#include "support/solver_rig.h"

namespace shoal::test::detector_nets_test {
namespace {

NetParameter parse(const std::string& text, Phase phase) {
  NetParameter net = parse_net(text, "test.prototxt");
  net.mutable_state()->set_phase(phase);
  return net;
}

std::string input(const std::string& name, const std::string& dims) {
  return str("layer { name: '", name, "' type: 'Input' top: '", name, "' input_param { shape { ",
             dims, " } } }\n");
}
std::string conv(const std::string& bottom, const std::string& top, int outputs, int kernel = 1) {
  return str("layer { name: '", top, "' type: 'Convolution' bottom: '", bottom, "' top: '", top,
             "' convolution_param { num_output: ", outputs, " kernel_size: ", kernel,
             " pad: ", kernel / 2, " weight_filler { type: 'xavier' } } }\n");
}

void draw(Net& net, const std::string& blob, std::uint64_t seed) {
  Random random(seed, stream_of(blob));
  for (float& x : net.blob(blob)->data.host_out()) x = random.gaussian(0, 1);
}
void put_into(Net& net, const std::string& blob, const Numbers& numbers) {
  put(numbers, net.blob(blob)->data);
}

// Returns a net like py-faster-rcnn's for tests: its head looks at its own proposals.
std::string faster_rcnn() {
  return str(
      input("data", "dim: 1 dim: 3 dim: 32 dim: 48"), input("im_info", "dim: 1 dim: 3"),
      conv("data", "conv1", 8, 3),
      "layer { name: 'pool' type: 'Pooling' bottom: 'conv1' top: 'pool' pooling_param { "
      "kernel_size: 4 stride: 4 } }\n",
      conv("pool", "rpn", 8, 3), conv("rpn", "score", 4), conv("rpn", "rpn_bbox_pred", 8),
      "layer { name: 'two' type: 'Reshape' bottom: 'score' top: 'two' reshape_param { shape { dim: "
      "0 dim: 2 dim: -1 dim: 0 } } }\n"
      "layer { name: 'prob' type: 'Softmax' bottom: 'two' top: 'prob' }\n"
      "layer { name: 'prob4' type: 'Reshape' bottom: 'prob' top: 'prob4' reshape_param { shape { "
      "dim: 0 dim: 4 dim: -1 dim: 0 } } }\n"
      "layer { name: 'proposal' type: 'Proposal' bottom: 'prob4' bottom: 'rpn_bbox_pred' bottom: "
      "'im_info' top: 'rois' proposal_param { base_size: 4 feat_stride: 4 ratio: 1 scale: 2 scale: "
      "4 min_size: 4 post_nms_topn: 7 nms_thresh: 0.3 } }\n"
      "layer { name: 'roi_pool' type: 'ROIPooling' bottom: 'pool' bottom: 'rois' top: 'roi_pool' "
      "roi_pooling_param { pooled_h: 3 pooled_w: 3 spatial_scale: 0.25 } }\n"
      "layer { name: 'fc' type: 'InnerProduct' bottom: 'roi_pool' top: 'fc' inner_product_param { "
      "num_output: 5 weight_filler { type: 'xavier' } } }\n"
      "layer { name: 'cls_prob' type: 'Softmax' bottom: 'fc' top: 'cls_prob' }\n");
}

class DetectorNets : public testing::TestWithParam<TestDevice> {};
INSTANTIATE_TEST_SUITE_P(Devices, DetectorNets, testing::ValuesIn(test_devices()),
                         [](const auto& info) { return name_on("Net", info.param); });

TEST_P(DetectorNets, HeadsFollowTheNumberOfProposals) {
  Context context({.device = GetParam().get(), .seed = 3});
  Net net(parse(faster_rcnn(), TEST), context);
  std::vector<std::int64_t> counts;
  for (const float size : {48.0f, 9.0f, 2.0f, 48.0f}) {
    draw(net, "data", 1);
    put_into(net, "im_info", {std::min(size, 32.0f), size, 1});
    ASSERT_TRUE(net.forward().ok());
    const Shape rois = net.blob("rois")->shape(), probs = net.blob("cls_prob")->shape();
    EXPECT_EQ(rois[0], probs[0]);
    counts.push_back(rois[0]);
    for (const float p : net.blob("cls_prob")->data.host()) EXPECT_TRUE(p > 0 && p < 1) << p;
  }
  EXPECT_EQ(counts[0], 7);
  EXPECT_GT(counts[1], 0);
  EXPECT_LT(counts[1], 7);
  EXPECT_EQ(counts[2], 0);  // all boxes are smaller than min_size: no layer behind has work
  EXPECT_EQ(counts[3], counts[0]);
}

// Training goes on through the proposals: they have no gradient, the features have.
TEST_P(DetectorNets, GradientsStopAtProposals) {
  Context context({.device = GetParam().get(), .seed = 3});
  const std::string text =
      faster_rcnn() +
      "layer { name: 'loss' type: 'Reduction' bottom: 'cls_prob' top: 'loss' loss_weight: 1 "
      "reduction_param { operation: SUMSQ } }\n";
  Net net(parse(text, TRAIN), context);
  draw(net, "data", 1);
  put_into(net, "im_info", {32, 48, 1});
  net.clear_gradients();
  ASSERT_TRUE(net.forward().ok());
  const Status status = net.backward();
  ASSERT_TRUE(status.ok()) << status.error().message;
  const auto largest = [&](std::size_t param) {
    float most = 0;
    for (const float g : net.params()[param].blob->grad.host()) most = std::max(most, std::fabs(g));
    return most;
  };
  EXPECT_GT(largest(0), 0);                        // conv1
  EXPECT_EQ(largest(2), 0);                        // rpn
  EXPECT_GT(largest(net.params().size() - 2), 0);  // fc
}

// The mask is a top of a layer whose bottom learns; SegNet's nets train all the same.
TEST_P(DetectorNets, GradientsStopAtAMask) {
  Context context({.device = GetParam().get(), .seed = 3});
  const std::string text =
      input("data", "dim: 2 dim: 3 dim: 6 dim: 8") + conv("data", "conv", 4) +
      "layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool' top: 'mask' pooling_param { "
      "kernel_size: 2 stride: 2 } }\n"
      "layer { name: 'up' type: 'Upsample' bottom: 'pool' bottom: 'mask' top: 'up' upsample_param "
      "{ scale: 2 } }\n"
      "layer { name: 'loss' type: 'Reduction' bottom: 'up' top: 'loss' loss_weight: 1 "
      "reduction_param { operation: SUMSQ } }\n";
  Net net(parse(text, TRAIN), context);
  draw(net, "data", 1);
  net.clear_gradients();
  ASSERT_TRUE(net.forward().ok());
  std::vector<float> wanted(4);  // of the bias, twice the sums of the largest
  const Numbers up = values(net.blob("up")->data);
  for (std::size_t i = 0; i < up.size(); ++i) wanted[i / (6 * 8) % 4] += 2 * up[i];
  ASSERT_TRUE(net.backward().ok());
  const Numbers bias = values(net.params()[1].blob->grad);
  for (std::size_t c = 0; c < 4; ++c) EXPECT_NEAR(bias[c], wanted[c], 1e-4) << c;
}

// The part behind the proposals of R-FCN's nets with online hard example mining.
constexpr const char* kHardExamples = R"(
layer { name: 'cls_rois' type: 'PSROIPooling' bottom: 'cls' bottom: 'rois' top: 'cls_rois'
        psroi_pooling_param { spatial_scale: 0.25 output_dim: 3 group_size: 2 } }
layer { name: 'cls_score' type: 'Pooling' bottom: 'cls_rois' top: 'cls_score'
        pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
layer { name: 'loc_rois' type: 'PSROIPooling' bottom: 'bbox' bottom: 'rois' top: 'loc_rois'
        psroi_pooling_param { spatial_scale: 0.25 output_dim: 8 group_size: 2 } }
layer { name: 'bbox_pred' type: 'Pooling' bottom: 'loc_rois' top: 'bbox_pred'
        pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
layer { name: 'per_roi_loss_cls' type: 'SoftmaxWithLossOHEM' bottom: 'cls_score' bottom: 'labels'
        top: 'temp_loss_cls' top: 'temp_prob_cls' top: 'per_roi_loss_cls'
        loss_weight: 0 loss_weight: 0 loss_weight: 0 propagate_down: false propagate_down: false }
layer { name: 'per_roi_loss_bbox' type: 'SmoothL1LossOHEM' bottom: 'bbox_pred' bottom: 'targets'
        bottom: 'inside' top: 'temp_loss_bbox' top: 'per_roi_loss_bbox' loss_weight: 0
        loss_weight: 0 propagate_down: false propagate_down: false propagate_down: false }
layer { name: 'per_roi_loss' type: 'Eltwise' bottom: 'per_roi_loss_cls'
        bottom: 'per_roi_loss_bbox' top: 'per_roi_loss' propagate_down: false
        propagate_down: false }
layer { name: 'annotator' type: 'BoxAnnotatorOHEM' bottom: 'rois' bottom: 'per_roi_loss'
        bottom: 'labels' bottom: 'inside' top: 'labels_ohem' top: 'weights_ohem'
        box_annotator_ohem_param { roi_per_img: 2 ignore_label: -1 } propagate_down: false
        propagate_down: false propagate_down: false propagate_down: false }
layer { name: 'silence' type: 'Silence' bottom: 'temp_loss_cls' bottom: 'temp_prob_cls'
        bottom: 'temp_loss_bbox' }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'cls_score' bottom: 'labels_ohem'
        top: 'loss_cls' loss_weight: 1 loss_param { ignore_label: -1 } propagate_down: true
        propagate_down: false }
layer { name: 'loss_bbox' type: 'SmoothL1LossOHEM' bottom: 'bbox_pred' bottom: 'targets'
        bottom: 'weights_ohem' top: 'loss_bbox' loss_weight: 1
        loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 2 } propagate_down: true
        propagate_down: false propagate_down: false }
)";

TEST_P(DetectorNets, OnlyHardExamplesTrainAnRFcn) {
  const LogLines log;
  Context context({.device = GetParam().get(), .seed = 3});
  const std::string text =
      str(input("data", "dim: 1 dim: 3 dim: 8 dim: 8"), input("rois", "dim: 5 dim: 5"),
          input("labels", "dim: 5 dim: 1 dim: 1 dim: 1"),
          input("targets", "dim: 5 dim: 8 dim: 1 dim: 1"),
          input("inside", "dim: 5 dim: 8 dim: 1 dim: 1"), conv("data", "cls", 12),
          conv("data", "bbox", 32), kHardExamples);
  Net net(parse(text, TRAIN), context, {.share_memory = false});
  EXPECT_FALSE(log.has(".*no effect.*"));  // each loss reads its loss_param
  for (const char* blob : {"data", "targets"}) draw(net, blob, 2);
  put_into(net, "rois",
           {0, 0, 0, 15, 15, 0, 4, 4, 27, 20, 0, 8, 0, 31, 31, 0, 2, 9, 20, 25, 0, 0, 12, 12, 31});
  put_into(net, "labels", {0, 1, 2, 1, 0});
  put_into(net, "inside", Numbers(40, 1));
  net.clear_gradients();
  ASSERT_TRUE(net.forward().ok());
  ASSERT_TRUE(net.backward().ok());
  const Numbers losses = values(net.blob("per_roi_loss")->data),
                kept = values(net.blob("labels_ohem")->data);
  Numbers sorted = losses;
  std::ranges::sort(sorted, std::greater());
  double of_kept = 0;
  for (std::size_t roi = 0; roi < 5; ++roi) {
    EXPECT_EQ(kept[roi] >= 0, losses[roi] >= sorted[1]) << "roi " << roi;
    if (kept[roi] >= 0) of_kept += losses[roi];
  }
  const float loss = values(net.blob("loss_cls")->data)[0] + values(net.blob("loss_bbox")->data)[0];
  EXPECT_NEAR(loss, of_kept / 2, 1e-4);  // both losses are divided by 2
  for (const NetParam& param : net.params()) {
    float most = 0;
    for (const float g : param.blob->grad.host()) most = std::max(most, std::fabs(g));
    EXPECT_GT(most, 0) << param.blob->name;
  }
}

TEST_P(DetectorNets, StepsOfYoloLowerItsLoss) {
  Context context({.device = GetParam().get(), .seed = 3});
  const std::string biases = "biases: 8 biases: 8 biases: 14 biases: 10 mask: 0 mask: 1";
  const std::string text =
      str(input("data", "dim: 2 dim: 3 dim: 4 dim: 4"), input("label", "dim: 2 dim: 10"),
          conv("data", "conv", 14, 3),
          "layer { name: 'loss' type: 'Yolov3' bottom: 'conv' bottom: 'label' top: 'loss' "
          "yolov3_param { num_class: 2 num: 2 anchors_scale: 8 coord_scale: 1 ",
          biases, " } }\n",
          "layer { name: 'found' type: 'Yolov3DetectionOutput' bottom: 'conv' top: 'found' "
          "yolov3_detection_output_param { num_classes: 2 num_box: 2 mask_group_num: 1 "
          "confidence_threshold: 0.5 anchors_scale: 8 ",
          biases, " } include { phase: TEST } }\n");
  Net net(parse(text, TRAIN), context), test(parse(text, TEST), context);
  const Numbers label = {0, 0.3f, 0.3f, 0.3f, 0.2f, 0, 0,    0,    0,     0,
                         1, 0.7f, 0.6f, 0.4f, 0.3f, 0, 0.2f, 0.2f, 0.25f, 0.25f};
  std::vector<float> losses;
  for (int pass = 0; pass < 400; ++pass) {
    draw(net, "data", 1);
    put_into(net, "label", label);
    net.clear_gradients();
    losses.push_back(or_throw(net.forward()));
    ASSERT_TRUE(net.backward().ok());
    for (const NetParam& param : net.params()) {
      const std::span<const float> grad = param.blob->grad.host();
      std::size_t i = 0;
      for (float& x : param.blob->data.host_mut()) x -= 0.02f * grad[i++];
    }
  }
  EXPECT_LT(losses.back(), 0.1f * losses.front());
  for (std::size_t i = 0; i < net.params().size(); ++i)
    put(values(net.params()[i].blob->data), test.params()[i].blob->data);
  draw(test, "data", 1);
  put_into(test, "label", label);
  ASSERT_TRUE(test.forward().ok());
  // Each box that was taught is found, with its label.
  const Numbers rows = values(test.blob("found")->data);
  int right = 0;
  for (std::size_t at = 0; at + 7 <= rows.size(); at += 7)
    for (std::size_t truth = 0; truth < 4; ++truth) {
      const float* const t = label.data() + 5 * truth;
      right += t[3] > 0 && rows[at] == static_cast<float>(truth / 2) && rows[at + 1] == t[0] + 1 &&
               std::fabs(rows[at + 3] - (t[1] - t[3] / 2)) < 0.05f &&
               std::fabs(rows[at + 6] - (t[2] + t[4] / 2)) < 0.05f;
    }
  EXPECT_EQ(right, 3);
}

}  // namespace
}  // namespace shoal::test::detector_nets_test
