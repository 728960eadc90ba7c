// The data layers over real files: shapes, order, state, errors with their layer, file and record.
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "shoal/data/image.h"
#include "shoal/layers/memory_data.h"
#include "shoal/proto/blob.pb.h"
#include "shoal/proto/layers.pb.h"
#include "support/data_rig.h"
#include "support/solver_rig.h"

namespace shoal::test::data_layers_test {
namespace {

std::string data_layer(const std::string& fields, const std::string& rest = "") {
  return "type: 'Data' top: 'data' top: 'label' data_param { " + fields + " } " + rest;
}

class DataLayer : public testing::TestWithParam<std::string> {
 protected:
  std::string source() const {
    std::string upper = GetParam();
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    return "source: '" + path_ + "' backend: " + upper + " ";
  }
  std::string path_ = fresh_directory("layer_" + GetParam()) + "/set";
};

TEST_P(DataLayer, GivesShapesNumbersAndLabelsInOrder) {
  ASSERT_OK(write_records(GetParam(), path_, small_records(10)));
  DataRig rig(
      data_layer(source() + "batch_size: 4", "transform_param { scale: 0.5 mean_value: 1 }"));
  EXPECT_EQ(rig.shape(0), (Shape{4, 1, 2, 2}));
  EXPECT_EQ(rig.shape(1), (Shape{4}));
  for (int batch = 0; batch < 6; ++batch) {
    ASSERT_EQ(rig.forward(), "");
    for (int i = 0; i < 4; ++i) {
      const int record = (batch * 4 + i) % 10;
      EXPECT_EQ(rig.labels()[static_cast<std::size_t>(i)], static_cast<float>(record));
      for (int p = 0; p < 4; ++p)
        EXPECT_EQ(rig.data()[static_cast<std::size_t>(4 * i + p)],
                  static_cast<float>(record + p - 1) * 0.5f);
      EXPECT_EQ(rig.layer().record_name(i), str("0000", record, " of ", path_));
    }
  }
  EXPECT_EQ(rig.layer().record_name(4), "");
  EXPECT_GE(rig.layer().seconds_waited(), 0);
}

TEST_P(DataLayer, RestoredAtAnyBatchGoesOnBitForBit) {
  ASSERT_OK(write_records(GetParam(), path_, small_records(23)));
  for (const std::string more :
       {"", " shuffle: true", " shuffle: true in_memory: true decode_threads: 3",
        " rand_skip: 50"}) {
    const std::string prototxt = data_layer(source() + "batch_size: 5" + more,
                                            "transform_param { crop_size: 1 mirror: true }");
    DataRig through(prototxt, 42);
    const std::vector<float> all = through.batches(12);
    for (const int at : {0, 1, 4, 5, 11}) {
      DataRig first(prototxt, 42);
      first.batches(at);
      DataRig second(prototxt, 43);  // as if random_seed was not set
      second.batches(at % 3);
      ASSERT_OK(second.layer().load_state(first.layer().save_state()));
      EXPECT_EQ(second.batches(12 - at), std::vector<float>(all.begin() + at * 10, all.end()))
          << more << " from " << at;
      EXPECT_EQ(second.layer().save_state(), through.layer().save_state());
    }
  }
}

TEST_P(DataLayer, TheSeedDecides) {
  ASSERT_OK(write_records(GetParam(), path_, small_records(40)));
  const std::string prototxt = data_layer(source() + "batch_size: 20 shuffle: true");
  EXPECT_EQ(DataRig(prototxt, 1).batches(3), DataRig(prototxt, 1).batches(3));
  EXPECT_NE(DataRig(prototxt, 1).batches(3), DataRig(prototxt, 2).batches(3));
}

TEST_P(DataLayer, ABatchMayBeLargerThanTheSet) {
  ASSERT_OK(write_records(GetParam(), path_, small_records(3)));
  for (const std::string more : {"", " shuffle: true"}) {
    DataRig rig(data_layer(source() + "batch_size: 8" + more));
    testing::internal::CaptureStderr();
    ASSERT_EQ(rig.forward(), "");
    EXPECT_EQ(rig.forward(), "");
    const std::string log = testing::internal::GetCapturedStderr();
    if (more.empty()) {
      EXPECT_HAS(log, "a batch of 8 is larger than the set " + path_ + " of 3 records");
    }
    std::vector<float> labels = rig.labels();
    EXPECT_EQ(std::set<float>(labels.begin(), labels.end()), (std::set<float>{0, 1, 2}));
  }
}

TEST_P(DataLayer, BadRecordsByPolicy) {
  Records records = small_records(6);
  records[2].second = "\xff\xff\xff";
  records[5].second = datum(3, 1, 1, "abc", 5);
  ASSERT_OK(write_records(GetParam(), path_, records));
  DataRig stop(data_layer(source() + "batch_size: 2"));
  EXPECT_EQ(stop.forward(), "");
  EXPECT_EQ(stop.forward(), "the record 00002 of " + path_ + " is no Datum");
  DataRig skip(data_layer(source() + "batch_size: 4 on_bad_record: SKIP"));
  ASSERT_EQ(skip.forward(), "");
  EXPECT_EQ(skip.labels(), (std::vector<float>{0, 1, 3, 4}));
  ASSERT_EQ(skip.forward(), "");
  EXPECT_EQ(skip.labels(), (std::vector<float>{0, 1, 3, 4}));
  DataRig replace(data_layer(source() + "batch_size: 6 on_bad_record: REPLACE"));
  ASSERT_EQ(replace.forward(), "");
  EXPECT_EQ(replace.labels(), (std::vector<float>{0, 1, 3, 3, 4, 0}));
}

TEST_P(DataLayer, AFirstRecordThatIsBadStopsTheBuild) {
  ASSERT_OK(write_records(GetParam(), path_, {{"k", datum(1, 2, 2, "abc", 0)}}));
  EXPECT_EQ(trouble(data_layer(source() + "batch_size: 2")),
            "layer 'd' (Data): the record k of " + path_ +
                " says that it is 1 x 2 x 2 but holds 3 bytes");
}

TEST_P(DataLayer, FallsBackToThePartOfClient0) {
  ASSERT_OK(write_records(GetParam(), path_ + "_0", small_records(3)));
  EXPECT_EQ(trouble(data_layer(source() + "batch_size: 2")), "");
}

TEST_P(DataLayer, MissingSource) {
  EXPECT_HAS(trouble(data_layer(source() + "batch_size: 2")),
             path_ + ": No such file or directory");
}

INSTANTIATE_TEST_SUITE_P(Data, DataLayer, testing::ValuesIn(record_backends()),
                         [](const auto& info) { return info.param; });

TEST(DataLayerErrors, Parameters) {
  const std::string path = fresh_directory("params") + "/set";
  ASSERT_OK(write_records("lmdb", path, small_records(3)));
  const std::string source = "source: '" + path + "' backend: LMDB ";
  EXPECT_HAS(trouble(data_layer(source)),
             "layer 'd' (Data): batch_size is 0; it must be from 1 to 2147483647");
  EXPECT_HAS(trouble(data_layer("batch_size: 1")), "no source is given");
  EXPECT_HAS(trouble(data_layer(source + "batch_size: 1 prefetch: 0")),
             "prefetch is 0; it must be from 1");
  EXPECT_HAS(trouble(data_layer(source + "batch_size: 1 decode_threads: 5000")),
             "decode_threads is 5000");
  EXPECT_HAS(trouble(data_layer("source: '" + path + "' batch_size: 1")),
             "looks like a lmdb, for which the back end is LMDB");
  EXPECT_HAS(trouble(data_layer(source + "batch_size: 1", "transform_param { crop_size: 3 }")),
             "the record 00000 of " + path + " is 1 x 2 x 2, smaller than crop_size 3");
  EXPECT_HAS(
      trouble(data_layer(source + "batch_size: 1", "transform_param { mean_file: '/nowhere' }")),
      "the mean file /nowhere cannot be read");
  EXPECT_HAS(trouble(data_layer(source + "batch_size: 2000000000")), "layer 'd' (Data): ");
}

TEST(DataLayerErrors, StateOfAnotherLayer) {
  const std::string path = fresh_directory("state") + "/set";
  ASSERT_OK(write_records("datumfile", path, small_records(3)));
  DataRig rig(data_layer("source: '" + path + "' backend: DATUMFILE batch_size: 1"));
  EXPECT_FAILS_WITH("the saved state has 3 bytes", rig.layer().load_state("abc"));
}

TEST(DataLayerWarnings, SortedLabelsAreNoticed) {
  const std::string path = fresh_directory("sorted") + "/set";
  Records records;
  for (int i = 0; i < 1200; ++i)
    records.emplace_back(std::to_string(10000 + i), datum(1, 1, 1, "x", i / 200));
  ASSERT_OK(write_records("lmdb", path, records));
  for (const std::string more : {"", " shuffle: true"}) {
    testing::internal::CaptureStderr();
    DataRig rig(data_layer("source: '" + path + "' backend: LMDB batch_size: 250" + more));
    rig.batches(4);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("are sorted; training wants them mixed") != std::string::npos, more.empty())
        << log;
  }
}

class DataImageLayer : public testing::Test {
 protected:
  // Image i of the list is a 2 x 3 picture of the grey value 10 i.
  void SetUp() override {
    std::string list;
    for (int i = 0; i < 8; ++i) {
      const auto value = static_cast<std::uint8_t>(10 * i);
      put_file(str(directory_, "/im ", i, ".png"),
               or_throw(encode_image({{1, 2, 3}, std::vector<std::uint8_t>(6, value)}, "png")));
      list += str("im ", i, ".png ", i, "\n");
    }
    put_file(directory_ + "/list.txt", list);
  }
  std::string layer(const std::string& fields, const std::string& rest = "") const {
    return "type: 'ImageData' top: 'data' top: 'label' image_data_param { source: '" + directory_ +
           "/list.txt' root_folder: '" + directory_ + "/' " + fields + " } " + rest;
  }
  std::string directory_ = fresh_directory("image_layer");
};

TEST_F(DataImageLayer, ReadsColourGreyAndResized) {
  DataRig colour(layer("batch_size: 3"));
  EXPECT_EQ(colour.shape(0), (Shape{3, 3, 2, 3}));
  ASSERT_EQ(colour.forward(), "");
  EXPECT_EQ(colour.data()[18], 10);
  EXPECT_EQ(colour.labels(), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(colour.layer().record_name(1), "im 1.png (line 2) of " + directory_ + "/list.txt");
  DataRig grey(layer("batch_size: 3 is_color: false new_height: 4 new_width: 5",
                     "transform_param { crop_size: 4 }"));
  EXPECT_EQ(grey.shape(0), (Shape{3, 1, 4, 4}));
  ASSERT_EQ(grey.forward(), "");
  EXPECT_EQ(grey.data()[47], 20);
}

TEST_F(DataImageLayer, ShufflesAndResumes) {
  const std::string prototxt = layer("batch_size: 4 shuffle: true");
  DataRig through(prototxt, 3);
  const std::vector<float> all = through.batches(6);
  const std::size_t step = all.size() / 6;
  DataRig first(prototxt, 3), second(prototxt, 99);
  first.batches(3);
  ASSERT_OK(second.layer().load_state(first.layer().save_state()));
  EXPECT_EQ(second.batches(3),
            std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(3 * step), all.end()));
  std::vector<std::multiset<float>> epochs(3);
  for (std::size_t batch = 0; batch < 6; ++batch)
    for (std::size_t i = 0; i < 4; ++i) epochs[batch / 2].insert(all[(batch + 1) * step - 4 + i]);
  for (const auto& epoch : epochs)
    EXPECT_EQ(std::set<float>(epoch.begin(), epoch.end()).size(), 8u);
  EXPECT_NE(std::vector<float>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(2 * step)),
            std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(2 * step),
                               all.begin() + static_cast<std::ptrdiff_t>(4 * step)));
}

