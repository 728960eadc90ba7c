// A worker without numbers: it waits, sends and lets time pass as a real worker's updater does,
// with the real table client. What it sends has a size and no values.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "shoal/parallel/tuning/exchange_time.h"
#include "shoal/simulate/coroutine.h"
#include "shoal/simulate/simulated_client.h"
#include "shoal/simulate/simulated_worker.h"
#include "shoal/simulate/simulation.h"
#include "shoal/table/coordinator.h"
#include "shoal/table/pending_answers.h"
#include "shoal/table/scheme.h"
#include "shoal/table/table_session.h"

namespace shoal::simulate {

// A slice of computation between two actions on the table.
struct ComputeSlice {
  std::vector<table::RowId> needs;  // must have arrived before it, in a task's first step
  std::vector<table::RowId> sends;  // are pushed when it begins, in a task's last step
  double share = 0;                 // its part of a step's time
};

// What every worker does in a phase.
struct DryPhase {
  table::Plan plan;
  table::Task task;
  bool bounded = true;
  std::vector<ComputeSlice> slices;  // of a step
  std::vector<table::RowId> all, learning;
  std::vector<table::RowId> rest;  // the learning rows that no slice sends
  parallel::RowSample sample;      // the rows that measure how long an exchange takes
  table::Clock end = 0;            // the clock after its last task
};

// What every worker does in the job.
struct JobPlan {
  std::vector<DryPhase> phases;
  bool asks = false;           // workers ask the coordinator, in some phase
  double items = 0;            // samples of an iteration
  std::vector<float> numbers;  // stand for the values of any row
  std::span<float> row(const DryPhase& phase, table::RowId row) {
    return std::span(numbers).first(phase.plan.rows[row].length);
  }
  // Creates the rows of a phase on the servers.
  void install(SimulatedJob& job, const DryPhase& phase);
};

class DryWorker final : public SimulatedClient {
 public:
  DryWorker(SimulatedJob& job, int number, JobPlan& plan, Tally& tally, std::uint64_t seed)
      : SimulatedClient(job, number),
        plan_(plan),
        tally_(tally),
        compute_(job.process_of(number).compute),
        random_(seed, static_cast<std::uint64_t>(number)),
        life_(run()) {}

  void start() { life_.start(); }  // the rows of the first phase exist
  bool ended() const { return life_.ended(); }
  WorkerFigures figures() const;

 private:
  const DryPhase& phase() const { return plan_.phases[phase_]; }
  const table::Task& task() const { return phase().task; }
  // Returns how many local steps the task has; 0: until the judge ends it.
  std::uint32_t wanted() const {
    return task().steps > 0 ? static_cast<std::uint32_t>(task().steps) : start_.steps;
  }

  // Suspends the worker, and adds the time until it goes on to `account`.
  struct Wait {
    DryWorker& worker;
    double& account;
    bool ready = false;
    Instant since = worker.now();
    bool await_ready() const { return ready; }
    void await_suspend(std::coroutine_handle<> handle) { worker.suspended_ = handle; }
    void await_resume() { account += to_seconds(worker.now() - since); }
  };
  void resume() { std::exchange(suspended_, nullptr).resume(); }
  Wait rows(std::span<const table::RowId> rows) {
    return {.worker = *this, .account = waited_, .ready = !await(rows)};
  }
  // The answer is in `answer_` afterwards.
  Wait ask(table::Topic topic, table::Clock clock, std::string body);
  Wait compute(double share);
  void all_arrived() override { resume(); }
  void heard(const table::Message& message) override;

  Coroutine run();
  Coroutine run_phase();
  Coroutine begin_next_phase();
  Coroutine measure_exchange();
  Coroutine wait_to_begin();
  Coroutine run_task();
  Coroutine step();
  void get(std::span<const table::RowId> rows);
  void push(std::span<const table::RowId> rows, bool empty);
  void tell(table::Topic topic, table::Clock clock, std::string body);
  void start_report();
  void retire();

  JobPlan& plan_;
  Tally& tally_;
  const Compute& compute_;
  Random random_;
  table::PendingAnswers answers_;
  table::TableSession session_;
  std::size_t phase_ = 0;
  std::size_t drawn_ = 0;  // steps whose times were drawn
  table::Clock clock_ = 0;
  table::Start start_{};        // the pacer's answer for this task
  table::TaskReport report_{};  // about this task
  double exchange_ = 0;         // seconds; 0: not measured
  std::uint32_t reported_ = 0;  // steps of this task that the judge knows of
  Instant working_since_{};     // when the first step began that the judge does not know of
  double waited_before_ = 0;    // `waited_` at that time
  double seconds_ = 0;          // the time of this step
  std::optional<std::tuple<table::Topic, table::Clock, std::uint32_t>> asked_;
  std::string answer_;
  std::int64_t iterations_ = 0;
  double computed_ = 0, waited_ = 0, waited_for_others_ = 0;
  Instant ended_at_{};
  std::coroutine_handle<> suspended_;
  Coroutine life_;
};

}  // namespace shoal::simulate
