// Local steps whose rows are exchanged in fragments, each at a step of its own in a round, while
// the workers go on with the next steps. A row moves by the mean of the deltas that it holds:
//   W += r * mean(w_k - W_k), where W_k is the row as worker k last read it
// once all workers have pushed theirs; with a quorum Q, once at least Q workers have, and Q have
// waited for the others as long as they grant them. A push that comes behind such a merge is late:
// its worker gets the row as it is, and the push is in the next merge. docs/reference/streaming.md
// has the equations. Sources: Douillard et al., "Streaming DiLoCo with overlapping communication",
// arXiv 2501.18512, and "Decoupled DiLoCo", arXiv 2604.21428; Sarfi et al., SparseLoCo, arXiv
// 2508.15706.
#include <algorithm>
#include <map>

#include "shoal/table/coordinator/state.h"
#include "shoal/table/scheme/make.h"
#include "shoal/table/scheme/step_times.h"
#include "shoal/table/scheme/together.h"

namespace shoal::table {
namespace {

class Streaming final : public Scheme {
 public:
  Streaming(const SchemeSpec& spec, const Task& task, PacerMaker pacer, std::int64_t quorum)
      : Scheme(spec, {.task = task,
                      .staleness = quorum > 0 ? kUnbounded : 0,
                      .lockstep = quorum == 0,
                      .waits_for_others = quorum > 0,
                      .hurries = quorum > 0,
                      .pacer = std::move(pacer)}),
        quorum_(quorum) {}

  std::string unfit(int workers) const override {
    return quorum_ <= workers
               ? ""
               : str("quorum is ", quorum_, ", but there are ", workers,
                     " workers; it must be at most their number, or 0 for all that there are");
  }

  // Keeps the quorum, as far as there are workers.
  SchemeSpec for_workers(std::span<const int> before, std::span<const double>) const override {
    SchemeSpec now = spec();
    if (!unfit(static_cast<int>(before.size())).empty())
      now.quorum = static_cast<Count>(before.size());
    return now;
  }

  std::optional<Merge> next_merge(const RowView& row) const override {
    if (row.held.empty() || !is_enough(row)) return std::nullopt;
    std::vector<std::size_t> all(row.held.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    std::ranges::sort(
        all, {}, [&](std::size_t i) { return std::pair(row.held[i].worker, row.held[i].clock); });
    // Running means and the like are no params, which the rate and the momentum are for.
    Merge merge = mean_of(row, all, row.is_param ? task.weighing : Weighing::kSamples);
    const bool has_momentum = row.is_param && task.global_momentum > 0;
    merge.apply = has_momentum ? Apply::kRule : Apply::kAdd;
    if (has_momentum)
      merge.scale = -merge.scale;  // the rule lowers the row by its gradient
    else if (row.is_param)
      merge.scale *= task.global_rate;
    return merge;
  }

  // A worker whose push is late does not wait for it to be merged.
  bool readable(const RowView& row, int worker, Clock clock) const override {
    if (Scheme::readable(row, worker, clock)) return true;
    return quorum_ > 0 && std::ranges::any_of(row.held, [&](const Contribution& one) {
             return one.worker == worker && one.clock + 1 == clock && is_late(row, one);
           });
  }

 private:
  static bool is_late(const RowView& row, const Contribution& one) {
    return one.base < row.version;
  }

  bool is_enough(const RowView& row) const {
    std::vector<bool> here(row.workers.size()), waited(row.workers.size());
    for (const Contribution& one : row.held) {
      here[one.worker] = true;
      waited[one.worker] = waited[one.worker] || one.is_overdue || is_late(row, one);
    }
    std::int64_t live = 0;
    bool all = true;
    for (std::size_t worker = 0; worker < row.workers.size(); ++worker) {
      const bool counts = row.workers[worker].counts;
      live += counts || here[worker];
      all = all && (!counts || here[worker]);
    }
    return all || (quorum_ > 0 && std::ranges::count(waited, true) >= std::min(quorum_, live));
  }

  const std::int64_t quorum_;  // 0: all
};

// Tells each worker at once how many local steps its next round has: as many as it makes while the
// slowest makes `least`. Until both are known that is `least`.
class MatchingPacer final : public Pacer {
 public:
  MatchingPacer(std::int64_t least, std::int64_t most) : least_(least), most_(most) {}

  void join(int worker, Instant) override { workers_[worker] = {.steps = least_}; }
  void leave(int worker, Instant) override { workers_.erase(worker); }
  void ready(int number, Clock, const TaskReport& last, Instant) override {
    Worker& worker = workers_.at(number);
    if (last.steps > 0 && last.seconds > 0) worker.times.add(last.seconds, last.steps);
    double slowest = 0, total = 0;
    for (const auto& [other, one] : workers_)
      if (one.times.known()) slowest = std::max(slowest, one.times.smoothed());
    worker.steps = least_;
    if (worker.times.known())
      worker.steps = std::max<std::int64_t>(
          least_, steps_within(static_cast<double>(least_) * slowest, worker.times.smoothed(), 0));
    if (most_ > 0) worker.steps = std::min(worker.steps, most_);
    for (const auto& [other, one] : workers_) total += static_cast<double>(one.steps);
    starts_.push_back({.worker = number,
                       .steps = static_cast<std::uint32_t>(worker.steps),
                       .mean_steps = total / static_cast<double>(workers_.size())});
  }

  void save(StateWriter& io) override { io(workers_); }
  void load(StateReader& io) override { io(workers_); }

 private:
  struct Worker {
    std::int64_t steps = 0;  // that it was told last
    StepTimes times{};
    void state(auto& io) { io(steps, times); }
  };

  const std::int64_t least_, most_;
  std::map<int, Worker> workers_;
};

}  // namespace

std::unique_ptr<Scheme> make_streaming(Parameters& parameters) {
  Task task = read_mean(parameters);
  const std::int64_t steps = parameters.local_steps(), quorum = parameters.quorum();
  const std::int64_t fragments = parameters.fragments(), overlap = parameters.overlap();
  task.steps = static_cast<int>(steps);
  task.fragments = static_cast<int>(fragments);
  task.overlap = static_cast<int>(overlap);
  task.mix = static_cast<float>(parameters.mix(overlap > 0 ? 0.5 : 0));
  task.grace = parameters.grace(kInfinity);
  if (fragments > steps)
    parameters.refuse(str("fragments is ", fragments, ", but local_steps is ", steps,
                          ": each fragment is exchanged at a step of its own"));
  if (overlap > 0 && overlap * fragments >= steps)
    parameters.refuse(str("overlap is ", overlap, ", but a fragment follows the other after ",
                          steps, "/", fragments,
                          " steps (local_steps / fragments); overlap must be less, so that an "
                          "answer is applied before the next fragment leaves"));
  if (quorum == 0 && parameters.given().grace)
    parameters.refuse("grace is for a quorum, and none is given: all workers' pushes are awaited");
  const bool matches = parameters.match_speeds();
  const std::int64_t most = parameters.max_steps();
  if (most > 0 && !matches) parameters.refuse("max_steps needs match_speeds");
  if (most > 0 && most < steps)
    parameters.refuse(str("max_steps is ", most, ", below local_steps, which is ", steps));
  if (!matches) return std::make_unique<Streaming>(parameters.spec(), task, PacerMaker(), quorum);
  task.steps = 0;
  task.paced = task.asks_early = true;
  const auto pacer = [=]() -> std::unique_ptr<Pacer> {
    return std::make_unique<MatchingPacer>(steps, most);
  };
  return std::make_unique<Streaming>(parameters.spec(), task, pacer, quorum);
}

}  // namespace shoal::table