TEST_F(DataImageLayer, BadImagesAreNamedWithTheirLine) {
  std::filesystem::remove(directory_ + "/im 2.png");
  put_file(directory_ + "/im 5.png", "no picture");
  DataRig stop(layer("batch_size: 2"));
  EXPECT_EQ(stop.forward(), "");
  EXPECT_EQ(stop.forward(), "the record im 2.png (line 3) of " + directory_ +
                                "/list.txt is bad: cannot open " + directory_ +
                                "/im 2.png: No such file or directory");
  DataRig skip(layer("batch_size: 6 on_bad_record: SKIP"));
  ASSERT_EQ(skip.forward(), "");
  EXPECT_EQ(skip.labels(), (std::vector<float>{0, 1, 3, 4, 6, 7}));
}

TEST_F(DataImageLayer, Parameters) {
  EXPECT_HAS(trouble(layer("batch_size: 2 new_height: 5")),
             "new_height is 5 and new_width 0; set both or neither");
  put_file(directory_ + "/list.txt", "im 0.png\n");
  EXPECT_HAS(trouble(layer("batch_size: 2")),
             "/list.txt:1: the label \"0.png\" is no whole number");
  put_file(directory_ + "/list.txt", "");
  EXPECT_HAS(trouble(layer("batch_size: 2")), "names no images");
}

