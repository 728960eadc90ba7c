// Groups by speed in the course of a run: found when their profile ends, and looked at again while
// they train.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "shoal/parallel/phases.h"
#include "shoal/parallel/tuning/profile.h"
#include "shoal/tensor/context.h"

namespace shoal::parallel {

class SpeedGroups {
 public:
  // `table` and `next` as Speedometer has them. The chief writes `files` when groups are found, or
  // others.
  SpeedGroups(const table::Table* table, Meter* next, ProfileFiles files)
      : speedometer_(table, next), files_(std::move(files)) {}
  Meter& meter() { return speedometer_; }

  // A segment of `phase` begins on the chief, which reads this share of the data.
  struct Ahead {
    // that all workers go through in an epoch; 0: not known
    double records = 0;
    double items = 0;             // of this worker in an iteration
    std::int64_t iterations = 0;  // until the phase ends
  };
  void begin(const Phase& phase, const Share& share, const Ahead& ahead);
  // Groups are to be looked at again: after as many iterations of the segment as the search says,
  // or the chief's part of an epoch. Said once.
  bool due();

  // All workers of the team together, at the end of a segment of `phase`, with `next` after it
  // (null: nothing): the scheme to go on with, for the workers that there are, and their parts of
  // the data. Nothing where no groups are searched for, the profile is not over, or the phase is.
  struct Found {
    table::SchemeSpec scheme;
    std::vector<double> weights{};
  };
  struct End {
    Team& team;
    const table::RosterBody& roster;
    const table::SchemeSpec& scheme;  // that ends
    std::int64_t iteration = 0;
    double items = 0;  // of this worker in an iteration
  };
  Result<std::optional<Found>> find(const End& end, const Phase& phase, const Phase* next);

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  Speedometer speedometer_;
  const ProfileFiles files_;
  std::int64_t look_after_ = kNever;
  // seconds that an iteration waits for rows where nobody waits for other workers
  std::optional<double> exchange_;
};

}  // namespace shoal::parallel
