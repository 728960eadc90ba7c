#include "shoal/table/scheme/single.h"

#include <algorithm>

namespace shoal::table {
namespace {

constexpr double kBeta = 0.9;  // of the paper: what all workers' moving rates add up to

double rate_or(double moving_rate, int workers) {
  return moving_rate > 0 ? moving_rate : kBeta / std::max(1, workers);
}

}  // namespace

std::optional<Merge> OneByOne::next_merge(const RowView& row) const {
  if (row.held.empty()) return std::nullopt;
  const Contribution& one = row.held[0];
  const bool counts = one.weight > 0 && row.version - one.base <= single_.most_lag;
  const Version last = row.workers[one.worker].last;
  const double weight = counts ? single_.weighting.weight(row.version, one.base, last) : 0;
  if (weight == 0) return Merge{.drop = {0}};
  Merge merge{.take = {0}, .weights = {1}};
  const auto workers = static_cast<int>(row.workers.size());
  const float divisor = static_cast<float>(single_.factor > 0 ? single_.factor : workers);
  if (contribution() == ContributionKind::kGradient) {
    merge.rate_scale = 1 / divisor;
    merge.compensation = static_cast<float>(single_.compensation);
  } else if (contribution() == ContributionKind::kDelta) {
    merge.scale = 1 / divisor;
    merge.apply = Apply::kAdd;
  } else {
    merge.scale = static_cast<float>(rate_or(single_.moving_rate, workers));
    merge.apply = Apply::kElastic;
  }
  single_.weighting.put(weight, merge);
  return merge;
}

std::string OneByOne::caution(int workers) const {
  const double all = rate_or(single_.moving_rate, workers) * workers;
  if (contribution() != ContributionKind::kWeights || all <= 1) return "";
  return str("moving_rate ", single_.moving_rate, " times ", workers, " workers is ", all,
             ", above 1: the center overshoots the mean of the workers");
}

Single read_single(Parameters& parameters, Payloads payloads, double compensation) {
  Single single;
  ContributionKind& payload = single.task.contribution;
  if (payloads == Payloads::kWeights)
    payload = ContributionKind::kWeights;
  else if (payloads != Payloads::kGradient)
    payload = parameters.payload();
  if (payload == ContributionKind::kWeights && payloads == Payloads::kGradientOrDelta) {
    parameters.refuse("payload is 'weights'; known: gradient, delta");
    payload = ContributionKind::kGradient;
  }
  const bool weights = payload == ContributionKind::kWeights;
  const bool gradient = payload == ContributionKind::kGradient;
  if (gradient) {
    single.compensation = parameters.compensation(compensation);
    single.keeps_reads = single.compensation > 0;
  } else {
    single.task.steps =
        static_cast<int>(weights ? parameters.local_steps() : parameters.local_steps(1));
    single.task.momentum = parameters.momentum_policy();
  }
  if (weights) {
    single.moving_rate = parameters.moving_rate();
    single.task.pull_first = parameters.exchange_order() == ExchangeOrder::kBefore;
  } else {
    single.factor = gradient ? parameters.factor() : parameters.factor(1);
  }
  single.weighting = read_weighting(parameters, payload);
  Task& task = single.task;
  task.shared = task.paced = task.asks_early = parameters.share_iterations();
  return single;
}

}  // namespace shoal::table
