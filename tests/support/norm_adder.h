// Adds the norms of a simulated cluster's servers, as the coordinator does.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "shoal/table/messages.h"

namespace shoal::table {

class NormAdder {
 public:
  // Returns whether a norm is the first of its server and clock, or the same again.
  bool is_right(const Norm& norm) {
    const auto& squares = sums_[{norm.generation, norm.clock}].squares;
    const auto before = squares.find(norm.server);
    return before == squares.end() || before->second == norm.squares;
  }
  // Notes a server's part. Returns the total if it is known already.
  std::optional<NormTotal> add(const Norm& norm) {
    Sum& sum = sums_[{norm.generation, norm.clock}];
    if (!sum.total) sum.squares.try_emplace(norm.server, norm.squares);
    return sum.total;
  }
  // Returns the totals, not returned before, of which no part is missing. `is_said`: the server's
  // part still comes, if it has not. Parts are added in the order of servers.
  std::vector<NormTotal> take_totals(int servers, const std::function<bool(int)>& is_said) {
    std::vector<NormTotal> totals;
    for (auto& [of, sum] : sums_) {
      bool is_whole = !sum.total;
      for (int server = 0; server < servers; ++server)
        is_whole = is_whole && (sum.squares.contains(server) || !is_said(server));
      if (!is_whole) continue;
      sum.total = NormTotal{of.second, 0, of.first};
      for (const auto& [server, squares] : sum.squares) sum.total->squares += squares;
      totals.push_back(*sum.total);
    }
    return totals;
  }

 private:
  struct Sum {
    std::map<int, double> squares;  // by server
    std::optional<NormTotal> total;
  };
  std::map<std::pair<Generation, Clock>, Sum> sums_;
};

}  // namespace shoal::table
