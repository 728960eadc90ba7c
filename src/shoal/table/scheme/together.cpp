#include "shoal/table/scheme/together.h"

#include <algorithm>

namespace shoal::table {

Merge mean_of(const RowView& row, std::span<const std::size_t> which, Weighing weighing) {
  Merge merge;
  double sum = 0;
  for (const std::size_t i : which) {
    const float weight = row.held[i].weight;
    (weight > 0 ? merge.take : merge.drop).push_back(i);
    if (weight == 0) continue;
    merge.weights.push_back(weighing == Weighing::kUniform ? 1 : weight);
    sum += weighing == Weighing::kSteps ? 1 : merge.weights.back();
  }
  if (sum > 0) merge.scale = static_cast<float>(1 / sum);
  return merge;
}

std::optional<Merge> InStep::next_merge(const RowView& row) const {
  if (row.held.empty() || row.slowest <= row.oldest) return std::nullopt;
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < row.held.size(); ++i)
    if (row.held[i].clock == row.oldest) all.push_back(i);
  std::ranges::sort(all, {}, [&](std::size_t i) { return row.held[i].worker; });
  Merge merge = mean_of(row, all, task.weighing);
  if (factor_ > 0) merge.scale = 1 / factor_;
  merge.scale *= task.global_rate;
  if (contribution() == ContributionKind::kDelta) merge.apply = Apply::kAdd;
  return merge;
}

Task read_mean(Parameters& parameters) {
  Task task{.contribution = ContributionKind::kDelta};
  task.weighing = parameters.aggregation();
  task.global_rate = static_cast<float>(parameters.global_rate());
  task.global_momentum = static_cast<float>(parameters.global_momentum());
  task.global_nesterov = parameters.global_nesterov();
  if (task.global_nesterov && task.global_momentum == 0)
    parameters.refuse("global_nesterov needs a global_momentum above 0");
  return task;
}

Task read_averaging(Parameters& parameters) {
  const MomentumPolicy momentum = parameters.momentum_policy();
  Task task = read_mean(parameters);
  task.momentum = momentum;
  return task;
}

}  // namespace shoal::table
