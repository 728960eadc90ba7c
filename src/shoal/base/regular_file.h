// Opens files of the user's for reading without waiting: to open a pipe would wait for its writer
// for ever, and a device might have no end.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "shoal/base/error.h"

namespace shoal {

// Fails with `code` where `path` leads to something that is no regular file. A path that leads
// nowhere is for its opener to name. For libraries that open files by their names.
Status check_regular(const std::string& path, Code code);

// An open regular file, read from its beginning.
class RegularFile {
 public:
  // Errors carry `code`, the path and the reason.
  static Result<RegularFile> open(const std::string& path, Code code);
  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&&) = delete;
  ~RegularFile();
  // Fills `block` as far as the file reaches. Returns how many bytes came; 0 at the end.
  Result<std::size_t> read(std::span<char> block);
  int descriptor() const { return fd_; }
  std::uint64_t size() const { return size_; }  // when it was opened

 private:
  RegularFile(std::string path, int fd, std::uint64_t size, Code code);
  std::string path_;
  int fd_;
  std::uint64_t size_;
  Code code_;
};

}  // namespace shoal
