// Weed-out: asynchronous, but what comes late is dropped, and its worker goes on from the newest
// rows. Late is, with max_version_lag, a contribution to a row that has had more updates than that
// since its worker read it (TensorFlow's DropStaleGradientOptimizer); with weedout, a whole task
// during which that many others were finished, dropped ones included (SpeeDO's --weedout).
#include "shoal/table/scheme/completion_window.h"
#include "shoal/table/scheme/make.h"
#include "shoal/table/scheme/single.h"

namespace shoal::table {
namespace {

class WeedOut final : public OneByOne {
 public:
  WeedOut(const SchemeSpec& spec, Version most, const Single& single)
      : OneByOne(spec, single), most_(most) {}

  std::optional<Merge> next_merge(const RowView& row) const override {
    if (!row.held.empty() && row.version - row.held[0].base > most_)
      return Merge{.take = {}, .weights = {}, .drop = {0}};
    return OneByOne::next_merge(row);
  }

 private:
  const Version most_;
};

// The pacer drops, and a task that it dropped comes as contributions of weight 0.
class WeedOutTasks final : public OneByOne {
 public:
  WeedOutTasks(const SchemeSpec& spec, std::int64_t window, std::int64_t merge_every,
               const Single& single)
      : OneByOne(spec, single), window_(window), merge_every_(merge_every) {}
  std::unique_ptr<Pacer> make_pacer() const override {
    return std::make_unique<CompletionWindow>(window_, merge_every_);
  }

 private:
  const std::int64_t window_, merge_every_;
};

}  // namespace

std::unique_ptr<Scheme> make_weed_out(Parameters& parameters) {
  constexpr std::int64_t kMost = 1'000'000;
  if (!parameters.has("weedout")) {
    parameters.without("merge_every", "is of weedout, which drops whole tasks");
    const Version most = parameters.clocks("max_version_lag");
    const Single single = read_single(parameters, Payloads::kAny);
    return std::make_unique<WeedOut>(parameters.spec(), most, single);
  }
  const std::int64_t window = parameters.whole("weedout", 1, kMost);
  parameters.without("max_version_lag",
                     "is another way to say what is late than weedout; one of them is enough");
  const std::int64_t merge_every = parameters.whole("merge_every", 0, kMost, 0);
  Single single = read_single(parameters, Payloads::kAny);
  single.task.judged = true;
  return std::make_unique<WeedOutTasks>(parameters.spec(), window, merge_every, single);
}

}  // namespace shoal::table
