// AnnotatedData: pictures and boxes together, through each change of transform_param; nets that
// share the records; what is wrong with records and fields.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "shoal/data/box_parts.h"
#include "support/annotated_rig.h"
#include "support/data_files.h"
#include "support/devices.h"
#include "support/expect.h"
#include "support/layer_rig.h"

namespace shoal::test::annotated_data_test {
namespace {

using annotated::kLeft, annotated::kRight, annotated::Reader, annotated::record, annotated::written;

#define EXPECT_SAYS(build, words) EXPECT_HAS(message_of([&] { build; }), words)

class AnnotatedDataOf : public testing::TestWithParam<std::string> {};

TEST_P(AnnotatedDataOf, HasThePicturesAndARowForEachBox) {
  const std::string path = written(
      "rows_" + GetParam(),
      {record(8, 8, {kLeft, kRight}), record(8, 8, {}), record(8, 8, {kLeft}, true)}, GetParam());
  for (const TestDevice& device : test_devices()) {
    SCOPED_TRACE(device.name);
    Reader two(path, "", 3, "", device.get());
    ASSERT_EQ(two.pass(), "");
    EXPECT_EQ(two.shape(), (Shape{1, 1, 3, 8}));
    EXPECT_EQ(two.boxes(), (Numbers{0, 1, 0, 0,    0.25f, 0.5f, 0.75f, 0,  //
                                    0, 2, 3, 0.5f, 0,     1,    0.5f,  1,  //
                                    2, 1, 0, 0,    0.25f, 0.5f, 0.75f, 0}));
    EXPECT_EQ(two.x().size(), 3u * 64);
    EXPECT_EQ(two.x()[2 * 64 + 2 * 8], 10);  // of the third picture, in its box
    Reader one(path, "", 1, "", device.get());
    std::vector<std::int64_t> rows;
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(one.pass(), "");
      rows.push_back(one.shape()[2]);
      if (i == 1) {
        EXPECT_EQ(one.boxes(), Numbers(8, -1.0f));
      }
    }
    EXPECT_EQ(rows, (std::vector<std::int64_t>{2, 1, 1, 2}));
  }
}
INSTANTIATE_TEST_SUITE_P(All, AnnotatedDataOf, testing::Values("datumfile", "lmdb", "leveldb"),
                         [](const auto& info) { return info.param; });

// Expects that the pixels of each box, and no others, have the box's value.
void expect_boxes_fit(Reader& reader, std::int64_t side, float background = 100) {
  const Numbers x = reader.x(), rows = reader.boxes();
  std::vector<float> want(static_cast<std::size_t>(side * side), background);
  for (std::size_t row = 0; row + 8 <= rows.size() && rows[row] != -1; row += 8)
    for (std::int64_t i = 0; i < side * side; ++i) {
      const float px = (static_cast<float>(i % side) + 0.5f) / static_cast<float>(side),
                  py = (static_cast<float>(i / side) + 0.5f) / static_cast<float>(side);
      if (px > rows[row + 3] && px < rows[row + 5] && py > rows[row + 4] && py < rows[row + 6])
        want[static_cast<std::size_t>(i)] = 10 * rows[row + 1];
    }
  int wrong = 0;
  for (std::size_t i = 0; i < want.size(); ++i) wrong += std::fabs(x[i] - want[i]) > 1;
  // A border of a box may lie within a pixel.
  EXPECT_LE(wrong, 6 * side) << "of " << want.size();
}

TEST(AnnotatedData, MirrorsBoxesWithThePicture) {
  const std::string path = written("mirror", {record(16, 16, {kLeft})});
  Reader reader(path, "transform_param { mirror: true }");
  std::set<float> seen;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(reader.pass(), "");
    expect_boxes_fit(reader, 16);
    seen.insert(reader.boxes()[3]);
  }
  EXPECT_EQ(seen, (std::set<float>{0, 0.5f}));
}

