#include "shoal/table/coordinator/outputs.h"

#include <algorithm>

namespace shoal::table {
namespace {

// Each number's mean with the weights that stand first; 0 where all weights are 0.
std::vector<double> means(const std::map<std::uint32_t, std::vector<double>>& round) {
  std::vector<double> sums(round.begin()->second.size() - 1);
  double weight = 0;
  for (const auto& [rank, numbers] : round) {
    weight += numbers[0];
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += numbers[0] * numbers[i + 1];
  }
  for (double& sum : sums) sum = weight == 0 ? 0 : sum / weight;
  return sums;
}

}  // namespace

Status Outputs::tell(std::uint32_t rank, const Ask& ask, std::vector<Dispatch>& out) {
  const std::uint32_t chief = members_.rank_of_worker(0);
  if (ask.clock < next_[rank]) {
    const auto known = means_.find(ask.clock);
    if (rank == chief && known != means_.end())
      out.push_back({chief, Answer{Topic::kOutputs, ask.clock, known->second}});
    return {};
  }
  if (ask.body.empty() || !whole_numbers(ask.body))
    return members_.broken(rank, " sends ", ask.body.size(),
                           " bytes of outputs, which are no float64s with a weight first");
  std::vector<double> numbers = bytes_to_numbers(ask.body);
  if (!(numbers[0] >= 0))
    return members_.broken(rank, " sends outputs with the weight ", numbers[0],
                           "; it must not be negative");
  next_[rank] = ask.clock + 1;
  const bool closed = !means_.empty() && ask.clock <= means_.rbegin()->first;
  if (closed) return {};  // at the bound, without this one
  Round& round = open_[ask.clock];
  if (!round.empty() && round.begin()->second.size() != numbers.size())
    return members_.broken(rank, " has ", numbers.size() - 1, " outputs in iteration ", ask.clock,
                           " where ", members_.name(round.begin()->first), " has ",
                           round.begin()->second.size() - 1, "; do both train the same net?");
  round[rank] = std::move(numbers);
  close(out);
  if (open_.size() > kMostOpen) {
    if (!std::exchange(warned_, true))
      warning_ = str("outputs of iteration ", open_.begin()->first,
                     " are averaged without some worker that is ", kMostOpen,
                     " iterations behind; the same holds for later ones");
    close_first(out);
  }
  return {};
}

void Outputs::close(std::vector<Dispatch>& out) {
  const std::vector<std::uint32_t> active = members_.active();
  while (!open_.empty() && std::ranges::all_of(active, [&](std::uint32_t rank) {
    return next_[rank] > open_.begin()->first;
  }))
    close_first(out);
}

void Outputs::close_first(std::vector<Dispatch>& out) {
  const Clock clock = open_.begin()->first;
  const std::string body = numbers_to_bytes(means(open_.begin()->second));
  out.push_back({members_.rank_of_worker(0), Answer{Topic::kOutputs, clock, body}});
  means_[clock] = body;
  if (means_.size() > kMostKept) means_.erase(means_.begin());
  open_.erase(open_.begin());
}

}  // namespace shoal::table
