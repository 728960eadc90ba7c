// Defines the errors, one kind for each way to mend them (docs/internals/design.md, "Errors"):
//   mistake of the programmer     CHECK (base/log.h) aborts with the values
//   mistake of the user           ConfigError, thrown only while something is built
//   failure of a GPU              DeviceError, thrown at any time
//   failure of disk or network    Result<T>, which the caller must look at
#pragma once

#include <exception>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <variant>

namespace shoal {

// Joins its arguments as an ostream would print them.
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return std::move(out).str();
}

// The kind of an error, and the exit code of a tool that ends with it. Append only: scripts test
// these numbers.
enum class Code {
  kInternal = 1,
  kUsage = 2,   // the command line
  kConfig = 3,  // net, solver or weights
  kData = 4,    // a database, an image, a list
  kDevice = 5,
  kPeer = 6,
  kNonFinite = 7,  // loss or gradient
  kTimeout = 8,
  kSnapshot = 9,  // a snapshot could not be written, or a disk is full
  kRequeue = 75,  // stopped by a signal after a good snapshot
  // A wait has ended since a process is lost and the others go on (parallel/solver handle it): no
  // tool ends with it.
  kInterrupted = 100,
};

struct Error {
  Code code = Code::kInternal;
  // `message` is one or more whole sentences: what, where (file, offset or line), the likely cause.
  std::string message;
};
// Returns whether the error is none of the job: a loss has interrupted a wait of this worker.
inline bool is_interruption(const Error& error) { return error.code == Code::kInterrupted; }

// A value or an Error. value() on an error and error() on a value abort.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return *std::get_if<0>(&check(0)); }
  const T& value() const& { return *std::get_if<0>(&check(0)); }
  T&& value() && { return std::move(*std::get_if<0>(&check(0))); }
  const Error& error() const { return *std::get_if<1>(&check(1)); }

 private:
  std::variant<T, Error>& check(std::size_t index) {
    if (state_.index() != index) std::terminate();
    return state_;
  }
  const std::variant<T, Error>& check(std::size_t index) const {
    return const_cast<Result*>(this)->check(index);
  }
  std::variant<T, Error> state_;
};

// Success or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}
  // The error of a result that has one; its value is let go.
  template <class T>
  Result(const Result<T>& result) {
    if (!result.ok()) error_ = result.error();
  }
  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    if (!error_) std::terminate();
    return *error_;
  }

 private:
  std::optional<Error> error_;
};
using Status = Result<void>;

// A mistake of the user, found while a net, a solver or a tool is being built. what() is all that
// is printed. config_error in proto/config_error.h makes one that names a layer with its file and
// line.
class ConfigError : public std::exception {
 public:
  explicit ConfigError(Error error) : error_(std::move(error)) {}
  template <class... Args>
  explicit ConfigError(Code code, const Args&... args) : error_{code, str(args...)} {}
  const char* what() const noexcept override { return error_.message.c_str(); }
  const Error& error() const { return error_; }

 private:
  Error error_;
};

// A GPU failed: it is out of memory, or a copy or a kernel did not work. Thrown at any time, by
// what uses the device; a tool ends with it as with a ConfigError.
class DeviceError : public ConfigError {
 public:
  explicit DeviceError(const std::string& message) : ConfigError(Code::kDevice, message) {}
};

// Returns the value, or throws the error as a ConfigError. For code that builds something.
template <class T>
T or_throw(Result<T> result) {
  if (!result.ok()) throw ConfigError(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

}  // namespace shoal
