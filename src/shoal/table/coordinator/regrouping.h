// Moves a job that trains to its next generation: the only way in which its members, its scheme or
// its groups change.
//
//   1. It is requested: by a worker (Want::kRegroup), by a process that joins or leaves, or because
//      a phase of the solver ends, which all workers know by themselves.
//   2. All workers stop where they agree on: at one clock, or, where no bound holds them together,
//      each at the end of its task.
//   3. Each has the answers to all its pushes, and the chief holds the state for a snapshot. Each
//      says so (Topic::kRegroup, a SegmentBody).
//   4. When all have, next() makes the roster of the next generation, with the scheme of its plan.
//      All get the same; each builds its solver anew, over a plan of that generation with the
//      chief's numbers.
//
// Requests that come before that are gathered: several become one generation.
#pragma once

#include <map>
#include <numeric>

#include "shoal/table/coordinator/members.h"

namespace shoal::table {

class Regrouping {
 public:
  explicit Regrouping(Members& members) : members_(members) {}

  // Returns the first roster of the job: all founding processes.
  RosterBody first(std::uint64_t seed) {
    roster_.seed = seed;
    number(&Member::here);
    list({}, 0);
    founders_ = members_.workers();
    return roster_;
  }
  // Requests a generation. `why`, for people. False if the next generation is on its way already.
  bool want(const std::string& why) {
    whys_.push_back(why);
    return !std::exchange(wanted_, true);
  }
  // Sets the scheme with which worker 0 plans this generation.
  void plans(const SchemeSpec& scheme) { roster_.scheme = scheme; }

  // Makes the next roster. The workers in `ends` are all there are, and at their ends. A worker
  // that was leaving has left, and one that came since the last has joined, where the slowest is.
  // If no server is left a worker becomes one. Processes that have come since wait for a later one
  // unless it `admits` them.
  // `seconds`: of an iteration, of the process with this rank; 0: not known. The first worker in
  // `ends` speaks for all: the chief, or, if that is lost, the next chief. Its weights and
  // bandwidths fit (why_not).
  RosterBody next(const std::map<Rank, SegmentBody>& ends, bool admits,
                  const std::function<double(Rank)>& seconds) {
    Clock least = kUnbounded;
    std::map<Rank, Clock> clocks;
    for (const auto& [rank, end] : ends) least = std::min(least, clocks[rank] = end.clock);
    // A phase that begins has its own scheme, for the workers that the job began with.
    std::vector<Rank> before = members_.workers();
    std::optional<SchemeSpec> scheme = roster_.scheme;
    const SegmentBody chief = ends.empty() ? SegmentBody() : ends.begin()->second;
    if (chief.scheme) {
      scheme = chief.scheme;
    } else if (least >= chief.phase_end && chief.next_scheme) {
      scheme = chief.next_scheme;
      before = founders_;
    } else {
      // Workers that share their iterations may be past the end of their phase.
      least = std::min(least, chief.phase_end - 1);
    }
    take(chief);
    for (Rank rank = 0; rank < members_.size(); ++rank)
      members_[rank].left = members_[rank].left || members_[rank].leaving;
    const auto takes_part = [admits](const Member& member) {
      return member.here() && (admits || member.works() || member.serves());
    };
    members_.fill_role_of_server(takes_part);
    number(takes_part);
    weigh_new();
    if (scheme) plans(for_workers(*scheme, before, members_.workers(), seconds));
    roster_.measures = chief.measures && knows_not_all();
    list(clocks, least);
    ++roster_.generation;
    roster_.why = join(whys_);
    wanted_ = false;
    whys_.clear();
    return roster_;
  }
  // Returns why the chief's values are wrong; "" if they are not.
  std::string why_not(const SegmentBody& chief) const {
    const auto count = [&](std::span<const double> said, std::size_t of, const char* what) {
      return said.empty() || said.size() == of
                 ? ""
                 : str(said.size(), " numbers for the ", what, " of ", of);
    };
    const auto wrong = [](double number) { return !std::isfinite(number) || number < 0; };
    for (const auto* numbers : {&chief.weights, &chief.bandwidths})
      if (const auto found = std::ranges::find_if(*numbers, wrong); found != numbers->end())
        return str("a weight or bandwidth of ", *found);
    if (std::string words = count(chief.weights, members_.workers().size(), "workers");
        !words.empty())
      return words;
    return count(chief.bandwidths, members_.servers().size(), "servers");
  }
  void state(auto& io) {
    bool has_begun = !roster_.processes.empty();
    io(has_begun, roster_.scheme, wanted_, whys_, founders_);
    if (has_begun) io(roster_);
  }
  // Returns the present scheme; none: it was not set yet.
  const std::optional<SchemeSpec>& scheme() const { return roster_.scheme; }

