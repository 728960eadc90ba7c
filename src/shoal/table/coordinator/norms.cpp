#include "shoal/table/coordinator/norms.h"

namespace shoal::table {

void Norms::begin_generation(Generation generation) {
  generation_ = generation;
  open_.clear();
  totals_.clear();
}

Status Norms::take(std::uint32_t rank, const Norm& norm, std::vector<Dispatch>& out) {
  if (norm.generation < generation_) return {};
  if (members_[rank].server != static_cast<std::int32_t>(norm.server))
    return members_.broken(rank, " sends a norm of server ", norm.server, ", which it is not");
  const Key key{norm.generation, norm.clock};
  if (const auto known = totals_.find(key); known != totals_.end()) {
    out.push_back({rank, NormTotal{norm.clock, known->second, norm.generation}});
    return {};
  }
  if (!totals_.empty() && key < totals_.rbegin()->first) return {};  // a repeat of long ago
  open_[key].try_emplace(rank, norm.squares);
  if (open_.size() > kMost)
    return members_.broken(rank, " sends a norm at clock ", norm.clock, " while that of clock ",
                           open_.begin()->first.second, " is not complete");
  const auto& parts = open_.at(key);
  const std::vector<std::uint32_t> servers = members_.servers();
  if (parts.size() < servers.size()) return {};
  double total = 0;
  for (const auto& [server, squares] : parts) total += squares;
  for (const std::uint32_t server : servers)
    out.push_back({server, NormTotal{norm.clock, total, norm.generation}});
  open_.erase(key);
  totals_[key] = total;
  if (totals_.size() > kMost) totals_.erase(totals_.begin());
  return {};
}

std::vector<std::string> Norms::waiting_for() const {
  std::vector<std::string> lines;
  for (const auto& round : open_)
    lines.push_back(
        members_.waiting_for(str("norm ", round.first.second), members_.servers(),
                             [&](std::uint32_t rank) { return round.second.contains(rank); }));
  return lines;
}

}  // namespace shoal::table
