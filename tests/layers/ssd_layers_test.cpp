// Layers of the SSD fork: what is wrong with their bottoms and fields, order of equal scores, files
// of detections, and nets in which they stand together.
#include <gtest/gtest.h>

#include <cmath>

#include "shoal/base/file.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/data_files.h"
#include "support/expect.h"
#include "support/layer_rig.h"

namespace shoal::test::ssd_layers_test {
namespace {

#define EXPECT_SAYS(build, words) EXPECT_HAS(message_of([&] { build; }), words)

void make(const std::string& type, int bottoms, const std::string& param,
          const std::vector<Shape>& shapes) {
  std::string text = "layer { name: 'l' type: '" + type + "' top: 't' ";
  for (int i = 0; i < bottoms; ++i) text += "bottom: 'b" + std::to_string(i) + "' ";
  LayerRig rig(parse_layer(text + param + " }"), shapes);
}

void make_priors(const std::string& param) {
  make("PriorBox", 2, "prior_box_param { " + param + " }", {{1, 2, 3, 4}, {1, 3, 12, 16}});
}

TEST(PriorBox, SaysWhatIsWrongWithItsSizes) {
  EXPECT_SAYS(make_priors(""), "layer 'l' (PriorBox): prior_box_param has no min_size");
  EXPECT_SAYS(make_priors("min_size: 0"), "min_size is 0; it must be above 0");
  EXPECT_SAYS(make_priors("min_size: 4 max_size: 3"), "max_size 3 is not above its min_size 4");
  EXPECT_SAYS(make_priors("min_size: 4 min_size: 5 max_size: 9"),
              "has 2 min_size and 1 max_size; give one max_size for each, or none");
  EXPECT_SAYS(make_priors("min_size: 4 aspect_ratio: -2"), "aspect_ratio is -2");
  EXPECT_SAYS(make_priors("min_size: 4 variance: 0.1 variance: 0.2"),
              "has 2 variances; give one, or four");
  EXPECT_SAYS(make_priors("min_size: 4 variance: 0"), "variance is 0; it must be above 0");
  EXPECT_SAYS(make_priors("min_size: 4 step: 2 step_h: 3"),
              "has step and step_h and step_w; give one or the other");
  EXPECT_SAYS(make_priors("min_size: 4 step_h: 3"), "without the other; give both");
  EXPECT_SAYS(make_priors("min_size: 4 img_size: 0"), "must be above 0");
  EXPECT_SAYS(make("PriorBox", 2, "prior_box_param { min_size: 4 }", {{1, 2}, {1, 3, 12, 16}}),
              "bottom 'b0' has shape 1 2 (2); it must be (N, C, H, W)");
}

void make_output(const std::string& param, const std::vector<Shape>& shapes) {
  make("DetectionOutput", 3, "detection_output_param { " + param + " }", shapes);
}

TEST(DetectionOutput, SaysWhatIsWrongWithItsBottomsAndFields) {
  const std::vector<Shape> right = {{2, 24}, {2, 18}, {1, 2, 24}};
  EXPECT_SAYS(make_output("", right),
              "layer 'l' (DetectionOutput): detection_output_param has no "
              "num_classes");
  EXPECT_SAYS(make_output("num_classes: 3 nms_param { eta: 0 }", right), "eta of nms_param is 0");
  EXPECT_SAYS(make_output("num_classes: 3 nms_param { nms_threshold: -1 }", right),
              "nms_threshold is -1");
  EXPECT_SAYS(make_output("num_classes: 4", right),
              "bottom 'b1' has shape 2 18 (36); 6 priors and 4 classes take 24 scores for each of "
              "2 images");
  EXPECT_SAYS(make_output("num_classes: 3 share_location: false", right),
              "bottom 'b0' has shape 2 24 (48); 6 priors and 3 classes take 72 numbers of boxes");
  EXPECT_SAYS(make_output("num_classes: 3", {{2, 24}, {2, 18}, {1, 1, 24}}),
              "bottom 'b2' has shape 1 1 24 (24); priors are (1, 2, 4 P), as PriorBox makes them");
}

TEST(DetectionEvaluate, SaysWhatIsWrongWithItsBottomsAndFields) {
  const auto make_one = [](const std::string& param, const std::vector<Shape>& shapes) {
    make("DetectionEvaluate", 2, "detection_evaluate_param { " + param + " }", shapes);
  };
  EXPECT_SAYS(make_one("", {{1, 1, 2, 7}, {1, 1, 2, 8}}), "has no num_classes");
  EXPECT_SAYS(make_one("num_classes: 3 overlap_threshold: 0", {{1, 1, 2, 7}, {1, 1, 2, 8}}),
              "overlap_threshold is 0");
  EXPECT_SAYS(make_one("num_classes: 3", {{1, 1, 2, 8}, {1, 1, 2, 8}}),
              "bottom 'b0' has shape 1 1 2 8 (16); detections are (1, 1, any number, 7)");
  EXPECT_SAYS(make_one("num_classes: 3", {{1, 1, 2, 7}, {2, 8}}),
              "bottom 'b1' has shape 2 8 (16); true boxes are (1, 1, any number, 8)");
  EXPECT_SAYS(
      make_one("num_classes: 3 name_size_file: '/nowhere/names'", {{1, 1, 2, 7}, {1, 1, 2, 8}}),
      "name_size_file: ");
}

void make_loss(const std::string& param) {
  make("MultiBoxLoss", 4, "multibox_loss_param { " + param + " }",
       {{2, 24}, {2, 18}, {1, 2, 24}, {1, 1, 3, 8}});
}

TEST(MultiBoxLoss, SaysWhatIsWrongWithItsFields) {
  EXPECT_SAYS(make_loss(""), "layer 'l' (MultiBoxLoss): multibox_loss_param has no num_classes");
  EXPECT_SAYS(make_loss("num_classes: 3 share_location: false"),
              "share_location: false goes with mining_type: NONE alone");
  EXPECT_SAYS(make_loss("num_classes: 3 do_neg_mining: false mining_type: HARD_EXAMPLE"),
              "do_neg_mining and mining_type say different things");
  EXPECT_SAYS(make_loss("num_classes: 3 mining_type: HARD_EXAMPLE sample_size: 0"),
              "sample_size is 0");
  EXPECT_SAYS(make_loss("num_classes: 3 background_label_id: 3"),
              "background_label_id is 3 of 3 classes");
  EXPECT_SAYS(make_loss("num_classes: 3 map_object_to_agnostic: true"),
              "num_classes is 3; map_object_to_agnostic leaves 2");
  EXPECT_SAYS(make_loss("num_classes: 3 neg_pos_ratio: -1"), "neg_pos_ratio is -1");
  EXPECT_SAYS(make_loss("num_classes: 4"), "bottom 'b1' has shape 2 18 (36)");
}

// ---- passes ----

struct PassOf {
  explicit PassOf(const std::string& text, Phase phase = TEST) : context({.seed = 3}) {
    NetParameter param = parse_net(text, "test.prototxt");
    param.mutable_state()->set_phase(phase);
    net = std::make_unique<Net>(param, context);
  }
  std::string failure() {
    const Result<float> loss = net->forward();
    return loss.ok() ? "no failure" : loss.error().message;
  }
  Numbers outputs(const std::string& blob) { return values(net->blob(blob)->data); }
  Context context;
  std::unique_ptr<Net> net;
};

std::string inputs(const std::vector<std::pair<std::string, std::string>>& names_and_dims) {
  std::string text = "layer { name: 'in' type: 'Input' ";
  for (const auto& [name, dims] : names_and_dims) text += "top: '" + name + "' ";
  text += "input_param { ";
  for (const auto& [name, dims] : names_and_dims) text += "shape { " + dims + " } ";
  return text + "} }\n";
}

std::string loss_net() {
  return inputs({{"loc", "dim: 1 dim: 8"},
                 {"conf", "dim: 1 dim: 4"},
                 {"prior", "dim: 1 dim: 2 dim: 8"},
                 {"truth", "dim: 1 dim: 1 dim: 1 dim: 8"}}) +
         "layer { name: 'l' type: 'MultiBoxLoss' bottom: 'loc' bottom: 'conf' bottom: 'prior' "
         "bottom: 'truth' top: 'loss' multibox_loss_param { num_classes: 2 code_type: "
         "CENTER_SIZE } }";
}
const Numbers kTwoPriors = {0.1f, 0.1f, 0.5f, 0.5f, 0.5f, 0.5f, 0.9f, 0.9f,
                            0.1f, 0.1f, 0.2f, 0.2f, 0.1f, 0.1f, 0.2f, 0.2f};

TEST(MultiBoxLoss, EndsThePassAtABoxThatCannotBe) {
  PassOf pass(loss_net());
  put(kTwoPriors, pass.net->blob("prior")->data);
  put({0, 2, 0, 0.1f, 0.1f, 0.5f, 0.5f, 0}, pass.net->blob("truth")->data);
  EXPECT_HAS(pass.failure(),
             "layer 'l' (MultiBoxLoss): a true box of image 0 has label 2; "
             "num_classes is 2, so labels end at 1");
  put({0, 0, 0, 0.1f, 0.1f, 0.5f, 0.5f, 0}, pass.net->blob("truth")->data);
  EXPECT_HAS(pass.failure(), "has label 0, which is background_label_id");
  put({1, 1, 0, 0.1f, 0.1f, 0.5f, 0.5f, 0}, pass.net->blob("truth")->data);
  EXPECT_HAS(pass.failure(), "a true box is of image 1 of a batch of 1");
  put({-1, -1, -1, -1, -1, -1, -1, -1}, pass.net->blob("truth")->data);
  EXPECT_EQ(pass.failure(), "no failure");
  EXPECT_EQ(pass.outputs("loss"), Numbers{0});
}

// A perfect code and even scores leave ln 2 for the match and ln 2 for the one mined box.
TEST(MultiBoxLoss, IsWhatItsTwoPartsAreByHand) {
  PassOf pass(loss_net());
  put(kTwoPriors, pass.net->blob("prior")->data);
  put({0, 1, 0, 0.1f, 0.1f, 0.5f, 0.5f, 0}, pass.net->blob("truth")->data);
  put({0, 0, 0, 3, 0, 0, 0, 0}, pass.net->blob("loc")->data);
  put(Numbers(4, 0.0f), pass.net->blob("conf")->data);
  ASSERT_EQ(pass.failure(), "no failure");
  EXPECT_NEAR(pass.outputs("loss")[0], 2.5 + 2 * std::log(2.0), 1e-5);
}

std::string output_net(const std::string& param) {
  return inputs({{"loc", "dim: 2 dim: 8"},
                 {"conf", "dim: 2 dim: 6"},
                 {"prior", "dim: 1 dim: 2 dim: 8"}}) +
         "layer { name: 'l' type: 'DetectionOutput' bottom: 'loc' bottom: 'conf' bottom: 'prior' "
         "top: 'found' detection_output_param { num_classes: 3 " +
         param + " } }";
}

TEST(DetectionOutput, PutsEqualScoresInTheOrderOfClassesAndPriors) {
  PassOf pass(output_net("keep_top_k: 3"));
  put(kTwoPriors, pass.net->blob("prior")->data);
  put(Numbers(16, 0.0f), pass.net->blob("loc")->data);
  put(Numbers(12, 0.5f), pass.net->blob("conf")->data);
  ASSERT_EQ(pass.failure(), "no failure");
  Numbers want;
  for (const float image : {0.0f, 1.0f}) {
    want.insert(want.end(), {image, 1, 0.5f, 0.1f, 0.1f, 0.5f, 0.5f});
    want.insert(want.end(), {image, 1, 0.5f, 0.5f, 0.5f, 0.9f, 0.9f});
    want.insert(want.end(), {image, 2, 0.5f, 0.1f, 0.1f, 0.5f, 0.5f});
  }
  EXPECT_EQ(pass.outputs("found"), want);
}

TEST(DetectionOutput, FollowsTheNumberOfBoxesFromPassToPass) {
  PassOf pass(output_net("confidence_threshold: 0.4"));
  put(kTwoPriors, pass.net->blob("prior")->data);
  put({0.9f, 0.1f, 0, 0, 0.5f, 0, 0, 0, 0, 0, 0, 0}, pass.net->blob("conf")->data);
  ASSERT_EQ(pass.failure(), "no failure");
  EXPECT_EQ(pass.outputs("found"), (Numbers{0, 1, 0.5f, 0.5f, 0.5f, 0.9f, 0.9f}));
  put(Numbers(12, 0.0f), pass.net->blob("conf")->data);
  ASSERT_EQ(pass.failure(), "no failure");
  EXPECT_EQ(pass.outputs("found"), (Numbers{0, -1, -1, -1, -1, -1, -1, 1, -1, -1, -1, -1, -1, -1}));
  put(Numbers(12, 0.7f), pass.net->blob("conf")->data);
  ASSERT_EQ(pass.failure(), "no failure");
  EXPECT_EQ(pass.outputs("found").size(), 2u * 2 * 2 * 7);
}

// ---- files of detections ----

class SavedDetections : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(SavedDetections, AreThoseOfTheFormat) {
  const auto& [format, want] = GetParam();
  const std::string folder = fresh_directory("saved_detections_" + format);
  put_file(folder + "/map",
           "item { name: 'none' label: 0 } item { name: 'cat' label: 1 } "
           "item { name: '17' label: 2 }");
  put_file(folder + "/names", "a 100 200\n7 100 100\n");
  const std::string out = folder + "/out";
  PassOf pass(output_net("confidence_threshold: 0.4 save_output_param { output_directory: '" + out +
                         "' output_name_prefix: 'x_' output_format: '" + format +
                         "' label_map_file: '" + folder + "/map' name_size_file: '" + folder +
                         "/names' }"));
  put(kTwoPriors, pass.net->blob("prior")->data);
  for (int round = 0; round < 2; ++round) {  // the second has the file's pictures again
    put({0, 0.75f, 0, 0, 0, 0.5f, 0, 0, 0.875f, 0, 0, 0}, pass.net->blob("conf")->data);
    ASSERT_EQ(pass.failure(), "no failure");
    std::string all;
    for (const char* const file : {"x_cat.txt", "x_17.txt", "x_.json", "x_.txt"})
      if (file_exists(out + "/" + file)) all += str(file, ": ", get_file(out + "/" + file));
    EXPECT_EQ(all, want);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SavedDetections,
    testing::Values(
        std::pair{"VOC",
                  "x_cat.txt: a 0.75 20 10 100 50\nx_17.txt: a 0.5 100 50 180 90\n7 0.875 "
                  "10 10 50 50\n"},
        std::pair{"COCO",
                  "x_.json: [\n  {\"image_id\": \"a\", \"category_id\": \"cat\", \"bbox\": [20, "
                  "10, 80, 40], \"score\": 0.75},\n  {\"image_id\": \"a\", \"category_id\": 17, "
                  "\"bbox\": [100, 50, 80, 40], \"score\": 0.5},\n  {\"image_id\": 7, "
                  "\"category_id\": 17, \"bbox\": [10, 10, 40, 40], \"score\": 0.875}\n]\n"},
        std::pair{"ILSVRC",
                  "x_.txt: a 1 0.75 20 10 100 50\na 2 0.5 100 50 180 90\n7 2 0.875 10 "
                  "10 50 50\n"}),
    [](const auto& info) { return info.param.first; });

TEST(SavedDetectionsTest, SayWhatIsWrongWithTheirFiles) {
  const std::string folder = fresh_directory("saved_detections_wrong");
  const std::string map = folder + "/map", names = folder + "/names";
  const auto with = [&](const std::string& format) {
    return output_net("save_output_param { output_directory: '" + folder + "' output_format: '" +
                      format + "' label_map_file: '" + map + "' name_size_file: '" + names + "' }");
  };
  EXPECT_SAYS(PassOf(with("XML")),
              "output_format of save_output_param is 'XML'; it is VOC, COCO or");
  EXPECT_SAYS(PassOf(with("VOC")), "label_map_file: ");
  put_file(map, "item { name: 'cat' }");
  EXPECT_SAYS(PassOf(with("VOC")), "an item has a name and a label");
  put_file(map, "item { name: 'cat' label: 1 } item { name: 'cat' label: 2 }");
  EXPECT_SAYS(PassOf(with("VOC")), "name 'cat' is there twice");
  put_file(map, "item { name: 'cat' label: 1 }");
  put_file(names, "a 100 200\nb 100\n");
  EXPECT_SAYS(PassOf(with("VOC")), "line 2: 'b 100' is not \"name height width\"");
}

}  // namespace
}  // namespace shoal::test::ssd_layers_test
