// Computes which record is the n-th that a net reads, and its random numbers: pure functions of a
// seed and n, so that a run can go on at any n.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace shoal {

struct SequenceOptions {
  std::uint64_t seed = 0, stream = 0;  // of a Random: streams of one seed do not meet
  bool shuffle = false;                // another order in every epoch
  std::uint64_t rand_skip = 0;         // start at a random record below this
  // This net is number `first` of `step` that share the records, and take them in turn.
  std::uint64_t first = 0, step = 1;
  std::uint64_t base = 0;  // items that were taken before any of these
  // `weights` is empty, or has a weight for each net: each takes a part of every epoch's order in
  // proportion to its weight, so that all together take each record once an epoch, each at its own
  // speed.
  std::vector<double> weights{};
  // `batches` is empty, or has the batch of each net: all of a batch of all nets is taken before
  // the next, each net a slice of its own. Excludes weights.
  std::vector<std::uint64_t> batches{};
};

// Returns an order of 0 .. count-1 for one epoch.
std::vector<std::uint64_t> permutation(std::uint64_t seed, std::uint64_t stream,
                                       std::uint64_t epoch, std::uint64_t count);

class Sequence {
 public:
  explicit Sequence(const SequenceOptions& options);
  bool shuffles() const { return options_.shuffle; }
  std::uint64_t step() const { return options_.step; }
  // Returns how many items all nets together take before this one takes its item n.
  std::uint64_t before(std::uint64_t n) const {
    if (slice_.length > 0)
      return options_.base + n / slice_.length * slice_.of + slice_.begin + n % slice_.length;
    return options_.base + n * options_.step + options_.first;
  }
  // Returns where item n stands in the endless row of epochs: after those before it and what
  // rand_skip left out.
  std::uint64_t position(std::uint64_t n) const { return before(n) + skip_; }
  // Returns the record of item n in a set of `count`. Keeps the order of the last epoch asked for.
  // A set that is too small for the weights is taken in turn.
  std::uint64_t record(std::uint64_t n, std::uint64_t count);
  // Item n's own random words, the same whichever net takes it.
  std::array<std::uint32_t, 4> random(std::uint64_t n) const;

  // Returns where item n of this net, which may have a part of its own of each epoch, stands in the
  // endless row of epochs of a set of `count`.
  std::uint64_t place(std::uint64_t n, std::uint64_t count);

 private:
  SequenceOptions options_;
  std::uint64_t skip_ = 0, epoch_ = 0;
  std::vector<std::uint64_t> order_;  // of epoch_, or empty
  struct Part {
    std::uint64_t begin = 0, length = 0, of = 0;
  };
  Part part_;   // this net's of a set `of` so many; length 0: in turn
  Part slice_;  // this net's of a batch `of` so many; length 0: in turn
};

}  // namespace shoal
