// Places blocks of memory with known lifetimes in one arena. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace shoal {

// A block that is written at step `first` at the earliest and read at step `last` at the latest,
// both included.
struct Lifetime {
  std::size_t bytes = 0;
  int first = 0, last = 0;
};

struct MemoryPlan {
  std::vector<std::size_t> offsets;  // of each block, in the order given, multiples of 256
  std::size_t bytes = 0;             // of the arena
};

// No two blocks whose lifetimes meet overlap. Greedy: largest block first, each at the lowest
// offset that is free for all its life. Source: Pisarchyk and Lee, "Efficient memory management for
// deep neural net inference", 2020 (greedy by size).
MemoryPlan plan_memory(std::span<const Lifetime> blocks);

}  // namespace shoal
