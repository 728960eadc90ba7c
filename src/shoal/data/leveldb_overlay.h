// Keeps a LevelDB that is only read from being written: LevelDB makes a lock, a log, a manifest and
// compactions even then. Over this environment these stay in memory, so that many processes can
// read a database at once, also from a read-only share, and leave it as it was.
#pragma once

#include <leveldb/env.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shoal/base/mutex.h"

namespace shoal {

// LevelDB's own threads call it, too; the maps are guarded. Outlives the database that is opened
// over it.
class LevelDbOverlay final : public leveldb::EnvWrapper {
 public:
  using Bytes = std::shared_ptr<std::string>;

  LevelDbOverlay();
  // Refuses new files from now on: a compaction, which reading can set off, then ends at once and
  // takes no memory.
  void seal();

  leveldb::Status NewSequentialFile(const std::string& name,
                                    leveldb::SequentialFile** file) override;
  leveldb::Status NewRandomAccessFile(const std::string& name,
                                      leveldb::RandomAccessFile** file) override;
  leveldb::Status NewWritableFile(const std::string& name, leveldb::WritableFile** file) override;
  leveldb::Status NewAppendableFile(const std::string& name, leveldb::WritableFile** file) override;
  bool FileExists(const std::string& name) override;
  leveldb::Status GetChildren(const std::string& directory,
                              std::vector<std::string>* children) override;
  leveldb::Status RemoveFile(const std::string& name) override;
  leveldb::Status CreateDir(const std::string& name) override;
  leveldb::Status GetFileSize(const std::string& name, std::uint64_t* size) override;
  leveldb::Status RenameFile(const std::string& from, const std::string& to) override;
  leveldb::Status LockFile(const std::string& name, leveldb::FileLock** lock) override;
  leveldb::Status UnlockFile(leveldb::FileLock* lock) override;

 private:
  Bytes find(const std::string& name);  // in memory, or nothing
  bool removed(const std::string& name);
  Mutex mutex_;
  std::map<std::string, Bytes> files_ GUARDED_BY(mutex_);
  // Files on disk that are gone as far as this database knows.
  std::set<std::string> removed_ GUARDED_BY(mutex_);
  bool sealed_ GUARDED_BY(mutex_) = false;
};

}  // namespace shoal
