// Synchronous SGD with backup workers: of each version of a row the first N gradients, of as many
// workers, make the next version, where N = workers - backup, at least 1. Later ones are dropped,
// and their workers go on from the newest. Each row decides by itself. A worker that leaves does
// not change backup, so that N shrinks and no worker waits for the lost. Where workers share their
// iterations dropped ones count as done, and no worker goes on alone after the others' last
// version. Source: Chen et al., "Revisiting distributed synchronous SGD", arXiv 1604.00981. Late
// gradients are known by their version, as TensorFlow's SyncReplicasOptimizer does.
#include <algorithm>

#include "shoal/table/scheme/make.h"
#include "shoal/table/scheme/together.h"

namespace shoal::table {
namespace {

class SyncBackup final : public Scheme {
 public:
  SyncBackup(const SchemeSpec& spec, std::int64_t backup, bool shared)
      : Scheme(spec, {.task = {.paced = shared, .asks_early = shared, .shared = shared},
                      .waits_for_others = true}),
        backup_(backup) {}

  std::string unfit(int workers) const override {
    return backup_ < workers ? ""
                             : str("backup is ", backup_, ", but there are ", workers,
                                   " workers; backup must be less");
  }

  // Keeps the number of spare workers, while one is left that is not.
  SchemeSpec for_workers(std::span<const int> before, std::span<const double>) const override {
    SchemeSpec now = spec();
    if (!unfit(static_cast<int>(before.size())).empty()) now.backup = before.size() - 1;
    return now;
  }

  std::optional<Merge> next_merge(const RowView& row) const override {
    Merge late;
    std::vector<std::size_t> fresh;
    for (std::size_t i = 0; i < row.held.size(); ++i)
      (row.held[i].base < row.version ? late.drop : fresh).push_back(i);
    // Drops late ones alone, and first: their workers may yet contribute to this version.
    if (!late.drop.empty()) return late;
    // Counts workers that count, or that still have a contribution here.
    const std::int64_t live = std::ranges::count_if(row.workers, [](const WorkerView& worker) {
      return worker.counts || worker.merged < worker.pushed;
    });
    const std::size_t enough = std::max<std::int64_t>(1, live - backup_);
    if (fresh.size() < enough) return std::nullopt;
    std::ranges::sort(fresh, {}, [&](std::size_t i) { return row.held[i].worker; });
    return mean_of(row, fresh);
  }

 private:
  const std::int64_t backup_;
};

}  // namespace

std::unique_ptr<Scheme> make_sync_backup(Parameters& parameters) {
  const std::int64_t backup = parameters.backup();
  const bool shared = parameters.share_iterations();
  return std::make_unique<SyncBackup>(parameters.spec(), backup, shared);
}

}  // namespace shoal::table