TEST_F(DataImageLayer, ImagesMustAgreeInSize) {
  put_file(directory_ + "/im 1.png",
           or_throw(encode_image({{1, 4, 3}, std::vector<std::uint8_t>(12)}, "png")));
  DataRig rig(layer("batch_size: 2"));
  EXPECT_HAS(rig.forward(), "the record im 1.png (line 2) of " + directory_ +
                                "/list.txt is 3 x 4 x 3 where 3 x 2 x 3 is wanted");
}

TEST_F(DataImageLayer, EachBatchHasItsOwnSize) {
  for (int i = 0; i < 8; ++i)
    put_file(str(directory_, "/im ", i, ".png"),
             or_throw(encode_image(
                 {{1, 2 + i / 4, 3 + i % 3},
                  std::vector<std::uint8_t>(static_cast<std::size_t>((2 + i / 4) * (3 + i % 3)),
                                            static_cast<std::uint8_t>(10 * i))},
                 "png")));
  const std::string prototxt = layer("batch_size: 1 is_color: false");
  DataRig rig(prototxt), resumed(prototxt);
  Shape before = rig.shape(0);
  for (int n = 0; n < 20; ++n) {
    const int i = n % 8;
    ASSERT_EQ(rig.forward(), "");
    EXPECT_EQ(rig.shape(0), (Shape{1, 1, 2 + i / 4, 3 + i % 3}));
    EXPECT_EQ(rig.followed(), rig.shape(0) != before);
    EXPECT_EQ(rig.data(), std::vector<float>(static_cast<std::size_t>(rig.shape(0).count()),
                                             static_cast<float>(10 * i)));
    EXPECT_EQ(rig.labels(), std::vector<float>{static_cast<float>(i)});
    before = rig.shape(0);
  }
  ASSERT_OK(resumed.layer().load_state(rig.layer().save_state()));
  ASSERT_EQ(resumed.forward(), "");
  EXPECT_EQ(resumed.shape(0), (Shape{1, 1, 3, 4}));
  EXPECT_EQ(resumed.labels(), std::vector<float>{4});
}

