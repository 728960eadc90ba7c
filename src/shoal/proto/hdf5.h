// Reads and writes arrays of numbers in HDF5 files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

// Returns why this build has no HDF5, and how to get it; "" if it has.
std::string why_no_hdf5();

// An open HDF5 file. An array is named by its path in the file, as in "data/ip1/0". Errors carry
// the code that open was given, the file, the array and the library's innermost reason. The library
// serves one thread at a time: a lock guards all of its calls.
class Hdf5File {
 public:
  using Dims = std::vector<std::int64_t>;  // none of a single number
  enum class Mode {
    kRead,
    kCreate,  // what was there is gone
    kAppend,
  };
  static Result<Hdf5File> open(const std::string& path, Mode mode, Code code);
  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File& operator=(Hdf5File&&) = delete;
  ~Hdf5File();
  // Hands all bytes to the system. A file that was written is whole if this succeeds.
  Status close();

  const std::string& path() const { return path_; }
  bool has(const std::string& name) const;
  // Returns the arrays in a group and in the groups in it, by their paths from there, in the order
  // of their letters; none if there is no such group.
  Result<std::vector<std::string>> arrays(const std::string& group) const;

  // Returns the sizes of an array of floats or integers of any width; an error for other types.
  Result<Dims> dims(const std::string& name) const;
  // Reads as many numbers as dims says, row after row; others than float32 are converted.
  Status read(const std::string& name, std::span<float> numbers) const;
  Result<std::int64_t> integer(const std::string& name) const;
  Result<std::string> text(const std::string& name) const;

  // These make the groups on the way.
  Status put(const std::string& name, const Dims& dims, std::span<const float> numbers);
  Status put_integer(const std::string& name, std::int32_t value);
  Status put_text(const std::string& name, const std::string& value);
  // Puts dims[0] rows behind those of the array, or begins it, with rows of that shape.
  Status append(const std::string& name, const Dims& dims, std::span<const float> numbers);

 private:
  Hdf5File(std::string path, std::int64_t id, Code code);
  std::string path_;
  std::int64_t id_;  // the library's; -1: closed
  Code code_;
};

}  // namespace shoal
