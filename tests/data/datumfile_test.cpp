// The datumfile's bytes, and everything that can be wrong with them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <stop_token>
#include <thread>

#include "shoal/base/bytes.h"
#include "shoal/data/datumfile.h"
#include "support/data_files.h"

namespace shoal::test::data_datumfile_test {
namespace {

namespace fs = std::filesystem;

std::string unhex(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  return bytes;
}

const std::string kGolden = unhex(
    "1900000005000000"
    "3030303030"
    "0c000000"
    "080110011802220201ff2807");

class DataDatumFile : public testing::Test {
 protected:
  std::string error_of(const std::string& bytes) {
    put_file(path_, bytes);
    return trouble("datumfile", path_);
  }
  std::string directory_ = fresh_directory("datumfile");
  std::string path_ = directory_ + "/set";
};

TEST_F(DataDatumFile, GoldenBytes) {
  const std::string value = unhex("080110011802220201ff2807");
  ASSERT_OK(write_records("datumfile", path_, {{"00000", value}}));
  EXPECT_EQ(get_file(path_), kGolden);
  ASSERT_EQ(kGolden.size(), 29u);
  EXPECT_EQ(or_throw(read_all(*or_throw(open_source("datumfile", path_)))),
            (Records{{"00000", value}}));
}

TEST_F(DataDatumFile, KeepsDuplicatesEmptyKeysAndOrder) {
  const Records records{{"b", "1"}, {"a", "2"}, {"b", "3"}, {"", ""}, {"c", ""}};
  ASSERT_OK(write_records("datumfile", path_, records));
  EXPECT_EQ(or_throw(read_all(*or_throw(open_source("datumfile", path_)))), records);
}

TEST_F(DataDatumFile, EmptyFile) {
  EXPECT_EQ(error_of(""), "datumfile " + path_ + " has no records (0 bytes)");
}

TEST_F(DataDatumFile, StrayBytesAtTheEnd) {
  for (const std::size_t n : {1, 2, 3})
    EXPECT_EQ(
        error_of(kGolden + std::string(n, 'x')),
        str("datumfile ", path_, ": ", n, " stray bytes at offset 29, after 1 whole records"));
}

TEST_F(DataDatumFile, CutAnywhereIsNamedWithOffsetAndNumber) {
  const std::pair<std::size_t, const char*> cuts[] = {
      {4, "is cut in its key_size: 4 bytes are left of 29"},
      {7, "is cut in its key_size"},
      {8, "is cut in its key:"},
      {12, "is cut in its key:"},
      {16, "is cut in its key:"},
      {17, "is cut in its value"},
      {28, "is cut in its value: 28 bytes are left of 29"}};
  for (const auto& [length, what] : cuts) {
    const std::string message = error_of(kGolden + kGolden.substr(0, length));
    EXPECT_HAS(message, str("datumfile ", path_, ": record 1 at offset 29 ", what));
  }
}

// Another process writes over the file. What is read may be old, new or refused.
TEST_F(DataDatumFile, BytesThatChangeWhileTheyAreReadAreNoEnd) {
  // Each is longer than what is read to learn its length.
  const Records records(50, {"00000", std::string(200, 'x')});
  constexpr std::uint64_t kLength = 12 + 5 + 200;
  ASSERT_OK(write_records("datumfile", path_, records));
  DatumFile file = or_throw(DatumFile::open(path_));
  std::jthread writer([&](const std::stop_token& stop) {
    const int fd = ::open(path_.c_str(), O_WRONLY);
    const std::uint32_t sizes[] = {5, 200'000'000, 17, 0};
    for (std::size_t i = 0; !stop.stop_requested(); ++i)
      EXPECT_EQ(::pwrite(fd, &sizes[i % 4], 4, static_cast<off_t>(kLength * (i / 4 % 50) + 4)), 4);
    ::close(fd);
  });
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto number = static_cast<std::uint64_t>(i % 50);
    refused += !file.read(kLength * number, number, false).ok();
  }
  EXPECT_GT(refused, 0);
}

TEST_F(DataDatumFile, TooLargeRecordSize) {
  std::string bytes = kGolden;
  bytes.replace(0, 4, unhex("01004006"));  // 104857601
  EXPECT_EQ(error_of(bytes), str("datumfile ", path_,
                                 ": record 0 at offset 0 has a record_size of 104857601 bytes; at "
                                 "most 104857600 are allowed; is this a datumfile at all?"));
}

TEST_F(DataDatumFile, BigEndianIsRecognised) {
  const std::string message =
      error_of(unhex("00000019"
                     "00000005"
                     "3030303030"
                     "0000000c"
                     "080110011802220201ff2807"));
  EXPECT_HAS(message, "record_size of 419430400 bytes");
  EXPECT_HAS(message,
             "with its bytes swapped it would be 25: the file was written on a big-endian machine");
}

TEST_F(DataDatumFile, SizesThatContradictEachOther) {
  std::string bytes = kGolden;
  bytes[13] = 11;  // value_size
  EXPECT_HAS(
      error_of(bytes),
      "record 0 at offset 0 has a record_size of 25, but key_size 5 + value_size 11 + 8 is 24");
  bytes = kGolden;
  bytes[4] = 18;  // key_size
  EXPECT_HAS(error_of(bytes), "has a key_size of 18 that does not fit its record_size of 25");
  bytes = kGolden;
  bytes[0] = 7;
  EXPECT_HAS(error_of(bytes), "has a record_size of 7; two sizes alone take 8");
}

TEST_F(DataDatumFile, KeysLongerThanAPeek) {
  const Records records{{std::string(500, 'k'), "v"},
                        {std::string(52, 'l'), "w"},
                        {std::string(56, 'm'), std::string(3 << 20, 'x')},
                        {"n", "y"}};
  ASSERT_OK(write_records("datumfile", path_, records));
  EXPECT_EQ(or_throw(read_all(*or_throw(open_source("datumfile", path_)))), records);
  EXPECT_EQ(or_throw(or_throw(open_source("datumfile", path_))->count()), 4u);
}

TEST_F(DataDatumFile, AppendKeepsTheOldRecordsAndRefusesATornFile) {
  ASSERT_OK(write_records("datumfile", path_, {{"a", "1"}}));
  ASSERT_OK(write_records("datumfile", path_, {{"b", "2"}}, WriteMode::kAppend));
  EXPECT_EQ(or_throw(read_all(*or_throw(open_source("datumfile", path_)))),
            (Records{{"a", "1"}, {"b", "2"}}));
  put_file(path_, kGolden + "xx");
  const Status torn = write_records("datumfile", path_, {{"b", "2"}}, WriteMode::kAppend);
  ASSERT_FALSE(torn.ok());
  EXPECT_HAS(torn.error().message, "2 stray bytes at offset 29");
  EXPECT_EQ(get_file(path_), kGolden + "xx");
  EXPECT_FALSE(
      write_records("datumfile", directory_ + "/missing", {{"b", "2"}}, WriteMode::kAppend).ok());
  EXPECT_FALSE(write_records("lmdb", directory_ + "/lmdb", {{"b", "2"}}, WriteMode::kAppend).ok());
}

TEST_F(DataDatumFile, IndexIsWrittenReadAndRebuiltWhenStale) {
  const std::string index = path_ + ".index";
  ASSERT_OK(write_records("datumfile", path_, numbered(20)));
  const auto key_at = [&](std::uint64_t position) {
    std::unique_ptr<RecordSource> source = or_throw(open_source("datumfile", path_));
    or_throw(source->prepare_random_access());
    or_throw(source->seek(position));
    return std::string(or_throw(source->next())->key);
  };
  EXPECT_EQ(key_at(7), "00000007");
  const std::string good = get_file(index);
  std::string expected = "SHIX";
  put_le(expected, std::uint32_t{1});
  put_le(expected, std::uint64_t{20});
  put_le(expected, std::uint64_t{0});
  EXPECT_EQ(good.substr(0, 24), expected);
  EXPECT_EQ(good.size(), 16u + 8 * 20 + 4);
  EXPECT_EQ(get_le<std::uint32_t>(good.substr(good.size() - 4)),
            crc32c(good.substr(0, good.size() - 4)));

  std::string damaged = good;
  damaged[30] ^= 1;
  put_file(index, damaged);
  EXPECT_EQ(key_at(19), "00000019");
  EXPECT_EQ(get_file(index), good);

  // The file gets another size.
  ASSERT_OK(write_records("datumfile", path_, numbered(25), WriteMode::kTruncate));
  EXPECT_EQ(key_at(24), "00000024");
  EXPECT_EQ(get_file(index).size(), 16u + 8 * 25 + 4);

  // The index is older than its file.
  fs::last_write_time(index, fs::last_write_time(path_) - std::chrono::hours(1));
  EXPECT_EQ(key_at(24), "00000024");
  EXPECT_GE(fs::last_write_time(index), fs::last_write_time(path_));
}

TEST_F(DataDatumFile, IndexStaysInMemoryWhereNoneCanBeWritten) {
  ASSERT_OK(write_records("datumfile", path_, numbered(20)));
  fs::create_directory(path_ + ".index");  // a name that no file can take
  std::unique_ptr<RecordSource> source = or_throw(open_source("datumfile", path_));
  ASSERT_OK(source->prepare_random_access());
  ASSERT_OK(source->seek(13));
  EXPECT_EQ(or_throw(source->next())->key, "00000013");
}

}  // namespace
}  // namespace shoal::test::data_datumfile_test
