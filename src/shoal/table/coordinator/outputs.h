// Averages numbers that workers send for each iteration, for worker 0. No worker waits for them, so
// a worker that is far ahead leaves rounds open, up to a bound.
#pragma once

#include <map>

#include "shoal/table/coordinator/members.h"

namespace shoal::table {

class Outputs {
 public:
  static constexpr std::size_t kMostOpen = 4096, kMostKept = 256;

  explicit Outputs(Members& members) : members_(members) {}
  Status tell(Rank rank, const Ask& ask) {
    const Rank chief = members_.rank_of_worker(0);
    if (ask.clock < next_[rank]) {
      const auto known = means_.find(ask.clock);
      if (rank == chief && known != means_.end())
        members_.say(chief, Answer{Topic::kOutputs, ask.clock, known->second});
      return {};
    }
    if (ask.body.empty() || !whole_numbers(ask.body))
      return members_.broken(rank, " sends ", ask.body.size(),
                             " bytes of outputs; they must be float64s, a weight first");
    std::vector<double> numbers = bytes_to_numbers(ask.body);
    if (!(numbers[0] >= 0 && std::isfinite(numbers[0])))
      return members_.broken(rank, " sends outputs with the weight ", numbers[0],
                             "; it must be a number, 0 or more");
    next_[rank] = ask.clock + 1;
    const bool closed = !means_.empty() && ask.clock <= means_.rbegin()->first;
    if (closed) return {};  // at the bound, without this one
    Round& round = open_[ask.clock];
    if (!round.empty() && round.begin()->second.size() != numbers.size())
      return members_.broken(rank, " has ", numbers.size() - 1, " outputs in iteration ", ask.clock,
                             " where ", members_.name(round.begin()->first), " has ",
                             round.begin()->second.size() - 1, "; do both train the same net?");
    round[rank] = std::move(numbers);
    close();
    if (open_.size() > kMostOpen) {
      if (!std::exchange(warned_, true))
        members_.warn(str("from iteration ", open_.begin()->first,
                          " on, the means of outputs leave out workers that are ", kMostOpen,
                          " iterations behind"));
      close_first();
    }
    return {};
  }
  void state(auto& io) { io(open_, next_, means_, warned_); }
  // Ignores outputs of this worker before `clock`.
  void admit(Rank rank, Clock clock) { next_[rank] = clock; }
  // Closes rounds that only waited for workers that are done now.
  void close() {
    const std::vector<Rank> active = members_.active();
    while (!open_.empty() && std::ranges::all_of(active, [&](Rank rank) {
      return next_[rank] > open_.begin()->first;
    }))
      close_first();
  }

 private:
  // By rank, which is the order of workers.
  using Round = std::map<Rank, std::vector<double>>;
  // Sends each number's mean with the weights that come first; 0 where all weights are 0.
  void close_first() {
    const auto [clock, round] = *open_.begin();
    std::vector<double> means(round.begin()->second.size() - 1);
    double weight = 0;
    for (const auto& [rank, numbers] : round) {
      weight += numbers[0];
      for (std::size_t i = 0; i < means.size(); ++i) means[i] += numbers[0] * numbers[i + 1];
    }
    for (double& mean : means) mean = weight == 0 ? 0 : mean / weight;
    members_.say(members_.rank_of_worker(0),
                 Answer{Topic::kOutputs, clock, means_[clock] = numbers_to_bytes(means)});
    if (means_.size() > kMostKept) means_.erase(means_.begin());
    open_.erase(open_.begin());
  }

  Members& members_;
  std::map<Clock, Round> open_;
  std::map<Rank, Clock> next_;          // clock that each may speak of, by rank
  std::map<Clock, std::string> means_;  // of the last rounds, should worker 0 ask again
  bool warned_ = false;
};

}  // namespace shoal::table
