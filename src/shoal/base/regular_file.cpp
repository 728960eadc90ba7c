#include "shoal/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "shoal/base/file.h"

namespace shoal {
namespace {

const char* kind_of_mode(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

Error not_regular(const std::string& path, mode_t mode, Code code) {
  return Error{code, str(path, " is ", kind_of_mode(mode), ", and a regular file is needed")};
}

}  // namespace

Status check_regular(const std::string& path, Code code) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return {};
  return not_regular(path, info.st_mode, code);
}

Result<RegularFile> RegularFile::open(const std::string& path, Code code) {
  // First by its name: to open a pipe would tell its writer that it has a reader.
  if (Status regular = check_regular(path, code); !regular.ok()) return regular.error();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info;
  if (fd < 0 || ::fstat(fd, &info) != 0) {
    const int reason = errno;
    if (fd >= 0) ::close(fd);
    return Error{code, str("cannot open ", path, ": ", why_not_opened(path, reason))};
  }
  RegularFile file(path, fd, static_cast<std::uint64_t>(info.st_size), code);
  if (!S_ISREG(info.st_mode)) return not_regular(path, info.st_mode, code);
  return file;
}

RegularFile::RegularFile(std::string path, int fd, std::uint64_t size, Code code)
    : path_(std::move(path)), fd_(fd), size_(size), code_(code) {}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      code_(other.code_) {}

RegularFile::~RegularFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::size_t> RegularFile::read(std::span<char> block) {
  std::size_t filled = 0;
  while (filled < block.size()) {
    const ssize_t n = ::read(fd_, block.data() + filled, block.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{code_, str("cannot read ", path_, ": ", system_reason(errno))};
    if (n == 0) break;
    filled += static_cast<std::size_t>(n);
  }
  return filled;
}

}  // namespace shoal
