// What every layer and op is given to work with: where, with how many threads, which random numbers, what scratch memory.
// One context serves one net, on one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "shoal/base/error.h"
#include "shoal/base/random.h"
#include "shoal/tensor/tensor.h"

namespace shoal {

struct Device {
  enum class Kind { kCpu, kGpu };
  Kind kind = Kind::kCpu;
  int id = 0;
};

// Why a forward pass could not be finished: bad input met at run time (an unreadable record, a label out of range).
struct Failure {
  Error error;
  std::int64_t item = -1;   // which item of the batch, if one is to blame; the net adds the record's key
};

class Context {
 public:
  struct Options {
    Device device{};
    int threads = 1;               // that kernels may use; >= 1
    std::uint64_t seed = 1;
  };
  explicit Context(const Options& options);
  Context(const Context&) = delete;

  const Device& device() const { return options_.device; }
  int threads() const { return options_.threads; }
  Random& random() { return random_; }
  // At least `count` floats, not cleared, good until the next call. Kernels divide it among their threads.
  std::span<float> scratch(std::int64_t count);
  std::int64_t scratch_count() const { return scratch_.count(); }

  // Notes the first failure of a pass; forward and backward never throw. The net looks after each layer and stops.
  void fail(Error error, std::int64_t item = -1);
  // Takes the noted failure away, if there is one.
  std::optional<Failure> take_failure();
  bool failed() const { return failure_.has_value(); }

 private:
  Options options_;
  Random random_;
  Tensor scratch_;
  std::optional<Failure> failure_;
};

}  // namespace shoal
