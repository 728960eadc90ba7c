// Reads files, and writes them whole or not at all.
#include "shoal/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace shoal {
namespace {

constexpr std::size_t kBufferSize = 1 << 20;

std::string directory_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

Status write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{};
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

// Where a symbolic link leads: the link stays, and what it points to is replaced.
std::string behind_links(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

}  // namespace

std::string system_reason(int error_number) {
  return std::generic_category().message(error_number);
}

std::string why_not_opened(const std::string& path, int error_number) {
  const std::string reason = system_reason(error_number);
  if (error_number != ENOENT || path.starts_with('/')) return reason;
  std::error_code ignored;
  return str(reason, "; the current folder is ", std::filesystem::current_path(ignored).string());
}

std::string why_not_created(const std::string& path, int error_number) {
  const std::string directory = directory_of(path);
  return error_number == ENOENT && !file_exists(directory) ? str("there is no folder ", directory)
                                                           : system_reason(error_number);
}

bool file_exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

Result<std::string> read_file(const std::string& path, Code code) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Error{code, str("cannot open ", path, ": ", why_not_opened(path, errno))};
  std::string bytes;
  struct stat info;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
    bytes.reserve(static_cast<std::size_t>(info.st_size));
  char block[1 << 16];
  ssize_t n;
  while ((n = ::read(fd, block, sizeof block)) > 0 || (n < 0 && errno == EINTR))
    if (n > 0) bytes.append(block, static_cast<std::size_t>(n));
  const int reason = errno;
  ::close(fd);
  if (n < 0) return Error{code, str("cannot read ", path, ": ", system_reason(reason))};
  return bytes;
}

Status write_file(const std::string& path, std::string_view bytes, Code code) {
  Result<AtomicFile> file = AtomicFile::create(path, code);
  if (!file.ok()) return file.error();
  if (Status written = file.value().write(bytes); !written.ok()) return written;
  return file.value().commit();
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int fd, Code code)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd), code_(code) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      buffer_(std::move(other.buffer_)),
      fd_(std::exchange(other.fd_, -1)),
      code_(other.code_) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!in_place()) ::unlink(temporary_.c_str());
}

Result<AtomicFile> AtomicFile::create(const std::string& given, Code code) {
  const std::string path = behind_links(given);
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    const int fd =
        S_ISDIR(info.st_mode) ? (errno = EISDIR, -1) : ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return Error{code, str("cannot write ", path, ": ", system_reason(errno))};
    return AtomicFile(path, "", fd, code);
  }
  std::string temporary = path + ".tmp.XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return Error{code, str("cannot create ", path, ": ", why_not_created(path, errno))};
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(fd, 0666 & ~mask);  // mkstemp's 0600 would hide the result from the user's colleagues
  return AtomicFile(path, temporary, fd, code);
}

Status AtomicFile::fail(const char* doing) const {
  const char* comfort = in_place() ? "" : "; what was there before is untouched";
  return Error{code_, str("cannot ", doing, " ", path_, ": ", system_reason(errno), comfort)};
}

Status AtomicFile::write(std::string_view bytes) {
  if (buffer_.size() + bytes.size() < kBufferSize) {
    buffer_ += bytes;
    return {};
  }
  if (!write_all(fd_, buffer_).ok()) return fail("write");
  buffer_.clear();
  if (!write_all(fd_, bytes).ok()) return fail("write");
  return {};
}

Status AtomicFile::flush() {
  if (!write_all(fd_, buffer_).ok()) return fail("write");
  buffer_.clear();
  if (!in_place() && ::fsync(fd_) != 0) return fail("flush");
  return {};
}

Status AtomicFile::commit() {
  if (Status flushed = flush(); !flushed.ok()) return flushed;
  if (!in_place() && ::rename(temporary_.c_str(), path_.c_str()) != 0)
    return fail("rename the temporary file to");
  ::close(std::exchange(fd_, -1));
  if (in_place()) return {};
  const int directory = ::open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);  // some file systems refuse this; the rename itself has happened
    ::close(directory);
  }
  return {};
}

Status check_writable(const std::string& path, Code code) {
  Result<AtomicFile> probe = AtomicFile::create(path, code);
  if (!probe.ok()) return probe.error();
  return {};
}

}  // namespace shoal
