// Implements the directory that a database is built in.
#include "shoal/data/temporary.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "shoal/base/file.h"

namespace shoal {
namespace {

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

void remove_all_quietly(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

TemporaryDirectory::TemporaryDirectory(std::string path, std::string working, WriteMode mode)
    : path_(std::move(path)), working_(std::move(working)), mode_(mode) {}

TemporaryDirectory::TemporaryDirectory(TemporaryDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      working_(std::exchange(other.working_, {})),
      mode_(other.mode_) {}

TemporaryDirectory::~TemporaryDirectory() {
  if (!working_.empty()) remove_all_quietly(working_);
}

Result<TemporaryDirectory> TemporaryDirectory::create(const std::string& given, WriteMode mode) {
  const std::string path = without_slash(given);
  if (path.empty()) return Error{Code::kData, "no name was given for the database to write"};
  if (mode == WriteMode::kAppend)
    return Error{Code::kData,
                 str("cannot append to ", path, ": only a datumfile can be appended to")};
  if (mode == WriteMode::kNew && file_exists(path))
    return Error{Code::kData, str(path, " exists already; remove it or choose another name")};
  const std::string working = str(path, ".tmp.", ::getpid());
  remove_all_quietly(working);  // only a dead process of our own number can have left it
  if (::mkdir(working.c_str(), 0777) != 0)
    return Error{Code::kData, str("cannot create ", path, ": ", why_not_created(path, errno))};
  return TemporaryDirectory(path, working, mode);
}

Status TemporaryDirectory::publish() {
  sync_directory(working_);
  const std::string aside = str(path_, ".old.", ::getpid());
  const bool replaces = mode_ == WriteMode::kTruncate && file_exists(path_);
  if (mode_ == WriteMode::kNew && file_exists(path_))
    return Error{Code::kData, str(path_, " was made by somebody else meanwhile; it is untouched")};
  if (replaces && std::rename(path_.c_str(), aside.c_str()) != 0)
    return Error{Code::kData, str("cannot move the old ", path_, " aside: ", system_reason(errno))};
  if (std::rename(working_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    if (replaces) std::rename(aside.c_str(), path_.c_str());
    return Error{Code::kData, str("cannot rename the finished database to ", path_, ": ",
                                  system_reason(reason))};
  }
  working_.clear();
  if (replaces) remove_all_quietly(aside);
  const std::string parent = std::filesystem::path(path_).parent_path().string();
  sync_directory(parent.empty() ? "." : parent);
  return {};
}

}  // namespace shoal