 private:
  void take(const SegmentBody& chief) {
    const std::vector<Rank> ranks = members_.workers(), servers = members_.servers();
    for (std::size_t w = 0; w < ranks.size(); ++w)
      members_[ranks[w]].weight = chief.weights.empty() ? 0 : chief.weights[w];
    for (std::size_t s = 0; s < servers.size() && !chief.bandwidths.empty(); ++s)
      members_[servers[s]].bandwidth = chief.bandwidths[s];
  }
  // Gives a new worker the mean part.
  void weigh_new() {
    std::vector<double> weights;
    for (const Rank rank : members_.workers()) weights.push_back(members_[rank].weight);
    const double mean = mean_of_known(weights);
    for (const Rank rank : members_.workers())
      if (members_[rank].weight == 0) members_[rank].weight = mean;
  }
  // Returns the guess for a server that was not measured: the mean.
  double mean_bandwidth() const {
    std::vector<double> bandwidths;
    for (const Rank rank : members_.servers())
      bandwidths.push_back(members_[rank].bandwidth.value_or(0));
    return mean_of_known(bandwidths);
  }
  // Returns whether a bandwidth of the servers' links is unknown. That of a single server is not
  // needed.
  bool knows_not_all() const {
    const std::vector<Rank> servers = members_.servers();
    return servers.size() > 1 &&
           std::ranges::any_of(servers, [this](Rank rank) { return !members_[rank].bandwidth; });
  }
  // Numbers workers and servers in the order of ranks.
  void number(const std::function<bool(const Member&)>& takes_part) {
    std::int32_t workers = 0, servers = 0;
    for (Rank rank = 0; rank < members_.size(); ++rank) {
      Member& member = members_[rank];
      const bool is_in = takes_part(member);
      member.worker = is_in && member.body.worker ? workers++ : -1;
      member.server = is_in && member.body.server ? servers++ : -1;
    }
  }
  void list(const std::map<Rank, Clock>& clocks, Clock least) {
    const double usual = mean_bandwidth();
    roster_.processes.clear();
    for (Rank rank = 0; rank < members_.size(); ++rank) {
      const Member& member = members_[rank];
      const auto clock = clocks.find(rank);
      roster_.processes.push_back(
          {.rank = rank,
           .worker = member.worker,
           .server = member.server,
           .host = member.body.host,
           .address = member.body.address,
           .clock = clock != clocks.end() ? clock->second
                    : member.works()      ? least
                                          : 0,
           .weight = member.works() ? member.weight : 0,
           .bandwidth = member.serves() ? member.bandwidth.value_or(usual) : 0,
           .key = member.body.key});
    }
  }

  // Returns the scheme for the workers as they are numbered now.
  static SchemeSpec for_workers(const SchemeSpec& spec, const std::vector<Rank>& before,
                                const std::vector<Rank>& now,
                                const std::function<double(Rank)>& seconds) {
    const auto scheme = spec.make();
    if (!scheme.ok()) return spec;
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
  // Returns the mean of the numbers above 0; 0 if there are none.
  static double mean_of_known(std::span<const double> numbers) {
    const auto known = std::ranges::count_if(numbers, [](double number) { return number > 0; });
    return known > 0
               ? std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(known)
               : 0;
  }

  Members& members_;
  RosterBody roster_;
  bool wanted_ = false;
  std::vector<std::string> whys_;
  std::vector<Rank> founders_;  // ranks of the first workers, by number
};

}  // namespace shoal::table
