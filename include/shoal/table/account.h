// The account of a job's compute, as the coordinator tells the chief
// (src/shoal/table/coordinator/participation.h says what is counted).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/table/types.h"

namespace shoal::table {

// The body of the answer to the chief's kReport, and of another before the answer to its kDone.
// Seconds are since the job began to train; -1: never so far.
struct AccountBody {
  struct Fault {
    std::uint32_t number = 0;  // of the job's, from 1
    Rank rank = 0;
    std::string host, why;
    double since = 0;        // when it was heard last
    double stopped = 0;      // for so long the others made no progress
    double back = 0;         // after so long a process that joined began in its place
    std::int64_t steps = 0;  // were computed, and lost with it
    bool operator==(const Fault&) const = default;
  };
  double seconds = 0;                        // when this was so
  std::uint32_t alive = 0;                   // processes
  std::uint32_t taking_part = 0;             // workers of the present generation that are alive
  std::uint32_t losses = 0;                  // of processes that the others went on without
  std::int64_t in_params = 0, computed = 0;  // steps of all workers
  double possible = 0;                       // steps, had nothing failed
  bool ended = false;                        // all workers are done
  std::vector<Fault> faults{};               // the last ones, in their order
  bool operator==(const AccountBody&) const = default;
};

}  // namespace shoal::table
