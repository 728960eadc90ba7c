// AnnotatedData with the fields of YOLO's forks: rows for their losses, parts that are drawn, and
// sizes that change every ten batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "shoal/data/box_parts.h"
#include "support/annotated_rig.h"
#include "support/expect.h"
#include "support/solver_rig.h"

namespace shoal::test::yolo_data_test {
namespace {

using annotated::kLeft, annotated::kRight, annotated::Reader, annotated::record, annotated::TestBox,
    annotated::written;

const std::string kRows = "annotated_data_param { yolo_data_type: 1 yolo_data_jitter: 0 ";

Numbers rows_of(const Numbers& all, std::size_t item, std::size_t count) {
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(item * 1500);
  return {first, first + static_cast<std::ptrdiff_t>(5 * count)};
}

TEST(YoloData, HasARowOfClassCentreAndSizeForEachBox) {
  const std::string path = written("yolo_rows", {record(8, 8, {kLeft, kRight}), record(8, 8, {})});
  Reader reader(path, kRows + "}", 2);
  ASSERT_EQ(reader.pass(), "");
  EXPECT_EQ(reader.shape(), (Shape{2, 1, 300, 5}));
  EXPECT_EQ(rows_of(reader.boxes(), 0, 3), (Numbers{0, 0.25f, 0.5f, 0.5f, 0.5f,   //
                                                    1, 0.75f, 0.25f, 0.5f, 0.5f,  //
                                                    0, 0, 0, 0, 0}));
  EXPECT_EQ(rows_of(reader.boxes(), 1, 300), Numbers(1500, 0));
  // kRight is difficult.
  Reader easy(path, kRows + "train_diffcult: false }", 2);
  ASSERT_EQ(easy.pass(), "");
  EXPECT_EQ(rows_of(easy.boxes(), 0, 2), (Numbers{0, 0.25f, 0.5f, 0.5f, 0.5f, 0, 0, 0, 0, 0}));
}

TEST(YoloData, BoxesBeyondTheRowsAreLeftOutWithAWord) {
  std::vector<TestBox> many(301, kLeft);
  many[299].label = 7;
  many[300].label = 8;
  const std::string path = written("yolo_many", {record(8, 8, many)});
  LogLines log;
  Reader reader(path, kRows + "}");
  ASSERT_EQ(reader.pass(), "");
  EXPECT_EQ(reader.boxes()[1495], 6);
  EXPECT_TRUE(log.has(".*the record r10 has more than 300 boxes; those beyond are left out"));
}

TEST(YoloData, ARowFollowsItsPicture) {
  const std::string path =
      written("yolo_jitter", {record(40, 40, {{3, 0, 0.1f, 0.4f, 0.5f, 0.8f}})});
  Reader reader(
      path,
      "annotated_data_param { yolo_data_type: 1 yolo_data_jitter: 0.4 } transform_param { "
      "mirror: true resize_param { height: 40 width: 40 interp_mode: NEAREST } }");
  std::set<float> widths;
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(reader.pass(), "");
    const Numbers row = rows_of(reader.boxes(), 0, 1), x = reader.x();
    ASSERT_EQ(row[0], 2);
    widths.insert(row[3]);
    int wrong = 0;
    for (int at = 0; at < 1600; ++at) {
      const float px = (static_cast<float>(at % 40) + 0.5f) / 40,
                  py = (static_cast<float>(at / 40) + 0.5f) / 40;
      const bool inside =
          std::fabs(px - row[1]) < row[3] / 2 && std::fabs(py - row[2]) < row[4] / 2;
      wrong += x[static_cast<std::size_t>(at)] != (inside ? 30.0f : 100.0f);
    }
    EXPECT_LE(wrong, 160)
        << i;  // a border of a box may lie within a pixel, and is then moved by one
  }
  EXPECT_GT(widths.size(), 20u);
}

TEST(YoloData, PartsAreTheWholeOrLackUpToTheJitter) {
  Random random(3);
  int whole = 0, half = 0;
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) {
    const BoxPart part = jittered_part(0.4f, i % 2 == 0, random);
    EXPECT_GE(part.xmin, 0);
    EXPECT_GE(part.ymin, 0);
    EXPECT_LE(part.xmax, 1 + 1e-6f);
    EXPECT_LE(part.ymax, 1 + 1e-6f);
    EXPECT_GE(std::min(part.width(), part.height()), 0.6f - 1e-6f);
    if (i % 2 == 0) {
      EXPECT_NEAR(part.width(), part.height(), 1e-6);
    }
    whole += part.width() == 1 && part.height() == 1;
    half += part.width() >= 0.8f;
  }
  EXPECT_NEAR(whole, 0.2 * kDraws, 0.03 * kDraws);
  EXPECT_NEAR(half, (0.4 + 0.6 / 2) * kDraws, 0.03 * kDraws);
}

