// Implements the read-only view of a LevelDB directory.
#include "shoal/data/leveldb_overlay.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "shoal/base/regular_file.h"

namespace shoal {
namespace {

class MemorySequential final : public leveldb::SequentialFile {
 public:
  explicit MemorySequential(LevelDbOverlay::Bytes bytes) : bytes_(std::move(bytes)) {}
  leveldb::Status Read(std::size_t n, leveldb::Slice* result, char* scratch) override {
    const std::size_t count = std::min(n, bytes_->size() - at_);
    std::memcpy(scratch, bytes_->data() + at_, count);
    *result = leveldb::Slice(scratch, count);
    at_ += count;
    return leveldb::Status::OK();
  }
  leveldb::Status Skip(std::uint64_t n) override {
    at_ += std::min<std::size_t>(n, bytes_->size() - at_);
    return leveldb::Status::OK();
  }

 private:
  LevelDbOverlay::Bytes bytes_;
  std::size_t at_ = 0;
};

class MemoryRandomAccess final : public leveldb::RandomAccessFile {
 public:
  explicit MemoryRandomAccess(LevelDbOverlay::Bytes bytes) : bytes_(std::move(bytes)) {}
  leveldb::Status Read(std::uint64_t offset, std::size_t n, leveldb::Slice* result,
                       char*) const override {
    if (offset > bytes_->size())
      return leveldb::Status::IOError("read past the end of a file in memory");
    *result =
        leveldb::Slice(bytes_->data() + offset, std::min<std::size_t>(n, bytes_->size() - offset));
    return leveldb::Status::OK();
  }

 private:
  LevelDbOverlay::Bytes bytes_;
};

// LevelDB writes a file to its end before it opens it for reading, and does both under its own
// lock.
class MemoryWritable final : public leveldb::WritableFile {
 public:
  explicit MemoryWritable(LevelDbOverlay::Bytes bytes) : bytes_(std::move(bytes)) {}
  leveldb::Status Append(const leveldb::Slice& data) override {
    bytes_->append(data.data(), data.size());
    return leveldb::Status::OK();
  }
  leveldb::Status Close() override { return leveldb::Status::OK(); }
  leveldb::Status Flush() override { return leveldb::Status::OK(); }
  leveldb::Status Sync() override { return leveldb::Status::OK(); }

 private:
  LevelDbOverlay::Bytes bytes_;
};

// Refuses what LevelDB would wait for when it opens it.
leveldb::Status check(const std::string& name) {
  const Status regular = check_regular(name, Code::kData);
  return regular.ok() ? leveldb::Status::OK() : leveldb::Status::IOError(regular.error().message);
}

class NoLock final : public leveldb::FileLock {};

}  // namespace

LevelDbOverlay::LevelDbOverlay() : EnvWrapper(leveldb::Env::Default()) {}

void LevelDbOverlay::seal() {
  MutexLock lock(mutex_);
  sealed_ = true;
}

LevelDbOverlay::Bytes LevelDbOverlay::find(const std::string& name) {
  MutexLock lock(mutex_);
  const auto found = files_.find(name);
  return found == files_.end() ? nullptr : found->second;
}

bool LevelDbOverlay::removed(const std::string& name) {
  MutexLock lock(mutex_);
  return removed_.contains(name);
}

leveldb::Status LevelDbOverlay::NewSequentialFile(const std::string& name,
                                                  leveldb::SequentialFile** file) {
  *file = nullptr;
  if (removed(name)) return leveldb::Status::NotFound(name);
  const Bytes bytes = find(name);
  if (!bytes) {
    const leveldb::Status fine = check(name);
    return fine.ok() ? target()->NewSequentialFile(name, file) : fine;
  }
  *file = std::make_unique<MemorySequential>(bytes).release();
  return leveldb::Status::OK();
}

leveldb::Status LevelDbOverlay::NewRandomAccessFile(const std::string& name,
                                                    leveldb::RandomAccessFile** file) {
  *file = nullptr;
  if (removed(name)) return leveldb::Status::NotFound(name);
  const Bytes bytes = find(name);
  if (!bytes) {
    const leveldb::Status fine = check(name);
    return fine.ok() ? target()->NewRandomAccessFile(name, file) : fine;
  }
  *file = std::make_unique<MemoryRandomAccess>(bytes).release();
  return leveldb::Status::OK();
}

leveldb::Status LevelDbOverlay::NewWritableFile(const std::string& name,
                                                leveldb::WritableFile** file) {
  *file = nullptr;
  MutexLock lock(mutex_);
  if (sealed_) return leveldb::Status::IOError(name, "opened for reading only");
  removed_.erase(name);
  files_[name] = std::make_shared<std::string>();
  *file = std::make_unique<MemoryWritable>(files_[name]).release();
  return leveldb::Status::OK();
}

leveldb::Status LevelDbOverlay::NewAppendableFile(const std::string& name,
                                                  leveldb::WritableFile** file) {
  *file = nullptr;
  return leveldb::Status::NotSupported(name, "opened for reading only");
}

bool LevelDbOverlay::FileExists(const std::string& name) {
  return find(name) != nullptr || (!removed(name) && target()->FileExists(name));
}

leveldb::Status LevelDbOverlay::GetChildren(const std::string& directory,
                                            std::vector<std::string>* children) {
  const leveldb::Status status = target()->GetChildren(directory, children);
  if (!status.ok()) return status;
  std::set<std::string> names(children->begin(), children->end());
  const std::string prefix = directory + "/";
  MutexLock lock(mutex_);
  for (const auto& [name, bytes] : files_)
    if (name.starts_with(prefix)) names.insert(name.substr(prefix.size()));
  for (const std::string& name : removed_)
    if (name.starts_with(prefix)) names.erase(name.substr(prefix.size()));
  children->assign(names.begin(), names.end());
  return leveldb::Status::OK();
}

leveldb::Status LevelDbOverlay::RemoveFile(const std::string& name) {
  MutexLock lock(mutex_);
  files_.erase(name);
  removed_.insert(name);
  return leveldb::Status::OK();
}

leveldb::Status LevelDbOverlay::CreateDir(const std::string&) { return leveldb::Status::OK(); }

leveldb::Status LevelDbOverlay::GetFileSize(const std::string& name, std::uint64_t* size) {
  if (removed(name)) return leveldb::Status::NotFound(name);
  const Bytes bytes = find(name);
  if (!bytes) return target()->GetFileSize(name, size);
  *size = bytes->size();
  return leveldb::Status::OK();
}

leveldb::Status LevelDbOverlay::RenameFile(const std::string& from, const std::string& to) {
  MutexLock lock(mutex_);
  const auto found = files_.find(from);
  if (found == files_.end()) return leveldb::Status::NotSupported(from, "opened for reading only");
  files_[to] = found->second;
  removed_.erase(to);
  files_.erase(from);
  removed_.insert(from);
  return leveldb::Status::OK();
}

leveldb::Status LevelDbOverlay::LockFile(const std::string&, leveldb::FileLock** lock) {
  *lock = std::make_unique<NoLock>().release();
  return leveldb::Status::OK();
}

leveldb::Status LevelDbOverlay::UnlockFile(leveldb::FileLock* lock) {
  const std::unique_ptr<leveldb::FileLock> owned(lock);
  return leveldb::Status::OK();
}

}  // namespace shoal
