// The Table of a worker whose thread is an actor: what waits in it waits in virtual time.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "client_end.h"
#include "shoal/base/mutex.h"
#include "stage.h"

namespace shoal::simulate {

class SimulatedTable final : public table::Table, public ClientEnd {
 public:
  SimulatedTable(SimulatedJob& job, int worker, Actor& actor) : ClientEnd(job, worker), actor_(actor) {}

  // Seconds of virtual time so far.
  struct Times { double compute = 0, rows = 0, others = 0; };   // others: waiting for all, or for the coordinator
  const Times& times() const { return times_; }
  table::Clock pushed() const { return pushed_; }     // of the last push, and one
  // The actor works by itself, for so long; it comes back when it calls anything here. Nothing if the job has failed.
  void compute(Instant until);
  void enter() { actor_.enter(); }

  int worker() const override { return worker_; }
  const table::RosterBody& roster() const override { return job_.roster(); }
  Status create(const table::Plan& plan, const Source& initial, const Destination& destination) override;
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
  table::Traffic traffic() const override { return job_.traffic(worker_); }
  Instant now() const override { return ClientEnd::now(); }

 private:
  void all_arrived() override { wake(); }
  void heard(const table::Message& message) override;
  void failed() override;
  void wake();
  // Until done(), or the job has failed. The seconds go to `account`.
  template <class Done>
  Status rest_until(Done done, double& account);

  Actor& actor_;
  Times times_;
  std::optional<std::pair<table::Topic, table::Clock>> asked_;
  std::optional<std::string> answer_;          // to that
  std::vector<table::Answer> outputs_;
  table::Clock started_ = 0;                   // iterations begun
  table::Clock pushed_ = 0;
  bool pausing_ = false, finished_ = false;
  bool asleep_ = false, waking_ = false;
  std::map<table::Clock, table::Want> agreed_;
  mutable Mutex mutex_;
  std::optional<Error> error_ GUARDED_BY(mutex_);   // the job's; status() is asked outside a turn
};

}  // namespace shoal::simulate