TEST(DataMemory, GivesWhatItWasGiven) {
  DataRig rig(
      "type: 'MemoryData' top: 'data' top: 'label' memory_data_param { batch_size: 2 channels: 1 "
      "height: 1 width: 3 }");
  EXPECT_EQ(rig.shape(0), (Shape{2, 1, 1, 3}));
  EXPECT_HAS(rig.forward(), "was given no data");
  auto& memory = dynamic_cast<MemoryData&>(rig.layer());
  std::vector<float> data(12), labels{5, 6, 7, 8};
  std::iota(data.begin(), data.end(), 0.0f);
  EXPECT_FAILS_WITH("12 numbers for 3 labels; an item has 3",
                    memory.set_data(data, std::span(labels).first(3)));
  EXPECT_FAILS_WITH("3 items are no multiple of the batch size 2",
                    memory.set_data(std::span(data).first(9), std::span(labels).first(3)));
  ASSERT_OK(memory.set_data(data, labels));
  const std::vector<float> all = rig.batches(3);
  EXPECT_EQ(all, (std::vector<float>{0,  1,  2, 3, 4, 5, 5, 6, 6, 7, 8, 9,
                                     10, 11, 7, 8, 0, 1, 2, 3, 4, 5, 5, 6}));
  EXPECT_EQ(memory.record_name(1), "item 1 of set_data");
  const std::string state = memory.save_state();
  ASSERT_OK(memory.set_data(data, labels));
  ASSERT_OK(memory.load_state(state));
  rig.batches(1);
  EXPECT_EQ(rig.labels(), (std::vector<float>{7, 8}));
  EXPECT_FALSE(memory.load_state("x").ok());
}

