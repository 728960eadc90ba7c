// The data tools as a user runs them. Wants the variable TOOLS_DIR; skipped by name without it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>

#include "shoal/data/image.h"
#include "shoal/proto/blob.pb.h"
#include "support/data_files.h"

namespace shoal::test::data_tools_test {
namespace {

class DataTools : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR is not set";
  }
  static std::vector<std::string> command(std::vector<std::string> words) {
    words[0] = tools_dir() + "/" + words[0];
    return words;
  }
  Ran run(std::vector<std::string> words, std::uint64_t limit = 0) {
    return run_program(command(std::move(words)), limit);
  }
  Records records(const std::string& path, const std::string& backend = "lmdb") {
    return or_throw(read_all(*or_throw(open_source(backend, path))));
  }
  static Datum parse(const std::string& value) {
    Datum datum;
    EXPECT_TRUE(datum.ParseFromString(value));
    return datum;
  }
  std::vector<std::string> left() const {  // what a tool made here
    std::vector<std::string> names = entries(directory_);
    std::erase_if(names, [&](const std::string& name) { return given_.contains(name); });
    return names;
  }
  std::string give(const std::string& name, const std::string& bytes) {
    given_.insert(name);
    put_file(directory_ + "/" + name, bytes);
    return directory_ + "/" + name;
  }
  std::string directory_ = fresh_directory("tools");
  std::set<std::string> given_;
};

// ---- convert_imageset

class DataConvertImageset : public DataTools {
 protected:
  // Image i is a 2 x 2 picture of blue i, green 2 i, red 3 i; its label is i.
  void make_images(int count) {
    std::string list;
    for (int i = 0; i < count; ++i) {
      const auto v = [&](int c) { return static_cast<std::uint8_t>((c + 1) * i); };
      Image image{{3, 2, 2}, {}};
      for (int p = 0; p < 4; ++p) image.pixels.insert(image.pixels.end(), {v(0), v(1), v(2)});
      give(str("im ", i, ".png"), or_throw(encode_image(image, "png")));
      list += str("im ", i, ".png ", i, "\n");
    }
    list_ = give("list.txt", list);
  }
  Ran convert(std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), "convert_imageset");
    for (const std::string& word : {directory_ + "/", list_, directory_ + "/db"})
      flags.push_back(word);
    return run(flags);
  }
  std::string list_;
};

TEST_F(DataConvertImageset, KeepsTheListsOrderUnlessToldToShuffle) {
  make_images(5);
  for (const std::string backend : {"lmdb", "leveldb", "datumfile"}) {
    const Ran ran = convert({"--backend=" + backend});
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_HAS(ran.err, "Wrote 5 records to " + directory_ + "/db (" + backend + ").");
    const Records all = records(directory_ + "/db", backend);
    ASSERT_EQ(all.size(), 5u);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(all[static_cast<std::size_t>(i)].first, str("0000000", i, "_im ", i, ".png"));
      const char b = static_cast<char>(i), g = static_cast<char>(2 * i),
                 r = static_cast<char>(3 * i);
      EXPECT_EQ(all[static_cast<std::size_t>(i)].second,
                datum(3, 2, 2, std::string{b, b, b, b, g, g, g, g, r, r, r, r}, i));
    }
    EXPECT_EQ(left(), std::vector<std::string>{"db"});
    std::filesystem::remove_all(directory_ + "/db");
  }
}

TEST_F(DataConvertImageset, ShufflesBySeed) {
  make_images(40);
  const auto labels = [&](const std::vector<std::string>& flags) {
    EXPECT_EQ(convert(flags).code, 0);
    std::vector<int> found;
    for (const auto& [key, value] : records(directory_ + "/db"))
      found.push_back(parse(value).label());
    std::filesystem::remove_all(directory_ + "/db");
    return found;
  };
  const std::vector<int> one = labels({"--shuffle"}),
                         same = labels({"--shuffle", "--seed=1", "--threads=3"}),
                         two = labels({"--shuffle", "--seed", "2"});
  EXPECT_EQ(one, same);
  EXPECT_NE(one, two);
  EXPECT_FALSE(std::ranges::is_sorted(one));
  EXPECT_EQ(std::set<int>(one.begin(), one.end()).size(), 40u);
}

TEST_F(DataConvertImageset, GreyResizedEncoded) {
  make_images(2);
  ASSERT_EQ(convert({"--gray", "--resize_width=3", "--resize_height=5"}).code, 0);
  EXPECT_EQ(parse(records(directory_ + "/db")[1].second).SerializeAsString(),
            datum(1, 5, 3, std::string(15, '\2'), 1));
  std::filesystem::remove_all(directory_ + "/db");
  ASSERT_EQ(convert({"--encoded"}).code, 0);
  const Datum kept = parse(records(directory_ + "/db")[1].second);
  EXPECT_TRUE(kept.encoded());
  EXPECT_EQ(kept.data(), get_file(directory_ + "/im 1.png"));  // untouched
  std::filesystem::remove_all(directory_ + "/db");
  ASSERT_EQ(convert({"--encode_type=jpg"}).code, 0);
  const Datum jpg = parse(records(directory_ + "/db")[1].second);
  EXPECT_EQ(jpg.data().substr(0, 3), "\xff\xd8\xff");
  EXPECT_EQ(or_throw(decode_image(jpg.data(), Colour::kAsStored)).size, (ImageSize{3, 2, 2}));
}

