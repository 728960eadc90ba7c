// Finds groups of workers, and their shares of the data, by speeds measured in the course of a run:
// after the first iterations, and again while the workers train.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "shoal/parallel/tuning/profile.h"
#include "shoal/tensor/context.h"

namespace shoal::parallel {

class SpeedTuner {
 public:
  // `table` and `next` as in Speedometer. The chief writes `files` when it has found groups, or
  // others. `shares`: the search for shares by speed, in phases whose groups are not searched for.
  SpeedTuner(const table::Table& table, Meter* next, ProfileFiles files,
             std::optional<GroupSearch> shares)
      : speedometer_(table, next), files_(std::move(files)), shares_(shares) {}
  Meter& meter() { return speedometer_; }
  const Speedometer& speedometer() const { return speedometer_; }

  // begin(): a segment of `phase` begins on the chief, which reads this share of the data.
  struct Ahead {
    // Records that all workers read in an epoch; 0: not known.
    double records = 0;
    double items = 0;             // of this worker in an iteration
    std::int64_t iterations = 0;  // until the phase ends
  };
  void begin(const Phase& phase, const Share& share, const Ahead& ahead);
  // Returns, once, that speeds are to be measured again: after as many iterations of the segment as
  // the search says, or the chief's part of an epoch.
  bool due();

  // Called by all workers of the team, at the end of a segment of `phase`, with `next` after it
  // (null: nothing). Returns the next scheme, for the workers that there are (nothing: the
  // phase's), and their shares of the data. Returns nothing where neither groups nor shares are
  // searched for, the profile is not over, or the phase is.
  struct Found {
    std::optional<table::SchemeSpec> scheme;
    std::vector<double> weights{};
  };
  struct End {
    Team& team;
    const table::RosterBody& roster;
    const table::SchemeSpec& scheme;     // that ends
    const std::vector<double>& weights;  // the workers' shares of the data; empty: equal
    std::int64_t iteration = 0;
    double items = 0;  // of this worker in an iteration
  };
  Result<std::optional<Found>> find(const End& end, const Phase& phase, const Phase* next);

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  Result<Profile> measure(const End& end, const GroupSearch& search) const;
  Result<std::optional<Found>> find_shares(const End& end) const;

  Speedometer speedometer_;
  const ProfileFiles files_;
  const std::optional<GroupSearch> shares_;
  int looked_at_ = 0;  // workers of the segment that a look at their shares ended
  std::int64_t look_after_ = kNever;
  // Seconds that an iteration waits for rows where no worker waits for others.
  std::optional<double> exchange_;
};

}  // namespace shoal::parallel