TEST(AnnotatedData, CropsBoxesAndLeavesOutThoseOutside) {
  const std::string path = written("crop", {record(16, 16, {kLeft, kRight})});
  Reader middle(path, "transform_param { crop_h: 8 crop_w: 4 }", 1, "", nullptr, TEST);
  ASSERT_EQ(middle.pass(), "");
  // The crop is x from 6/16 to 10/16, y from 4/16 to 12/16.
  EXPECT_EQ(middle.boxes(), (Numbers{0, 1, 0, 0, 0, 0.5f, 1, 0,  //
                                     0, 2, 3, 0.5f, 0, 1, 0.5f, 1}));
  Reader centre(path,
                "transform_param { crop_h: 8 crop_w: 4 emit_constraint { emit_type: CENTER } }", 1,
                "", nullptr, TEST);
  ASSERT_EQ(centre.pass(), "");
  EXPECT_EQ(centre.boxes(), Numbers(8, -1.0f));  // both have their centres beside it
  Reader enough(path,
                "transform_param { crop_h: 8 crop_w: 4 emit_constraint { emit_type: MIN_OVERLAP "
                "emit_overlap: 0.2 } }",
                1, "", nullptr, TEST);
  ASSERT_EQ(enough.pass(), "");
  EXPECT_EQ(enough.boxes(), (Numbers{0, 1, 0, 0, 0, 0.5f, 1, 0}));
}

TEST(AnnotatedData, ResizesAsItsModeSays) {
  const std::string path = written("resize", {record(16, 32, {{3, 0, 0.25f, 0, 0.75f, 0.5f}})});
  const auto resized = [&](const std::string& mode) {
    auto reader = std::make_unique<Reader>(
        path, "transform_param { resize_param { height: 24 width: 24 interp_mode: NEAREST " + mode +
                  " } }");
    EXPECT_EQ(reader->pass(), "");
    return reader;
  };
  const auto warped = resized("");
  EXPECT_EQ(warped->net->blob("x")->shape(), (Shape{1, 1, 24, 24}));
  EXPECT_EQ(warped->boxes(), (Numbers{0, 3, 0, 0.25f, 0, 0.75f, 0.5f, 0}));
  expect_boxes_fit(*warped, 24);
  const auto padded = resized("resize_mode: FIT_LARGE_SIZE_AND_PAD pad_value: 100");
  EXPECT_EQ(padded->boxes(), (Numbers{0, 3, 0, 0.25f, 0.25f, 0.75f, 0.5f, 0}));
  expect_boxes_fit(*padded, 24);
  const auto small = resized("resize_mode: FIT_SMALL_SIZE");
  EXPECT_EQ(small->net->blob("x")->shape(), (Shape{1, 1, 24, 48}));
  EXPECT_EQ(small->boxes(), (Numbers{0, 3, 0, 0.25f, 0, 0.75f, 0.5f, 0}));
}

TEST(AnnotatedData, ExpandsOnACanvasOfTheMeansColour) {
  const std::string path = written("expand", {record(20, 20, {{5, 0, 0, 0, 1, 1}})});
  Reader reader(
      path,
      "transform_param { mean_value: 104 scale: 1 expand_param { prob: 1 max_expand_ratio: 3 "
      "} resize_param { height: 60 width: 60 interp_mode: NEAREST } }");
  float smallest = 1;
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(reader.pass(), "");
    const Numbers box = reader.boxes(), x = reader.x();
    smallest = std::min(smallest, box[5] - box[3]);
    EXPECT_NEAR(box[5] - box[3], box[6] - box[4], 1e-5);  // it stays a square
    const auto inside = static_cast<std::size_t>(std::ranges::count(x, 50.0f - 104)),
               canvas = static_cast<std::size_t>(std::ranges::count(x, 0.0f));
    EXPECT_EQ(inside + canvas, x.size());
    EXPECT_NEAR(static_cast<double>(inside) / 3600, (box[5] - box[3]) * (box[6] - box[4]), 0.05);
  }
  EXPECT_LT(smallest, 0.7f);
  EXPECT_GE(smallest, 1 / 3.0f - 0.03f);
}

