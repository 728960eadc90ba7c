// Checks the values that workers of a simulated cluster read against the promises of the table
// service (invariants I1, I2, I3; tests/faults_test.cpp).
//
// Gradients are made so that every number that is read tells what is in it. The first `workers`
// numbers of a row belong to the workers, one each; worker w's push of clock c carries -kUnit *
// 16^(c - start) there, and 0 in the others'. With SGD at rate 1 without momentum, on weights that
// start at 0, the number is then written in base 16, and digit c says whether w's push of clock c
// is in it: kUnit divided by how many it was averaged with, or 0. All of it is exact in floats. The
// rest of a row are fractions, for rounding to show.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "shoal/table/types.h"

namespace shoal::table {

inline constexpr int kUnit = 12;  // can be divided by 1, 2, 3 and 4
// The most clocks of a history. A sixth digit is for contributions that are there twice.
inline constexpr Clock kMostClocks = 5;
inline constexpr std::uint32_t kFractions = 3;  // numbers of a row after the workers'

struct HistoryRules {
  int workers = 1;
  Clock start = 0;
  std::vector<Clock> stops;                 // by worker: the clock at which it retires
  Clock staleness = 0;                      // kUnbounded: async
  std::set<std::pair<int, Clock>> skipped;  // (worker, clock): pushed with weight 0
  // One update a clock, of all workers that have not retired.
  bool lockstep = true;
  bool exact = true;  // gradients are not scaled by a clip
  // The clocks at which the workers begin, by worker; none: all at the start.
  std::vector<Clock> clocks{};
  // Workers that are lost: a row has their pushes up to some clock, and need not have more.
  std::set<int> lost{};
  // Rows whose server is lost, and which no other has: workers go on with what they read last.
  std::set<RowId> stale{};
  bool own_answers = false;                // readers of one version may be given different numbers
  std::vector<std::vector<float>> base{};  // by row: what is in it at the start, if not zeros
};

// Makes the gradient of a worker's iteration.
void make_gradient(std::uint64_t seed, int worker, Clock clock, RowId row, Clock start,
                   std::span<float> out);

class History {
 public:
  explicit History(const HistoryRules& rules) : rules_(rules) {}

  void pushed(int worker, RowId row, Clock clock);
  // Notes a server's answer on its way to a worker.
  void answered(RowId row, Version version, std::span<const float> numbers);
  // Notes that a worker that has finished `clock` iterations has read these values.
  void read(int worker, RowId row, Clock clock, std::span<const float> numbers);
  // Notes that the row has these values after all workers have retired.
  void ended(RowId row, Version version, std::span<const float> numbers);
  void say(const std::string& wrong) {
    if (wrong_.empty()) wrong_ = wrong;
  }
  // Notes that the worker's pushes to the row count up to the clock `end`, or if they are in
  // `numbers`, and no other.
  void cut(int worker, RowId row, Clock end, std::span<const float> numbers);
  void lose(int worker) { rules_.lost.insert(worker); }
  void lose_row(RowId row) { rules_.stale.insert(row); }

  // Returns the first promise that was broken, or "".
  const std::string& wrong() const { return wrong_; }
  // All values that were read, for comparing bit by bit; (worker, clock, row), the end under worker
  // -1.
  using Reads = std::map<std::tuple<int, Clock, RowId>, std::vector<float>>;
  const Reads& reads() const { return reads_; }

 private:
  Clock begin_of(int worker) const {
    return rules_.clocks.empty() ? rules_.start : rules_.clocks[static_cast<std::size_t>(worker)];
  }
  bool could_be(int digit, int worker, Clock clock) const;
  bool contains(std::span<const float> numbers, int worker, Clock clock);
  std::vector<float> since_start(RowId row, std::span<const float> numbers) const;
  void check_contents(const std::string& where, RowId row, std::span<const float> numbers);

  HistoryRules rules_;
  std::string wrong_;
  Reads reads_;
  std::map<std::pair<RowId, Version>, std::vector<float>> versions_;
  std::map<std::pair<int, RowId>, Clock> pushed_;
  // The clocks of a lost worker's pushes that a row may have.
  std::map<std::pair<int, RowId>, std::set<Clock>> allowed_;
};

// Returns the first difference, or "".
std::string difference(const History::Reads& one, const History::Reads& other);

}  // namespace shoal::table
