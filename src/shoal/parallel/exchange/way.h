// The ways in which a layer's gradients become all workers' new params.
#pragma once

#include <array>
#include <cstdint>

namespace shoal::parallel {

enum class Way : std::uint8_t {
  kTable,            // rows of the table's servers, which apply the rule
  kFactors,          // each worker's factors, to every other worker
  kTree,             // sums along a binary tree to worker 0, and back
  kRing,             // sums of parts, each once around all workers, and once more
  kHalvingDoubling,  // sums of halves with partners ever nearer, and back
  kDirect,           // sums of parts, each at one worker, which sends it to all
  kMpi,              // sums by MPI, as its library likes
  kNccl,             // sums on GPUs by NCCL, as its library likes
};
inline constexpr std::array kWays{Way::kTable,           Way::kFactors, Way::kTree, Way::kRing,
                                  Way::kHalvingDoubling, Way::kDirect,  Way::kMpi,  Way::kNccl};
// The ways whose time is predicted. AUTO chooses among them.
inline constexpr std::array kPredictedWays{Way::kTable, Way::kFactors,         Way::kTree,
                                           Way::kRing,  Way::kHalvingDoubling, Way::kDirect};
// The sums whose transfers this program makes.
inline constexpr std::array kCollectives{Way::kTree, Way::kRing, Way::kHalvingDoubling,
                                         Way::kDirect};

// Returns the way as a solver spells it.
constexpr const char* name_of(Way way) {
  constexpr const char* kNames[] = {"TABLE",  "FACTORS", "TREE", "RING", "HALVING_DOUBLING",
                                    "DIRECT", "MPI",     "NCCL"};
  return kNames[static_cast<std::size_t>(way)];
}
// Returns whether the transfers are a library's, which is chosen by name alone: their time is not
// predicted.
constexpr bool is_of_library(Way way) { return way == Way::kMpi || way == Way::kNccl; }
// Returns whether workers sum the gradients among themselves.
constexpr bool is_collective(Way way) { return way >= Way::kTree; }

}  // namespace shoal::parallel
