// Tests that data layers give the same bits on each device as the CPU's transformation.
#include <gtest/gtest.h>

#include <deque>
#include <functional>

#include "shoal/base/timer.h"
#include "shoal/data/image.h"
#include "shoal/ops/op.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/blob.pb.h"
#include "support/data_rig.h"
#include "support/devices.h"
#include "support/solver_rig.h"

namespace shoal::test::input_devices_test {
namespace {

// A set of drawn records: which are of bytes, pictures or floats, and how large.
struct Set {
  std::function<ImageSize(int)> size = [](int) { return ImageSize{3, 7, 6}; };
  enum class Kind { kBytes, kPicture, kFloats };
  std::function<Kind(int)> kind = [](int) { return Kind::kBytes; };
  int records = 23;  // batches of 4 go over its end
};

std::string drawn_record(const Set& set, int i) {
  const ImageSize size = set.size(i);
  Random random(5, static_cast<std::uint64_t>(i));
  std::string pixels(static_cast<std::size_t>(size.count()), '\0');
  for (char& pixel : pixels) pixel = static_cast<char>(random.below(256));
  if (set.kind(i) == Set::Kind::kBytes)
    return datum(size.channels, size.height, size.width, pixels, i % 10);
  Datum made;
  made.set_label(i % 10);
  if (set.kind(i) == Set::Kind::kPicture) {
    made.set_encoded(true);
    made.set_data(or_throw(encode_image({size, {pixels.begin(), pixels.end()}}, "png")));
    return made.SerializeAsString();
  }
  made.set_channels(size.channels);
  made.set_height(size.height);
  made.set_width(size.width);
  for (const char pixel : pixels) made.add_float_data(static_cast<float>(pixel) / 3);
  return made.SerializeAsString();
}

std::string write_set(const std::string& folder, const Set& set) {
  const std::string path = fresh_directory(folder) + "/set";
  Records records;
  for (int i = 0; i < set.records; ++i)
    records.emplace_back(std::to_string(100 + i), drawn_record(set, i));
  or_throw(write_records("datumfile", path, records));
  return path;
}

std::string write_mean(const std::string& path, const ImageSize& size) {
  BlobProto mean;
  mean.set_num(1);
  mean.set_channels(size.channels);
  mean.set_height(size.height);
  mean.set_width(size.width);
  Random random(9);
  for (std::int64_t i = 0; i < size.count(); ++i) mean.add_data(random.uniform(0, 255));
  put_file(path, mean.SerializeAsString());
  return path;
}

std::string data_layer(const std::string& path, const std::string& data,
                       const std::string& transform) {
  return "type: 'Data' top: 'data' top: 'label' data_param { source: '" + path +
         "' backend: DATUMFILE batch_size: 4 " + data + " } transform_param { " + transform + " }";
}

// Data and labels of each batch. What a device has is copied there and looked at when all batches
// were used, so that nothing but events keeps the batches apart.
class Batches {
 public:
  Batches(const std::string& prototxt, Phase phase, const Device* device)
      : rig_(prototxt, 7, phase, {}, device) {}
  void run(int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(rig_.forward(), "");
      for (const int top : {0, 1}) {
        Tensor& kept = kept_.emplace_back(rig_.shape(top));
        ops::copy(rig_.context(), rig_.blob(top).data, kept);
      }
    }
  }
  std::vector<std::vector<float>> numbers() const {
    std::vector<std::vector<float>> all;
    for (const Tensor& tensor : kept_) all.emplace_back(tensor.host().begin(), tensor.host().end());
    return all;
  }
  DataRig& rig() { return rig_; }

