// Record sources and writers: every back end by the same tests, then what is particular to each.
#include <gtest/gtest.h>
#include <leveldb/db.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "shoal/base/random.h"
#include "shoal/data/leveldb_overlay.h"
#include "support/data_files.h"

namespace shoal::test::data_records_test {
namespace {

namespace fs = std::filesystem;

class SourceConformance : public testing::TestWithParam<std::string> {
 protected:
  std::string backend() const { return GetParam(); }
  std::string directory_ = fresh_directory(GetParam());
  std::string path_ = directory_ + "/set";
};

TEST_P(SourceConformance, GivesBackWhatWasPutInOrder) {
  const Records records = numbered(2345);
  ASSERT_OK(write_records(backend(), path_, records));
  EXPECT_EQ(entries(directory_), std::vector<std::string>{"set"});
  std::unique_ptr<RecordSource> source = or_throw(open_source(backend(), path_));
  EXPECT_EQ(source->path(), path_);
  EXPECT_EQ(or_throw(source->count()), 2345u);
  EXPECT_EQ(or_throw(read_all(*source)), records);
  EXPECT_FALSE(or_throw(source->next()));  // and stays at the end
  ASSERT_OK(source->seek(0));
  EXPECT_EQ(or_throw(read_all(*source)), records);
  EXPECT_EQ(looks_like(path_), backend());
  EXPECT_EQ(or_throw(read_all(*or_throw(open_source("ANY", path_)))), records);
}

TEST_P(SourceConformance, SeeksModuloTheCount) {
  const Records records = numbered(101);
  ASSERT_OK(write_records(backend(), path_, records));
  for (const bool random : {false, true}) {
    std::unique_ptr<RecordSource> source = or_throw(open_source(backend(), path_));
    if (random) ASSERT_OK(source->prepare_random_access());
    for (const std::uint64_t position : {0, 100, 101, 57, 1000, 3, 3, 99, 0}) {
      ASSERT_OK(source->seek(position));
      const std::optional<RecordView> record = or_throw(source->next());
      ASSERT_TRUE(record);
      EXPECT_EQ(record->key, records[position % 101].first);
      EXPECT_EQ(record->value, records[position % 101].second);
    }
  }
}

TEST_P(SourceConformance, LoadsIntoMemory) {
  const Records records = numbered(30);
  ASSERT_OK(write_records(backend(), path_, records));
  std::unique_ptr<RecordSource> source =
      or_throw(load_source(or_throw(open_source(backend(), path_))));
  fs::remove_all(path_);
  EXPECT_EQ(or_throw(source->count()), 30u);
  EXPECT_EQ(or_throw(read_all(*source)), records);
  ASSERT_OK(source->seek(31));
  EXPECT_EQ(or_throw(source->next())->key, "00000001");
}

TEST_P(SourceConformance, SeveralReadersAtOnce) {
  ASSERT_OK(write_records(backend(), path_, numbered(50)));
  std::unique_ptr<RecordSource> one = or_throw(open_source(backend(), path_));
  std::unique_ptr<RecordSource> two = or_throw(open_source(backend(), path_));
  EXPECT_EQ(or_throw(read_all(*one)), or_throw(read_all(*two)));
}

TEST_P(SourceConformance, ReadingLeavesTheFileAsItIs) {
  ASSERT_OK(write_records(backend(), path_, numbered(50)));
  const auto state = [&] {
    std::string all;
    if (!fs::is_directory(path_)) return get_file(path_);
    for (const std::string& name : entries(path_))
      if (name != "lock.mdb") all += name + get_file(path_ + "/" + name);
    return all;
  };
  const std::string before = state();
  EXPECT_EQ(trouble(backend(), path_), "");
  EXPECT_EQ(state(), before);
}

TEST_P(SourceConformance, MissingFile) {
  EXPECT_HAS(trouble(backend(), path_), path_ + ": No such file or directory");
}

TEST_P(SourceConformance, WrongKindSaysWhichItIs) {
  for (const std::string& other : record_backends()) {
    if (other == backend()) continue;
    const std::string path = directory_ + "/" + other;
    ASSERT_OK(write_records(other, path, numbered(3)));
    EXPECT_HAS(trouble(backend(), path), "looks like a " + other);
  }
  EXPECT_HAS(trouble(backend(), directory_), "a directory");
}

TEST_P(SourceConformance, NewRefusesAndTruncateReplacesWhatIsThere) {
  ASSERT_OK(write_records(backend(), path_, numbered(5)));
  const Status again = write_records(backend(), path_, numbered(6));
  ASSERT_FALSE(again.ok());
  EXPECT_HAS(again.error().message, path_ + " exists already");
  EXPECT_EQ(again.error().code, Code::kData);
  EXPECT_EQ(or_throw(or_throw(open_source(backend(), path_))->count()), 5u);
  ASSERT_OK(write_records(backend(), path_, numbered(7), WriteMode::kTruncate));
  EXPECT_EQ(or_throw(or_throw(open_source(backend(), path_))->count()), 7u);
  EXPECT_EQ(entries(directory_), std::vector<std::string>{"set"});
}

TEST_P(SourceConformance, AnUnfinishedWriterLeavesNothing) {
  {
    std::unique_ptr<RecordWriter> writer = or_throw(create_writer(backend(), path_));
    ASSERT_OK(writer->put("a", "b"));
    ASSERT_OK(writer->commit());
    EXPECT_FALSE(fs::exists(path_));
  }
  EXPECT_EQ(entries(directory_), std::vector<std::string>{});
}

TEST_P(SourceConformance, ASetWithoutRecordsIsNotWritten) {
  const Status written = write_records(backend(), path_, {});
  ASSERT_FALSE(written.ok());
  EXPECT_HAS(written.error().message, "no records were given for " + path_);
  EXPECT_EQ(entries(directory_), std::vector<std::string>{});
}

TEST_P(SourceConformance, RefusesARecordThatNoReaderWouldTake) {
  std::unique_ptr<RecordWriter> writer = or_throw(create_writer(backend(), path_));
  const Status put = writer->put("big", std::string(kMaxRecordBytes, 'x'));
  ASSERT_FALSE(put.ok());
  EXPECT_HAS(put.error().message, "\"big\"");
}

TEST_P(SourceConformance, MissingFolderForWriting) {
  const Status written = write_records(backend(), directory_ + "/no/set", numbered(1));
  ASSERT_FALSE(written.ok());
  EXPECT_HAS(written.error().message, "there is no folder " + directory_ + "/no");
}

// A limit on file sizes stands for a full disk: the write fails half-way in the same manner.
TEST_P(SourceConformance, AFullDiskIsAnErrorAndLeavesNothing) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{300'000, 300'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    Records records;
    for (int i = 0; i < 2000; ++i)
      records.emplace_back(std::to_string(100000 + i),
                           std::string(4000, static_cast<char>(i * 7919 >> 3)));
    for (auto& [key, value] : records)
      for (std::size_t i = 0; i < value.size(); ++i)
        value[i] = static_cast<char>(std::hash<std::string>()(key) * (i + 1) >> 13);
    const Status written = write_records(backend(), path_, records);
    const bool named = !written.ok() && written.error().code == Code::kSnapshot &&
                       written.error().message.find(path_) != std::string::npos;
    ::_exit(named ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(entries(directory_), std::vector<std::string>{});
}

// Cut anywhere, a set is refused or shorter by an error, never silently.
TEST_P(SourceConformance, CutShort) {
  ASSERT_OK(write_records(backend(), path_, numbered(200)));
  for (const double part : {0.0, 0.01, 0.3, 0.5, 0.9, 0.999}) {
    const std::string copy = directory_ + "/copy";
    fs::remove_all(copy);
    fs::copy(path_, copy, fs::copy_options::recursive);
    fs::path largest = copy;
    if (fs::is_directory(copy))
      for (const fs::directory_entry& entry : fs::directory_iterator(copy))
        if (largest == copy || entry.file_size() > fs::file_size(largest)) largest = entry.path();
    fs::resize_file(
        largest, static_cast<std::uintmax_t>(static_cast<double>(fs::file_size(largest)) * part));
    EXPECT_HAS(trouble(backend(), copy), copy) << part;
  }
}

TEST_P(SourceConformance, Garbage) {
  ASSERT_OK(write_records(backend(), path_, numbered(200)));
  fs::path largest = path_;
  if (fs::is_directory(path_))
    for (const fs::directory_entry& entry : fs::directory_iterator(path_))
      if (largest == path_ || entry.file_size() > fs::file_size(largest)) largest = entry.path();
  put_file(largest, std::string(fs::file_size(largest), '\xa5'));
  EXPECT_HAS(trouble(backend(), path_), path_);
}

TEST_P(SourceConformance, NeitherFileNorDirectory) {
  EXPECT_HAS(trouble(backend(), "/dev/null"), "/dev/null is no ");
}

// Any damage gives an error or other records, never the end of the process or a wait without end.
TEST_P(SourceConformance, DamagedAnywhere) {
  Records records = numbered(300);
  // LMDB keeps those apart
  for (int i = 0; i < 6; ++i) records[static_cast<std::size_t>(40 * i)].second.assign(20'000, 'x');
  ASSERT_OK(write_records(backend(), path_, records));
  fs::path largest = path_;
  if (fs::is_directory(path_))
    for (const fs::directory_entry& entry : fs::directory_iterator(path_))
      if (largest == path_ || entry.file_size() > fs::file_size(largest)) largest = entry.path();
  const std::string good = get_file(largest);
  Random random(static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed()));
  int noticed = 0;
  for (int round = 0; round < 60; ++round) {
    std::string bytes = good;
    const std::size_t from = random.below(bytes.size() / 16) * 16,
                      count = std::size_t{1} << random.below(13);
    for (std::size_t i = from; i < std::min(bytes.size(), from + count); ++i)
      bytes[i] = round % 3 == 0   ? '\0'
                 : round % 3 == 1 ? static_cast<char>(random.word())
                                  : bytes[random.below(bytes.size())];
    put_file(largest, bytes);
    const std::string sequential = trouble(backend(), path_);
    Result<std::unique_ptr<RecordSource>> source = open_source(backend(), path_);
    const bool random_access = source.ok() && source.value()->prepare_random_access().ok();
    for (std::uint64_t i = 0; random_access && i < 300; ++i)
      if (source.value()->seek(i * 7).ok()) (void)source.value()->next().ok();
    noticed += !sequential.empty();
    EXPECT_TRUE(sequential.empty() || sequential.find(path_) != std::string::npos) << sequential;
    fs::remove(path_ + ".index");
  }
  EXPECT_GT(noticed, 0);  // how many depends on what LMDB leaves in pages that it does not use
}

INSTANTIATE_TEST_SUITE_P(Data, SourceConformance, testing::ValuesIn(record_backends()),
                         [](const auto& info) { return info.param; });

TEST(SourceOpen, AnyRefusesWhatIsNoneInWords) {
  const std::string folder = fresh_directory("any");
  EXPECT_HAS(trouble("ANY", folder), folder + " is neither an LMDB nor a LevelDB");
  EXPECT_HAS(trouble("any", folder + "/none"), "cannot open " + folder + "/none: No such file");
  put_file(folder + "/text", "no records here, but enough bytes for a size and a key");
  EXPECT_HAS(trouble("ANY", folder + "/text"), folder + "/text");
}

TEST(SourceOpen, UnknownBackendNamesTheKnown) {
  Result<std::unique_ptr<RecordSource>> source = open_source("sqlite", "x");
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.error().message, "unknown back end \"sqlite\"; known: leveldb, lmdb, datumfile");
  EXPECT_EQ(open_source("LMDB", "/nowhere").error().message.substr(0, 16), "cannot open LMDB");
}

TEST(DataLmdb, DoublesItsMap) {
  const std::string path = fresh_directory("grow") + "/set";
  Records records;
  for (int i = 0; i < 90; ++i)
    records.emplace_back(std::to_string(100 + i), std::string(1 << 20, static_cast<char>(i)));
  ASSERT_OK(write_records("lmdb", path, records));
  EXPECT_EQ(or_throw(read_all(*or_throw(open_source("lmdb", path)))), records);
}

TEST(DataLmdb, AKeyPutTwiceIsNamed) {
  for (const std::string backend : {"lmdb", "leveldb"}) {
    const Status written = write_records(backend, fresh_directory("twice") + "/set",
                                         {{"a", "1"}, {"b", "2"}, {"a", "3"}});
    ASSERT_FALSE(written.ok());
    EXPECT_HAS(written.error().message, "\"a\" was put twice");
  }
}

TEST(DataLmdb, PagesThatChangedPlacesAreNoticed) {
  const std::string path = fresh_directory("swapped") + "/set", file = path + "/data.mdb";
  ASSERT_OK(write_records("lmdb", path, numbered(300)));
  std::string bytes = get_file(file);
  std::vector<std::size_t> leaves;
  for (std::size_t at = 0; at < bytes.size(); at += 4096)
    if (bytes[at + 10] == 2 && bytes[at + 11] == 0) leaves.push_back(at);
  ASSERT_GT(leaves.size(), 3u);
  std::swap_ranges(bytes.begin() + static_cast<std::ptrdiff_t>(leaves[1]),
                   bytes.begin() + static_cast<std::ptrdiff_t>(leaves[1]) + 4096,
                   bytes.begin() + static_cast<std::ptrdiff_t>(leaves[2]));
  put_file(file, bytes);
  EXPECT_HAS(trouble("lmdb", path), "carries the number ");
}

TEST(DataLmdb, KeyTooLong) {
  const Status written =
      write_records("lmdb", fresh_directory("long") + "/set", {{std::string(600, 'k'), "1"}});
  ASSERT_FALSE(written.ok());
  EXPECT_HAS(written.error().message, "has 600 bytes; LMDB takes 1 to 511");
}

// Other users of LevelDB leave records in the log.
TEST(DataLevelDb, ReadsWhatIsStillInTheLogAndLeavesItThere) {
  const std::string path = fresh_directory("log") + "/set";
  leveldb::Options options;
  options.create_if_missing = true;
  leveldb::DB* opened = nullptr;
  ASSERT_TRUE(leveldb::DB::Open(options, path, &opened).ok());
  std::unique_ptr<leveldb::DB> db(opened);
  for (const auto& [key, value] : numbered(300)) ASSERT_TRUE(db->Put({}, key, value).ok());
  db.reset();
  const std::vector<std::string> before = entries(path);
  EXPECT_EQ(or_throw(read_all(*or_throw(open_source("leveldb", path)))), numbered(300));
  EXPECT_EQ(entries(path), before);
}

TEST(DataLevelDb, TheOverlayKeepsItsChangesToItself) {
  const std::string directory = fresh_directory("overlay");
  put_file(directory + "/old", "old");
  LevelDbOverlay overlay;
  leveldb::WritableFile* opened = nullptr;
  ASSERT_TRUE(overlay.NewWritableFile(directory + "/new.tmp", &opened).ok());
  std::unique_ptr<leveldb::WritableFile> file(opened);
  ASSERT_TRUE(file->Append("12345").ok());
  ASSERT_TRUE(overlay.RenameFile(directory + "/new.tmp", directory + "/new").ok());
  ASSERT_TRUE(overlay.RemoveFile(directory + "/old").ok());
  std::vector<std::string> children;
  ASSERT_TRUE(overlay.GetChildren(directory, &children).ok());
  std::erase_if(children, [](const std::string& name) { return name.starts_with("."); });
  EXPECT_EQ(children, std::vector<std::string>{"new"});
  std::uint64_t size = 0;
  EXPECT_TRUE(overlay.GetFileSize(directory + "/new", &size).ok());
  EXPECT_EQ(size, 5u);
  EXPECT_FALSE(overlay.FileExists(directory + "/old"));
  leveldb::SequentialFile* reader = nullptr;
  EXPECT_TRUE(overlay.NewSequentialFile(directory + "/old", &reader).IsNotFound());
  overlay.seal();
  EXPECT_FALSE(overlay.NewWritableFile(directory + "/more", &opened).ok());
  EXPECT_EQ(entries(directory), std::vector<std::string>{"old"});
}

TEST(DataLevelDb, AWriterInAnotherProcessIsRespected) {
  const std::string path = fresh_directory("held") + "/set";
  ASSERT_OK(write_records("leveldb", path, numbered(3)));
  int ready[2], done[2];
  ASSERT_EQ(::pipe(ready) | ::pipe(done), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    leveldb::DB* db = nullptr;
    char byte = leveldb::DB::Open({}, path, &db).ok() ? 'y' : 'n';
    if (::write(ready[1], &byte, 1) != 1 || ::read(done[0], &byte, 1) != 1) ::_exit(1);
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_HAS(trouble("leveldb", path), "is held by another process");
  ASSERT_EQ(::write(done[1], &byte, 1), 1);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(trouble("leveldb", path), "");
}

TEST(DataLevelDb, AMissingTableIsAnError) {
  const std::string path = fresh_directory("lost") + "/set";
  ASSERT_OK(write_records("leveldb", path, numbered(10)));
  for (const std::string& name : entries(path))
    if (name.ends_with(".ldb")) fs::remove(path + "/" + name);
  EXPECT_HAS(trouble("leveldb", path), "missing files");
}

}  // namespace
}  // namespace shoal::test::data_records_test
