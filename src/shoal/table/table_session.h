// The order in which a worker's table begins a generation and ends its part in one: what it waits
// for, asks and tells. Pure; the table over TCP, the simulator's tables and the tests' all follow
// it.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/table/coordinator.h"
#include "shoal/table/scheme.h"
#include "shoal/table/table.h"

namespace shoal::table {

class TableSession {
 public:
  enum class Do {
    kSettle,   // wait until all rows that were asked for have arrived
    kAsk,      // put `ask` to the coordinator; answered() takes what it answers
    kTell,     // say `ask` to the coordinator
    kOpen,     // begin with the plan: from here on rows of it may come
    kInstall,  // give the servers the plan and the first numbers, and wait until they have them
    kDone,
  };
  struct Step {
    Do what = Do::kDone;
    Ask ask{};
  };

  explicit TableSession(SchemeMaker maker = make_scheme) : maker_(std::move(maker)) {}

  // Begins the generation of this plan; the steps are those of next(), until kDone. `compares`: the
  // workers make sure that they all have the chief's plan. An error is the plan's.
  Status begin(const Plan& plan, int worker, bool compares);
  Step next();
  // The answer to the last kAsk. An error: this worker's plan is not the chief's.
  Status answered(std::string_view answer);

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
  std::deque<Step> steps_;
  std::string description_;  // of the plan, until it was compared; "": it is not
  int worker_ = -1;
  bool begun_ = false;
  Generation generation_ = 0;
  Clock first_ = 0, first_unpushed_ = 0;
  bool paced_ = false, bounded_ = true;
  bool waited_for_ = false;  // pushes of other workers may wait for this one's
};

// Returns what the chief sends each server: the plan, then of each of its rows the histories, then
// the weights, which complete it.
std::vector<std::vector<Message>> initial_of(const Plan& plan, const Table::Source& initial);

// The actions of a table in the steps that are not questions.
struct TableActions {
  std::function<Status()> settle;
  std::function<void()> open;
  std::function<Status()> install;
};
// Takes all steps of a generation, where a thread can wait.
Status create(TableSession& session, const Plan& plan, bool compares, Table& table,
              const TableActions& actions);

}  // namespace shoal::table
