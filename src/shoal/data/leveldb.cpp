// Reads and writes LevelDB databases: directories with CURRENT and a manifest. Reading leaves one
// as it is (leveldb_overlay.h); writing uses a temporary name.
#include <fcntl.h>
#include <leveldb/db.h>
#include <leveldb/write_batch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/data/backends.h"
#include "shoal/data/leveldb_overlay.h"
#include "shoal/data/temporary.h"

namespace shoal {
namespace {

constexpr std::size_t kWriteBufferBytes = std::size_t{1} << 26;
constexpr std::size_t kBlockBytes = std::size_t{1} << 16;
constexpr int kOpenFiles = 100;
constexpr std::size_t kBatchBytes = std::size_t{1} << 24;  // of puts, between commits

std::string_view view(const leveldb::Slice& slice) { return {slice.data(), slice.size()}; }
leveldb::Slice slice(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

Error failure(const std::string& path, const char* doing, const leveldb::Status& status) {
  const char* hint =
      status.IsCorruption() ? "; the database is damaged: was a copy cut short?" : "";
  const std::string words = status.ToString();
  bool full = false;  // by the words of the system's error, whose number LevelDB does not keep
  for (const int number : {ENOSPC, EDQUOT, EFBIG})
    full = full || words.find(system_reason(number)) != std::string::npos;
  return Error{full ? Code::kSnapshot : Code::kData,
               str("cannot ", doing, " LevelDB ", path, ": ", words, hint)};
}

class NoLog final : public leveldb::Logger {
 public:
  void Logv(const char*, std::va_list) override {}
};

// Returns whether another process holds the database's lock, which it does while it writes (LevelDB
// knows no other use).
bool locked_by_other(const std::string& path) {
  const int fd = ::open((path + "/LOCK").c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const bool held = ::fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  ::close(fd);
  return held;
}

class LevelDbSource final : public RecordSource {
 public:
  explicit LevelDbSource(std::string path) : path_(std::move(path)) {}
  Status open();
  const std::string& path() const override { return path_; }
  Result<std::optional<RecordView>> next() override;
  Status seek(std::uint64_t position) override;
  Result<std::uint64_t> count() override;
  Status prepare_random_access() override;

 private:
  void rewind();
  leveldb::ReadOptions read_options(bool fill_cache) const;
  Status check_files() const;
  // Calls visit(key) for each record, in order.
  template <class Visit>
  Status walk(Visit visit);
  std::string path_;
  NoLog log_;
  LevelDbOverlay overlay_;
  std::unique_ptr<leveldb::DB> db_;
  std::unique_ptr<leveldb::Iterator> cursor_;  // on the record given last, or on the next one
  bool given_ = false;                         // which of the two
  // `position_` is that of the next record; `count_` 0: not known yet.
  std::uint64_t position_ = 0, count_ = 0;
  std::vector<std::string> keys_;  // empty, or all of them, in order
  std::string value_;
};

leveldb::ReadOptions LevelDbSource::read_options(bool fill_cache) const {
  leveldb::ReadOptions options;
  options.verify_checksums = true;
  options.fill_cache = fill_cache;
  return options;
}

Status LevelDbSource::check_files() const {
  struct stat info;
  if (::stat(path_.c_str(), &info) != 0)
    return Error{Code::kData,
                 str("cannot open LevelDB ", path_, ": ", why_not_opened(path_, errno))};
  if (!S_ISDIR(info.st_mode) || !file_exists(path_ + "/CURRENT"))
    return Error{Code::kData, str(path_, " is no LevelDB, which is a directory that holds CURRENT",
                                  kind_hint(path_))};
  if (locked_by_other(path_))
    return Error{
        Code::kData,
        str("LevelDB ", path_,
            " is held by another process, which may be writing it; use LMDB or a datumfile "
            "where several programs work on one set")};
  return {};
}

Status LevelDbSource::open() {
  if (Status fine = check_files(); !fine.ok()) return fine;
  leveldb::Options options;
  options.env = &overlay_;
  options.info_log = &log_;
  options.max_open_files = kOpenFiles;
  options.block_size = kBlockBytes;
  options.write_buffer_size = kWriteBufferBytes;
  options.paranoid_checks = true;
  leveldb::DB* db = nullptr;
  const leveldb::Status opened = leveldb::DB::Open(options, path_, &db);
  db_.reset(db);
  if (!opened.ok()) return failure(path_, "open", opened);
  overlay_.seal();
  cursor_.reset(db_->NewIterator(read_options(false)));
  cursor_->SeekToFirst();
  if (!cursor_->status().ok()) return failure(path_, "read", cursor_->status());
  if (!cursor_->Valid()) return Error{Code::kData, str("LevelDB ", path_, " has no records")};
  return {};
}

Result<std::optional<RecordView>> LevelDbSource::next() {
  if (!keys_.empty()) {
    if (position_ >= keys_.size()) return std::optional<RecordView>();
    const std::string& key = keys_[position_];
    const leveldb::Status got = db_->Get(read_options(true), key, &value_);
    if (!got.ok()) return failure(path_, str("read the record \"", key, "\" of").c_str(), got);
    ++position_;
    return std::optional(RecordView{key, value_});
  }
  if (given_) cursor_->Next();
  given_ = false;
  if (!cursor_->status().ok())
    return failure(path_, str("read record ", position_, " of").c_str(), cursor_->status());
  if (!cursor_->Valid()) {
    count_ = position_;
    return std::optional<RecordView>();
  }
  given_ = true;
  ++position_;
  return std::optional(RecordView{view(cursor_->key()), view(cursor_->value())});
}

void LevelDbSource::rewind() {
  cursor_->SeekToFirst();
  given_ = false;
  position_ = 0;
}

Status LevelDbSource::seek(std::uint64_t position) {
  if (count_ > 0) position %= count_;
  if (!keys_.empty()) {
    position_ = position;
    return {};
  }
  if (position < position_) rewind();
  for (;;) {
    if (given_) cursor_->Next();
    given_ = false;
    if (!cursor_->status().ok())
      return failure(path_, str("read record ", position_, " of").c_str(), cursor_->status());
    if (!cursor_->Valid()) {
      count_ = position_;
      position %= count_;
      rewind();
    }
    if (position_ == position) return {};
    given_ = true;
    ++position_;
  }
}

template <class Visit>
Status LevelDbSource::walk(Visit visit) {
  const std::unique_ptr<leveldb::Iterator> all(db_->NewIterator(read_options(false)));
  for (all->SeekToFirst(); all->Valid(); all->Next()) visit(view(all->key()));
  return all->status().ok() ? Status() : Status(failure(path_, "read", all->status()));
}

Result<std::uint64_t> LevelDbSource::count() {
  if (count_ > 0) return count_;
  std::uint64_t found = 0;
  if (Status walked = walk([&](std::string_view) { ++found; }); !walked.ok()) return walked.error();
  count_ = found;
  return count_;
}

Status LevelDbSource::prepare_random_access() {
  if (!keys_.empty()) return {};
  std::vector<std::string> keys;
  if (Status walked = walk([&](std::string_view key) { keys.emplace_back(key); }); !walked.ok())
    return walked;
  keys_ = std::move(keys);
  count_ = keys_.size();
  return {};
}

class LevelDbWriter final : public RecordWriter {
 public:
  explicit LevelDbWriter(TemporaryDirectory directory) : directory_(std::move(directory)) {}
  Status open();
  Status put(std::string_view key, std::string_view value) override;
  Status commit() override;
  Status finish() override;

 private:
  Result<bool> has(std::string_view key);
  TemporaryDirectory directory_;  // first, so removed after the database in it is closed
  NoLog log_;
  std::unique_ptr<leveldb::DB> db_;
  leveldb::WriteBatch batch_;
  std::set<std::string> pending_;  // keys in batch_
  std::string last_key_;           // the greatest key yet
  std::uint64_t written_ = 0;
};

Status LevelDbWriter::open() {
  leveldb::Options options;
  options.create_if_missing = true;
  options.error_if_exists = true;
  options.info_log = &log_;
  options.max_open_files = kOpenFiles;
  options.block_size = kBlockBytes;
  options.write_buffer_size = kWriteBufferBytes;
  options.paranoid_checks = true;
  leveldb::DB* db = nullptr;
  const leveldb::Status opened = leveldb::DB::Open(options, directory_.working_path(), &db);
  db_.reset(db);
  return opened.ok() ? Status() : Status(failure(directory_.path(), "create", opened));
}

// Converters' keys rise, so the database itself is seldom asked.
Result<bool> LevelDbWriter::has(std::string_view key) {
  if (written_ == 0 || key > last_key_) return false;
  if (pending_.contains(std::string(key))) return true;
  std::string value;
  const leveldb::Status got = db_->Get(leveldb::ReadOptions(), slice(key), &value);
  if (!got.ok() && !got.IsNotFound()) return failure(directory_.path(), "read back from", got);
  return got.ok();
}

Status LevelDbWriter::put(std::string_view key, std::string_view value) {
  if (Status fine = check_record_size(directory_.path(), key, value); !fine.ok()) return fine;
  Result<bool> twice = has(key);
  if (!twice.ok()) return twice.error();
  if (twice.value())
    return Error{Code::kData, str("LevelDB ", directory_.path(), ": the key \"", key,
                                  "\" was put twice; LevelDB holds one record a key")};
  batch_.Put(slice(key), slice(value));
  pending_.emplace(key);
  if (key > last_key_) last_key_ = key;
  ++written_;
  return batch_.ApproximateSize() > kBatchBytes ? commit() : Status();
}

Status LevelDbWriter::commit() {
  const leveldb::Status written = db_->Write(leveldb::WriteOptions(), &batch_);
  batch_.Clear();
  pending_.clear();
  return written.ok() ? Status() : Status(failure(directory_.path(), "write", written));
}

Status LevelDbWriter::finish() {
  if (Status committed = commit(); !committed.ok()) return committed;
  if (written_ == 0)
    return Error{Code::kData,
                 str("no records were given for ", directory_.path(), "; nothing was written")};
  leveldb::WriteOptions synced;
  synced.sync = true;
  leveldb::WriteBatch nothing;
  // Moves the records from the log, whose cut tail LevelDB takes for an end, to tables with
  // checksums.
  db_->CompactRange(nullptr, nullptr);
  // Write says what went wrong in the background, too.
  const leveldb::Status written = db_->Write(synced, &nothing);
  if (!written.ok()) return failure(directory_.path(), "write", written);
  db_.reset();
  return directory_.publish();
}

}  // namespace

Result<std::unique_ptr<RecordSource>> open_leveldb(const std::string& path) {
  auto source = std::make_unique<LevelDbSource>(path);
  if (Status opened = source->open(); !opened.ok()) return opened.error();
  return std::unique_ptr<RecordSource>(std::move(source));
}

Result<std::unique_ptr<RecordWriter>> create_leveldb(const std::string& path, WriteMode mode) {
  Result<TemporaryDirectory> directory = TemporaryDirectory::create(path, mode);
  if (!directory.ok()) return directory.error();
  auto writer = std::make_unique<LevelDbWriter>(std::move(directory).value());
  if (Status opened = writer->open(); !opened.ok()) return opened.error();
  return std::unique_ptr<RecordWriter>(std::move(writer));
}

}  // namespace shoal
