#include "regrouping.h"

#include <algorithm>
#include <utility>

#include "shoal/base/text.h"

namespace shoal::table {

RosterBody Regrouping::first(std::uint64_t seed) {
  roster_.seed = seed;
  number();
  list({});
  return roster_;
}

bool Regrouping::want(const std::string& why, const std::string& scheme) {
  whys_.push_back(why);
  if (!scheme.empty()) scheme_ = scheme;
  return !std::exchange(wanted_, true);
}

RosterBody Regrouping::next(const std::map<std::uint32_t, SegmentBody>& ends) {
  Clock least = kUnbounded;
  std::map<std::uint32_t, Clock> clocks;
  for (const auto& [rank, end] : ends) least = std::min(least, clocks[rank] = end.clock);
  roster_.scheme = scheme_after(ends, least);
  number();
  list(clocks);
  ++roster_.epoch;
  roster_.why = join(whys_);
  wanted_ = false;
  whys_.clear();
  scheme_.clear();
  return roster_;
}

// A wish is for the scheme that is: a phase that begins has its own.
std::string Regrouping::scheme_after(const std::map<std::uint32_t, SegmentBody>& ends, Clock least) const {
  const auto chief = ends.find(members_.rank_of_worker(0));
  if (chief != ends.end() && least >= chief->second.phase_end && !chief->second.next_scheme.empty()) return chief->second.next_scheme;
  return scheme_.empty() ? roster_.scheme : scheme_;
}

// In the order of ranks.
void Regrouping::number() {
  std::int32_t workers = 0, servers = 0;
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    Member& member = members_[rank];
    member.worker = member.joined && member.body.worker ? workers++ : -1;
    member.server = member.joined && member.body.server ? servers++ : -1;
  }
}

void Regrouping::list(const std::map<std::uint32_t, Clock>& clocks) {
  roster_.processes.clear();
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    const Member& member = members_[rank];
    const auto clock = clocks.find(rank);
    roster_.processes.push_back({.rank = rank, .worker = member.worker, .server = member.server, .host = member.body.host, .address = member.body.address,
                                 .clock = clock == clocks.end() ? 0 : clock->second});
  }
}

}  // namespace shoal::table
