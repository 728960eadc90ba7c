#include "shoal/table/coordinator/regrouping.h"

#include <numeric>

#include "shoal/base/text.h"

namespace shoal::table {
namespace {

// The scheme for the workers as they are numbered now.
SchemeSpec for_workers(const std::string& words, const std::vector<Rank>& before,
                       const std::vector<Rank>& now, const std::function<double(Rank)>& seconds) {
  const auto scheme = make_scheme(words);
  if (!scheme.ok()) return {.name = words};
  if (before == now) return scheme.value()->spec();
  std::vector<int> numbers;
  std::vector<double> times;
  for (const Rank rank : now) {
    const auto known = std::ranges::find(before, rank);
    numbers.push_back(known == before.end() ? -1 : static_cast<int>(known - before.begin()));
    times.push_back(seconds(rank));
  }
  return scheme.value()->for_workers(numbers, times);
}

// Of those above 0; 0 if there are none.
double mean_of_known(std::span<const double> numbers) {
  const auto known = std::ranges::count_if(numbers, [](double number) { return number > 0; });
  return known > 0
             ? std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(known)
             : 0;
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

RosterBody Regrouping::next(const std::map<Rank, SegmentBody>& ends,
                            const std::function<double(Rank)>& seconds) {
  Clock least = kUnbounded;
  std::map<Rank, Clock> clocks;
  for (const auto& [rank, end] : ends) least = std::min(least, clocks[rank] = end.clock);
  // A wish is for the scheme that is: a phase that begins has its own, for the workers that the job
  // began with.
  std::vector<Rank> before = workers();
  std::string scheme = scheme_.empty() ? roster_.scheme : scheme_;
  const auto said = ends.find(before.at(0));
  const SegmentBody chief = said != ends.end() ? said->second : SegmentBody();
  if (!chief.scheme.empty()) {
    scheme = chief.scheme;
  } else if (least >= chief.phase_end && !chief.next_scheme.empty()) {
    scheme = chief.next_scheme;
    before = founders_;
  } else {
    // workers that share their iterations may be past the end of their phase
    least = std::min(least, chief.phase_end - 1);
  }
  take(chief);
  for (Rank rank = 0; rank < members_.size(); ++rank)
    members_[rank].left = members_[rank].left || members_[rank].leaving;
  number();
  weigh_new();
  plans(for_workers(scheme, before, workers(), seconds));
  roster_.measures = chief.measures && knows_not_all();
  list(clocks, least);
  ++roster_.generation;
  roster_.why = join(whys_);
  wanted_ = false;
  whys_.clear();
  scheme_.clear();
  return roster_;
}

std::string Regrouping::why_not(const SegmentBody& chief) const {
  const auto count = [&](std::span<const double> said, std::size_t of, const char* what) {
    return said.empty() || said.size() == of
               ? ""
               : str(said.size(), " numbers for the ", what, " of ", of);
  };
  const auto wrong = [](double number) { return !std::isfinite(number) || number < 0; };
  for (const auto* numbers : {&chief.weights, &chief.bandwidths})
    if (const auto found = std::ranges::find_if(*numbers, wrong); found != numbers->end())
      return str("a weight or bandwidth of ", *found);
  if (std::string words = count(chief.weights, workers().size(), "workers"); !words.empty())
    return words;
  return count(chief.bandwidths, members_.servers().size(), "servers");
}

void Regrouping::take(const SegmentBody& chief) {
  const std::vector<Rank> ranks = workers(), servers = members_.servers();
  for (std::size_t w = 0; w < ranks.size(); ++w)
    members_[ranks[w]].weight = chief.weights.empty() ? 0 : chief.weights[w];
  for (std::size_t s = 0; s < servers.size() && !chief.bandwidths.empty(); ++s)
    members_[servers[s]].bandwidth = chief.bandwidths[s];
}

// A new worker has the mean part.
void Regrouping::weigh_new() {
  std::vector<double> weights;
  for (const Rank rank : workers()) weights.push_back(members_[rank].weight);
  const double mean = mean_of_known(weights);
  for (const Rank rank : workers())
    if (members_[rank].weight == 0) members_[rank].weight = mean;
}

// As good a guess as any of one that nobody has measured.
double Regrouping::mean_bandwidth() const {
  std::vector<double> bandwidths;
  for (const Rank rank : members_.servers())
    bandwidths.push_back(members_[rank].bandwidth.value_or(0));
  return mean_of_known(bandwidths);
}

// Of the servers' links; of one there is nothing to know.
bool Regrouping::knows_not_all() const {
  const std::vector<Rank> servers = members_.servers();
  return servers.size() > 1 &&
         std::ranges::any_of(servers, [this](Rank rank) { return !members_[rank].bandwidth; });
}

std::vector<Rank> Regrouping::workers() const {
  return members_.which([](const Member& member) { return member.worker >= 0; });
}

// In the order of ranks.
void Regrouping::number() {
  std::int32_t workers = 0, servers = 0;
  for (Rank rank = 0; rank < members_.size(); ++rank) {
    Member& member = members_[rank];
    const bool here = member.joined && !member.left;
    member.worker = here && member.body.worker ? workers++ : -1;
    member.server = here && member.body.server ? servers++ : -1;
  }
}

void Regrouping::list(const std::map<Rank, Clock>& clocks, Clock least) {
  const double usual = mean_bandwidth();
  roster_.processes.clear();
  for (Rank rank = 0; rank < members_.size(); ++rank) {
    const Member& member = members_[rank];
    const auto clock = clocks.find(rank);
    RosterBody::Process& process = roster_.processes.emplace_back();
    process = {.rank = rank,
               .worker = member.worker,
               .server = member.server,
               .host = member.body.host,
               .address = member.body.address};
    if (member.worker >= 0) process.clock = least, process.weight = member.weight;
    if (clock != clocks.end()) process.clock = clock->second;
    if (member.server >= 0) process.bandwidth = member.bandwidth.value_or(usual);
  }
}

}  // namespace shoal::table
