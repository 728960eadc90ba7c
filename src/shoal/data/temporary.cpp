// Implements the directory that a database is built in.
#include "shoal/data/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

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

// Says that the process that fills a directory lives. Returns a descriptor that holds the lock, or
// -1: another has it.
int lock_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 || ::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return -1;
}

// Removes what killed processes left of their work on `path`.
void remove_abandoned(const std::string& path) {
  const std::filesystem::path whole(path);
  const std::string begin = whole.filename().string() + ".tmp.";
  const std::filesystem::path folder = whole.has_parent_path() ? whole.parent_path() : ".";
  std::error_code ignored;
  std::vector<std::string> abandoned;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(begin) ||
        name.find_first_not_of("0123456789", begin.size()) != std::string::npos)
      continue;
    const int fd = lock_directory(entry.path().string());
    if (fd < 0) continue;
    abandoned.push_back(entry.path().string());
    ::close(fd);
  }
  for (const std::string& each : abandoned) remove_all_quietly(each);
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
      lock_(std::exchange(other.lock_, -1)),
      mode_(other.mode_) {}

TemporaryDirectory::~TemporaryDirectory() {
  if (!working_.empty()) remove_all_quietly(working_);
  if (lock_ >= 0) ::close(lock_);
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
  remove_abandoned(path);
  if (::mkdir(working.c_str(), 0777) != 0)
    return Error{Code::kData, str("cannot create ", path, ": ", why_not_created(path, errno))};
  TemporaryDirectory made(path, working, mode);
  made.lock_ = lock_directory(working);
  return made;
}

Status TemporaryDirectory::publish() {
  sync_directory(working_);
  const std::string aside = str(path_, ".old.", ::getpid());
  const bool replaces = mode_ == WriteMode::kTruncate && file_exists(path_);
  if (mode_ == WriteMode::kNew && file_exists(path_))
    return Error{Code::kData,
                 str(path_, " was made by another program in the meantime; it is unchanged")};
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
