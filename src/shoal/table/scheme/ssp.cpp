// Stale synchronous parallel: a worker that has finished c iterations reads a row that holds every
// update of the first c - s iterations of all workers, and all its own. Source: Ho et al., NIPS
// 2013. bsp is ssp 0, async is ssp unbounded. dc_asgd is async with compensation of delays: Zheng
// et al., ICML 2017.
#include "shoal/table/scheme/make.h"
#include "shoal/table/scheme/single.h"
#include "shoal/table/scheme/together.h"

namespace shoal::table {
std::unique_ptr<Scheme> make_bsp(Parameters&) { return std::make_unique<InStep>(); }

std::unique_ptr<Scheme> make_ssp(Parameters& parameters) {
  const Clock staleness = parameters.staleness();
  Single single = read_single(parameters, Payloads::kGradientOrDelta);
  single.staleness = staleness;
  const SchemeSpec& spec = parameters.spec();
  const bool is_bsp = staleness == 0;
  if (is_bsp && spec != SchemeSpec{.name = "ssp", .staleness = 0, .factor = spec.factor})
    parameters.refuse(
        "staleness 0 is bsp, which makes one update of all workers: its only parameter is factor; "
        "for deltas use local_steps");
  if (single.task.shared && staleness != kUnbounded)
    parameters.refuse("share_iterations requires an unbounded scheme: fast workers run ahead");
  if (is_bsp && spec.factor)
    return std::make_unique<InStep>(spec, Task{}, PacerMaker{}, static_cast<float>(*spec.factor));
  if (is_bsp) return std::make_unique<InStep>();
  return std::make_unique<OneByOne>(spec, single);
}

std::unique_ptr<Scheme> make_async(Parameters& parameters) {
  const Single single = read_single(parameters, Payloads::kGradientOrDelta);
  return std::make_unique<OneByOne>(parameters.spec(), single);
}

std::unique_ptr<Scheme> make_dc_asgd(Parameters& parameters) {
  const Single single = read_single(parameters, Payloads::kGradient, 0.04);
  return std::make_unique<OneByOne>(parameters.spec(), single);
}

}  // namespace shoal::table
