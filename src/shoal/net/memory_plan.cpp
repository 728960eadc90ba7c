#include "shoal/net/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace shoal {

MemoryPlan plan_memory(std::span<const Lifetime> blocks) {
  constexpr std::size_t kAlign = 256;
  MemoryPlan plan;
  plan.offsets.resize(blocks.size());
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return blocks[a].bytes > blocks[b].bytes; });

  std::vector<std::size_t> placed;  // by rising offset
  for (const std::size_t block : order) {
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      const bool meet =
          blocks[other].first <= blocks[block].last && blocks[block].first <= blocks[other].last;
      if (!meet) continue;
      // The gap before `other` is wide enough.
      if (plan.offsets[other] >= offset + blocks[block].bytes) break;
      offset = std::max(offset,
                        (plan.offsets[other] + blocks[other].bytes + kAlign - 1) / kAlign * kAlign);
    }
    plan.offsets[block] = offset;
    plan.bytes = std::max(plan.bytes, offset + blocks[block].bytes);
    placed.insert(std::ranges::upper_bound(placed, offset, {},
                                           [&](std::size_t b) { return plan.offsets[b]; }),
                  block);
  }
  return plan;
}

}  // namespace shoal
