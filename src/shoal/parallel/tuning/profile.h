// Measures the speed of each worker of a job, and finds the groups that follow from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/parallel/scheme_words.h"
#include "shoal/parallel/tuning/grouping.h"
#include "shoal/solver/meter.h"
#include "shoal/solver/team.h"
#include "shoal/table/table.h"

namespace shoal::parallel {

// The mean of the last times. Each counts as three times their median at most, so that one slow
// step does not make a slow worker.
class MeanTime {
 public:
  static constexpr std::size_t kWindow = 100;
  static constexpr double kMost = 3;
  void add(double seconds);
  double mean() const;  // 0: there was none

 private:
  std::deque<double> recent_;
};

// Measures the mean times of this worker's iterations, by its monotonic clock, and passes its calls
// on to another meter. Tests, snapshots and other work between iterations do not count.
class Speedometer final : public Meter {
 public:
  // `next` may be null.
  Speedometer(const table::Table& table, Meter* next) : table_(table), next_(next) {}
  void start(std::int64_t iteration, const Net& net) override;
  void mark(Mark mark, std::int64_t iteration, double data_waited, double rows_waited) override;
  // Since start():
  std::int64_t iterations() const { return iterations_; }
  // Return the seconds of an iteration; 0: there was none. seconds(): with its waits for rows,
  // where no worker waits for other workers, so that a slow link makes a slow worker; busy():
  // without.
  double seconds() const { return times_.mean(); }
  double busy() const { return busy_.mean(); }

 private:
  const table::Table& table_;
  Meter* const next_;
  std::int64_t iterations_ = 0;
  MeanTime times_, busy_;
  table::Instant begun_{};
  double rows_waited_ = 0;  // when the iteration began
};

// The measurements that a worker makes of itself.
struct MeasuredWorker {
  // Seconds of an iteration without waiting for rows; 0: it has made none.
  double busy = 0;
  // Seconds of its exchange where it waits for no worker; nothing: as long as the others' on
  // average.
  std::optional<double> exchange{};
  double items = 0;            // of an iteration
  std::int64_t iteration = 0;  // that it has come to
};
// The measurements of all workers of a job.
struct Profile {
  std::vector<double> speeds;  // items a second, by worker
  Grouping grouping;
  std::int64_t least = 0;  // iterations that all have behind them
};
// Makes a profile in a round of the whole team: each worker sends its measurements, and all get the
// same profile. A worker that measured nothing, or left since the generation began, counts as slow
// as the slowest.
Result<Profile> make_profile(Team& team, const MeasuredWorker& own, const GroupSearch& search);
// Returns "40.1, 20.2".
std::string numbers_text(std::span<const double> numbers, const char* unit = "");
// Returns "67%, 33%", the parts of their sum.
std::string percent_text(std::vector<double> numbers);
// Returns "speeds 40.1, 20.2 items/s; 2 groups (Calinski-Harabasz index 812): 0|1", for the log.
std::string text_of(const Profile& profile);

// The files that the chief writes for the groups found, as MXNet-G writes them; "": none.
struct ProfileFiles {
  std::string groups, data_sharding;
};
// Returns an error (kUsage) if one of them could not be written.
Status check_writable(const ProfileFiles& files);
// Writes both files. Each is whole, or as it was.
Status write(const ProfileFiles& files, const Profile& profile, const table::RosterBody& roster);

}  // namespace shoal::parallel
