// LMDB: a directory with data.mdb. Reading maps the file; what a process shows as shared memory for it is the page cache.
#include <lmdb.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/data/backends.h"
#include "shoal/data/temporary.h"

namespace shoal {
namespace {

constexpr std::size_t kFirstMapBytes = std::size_t{1} << 26;   // doubled when full

Error failure(const std::string& path, const char* doing, int code) {
  const char* hint = "";
  if (code == EIO) hint = " (a short write: the disk may be full)";
  if (code == MDB_INVALID || code == MDB_CORRUPTED || code == MDB_PAGE_NOTFOUND) hint = "; the file is corrupt or no LMDB";
  return Error{Code::kData, str("cannot ", doing, " LMDB ", path, ": ", mdb_strerror(code), hint)};
}

struct CloseEnv {
  void operator()(MDB_env* env) const { mdb_env_close(env); }
};
using Env = std::unique_ptr<MDB_env, CloseEnv>;

Result<Env> new_env(const std::string& path) {
  MDB_env* env = nullptr;
  if (const int rc = mdb_env_create(&env); rc != MDB_SUCCESS) return failure(path, "open", rc);
  return Env(env);
}

std::string_view view(const MDB_val& value) { return {static_cast<const char*>(value.mv_data), value.mv_size}; }

MDB_val to_mdb(std::string_view bytes) { return MDB_val{bytes.size(), const_cast<char*>(bytes.data())}; }

class LmdbSource final : public RecordSource {
 public:
  explicit LmdbSource(std::string path) : path_(std::move(path)) {}
  ~LmdbSource() override {
    if (cursor_) mdb_cursor_close(cursor_);
    if (txn_) mdb_txn_abort(txn_);
  }
  Status open();
  const std::string& path() const override { return path_; }
  Result<std::optional<RecordView>> next() override;
  Status seek(std::uint64_t position) override;
  Result<std::uint64_t> count() override { return count_; }
  Status prepare_random_access() override;