const std::string kSizes =
    "transform_param { resize_param { prob: 0.25 height: 8 width: 8 } "
    "resize_param { prob: 0.25 height: 16 width: 12 } "
    "resize_param { prob: 0.5 height: 24 width: 24 } } " +
    kRows + "}";

// The heights of so many batches, from the first.
std::vector<std::int64_t> heights(Reader& reader, int batches) {
  std::vector<std::int64_t> all;
  for (int i = 0; i < batches; ++i) {
    EXPECT_EQ(reader.pass(), "");
    all.push_back(reader.net->blob("x")->shape()[2]);
  }
  return all;
}

TEST(YoloData, OneOfSeveralSizesIsDrawnForTenBatches) {
  const std::string path = written(
      "yolo_sizes", {record(16, 16, {kLeft}), record(16, 16, {kRight}), record(20, 10, {})});
  Reader reader(path, kSizes, 2);
  const std::vector<std::int64_t> all = heights(reader, 400);
  std::map<std::int64_t, int> seen;
  for (std::size_t i = 0; i < all.size(); i += 10) {
    EXPECT_TRUE(std::all_of(all.begin() + static_cast<std::ptrdiff_t>(i),
                            all.begin() + static_cast<std::ptrdiff_t>(i) + 10,
                            [&](std::int64_t height) { return height == all[i]; }))
        << i;
    ++seen[all[i]];
  }
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_NEAR(seen[24], 20, 8);
  Reader threads(path, kSizes, 2, "decode_threads: 3");
  EXPECT_EQ(heights(threads, 400), all);
  // A run that goes on within a group of batches goes on with its size.
  Reader first(path, kSizes, 2), second(path, kSizes, 2);
  heights(first, 13);
  ASSERT_OK(second.net->layers()[0]->load_state(first.net->layers()[0]->save_state()));
  EXPECT_EQ(heights(second, 60), std::vector<std::int64_t>(all.begin() + 13, all.begin() + 73));
}

TEST(YoloData, SaysWhatIsWrongWithItsFields) {
  const std::string path = written("yolo_wrong", {record(8, 8, {kLeft})});
  const auto refusal = [&](const std::string& fields, const std::string& data = "") {
    return message_of([&] { Reader reader(path, fields, 1, data); });
  };
  EXPECT_HAS(refusal("annotated_data_param { yolo_data_type: 2 }"),
             "layer 'd' (AnnotatedData): yolo_data_type is 2; it is 1 for rows of class");
  EXPECT_HAS(refusal("annotated_data_param { yolo_data_jitter: 1 }"),
             "yolo_data_jitter is 1; it is a part of each side");
  EXPECT_HAS(refusal("transform_param { resize_param { prob: 0.5 height: 8 width: 8 } resize_param "
                     "{ prob: 0.4 height: 9 width: 9 } }"),
             "the prob of 2 resize_param add up to 0.9; one of them is drawn");
  EXPECT_HAS(refusal(kSizes, "on_bad_record: SKIP"),
             "on_bad_record does not go with several resize_param");
}

}  // namespace
}  // namespace shoal::test::yolo_data_test
