// The loop that the converters share: records go to a new database with commits, progress and a way
// to stop in between.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/interrupt.h"
#include "shoal/data/record.h"
#include "shoal/report/progress.h"

namespace shoal {

// Everything throws ConfigError: kData with the file and the reason, or 128 + n for signal n.
// Nothing is under `path` before finish() is through.
class Conversion {
 public:
  struct Options {
    std::string tool;  // for the progress line
    std::string backend, path;
    std::uint64_t total = 0;  // records expected, 0 if not known
    bool quiet = false;       // no line in the log at the end
  };
  explicit Conversion(const Options& options);
  void put(std::string_view key, std::string_view value);
  // `done` of the expected records are through, written or not. Looks for signals.
  void passed(std::uint64_t done);
  std::uint64_t written() const { return written_; }
  void finish();

 private:
  Options options_;
  Interrupt interrupt_;
  std::unique_ptr<RecordWriter> writer_;
  Progress progress_;
  std::uint64_t written_ = 0;
};

// Returns the number of `key` with leading zeros: "%08d".
std::string padded(std::uint64_t number, int digits);

// Throws ConfigError(kUsage) that repeats `form` unless there are from `least` to `most` words.
void check_words(std::size_t count, std::size_t least, std::size_t most, const char* form);

}  // namespace shoal
