// Pixels to numbers, against values worked by hand; image lists; the order of records.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "shoal/base/random.h"
#include "shoal/data/image.h"
#include "shoal/data/image_list.h"
#include "shoal/data/sequence.h"
#include "shoal/data/transform.h"
#include "shoal/proto/blob.pb.h"
#include "shoal/proto/layers.pb.h"
#include "support/data_files.h"

namespace shoal::test::data_transform_test {
namespace {

using Words = std::array<std::uint32_t, 4>;
constexpr Words kNoMirror{0, 0, 0, 0}, kMirror{0, 0, 0x80000000u, 0};
constexpr std::uint32_t kMost = 0xffffffffu;

// 2 channels of 3 x 4: channel 0 holds 0 .. 11, channel 1 holds 100 .. 111.
std::vector<std::uint8_t> ramp() {
  std::vector<std::uint8_t> values(24);
  for (std::size_t i = 0; i < 12; ++i)
    values[i] = static_cast<std::uint8_t>(i), values[12 + i] = static_cast<std::uint8_t>(100 + i);
  return values;
}

std::vector<float> run(const Transform& transform, const Pixels& pixels, const Words& random) {
  std::vector<float> out(
      static_cast<std::size_t>(or_throw(transform.output_size(pixels.size)).count()));
  transform.apply(pixels, random, out);
  return out;
}

class DataTransform : public testing::Test {
 protected:
  std::vector<float> train(const Words& random) {
    return run(or_throw(Transform::create(param_, true)), pixels_, random);
  }
  std::vector<float> test(const Words& random) {
    return run(or_throw(Transform::create(param_, false)), pixels_, random);
  }
  std::string mean_file(const BlobProto& mean) {
    const std::string path = fresh_directory("mean") + "/mean.binaryproto";
    put_file(path, mean.SerializeAsString());
    return path;
  }
  TransformationParameter param_;
  std::vector<std::uint8_t> bytes_ = ramp();
  Pixels pixels_{{2, 3, 4}, false, std::span<const std::uint8_t>(bytes_)};
};

TEST_F(DataTransform, PlainIsTheNumbersThemselves) {
  const std::vector<float> out = train(kMirror);
  EXPECT_EQ(out, std::vector<float>(bytes_.begin(), bytes_.end()));
}

TEST_F(DataTransform, MeanThenScale) {
  param_.add_mean_value(2);
  param_.set_scale(0.5f);
  EXPECT_FLOAT_EQ(train(kNoMirror)[0], -1.0f);
  EXPECT_FLOAT_EQ(train(kNoMirror)[12], 49.0f);
  param_.add_mean_value(100);
  EXPECT_FLOAT_EQ(train(kNoMirror)[0], -1.0f);
  EXPECT_FLOAT_EQ(train(kNoMirror)[23], 5.5f);
}

TEST_F(DataTransform, MirrorSwapsLeftAndRightInBothPhases) {
  param_.set_mirror(true);
  const std::vector<float> want{3,   2,   1,   0,   7,   6,   5,   4,   11,  10,  9,   8,
                                103, 102, 101, 100, 107, 106, 105, 104, 111, 110, 109, 108};
  EXPECT_EQ(train(kMirror), want);
  EXPECT_EQ(test(kMirror), want);
  EXPECT_EQ(train(kNoMirror), std::vector<float>(bytes_.begin(), bytes_.end()));
}

TEST_F(DataTransform, CropIsTheMiddleInTestAndAnywhereInTraining) {
  param_.set_crop_size(2);  // offsets (3 - 2) / 2 = 0 and (4 - 2) / 2 = 1
  EXPECT_EQ(test({kMost, kMost, 0, 0}), (std::vector<float>{1, 2, 5, 6, 101, 102, 105, 106}));
  EXPECT_EQ(train({0, 0, 0, 0}), (std::vector<float>{0, 1, 4, 5, 100, 101, 104, 105}));
  EXPECT_EQ(train({kMost, kMost, 0, 0}), (std::vector<float>{6, 7, 10, 11, 106, 107, 110, 111}));
  std::set<float> corners;
  for (std::uint64_t i = 0; i < 200; ++i) corners.insert(train(philox(1, 2, i))[0]);
  EXPECT_EQ(corners, (std::set<float>{0, 1, 2, 4, 5, 6}));  // every place, and no other
}

TEST_F(DataTransform, MeanFileIsLookedUpBeforeCropAndMirror) {
  BlobProto mean;
  for (const std::int64_t dim : {1, 2, 3, 4}) mean.mutable_shape()->add_dim(dim);
  // The pixel minus the mean is 3 i.
  for (std::size_t i = 0; i < 24; ++i)
    mean.add_data(static_cast<float>(bytes_[i]) - 3 * static_cast<float>(i));
  param_.set_mean_file(mean_file(mean));
  param_.set_crop_size(2);
  param_.set_mirror(true);
  param_.set_scale(2);
  EXPECT_EQ(test(kMirror), (std::vector<float>{12, 6, 36, 30, 84, 78, 108, 102}));
  EXPECT_EQ(train({kMost, kMost, 0, 0}), (std::vector<float>{36, 42, 60, 66, 108, 114, 132, 138}));
}

TEST_F(DataTransform, OldMeanFilesInDoublesAreRead) {
  BlobProto mean;
  mean.set_num(1), mean.set_channels(2), mean.set_height(3), mean.set_width(4);
  for (int i = 0; i < 24; ++i) mean.add_double_data(1);
  param_.set_mean_file(mean_file(mean));
  EXPECT_EQ(train(kNoMirror)[5], 4);
}

TEST_F(DataTransform, MeanFileErrors) {
  param_.set_mean_file("/nowhere/mean");
  EXPECT_FAILS_WITH("the mean file /nowhere/mean cannot be read", Transform::create(param_, true));
  BlobProto mean;
  mean.set_num(1), mean.set_channels(2), mean.set_height(3), mean.set_width(5);
  for (int i = 0; i < 29; ++i) mean.add_data(1);
  param_.set_mean_file(mean_file(mean));
  EXPECT_FAILS_WITH("says that it is 2 x 3 x 5 but holds 29 numbers",
                    Transform::create(param_, true));
  mean.add_data(1);
  param_.set_mean_file(mean_file(mean));
  EXPECT_FAILS_WITH("is 2 x 3 x 4; the mean file",
                    or_throw(Transform::create(param_, true)).output_size(pixels_.size));
  put_file(param_.mean_file(), "garbage");
  EXPECT_FAILS_WITH("is no BlobProto", Transform::create(param_, true));
  param_.add_mean_value(1);
  EXPECT_FAILS_WITH("mean_file and mean_value are both set", Transform::create(param_, true));
}

TEST_F(DataTransform, SizesThatDoNotFit) {
  param_.set_crop_size(4);
  EXPECT_FAILS_WITH("is 2 x 3 x 4, smaller than crop_size 4",
                    or_throw(Transform::create(param_, true)).output_size(pixels_.size));
  param_.clear_crop_size();
  for (int i = 0; i < 3; ++i) param_.add_mean_value(1);
  EXPECT_FAILS_WITH("mean_value is given 3 times",
                    or_throw(Transform::create(param_, true)).output_size(pixels_.size));
  param_.set_force_color(true);
  param_.set_force_gray(true);
  EXPECT_FAILS_WITH("force_color and force_gray are both set", Transform::create(param_, true));
}

TEST_F(DataTransform, SideBySideAndPlanarAgree) {
  Image image{{2, 3, 4}, std::vector<std::uint8_t>(24)};
  for (std::size_t i = 0; i < 12; ++i)
    image.pixels[2 * i] = bytes_[i], image.pixels[2 * i + 1] = bytes_[12 + i];
  param_.set_crop_size(3);
  param_.set_mirror(true);
  param_.add_mean_value(1);
  param_.add_mean_value(2);
  const Transform transform = or_throw(Transform::create(param_, true));
  for (std::uint64_t i = 0; i < 20; ++i)
    EXPECT_EQ(run(transform, pixels_of(image), philox(3, 4, i)),
              run(transform, pixels_, philox(3, 4, i)));
  EXPECT_EQ(planar(image), std::string(bytes_.begin(), bytes_.end()));
}

TEST_F(DataTransform, MirrorIsACoin) {
  param_.set_mirror(true);
  int mirrored = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) mirrored += train(philox(7, 8, i))[0] == 3;
  EXPECT_NEAR(mirrored, 500, 60);
}

TEST(DataDatum, FloatsAndBytes) {
  Datum record;
  record.set_channels(1), record.set_height(1), record.set_width(3);
  for (const float value : {0.5f, -2.0f, 300.0f}) record.add_float_data(value);
  DatumPixels pixels = or_throw(pixels_of(record, Colour::kAsStored));
  const Transform transform = or_throw(Transform::create({}, true));
  EXPECT_EQ(run(transform, pixels.pixels, kNoMirror), (std::vector<float>{0.5f, -2, 300}));
  record.set_data(std::string("\x00\xff\x80", 3));  // bytes win
  pixels = or_throw(pixels_of(record, Colour::kAsStored));
  EXPECT_EQ(run(transform, pixels.pixels, kNoMirror), (std::vector<float>{0, 255, 128}));
}

TEST(DataDatum, SizesThatDoNotFitTheData) {
  Datum record;
  record.set_data("abcd");
  EXPECT_FAILS_WITH("is no Datum with a size: it says 0 x 0 x 0",
                    pixels_of(record, Colour::kAsStored));
  record.set_channels(1), record.set_height(1), record.set_width(3);
  EXPECT_FAILS_WITH("says that it is 1 x 1 x 3 but holds 4 bytes",
                    pixels_of(record, Colour::kAsStored));
  record.set_channels(0x7fffffff), record.set_height(0x7fffffff), record.set_width(0x7fffffff);
  EXPECT_FAILS_WITH("but holds 4 bytes", pixels_of(record, Colour::kAsStored));
  record.clear_data();
  EXPECT_FAILS_WITH("holds no data", pixels_of(record, Colour::kAsStored));
  record.set_encoded(true);
  record.set_data("no picture");
  EXPECT_FAILS_WITH("is no picture that OpenCV can decode", pixels_of(record, Colour::kAsStored));
}

TEST(DataImage, EncodedPicturesComeBackInBlueGreenRed) {
  const Image image{{3, 1, 2}, {1, 2, 3, 40, 50, 60}};
  const std::string png = or_throw(encode_image(image, "png"));
  EXPECT_EQ(or_throw(decode_image(png, Colour::kAsStored)).pixels, image.pixels);
  EXPECT_EQ(or_throw(decode_image(png, Colour::kGrey)).size, (ImageSize{1, 1, 2}));
  const std::string grey = or_throw(encode_image({{1, 1, 2}, {7, 9}}, "png"));
  EXPECT_EQ(or_throw(decode_image(grey, Colour::kAsStored)).size, (ImageSize{1, 1, 2}));
  EXPECT_EQ(or_throw(decode_image(grey, Colour::kColour)).pixels,
            (std::vector<std::uint8_t>{7, 7, 7, 9, 9, 9}));
  EXPECT_FAILS_WITH("cannot be encoded as nothing", encode_image(image, "nothing"));

  Datum record;
  record.set_encoded(true);
  record.set_data(png);
  const DatumPixels pixels = or_throw(pixels_of(record, Colour::kAsStored));
  EXPECT_EQ(run(or_throw(Transform::create({}, false)), pixels.pixels, kNoMirror),
            (std::vector<float>{1, 40, 2, 50, 3, 60}));
}

TEST(DataImage, FilesAreReadAndResized) {
  const std::string path = fresh_directory("image") + "/a.png";
  put_file(path, or_throw(encode_image({{1, 2, 2}, {10, 10, 30, 30}}, "png")));
  EXPECT_EQ(or_throw(read_image(path, Colour::kGrey, 0, 0)).pixels,
            (std::vector<std::uint8_t>{10, 10, 30, 30}));
  const Image large = or_throw(read_image(path, Colour::kColour, 4, 6));
  EXPECT_EQ(large.size, (ImageSize{3, 4, 6}));
  EXPECT_EQ(large.pixels[0], 10);
  EXPECT_EQ(large.pixels[18], 15);  // a quarter of the way from 10 to 30
  EXPECT_FAILS_WITH("cannot open " + path + "x: No such file",
                    read_image(path + "x", Colour::kGrey, 0, 0));
  put_file(path, "not a picture");
  EXPECT_FAILS_WITH("the image " + path + " is no picture", read_image(path, Colour::kGrey, 0, 0));
}

TEST(DataImageList, TheLabelFollowsTheLastBlank) {
  const std::string path = fresh_directory("list") + "/list.txt";
  put_file(path, "a.jpg 3\nsome folder/b c.png  -1\r\n\n  \nd.png\t12\nlast.jpg 0");
  const std::vector<ListedImage> images = or_throw(read_image_list(path));
  ASSERT_EQ(images.size(), 4u);
  EXPECT_EQ(images[0].path, "a.jpg");
  EXPECT_EQ(images[0].label, 3);
  EXPECT_EQ(images[1].path, "some folder/b c.png");
  EXPECT_EQ(images[1].label, -1);
  EXPECT_EQ(images[2].label, 12);
  EXPECT_EQ(images[2].line, 5u);
  EXPECT_EQ(images[3].path, "last.jpg");
}

TEST(DataImageList, Errors) {
  const std::string path = fresh_directory("badlist") + "/list.txt";
  EXPECT_FAILS_WITH("cannot open " + path, read_image_list(path));
  put_file(path, "\n\n");
  EXPECT_FAILS_WITH("names no images", read_image_list(path));
  put_file(path, "a.jpg 1\nb.jpg\n");
  EXPECT_FAILS_WITH(path + ":2: no label", read_image_list(path));
  put_file(path, "a.jpg 1\nb.jpg two\n");
  EXPECT_FAILS_WITH(path + ":2: the label \"two\" is no whole number", read_image_list(path));
  put_file(path, "a.jpg 99999999999\n");
  EXPECT_FAILS_WITH("is no whole number", read_image_list(path));
}

TEST(DataSequence, EveryEpochIsAnotherPermutation) {
  Sequence sequence({.seed = 5, .stream = 6, .shuffle = true});
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<std::uint64_t> order;
    for (std::uint64_t i = 0; i < 50; ++i) order.push_back(sequence.record(epoch * 50 + i, 50));
    orders.insert(order);
    std::vector<std::uint64_t> sorted = order;
    std::ranges::sort(sorted);
    std::vector<std::uint64_t> all(50);
    std::iota(all.begin(), all.end(), 0u);
    EXPECT_EQ(sorted, all);
  }
  EXPECT_EQ(orders.size(), 20u);
}

