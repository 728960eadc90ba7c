// The order in which a worker's table begins a generation and ends its part in one: what it waits
// for, asks and tells. Pure; the table over TCP, the simulator's tables and the tests' all follow
// it.
#pragma once

#include "shoal/table/coordinator.h"
#include "shoal/table/table.h"

namespace shoal::table {

// The actions of a table in the steps that are not questions.
struct TableActions {
  std::function<Status()> settle;  // waits until all rows that were asked for have arrived
  std::function<void()> open;      // begins with the plan: from here on rows of it may come
  // gives the servers the plan and the first numbers, and waits until they have them
  std::function<Status()> install;
};

class TableSession {
 public:
  explicit TableSession(SchemeMaker maker = make_scheme) : maker_(std::move(maker)) {}

  // Begins the generation of this plan. `compares`: the workers make sure that they all have the
  // chief's. An error is the plan's, or the table's.
  Status create(const Plan& plan, bool compares, Table& table, const TableActions& actions);
  // The same where nothing has to be done or agreed on.
  Status begin(const Plan& plan, int worker);

  // The worker has pushed its row at this clock.
  void pushed(Clock clock) { first_unpushed_ = clock + 1; }
  // Returns what all servers are told before the worker puts this question: it pushes nothing more,
  // or not until it is back, and no other worker is to wait for its pushes.
  std::optional<Retire> retires_before(const Ask& question) const;

  // Of this generation:
  Clock first() const { return first_; }  // iteration
  bool paced() const { return paced_; }
  bool bounded() const { return bounded_; }

 private:
  const SchemeMaker maker_;
  std::optional<Generation> generation_;  // none before the first plan
  Clock first_ = 0, first_unpushed_ = 0;
  bool paced_ = false, bounded_ = true;
  bool waited_for_ = false;  // pushes of other workers may wait for this one's
};

// Returns what the chief sends each server: the plan, then of each of its rows the histories, then
// the weights, which complete it.
std::vector<std::vector<Message>> initial_of(const Plan& plan, const Table::Source& initial);

}  // namespace shoal::table
