// Reads files, and writes them whole or not at all: a temporary file in the same directory, fsync,
// rename, fsync of the directory. A device or a pipe (/dev/stdout) is written directly, and a
// symbolic link stays one.
#pragma once

#include <string>
#include <string_view>

#include "shoal/base/error.h"

namespace shoal {

// Returns the whole file, or what comes through a pipe until its writers have gone. Errors carry
// `code`, the path and the reason: a device or a folder, a pipe that is silent for ten seconds, and
// the system's.
Result<std::string> read_file(const std::string& path, Code code = Code::kConfig);

// Puts `bytes` at `path`, or leaves what was there untouched. Errors carry `code`.
Status write_file(const std::string& path, std::string_view bytes, Code code);

// A file being written: nothing is seen under `path` until commit(), and a destroyed uncommitted
// one leaves no trace.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path, Code code);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();
  Status write(std::string_view bytes);
  Status flush();   // all bytes on the disk, still under the temporary name
  Status commit();  // flush, fsync, rename, fsync of the directory
  // Returns where the bytes are until commit(), for a library that writes files by their names; ""
  // for a device or a pipe.
  const std::string& temporary() const { return temporary_; }

 private:
  AtomicFile(std::string path, std::string temporary, int fd, Code code);
  Status fail(const char* doing) const;  // with errno
  // Returns whether the file is a device or a pipe, which has no temporary file.
  bool in_place() const { return temporary_.empty(); }
  std::string path_, temporary_, buffer_;
  int fd_;
  Code code_;
};

// Removes temporary files of paths that begin so, whose writers were killed. create() does so for
// its own path.
void remove_leftovers(const std::string& prefix);

// Fails, naming the directory and the reason, unless a file named `path` could be created now.
Status check_writable(const std::string& path, Code code);

bool file_exists(const std::string& path);
// Returns whether a failed call's errno says that a disk, or its user's part of it, is full.
bool is_full(int error_number);
// Returns the text of errno after a failed call.
std::string system_reason(int error_number);
// Returns why `path` could not be opened, with the current folder if a relative path leads nowhere
// from it.
std::string why_not_opened(const std::string& path, int error_number);
// Returns why `path` could not be created, naming its folder if that is missing.
std::string why_not_created(const std::string& path, int error_number);

}  // namespace shoal
