// Brings all members of a team to the end of one iteration, after the loss of a member has
// interrupted them in the middle of one (include/shoal/solver/recoverable.h).
#pragma once

#include "shoal/solver/recoverable.h"
#include "shoal/solver/solver_core.h"

namespace shoal {

class Recovery : SolverPart {
 public:
  explicit Recovery(const SolverCore& core) : SolverPart(core) {}

  // Returns the iterations that all members have behind them now. The chief, or, if that is lost,
  // the next member has the params and histories of that, and so have those that lead if it is
  // lost, too (Team::may_lead); the others' may be older. An
  // interruption: another member is lost; call it again, which goes on from what each has by then.
  Result<std::int64_t> run();

 private:
  struct Unit {
    std::size_t source = 0;    // the first member with the newest version
    std::int64_t version = 0;  // that; the number of iterations of all if the servers have it
    bool is_fetched = false;   // from the servers
  };
  // By member; nothing: it is lost.
  using Standings = std::vector<std::optional<Recoverable::Standing>>;
  Result<Standings> exchange_standings(const Recoverable::Standing& mine) const;
  static Result<std::vector<Unit>> choose(const Standings& all, std::int64_t done);
  Status give(const std::vector<Unit>& units, std::int64_t done, std::string& bytes);
  Status take(const std::vector<Unit>& units, const Standings& all, std::int64_t done,
              const std::vector<std::string>& given);
  Status hand_on(std::size_t units, std::int64_t done);
  void report(const std::vector<Unit>& units, std::int64_t done, const Standings& all) const;

  bool leads_ = false;  // this member gets the params that all go on from
};

}  // namespace shoal
