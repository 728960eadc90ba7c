#include "shoal/base/text.h"

#include <gtest/gtest.h>

namespace shoal::text_test {
namespace {

TEST(Text, DistanceCountsLettersAndSwapsButNotCase) {
  EXPECT_EQ(edit_distance("kernel", "kernel"), 0);
  EXPECT_EQ(edit_distance("kernal", "kernel"), 1);
  EXPECT_EQ(edit_distance("kenrel", "kernel"), 1);
  EXPECT_EQ(edit_distance("relu", "ReLU"), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Text, NearestIsTheLikeliestOrNothing) {
  const std::vector<std::string> known = {"kernel_h", "kernel_size", "stride"};
  EXPECT_EQ(nearest("kernal_size", known), "kernel_size");
  EXPECT_EQ(nearest("strid", known), "stride");
  EXPECT_EQ(nearest("bias_term", known), "");
  EXPECT_EQ(nearest("typ", std::vector<std::string>{"top", "type"}), "type");
  EXPECT_EQ(did_you_mean("kernal_size", known), "; did you mean 'kernel_size'?");
  EXPECT_EQ(did_you_mean("bias_term", known), "");
}

TEST(Text, WhatIsOnlyAsLongIsNotNear) {
  const std::vector<std::string> known = {"Clip", "relu_param", "transform_param", "train",
                                          "Convolution"};
  for (const char* const other :
       {"Flip", "reorg_param", "transpose_param", "retrain", "Deformation"})
    EXPECT_EQ(nearest(other, known), "") << other;
  EXPECT_EQ(nearest("Cilp", known), "Clip");
  EXPECT_EQ(nearest("rleu_param", known), "relu_param");
  EXPECT_EQ(nearest("transfrom_param", known), "transform_param");
  EXPECT_EQ(nearest("onvolution", known), "Convolution");
  EXPECT_EQ(nearest("trian", known), "train");
}

TEST(Text, SplitDropsBlanksAndJoinPutsThemBack) {
  EXPECT_EQ(split(" a, b ,,c", ','), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(split("", ',').empty());
  EXPECT_EQ(join(split("a,b", ',')), "a, b");
}

TEST(Text, HexHasTwoDigitsForEachByte) {
  EXPECT_EQ(hex("\x05\xfe"), "05fe");
  EXPECT_EQ(hex("SHOL", " "), "53 48 4f 4c");
  EXPECT_EQ(hex("", " "), "");
}

}  // namespace
}  // namespace shoal::text_test
