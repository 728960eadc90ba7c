// The tool convert_imageset as a user runs it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>

#include "shoal/data/image.h"
#include "shoal/proto/blob.pb.h"
#include "support/data_files.h"
#include "support/data_tools.h"

namespace shoal::test::convert_imageset_test {
namespace {

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
  EXPECT_EQ(backend.code, 2);
  EXPECT_HAS(backend.err, "unknown back end \"sqlite\"; known: leveldb, lmdb, datumfile");
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
      // Opens when the tool reads its second image.
      const int fd = ::open(pipe.c_str(), O_WRONLY);
      ASSERT_GE(fd, 0);
      ::kill(tool.process, signal);
      EXPECT_TRUE(wait_for_text(tool, "Stopping as soon as what is under way allows it"));
      EXPECT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
      ::close(fd);
      const Ran ran = wait_for(tool);
      EXPECT_EQ(ran.code, 128 + signal) << ran.err;
      EXPECT_HAS(ran.err, "nothing was written to " + directory_ + "/db");
      // With a database there, the next round would wait for a reader.
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

}  // namespace
}  // namespace shoal::test::convert_imageset_test
