#include "norms.h"

namespace shoal::table {

Status Norms::take(std::uint32_t rank, const Norm& norm, std::vector<Dispatch>& out) {
  if (members_[rank].server != static_cast<std::int32_t>(norm.server))
    return Error{Code::kPeer, str(members_.name(rank), " sends a norm of server ", norm.server, ", which it is not")};
  if (const auto known = totals_.find(norm.clock); known != totals_.end()) {
    out.push_back({rank, NormTotal{norm.clock, known->second}});
    return {};
  }
  if (!totals_.empty() && norm.clock < totals_.rbegin()->first) return {};   // a repeat of long ago
  open_[norm.clock].try_emplace(rank, norm.squares);
  if (open_.size() > kMost)
    return Error{Code::kPeer, str(members_.name(rank), " sends a norm at clock ", norm.clock, " while that of clock ", open_.begin()->first,
                                  " is not complete")};
  const auto& parts = open_.at(norm.clock);
  const std::vector<std::uint32_t> servers = members_.servers();
  if (parts.size() < servers.size()) return {};
  double total = 0;
  for (const auto& [server, squares] : parts) total += squares;
  for (const std::uint32_t server : servers) out.push_back({server, NormTotal{norm.clock, total}});
  open_.erase(norm.clock);
  totals_[norm.clock] = total;
  if (totals_.size() > kMost) totals_.erase(totals_.begin());
  return {};
}

std::vector<std::string> Norms::waiting_for() const {
  std::vector<std::string> lines;
  for (const auto& [clock, parts] : open_) {
    std::vector<std::uint32_t> absent;
    for (const std::uint32_t server : members_.servers())
      if (!parts.contains(server)) absent.push_back(server);
    lines.push_back(str("norm ", clock, ": waiting for ", members_.names(absent)));
  }
  return lines;
}

}  // namespace shoal::table
