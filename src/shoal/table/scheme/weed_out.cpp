// Weed-out: asynchronous, but a contribution is dropped whose row has had more than max_version_lag updates since its worker read it; the
// worker goes on from the newest. Source: TensorFlow's DropStaleGradientOptimizer.
#include <utility>

#include "make.h"
#include "single.h"

namespace shoal::table {
namespace {

class WeedOut final : public Scheme {
 public:
  WeedOut(std::string name, Version most, Single single) : name_(std::move(name)), most_(most), single_(single) {}
  std::string name() const override { return name_; }
  std::string caution(int workers) const override { return single_.caution(workers); }
  Task task() const override { return single_.task; }

  std::optional<Merge> next_merge(const RowView& row) const override {
    if (row.held.empty()) return std::nullopt;
    if (row.version - row.held[0].base > most_) return Merge{.take = {}, .weights = {}, .drop = {0}};
    return single_.merge(row, 0);
  }

  bool readable(const RowView& row, int worker, Clock clock) const override { return row.workers[static_cast<std::size_t>(worker)].merged >= clock; }
  bool keeps_reads() const override { return single_.compensation > 0; }

 private:
  const std::string name_;
  const Version most_;
  const Single single_;
};

}  // namespace

std::unique_ptr<Scheme> make_weed_out(Parameters& parameters) {
  const Version most = parameters.clocks("max_version_lag");
  const Single single = read_single(parameters, Payloads::kAny);
  return std::make_unique<WeedOut>(parameters.words(), most, single);
}

}  // namespace shoal::table
