// Computes the order of records from the seed.
#include "shoal/data/sequence.h"

#include <numeric>
#include <string>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "shoal/data/partition.h"

namespace shoal {
namespace {

Random named(std::uint64_t seed, std::uint64_t stream, std::string_view name) {
  return Random(seed, stream).fork(name);
}

}  // namespace

std::vector<std::uint64_t> permutation(std::uint64_t seed, std::uint64_t stream,
                                       std::uint64_t epoch, std::uint64_t count) {
  Random random = named(seed, stream, "epoch " + std::to_string(epoch));
  std::vector<std::uint64_t> order(count);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  for (std::uint64_t left = count; left > 1; --left)
    std::swap(order[left - 1], order[random.below(left)]);
  return order;
}

Sequence::Sequence(const SequenceOptions& options) : options_(options) {
  CHECK(options.first < options.step) << options.first << " of " << options.step;
  CHECK(options.weights.empty() || options.weights.size() == options.step)
      << options.weights.size() << " weights of " << options.step << " nets";
  if (!options.batches.empty()) {
    CHECK(options.batches.size() == options.step && options.weights.empty())
        << options.batches.size() << " batches of " << options.step << " nets";
    const auto own = options.batches.begin() + static_cast<std::ptrdiff_t>(options.first);
    slice_ = {
        .begin = std::accumulate(options.batches.begin(), own, std::uint64_t{0}),
        .length = *own,
        .of = std::accumulate(options.batches.begin(), options.batches.end(), std::uint64_t{0})};
  }
  if (options.rand_skip > 0)
    skip_ = named(options.seed, options.stream, "skip").below(options.rand_skip);
}

std::uint64_t Sequence::place(std::uint64_t n, std::uint64_t count) {
  if (options_.weights.empty()) return position(n);
  if (part_.of != count) {
    part_ = {.of = count};
    const Result<PartBounds> bounds = bounds_by_weights(count, options_.weights);
    if (bounds.ok())
      part_.begin = bounds.value()[options_.first],
      part_.length = bounds.value()[options_.first + 1] - part_.begin;
  }
  if (part_.length == 0) return position(n);
  return n / part_.length * count + part_.begin + n % part_.length + skip_;
}

std::uint64_t Sequence::record(std::uint64_t n, std::uint64_t count) {
  const std::uint64_t at = place(n, count);
  if (!options_.shuffle) return at % count;
  if (order_.size() != count || epoch_ != at / count) {
    epoch_ = at / count;
    order_ = permutation(options_.seed, options_.stream, epoch_, count);
  }
  return order_[at % count];
}

std::array<std::uint32_t, 4> Sequence::random(std::uint64_t n) const {
  return philox(options_.seed, options_.stream ^ stream_of("items"), before(n));
}

}  // namespace shoal
