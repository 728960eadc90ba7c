// Computes the norm of the whole gradient at a clock from each server's part of it. The part of a
// lost server comes from the one that has copies of its rows; if there is none, it counts if it had
// come.
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
    const std::vector<Rank> servers = members_.servers();
    if (norm.server >= servers.size() || answers_for(norm.server, servers) != rank)
      return members_.broken(rank, " sends a norm of server ", norm.server, ", which it is not");
    const Key key{norm.generation, norm.clock};
    if (const auto known = totals_.find(key); known != totals_.end()) {
      members_.say(rank, NormTotal{norm.clock, known->second, norm.generation});
      return {};
    }
    if (!totals_.empty() && key < totals_.rbegin()->first) return {};  // a repeat of long ago
    open_[key].try_emplace(norm.server, norm.squares);
    if (open_.size() > kMost)
      return members_.broken(rank, " sends a norm at clock ", norm.clock, " while that of clock ",
                             open_.begin()->first.second, " is not complete");
    close();
    return {};
  }
  // Says the totals that no part is missing of: one has come, or a server is lost.
  void close() {
    const std::vector<Rank> servers = members_.servers();
    for (auto each = open_.begin(); each != open_.end();) {
      const auto& [key, parts] = *each;
      if (!missing(parts, servers).empty()) {
        ++each;
        continue;
      }
      double total = 0;
      for (const auto& [server, squares] : parts) total += squares;
      for (const Rank server : servers)
        if (!members_[server].left) members_.say(server, NormTotal{key.second, total, key.first});
      totals_[key] = total;
      each = open_.erase(each);
      if (totals_.size() > kMost) totals_.erase(totals_.begin());
    }
  }
  // Notes how many servers have each row in this generation.
  void set_copies(std::uint8_t copies) {
    copies_ = copies;
    close();
  }
  // Counts norms of earlier generations as late from now on.
  void begin_generation(Generation generation) {
    generation_ = generation;
    copies_ = 1;
    open_.clear();
    totals_.clear();
  }
  void state(auto& io) { io(generation_, copies_, open_, totals_); }
  void waiting_for(Lines& lines) const {
    for (const auto& [key, parts] : open_)
      lines.push_back(members_.waiting_for(str("norm ", key.second),
                                           missing(parts, members_.servers()), std::set<Rank>()));
  }

 private:
  using Key = std::pair<Generation, Clock>;
  using Parts = std::map<Rank, double>;  // by server, which is the order of their ranks

  // Returns the process that says the server's part; kNoRank: nobody has its rows.
  Rank answers_for(std::size_t server, const std::vector<Rank>& servers) const {
    const Rank own = servers[server], heir = servers[(server + 1) % servers.size()];
    if (!members_[own].left) return own;
    return copies_ > 1 && !members_[heir].left ? heir : kNoRank;
  }
  // Returns the processes that are to say parts.
  std::vector<Rank> missing(const Parts& parts, const std::vector<Rank>& servers) const {
    std::vector<Rank> ranks;
    for (std::size_t server = 0; server < servers.size(); ++server)
      if (const Rank rank = answers_for(server, servers);
          rank != kNoRank && !parts.contains(static_cast<Rank>(server)))
        ranks.push_back(rank);
    return ranks;
  }

  Members& members_;
  Generation generation_ = 0;
  std::uint8_t copies_ = 1;
  std::map<Key, Parts> open_;
  std::map<Key, double> totals_;  // the last ones
};

}  // namespace shoal::table
