// Sizes and parts that are drawn for pictures, as three forks of Caffe have them: each against what
// its fork's formula gives, through Data layers too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "shoal/data/random_sizes.h"
#include "shoal/data/transform.h"
#include "shoal/net/net.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/data_files.h"
#include "support/devices.h"
#include "support/expect.h"
#include "support/layer_rig.h"

namespace shoal::test::random_sizes_test {
namespace {

// A picture of two channels that say where a pixel is: five times its row, and its column.
Image places(int height, int width) {
  Image image{{2, height, width}, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      image.pixels.push_back(static_cast<std::uint8_t>(5 * y));
      image.pixels.push_back(static_cast<std::uint8_t>(5 * x));
    }
  return image;
}

// Returns the pixel that a pixel of a picture comes from.
std::pair<float, float> origin(const Image& image, int y, int x) {
  const auto at = static_cast<std::size_t>(2 * (y * image.size.width + x));
  return {static_cast<float>(image.pixels[at]) / 5, static_cast<float>(image.pixels[at + 1]) / 5};
}

TransformationParameter transform_of(const std::string& fields) {
  return parse_layer("layer { transform_param { " + fields + " } }").transform_param();
}

Result<Image> applied(const std::string& fields, const Image& image, bool training,
                      std::uint64_t seed) {
  const auto sizes = or_throw(RandomSizes::create(transform_of(fields), training));
  return sizes->apply(image, Random(seed));
}

std::string refusal(const std::string& fields) {
  const auto sizes = RandomSizes::create(transform_of(fields), true);
  return sizes.ok() ? "nothing was refused" : sizes.error().message;
}

// Expects that pixel (y, x) comes from (top + y * rows, left + x * columns), within one pixel.
void expect_part(const Image& image, float top, float left, float rows, float columns) {
  for (int y = 0; y < image.size.height; ++y)
    for (int x = 0; x < image.size.width; ++x) {
      const auto [row, column] = origin(image, y, x);
      EXPECT_NEAR(row, top + static_cast<float>(y) * rows, 1) << y << ", " << x;
      EXPECT_NEAR(column, left + static_cast<float>(x) * columns, 1) << y << ", " << x;
    }
}

TEST(RandomSizes, IntelsResizeGivesTheShorterSideALengthAndKeepsTheShape) {
  const std::string nearest = "resize_param { interp_mode: NEAREST } } crop_size: 8";
  // 12 x 20 becomes 24 x 40, whose middle is from 8, 16.
  const Image image = applied("random_resize_param { min_size: 24 max_size: 24 " + nearest,
                              places(12, 20), false, 1)
                          .value();
  EXPECT_EQ(image.size, (ImageSize{2, 8, 8}));
  expect_part(image, 4, 8, 0.5f, 0.5f);
  // Without bounds: from the shorter side to the longer.
  std::set<int> spans;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Image one =
        applied("random_resize_param { " + nearest, places(16, 32), true, seed).value();
    const float span = origin(one, 7, 0).first - origin(one, 0, 0).first;
    EXPECT_GE(span, 3);  // of twice the size
    EXPECT_LE(span, 7);
    spans.insert(static_cast<int>(span));
  }
  EXPECT_GE(spans.size(), 4u);
  EXPECT_FAILS_WITH("is 2 x 6 x 9 once it is resized, smaller than crop_size 8",
                    applied("random_resize_param { min_size: 6 max_size: 6 } crop_size: 8",
                            places(6, 9), true, 1));
  EXPECT_FAILS_WITH(
      "random_resize_param has no side from 12 to 9",
      applied("random_resize_param { min_size: 12 } crop_size: 8", places(6, 9), true, 1));
}

TEST(RandomSizes, IntelsPartsHaveAreasAndShapesWithinTheirBounds) {
  const std::string fields =
      "crop_size: 10 random_aspect_ratio_param { min_area_ratio: 0.2 max_area_ratio: 0.5 "
      "aspect_ratio_change: 0.8 resize_param { interp_mode: NEAREST } }";
  std::set<int> tops;
  bool lies = false, stands = false;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Image image = applied(fields, places(40, 50), true, seed).value();
    EXPECT_EQ(image.size, (ImageSize{2, 10, 10}));
    const auto [top, left] = origin(image, 0, 0);
    const auto [bottom, right] = origin(image, 9, 9);
    const float height = (bottom - top) * 10 / 9, width = (right - left) * 10 / 9;
    EXPECT_GE(height * width, 0.2f * 2000 * 0.8f);
    EXPECT_LE(height * width, 0.5f * 2000 * 1.2f);
    EXPECT_GE(height / width, 0.64f * 0.85f);
    EXPECT_LE(height / width, 1.5625f * 1.15f);
    tops.insert(static_cast<int>(top));
    lies = lies || width > height + 2;
    stands = stands || height > width + 2;
  }
  EXPECT_GE(tops.size(), 10u);
  EXPECT_TRUE(lies && stands);
  // A part as large as the picture, in another shape, does not lie in it: the whole is resized.
  const Image whole =
      applied(
          "crop_size: 10 random_aspect_ratio_param { min_area_ratio: 1 max_attempt: 3 "
          "aspect_ratio_change: 0.5 resize_param { interp_mode: NEAREST } }",
          places(20, 40), false, 7)
          .value();
  expect_part(whole, 0, 10, 2, 2);
}

