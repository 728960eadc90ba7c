// Local SGD whose workers make as many steps as the slowest one's step leaves time for, then
// average. Source: ESync (Li et al., IEEE TSC 2020). Rows are merged as in local_steps; the pacers
// here set the number of steps. `pull`: after each step the worker asks whether to make another, as
// in the original. `assigned`: it is told at the start of a round, from the times of the rounds
// before.
#include <algorithm>
#include <map>
#include <optional>

#include "shoal/base/log.h"
#include "shoal/base/timer.h"
#include "shoal/table/coordinator/state.h"
#include "shoal/table/scheme/make.h"
#include "shoal/table/scheme/step_times.h"
#include "shoal/table/scheme/together.h"

namespace shoal::table {
namespace {

constexpr double kExchangeShare = 0.3;  // of a new time of an exchange in the smoothed one

struct Limits {
  // Seconds before the slowest by which a worker must be able to end another step.
  double epsilon = 0.5;
  std::int64_t least = 1, most = 0;  // local steps; most 0: no limit
};

// The part of a worker in a round that it has ended.
struct Record {
  int worker = 0;
  std::int64_t steps = 0;
  double seconds = 0;
  Instant end{};
  Clock round = 0;  // from 0
  void state(auto& io) { io(worker, steps, seconds, end, round); }
};

// Keeps a pacer's workers, and shows a round in JSON, with the names that ESync's state server has.
template <class Worker>
class RoundPacer : public Pacer {
 public:
  explicit RoundPacer(const Limits& limits) : limits_(limits) {}

  void join(int worker, Instant now) override {
    workers_[worker] = {};
    if (!begin_) begin_ = now;
  }

 protected:
  // Shows the round: all `records` are done with it.
  void show(const std::vector<Record>& records) {
    std::string lines;
    for (const Record& one : records)
      lines += str(lines.empty() ? "" : ",", "\n    [", one.worker, ", ", one.steps, ", ",
                   std::to_string(one.seconds), ", ", std::to_string(to_seconds(one.end - *begin_)),
                   ", true, ", one.round + 1, "]");
    ended_round_ = str("{\n  \"num_workers\": ", records.size(), ",\n  \"t\": ", round_ + 1,
                       ",\n  \"epsilon\": ", std::to_string(limits_.epsilon), ",\n  \"records\": [",
                       lines, "\n  ]\n}\n");
  }
  void state(auto& io) { io(round_, workers_, begin_); }

  const Limits limits_;
  Clock round_ = -1;
  std::map<int, Worker> workers_;

 private:
  std::optional<Instant> begin_;  // when the first worker came
};

// ---- pull ----

struct PulledWorker {
  std::int64_t steps = 0;            // in the round
  double seconds = 0, exchange = 0;  // of the latest step, and exchange; 0: not known
  Instant end{};                     // of the latest step, or of the start of the round
  bool done = false;
  Clock round = -1;  // that it has entered
  void state(auto& io) { io(steps, seconds, exchange, end, done, round); }
};

// Runs one round at a time: a worker may ask for the next when all have handed in this one, or one
// that is still in it would never be told to push.
class PullPacer final : public RoundPacer<PulledWorker> {
 public:
  using RoundPacer::RoundPacer;

  void save(StateWriter& io) override { state(io); }
  void load(StateReader& io) override { state(io); }
  void leave(int worker, Instant) override { workers_.erase(worker); }

  void ready(int number, Clock clock, const TaskReport&, Instant now) override {
    if (clock != round_) {
      round_ = clock;
      for (auto& [other, worker] : workers_) worker.done = false;
    }
    PulledWorker& worker = workers_.at(number);
    worker.round = clock;
    worker.end = now;
    starts_.push_back({.worker = number, .steps = 0});
  }