TEST(AnnotatedData, TakesPartsThatTheSamplersFind) {
  const std::string path = written("sampler", {record(40, 40, {{4, 0, 0.3f, 0.3f, 0.7f, 0.7f}})});
  Reader reader(path,
                "transform_param { resize_param { height: 40 width: 40 interp_mode: NEAREST } } "
                "annotated_data_param { batch_sampler { sampler { min_scale: 0.3 max_scale: 0.9 "
                "min_aspect_ratio: 0.5 max_aspect_ratio: 2 } sample_constraint { "
                "min_object_coverage: 1 } max_sample: 1 max_trials: 200 } }");
  std::set<float> widths;
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(reader.pass(), "");
    expect_boxes_fit(reader, 40);
    const Numbers box = reader.boxes();
    ASSERT_EQ(box.size(), 8u);
    EXPECT_GE(box[5] - box[3],
              0.399f);  // the object is whole, and the part smaller than the picture
    widths.insert(box[5] - box[3]);
  }
  EXPECT_GE(widths.size(), 8u);
}

TEST(AnnotatedData, DistortsBrightnessAndContrastWithinTheirBounds) {
  const std::string path = written("distort", {record(8, 8, {{5, 0, 0, 0, 0.5f, 1}})});
  Reader reader(path,
                "transform_param { distort_param { brightness_prob: 1 brightness_delta: 20 "
                "contrast_prob: 0.5 contrast_lower: 0.5 contrast_upper: 1.5 } }");
  std::set<float> seen;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(reader.pass(), "");
    const Numbers x = reader.x();
    EXPECT_GE(x[0], 0.5f * 30 - 1);
    EXPECT_LE(x[0], 1.5f * 70 + 1);
    EXPECT_GT(x[7], x[0]);
    seen.insert(x[0]);
  }
  EXPECT_GE(seen.size(), 10u);
}

TEST(AnnotatedData, MakesTheNoiseThatIsAskedFor) {
  const std::string path = written("noise", {record(20, 20, {{5, 0, 0, 0, 0.5f, 1}})});
  const auto with = [&](const std::string& fields) {
    Reader reader(path, "transform_param { noise_param { " + fields + " } }");
    EXPECT_EQ(reader.pass(), "");
    return reader.x();
  };
  EXPECT_EQ(with("inverse: true")[0], 205);
  EXPECT_EQ(with("posterize: true")[0], 32);
  EXPECT_EQ(with("prob: 0 inverse: true")[0], 50);
  const Numbers pepper = with("saltpepper: true saltpepper_param { fraction: 0.2 value: 255 }");
  EXPECT_GE(std::ranges::count(pepper, 255.0f), 40);
  EXPECT_LE(std::ranges::count(pepper, 255.0f), 80);
  const Numbers blurred = with("gauss_blur: true"), jpeg = with("jpeg: 10"),
                equal = with("hist_eq: true");
  EXPECT_GT(blurred[9], 51);
  EXPECT_LT(blurred[9], 99);
  EXPECT_NE(jpeg, with("")) << "jpeg";
  EXPECT_EQ(equal[19], 255);
}

