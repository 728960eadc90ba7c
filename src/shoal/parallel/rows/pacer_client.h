// A worker's client of the scheme's pacer: asks whether a task may begin and for the verdict on it.
// Schemes without a pacer get the answers that let everything pass.
#pragma once

#include "shoal/parallel/rows/row_waits.h"
#include "shoal/solver/updater.h"
#include "shoal/table/coordinator.h"
#include "shoal/table/scheme.h"

namespace shoal::parallel {

class PacerClient {
 public:
  // `until`: that of WorkerOptions.
  PacerClient(table::Table& table, const table::Task& task, RowWaits& waits, table::Clock until)
      : table_(table), task_(task), waits_(waits), until_(task.shared ? until : 0) {}

  // Returns when the task may begin, which is asked once, when it is over, or when an agreement
  // comes first.
  Result<Begin> begin(table::Clock clock);
  // Returns the pacer's answer for the task under way: local steps, whether the rows are to be read
  // anew.
  const table::Start& start() const { return start_; }
  // Returns the local steps of the task under way; 0: until the pacer says that it is over.
  int wanted() const { return task_.steps > 0 ? task_.steps : static_cast<int>(start_.steps); }
  // Returns the number with which a worker's steps are compared: the same on all workers.
  double mean_steps() const { return task_.steps > 0 ? task_.steps : start_.mean_steps; }

  // Sets the seconds of an exchange, for the pacer.
  void exchange_takes(double seconds) { exchange_ = seconds; }
  void task_begins();
  // Counts a local step of so many samples.
  void step_done(double samples);
  int steps() const { return static_cast<int>(report_.steps); }
  // Asks for the verdict. Returns kPush without asking where the scheme's tasks are not judged.
  Result<table::Verdict> judge(table::Clock clock);

 private:
  Result<std::string> ask(table::Topic topic, table::Clock clock, const std::string& body);

  table::Table& table_;
  const table::Task task_;
  RowWaits& waits_;
  const table::Clock until_;  // where tasks are shared
  table::Start start_{};
  table::Clock granted_ = -1;   // the last task that may begin
  table::TaskReport report_{};  // of the task under way, or the last
  double exchange_ = 0;
  std::uint32_t told_ = 0;   // steps of the task that the pacer has heard of
  table::Instant since_{};   // when the first step began that it has not heard of
  table::Instant waited_{};  // for rows by then
};

}  // namespace shoal::parallel
