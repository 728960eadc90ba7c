// Computes the norm of the whole gradient at a clock from each server's part of it.
#pragma once

#include <map>

#include "shoal/table/coordinator/members.h"

namespace shoal::table {

class Norms {
 public:
  // Servers are at most one clock apart when they ask, as none can go on without the answer.
  static constexpr std::size_t kMost = 8;

  explicit Norms(Members& members) : members_(members) {}
  Status take(Rank rank, const Norm& norm) {
    if (norm.generation < generation_) return {};
    if (members_[rank].server != static_cast<std::int32_t>(norm.server))
      return members_.broken(rank, " sends a norm of server ", norm.server, ", which it is not");
    const Key key{norm.generation, norm.clock};
    if (const auto known = totals_.find(key); known != totals_.end()) {
      members_.say(rank, NormTotal{norm.clock, known->second, norm.generation});
      return {};
    }
    if (!totals_.empty() && key < totals_.rbegin()->first) return {};  // a repeat of long ago
    open_[key].try_emplace(rank, norm.squares);
    if (open_.size() > kMost)
      return members_.broken(rank, " sends a norm at clock ", norm.clock, " while that of clock ",
                             open_.begin()->first.second, " is not complete");
    const auto& parts = open_.at(key);
    const std::vector<Rank> servers = members_.servers();
    if (parts.size() < servers.size()) return {};
    double total = 0;
    for (const auto& [server, squares] : parts) total += squares;
    for (const Rank server : servers)
      members_.say(server, NormTotal{norm.clock, total, norm.generation});
    open_.erase(key);
    totals_[key] = total;
    if (totals_.size() > kMost) totals_.erase(totals_.begin());
    return {};
  }
  // Counts norms of earlier generations as late from now on.
  void begin_generation(Generation generation) {
    generation_ = generation;
    open_.clear();
    totals_.clear();
  }
  void waiting_for(Lines& lines) const {
    for (const auto& [key, parts] : open_)
      lines.push_back(members_.waiting_for(str("norm ", key.second), members_.servers(), parts));
  }

 private:
  using Key = std::pair<Generation, Clock>;
  Members& members_;
  Generation generation_ = 0;
  // By rank, which is the order of servers.
  std::map<Key, std::map<Rank, double>> open_;
  std::map<Key, double> totals_;  // the last ones
};

}  // namespace shoal::table
