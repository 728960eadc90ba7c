// Reads and writes LMDB databases: directories with data.mdb.
#include <lmdb.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/data/backends.h"
#include "shoal/data/lmdb_pages.h"
#include "shoal/data/temporary.h"

namespace shoal {
namespace {

constexpr std::size_t kFirstMapBytes = std::size_t{1} << 26;  // doubled when full

Error failure(const std::string& path, const char* doing, int code) {
  const char* hint = "";
  if (code == EIO) hint = " (a short write: the disk may be full)";
  if (code == MDB_INVALID || code == MDB_CORRUPTED || code == MDB_PAGE_NOTFOUND)
    hint = "; the file is corrupt or no LMDB";
  const bool full = is_full(code) || (code == EIO && std::string_view(doing) == "write");
  return Error{full ? Code::kSnapshot : Code::kData,
               str("cannot ", doing, " LMDB ", path, ": ", mdb_strerror(code), hint)};
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

MDB_val to_mdb(std::string_view bytes) {
  return MDB_val{bytes.size(), const_cast<char*>(bytes.data())};
}

Status check_kind(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0)
    return Error{Code::kData, str("cannot open LMDB ", path, ": ", why_not_opened(path, errno))};
  if (!S_ISDIR(info.st_mode) || !file_exists(path + "/data.mdb"))
    return Error{Code::kData, str(path, " is no LMDB, which is a directory that holds data.mdb",
                                  kind_hint(path))};
  return {};
}

// LMDB holds the lock of a reader, which keeps writers from reusing our pages; the pages are read
// by lmdb_pages.h.
class LmdbSource final : public RecordSource {
 public:
  LmdbSource(std::string path, LmdbPages pages)
      : path_(std::move(path)), pages_(std::move(pages)) {}
  ~LmdbSource() override {
    if (txn_) mdb_txn_abort(txn_);
  }
  Status open();
  const std::string& path() const override { return path_; }
  Result<std::optional<RecordView>> next() override;
  Status seek(std::uint64_t position) override;
  Result<std::uint64_t> count() override { return pages_.count(); }
  Status prepare_random_access() override;