TEST(RandomSizes, NvidiasStretchesChangeEachSide) {
  const std::string half =
      "crop_size: 8 img_rand_resize_lower: 16 img_rand_resize_upper: 16 vertical_stretch_lower: "
      "0.5 "
      "vertical_stretch_upper: 0.5 ";
  // 32 x 48 becomes 16 x 24, and that 8 x 24.
  expect_part(applied(half, places(32, 48), false, 1).value(), 0, 16, 4, 2);
  // A side is crop_size at least.
  expect_part(applied(half + "horizontal_stretch_lower: 0.1 horizontal_stretch_upper: 0.1",
                      places(32, 48), false, 1)
                  .value(),
              0, 0, 4, 6);
  const std::string larger = "crop_size: 8 img_rand_resize_lower: 32 img_rand_resize_upper: 32 ";
  expect_part(applied(larger, places(16, 24), false, 1).value(), 4, 8, 1, 1);
  expect_part(applied(larger + "allow_upscale: true interpolation_algo_up: INTER_LINEAR",
                      places(16, 24), false, 1)
                  .value(),
              6, 10, 0.5f, 0.5f);
  // The longer side is twice the shorter one.
  expect_part(applied("crop_size: 8 rand_resize_ratio_lower: 2 rand_resize_ratio_upper: 2",
                      places(16, 48), false, 1)
                  .value(),
              4, 18, 1, 1.5f);
  std::set<int> spans;
  for (std::uint64_t seed = 0; seed < 60; ++seed)
    spans.insert(static_cast<int>(
        origin(applied("crop_size: 8 img_rand_resize_lower: 8 img_rand_resize_upper: 32",
                       places(32, 32), true, seed)
                   .value(),
               7, 0)
            .first));
  EXPECT_GE(spans.size(), 8u);
}

TEST(RandomSizes, PlacesOfYjxiongsCropsAreFixed) {
  const auto seen = [](const std::string& fields) {
    std::set<std::pair<float, float>> all;
    for (std::uint64_t seed = 0; seed < 400; ++seed)
      all.insert(
          origin(applied("crop_size: 8 " + fields, places(21, 28), true, seed).value(), 0, 0));
    return all;
  };
  using Places = std::set<std::pair<float, float>>;
  // A quarter of the room is 3 rows and 5 columns.
  const Places few = {{0, 0}, {0, 20}, {12, 0}, {12, 20}, {6, 10}};
  EXPECT_EQ(seen("fix_crop: true"), few);
  Places more = few;
  more.insert({{0, 10}, {12, 10}, {6, 0}, {6, 20}, {3, 5}, {3, 15}, {9, 5}, {9, 15}});
  EXPECT_EQ(seen("fix_crop: true more_fix_crop: true"), more);
}

TEST(RandomSizes, SidesOfYjxiongsPartsAreRatiosOfTheShorterSide) {
  std::set<std::pair<int, int>> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Image image =
        applied("crop_size: 11 multi_scale: true scale_ratios: [1, 0.5, 0.25] max_distort: 1",
                places(40, 48), true, seed)
            .value();
    EXPECT_EQ(image.size, (ImageSize{2, 11, 11}));
    const auto [top, left] = origin(image, 0, 0);
    const auto [bottom, right] = origin(image, 10, 10);
    seen.insert({static_cast<int>(std::lround((bottom - top) * 1.1f)),
                 static_cast<int>(std::lround((right - left) * 1.1f))});
  }
  const auto near = [&](int height, int width) {
    return std::ranges::any_of(seen, [&](const auto& one) {
      return std::abs(one.first - height) <= 1 && std::abs(one.second - width) <= 1;
    });
  };
  for (const auto& [height, width] :
       {std::pair(40, 40), {40, 20}, {20, 40}, {20, 20}, {20, 11}, {11, 20}, {11, 11}})
    EXPECT_TRUE(near(height, width)) << height << " x " << width;
  EXPECT_FALSE(near(40, 11));  // two apart in the list; 10 is nearly 11
  const auto sizes = RandomSizes::create(transform_of("crop_size: 8 multi_scale: true"), false);
  EXPECT_EQ(or_throw(sizes), nullptr);  // in tests the middle is cut out
}

