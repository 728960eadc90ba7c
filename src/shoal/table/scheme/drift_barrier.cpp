// Asynchronous until the workers have drifted apart: when one has done `max_advance` tasks more
// than another since the last barrier, each finishes the task it is in and waits for the others;
// then all start together. Source: SpeeDO's "partially synchronous" (--maxAdvance).
#include <algorithm>
#include <map>

#include "shoal/table/coordinator/state.h"
#include "shoal/table/scheme/make.h"
#include "shoal/table/scheme/single.h"

namespace shoal::table {
namespace {

class DriftPacer final : public Pacer {
 public:
  // `reread`: workers go on from the rows, rather than from weights of their own.
  DriftPacer(std::int64_t max_advance, bool reread) : max_advance_(max_advance), reread_(reread) {}

  // Joins a worker. During a barrier it is not waited for, and starts with the others; otherwise it
  // counts as the foremost.
  void join(int worker, Instant) override {
    std::int64_t most = 1;
    for (const auto& [number, other] : workers_) most = std::max(most, other.done);
    workers_[worker] = {.done = most, .outside = catching_up_};
  }

  void leave(int worker, Instant) override {
    workers_.erase(worker);
    if (catching_up_) try_to_end(-1);
  }

  void ready(int number, Clock, const TaskReport&, Instant) override {
    Worker& worker = workers_.at(number);
    // The worker has finished no task of its own.
    if (!std::exchange(worker.begun, true) && !worker.outside) return start(number, false);
    if (!catching_up_) {
      ++worker.done;
      if (drift() < max_advance_) return start(number, false);
      catching_up_ = true;
    }
    worker.waits = true;
    try_to_end(number);
  }

  void save(StateWriter& io) override { state(io); }
  void load(StateReader& io) override { state(io); }

 private:
  void state(auto& io) { io(workers_, catching_up_); }
  struct Worker {
    std::int64_t done = 1;  // tasks since the last barrier, and one more
    bool outside = false;   // joined during a barrier
    bool begun = false, waits = false;
    void state(auto& io) { io(done, outside, begun, waits); }
  };

  std::int64_t drift() const {
    const auto done = [](const auto& entry) { return entry.second.done; };
    const auto [least, most] = std::ranges::minmax_element(workers_, {}, done);
    return done(*most) - done(*least);
  }

  // Ends the barrier if it can. `last` came last: its rows hold the tasks of all.
  void try_to_end(int last) {
    if (!std::ranges::all_of(
            workers_, [](const auto& entry) { return entry.second.waits || entry.second.outside; }))
      return;
    catching_up_ = false;
    for (auto& [number, worker] : workers_) {
      worker.done = 1;
      worker.outside = false;
      if (std::exchange(worker.waits, false)) start(number, reread_ && number != last);
    }
  }

  void start(int worker, bool reread) { starts_.push_back({.worker = worker, .reread = reread}); }

  const std::int64_t max_advance_;
  const bool reread_;
  std::map<int, Worker> workers_;
  bool catching_up_ = false;
};

}  // namespace

std::unique_ptr<Scheme> make_drift_barrier(Parameters& parameters) {
  const std::int64_t max_advance = parameters.max_advance();
  Single single = read_single(parameters, Payloads::kAny);
  single.task.paced = true;
  single.task.asks_early = false;  // a worker that starts behind a barrier reads what all have done
  const bool reread = single.task.contribution != ContributionKind::kWeights;
  single.pacer = [=] { return std::make_unique<DriftPacer>(max_advance, reread); };
  return std::make_unique<OneByOne>(parameters.spec(), single);
}

}  // namespace shoal::table
