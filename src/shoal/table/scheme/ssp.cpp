// Stale synchronous parallel: a worker that has finished c iterations reads a row that holds every update of the first c - s iterations of
// all workers, and all its own. Source: Ho et al., NIPS 2013. bsp is ssp 0, async is ssp unbounded.
#include <algorithm>
#include <charconv>

#include "make.h"

namespace shoal::table {
namespace {

bool is_readable(const RowView& row, int worker, Clock clock, Clock staleness) {
  return row.workers[static_cast<std::size_t>(worker)].merged >= clock && slowest(row) >= clock - staleness;
}

// One update a clock: the mean of what the workers pushed of it, in their order, weighed as they say. Contributions of weight 0 are dropped.
// If there are no others, that is all: no update, as on a single machine that leaves an iteration out, and no version.
class Lockstep final : public Scheme {
 public:
  std::string name() const override { return "ssp 0"; }

  std::optional<Merge> next_merge(const RowView& row) const override {
    if (row.held.empty()) return std::nullopt;
    const Clock clock = std::ranges::min(row.held, {}, &Contribution::clock).clock;
    if (slowest(row) <= clock) return std::nullopt;
    Merge merge;
    for (std::size_t i = 0; i < row.held.size(); ++i)
      if (row.held[i].clock == clock) (row.held[i].weight > 0 ? merge.take : merge.drop).push_back(i);
    std::ranges::sort(merge.take, {}, [&](std::size_t i) { return row.held[i].worker; });
    double sum = 0;
    for (const std::size_t i : merge.take) {
      merge.weights.push_back(row.held[i].weight);
      sum += row.held[i].weight;
    }
    if (sum > 0) merge.scale = static_cast<float>(1 / sum);
    return merge;
  }

  bool readable(const RowView& row, int worker, Clock clock) const override { return is_readable(row, worker, clock, 0); }
  bool lockstep() const override { return true; }
};

// Each contribution is an update of its own, when it arrives. With n workers that count, its rate is an n-th: n mini-batches move the
// row as far as one of n times the size does. What a worker says of its weight beside others' is not used, except that 0 is none.
class Ssp final : public Scheme {
 public:
  explicit Ssp(Clock staleness) : staleness_(staleness) {}
  std::string name() const override { return staleness_ == kUnbounded ? "ssp unbounded" : str("ssp ", staleness_); }

  std::optional<Merge> next_merge(const RowView& row) const override {
    if (row.held.empty()) return std::nullopt;
    Merge merge;
    if (row.held[0].weight == 0) {
      merge.drop = {0};
      return merge;
    }
    int workers = 0;
    for (std::size_t w = 0; w < row.workers.size(); ++w)
      workers += row.workers[w].counts || static_cast<int>(w) == row.held[0].worker;   // its last push counts it still
    merge.take = {0};
    merge.weights = {1};
    merge.rate_scale = 1 / static_cast<float>(workers);
    return merge;
  }

  bool readable(const RowView& row, int worker, Clock clock) const override { return is_readable(row, worker, clock, staleness_); }
  bool bounded() const override { return staleness_ != kUnbounded; }

 private:
  const Clock staleness_;
};

std::unique_ptr<Scheme> make(Clock staleness) {
  if (staleness == 0) return std::make_unique<Lockstep>();
  return std::make_unique<Ssp>(staleness);
}

}  // namespace

Result<std::unique_ptr<Scheme>> make_bsp(const Parameters&) { return make(0); }
Result<std::unique_ptr<Scheme>> make_async(const Parameters&) { return make(kUnbounded); }

Result<std::unique_ptr<Scheme>> make_ssp(const Parameters& parameters) {
  const std::string& word = parameters[0];
  if (word == "unbounded") return make(kUnbounded);
  Clock staleness = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), staleness);
  if (error != std::errc() || end != word.data() + word.size())
    return Error{Code::kConfig, str("the staleness is '", word, "'; it must be a whole number of clocks, 0 or more, or \"unbounded\"")};
  if (staleness < 0) return Error{Code::kConfig, str("the staleness is ", staleness, "; it must be 0 or more clocks, or \"unbounded\"")};
  return make(staleness);
}

}  // namespace shoal::table