TEST(AnnotatedData, RepeatsItsRandomChoicesAndDividesThemAmongNets) {
  std::vector<std::string> all;
  for (int i = 0; i < 6; ++i) all.push_back(record(24, 24, {{i + 1, i, 0.2f, 0.2f, 0.6f, 0.7f}}));
  const std::string path = written("repeat", all);
  const std::string changes =
      "transform_param { mirror: true crop_size: 12 resize_param { height: 16 width: 16 } "
      "expand_param { "
      "prob: 0.5 max_expand_ratio: 2 } distort_param { brightness_prob: 0.5 brightness_delta: 30 } "
      "} "
      "annotated_data_param { batch_sampler { sampler { min_scale: 0.5 max_scale: 1 } max_sample: "
      "2 } }";
  const auto passes = [&](int count, int batch, const std::string& data, Share share) {
    Reader reader(path, changes, batch, data, nullptr, TRAIN, share);
    std::vector<Numbers> rows;
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(reader.pass(), "");
      const Numbers x = reader.x();
      for (int item = 0; item < batch; ++item)
        rows.emplace_back(x.begin() + item * 144, x.begin() + (item + 1) * 144);
    }
    return rows;
  };
  const std::vector<Numbers> whole = passes(3, 2, "", {});
  EXPECT_EQ(passes(3, 2, "decode_threads: 3", {}), whole);
  std::vector<Numbers> divided(6);
  for (int net = 0; net < 2; ++net) {
    const std::vector<Numbers> own = passes(3, 1, "", {.replica = net, .replicas = 2});
    for (std::size_t i = 0; i < 3; ++i) divided[2 * i + static_cast<std::size_t>(net)] = own[i];
  }
  EXPECT_EQ(divided, whole);
}

TEST(AnnotatedData, SaysWhatIsWrongWithRecordsAndFields) {
  const std::string path = written("wrong", {record(8, 8, {kLeft})});
  EXPECT_SAYS(Reader(written("datum", {datum(1, 2, 2, "abcd", 3)}), ""),
              "is no AnnotatedDatum; convert_annoset writes such records");
  EXPECT_SAYS(Reader(path, "transform_param { resize_param { height: 8 } }"),
              "layer 'd' (AnnotatedData): resize_param has no height and width; give both");
  EXPECT_SAYS(Reader(path, "transform_param { crop_h: 4 }"),
              "one of crop_h and crop_w is set; a crop needs both");
  EXPECT_SAYS(Reader(path, "transform_param { crop_h: 4 crop_w: 4 crop_size: 4 }"),
              "crop_size and crop_h or crop_w are both set; choose one");
  EXPECT_SAYS(Reader(path, "transform_param { crop_h: 4 crop_w: 9 }"),
              "smaller than a crop of 4 x 9");
  EXPECT_SAYS(
      Reader(path, "transform_param { distort_param { contrast_lower: 2 contrast_upper: 1 } }"),
      "no lower bound is above its upper one");
  EXPECT_SAYS(Reader(path, "transform_param { noise_param { convert_to_lab: true } }"),
              "convert_to_lab makes floats of the picture");
  EXPECT_SAYS(Reader(path, "transform_param { resize_param { height: 8 width: 8 prob: 2 } }"),
              "prob of resize_param is 2; it is from 0 to 1");
  EXPECT_SAYS(Reader(path, "transform_param { noise_param { saltpepper: true } }"),
              "saltpepper wants saltpepper_param");
  EXPECT_SAYS(
      Reader(path,
             "annotated_data_param { batch_sampler { sampler { min_scale: 0.5 max_scale: 2 } } }"),
      "of batch_sampler: scales are above 0 and at most 1");
  const auto data = [&](const std::string& field) {
    Context context({.seed = 1});
    Net net(parse_net("layer { name: 'd' type: 'Data' top: 'x' data_param { source: '" + path +
                          "' backend: ANY batch_size: 1 } transform_param { " + field + " } }",
                      "test.prototxt"),
            context);
  };
  EXPECT_SAYS(
      data("expand_param { }"),
      "layer 'd' (Data): transform_param has expand_param, which an AnnotatedData layer alone "
      "follows");
}

TEST(BoxParts, OverlapAndCoverageAreThoseByHand) {
  const BoxPart a{0, 0, 0.5f, 0.5f}, b{0.25f, 0.25f, 1, 0.5f};
  EXPECT_FLOAT_EQ(shared_part(a, b), 0.0625f / (0.25f + 0.1875f - 0.0625f));
  EXPECT_FLOAT_EQ(covered_part(a, b), 0.25f);
  EXPECT_FLOAT_EQ(covered_part(b, a), 1 / 3.0f);
  EXPECT_FALSE(project(a, {0.5f, 0.5f, 1, 1}));
}

}  // namespace
}  // namespace shoal::test::annotated_data_test