 private:
  Status check_file();   // before LMDB maps it
  Status check_size();   // a map past the end of a cut file would end the process at the first touch
  Result<std::optional<RecordView>> checked(MDB_val key, MDB_val value);
  std::string path_;
  Env env_;
  MDB_txn* txn_ = nullptr;
  MDB_dbi dbi_ = 0;
  MDB_cursor* cursor_ = nullptr;
  std::uint64_t count_ = 0, file_bytes_ = 0, position_ = 0;
  std::vector<std::string> keys_;   // empty, or all of them, in order
};

Status LmdbSource::check_file() {
  struct stat info;
  if (::stat(path_.c_str(), &info) != 0)
    return Error{Code::kData, str("cannot open LMDB ", path_, ": ", system_reason(errno))};
  if (!S_ISDIR(info.st_mode) || !file_exists(path_ + "/data.mdb"))
    return Error{Code::kData, str(path_, " is no LMDB, which is a directory that holds data.mdb", kind_hint(path_))};
  if (::stat((path_ + "/data.mdb").c_str(), &info) != 0)
    return Error{Code::kData, str("cannot open ", path_, "/data.mdb: ", system_reason(errno))};
  file_bytes_ = static_cast<std::uint64_t>(info.st_size);
  if (file_bytes_ == 0) return Error{Code::kData, str(path_, "/data.mdb is empty (0 bytes)")};
  return {};
}

Status LmdbSource::check_size() {
  MDB_envinfo info;
  MDB_stat stat;
  mdb_env_info(env_.get(), &info);
  mdb_env_stat(env_.get(), &stat);
  const std::uint64_t needed = (std::uint64_t{info.me_last_pgno} + 1) * stat.ms_psize;
  if (needed > file_bytes_)
    return Error{Code::kData, str(path_, "/data.mdb is cut short: it has ", file_bytes_, " bytes and says that it has ", needed)};
  return {};
}

Status LmdbSource::open() {
  if (Status fine = check_file(); !fine.ok()) return fine;
  Result<Env> env = new_env(path_);
  if (!env.ok()) return env.error();
  env_ = std::move(env).value();
  unsigned flags = MDB_RDONLY | MDB_NORDAHEAD | MDB_NOTLS;
  int rc = mdb_env_open(env_.get(), path_.c_str(), flags, 0664);
  if (rc == EACCES || rc == EPERM || rc == EROFS) {   // no lock file can be made there: nor can a writer come
    env = new_env(path_);
    if (!env.ok()) return env.error();
    env_ = std::move(env).value();
    rc = mdb_env_open(env_.get(), path_.c_str(), flags | MDB_NOLOCK, 0664);
  }
  if (rc != MDB_SUCCESS) return failure(path_, "open", rc);
  if (Status fine = check_size(); !fine.ok()) return fine;
  if ((rc = mdb_txn_begin(env_.get(), nullptr, MDB_RDONLY, &txn_)) != MDB_SUCCESS) return failure(path_, "read", rc);
  if ((rc = mdb_dbi_open(txn_, nullptr, 0, &dbi_)) != MDB_SUCCESS) return failure(path_, "read", rc);
  if ((rc = mdb_cursor_open(txn_, dbi_, &cursor_)) != MDB_SUCCESS) return failure(path_, "read", rc);
  MDB_stat stat;
  if ((rc = mdb_stat(txn_, dbi_, &stat)) != MDB_SUCCESS) return failure(path_, "read", rc);
  count_ = stat.ms_entries;
  if (count_ == 0) return Error{Code::kData, str("LMDB ", path_, " has no records")};
  return {};
}

Result<std::optional<RecordView>> LmdbSource::checked(MDB_val key, MDB_val value) {
  if (value.mv_size > file_bytes_ || key.mv_size > file_bytes_)
    return Error{Code::kData, str("LMDB ", path_, ": record ", position_, " has an impossible size; the file is corrupt")};
  ++position_;
  return std::optional(RecordView{view(key), view(value)});
}

Result<std::optional<RecordView>> LmdbSource::next() {
  if (position_ >= count_) return std::optional<RecordView>();
  MDB_val key{}, value{};
  int rc;
  if (!keys_.empty()) {
    key = to_mdb(keys_[position_]);
    rc = mdb_get(txn_, dbi_, &key, &value);
  } else {
    rc = mdb_cursor_get(cursor_, &key, &value, position_ == 0 ? MDB_FIRST : MDB_NEXT);
  }
  if (rc == MDB_NOTFOUND)
    return Error{Code::kData, str("LMDB ", path_, " says that it has ", count_, " records and holds ", position_, "; it is corrupt")};
  if (rc != MDB_SUCCESS) return failure(path_, "read", rc);
  return checked(key, value);
}

Status LmdbSource::seek(std::uint64_t position) {
  position %= count_;
  if (!keys_.empty()) {
    position_ = position;
    return {};
  }
  if (position < position_) position_ = 0;
  while (position_ < position) {
    Result<std::optional<RecordView>> skipped = next();
    if (!skipped.ok()) return skipped.error();
  }
  return {};
}

Status LmdbSource::prepare_random_access() {
  if (!keys_.empty()) return {};
  const std::uint64_t before = position_;
  std::vector<std::string> keys;
  keys.reserve(count_);
  for (position_ = 0; position_ < count_;) {
    Result<std::optional<RecordView>> record = next();
    if (!record.ok()) return record.error();
    keys.emplace_back(record.value()->key);
  }
  keys_ = std::move(keys);
  position_ = before;
  return {};
}

// Puts wait in memory until commit(), which can so begin again with a larger map.
class LmdbWriter final : public RecordWriter {
 public:
  explicit LmdbWriter(TemporaryDirectory directory) : directory_(std::move(directory)) {}
  Status open();
  Status put(std::string_view key, std::string_view value) override;
  Status commit() override;
  Status finish() override;

