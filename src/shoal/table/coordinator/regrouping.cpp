#include "regrouping.h"

#include <algorithm>
#include <utility>

#include "shoal/base/text.h"
#include "shoal/table/scheme.h"

namespace shoal::table {
namespace {

// What of the scheme is said of workers by number, said of them as they are numbered now.
std::string for_workers(const std::string& words, const std::vector<std::uint32_t>& before, const std::vector<std::uint32_t>& now,
                        const std::function<double(std::uint32_t)>& seconds) {
  const auto scheme = make_scheme(words);
  if (before == now || !scheme.ok()) return words;
  std::vector<int> numbers;
  std::vector<double> times;
  for (const std::uint32_t rank : now) {
    const auto known = std::ranges::find(before, rank);
    numbers.push_back(known == before.end() ? -1 : static_cast<int>(known - before.begin()));
    times.push_back(seconds(rank));
  }
  return scheme.value()->for_workers(numbers, times);
}

}  // namespace

RosterBody Regrouping::first(std::uint64_t seed) {
  roster_.seed = seed;
  number();
  list({}, 0);
  founders_ = workers();
  return roster_;
}

bool Regrouping::want(const std::string& why, const std::string& scheme) {
  whys_.push_back(why);
  if (!scheme.empty()) scheme_ = scheme;
  return !std::exchange(wanted_, true);
}

RosterBody Regrouping::next(const std::map<std::uint32_t, SegmentBody>& ends, const std::function<double(std::uint32_t)>& seconds) {
  Clock least = kUnbounded;
  std::map<std::uint32_t, Clock> clocks;
  for (const auto& [rank, end] : ends) least = std::min(least, clocks[rank] = end.clock);
  // A wish is for the scheme that is: a phase that begins has its own, for the workers that the job began with.
  std::vector<std::uint32_t> before = workers();
  std::string scheme = scheme_.empty() ? roster_.scheme : scheme_;
  const auto chief = ends.find(before.at(0));
  if (chief != ends.end() && least >= chief->second.phase_end && !chief->second.next_scheme.empty()) {
    scheme = chief->second.next_scheme;
    before = founders_;
  } else if (chief != ends.end()) {
    least = std::min(least, chief->second.phase_end - 1);       // workers that share their iterations may be past the end of their phase
  }
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) members_[rank].left = members_[rank].left || members_[rank].leaving;
  number();
  roster_.scheme = for_workers(scheme, before, workers(), seconds);
  list(clocks, least);
  ++roster_.epoch;
  roster_.why = join(whys_);
  wanted_ = false;
  whys_.clear();
  scheme_.clear();
  return roster_;
}

std::vector<std::uint32_t> Regrouping::workers() const {
  return members_.which([](const Member& member) { return member.worker >= 0; });
}

// In the order of ranks.
void Regrouping::number() {
  std::int32_t workers = 0, servers = 0;
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    Member& member = members_[rank];
    const bool here = member.joined && !member.left;
    member.worker = here && member.body.worker ? workers++ : -1;
    member.server = here && member.body.server ? servers++ : -1;
  }
}

void Regrouping::list(const std::map<std::uint32_t, Clock>& clocks, Clock least) {
  roster_.processes.clear();
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    const Member& member = members_[rank];
    const auto clock = clocks.find(rank);
    roster_.processes.push_back({.rank = rank, .worker = member.worker, .server = member.server, .host = member.body.host, .address = member.body.address,
                                 .clock = clock != clocks.end() ? clock->second : member.worker >= 0 ? least : 0});
  }
}

}  // namespace shoal::table
