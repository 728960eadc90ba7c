// Numbers that workers say of each iteration, averaged for worker 0. Nobody waits for them, so a
// worker that is far ahead leaves rounds open; of these there is a bound.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "shoal/table/coordinator/members.h"

namespace shoal::table {

class Outputs {
 public:
  static constexpr std::size_t kMostOpen = 4096, kMostKept = 256;

  explicit Outputs(const Members& members) : members_(members) {}
  Status tell(std::uint32_t rank, const Ask& ask, std::vector<Dispatch>& out);
  // The worker speaks of nothing before this clock.
  void admit(std::uint32_t rank, Clock clock) { next_[rank] = clock; }
  // Closes what only waited for workers that are done now.
  void close(std::vector<Dispatch>& out);
  // A line for the log if the bound was met since the last call; "" otherwise.
  std::string take_warning() { return std::exchange(warning_, {}); }

 private:
  // by rank, which is the order of workers
  using Round = std::map<std::uint32_t, std::vector<double>>;
  void close_first(std::vector<Dispatch>& out);

  const Members& members_;
  std::map<Clock, Round> open_;
  std::map<std::uint32_t, Clock> next_;  // clock that each may speak of, by rank
  std::map<Clock, std::string> means_;   // of the last rounds, should worker 0 ask again
  bool warned_ = false;
  std::string warning_;
};

}  // namespace shoal::table