 private:
  int try_commit();   // LMDB's code; a key that is there already is kept in twice_
  TemporaryDirectory directory_;
  Env env_;
  std::size_t map_bytes_ = kFirstMapBytes, pending_bytes_ = 0;
  std::uint64_t written_ = 0;
  std::vector<std::pair<std::string, std::string>> pending_;
  std::string twice_;
};

Status LmdbWriter::open() {
  Result<Env> env = new_env(directory_.path());
  if (!env.ok()) return env.error();
  env_ = std::move(env).value();
  mdb_env_set_mapsize(env_.get(), map_bytes_);
  const int rc = mdb_env_open(env_.get(), directory_.working_path().c_str(), MDB_NOSYNC | MDB_NOLOCK, 0666);
  if (rc != MDB_SUCCESS) return failure(directory_.path(), "create", rc);
  return {};
}

Status LmdbWriter::put(std::string_view key, std::string_view value) {
  if (Status fine = check_record_size(directory_.path(), key, value); !fine.ok()) return fine;
  const std::size_t longest = static_cast<std::size_t>(mdb_env_get_maxkeysize(env_.get()));
  if (key.empty() || key.size() > longest)
    return Error{Code::kData, str("LMDB ", directory_.path(), ": the key \"", key.substr(0, 80), "\" has ", key.size(),
                                  " bytes; LMDB takes 1 to ", longest)};
  pending_.emplace_back(key, value);
  pending_bytes_ += key.size() + value.size();
  return pending_bytes_ > kFirstMapBytes ? commit() : Status();
}

int LmdbWriter::try_commit() {
  MDB_txn* txn = nullptr;
  MDB_dbi dbi = 0;
  int rc = mdb_txn_begin(env_.get(), nullptr, 0, &txn);
  if (rc != MDB_SUCCESS) return rc;
  rc = mdb_dbi_open(txn, nullptr, 0, &dbi);
  for (std::size_t i = 0; rc == MDB_SUCCESS && i < pending_.size(); ++i) {
    MDB_val key = to_mdb(pending_[i].first), value = to_mdb(pending_[i].second);
    rc = mdb_put(txn, dbi, &key, &value, MDB_NOOVERWRITE);
    if (rc == MDB_KEYEXIST) twice_ = pending_[i].first;
  }
  if (rc == MDB_SUCCESS) return mdb_txn_commit(txn);
  mdb_txn_abort(txn);
  return rc;
}

Status LmdbWriter::commit() {
  if (pending_.empty()) return {};
  int rc = try_commit();
  while (rc == MDB_MAP_FULL) {
    map_bytes_ *= 2;
    VLOG(1) << "LMDB " << directory_.path() << ": the map is full, doubled to " << map_bytes_ << " bytes";
    if (const int grown = mdb_env_set_mapsize(env_.get(), map_bytes_); grown != MDB_SUCCESS)
      return failure(directory_.path(), "enlarge the map of", grown);
    rc = try_commit();
  }
  if (rc == MDB_KEYEXIST)
    return Error{Code::kData, str("LMDB ", directory_.path(), ": the key \"", twice_, "\" was put twice; LMDB holds one record a key")};
  if (rc != MDB_SUCCESS) return failure(directory_.path(), "write", rc);
  written_ += pending_.size();
  pending_.clear();
  pending_bytes_ = 0;
  return {};
}

Status LmdbWriter::finish() {
  if (Status committed = commit(); !committed.ok()) return committed;
  if (written_ == 0) return Error{Code::kData, str("no records were given for ", directory_.path(), "; nothing was written")};
  if (const int rc = mdb_env_sync(env_.get(), 1); rc != MDB_SUCCESS) return failure(directory_.path(), "write", rc);
  env_.reset();
  return directory_.publish();
}

}  // namespace

Result<std::unique_ptr<RecordSource>> open_lmdb(const std::string& path) {
  auto source = std::make_unique<LmdbSource>(path);
  if (Status opened = source->open(); !opened.ok()) return opened.error();
  return std::unique_ptr<RecordSource>(std::move(source));
}

Result<std::unique_ptr<RecordWriter>> create_lmdb(const std::string& path, WriteMode mode) {
  Result<TemporaryDirectory> directory = TemporaryDirectory::create(path, mode);
  if (!directory.ok()) return directory.error();
  auto writer = std::make_unique<LmdbWriter>(std::move(directory).value());
  if (Status opened = writer->open(); !opened.ok()) return opened.error();
  return std::unique_ptr<RecordWriter>(std::move(writer));
}

}  // namespace shoal
