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
  parameters.name_first("staleness");
  const Clock staleness = parameters.clocks("staleness");
  Single single = read_single(parameters, Payloads::kGradientOrDelta);
  single.staleness = staleness;
  if (staleness == 0 && parameters.spec().words() != "ssp 0")
    parameters.refuse(
        "staleness 0 is bsp, where the updates of all workers are one: it takes nothing else (of "
        "deltas, local_steps is that)");
  if (single.task.shared && staleness != kUnbounded)
    parameters.refuse(
        "share_iterations needs workers without a bound: who does more iterations than others is "
        "ahead of them");
  if (staleness == 0) return std::make_unique<InStep>();
  return std::make_unique<OneByOne>(parameters.spec(), single);
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
