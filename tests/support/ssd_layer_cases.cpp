// Cases of the layers of the SSD fork, sorted by name.
#include "support/layer_cases.h"

namespace shoal::test {
namespace {

// Six priors in a row, and their variances.
BottomSpec priors() {
  std::vector<float> numbers;
  for (int i = 0; i < 6; ++i) {
    const float x = 0.15f * static_cast<float>(i);
    numbers.insert(numbers.end(), {x, 0.1f, x + 0.2f, 0.4f + 0.05f * static_cast<float>(i)});
  }
  for (int i = 0; i < 6; ++i) numbers.insert(numbers.end(), {0.1f, 0.1f, 0.2f, 0.2f});
  return fixed({1, 2, 24}, numbers);
}

// True boxes of two images, of which the first has two, and a row that is none.
BottomSpec truth() {
  return fixed({1, 1, 4, 8}, {0,  1,  0,  0.16f, 0.12f, 0.36f, 0.41f, 0,  //
                              0,  2,  0,  0.62f, 0.1f,  0.8f,  0.5f,  1,  //
                              1,  1,  0,  0.3f,  0.2f,  0.5f,  0.52f, 0,  //
                              -1, -1, -1, -1,    -1,    -1,    -1,    -1});
}

BottomSpec detections() {
  return fixed({1, 1, 4, 7}, {0, 1, 0.9f, 0.15f, 0.1f, 0.35f, 0.4f,  //
                              0, 1, 0.8f, 0.2f,  0.1f, 0.4f,  0.4f,  //
                              0, 2, 0.7f, 0.6f,  0.1f, 0.8f,  0.5f,  //
                              1, 2, 0.6f, 0.1f,  0.1f, 0.3f,  0.3f});
}

LayerCase loss(const std::string& name, const std::string& param, int locations = 1) {
  // The codes are kept from where SMOOTH_L1 bends by small tolerances, not by their choice.
  return {.name = "multiboxloss" + name,
          .type = "MultiBoxLoss",
          .param = "multibox_loss_param { num_classes: 3 " + param + " }",
          .bottoms = {gaussian({2, 24 * locations}), gaussian({2, 18}), priors(), truth()},
          .fixed_batch = true,
          .tolerance = 5e-3};
}

}  // namespace

std::span<const LayerCase> ssd_layer_cases() {
  static const std::vector<LayerCase> cases = {
      {.name = "detectionevaluate",
       .type = "DetectionEvaluate",
       .param = "detection_evaluate_param { num_classes: 3 }",
       .bottoms = {detections(), truth()},
       .fixed_batch = true},
      {.name = "detectionevaluate_easy",
       .type = "DetectionEvaluate",
       .param = "detection_evaluate_param { num_classes: 3 evaluate_difficult_gt: false }",
       .bottoms = {detections(), truth()},
       .fixed_batch = true},
      {.name = "detectionoutput",
       .type = "DetectionOutput",
       .param = "detection_output_param { num_classes: 3 code_type: CENTER_SIZE keep_top_k: 5 "
                "nms_param { top_k: 4 } }",
       .bottoms = {no_gradient(gaussian({2, 24})), no_gradient(uniform(0, 1, {2, 18})), priors()},
       .fixed_batch = true},
      {.name = "detectionoutput_apart",
       .type = "DetectionOutput",
       .param = "detection_output_param { num_classes: 3 share_location: false "
                "confidence_threshold: 0.4 }",
       .bottoms = {no_gradient(gaussian({2, 72})), no_gradient(uniform(0, 1, {2, 18})), priors()},
       .fixed_batch = true},
      loss("", "code_type: CENTER_SIZE mining_type: NONE"),
      loss("_l2_logistic", "conf_loss_type: LOGISTIC loc_loss_type: L2 mining_type: NONE"),
      loss("_location_each", "share_location: false mining_type: NONE code_type: CORNER_SIZE", 3),
      {.name = "priorbox",
       .type = "PriorBox",
       .param = "prior_box_param { min_size: 4 max_size: 9 aspect_ratio: 2 }",
       .bottoms = {no_gradient(gaussian({2, 3, 3, 4})), no_gradient(gaussian({2, 3, 12, 16}))}},
      {.name = "priorbox_clipped",
       .type = "PriorBox",
       .param = "prior_box_param { min_size: 4 step: 3 clip: true variance: 0.1 variance: 0.1 "
                "variance: 0.2 variance: 0.2 }",
       .bottoms = {no_gradient(gaussian({2, 3, 3, 4})), no_gradient(gaussian({2, 3, 12, 16}))}},
  };
  return cases;
}

}  // namespace shoal::test
