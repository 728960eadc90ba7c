// Grouping SGD: workers of a group are in step, groups are not. The contribution of a group is one
// update of the mean of its members, weighed by how many of the others' updates it missed, by
// default 1/Y. Source: MXNet-G's dist_gsync (CCGRID 2019). With a staleness no group starts a round
// more than that many ahead of the slowest group.
//
// One group is bsp; groups of one worker each are async with weighting, at the full rate.
#include <algorithm>

#include "shoal/table/scheme/make.h"
#include "shoal/table/scheme/together.h"
#include "shoal/table/scheme/weighting.h"

namespace shoal::table {
namespace {

// Returns the group for a worker whose iteration takes `own` seconds.
std::vector<int>& group_for(double own, std::span<const double> seconds, Groups& groups) {
  if (groups.empty()) groups.emplace_back();
  const auto mean = [&](const std::vector<int>& group) {
    double sum = 0, known = 0;
    for (const int worker : group)
      if (const double each = seconds[worker]; each > 0) sum += each, ++known;
    return known > 0 ? sum / known : 0;
  };
  const auto distance = [&](const std::vector<int>& group) {
    if (own > 0 && mean(group) > 0) return std::abs(std::log(own / mean(group)));
    return 1e6 + static_cast<double>(group.size());
  };
  return *std::ranges::min_element(groups, {}, distance);
}

class Grouped final : public Scheme {
 public:
  Grouped(const SchemeSpec& spec, Clock staleness, Weighting weighting)
      : Scheme(spec, {.staleness = staleness}),
        groups_(spec.groups.value_or(Groups())),
        weighting_(weighting) {}

  std::string unfit(int workers) const override {
    std::vector<bool> has_group(workers);
    for (const std::vector<int>& group : groups_)
      for (const int worker : group) {
        if (worker >= workers)
          return str("a group has worker ", worker, ", but there are ", workers,
                     " workers, numbered from 0");
        has_group[worker] = true;
      }
    for (int worker = 0; worker < workers; ++worker)
      if (!has_group[worker]) return str("worker ", worker, " is in no group");
    return "";
  }

  // Returns the groups for other workers. A worker that left is in no group, and a group without
  // members is none. A new worker joins those that are about as fast, or else the smallest group.
  SchemeSpec for_workers(std::span<const int> before,
                         std::span<const double> seconds) const override {
    Groups now(groups_.size());
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (std::size_t worker = 0; worker < before.size(); ++worker)
        if (std::ranges::count(groups_[g], before[worker]) > 0)
          now[g].push_back(static_cast<int>(worker));
    std::erase_if(now, [](const std::vector<int>& group) { return group.empty(); });
    for (std::size_t worker = 0; worker < before.size(); ++worker)
      if (before[worker] < 0)
        group_for(seconds[worker], seconds, now).push_back(static_cast<int>(worker));
    SchemeSpec spec = this->spec();
    spec.groups = std::move(now);
    return spec;
  }

  std::optional<Merge> next_merge(const RowView& row) const override {
    for (const std::vector<int>& group : groups_)
      if (std::optional<Merge> merge = merge_group(row, group)) return merge;
    return std::nullopt;
  }

 private:
  // Merges the round of a group: all contributions of its members, when each has one.
  std::optional<Merge> merge_group(const RowView& row, const std::vector<int>& group) const {
    std::vector<std::size_t> all;
    Version last = 0, used = row.version;
    for (const int worker : group) {
      const auto held = std::ranges::find(row.held, worker, &Contribution::worker);
      last = std::max(last, row.workers[worker].last);
      if (held == row.held.end()) {
        if (row.workers[worker].counts) return std::nullopt;
        continue;
      }
      all.push_back(static_cast<std::size_t>(held - row.held.begin()));
      if (held->weight > 0) used = std::min(used, held->base);
    }
    if (all.empty()) return std::nullopt;
    Merge merge = mean_of(row, all);
    if (merge.take.empty()) return merge;
    const double weight = weighting_.weight(row.version, used, last);
    if (weight == 0) return Merge{.drop = std::move(all)};
    weighting_.put(weight, merge);
    return merge;
  }

  const Groups groups_;
  const Weighting weighting_;
};

}  // namespace

std::unique_ptr<Scheme> make_grouped(Parameters& parameters) {
  parameters.groups();
  const Clock staleness = parameters.staleness(kUnbounded);
  const Weighting weighting =
      read_weighting(parameters, ContributionKind::kGradient, WeightFunction::kInverse);
  return std::make_unique<Grouped>(parameters.spec(), staleness, weighting);
}

}  // namespace shoal::table
