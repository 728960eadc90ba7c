// The tools convert_mnist, convert_cifar, compute_image_mean and convert_format as a user runs
// them.
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <set>

#include "shoal/data/image.h"
#include "shoal/proto/blob.pb.h"
#include "support/data_files.h"
#include "support/data_tools.h"

namespace shoal::test::data_tools_test {
namespace {

// ---- convert_mnist

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

std::string idx_images(int count) {
  std::string bytes = big_endian(0x803) + big_endian(static_cast<std::uint32_t>(count)) +
                      big_endian(2) + big_endian(3);
  for (int i = 0; i < count * 6; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

std::string idx_labels(int count) {
  std::string bytes = big_endian(0x801) + big_endian(static_cast<std::uint32_t>(count));
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i % 10));
  return bytes;
}

class DataConvertMnist : public DataTools {
 protected:
  std::string trouble(const std::string& images, const std::string& labels) {
    const Ran ran =
        run({"convert_mnist", give("images", images), give("labels", labels), directory_ + "/db"});
    EXPECT_EQ(ran.code, 4);
    EXPECT_EQ(left(), std::vector<std::string>{});
    return ran.err;
  }
};

TEST_F(DataConvertMnist, PlainAndGzipped) {
  const std::string images = give("images", idx_images(12)),
                    labels = give("labels", idx_labels(12));
  const std::string packed = directory_ + "/images.gz";
  given_.insert("images.gz");
  gzFile file = gzopen(packed.c_str(), "wb");
  const std::string bytes = idx_images(12);
  ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
  for (const std::string& source : {images, packed}) {
    const Ran ran =
        run({"convert_mnist", "--backend=datumfile", source, labels, directory_ + "/db"});
    ASSERT_EQ(ran.code, 0) << ran.err;
    const Records all = records(directory_ + "/db", "datumfile");
    ASSERT_EQ(all.size(), 12u);
    EXPECT_EQ(all[11].first, "00000011");
    EXPECT_EQ(all[11].second, datum(1, 2, 3, "BCDEFG", 1));  // 66 ...
    std::filesystem::remove(directory_ + "/db");
  }
  ASSERT_EQ(
      run({"convert_mnist", "--shuffle", "--backend=datumfile", images, labels, directory_ + "/db"})
          .code,
      0);
  const Records mixed = records(directory_ + "/db", "datumfile");
  EXPECT_EQ(mixed[11].first, "00000011");
  std::set<std::string> values;
  for (const auto& [key, value] : mixed) values.insert(value);
  EXPECT_EQ(values.size(), 12u);
}

TEST_F(DataConvertMnist, WhatIsWrongWithTheFiles) {
  EXPECT_HAS(trouble(idx_images(3), idx_labels(4)),
             "holds 3 images and " + directory_ + "/labels 4 labels");
  EXPECT_HAS(trouble(idx_labels(3), idx_images(3)), "are the two files swapped?");
  EXPECT_HAS(trouble(idx_images(3).substr(0, 30), idx_labels(3)),
             "should hold 18 bytes after its 16 bytes of header, and holds 14");
  EXPECT_HAS(trouble(idx_images(3).substr(0, 9), idx_labels(3)), "is cut short: 9 bytes");
  EXPECT_HAS(trouble("", idx_labels(3)), "is cut short: 0 bytes");
  EXPECT_HAS(trouble(idx_images(3) + "x", idx_labels(3)), "and holds 19");
  const std::string none = directory_ + "/none";
  EXPECT_HAS(run({"convert_mnist", none, none, directory_ + "/db"}).err, none + ": No such file");
}

TEST_F(DataConvertMnist, AFullDiskNamesTheFileAndLeavesNothing) {
  const std::string images = give("images", idx_images(60000)),
                    labels = give("labels", idx_labels(60000));
  for (const std::string backend : {"lmdb", "leveldb", "datumfile"}) {
    const Ran ran =
        run({"convert_mnist", "--backend=" + backend, images, labels, directory_ + "/db"}, 200'000);
    EXPECT_EQ(ran.code, 9) << ran.err;
    EXPECT_HAS(ran.err, directory_ + "/db");
    EXPECT_EQ(left(), std::vector<std::string>{});
  }
}

// ---- convert_cifar

TEST_F(DataTools, ConvertCifar) {
  const auto batch = [](int first, int count) {
    std::string bytes;
    for (int i = first; i < first + count; ++i)
      bytes += static_cast<char>(i % 10) + std::string(3072, static_cast<char>(i));
    return bytes;
  };
  for (int i = 0; i < 5; ++i) give(str("data_batch_", i + 1, ".bin"), batch(2 * i, 2));
  give("test_batch.bin", batch(100, 3));
  const std::string out = directory_ + "/out";
  Ran ran = run({"convert_cifar", directory_, out, "datumfile"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(entries(out),
            (std::vector<std::string>{"cifar10_test_datumfile", "cifar10_train_datumfile"}));
  const std::string bytes = get_file(out + "/cifar10_train_datumfile");
  EXPECT_EQ(bytes.size(), 31000u);  // 3100 a record
  const char head[] =
      "\x18\x0c\x00\x00\x05\x00\x00\x00"
      "00000"
      "\x0b\x0c\x00\x00\x08\x03\x10\x20\x18\x20\x22\x80\x18";
  EXPECT_EQ(bytes.substr(0, sizeof head - 1), std::string(head, sizeof head - 1));
  EXPECT_EQ(records(out + "/cifar10_train_datumfile", "datumfile")[9].second,
            datum(3, 32, 32, std::string(3072, '\x9'), 9));
  EXPECT_EQ(records(out + "/cifar10_test_datumfile", "datumfile").size(), 3u);
  ran = run({"convert_cifar", directory_, out, "datumfile"});
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, "cifar10_train_datumfile exists already");
  give("test_batch.bin", batch(100, 3) + "x");
  EXPECT_HAS(run({"convert_cifar", "--backend=lmdb", directory_, out}).err,
             "test_batch.bin is no batch of CIFAR-10, or is cut short");
  give("test_batch.bin", std::string(3073, '\x0b'));
  EXPECT_HAS(run({"convert_cifar", "--backend=lmdb", directory_, out}).err,
             "the record at offset 0 has the label 11");
}

// ---- compute_image_mean, convert_format

TEST_F(DataTools, ComputeImageMean) {
  for (const std::string backend : {"lmdb", "leveldb", "datumfile"}) {
    const std::string set = directory_ + "/" + backend, out = directory_ + "/mean";
    Datum floats;
    floats.set_channels(2), floats.set_height(1), floats.set_width(1);
    floats.add_float_data(0.5f), floats.add_float_data(-7);
    const Records given{{"a", datum(2, 1, 1, "\x01\xff", 0)},
                        {"b", datum(2, 1, 1, "\x04\x03", 1)},
                        {"c", floats.SerializeAsString()}};
    ASSERT_OK(write_records(backend, set, given));
    const Ran ran = run({"compute_image_mean", "--backend=" + backend, set, out});
    ASSERT_EQ(ran.code, 0) << ran.err;
    BlobProto mean;
    ASSERT_TRUE(mean.ParseFromString(get_file(out)));
    EXPECT_EQ(mean.num() * mean.channels() * mean.height() * mean.width(), 2);
    EXPECT_FLOAT_EQ(mean.data(0), 5.5f / 3);
    EXPECT_FLOAT_EQ(mean.data(1), 251.0f / 3);
    EXPECT_HAS(ran.err, "mean_value channel [1]: 83.6667");
  }
}

TEST_F(DataTools, ComputeImageMeanOfWhatHasNone) {
  const std::string set = directory_ + "/set";
  ASSERT_OK(write_records("datumfile", set,
                          {{"a", datum(1, 1, 1, "x", 0)}, {"b", datum(1, 1, 2, "xy", 1)}}));
  const Ran ran = run({"compute_image_mean", set, directory_ + "/mean", "datumfile"});
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, "the record b of " + set + " is 1 x 1 x 2; those before it are 1 x 1 x 1");
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/mean"));
  EXPECT_EQ(run({"compute_image_mean", set, directory_ + "/no/mean", "datumfile"}).code, 4);
  EXPECT_EQ(run({"compute_image_mean"}).code, 2);
}

TEST_F(DataTools, ComputeImageMeanDoesNotWaitForPipes) {
  const std::string pipe = directory_ + "/pipe", set = directory_ + "/set";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_directory(directory_ + "/db");
  ASSERT_EQ(::mkfifo((directory_ + "/db/data.mdb").c_str(), 0600), 0);
  for (const std::string backend : {"lmdb", "leveldb", "datumfile", "any"}) {
    SCOPED_TRACE(backend);
    const Ran ran = run({"compute_image_mean", pipe, directory_ + "/mean", backend});
    EXPECT_EQ(ran.code, 4);
    EXPECT_HAS(ran.err, pipe);
  }
  const Ran in_folder = run({"compute_image_mean", directory_ + "/db", directory_ + "/mean"});
  EXPECT_EQ(in_folder.code, 4);
  EXPECT_HAS(in_folder.err, "data.mdb is no regular file");

  ASSERT_OK(write_records("datumfile", set, {{"a", datum(1, 1, 1, "x", 0)}}));
  const std::vector<std::string> words{"compute_image_mean", set, pipe, "datumfile"};
  const Ran unread = run(words);
  EXPECT_EQ(unread.code, 4);
  EXPECT_HAS(unread.err, "cannot write " + pipe + ", a pipe: nothing read from it for 10 s");
  const Running writing = start_program(command(words));
  EXPECT_NE(get_file(pipe), "") << "the whole mean, and no end before it";
  EXPECT_EQ(wait_for(writing).code, 0);
}

TEST_F(DataTools, ConvertFormatCopiesRecordsAsTheyAre) {
  ASSERT_OK(write_records("datumfile", directory_ + "/a", small_records(1234)));
  ASSERT_EQ(run({"convert_format", "datumfile", directory_ + "/a", "lmdb", directory_ + "/b"}).code,
            0);
  ASSERT_EQ(run({"convert_format", "lmdb", directory_ + "/b", "leveldb", directory_ + "/c"}).code,
            0);
  ASSERT_EQ(
      run({"convert_format", "leveldb", directory_ + "/c", "datumfile", directory_ + "/d"}).code,
      0);
  EXPECT_EQ(get_file(directory_ + "/a"), get_file(directory_ + "/d"));
  const std::string bytes = get_file(directory_ + "/a");
  put_file(directory_ + "/torn", bytes.substr(0, bytes.size() - 5));
  const Ran ran =
      run({"convert_format", "datumfile", directory_ + "/torn", "lmdb", directory_ + "/e"});
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, "record 1233 at offset");
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/e"));
}

}  // namespace
}  // namespace shoal::test::data_tools_test
