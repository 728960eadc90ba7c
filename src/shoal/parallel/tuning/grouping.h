// Finds groups of workers of similar speed from measured speeds, and the shares of the data with
// which all groups end an epoch together. Pure: the same speeds give the same groups everywhere.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "shoal/table/scheme.h"

namespace shoal::parallel {

using table::Groups;  // workers ascend in each
using table::text_of;

struct GroupingOptions {
  std::size_t smallest = 1;  // workers in a group, at least
  // The mean speed of a group is at least so many times that of the next slower one.
  double apart = 1.2;
  double noise = 0.05;  // a speed is known but to this part of itself
};

struct Grouping {
  Groups groups;     // the fastest first
  double index = 0;  // Calinski-Harabasz, 0 of one group
};

// Clusters the workers of `speeds` (above 0, in any unit; one at least). For k = 2 ... n - 1,
// k-means starts from the means of the clusters left when the two nearest were merged until there
// are k (a merged center is the middle between the two). Of two that are equally near the slower
// counts. The k with the largest index is taken,
//   [SSB / (k - 1)] / [SSW / (n - k)],
//   SSB = sum n_j (mean_j - mean)^2,  SSW = sum (speed - mean_j)^2 + (noise * speed)^2,
// the smaller of equals, among those whose groups are large enough and far enough apart. If there
// is none, all are one group: the slowest then holds back less than the staleness between groups
// would cost. Two workers are two groups if they are far enough apart. Source: MXNet-G (CCGRID
// 2019), where k is 3; Calinski and Harabasz, 1974, without the noise: there a few equal speeds
// make SSW 0, and any k good that has them together.
Grouping find_groups(std::span<const double> speeds, const GroupingOptions& options = {});

// Returns the samples a second of all workers together, where each goes at the speed of the slowest
// of its group.
double pace_of(const Groups& groups, std::span<const double> speeds);

// Returns whether to change from one grouping to another: if the pace gains `gain`; or if there are
// fewer groups, and so less staleness, and the pace loses at most half of that. Between the two
// nothing changes, so that a wavering speed causes no change.
bool worth_changing(const Groups& from, const Groups& to, std::span<const double> speeds,
                    double gain = 0.1);

// Returns whether workers with these shares of the work should get shares in proportion to their
// speeds: if the last worker is then done with all of the work `gain` faster.
bool worth_changing(std::span<const double> shares, std::span<const double> speeds,
                    double gain = 0.1);

// Returns, for each worker, the weight of its part of the data: the speed of the slowest in its
// group.
std::vector<double> share_weights(const Groups& groups, std::span<const double> speeds);

}  // namespace shoal::parallel
