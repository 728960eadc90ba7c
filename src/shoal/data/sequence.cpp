#include "shoal/data/sequence.h"

#include <numeric>
#include <string>
#include <utility>

#include "shoal/base/log.h"

namespace shoal {
namespace {

Random named(std::uint64_t seed, std::uint64_t stream, std::string_view name) { return Random(seed, stream).fork(name); }

}  // namespace

std::vector<std::uint64_t> permutation(std::uint64_t seed, std::uint64_t stream, std::uint64_t epoch, std::uint64_t count) {
  Random random = named(seed, stream, "epoch " + std::to_string(epoch));
  std::vector<std::uint64_t> order(count);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  for (std::uint64_t left = count; left > 1; --left) std::swap(order[left - 1], order[random.below(left)]);
  return order;
}

Sequence::Sequence(const SequenceOptions& options) : options_(options) {
  CHECK(options.first < options.step) << options.first << " of " << options.step;
  if (options.rand_skip > 0) skip_ = named(options.seed, options.stream, "skip").below(options.rand_skip);
}

std::uint64_t Sequence::record(std::uint64_t n, std::uint64_t count) {
  const std::uint64_t at = position(n);
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