 private:
  std::string path_;
  LmdbPages pages_;
  Env env_;
  MDB_txn* txn_ = nullptr;
  std::uint64_t position_ = 0;            // of the next record
  std::vector<LmdbPages::Place> places_;  // empty, or of all records
  std::string last_key_;                  // in order, to see that keys rise
};

Status LmdbSource::open() {
  Result<Env> env = new_env(path_);
  if (!env.ok()) return env.error();
  env_ = std::move(env).value();
  const unsigned flags = MDB_RDONLY | MDB_NORDAHEAD | MDB_NOTLS;
  int rc = mdb_env_open(env_.get(), path_.c_str(), flags, 0664);
  // No lock file can be made there: nor can a writer come.
  if (rc == EACCES || rc == EPERM || rc == EROFS) {
    env = new_env(path_);
    if (!env.ok()) return env.error();
    env_ = std::move(env).value();
    rc = mdb_env_open(env_.get(), path_.c_str(), flags | MDB_NOLOCK, 0664);
  }
  if (rc != MDB_SUCCESS) return failure(path_, "open", rc);
  if ((rc = mdb_txn_begin(env_.get(), nullptr, MDB_RDONLY, &txn_)) != MDB_SUCCESS)
    return failure(path_, "read", rc);
  if (Status chosen = pages_.choose(mdb_txn_id(txn_)); !chosen.ok()) return chosen;
  if (pages_.count() == 0) return Error{Code::kData, str("LMDB ", path_, " has no records")};
  return {};
}

Result<std::optional<RecordView>> LmdbSource::next() {
  if (position_ >= pages_.count()) return std::optional<RecordView>();
  LmdbPages::Place place;
  if (!places_.empty()) {
    place = places_[position_];
  } else {
    Result<std::optional<LmdbPages::Place>> found = pages_.next_place();
    if (!found.ok()) return found.error();
    // count() says that there is one, and next_place fails where that is not so.
    place = found.value().value();
  }
  Result<RecordView> record = pages_.record(place);
  if (!record.ok()) return record.error();
  if (places_.empty()) {
    if (position_ > 0 && record.value().key <= last_key_)
      return Error{Code::kData, str("LMDB ", path_, ": record ", position_,
                                    " is out of order; the file is corrupt")};
    last_key_ = record.value().key;
  }
  ++position_;
  return std::optional(record.value());
}

Status LmdbSource::seek(std::uint64_t position) {
  position %= pages_.count();
  if (!places_.empty()) {
    position_ = position;
    return {};
  }
  if (position < position_) {
    pages_.rewind();
    position_ = 0;
  }
  if (position > position_) last_key_.clear();
  for (; position_ < position; ++position_)
    if (Result<std::optional<LmdbPages::Place>> skipped = pages_.next_place(); !skipped.ok())
      return skipped.error();
  return {};
}

Status LmdbSource::prepare_random_access() {
  if (!places_.empty()) return {};
  std::vector<LmdbPages::Place> places;
  places.reserve(std::min<std::uint64_t>(pages_.count(), 1 << 20));
  pages_.rewind();
  for (;;) {
    Result<std::optional<LmdbPages::Place>> place = pages_.next_place();
    if (!place.ok()) return place.error();
    if (!place.value()) break;
    places.push_back(*place.value());
  }
  places_ = std::move(places);
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
  int try_commit();  // LMDB's code; a key that is there already is kept in twice_
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
  const int rc =
      mdb_env_open(env_.get(), directory_.working_path().c_str(), MDB_NOSYNC | MDB_NOLOCK, 0666);
  if (rc != MDB_SUCCESS) return failure(directory_.path(), "create", rc);
  return {};
}

Status LmdbWriter::put(std::string_view key, std::string_view value) {
  if (Status fine = check_record_size(directory_.path(), key, value); !fine.ok()) return fine;
  const std::size_t longest = static_cast<std::size_t>(mdb_env_get_maxkeysize(env_.get()));
  if (key.empty() || key.size() > longest)
    return Error{Code::kData, str("LMDB ", directory_.path(), ": the key \"", key.substr(0, 80),
                                  "\" has ", key.size(), " bytes; LMDB takes 1 to ", longest)};
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
    VLOG(1) << "LMDB " << directory_.path() << ": the map is full, doubled to " << map_bytes_
            << " bytes";
    if (const int grown = mdb_env_set_mapsize(env_.get(), map_bytes_); grown != MDB_SUCCESS)
      return failure(directory_.path(), "enlarge the map of", grown);
    rc = try_commit();
  }
  if (rc == MDB_KEYEXIST)
    return Error{Code::kData, str("LMDB ", directory_.path(), ": the key \"", twice_,
                                  "\" was put twice; LMDB holds one record a key")};
  if (rc != MDB_SUCCESS) return failure(directory_.path(), "write", rc);
  written_ += pending_.size();
  pending_.clear();
  pending_bytes_ = 0;
  return {};
}

Status LmdbWriter::finish() {
  if (Status committed = commit(); !committed.ok()) return committed;
  if (written_ == 0)
    return Error{Code::kData,
                 str("no records were given for ", directory_.path(), "; nothing was written")};
  if (const int rc = mdb_env_sync(env_.get(), 1); rc != MDB_SUCCESS)
    return failure(directory_.path(), "write", rc);
  env_.reset();
  return directory_.publish();
}

}  // namespace

Result<std::unique_ptr<RecordSource>> open_lmdb(const std::string& path) {
  if (Status fine = check_kind(path); !fine.ok()) return fine.error();
  Result<LmdbPages> pages = LmdbPages::open(path + "/data.mdb");
  if (!pages.ok()) return pages.error();
  auto source = std::make_unique<LmdbSource>(path, std::move(pages).value());
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
