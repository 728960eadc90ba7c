// Reads files, and writes them whole or not at all.
#include "shoal/base/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace shoal {
namespace {

constexpr std::size_t kBufferSize = 1 << 20;
constexpr std::size_t kMostPiped = std::size_t{1} << 28;
constexpr std::chrono::seconds kPipeSilence{10};
constexpr int kPipePause = 5;  // milliseconds

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

// Returns where a symbolic link leads: the link stays, and what it points to is replaced.
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
  std::string reason = system_reason(error_number);
  if (error_number == ENOENT && path.find('\\') != std::string::npos)
    reason += "; the name holds a backslash: folders are divided by / here";
  if (error_number != ENOENT || path.starts_with('/')) return reason;
  std::error_code ignored;
  return str(reason, "; the current folder is ", std::filesystem::current_path(ignored).string());
}

std::string why_not_created(const std::string& path, int error_number) {
  const std::string directory = directory_of(path);
  return error_number == ENOENT && !file_exists(directory) ? str("there is no folder ", directory)
                                                           : system_reason(error_number);
}

bool is_full(int error_number) {
  return error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
}

bool file_exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

namespace {

// Waits until a pipe has bytes, or all its writers have gone.
bool wait_for_bytes(int fd, std::chrono::steady_clock::time_point deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
  if (left.count() <= 0) return false;
  if (::poll(&wanted, 1, static_cast<int>(left.count())) > 0 && (wanted.revents & POLLIN) == 0)
    ::poll(nullptr, 0, kPipePause);  // no writer is there
  return true;
}

// Reads all that comes through a pipe until its writers have gone. Returns an error if nothing
// comes for long.
Status read_pipe(int fd, const std::string& path, Code code, std::string& bytes) {
  char block[1 << 16];
  const auto error = [&](const auto&... words) {
    return Error{code, str("cannot read ", path, ", a pipe: ", words...)};
  };
  for (auto deadline = std::chrono::steady_clock::now() + kPipeSilence;;) {
    const ssize_t n = ::read(fd, block, sizeof block);
    if (n == 0 && !bytes.empty()) return {};
    if (n < 0 && errno != EINTR && errno != EAGAIN) return error(system_reason(errno));
    if (n > 0) {
      bytes.append(block, static_cast<std::size_t>(n));
      deadline = std::chrono::steady_clock::now() + kPipeSilence;
      if (bytes.size() > kMostPiped) return error("more than ", kMostPiped, " bytes came");
    } else if (!wait_for_bytes(fd, deadline)) {
      return error("nothing came for ", kPipeSilence.count(), " s");
    }
  }
}

}  // namespace

Result<std::string> read_file(const std::string& path, Code code) {
  struct stat info;
  const auto not_opened = [&] {
    return Error{code, str("cannot open ", path, ": ", why_not_opened(path, errno))};
  };
  if (::stat(path.c_str(), &info) != 0) return not_opened();
  const bool pipe = S_ISFIFO(info.st_mode);
  // A device might have no end.
  if (!pipe && !S_ISREG(info.st_mode))
    return Error{code, str("cannot read ", path, ": ",
                           S_ISDIR(info.st_mode) ? system_reason(EISDIR)
                                                 : std::string("it is no regular file"))};
  // Opening a pipe would wait for its writer for ever.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (pipe ? O_NONBLOCK : 0));
  if (fd < 0) return not_opened();
  std::string bytes;
  Status status;
  if (pipe) {
    status = read_pipe(fd, path, code, bytes);
  } else {
    bytes.reserve(static_cast<std::size_t>(info.st_size));
    char block[1 << 16];
    ssize_t n;
    while ((n = ::read(fd, block, sizeof block)) > 0 || (n < 0 && errno == EINTR))
      if (n > 0) bytes.append(block, static_cast<std::size_t>(n));
    if (n < 0) status = Error{code, str("cannot read ", path, ": ", system_reason(errno))};
  }
  ::close(fd);
  if (!status.ok()) return status.error();
  return bytes;
}

Status write_file(const std::string& path, std::string_view bytes, Code code) {
  Result<AtomicFile> file = AtomicFile::create(path, code);
  if (!file.ok()) return file.error();
  if (Status written = file.value().write(bytes); !written.ok()) return written;
  return file.value().commit();
}

void remove_leftovers(const std::string& prefix) {
  const std::string name = std::filesystem::path(prefix).filename().string();
  const std::string_view ending = ".tmp.XXXXXX";
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory_of(prefix), ignored)) {
    const std::string found = entry.path().filename().string();
    if (!found.starts_with(name) || found.size() < name.size() + ending.size() ||
        found.compare(found.size() - ending.size(), 5, ".tmp.") != 0)
      continue;
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(entry.path().c_str());
    ::close(fd);
  }
}

namespace {

// Opens a device, or a pipe once it has a reader: to wait for that in open() would block signals,
// which the tools take between two steps, for ever.
Result<int> open_in_place(const std::string& path, bool pipe, Code code) {
  const auto deadline = std::chrono::steady_clock::now() + kPipeSilence;
  for (;;) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
      ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
      return fd;
    }
    if (!pipe || errno != ENXIO)
      return Error{code, str("cannot write ", path, ": ", system_reason(errno))};
    if (std::chrono::steady_clock::now() > deadline)
      return Error{code, str("cannot write ", path, ", a pipe: nothing read from it for ",
                             kPipeSilence.count(), " s")};
    ::poll(nullptr, 0, kPipePause);
  }
}

}  // namespace

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
    const Result<int> fd = open_in_place(path, S_ISFIFO(info.st_mode), code);
    if (!fd.ok()) return fd.error();
    return AtomicFile(path, "", fd.value(), code);
  }
  remove_leftovers(path);
  std::string temporary = path + ".tmp.XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return Error{code, str("cannot create ", path, ": ", why_not_created(path, errno))};
  ::flock(fd, LOCK_EX | LOCK_NB);  // says that its writer lives; some file systems know no locks
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(fd, 0666 & ~mask);  // mkstemp's 0600 would hide the result from the user's colleagues
  return AtomicFile(path, temporary, fd, code);
}

Status AtomicFile::fail(const char* doing) const {
  const char* comfort = in_place() ? "" : "; what was there before is untouched";
  return Error{is_full(errno) ? Code::kSnapshot : code_,
               str("cannot ", doing, " ", path_, ": ", system_reason(errno), comfort)};
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
  struct stat info;
  // The reader of a pipe would take the end of a trial for the end of the file.
  if (::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode))
    return ::access(path.c_str(), W_OK) == 0
               ? Status()
               : Error{code, str("cannot write ", path, ": ", system_reason(errno))};
  Result<AtomicFile> probe = AtomicFile::create(path, code);
  if (!probe.ok()) return probe.error();
  return {};
}

}  // namespace shoal
