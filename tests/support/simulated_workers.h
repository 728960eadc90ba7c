// Runs functions of a test as the workers of a simulated job, on a network without delays: for
// tests of what is above the table. One worker acts at a time, so a test sees the same order every
// time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/solver/team.h"
#include "shoal/table/shard.h"
#include "shoal/table/table.h"

namespace shoal::test {

class SimulatedWorkers {
 public:
  // Process r is worker r and server r, as far as there are so many.
  explicit SimulatedWorkers(int workers, int servers = 1,
                            table::SchemeMaker maker = table::make_scheme);
  ~SimulatedWorkers();
  SimulatedWorkers(const SimulatedWorkers&) = delete;

  // Calls body(worker, its table) for each worker, on a thread of its own. An error that one
  // returns ends the job. Returns what each body returned. May be called once.
  std::vector<Status> run(const std::function<Status(int worker, table::Table& table)>& body);
  // Returns how many updates were applied to rows, on all servers.
  std::uint64_t merges() const;
  // Returns how many pushes are in them.
  std::uint64_t contributions() const;
  std::size_t learning_rows() const;
  // Returns the values of the learning rows, as they are on the servers.
  std::vector<std::vector<float>> rows() const;
  // Returns what the coordinator would have logged since the last call.
  std::vector<std::string> warnings();
  // Called by a worker: lets virtual time pass, in which the others act.
  static void pass(table::Instant time);

 private:
  struct State;
  struct Worker;
  std::unique_ptr<State> state_;
};

// Runs body(team) for each of `size` workers of a job. One that throws ends the job. Returns the
// text that each threw, or "".
std::vector<std::string> run_team(int size, const std::function<void(Team&)>& body);

// A number that rises, for which workers of a SimulatedWorkers can wait.
class Gate {
 public:
  void reach(int at);
  // Returns whether the number is `at` or more: false if it was not for a virtual second.
  bool wait(int at);

 private:
  int at_ = 0;
};

}  // namespace shoal::test
