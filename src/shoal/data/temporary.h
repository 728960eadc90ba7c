// Makes the directory that a database is built in before it gets its name.
#pragma once

#include <string>

#include "shoal/base/error.h"
#include "shoal/data/record.h"

namespace shoal {

// `path`.tmp.<process>, made empty; removed with all it holds unless publish() succeeded.
class TemporaryDirectory {
 public:
  // Refuses kAppend, and for kNew a `path` that exists.
  static Result<TemporaryDirectory> create(const std::string& path, WriteMode mode);
  TemporaryDirectory(TemporaryDirectory&& other) noexcept;
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }  // the name it will have
  const std::string& working_path() const { return working_; }
  Status publish();  // fsync, rename; the old one, for kTruncate, goes only after that

 private:
  TemporaryDirectory(std::string path, std::string working, WriteMode mode);
  std::string path_, working_;
  int lock_ = -1;  // of working_, while this process fills it
  WriteMode mode_;
};

// Calls fsync on a directory, where the file system has it.
void sync_directory(const std::string& path);

}  // namespace shoal