TEST(DataSequence, ThePermutationIsFair) {
  std::map<std::vector<std::uint64_t>, int> seen;
  for (std::uint64_t epoch = 0; epoch < 6000; ++epoch) ++seen[permutation(1, 2, epoch, 3)];
  EXPECT_EQ(seen.size(), 6u);
  for (const auto& [order, times] : seen) EXPECT_NEAR(times, 1000, 150);
}

TEST(DataSequence, IsAFunctionOfSeedAndN) {
  const SequenceOptions options{.seed = 5, .stream = 6, .shuffle = true, .rand_skip = 30};
  Sequence straight(options), jumping(options),
      other({.seed = 6, .stream = 6, .shuffle = true, .rand_skip = 30});
  std::vector<std::uint64_t> records;
  for (std::uint64_t n = 0; n < 300; ++n) records.push_back(straight.record(n, 70));
  int same = 0;
  for (std::uint64_t n = 300; n-- > 0;) {
    EXPECT_EQ(jumping.record(n, 70), records[n]);
    EXPECT_EQ(jumping.random(n), straight.random(n));
    same += other.record(n, 70) == records[n];
  }
  EXPECT_LT(same, 30);
  EXPECT_NE(straight.random(1), straight.random(2));
}

TEST(DataSequence, SkipIsBelowRandSkip) {
  std::set<std::uint64_t> starts;
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    starts.insert(Sequence({.seed = seed, .rand_skip = 4}).record(0, 100));
  EXPECT_EQ(starts, (std::set<std::uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(Sequence({.seed = 1}).record(107, 100), 7u);
}

}  // namespace
}  // namespace shoal::test::data_transform_test
