// Weed-out: asynchronous, but late contributions are dropped, and their workers go on from the
// newest rows. Late is, with max_version_lag, a contribution to a row that has had more updates
// than that since its worker read it (TensorFlow's DropStaleGradientOptimizer); with weedout, a
// whole task during which that many others were finished, dropped ones included (SpeeDO's
// --weedout).
#include "shoal/table/scheme/completion_window.h"
#include "shoal/table/scheme/make.h"
#include "shoal/table/scheme/single.h"

namespace shoal::table {
std::unique_ptr<Scheme> make_weed_out(Parameters& parameters) {
  if (!parameters.given().weedout) {
    const Version most = parameters.max_version_lag();
    Single single = read_single(parameters, Payloads::kAny);
    single.most_lag = most;
    return std::make_unique<OneByOne>(parameters.spec(), single);
  }
  const std::int64_t window = parameters.weedout(), merge_every = parameters.merge_every();
  Single single = read_single(parameters, Payloads::kAny);
  // The pacer drops. A task that it dropped comes as contributions of weight 0.
  single.task.judged = true;
  single.pacer = [=] { return std::make_unique<CompletionWindow>(window, merge_every); };
  return std::make_unique<OneByOne>(parameters.spec(), single);
}

}  // namespace shoal::table
