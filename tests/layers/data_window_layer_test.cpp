// The WindowData layer over real pictures: the numbers of windows, how they are drawn, restored and
// shared.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "shoal/ops/op.h"
#include "support/devices.h"
#include "support/window_rig.h"

namespace shoal::test::data_window_layer_test {
namespace {

class DataWindowLayer : public WindowRig {};

// Asserts that the first item of `data`, `side` x `side`, has at (y, x) the pixel (y + top, x +
// left) of picture 0, or zero beyond the picture.
void expect_pixels(const std::vector<float>& data, int side, int top, int left) {
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < side; ++y)
      for (int x = 0; x < side; ++x) {
        const int from_y = y + top, from_x = x + left;
        const bool inside =
            from_y >= 0 && from_y < kWindowHeight && from_x >= 0 && from_x < kWindowWidth;
        EXPECT_EQ(data[static_cast<std::size_t>((c * side + y) * side + x)],
                  inside ? static_cast<float>(window_pixel(0, c, from_y, from_x)) : 0.0f)
            << c << ' ' << y << ' ' << x;
      }
}

// Sizes at which nothing is resized.
TEST_F(DataWindowLayer, CutsOutWhatIsAroundTheWindow) {
  const std::string all = "fg_fraction: 1 batch_size: 1 ";
  put_window("4 3 9 8");
  DataRig plain(layer(all, "crop_size: 6"));
  EXPECT_EQ(plain.shape(0), (Shape{1, 3, 6, 6}));
  EXPECT_EQ(plain.shape(1), (Shape{1}));
  ASSERT_EQ(plain.forward(), "");
  expect_pixels(plain.data(), 6, 3, 4);
  EXPECT_EQ(plain.labels(), std::vector<float>{1});
  EXPECT_EQ(plain.layer().record_name(0), "p0.png (line 7) of " + folder_ + "/w.txt");
  // 8 x 11 / 9 is 9.8: from a pixel before it to a pixel behind it, and one more
  put_window("0 4 7 11");
  DataRig context(layer(all + "context_pad: 1", "crop_size: 11"));
  ASSERT_EQ(context.forward(), "");
  expect_pixels(context.data(), 11, 3, -1);
  put_window("8 0 15 3");  // a square of 8 about (12, 2), and one more
  DataRig square(layer(all + "crop_mode: 'square'", "crop_size: 9"));
  ASSERT_EQ(square.forward(), "");
  expect_pixels(square.data(), 9, -2, 8);
}

// Blue grows evenly with the column, so that each pixel of the input says where it was taken.
TEST_F(DataWindowLayer, ResizesBilinearly) {
  put_window("2 1 13 10");
  DataRig rig(layer("fg_fraction: 1 batch_size: 1", "crop_size: 5"));
  ASSERT_EQ(rig.forward(), "");
  for (int y = 0; y < 5; ++y)
    for (int x = 0; x < 5; ++x) {
      const auto at = static_cast<std::size_t>(5 * y + x);
      EXPECT_NEAR(rig.data()[at], 10 * (2 + (x + 0.5) * 12 / 5 - 0.5), 1) << y << ' ' << x;
      EXPECT_NEAR(rig.data()[25 + at], 10 * (1 + (y + 0.5) * 10 / 5 - 0.5), 1) << y << ' ' << x;
      EXPECT_EQ(rig.data()[50 + at], 200);
    }
}

TEST_F(DataWindowLayer, MeanValuesAndScaleLeaveTheBorderZero) {
  put_window("0 4 7 11");
  const std::string fields = "fg_fraction: 1 batch_size: 1 context_pad: 1 ";
  DataRig plain(layer(fields, "crop_size: 11"));
  ASSERT_EQ(plain.forward(), "");
  const std::vector<float> numbers = plain.data();
  for (const std::string mean : {"mean_value: 3", "mean_value: 3 mean_value: 4 mean_value: 5"}) {
    DataRig rig(layer(fields, "crop_size: 11 scale: 0.5 " + mean));
    ASSERT_EQ(rig.forward(), "");
    for (int i = 0; i < 3 * 121; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const bool border = i % 11 == 0 || i % 121 / 11 + 3 >= kWindowHeight;
      const float value = mean.size() > 15 ? static_cast<float>(3 + i / 121) : 3.0f;
      EXPECT_EQ(rig.data()[at], border ? 0.0f : (numbers[at] - value) * 0.5f) << i;
    }
  }
}

// The mean's middle belongs to the input, mirrored or not.
TEST_F(DataWindowLayer, MeanFileAndMirror) {
  put_window("0 4 7 11");
  const std::string fields = "fg_fraction: 1 batch_size: 40 context_pad: 1 ";
  const auto mean = [](int c, int y, int x) {  // offset (14 - 11) / 2 = 1
    return static_cast<float>((c * 15 + y + 1) * 14 + x + 1) / 4;
  };
  DataRig rig(layer(fields, "crop_size: 11 mirror: true scale: 2 " + mean_file(3, 15, 14)));
  ASSERT_EQ(rig.forward(), "");
  int mirrored = 0;
  for (int item = 0; item < 40; ++item) {
    const auto number = [&](int c, int y, int x) {
      return rig.data()[static_cast<std::size_t>(((item * 3 + c) * 11 + y) * 11 + x)];
    };
    const bool is_mirrored = number(0, 0, 10) == 0;  // the column beyond the picture
    mirrored += is_mirrored ? 1 : 0;
    for (int c = 0; c < 3; ++c)
      for (int y = 0; y < 11; ++y)
        for (int x = 0; x < 11; ++x) {
          const int from_x = (is_mirrored ? 10 - x : x) - 1, from_y = y + 3;
          const float want =
              from_x < 0 || from_y >= kWindowHeight
                  ? 0.0f
                  : (static_cast<float>(window_pixel(0, c, from_y, from_x)) - mean(c, y, x)) * 2;
          ASSERT_EQ(number(c, y, x), want) << item << ' ' << c << ' ' << y << ' ' << x;
        }
  }
  EXPECT_TRUE(mirrored > 8 && mirrored < 32) << mirrored;
}

TEST_F(DataWindowLayer, BackgroundComesFirst) {
  put_many();
  const std::tuple<int, float, int> cases[] = {{8, 0.25f, 2}, {7, 0.5f, 3}, {10, 0.3f, 3},
                                               {4, 0, 0},     {4, 1, 4},    {1, 0.9f, 0}};
  for (const auto& [batch, fraction, foreground] : cases) {
    SCOPED_TRACE(str(batch, " x ", fraction));
    DataRig rig(layer(str("batch_size: ", batch, " fg_fraction: ", fraction), "crop_size: 2"));
    for (int pass = 0; pass < 3; ++pass) {
      ASSERT_EQ(rig.forward(), "");
      const std::vector<float> labels = rig.labels();
      for (int i = 0; i < batch; ++i)
        EXPECT_EQ(labels[static_cast<std::size_t>(i)] > 0, i >= batch - foreground) << i;
    }
  }
}

// Each window is drawn about as often: of n draws of 30 the square sum of deviations is that of 29
// degrees of freedom, which is below 70 but once in 30 000 seeds.
TEST_F(DataWindowLayer, EachWindowIsAsLikely) {
  put_many();
  constexpr int kBatches = 150, kBatch = 20;
  DataRig rig(layer("batch_size: 20 fg_fraction: 0.5", "crop_size: 1"), 3);
  std::map<std::string, int> drawn[2];
  for (int b = 0; b < kBatches; ++b) {
    ASSERT_EQ(rig.forward(), "");
    for (int i = 0; i < kBatch; ++i) ++drawn[i < kBatch / 2 ? 0 : 1][rig.layer().record_name(i)];
  }
  for (const auto& kind : drawn) {
    ASSERT_EQ(kind.size(), 30u);
    const double want = kBatches * kBatch / 2 / 30.0;
    double sum = 0;
    for (const auto& [name, count] : kind) sum += (count - want) * (count - want) / want;
    EXPECT_LT(sum, 70);
    EXPECT_GT(sum, 8) << "they seem to be drawn in turn";
  }
  EXPECT_NE(DataRig(layer("batch_size: 20", "crop_size: 1"), 1).batches(1),
            DataRig(layer("batch_size: 20", "crop_size: 1"), 2).batches(1));
}

TEST_F(DataWindowLayer, RestoredAtAnyBatchGoesOnBitForBit) {
  put_many();
  for (const std::string more : {"", "cache_images: true"}) {
    const std::string prototxt =
        layer("batch_size: 5 context_pad: 1 " + more, "crop_size: 4 mirror: true");
    DataRig through(prototxt, 42);
    const std::vector<float> all = through.batches(9);
    const auto step = static_cast<std::ptrdiff_t>(all.size() / 9);
    for (const int at : {0, 1, 5, 8}) {
      DataRig first(prototxt, 42), second(prototxt, 43);
      first.batches(at);
      second.batches(at % 3);
      ASSERT_OK(second.layer().load_state(first.layer().save_state()));
      EXPECT_EQ(second.batches(9 - at), std::vector<float>(all.begin() + at * step, all.end()))
          << more << " from " << at;
      EXPECT_EQ(second.layer().save_state(), through.layer().save_state());
    }
  }
}

// All-background batches draw alike wherever a batch begins.
TEST_F(DataWindowLayer, NetsThatShareAFileDivideTheDraws) {
  put_many();
  const std::string fields = "shared_file_system: true fg_fraction: 0 ";
  DataRig alone(layer(fields + "batch_size: 1", "crop_size: 2 mirror: true"), 5);
  std::vector<std::string> want, got(24);
  for (int i = 0; i < 24; ++i) {
    ASSERT_EQ(alone.forward(), "");
    want.push_back(alone.layer().record_name(0));
  }
  for (int net = 0; net < 4; ++net) {
    DataRig rig(layer(fields + "batch_size: 3", "crop_size: 2 mirror: true"), 5, TRAIN,
                Share{.client = net / 2, .clients = 2, .replica = net % 2, .replicas = 2});
    for (int n = 0; n < 6; ++n) {
      if (n % 3 == 0) {
        ASSERT_EQ(rig.forward(), "");
      }
      got[static_cast<std::size_t>(4 * n + net)] = rig.layer().record_name(n % 3);
    }
  }
  EXPECT_EQ(got, want);
}

TEST_F(DataWindowLayer, ClientsWithPartsDrawFromTheirOwn) {
  put_many("w.txt_0", 0);
  put_many("w.txt_1", 100);
  for (int client = 0; client < 2; ++client) {
    DataRig rig(layer("batch_size: 8 fg_fraction: 1", "crop_size: 2"), 5, TRAIN,
                Share{.client = client, .clients = 2});
    ASSERT_EQ(rig.forward(), "");
    for (const float label : rig.labels()) EXPECT_EQ(label > 100, client == 1);
  }
  EXPECT_HAS(trouble(layer("batch_size: 8", "crop_size: 2"), Share{.client = 2, .clients = 3}),
             folder_ +
                 "/w.txt_2, the part of client 2 of 3, does not exist; make the parts with "
                 "partition_data --num_partitions=3 " +
                 folder_ + "/w.txt");
}

// In a job of another size a net goes on at the beginning of a batch.
TEST_F(DataWindowLayer, ABatchBeginsWithBackgroundInAJobOfAnotherSize) {
  put_many();
  const std::string prototxt =
      layer("batch_size: 4 shared_file_system: true fg_fraction: 0.5", "crop_size: 2");
  DataRig of_three(prototxt, 5, TRAIN, Share{.client = 1, .clients = 3});
  of_three.batches(3);
  DataRig of_two(prototxt, 5, TRAIN, Share{.client = 1, .clients = 2});
  ASSERT_OK(of_two.layer().load_state(of_three.layer().save_state()));  // 3 x 4 x 3 / 2 = 18
  ASSERT_EQ(of_two.forward(), "");
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(of_two.labels()[i] > 0, i >= 2) << i;
}

TEST_F(DataWindowLayer, CachedPicturesAreReadOnce) {
  put_many();
  const std::string fields = "batch_size: 5 ";
  const std::vector<float> want = DataRig(layer(fields, "crop_size: 4")).batches(3);
  DataRig rig(layer(fields + "cache_images: true", "crop_size: 4"));
  for (int id = 0; id < 3; ++id) std::remove(picture(id).c_str());
  EXPECT_EQ(rig.batches(3), want);
}

TEST_F(DataWindowLayer, ADeviceGetsTheSameNumbers) {
  put_many();
  const std::string prototxt =
      layer("batch_size: 6 context_pad: 1", "crop_size: 5 mirror: true mean_value: 9 scale: 0.1");
  const std::vector<float> want = DataRig(prototxt).batches(3);
  for (const TestDevice& device : test_devices()) {
    const Device* made = device.get();
    DataRig rig(prototxt, 1, TRAIN, {}, made);
    const std::vector<ops::Choice> choices = rig.layer().choices();
    ASSERT_EQ(choices.size(), 1u);
    EXPECT_EQ(choices[0].impl, "host");
    if (made && !made->is_host()) {
      EXPECT_HAS(choices[0].refused[0].why, "a window is resized where its picture is decoded");
    }
    std::vector<float> got;
    for (int b = 0; b < 3; ++b) {
      ASSERT_EQ(rig.forward(), "");
      for (const std::vector<float>& part : {rig.data(), rig.labels()})
        got.insert(got.end(), part.begin(), part.end());
    }
    EXPECT_EQ(got, want) << device.name;
  }
}

// A picture of grey, or with transparency, is read in colour whatever the file says.
TEST_F(DataWindowLayer, GreyPicturesBecomeColour) {
  put_file(picture(0),
           or_throw(encode_image({{1, 4, 4}, std::vector<std::uint8_t>(16, 77)}, "png")));
  put_windows("# 0 p0.png\n1 4 4 1 1 0.9 0 0 3 3");
  DataRig rig(layer("fg_fraction: 1 batch_size: 1", "crop_size: 2"));
  ASSERT_EQ(rig.forward(), "");
  EXPECT_EQ(rig.data(), std::vector<float>(12, 77));
}

}  // namespace
}  // namespace shoal::test::data_window_layer_test
