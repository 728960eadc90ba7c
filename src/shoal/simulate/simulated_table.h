// The Table of a simulated worker: its calls wait in virtual time, on a SimThread.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "shoal/base/mutex.h"
#include "shoal/simulate/sim_thread.h"
#include "shoal/simulate/simulated_client.h"
#include "shoal/table/pending_answers.h"
#include "shoal/table/table_session.h"

namespace shoal::simulate {

class SimulatedTable final : public table::Table, public SimulatedClient {
 public:
  SimulatedTable(SimulatedJob& job, int worker, SimThread& thread)
      : SimulatedClient(job, worker),
        thread_(thread),
        rosters_{job.roster()},
        session_(job.options().maker) {}

  // The virtual seconds that the worker has spent so far.
  struct Times {
    double compute = 0;
    double rows = 0;    // waiting for rows
    double others = 0;  // waiting for other workers or the coordinator
  };
  const Times& times() const { return times_; }
  // The thread computes until this time. Its next call of the table returns to virtual time. Does
  // nothing if the job has failed.
  void compute(Instant until);
  void enter() { thread_.enter(); }

  int worker() const override { return worker_; }
  const table::RosterBody& roster() const override { return rosters_.back(); }
  Status create(const table::Plan& plan, const Source& initial,
                const Destination& destination) override;
  Result<bool> regroup(const table::SegmentBody& end) override;
  Status status() const override;
  void push(std::span<const table::Push> together) override;
  void get(table::RowId row, table::Clock clock, table::Part part) override;
  Status wait(std::span<const table::RowId> rows) override;
  Result<std::string> ask(table::Topic topic, table::Clock clock, std::string body) override;
  void tell(table::Topic topic, table::Clock clock, std::string body) override;
  std::vector<table::Answer> take_outputs() override;
  Result<table::Want> start(table::Clock clock) override;
  Status finish(table::Clock clock) override;
  void abort(const Error& error) override;
  void release() override;
  table::Traffic traffic() const override;
  // While the thread computes, this is the time at which it began to.
  Instant now() const override { return thread_.acts() ? SimulatedClient::now() : left_at_; }
  table::StalenessCounts staleness() const override;

 private:
  void all_arrived() override { wake(); }
  void heard(const table::Message& message) override;
  void failed() override;
  void wake();
  Status settle();
  // Waits until done() or a failure of the job, and adds the seconds to `account`.
  template <class Done>
  Status wait_until(Done done, double& account);

  SimThread& thread_;
  Times times_;
  std::deque<table::RosterBody> rosters_;  // by generation
  table::PendingAnswers answers_;
  table::TableSession session_;
  Instant left_at_{};  // when the thread last began to compute
  bool finished_ = false;
  bool suspended_ = false;
  bool waking_ = false;  // the thread's next resume() is scheduled
  mutable Mutex mutex_;
  std::optional<Error> error_ GUARDED_BY(mutex_);  // read by status() while the thread computes
};

}  // namespace shoal::simulate
