// A worker without numbers: a list of what it waits for, sends and computes, with the real client,
// and the real pacer's word where the scheme has one. It does what the updaters of parallel/ do, in
// that order.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/parallel/exchange_time.h"
#include "shoal/simulate/client_end.h"
#include "shoal/simulate/simulation.h"
#include "shoal/simulate/worker.h"
#include "shoal/table/coordinator.h"
#include "shoal/table/scheme.h"
#include "shoal/table/worker_talks.h"

namespace shoal::simulate {

// One stretch of a pass: what must be here before it in a task's first step, what is sent when it
// begins in the last one, and its part of an iteration's time.
struct Stretch {
  std::vector<table::RowId> needs, sends;
  double share = 0;
};

// What all workers do in a phase.
struct DryPhase {
  table::Plan plan;
  table::Task task;
  bool bounded = true;
  std::vector<Stretch> stretches;  // of a step
  // rest: of those that learn, what no stretch sends
  std::vector<table::RowId> all, learning, rest;
  parallel::RowSample sample;  // where exchanges are measured
  table::Clock end = 0;        // the clock after its last task
};

struct Script {
  std::vector<DryPhase> phases;
  bool asks = false;           // the coordinator has a word in it
  double items = 0;            // of an iteration
  std::vector<float> numbers;  // the longest row's, which nobody looks at
  std::span<float> row(const DryPhase& phase, table::RowId row) {
    return std::span(numbers).first(phase.plan.rows[row].length);
  }
};

// The plan of a phase, and numbers which are none.
void plant(SimulatedJob& job, Script& script, const DryPhase& phase);

class DryWorker final : public ClientEnd {
 public:
  DryWorker(SimulatedJob& job, int number, Script& script, Tally& tally, std::uint64_t seed)
      : ClientEnd(job, number),
        script_(script),
        tally_(tally),
        compute_(job.process_of(number).compute),
        random_(seed, static_cast<std::uint64_t>(number)) {}

  void start() { begin_phase(); }  // of the first phase, which is planted
  bool ended() const { return ended_; }
  WorkerFigures figures() const;

 private:
  using Then = void (DryWorker::*)();
  const DryPhase& phase() const { return script_.phases[phase_]; }
  const table::Task& task() const { return phase().task; }
  // Local steps of this task; 0: until the judge says that it is over.
  std::uint32_t wanted() const {
    return task().steps > 0 ? static_cast<std::uint32_t>(task().steps) : start_.steps;
  }

  // ---- waits ----
  void await_rows(std::span<const table::RowId> rows, Then then);
  void all_arrived() override;
  void read(Then then);
  void ask(table::Topic topic, table::Clock clock, std::string body, Then then);
  void heard(const table::Message& message) override;
  void go_on(Then then, double& account);
  void compute(double share, Then then);

  // ---- a task ----
  void begin_task();
  void ask_leave();
  void take_leave();
  void first_step();
  void pull();
  void passes();
  void step();
  void stretch();
  void computes_stretch();
  void next_stretch();
  void step_done();
  void after_step();
  void judged();
  void hand_in(table::Verdict verdict);
  void push(std::span<const table::RowId> rows, bool empty);
  void note_told();

  // ---- a phase ----
  void begin_phase();
  void read_all();
  void take_turn(int worker);
  void end_turn();
  void next_turn();
  void end_phase();
  void leave_phase();
  void phase_over();
  void drained();
  void retire();
  void end();

  Script& script_;
  Tally& tally_;
  const Compute& compute_;
  Random random_;
  table::WorkerTalks talks_;
  std::size_t phase_ = 0, at_ = 0, drawn_ = 0;
  table::Clock clock_ = 0;
  table::Start start_{};        // the pacer's word on this task
  table::TaskReport report_{};  // of this task
  int turn_ = 0;                // whose it is to measure
  double exchange_ = 0;         // seconds; 0: not known
  std::uint32_t told_ = 0;      // steps of it that the judge has heard of
  Instant working_since_{};     // since he has, or since the task began
  double waited_then_ = 0;      // for rows, by then
  double seconds_ = 0;          // of this step
  Then then_ = nullptr;         // when what is waited for is here
  Instant since_{};             // it is waited for
  std::optional<std::tuple<table::Topic, table::Clock, std::uint32_t>> asked_;
  std::string answer_;
  std::int64_t iterations_ = 0;
  double computed_ = 0, waited_ = 0, waited_for_others_ = 0;
  Instant ended_at_{};
  bool ended_ = false;
};

}  // namespace shoal::simulate
