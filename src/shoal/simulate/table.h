// The Table of a worker whose thread is an actor: what waits in it waits in virtual time.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "shoal/base/mutex.h"
#include "shoal/simulate/client_end.h"
#include "shoal/simulate/stage.h"
#include "shoal/table/worker_talks.h"

namespace shoal::simulate {

class SimulatedTable final : public table::Table, public ClientEnd {
 public:
  SimulatedTable(SimulatedJob& job, int worker, Actor& actor)
      : ClientEnd(job, worker), actor_(actor), rosters_{job.roster()} {}

  // Seconds of virtual time so far.
  // others: waiting for all, or for the coordinator
  struct Times {
    double compute = 0, rows = 0, others = 0;
  };
  const Times& times() const { return times_; }
  // The actor works by itself, for so long; it comes back when it calls anything here. Nothing if
  // the job has failed.
  void compute(Instant until);
  void enter() { actor_.enter(); }

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
  // While the worker computes: when it began to.
  Instant now() const override { return actor_.inside() ? ClientEnd::now() : left_at_; }
  table::StalenessCounts staleness() const override;

 private:
  void all_arrived() override { wake(); }
  void heard(const table::Message& message) override;
  void failed() override;
  void wake();
  Status settle();
  void retire(table::Clock clock);
  // Until done(), or the job has failed. The seconds go to `account`.
  template <class Done>
  Status rest_until(Done done, double& account);

  Actor& actor_;
  Times times_;
  std::deque<table::RosterBody> rosters_;  // by epoch
  table::WorkerTalks talks_;
  table::Epoch epoch_ = 0;
  table::Clock pushed_ = 0;  // of the last push, and one
  bool waited_for_ = false;  // others' pushes may wait for this worker's
  Instant left_at_{};        // when it last began to compute
  bool finished_ = false;
  bool asleep_ = false, waking_ = false;
  mutable Mutex mutex_;
  std::optional<Error> error_ GUARDED_BY(mutex_);  // the job's; status() is asked outside a turn
};

}  // namespace shoal::simulate