  Verdict judge(int number, Clock, const TaskReport& report, Instant now) override {
    PulledWorker& worker = workers_.at(number);
    worker.steps = report.steps;
    worker.seconds = report.seconds;
    worker.end = now;
    if (report.exchange > 0) worker.exchange = report.exchange;
    if (report.steps < limits_.least) return Verdict::kAnother;
    const bool full = limits_.most > 0 && report.steps >= limits_.most;
    if (!full && !may_push(number, worker, now)) return Verdict::kAnother;
    worker.done = true;
    show_if_ended();
    return Verdict::kPush;
  }

 private:
  // Shows the round once all have ended it.
  void show_if_ended() {
    std::vector<Record> records;
    for (const auto& [number, worker] : workers_) {
      if (!worker.done) return;
      records.push_back({number, worker.steps, worker.seconds, worker.end, worker.round});
    }
    show(records);
  }

  bool may_push(int number, const PulledWorker& worker, Instant now) const {
    const auto total = [](const auto& entry) {
      return entry.second.seconds > 0 ? entry.second.seconds + entry.second.exchange : 0;
    };
    // The first of several maxima counts as the slowest.
    const auto& [slowest_number, slowest] = *std::ranges::max_element(workers_, {}, total);
    if (slowest_number == number || slowest.done) return slowest.round == round_;
    if (slowest.round != round_) return false;
    const double rest =
        to_seconds(slowest.end) + slowest.seconds + slowest.exchange - to_seconds(now);
    return worker.seconds + worker.exchange + limits_.epsilon > rest;
  }
};

// ---- assigned ----

struct AssignedWorker {
  Record last;       // task that it has ended; of 0 steps: none
  Clock clock = -1;  // that it asked to start last; -1: none yet
  bool waits = false;
  std::int64_t steps = 0;  // that it was told last
  StepTimes times;
  double exchange = 0;  // smoothed; 0: not known
  void state(auto& io) { io(last, clock, waits, steps, times, exchange); }
};

// Assigns steps by rounds of one clock. A worker that asks for the first time, or when the round
// has begun, makes the least number of steps; the others begin a round together, when all that are
// in the job have asked.
class AssigningPacer final : public RoundPacer<AssignedWorker> {
 public:
  using RoundPacer::RoundPacer;

  void save(StateWriter& io) override { state(io), io(mean_steps_, told_, left_); }
  void load(StateReader& io) override { state(io), io(mean_steps_, told_, left_); }

  // Takes out a worker. The end of its last task is not reported: its steps are taken to be as long
  // as the ones before.
  void leave(int number, Instant now) override {
    const AssignedWorker& worker = workers_.at(number);
    if (worker.clock >= 0 && !worker.waits)
      left_.push_back({number, worker.steps, worker.times.smoothed(), now, worker.clock});
    workers_.erase(number);
    if (workers_.empty() && !left_.empty()) return show(left_);
    try_to_begin();
  }

  void ready(int number, Clock clock, const TaskReport& last, Instant now) override {
    AssignedWorker& worker = workers_.at(number);
    worker.waits = true;
    worker.last = {number, last.steps, last.seconds, now, clock - 1};
    worker.clock = clock;
    if (last.steps > 0 && last.seconds > 0) worker.times.add(last.seconds, last.steps);
    if (last.exchange > 0)
      worker.exchange +=
          (worker.exchange > 0 ? kExchangeShare : 1) * (last.exchange - worker.exchange);
    if (clock > round_) return try_to_begin();
    worker.steps = limits_.least;
    start(number, worker);
  }

 private:
  void try_to_begin() {
    bool somebody = false;
    for (const auto& [number, worker] : workers_) {
      if (!worker.waits && worker.clock >= 0) return;
      somebody = somebody || worker.waits;
    }
    if (!somebody) return;
    show_ended();
    plan();
    for (auto& [number, worker] : workers_)
      if (worker.waits) start(number, worker);
  }

