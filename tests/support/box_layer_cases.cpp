// Cases of the layers of Faster R-CNN, R-FCN and YOLO, sorted by name.
#include "support/layer_cases.h"

namespace shoal::test {
namespace {

const std::string kRegion =
    "region_loss_param { num_class: 3 num: 2 thresh: 0.3 biases: 1.2 biases: 0.8 biases: 0.6 "
    "biases: 1.5 ";
const std::string kYolo =
    "yolov3_param { num_class: 3 num: 2 thresh: 0.3 anchors_scale: 8 mask: 0 mask: 2 biases: 10 "
    "biases: 9 biases: 14 biases: 7 biases: 8 biases: 12 ";

const std::vector<LayerCase> kBoxCases = {
    {.name = "boxannotatorohem",
     .type = "BoxAnnotatorOHEM",
     .param = "box_annotator_ohem_param { roi_per_img: 2 }",
     .bottoms = {rois(2, 16, {6, 5}), no_gradient(gaussian({6, 1})), integers(4, {6}),
                 no_gradient(uniform(0, 1, {6, 8}))},
     .tops = 2},
    {.name = "boxannotatorohem_places",
     .type = "BoxAnnotatorOHEM",
     .param = "box_annotator_ohem_param { roi_per_img: 3 ignore_label: 7 }",
     .bottoms = {no_gradient(uniform(0, 1, {2, 5, 2, 3})), no_gradient(gaussian({2, 1, 2, 3})),
                 integers(4, {2, 1, 2, 3}), no_gradient(uniform(0, 1, {2, 4, 2, 3}))},
     .tops = 2},
    {.name = "proposal",
     .type = "Proposal",
     .param = "proposal_param { base_size: 8 feat_stride: 8 min_size: 0 ratio: 1 scale: 1 scale: 2 "
              "post_nms_topn: 6 nms_thresh: 0.5 }",
     .bottoms = {no_gradient(gaussian({2, 4, 3, 4})), no_gradient(gaussian({2, 8, 3, 4})),
                 no_gradient(uniform(20, 40, {2, 3}))},
     .tops = 2},
    {.name = "proposal_two_scales",
     .type = "Proposal",
     .param = "proposal_param { base_size: 4 feat_stride: 4 min_size: 0 ratio: 0.5 scale: 2 "
              "pre_nms_topn: 5 }",
     .bottoms = {no_gradient(gaussian({1, 2, 3, 4})), no_gradient(gaussian({1, 4, 3, 4})),
                 no_gradient(uniform(12, 16, {1, 4}))}},
    {.name = "psroipooling",
     .type = "PSROIPooling",
     .param = "psroi_pooling_param { spatial_scale: 0.25 output_dim: 3 group_size: 2 }",
     .bottoms = {gaussian({2, 12, 5, 6}), rois(2, 24, {4, 5})}},
    {.name = "regionloss",
     .type = "RegionLoss",
     .param = kRegion + "}",
     .bottoms = {gaussian({2, 16, 3, 3}), truths(3, {2, 25})},
     .jumps = true},
    {.name = "regionloss_weights",
     .type = "RegionLoss",
     .param =
         kRegion + "rescore: 0 bias_match: 0 object_scale: 5 coord_scale: 2 } loss_weight: 0.5",
     .bottoms = {gaussian({2, 16, 3, 3}), truths(3, {2, 1, 6, 5})},
     .jumps = true},
    {.name = "roialign",
     .type = "ROIAlign",
     .param = "roi_align_param { pooled_h: 2 pooled_w: 3 spatial_scale: 0.25 }",
     .bottoms = {gaussian({2, 3, 5, 6}), rois(2, 24, {4, 5})}},
    {.name = "roialign_corners",
     .type = "ROIAlign",
     .param = "roi_pooling_param { pooled_h: 2 pooled_w: 1 spatial_scale: 0.25 pad_ratio: 0.1 }",
     .bottoms = {gaussian({2, 3, 5, 6}), rois(2, 24, {4, 5, 1, 1})}},
    {.name = "roialign_samples",
     .type = "ROIAlign",
     .param = "roi_align_param { pooled_h: 2 pooled_w: 2 spatial_scale: 0.25 sampling_ratio: 3 }",
     .bottoms = {gaussian({2, 3, 5, 6}), rois(2, 24, {4, 5})}},
    {.name = "roipooling",
     .type = "ROIPooling",
     .param = "roi_pooling_param { pooled_h: 2 pooled_w: 3 spatial_scale: 0.25 }",
     .bottoms = {distinct({2, 3, 5, 6}), rois(2, 24, {4, 5})}},
    {.name = "roipooling_padded",
     .type = "ROIPooling",
     .param = "roi_pooling_param { pooled_h: 3 pooled_w: 3 spatial_scale: 0.5 pad_ratio: 0.25 }",
     .bottoms = {distinct({2, 2, 6, 5}), rois(2, 12, {5, 5, 1, 1})}},
    {.name = "smoothl1loss",
     .type = "SmoothL1Loss",
     .bottoms = {gaussian({4, 3}), gaussian({4, 3, 1})}},
    {.name = "smoothl1loss_instances",
     .type = "SmoothL1Loss",
     .param = "loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 3 }",
     .bottoms = {gaussian({4, 3, 2, 2}), gaussian({4, 3, 2, 2}),
                 no_gradient(uniform(0, 1, {4, 3, 2, 2}))},
     .tops = 2,
     .zero_tops = {1}},
    {.name = "smoothl1loss_weights",
     .type = "SmoothL1Loss",
     .param = "smooth_l1_loss_param { sigma: 2 } loss_weight: 0.5",
     .bottoms = {gaussian({4, 3, 2, 2}), gaussian({4, 3, 2, 2}),
                 no_gradient(uniform(0, 1, {4, 3, 2, 2})),
                 no_gradient(uniform(0, 1, {4, 3, 2, 2}))}},
    {.name = "smoothl1lossohem",
     .type = "SmoothL1LossOHEM",
     .bottoms = {gaussian({4, 5}), gaussian({4, 5})},
     .tops = 2,
     .zero_tops = {1}},
    {.name = "softmaxwithlossohem",
     .type = "SoftmaxWithLossOHEM",
     .param = "loss_param { ignore_label: 2 }",
     .bottoms = {gaussian({5, 4}), integers(4, {5})},
     .tops = 3,
     .zero_tops = {1, 2}},
    {.name = "softmaxwithlossohem_places",
     .type = "SoftmaxWithLossOHEM",
     .param = "loss_param { normalize: false }",
     .bottoms = {gaussian({2, 4, 2, 3}), integers(4, {2, 1, 2, 3})},
     .tops = 3,
     .zero_tops = {1, 2}},
    {.name = "yolodetectionoutput",
     .type = "YoloDetectionOutput",
     .param = "yolo_detection_output_param { num_classes: 3 num_box: 2 confidence_threshold: 0.3 "
              "biases: 1 biases: 2 biases: 0.5 biases: 0.7 }",
     .bottoms = {no_gradient(gaussian({2, 16, 3, 3})), no_gradient(gaussian({2, 16, 2, 2}))}},
    {.name = "yolov3",
     .type = "Yolov3",
     .param = kYolo + "}",
     .bottoms = {gaussian({2, 16, 3, 2}), truths(3, {2, 25})},
     .jumps = true},
    {.name = "yolov3_ciou",
     .type = "Yolov3",
     .param = kYolo + "iou_loss: CIOU use_logic_gradient: true object_scale: 5 }",
     .bottoms = {gaussian({2, 16, 3, 2}), truths(3, {2, 25})},
     .jumps = true},
    {.name = "yolov3_giou",
     .type = "Yolov3",
     .param = kYolo + "iou_loss: GIOU use_focal_loss: true accumulate: false }",
     .bottoms = {gaussian({2, 16, 3, 2}), truths(3, {2, 25})},
     .jumps = true},
    {.name = "yolov3detectionoutput",
     .type = "Yolov3DetectionOutput",
     .param = "yolov3_detection_output_param { num_classes: 2 num_box: 2 confidence_threshold: 0.5 "
              "anchors_scale: 8 anchors_scale: 4 mask: 1 mask: 2 mask: 0 mask: 1 biases: 10 "
              "biases: 9 biases: 14 biases: 7 biases: 8 biases: 12 }",
     .bottoms = {no_gradient(gaussian({2, 14, 2, 3})), no_gradient(gaussian({2, 14, 4, 6}))}},
    {.name = "yolov3detectionoutput_gaussian",
     .type = "Yolov3DetectionOutput",
     .param = "yolov3_detection_output_param { num_classes: 2 num_box: 1 confidence_threshold: 0.2 "
              "mask_group_num: 1 gaussian_box: true anchors_scale: 8 mask: 1 biases: 10 biases: 9 "
              "biases: 14 biases: 7 }",
     .bottoms = {no_gradient(gaussian({2, 11, 2, 3}))}},
};

}  // namespace

std::span<const LayerCase> box_layer_cases() { return kBoxCases; }

}  // namespace shoal::test
