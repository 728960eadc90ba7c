// Stale synchronous parallel: a worker that has finished c iterations reads a row that holds every
// update of the first c - s iterations of all workers, and all its own. Source: Ho et al., NIPS
// 2013. bsp is ssp 0, async is ssp unbounded. dc_asgd is async with compensation of delays: Zheng
// et al., ICML 2017.
#include <utility>

#include "shoal/table/scheme/make.h"
#include "shoal/table/scheme/single.h"
#include "shoal/table/scheme/together.h"

namespace shoal::table {
namespace {

class Lockstep final : public Scheme {
 public:
  std::string name() const override { return "bsp"; }
  std::optional<Merge> next_merge(const RowView& row) const override {
    return merge_clock(row, Weighing::kSamples);
  }
  bool readable(const RowView& row, int worker, Clock clock) const override {
    return is_readable(row, worker, clock, 0);
  }
  bool lockstep() const override { return true; }
};

// Each contribution is an update of its own, when it arrives. What a worker says of its weight
// beside others' is not used, except that 0 is none.
class Ssp final : public Scheme {
 public:
  Ssp(std::string name, Clock staleness, Single single)
      : name_(std::move(name)), staleness_(staleness), single_(single) {}
  std::string name() const override { return name_; }
  Task task() const override { return single_.task; }

  std::optional<Merge> next_merge(const RowView& row) const override {
    if (row.held.empty()) return std::nullopt;
    return single_.merge(row, 0);
  }

  bool readable(const RowView& row, int worker, Clock clock) const override {
    return is_readable(row, worker, clock, staleness_);
  }
  bool bounded() const override { return staleness_ != kUnbounded; }
  std::string caution(int workers) const override { return single_.caution(workers); }
  bool keeps_reads() const override { return single_.compensation > 0; }

 private:
  const std::string name_;
  const Clock staleness_;
  const Single single_;
};

}  // namespace

std::unique_ptr<Scheme> make_bsp(Parameters&) { return std::make_unique<Lockstep>(); }

std::unique_ptr<Scheme> make_ssp(Parameters& parameters) {
  parameters.name_first("staleness");
  const Clock staleness = parameters.clocks("staleness");
  const Single single = read_single(parameters, Payloads::kGradientOrDelta);
  if (staleness == 0 && parameters.words() != "ssp 0")
    parameters.refuse(
        "staleness 0 is bsp, where the updates of all workers are one: it takes nothing else (of "
        "deltas, local_steps is that)");
  if (single.task.shared && staleness != kUnbounded)
    parameters.refuse(
        "share_iterations needs workers without a bound: who does more iterations than others is "
        "ahead of them");
  if (staleness == 0) return std::make_unique<Lockstep>();
  return std::make_unique<Ssp>(parameters.words(), staleness, single);
}

std::unique_ptr<Scheme> make_async(Parameters& parameters) {
  const Single single = read_single(parameters, Payloads::kGradientOrDelta);
  return std::make_unique<Ssp>(parameters.words(), kUnbounded, single);
}

std::unique_ptr<Scheme> make_dc_asgd(Parameters& parameters) {
  const Single single = read_single(parameters, Payloads::kGradient, 0.04);
  return std::make_unique<Ssp>(parameters.words(), kUnbounded, single);
}

}  // namespace shoal::table
