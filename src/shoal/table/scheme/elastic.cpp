// Elastic averaging: workers go their own ways for a few steps, then each and the center pull each
// other a part, moving_rate, of the way. EASGD, and with a solver that has momentum EAMSGD. Source:
// Zhang, Choromanska, LeCun, "Deep learning with elastic averaging SGD", NIPS 2015; SpeeDO's
// movingRate. exchange_order: after the steps is SpeeDO's, before the first of them the paper's.
#include <utility>

#include "shoal/table/scheme/make.h"
#include "shoal/table/scheme/single.h"

namespace shoal::table {
namespace {

class Elastic final : public Scheme {
 public:
  Elastic(std::string name, Single single) : name_(std::move(name)), single_(single) {}
  std::string name() const override { return name_; }
  std::string caution(int workers) const override { return single_.caution(workers); }
  Task task() const override { return single_.task; }

  std::optional<Merge> next_merge(const RowView& row) const override {
    if (row.held.empty()) return std::nullopt;
    return single_.merge(row, 0);
  }

  bool readable(const RowView& row, int worker, Clock clock) const override {
    return row.workers[static_cast<std::size_t>(worker)].merged >= clock;
  }

 private:
  const std::string name_;
  const Single single_;
};

}  // namespace

std::unique_ptr<Scheme> make_elastic(Parameters& parameters) {
  const Single single = read_single(parameters, Payloads::kWeights);
  return std::make_unique<Elastic>(parameters.words(), single);
}

}  // namespace shoal::table