TEST(RandomSizes, SayWhatIsWrongWithTheirFields) {
  EXPECT_EQ(RandomSizes::create(transform_of("crop_size: 8 mirror: true"), true).value(), nullptr);
  EXPECT_HAS(refusal("random_resize_param { }"), "random_resize_param wants crop_size");
  EXPECT_HAS(refusal("crop_size: 8 fix_crop: true img_rand_resize_lower: 8"),
             "img_rand_resize_lower and fix_crop are of two ways to draw a picture's size");
  EXPECT_HAS(refusal("crop_size: 8 random_resize_param { min_size: 9 max_size: 8 }"),
             "random_resize_param: the lower bound is 9, above the upper one, 8");
  EXPECT_HAS(refusal("crop_size: 8 random_resize_param { max_size: 99999 }"), "at most 16384");
  EXPECT_HAS(refusal("crop_size: 8 random_aspect_ratio_param { max_area_ratio: 2 }"),
             "are parts of the picture, above 0 and at most 1");
  EXPECT_HAS(refusal("crop_size: 8 random_aspect_ratio_param { aspect_ratio_change: 1.5 }"),
             "aspect_ratio_change is 1.5");
  EXPECT_HAS(refusal("crop_size: 8 vertical_stretch_lower: 2"),
             "vertical_stretch: the lower bound is 2, above the upper one, 1");
  EXPECT_HAS(refusal("crop_size: 8 multi_scale: true scale_ratios: 1.2"),
             "scale_ratios are parts of the shorter side");
  EXPECT_HAS(refusal("crop_size: 8 scale_ratios: 0.8"), "say nothing without multi_scale: true");
  EXPECT_HAS(refusal("crop_size: 8 more_fix_crop: true"), "says nothing without fix_crop: true");
  EXPECT_HAS(refusal("crop_size: 8 random_resize_param { } mean_file: 'm'"),
             "a picture whose size is drawn has no place in mean_file; give mean_value");
}

// A net of one layer that reads pictures in which row and column are told.
struct Reader {
  Reader(const std::string& path, const std::string& fields, const std::string& data = "",
         const Device* device = nullptr)
      : context({.device = device, .seed = 5}) {
    NetParameter param = parse_net(
        "layer { name: 'd' type: 'Data' top: 'x' top: 'label' data_param { source: '" + path +
            "' backend: ANY batch_size: 2 " + data + " } transform_param { " + fields + " } }",
        "test.prototxt");
    param.mutable_state()->set_phase(TRAIN);
    net = std::make_unique<Net>(param, context);
  }
  Numbers pass() {
    const Result<float> loss = net->forward();
    EXPECT_TRUE(loss.ok()) << loss.error().message;
    return values(net->blob("x")->data);
  }
  Context context;
  std::unique_ptr<Net> net;
};

std::string pictures(const std::string& name) {
  Records records;
  for (int i = 0; i < 3; ++i)
    records.push_back({str("r", i), datum(2, 20 + i, 30, planar(places(20 + i, 30)), i)});
  const std::string path = fresh_directory("random_sizes_" + name) + "/set";
  EXPECT_TRUE(write_records("datumfile", path, records).ok());
  return path;
}

const std::string kSizes = "crop_size: 12 img_rand_resize_lower: 12 img_rand_resize_upper: 20 ",
                  kFields = kSizes + "mirror: true";

TEST(RandomSizes, ADataLayerDrawsThemForEachRecordOnEveryDevice) {
  const std::string path = pictures("devices");
  Reader plain(path, kFields);
  std::vector<Numbers> passes;
  for (int i = 0; i < 4; ++i) passes.push_back(plain.pass());
  EXPECT_EQ(plain.net->blob("x")->shape(), (Shape{2, 2, 12, 12}));
  EXPECT_NE(passes[0], passes[3]);  // the same records
  for (const TestDevice& device : test_devices()) {
    SCOPED_TRACE(device.name);
    Reader other(path, kFields, "decode_threads: 3", device.get());
    for (const Numbers& pass : passes) EXPECT_EQ(other.pass(), pass);
  }
}

TEST(RandomSizes, TheMiddleOfAMeanFileIsSubtracted) {
  const std::string path = pictures("mean");
  BlobProto mean;
  for (const int dim : {1, 2, 20, 30}) mean.mutable_shape()->add_dim(dim);
  for (int i = 0; i < 2 * 20 * 30; ++i) mean.add_data(static_cast<float>(i % 600));
  ASSERT_OK(write_binary(mean, path + "_mean"));
  Reader plain(path, kSizes), minus(path, kSizes + "mean_file: '" + path + "_mean'");
  const Numbers a = plain.pass(), b = minus.pass();
  for (const auto& [y, x] : {std::pair(0, 0), {3, 5}, {11, 11}}) {
    const auto at = static_cast<std::size_t>(12 * y + x);
    EXPECT_EQ(a[at] - b[at], static_cast<float>(30 * (4 + y) + 9 + x)) << y << ", " << x;
  }
}

TEST(RandomSizes, OtherLayersRefuseThem) {
  const auto of = [](const std::string& type) {
    return message_of([&] {
      Context context({});
      NetParameter param = parse_net(
          "layer { name: 'd' type: '" + type +
              "' top: 'x' top: 'y' data_param { source: 'none' } memory_data_param { batch_size: 1 "
              "channels: 1 height: 4 width: 4 } dense_image_data_param { source: 'none' } "
              "transform_param { crop_size: 4 fix_crop: true } }",
          "test.prototxt");
      Net net(param, context);
    });
  };
  for (const char* type : {"MemoryData", "DenseImageData"})
    EXPECT_HAS(of(type),
               "transform_param has fix_crop, which Data and ImageData layers alone "
               "follow; leave it out");
}

}  // namespace
}  // namespace shoal::test::random_sizes_test
