// The norm of all rows' gradients at a clock, from what each server has of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/table/coordinator/members.h"

namespace shoal::table {

class Norms {
 public:
  // Servers are at most one clock apart when they ask, as none can go on without the answer.
  static constexpr std::size_t kMost = 8;

  explicit Norms(const Members& members) : members_(members) {}
  Status take(std::uint32_t rank, const Norm& norm, std::vector<Dispatch>& out);
  // Norms of earlier generations are late from now on.
  void begin_generation(Generation generation);
  std::vector<std::string> waiting_for() const;

 private:
  using Key = std::pair<Generation, Clock>;
  const Members& members_;
  Generation generation_ = 0;
  // by rank, which is the order of servers
  std::map<Key, std::map<std::uint32_t, double>> open_;
  std::map<Key, double> totals_;  // the last ones
};

}  // namespace shoal::table