  // Shows the round that has ended, of those that were in it.
  void show_ended() {
    left_.clear();
    std::vector<Record> records;
    for (const auto& [number, worker] : workers_)
      if (worker.last.steps > 0) records.push_back(worker.last);
    if (!records.empty()) show(records);
  }

  // Plans the steps. The slowest makes the least number; all have the time that it needs for them
  // and to hand them in.
  void plan() {
    double available = 0, total = 0;
    for (const auto& [number, worker] : workers_)
      if (worker.times.known()) available = std::max(available, needs(worker));
    int planned = 0;
    for (auto& [number, worker] : workers_) {
      if (!worker.waits) continue;
      round_ = std::max(round_, worker.clock);
      worker.steps = limits_.least;
      if (worker.times.known() && needs(worker) < available)
        worker.steps = std::max<std::int64_t>(
            worker.steps,
            steps_within(available - worker.exchange, worker.times.high(), limits_.epsilon));
      if (limits_.most > 0) worker.steps = std::min(worker.steps, limits_.most);
      total += static_cast<double>(worker.steps);
      ++planned;
    }
    mean_steps_ = total / planned;
    if (planned > 1 && total == static_cast<double>(limits_.least * planned)) warn_of_epsilon();
  }

  // Warns, once, that bsp would be the same.
  void warn_of_epsilon() {
    double slowest = 0, fastest = kUnknown;
    for (const auto& [number, worker] : workers_) {
      if (!worker.times.known()) return;
      slowest = std::max(slowest, worker.times.smoothed());
      fastest = std::min(fastest, worker.times.high());
    }
    const double needed = static_cast<double>(limits_.least) * slowest;
    if (told_ || limits_.most == limits_.least || limits_.epsilon < needed - 2 * fastest ||
        steps_within(needed, fastest, 0) <= limits_.least)
      return;
    told_ = true;
    LOG(WARNING) << "esync: all workers make " << limits_.least
                 << (limits_.least == 1 ? " step" : " steps") << " a round, though a step takes "
                 << fastest << " s on one and " << slowest
                 << " s on another: a worker makes one more step only if this ends epsilon ("
                 << limits_.epsilon
                 << " s) before the slowest worker is done. Lower epsilon to allow more steps";
  }

  double needs(const AssignedWorker& worker) const {
    return static_cast<double>(limits_.least) * worker.times.smoothed() + worker.exchange;
  }

  void start(int number, AssignedWorker& worker) {
    worker.waits = false;
    starts_.push_back({.worker = number,
                       .steps = static_cast<std::uint32_t>(worker.steps),
                       .mean_steps = mean_steps_});
  }

  static constexpr double kUnknown = 1e9;
  double mean_steps_ = 1;
  bool told_ = false;         // that epsilon leaves no time
  std::vector<Record> left_;  // of workers that left in this round
};

}  // namespace

std::unique_ptr<Scheme> make_esync(Parameters& parameters) {
  Task task = read_averaging(parameters);
  task.steps = 0;
  task.paced = true;
  task.judged = parameters.mode() == StepsMode::kPull;
  task.asks_early = !task.judged;  // see PullPacer
  if (task.judged && task.weighing == Weighing::kSteps)
    parameters.refuse(
        "aggregation=steps needs mode=assigned: with mode=pull nobody knows, when a worker is "
        "done, how many steps the others will make");
  Limits limits;
  limits.epsilon = parameters.epsilon();
  limits.least = parameters.min_steps();
  limits.most = parameters.max_steps();
  if (limits.most > 0 && limits.most < limits.least)
    parameters.refuse(
        str("max_steps is ", limits.most, ", below min_steps, which is ", limits.least));
  const auto pacer = [limits, pull = task.judged]() -> std::unique_ptr<Pacer> {
    if (pull) return std::make_unique<PullPacer>(limits);
    return std::make_unique<AssigningPacer>(limits);
  };
  return std::make_unique<InStep>(parameters.spec(), task, pacer);
}

}  // namespace shoal::table
