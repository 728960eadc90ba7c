// Divides a count of records, or of the items of a batch, in proportion to weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

// The first record of each part of `count` records, then `count`: part k is the records bounds[k]
// .. bounds[k + 1] - 1. Every part has at least one; if that cannot be, functions return an Error
// (kUsage).
using PartBounds = std::vector<std::uint64_t>;

// Returns `bounds`, or an Error (kUsage) if a part is empty.
Result<PartBounds> none_empty(PartBounds bounds);

// Divides in proportion to `weights`, which are finite and above 0 (else kUsage): each part gets
// the whole of its share, and the records left over go one each to the parts that lost most by
// that, the first of equals first. Weights of 1 make parts that differ by one at most.
Result<PartBounds> bounds_by_weights(std::uint64_t count, std::span<const double> weights);

}  // namespace shoal
