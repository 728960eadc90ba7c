// Weed-out: asynchronous, but what comes late is dropped, and its worker goes on from the newest
// rows. Late is, with max_version_lag, a contribution to a row that has had more updates than that
// since its worker read it (TensorFlow's DropStaleGradientOptimizer); with weedout, a whole task
// during which that many others were finished, dropped ones included (SpeeDO's --weedout).
#include <utility>

#include "shoal/table/scheme/completion_window.h"
#include "shoal/table/scheme/make.h"
#include "shoal/table/scheme/single.h"

namespace shoal::table {
namespace {

class WeedOut final : public Scheme {
 public:
  WeedOut(std::string name, Version most, Single single)
      : name_(std::move(name)), most_(most), single_(single) {}
  std::string name() const override { return name_; }
  std::string caution(int workers) const override { return single_.caution(workers); }
  Task task() const override { return single_.task; }

  std::optional<Merge> next_merge(const RowView& row) const override {
    if (row.held.empty()) return std::nullopt;
    if (row.version - row.held[0].base > most_)
      return Merge{.take = {}, .weights = {}, .drop = {0}};
    return single_.merge(row, 0);
  }

  bool readable(const RowView& row, int worker, Clock clock) const override {
    return row.workers[static_cast<std::size_t>(worker)].merged >= clock;
  }
  bool keeps_reads() const override { return single_.compensation > 0; }

 private:
  const std::string name_;
  const Version most_;
  const Single single_;
};

// The pacer drops, and a task that it dropped comes as contributions of weight 0.
class WeedOutTasks final : public Scheme {
 public:
  WeedOutTasks(std::string name, std::int64_t window, int merge_every, Single single)
      : name_(std::move(name)), window_(window), merge_every_(merge_every), single_(single) {
    single_.task.judged = true;
  }
  std::string name() const override { return name_; }
  std::string caution(int workers) const override { return single_.caution(workers); }
  Task task() const override { return single_.task; }
  std::unique_ptr<Pacer> make_pacer() const override {
    return std::make_unique<CompletionWindow>(window_, merge_every_);
  }

  std::optional<Merge> next_merge(const RowView& row) const override {
    if (row.held.empty()) return std::nullopt;
    return single_.merge(row, 0);
  }

  bool readable(const RowView& row, int worker, Clock clock) const override {
    return row.workers[static_cast<std::size_t>(worker)].merged >= clock;
  }
  bool keeps_reads() const override { return single_.compensation > 0; }

 private:
  const std::string name_;
  const std::int64_t window_;
  const int merge_every_;
  Single single_;
};

}  // namespace

std::unique_ptr<Scheme> make_weed_out(Parameters& parameters) {
  constexpr std::int64_t kMost = 1'000'000;
  if (!parameters.has("weedout")) {
    parameters.without("merge_every", "is of weedout, which drops whole tasks");
    const Version most = parameters.clocks("max_version_lag");
    const Single single = read_single(parameters, Payloads::kAny);
    return std::make_unique<WeedOut>(parameters.words(), most, single);
  }
  const std::int64_t window = parameters.whole("weedout", 1, kMost);
  parameters.without("max_version_lag",
                     "is another way to say what is late than weedout; one of them is enough");
  const std::int64_t merge_every = parameters.whole("merge_every", 0, kMost, 0);
  const Single single = read_single(parameters, Payloads::kAny);
  return std::make_unique<WeedOutTasks>(parameters.words(), window, static_cast<int>(merge_every),
                                        single);
}

}  // namespace shoal::table
