// Implements the division of a count by weights.
#include "shoal/base/part_bounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "shoal/base/log.h"
#include "shoal/base/text.h"

namespace shoal {
namespace {

Error usage(std::string message) { return Error{Code::kUsage, std::move(message)}; }

}  // namespace

Result<PartBounds> none_empty(PartBounds bounds) {
  const std::uint64_t count = bounds.back(), parts = bounds.size() - 1;
  if (parts > count) return usage(str(parts, " parts cannot be made of ", count, " records"));
  for (std::size_t k = 0; k < parts; ++k)
    if (bounds[k] >= bounds[k + 1])
      return usage(str("part ", k, " would get none of the ", count, " records"));
  return bounds;
}

Result<PartBounds> bounds_by_weights(std::uint64_t count, std::span<const double> weights) {
  CHECK(!weights.empty());
  for (const double weight : weights)
    if (!std::isfinite(weight) || weight <= 0)
      return usage(str("a part's weight must be above 0; one is ", weight));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::uint64_t> sizes;
  std::vector<double> lost;
  for (const double weight : weights) {
    const double share = static_cast<double>(count) * (weight / total),
                 whole = std::floor(share + 1e-9);
    sizes.push_back(static_cast<std::uint64_t>(whole));
    lost.push_back(share - whole);
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return lost[a] > lost[b] + 1e-9; });
  const std::uint64_t given = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  CHECK(given <= count && count - given <= weights.size()) << given << " of " << count;
  for (std::uint64_t i = 0; i < count - given; ++i) ++sizes[order[i]];
  PartBounds bounds{0};
  for (const std::uint64_t size : sizes) bounds.push_back(bounds.back() + size);
  return none_empty(std::move(bounds));
}

}  // namespace shoal
