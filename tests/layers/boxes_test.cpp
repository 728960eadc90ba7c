// Tests areas and overlaps of boxes, and which boxes suppression leaves.
#include "shoal/layers/boxes.h"

#include <gtest/gtest.h>

namespace shoal::test::boxes_test {
namespace {

TEST(Boxes, PixelsAtTheCornersCount) {
  const Box box{1, 2, 4, 3};
  EXPECT_FLOAT_EQ(area(box, Extent::kCorners), 3);
  EXPECT_FLOAT_EQ(area(box, Extent::kPixels), 8);
  EXPECT_FLOAT_EQ(area({4, 2, 1, 3}, Extent::kPixels), 0);
}

TEST(Boxes, OverlapIsThePartThatBothCover) {
  const Box a{0, 0, 2, 2}, b{1, 0, 3, 2}, apart{5, 5, 6, 6};
  EXPECT_FLOAT_EQ(overlap(a, b, Extent::kCorners), 2.0f / 6);
  EXPECT_FLOAT_EQ(overlap(a, b, Extent::kPixels), 6.0f / 12);
  EXPECT_FLOAT_EQ(overlap(a, a, Extent::kCorners), 1);
  EXPECT_FLOAT_EQ(overlap(a, apart, Extent::kPixels), 0);
}

TEST(Boxes, TheBetterOfTwoThatOverlapStays) {
  const std::vector<Box> boxes = {{0, 0, 10, 10}, {1, 0, 11, 10}, {20, 0, 30, 10}, {0, 1, 10, 11}};
  const std::vector<float> scores = {0.5f, 0.9f, 0.7f, 0.5f};
  using Numbers = std::vector<std::int64_t>;
  EXPECT_EQ(suppress(boxes, scores, {.threshold = 0.5f}), (Numbers{1, 2}));
  EXPECT_EQ(suppress(boxes, scores, {.threshold = 0.99f}), (Numbers{1, 2, 0, 3}));
  EXPECT_EQ(suppress(boxes, scores, {.threshold = 0.99f, .top_k = 3}), (Numbers{1, 2, 0}));
  EXPECT_EQ(suppress({}, {}, {}), Numbers());
}

TEST(Boxes, TheThresholdSinksWithEachThatStays) {
  // Neighbours overlap by 2/3.
  const std::vector<Box> boxes = {{0, 0, 10, 10}, {2, 0, 12, 10}, {4, 0, 14, 10}};
  const std::vector<float> scores = {3, 2, 1};
  EXPECT_EQ(suppress(boxes, scores, {.threshold = 0.7f}).size(), 3u);
  EXPECT_EQ(suppress(boxes, scores, {.threshold = 0.7f, .eta = 0.9f}),
            (std::vector<std::int64_t>{0, 2}));
}

}  // namespace
}  // namespace shoal::test::boxes_test