 private:
  DataRig rig_;
  std::deque<Tensor> kept_;
};

class InputOn : public testing::TestWithParam<TestDevice> {
 protected:
  const Device* device() const { return GetParam().get(); }
  // Returns by which the device's batches were transformed.
  std::string expect_same(const std::string& prototxt, Phase phase = TRAIN) const {
    Batches want(prototxt, phase, nullptr), got(prototxt, phase, device());
    want.run(13);
    got.run(13);
    EXPECT_EQ(got.numbers(), want.numbers()) << prototxt;
    EXPECT_EQ(got.rig().layer().save_state(), want.rig().layer().save_state());
    return got.rig().layer().choices().at(0).impl;
  }
  std::string where() const { return device() ? "device" : "host"; }
};

TEST_P(InputOn, EveryTransformationHasTheCpusBits) {
  const std::string plain = write_set("input_plain", {}),
                    mean = write_mean(plain + ".mean", {3, 7, 6});
  for (const std::string& transform : {
           std::string(),
           std::string("scale: 0.00390625 mean_value: 127.3"),
           std::string("scale: 0.017 mean_value: 104.1 mean_value: 117 mean_value: 123.7"),
           std::string("mirror: true scale: 0.3"),
           std::string("crop_size: 5"),
           std::string("crop_size: 5 mirror: true mean_value: 3 mean_value: 90 mean_value: 255"),
           "mean_file: '" + mean + "' scale: 0.1",
           "mean_file: '" + mean + "' crop_size: 4 mirror: true scale: 0.7",
       })
    for (const Phase phase : {TRAIN, TEST})
      for (const char* more : {"", "shuffle: true decode_threads: 3 prefetch: 1"})
        EXPECT_EQ(expect_same(data_layer(plain, more, transform), phase), where());
}

TEST_P(InputOn, PicturesLieSideBySide) {
  const Set pictures{.kind = [](int) { return Set::Kind::kPicture; }};
  const std::string path = write_set("input_pictures", pictures),
                    mean = write_mean(path + ".mean", {3, 7, 6});
  for (const std::string& transform :
       {std::string("mirror: true mean_value: 1 mean_value: 2 mean_value: 3 scale: 0.2"),
        std::string("crop_size: 3 force_gray: true mean_value: 9"),
        "crop_size: 4 force_color: true mirror: true mean_file: '" + mean + "'"})
    EXPECT_EQ(expect_same(data_layer(path, "shuffle: true", transform)), where());
  const Set both{.kind = [](int i) { return i % 3 ? Set::Kind::kPicture : Set::Kind::kBytes; }};
  EXPECT_EQ(expect_same(data_layer(write_set("input_both", both), "", "mirror: true scale: 3")),
            where());
}

TEST_P(InputOn, ACropMakesImagesOfAllSizesOneBatch) {
  const Set sizes{.size =
                      [](int i) {
                        return ImageSize{3, 5 + i % 4, 9 - i % 3};
                      },
                  .kind = [](int i) { return i % 2 ? Set::Kind::kPicture : Set::Kind::kBytes; }};
  EXPECT_EQ(expect_same(data_layer(write_set("input_sizes", sizes), "shuffle: true",
                                   "crop_size: 5 mirror: true scale: 0.4")),
            where());
}

TEST_P(InputOn, BatchesMayDifferInSize) {
  const Set growing{.size =
                        [](int i) {
                          return ImageSize{3, 4 + i / 4, 3 + i / 4};
                        },
                    .records = 24};
  const std::string path = write_set("input_growing", growing);
  EXPECT_EQ(expect_same(data_layer(path, "", "mirror: true scale: 0.4")), where());
  EXPECT_EQ(expect_same(data_layer(path, "on_bad_record: SKIP", "scale: 2")), where());
}

TEST_P(InputOn, FloatsAreTransformedOnTheHost) {
  const Set floats{.kind = [](int) { return Set::Kind::kFloats; }};
  EXPECT_EQ(expect_same(data_layer(write_set("input_floats", floats), "",
                                   "crop_size: 4 mirror: true mean_value: 2")),
            "host");
}

// Batches of bytes and of floats in turn, and both in one.
TEST_P(InputOn, AFloatAmongBytesChangesNothing) {
  for (const int every : {2, 8, 23}) {
    const Set mixed{.kind = [=](int i) {
      return i % every == every - 1 ? Set::Kind::kFloats : Set::Kind::kBytes;
    }};
    const std::string path = write_set("input_mixed", mixed),
                      mean = write_mean(path + ".mean", {3, 7, 6});
    EXPECT_EQ(expect_same(data_layer(
                  path, "", "crop_size: 4 mirror: true scale: 0.3 mean_file: '" + mean + "'")),
              where());
  }
}

TEST_P(InputOn, BadRecordsAreLeftOutOrReplaced) {
  const Set odd{.size = [](int i) { return ImageSize{3, i % 5 == 2 ? 4 : 7, 6}; }};
  const std::string path = write_set("input_bad", odd);
  for (const char* policy : {"SKIP", "REPLACE"})
    EXPECT_EQ(expect_same(data_layer(path, std::string("on_bad_record: ") + policy,
                                     "mirror: true mean_value: 7")),
              where());
  Batches stops(data_layer(path, "", "mirror: true"), TRAIN, device());
  EXPECT_HAS(stops.rig().forward(), "is 3 x 4 x 6 where 3 x 7 x 6 is wanted");
}

// The error of a batch comes when its turn has come, however early it was made.
TEST_P(InputOn, ErrorsComeInTurn) {
  const Set odd{.size = [](int i) { return ImageSize{3, i == 9 ? 4 : 7, 6}; }};
  Batches batches(data_layer(write_set("input_error", odd), "", ""), TRAIN, device());
  batches.run(1);
  wait_until(std::chrono::steady_clock::now() + std::chrono::milliseconds(50));
  batches.run(1);
  for (int i = 0; i < 2; ++i) EXPECT_HAS(batches.rig().forward(), "the record 109 of ");
}

TEST_P(InputOn, ARestoreInMidEpochGoesOnToTheBit) {
  const std::string prototxt =
      data_layer(write_set("input_restore", {}), "shuffle: true", "crop_size: 5 mirror: true");
  for (const int at : {0, 1, 4, 9}) {
    Batches through(prototxt, TRAIN, nullptr), first(prototxt, TRAIN, device()),
        second(prototxt, TRAIN, device());
    through.run(13);
    first.run(at);
    second.run(at % 3);
    const std::size_t before = second.numbers().size();
    ASSERT_OK(second.rig().layer().load_state(first.rig().layer().save_state()));
    second.run(13 - at);
    const auto got = second.numbers(), want = through.numbers();
    EXPECT_EQ(std::vector(got.begin() + static_cast<std::ptrdiff_t>(before), got.end()),
              std::vector(want.begin() + 2 * at, want.end()));
  }
}

// Layers may write over a batch, on the device and on the host.
TEST_P(InputOn, ABatchMayBeWrittenOver) {
  const std::string prototxt = data_layer(write_set("input_written", {}), "", "scale: 0.5");
  Batches want(prototxt, TRAIN, nullptr), got(prototxt, TRAIN, device());
  for (int i = 0; i < 7; ++i) {
    for (Batches* batches : {&want, &got}) {
      batches->run(1);
      DataRig& rig = batches->rig();
      for (const int top : {0, 1}) {
        if (i % 2) rig.blob(top).data.host_mut()[0] = 9;
        ops::scale(rig.context(), 3, rig.blob(top).data);
      }
    }
    EXPECT_EQ(got.rig().data(), want.rig().data());
    EXPECT_EQ(got.rig().labels(), want.rig().labels());
  }
  EXPECT_EQ(got.numbers(), want.numbers());
}

INSTANTIATE_TEST_SUITE_P(Data, InputOn, testing::ValuesIn(test_devices()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shoal::test::input_devices_test
