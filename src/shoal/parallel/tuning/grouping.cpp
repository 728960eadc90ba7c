#include "shoal/parallel/tuning/grouping.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <ranges>

#include "shoal/base/error.h"
#include "shoal/base/log.h"

namespace shoal::parallel {
namespace {

// Clusters of sorted numbers: cluster c is those from bounds[c] to bounds[c + 1] - 1.
using Bounds = std::vector<std::size_t>;

double mean_of(std::span<const double> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

std::span<const double> cluster(std::span<const double> sorted, const Bounds& bounds,
                                std::size_t c) {
  return sorted.subspan(bounds[c], bounds[c + 1] - bounds[c]);
}

std::vector<double> means_of(std::span<const double> sorted, const Bounds& bounds) {
  std::vector<double> means;
  for (std::size_t c = 0; c + 1 < bounds.size(); ++c)
    means.push_back(mean_of(cluster(sorted, bounds, c)));
  return means;
}

// Merges clusters: first every number is one, then there are fewer and fewer.
class Agglomeration {
 public:
  explicit Agglomeration(std::span<const double> sorted)
      : centers_(sorted.begin(), sorted.end()), bounds_(sorted.size() + 1) {
    std::iota(bounds_.begin(), bounds_.end(), std::size_t{0});
  }
  const Bounds& bounds() const { return bounds_; }
  void merge_nearest() {
    std::size_t nearest = 0;
    for (std::size_t c = 1; c + 1 < centers_.size(); ++c)
      if (centers_[c + 1] - centers_[c] < centers_[nearest + 1] - centers_[nearest]) nearest = c;
    const auto at = static_cast<std::ptrdiff_t>(nearest);
    centers_[nearest] = (centers_[nearest] + centers_[nearest + 1]) / 2;
    centers_.erase(centers_.begin() + at + 1);
    bounds_.erase(bounds_.begin() + at + 1);
  }

 private:
  std::vector<double> centers_;
  Bounds bounds_;
};

// Assigns each number to the nearest mean, until that changes nothing. Returns nothing if a cluster
// has lost all.
std::optional<Bounds> k_means(std::span<const double> sorted, Bounds bounds) {
  constexpr int kMostRounds = 1000;  // it ends by itself; but numbers are rounded
  for (int round = 0; round < kMostRounds; ++round) {
    const std::vector<double> means = means_of(sorted, bounds);
    Bounds next = {0};
    for (std::size_t c = 0; c + 1 < means.size(); ++c)
      next.push_back(static_cast<std::size_t>(
          std::ranges::upper_bound(sorted, (means[c] + means[c + 1]) / 2) - sorted.begin()));
    next.push_back(sorted.size());
    if (std::ranges::adjacent_find(next, std::greater_equal()) != next.end()) return std::nullopt;
    if (next == bounds) break;
    bounds = std::move(next);
  }
  return bounds;
}

double index_of(std::span<const double> sorted, const Bounds& bounds, double noise) {
  constexpr double kNothing = 1e-12;  // of the whole: what rounding leaves of equal numbers
  const std::vector<double> means = means_of(sorted, bounds);
  const double mean = mean_of(sorted);
  double between = 0, within = 0;
  for (std::size_t c = 0; c < means.size(); ++c) {
    for (const double number : cluster(sorted, bounds, c))
      within += (number - means[c]) * (number - means[c]) + noise * number * noise * number;
    between +=
        static_cast<double>(bounds[c + 1] - bounds[c]) * (means[c] - mean) * (means[c] - mean);
  }
  if (within <= kNothing * (between + within)) return std::numeric_limits<double>::infinity();
  return between / static_cast<double>(means.size() - 1) /
         (within / static_cast<double>(sorted.size() - means.size()));
}

bool good(std::span<const double> sorted, const Bounds& bounds, const GroupingOptions& options) {
  for (std::size_t c = 0; c + 1 < bounds.size(); ++c)
    if (bounds[c + 1] - bounds[c] < options.smallest) return false;
  const std::vector<double> means = means_of(sorted, bounds);
  for (std::size_t c = 0; c + 1 < means.size(); ++c)
    if (means[c + 1] < options.apart * means[c]) return false;
  return true;
}

}  // namespace

Grouping find_groups(std::span<const double> speeds, const GroupingOptions& options) {
  CHECK(!speeds.empty());
  std::vector<int> order(speeds.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int worker) { return speeds[worker]; });
  std::vector<double> sorted;
  for (const int worker : order) sorted.push_back(speeds[worker]);
  CHECK_GT(sorted[0], 0);

  Bounds best = {0, sorted.size()};
  double index = 0;
  Agglomeration clusters(sorted);
  // The index is not defined for n groups of n workers. Two workers have no other groups.
  if (sorted.size() > 2) clusters.merge_nearest();
  for (; clusters.bounds().size() > 2; clusters.merge_nearest()) {
    const std::optional<Bounds> bounds = k_means(sorted, clusters.bounds());
    if (!bounds || !good(sorted, *bounds, options)) continue;
    const double own = index_of(sorted, *bounds, options.noise);
    if (own >= index) best = *bounds, index = own;
  }

  Grouping found{.groups = {}, .index = index};
  for (std::size_t c = best.size() - 1; c-- > 0;) {
    std::vector<int> group(order.begin() + static_cast<std::ptrdiff_t>(best[c]),
                           order.begin() + static_cast<std::ptrdiff_t>(best[c + 1]));
    std::ranges::sort(group);
    found.groups.push_back(std::move(group));
  }
  return found;
}

double pace_of(const Groups& groups, std::span<const double> speeds) {
  const std::vector<double> weights = share_weights(groups, speeds);
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

bool worth_changing(const Groups& from, const Groups& to, std::span<const double> speeds,
                    double gain) {
  const double before = pace_of(from, speeds), after = pace_of(to, speeds);
  return after >= (1 + gain) * before ||
         (to.size() < from.size() && after >= (1 - gain / 2) * before);
}

bool worth_changing(std::span<const double> shares, std::span<const double> speeds, double gain) {
  CHECK_EQ(shares.size(), speeds.size());
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0),
               together = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  double last = 0;
  for (std::size_t worker = 0; worker < shares.size(); ++worker)
    last = std::max(last, shares[worker] / all / speeds[worker]);
  return last * together >= 1 + gain;
}

std::vector<double> share_weights(const Groups& groups, std::span<const double> speeds) {
  std::vector<double> weights(speeds.size());
  const auto speed_of = [&](int worker) { return speeds[worker]; };
  for (const std::vector<int>& group : groups)
    for (const int worker : group)
      weights[worker] = std::ranges::min(group | std::views::transform(speed_of));
  return weights;
}

}  // namespace shoal::parallel