// A picture of 3 x 3 with two channels, whose middle crop of 2 x 2 begins at the corner.
TEST(DataMemory, TransformsPicturesAndDatums) {
  const std::string layer =
      "type: 'MemoryData' top: 'data' top: 'label' memory_data_param { batch_size: 1 channels: 2 "
      "height: 2 width: 2 } transform_param { crop_size: 2 scale: 0.5 mean_value: 1 }";
  DataRig rig(layer, 1, TEST);
  auto& memory = dynamic_cast<MemoryData&>(rig.layer());
  std::vector<std::uint8_t> planes(18), pixels(18);
  std::iota(planes.begin(), planes.end(), std::uint8_t{1});
  for (std::size_t i = 0; i < 18; ++i) pixels[i] = planes[i % 2 * 9 + i / 2];
  const std::vector<float> wanted = {0, 0.5, 1.5, 2, 4.5, 5, 6, 6.5, 3};
  const Pixels picture{{2, 3, 3}, true, std::span<const std::uint8_t>(pixels)};
  ASSERT_OK(memory.set_images(std::span(&picture, 1), std::vector<float>{3}));
  EXPECT_EQ(rig.batches(1), wanted);
  Datum datum;
  datum.set_channels(2), datum.set_height(3), datum.set_width(3), datum.set_label(3);
  datum.set_data(std::string(planes.begin(), planes.end()));
  ASSERT_OK(memory.set_datums(std::span(&datum, 1)));
  EXPECT_EQ(rig.batches(1), wanted);
  EXPECT_FAILS_WITH("1 pictures for 2 labels",
                    memory.set_images(std::span(&picture, 1), std::vector<float>{3, 4}));
  const Pixels flat{{1, 3, 6}, false, std::span<const std::uint8_t>(planes)};
  EXPECT_FAILS_WITH("item 0: it is 1 x 2 x 2 where memory_data_param says 2 x 2 x 2",
                    memory.set_images(std::span(&flat, 1), std::vector<float>{3}));
  datum.set_height(4);
  EXPECT_FAILS_WITH("layer 'd': item 0: ", memory.set_datums(std::span(&datum, 1)));
  EXPECT_EQ(rig.batches(1), wanted) << "what was there stays";
  LogLines lines;
  ASSERT_OK(memory.set_data(std::vector<float>(8), std::vector<float>{1}));
  EXPECT_TRUE(lines.has(".*transform_param does not apply to set_data.*"));
}

// Crops and mirrors are of the item's number, whatever came before.
TEST(DataMemory, DrawsTheSameCropsAgain) {
  const std::string layer =
      "type: 'MemoryData' top: 'data' top: 'label' memory_data_param { batch_size: 20 channels: 1 "
      "height: 2 width: 2 } transform_param { crop_size: 2 mirror: true }";
  std::vector<std::uint8_t> bytes(36);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  const std::vector<Pixels> pictures(20, {{1, 6, 6}, false, std::span<const std::uint8_t>(bytes)});
  const std::vector<float> labels(20);
  std::vector<std::vector<float>> seen;
  for (int i = 0; i < 2; ++i) {
    DataRig rig(layer);
    auto& memory = dynamic_cast<MemoryData&>(rig.layer());
    for (int times = 0; times < 2; ++times) {
      ASSERT_OK(memory.set_images(pictures, labels));
      seen.push_back(rig.batches(1));
    }
  }
  EXPECT_EQ(seen[0], seen[2]);
  EXPECT_EQ(seen[1], seen[3]);
  EXPECT_NE(seen[0], seen[1]);
}

TEST(DataMemory, Parameters) {
  EXPECT_HAS(
      trouble("type: 'MemoryData' top: 'data' top: 'label' memory_data_param { batch_size: 2 "
              "channels: 1 height: 1 }"),
      "must give batch_size, channels, height and width, each at least 1; it gives 2, 1, 1, 0");
}

}  // namespace
}  // namespace shoal::test::data_layers_test