TEST_F(DataConvertImageset, BadImagesAreListedAndTheRestIsKept) {
  make_images(4);
  give("im 1.png", "no picture");
  std::filesystem::remove(directory_ + "/im 2.png");
  const Ran ran = convert({});
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, list_ + ":2: the image " + directory_ +
                          "/im 1.png is no picture that OpenCV can decode");
  EXPECT_HAS(ran.err,
             list_ + ":3: cannot open " + directory_ + "/im 2.png: No such file or directory");
  EXPECT_HAS(ran.err, "2 bad images were left out; the other 2 are in " + directory_ + "/db");
  const Records all = records(directory_ + "/db");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].first, "00000003_im 3.png");
}

TEST_F(DataConvertImageset, NothingButBadImagesWritesNothing) {
  list_ = give("list.txt", "a.png 1\nb.png 2\n");
  const Ran ran = convert();
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, "none of the 2 images could be used");
  EXPECT_EQ(left(), std::vector<std::string>{});
}

TEST_F(DataConvertImageset, AListFromAPipe) {
  make_images(3);
  const std::string text = get_file(list_);
  list_ = directory_ + "/fifo";
  ASSERT_EQ(::mkfifo(list_.c_str(), 0600), 0);
  const Running tool =
      start_program(command({"convert_imageset", directory_ + "/", list_, directory_ + "/db"}));
  const int fd = ::open(list_.c_str(), O_WRONLY);
  EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(fd);
  EXPECT_EQ(wait_for(tool).code, 0);
  EXPECT_EQ(records(directory_ + "/db").size(), 3u);
}

TEST_F(DataConvertImageset, CheckSize) {
  make_images(2);
  give("im 1.png", or_throw(encode_image({{3, 1, 1}, {1, 2, 3}}, "png")));
  EXPECT_EQ(convert({}).code, 0);
  std::filesystem::remove_all(directory_ + "/db");
  const Ran ran = convert({"--check_size"});
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, "im 1.png is 3 x 1 x 1; the first is 3 x 2 x 2");
}

TEST_F(DataConvertImageset, SubsamplingAndLabelRange) {
  make_images(60);
  ASSERT_EQ(convert({"--subsampling=0.5"}).code, 0);
  const std::size_t kept = records(directory_ + "/db").size();
  EXPECT_GT(kept, 15u);
  EXPECT_LT(kept, 45u);
  std::filesystem::remove_all(directory_ + "/db");
  ASSERT_EQ(convert({"--label_range=9"}).code, 0);
  EXPECT_EQ(records(directory_ + "/db").size(), 10u);
}

TEST_F(DataConvertImageset, MistakesOnTheCommandLine) {
  make_images(1);
  EXPECT_EQ(run({"convert_imageset", "a", "b"}).code, 2);
  EXPECT_EQ(convert({"--resize_width=3"}).code, 2);
  EXPECT_EQ(convert({"--subsampling=1.5"}).code, 2);
  EXPECT_EQ(convert({"--no_such_flag"}).code, 2);
  const Ran backend = convert({"--backend=sqlite"});
  EXPECT_EQ(backend.code, 4);
  EXPECT_HAS(backend.err, "unknown back end \"sqlite\"; known are leveldb, lmdb, datumfile");
  EXPECT_EQ(left(), std::vector<std::string>{});
  EXPECT_EQ(run({"convert_imageset", "--help"}).code, 0);
  list_ = directory_ + "/nowhere";
  EXPECT_HAS(convert().err, "cannot open " + list_);
}

TEST_F(DataConvertImageset, AnExistingDatabaseIsNotTouched) {
  make_images(1);
  give("db", "precious");
  const Ran ran = convert();
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, directory_ + "/db exists already");
  EXPECT_EQ(get_file(directory_ + "/db"), "precious");
}

TEST_F(DataConvertImageset, ASignalInTheMiddleLeavesNothing) {
  make_images(3);
  const std::string pipe = directory_ + "/pipe.png", bytes = get_file(directory_ + "/im 1.png");
  given_.insert("pipe.png");
  list_ = give("list.txt", "im 0.png 0\npipe.png 1\nim 2.png 2\n");
  for (const std::string backend : {"lmdb", "leveldb", "datumfile"})
    for (const int signal : {SIGINT, SIGTERM}) {
      ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
      const Running tool = start_program(command({"convert_imageset", "--backend=" + backend,
                                                  directory_ + "/", list_, directory_ + "/db"}));
      // returns when the tool reads its second image
      const int fd = ::open(pipe.c_str(), O_WRONLY);
      ASSERT_GE(fd, 0);
      ::kill(tool.process, signal);
      EXPECT_TRUE(wait_for_text(tool, "Stopping as soon as what is under way allows it"));
      EXPECT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
      ::close(fd);
      const Ran ran = wait_for(tool);
      EXPECT_EQ(ran.code, 128 + signal) << ran.err;
      EXPECT_HAS(ran.err, "nothing was written to " + directory_ + "/db");
      // with a database there, the next round would wait for a reader
      ASSERT_EQ(left(), std::vector<std::string>{});
      std::filesystem::remove(pipe);
    }
}

TEST_F(DataConvertImageset, KilledInTheMiddleLeavesNothingUnderTheName) {
  make_images(3);
  const std::string pipe = directory_ + "/pipe.png";
  list_ = give("list.txt", "im 0.png 0\npipe.png 1\n");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Running tool =
      start_program(command({"convert_imageset", directory_ + "/", list_, directory_ + "/db"}));
  const int fd = ::open(pipe.c_str(), O_WRONLY);
  ::kill(tool.process, SIGKILL);
  EXPECT_EQ(wait_for(tool).code, 128 + SIGKILL);
  ::close(fd);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/db"));
}

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
    EXPECT_EQ(ran.code, 4) << ran.err;
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
