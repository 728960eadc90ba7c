// Every scheme against a few lines that do the same by the book, in every interleaving of a small
// job; and what must hold in all of them: nothing is lost or merged twice, some worker can always
// move.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/shard_rig.h"

namespace shoal::table::scheme_oracle_test {
namespace {

using test::plan_of;
using test::ShardRig;

constexpr int kWorkers = 3;
using Reads = std::map<int, double>;  // by worker, what it may go on from

// One number in double precision. push() returns who goes on; a worker's last read is in `read`.
class Oracle {
 public:
  virtual ~Oracle() = default;
  virtual Reads push(int worker, double value) = 0;

 protected:
  Reads alone(int worker) { return {{worker, read[worker] = w}}; }
  // An update, and what it was computed from.
  void step(int worker, double by) {
    w += by;
    last[worker] = ++version;
  }
  int missed(int worker) const { return version - last[worker]; }
  double w = 0;
  int version = 0;
  int last[kWorkers] = {}, base[kWorkers] = {};  // after its own last update; of its last read
  double read[kWorkers] = {};
};

// W -= g / 3, or whatever `change` says.
class Alone final : public Oracle {
 public:
  explicit Alone(
      std::function<double(double value, double w, double read, int missed, int lag)> change)
      : change_(std::move(change)) {}
  Reads push(int worker, double value) override {
    const double by = change_(value, w, read[worker], missed(worker), version - base[worker]);
    if (!std::isnan(by)) step(worker, by);  // not a number: dropped
    base[worker] = version;
    return alone(worker);
  }

 private:
  const std::function<double(double, double, double, int, int)> change_;
};

class ElasticOracle final : public Oracle {
 public:
  Reads push(int worker, double value) override {
    const double e = 0.3 * (value - w);
    w += e;
    return {{worker, value - e}};
  }
};

// The first two of each version.
class BackupOracle final : public Oracle {
 public:
  Reads push(int worker, double value) override {
    if (base[worker] < version) {
      base[worker] = version;
      return alone(worker);
    }
    got_[worker] = value;
    if (got_.size() < 2) return {};
    Reads reads;
    for (const auto& [who, gradient] : got_) w -= gradient / 2;
    ++version;
    for (const auto& [who, gradient] : std::exchange(got_, {})) reads[who] = w, base[who] = version;
    return reads;
  }

 private:
  std::map<int, double> got_;
};

// Groups {0, 2} and {1}: W -= mean / Y. With a bound, a group waits until the other has at most so
// many rounds less.
class GroupOracle final : public Oracle {
 public:
  explicit GroupOracle(int bound) : bound_(bound) {}
  Reads push(int worker, double value) override {
    const int group = worker % 2;
    got_[group][worker] = value;
    if (got_[group].size() < (group == 0 ? 2u : 1u)) return {};
    double sum = 0;
    for (const auto& [who, gradient] : got_[group]) sum += gradient, waits_[group].push_back(who);
    w -= sum / static_cast<double>(got_[group].size()) / (1 + version - last_[group]);
    last_[group] = ++version;
    got_[group].clear();
    ++rounds_[group];
    Reads reads;
    for (const int g : {0, 1})
      if (rounds_[g] <= std::min(rounds_[0], rounds_[1]) + bound_)
        for (const int who : std::exchange(waits_[g], {})) reads[who] = w;
    return reads;
  }

 private:
  const int bound_;
  std::map<int, double> got_[2];
  std::vector<int> waits_[2];
  int last_[2] = {}, rounds_[2] = {};
};

class MeanOracle final : public Oracle {
 public:
  Reads push(int worker, double value) override {
    got_[worker] = value;
    if (got_.size() < kWorkers) return {};
    Reads reads;
    for (const auto& [who, delta] : got_) w += 0.5 * delta / kWorkers;
    for (const auto& [who, delta] : std::exchange(got_, {})) reads[who] = w;
    return reads;
  }

 private:
  std::map<int, double> got_;
};

struct Case {
  const char* words;
  std::function<std::unique_ptr<Oracle>()> oracle;
};

Case alone(const char* words, std::function<double(double, double, double, int, int)> change) {
  return {words, [change] { return std::make_unique<Alone>(change); }};
}

std::vector<Case> cases() {
  return {
      alone("async", [](double g, double, double, int, int) { return -g / 3; }),
      alone("async factor=2", [](double g, double, double, int, int) { return -g / 2; }),
      alone("async payload=delta", [](double d, double, double, int, int) { return d; }),
      alone("async payload=delta factor=3 weighting=inverse weighting_cap=2",
            [](double d, double, double, int missed, int) {
              return d / 3 / std::min(2, 1 + missed);
            }),
      alone("async factor=1 weighting=polynomial weighting_a=0.5",
            [](double g, double, double, int missed, int) { return -g / (1 + 0.5 * missed); }),
      alone("async factor=1 weighting=exponential weighting_a=0.5 weighting_definition=version",
            [](double g, double, double, int, int lag) {
              return -g * std::exp(-0.5 * (std::max(1, lag) - 1));
            }),
      alone("async factor=1 weighting=cutoff weighting_a=3",
            [](double g, double, double, int missed, int) {
              return 1 + missed <= 3 ? -g : std::nan("");
            }),
      alone("dc_asgd compensation=0.1 factor=1",
            [](double g, double w, double read, int, int) {
              return -(g + 0.1 * g * g * (w - read));
            }),
      alone("weed_out max_version_lag=2", [](double g, double, double, int,
                                             int lag) { return lag <= 2 ? -g / 3 : std::nan(""); }),
      {"elastic moving_rate=0.3", [] { return std::make_unique<ElasticOracle>(); }},
      {"sync_backup backup=1", [] { return std::make_unique<BackupOracle>(); }},
      {"grouped groups=0,2|1", [] { return std::make_unique<GroupOracle>(1000); }},
      {"grouped groups=0,2|1 staleness=1", [] { return std::make_unique<GroupOracle>(1); }},
      {"grouped groups=0,2|1 staleness=0", [] { return std::make_unique<GroupOracle>(0); }},
      {"local_steps global_rate=0.5", [] { return std::make_unique<MeanOracle>(); }},
  };
}

// A shard and an oracle side by side.
struct Job {
  explicit Job(const Case& c) : rig(plan_of(c.words, kWorkers)), oracle(c.oracle()) {
    for (int worker = 0; worker < kWorkers; ++worker) rig.give(worker, Get{0, 0});
    rig.out().clear();
  }

  static float value_of(int worker, Clock clock) {
    return static_cast<float>((worker + 2) * 3 + clock * (worker % 2 == 0 ? 1 : -2)) / 4;
  }
  bool can_move(int worker) const { return worker != gone && reads[worker] == done[worker]; }

  void push(int worker) {
    const Clock clock = done[worker]++;
    const float value = value_of(worker, clock);
    rig.push(worker, clock, value);
    hear(gone >= 0 ? Reads{} : oracle->push(worker, value));
  }
  // The same workers go on, from the same numbers. Once somebody is gone the oracle is silent.
  void hear(const Reads& expected) {
    Reads heard;
    for (const Outgoing& one : std::exchange(rig.out(), {})) {
      const auto& row = std::get<RowMessage>(one.message);
      ASSERT_EQ(row.clock, done[one.to]);
      rig.base(one.to, 0) = row.version;
      reads[one.to] = row.clock;
      heard[one.to] = row.payload.floats()[0];
    }
    if (gone >= 0) return;
    ASSERT_EQ(heard.size(), expected.size());
    for (const auto& [worker, value] : expected) {
      ASSERT_TRUE(heard.contains(worker)) << "worker " << worker;
      ASSERT_NEAR(heard[worker], value, 1e-4 * std::max(1.0, std::fabs(value)))
          << "worker " << worker;
    }
  }
  std::uint64_t accounted() const {
    const ShardCounters counters = rig.shard().counters();
    return counters.contributions + counters.dropped;
  }
  std::uint64_t pushed() const { return static_cast<std::uint64_t>(done[0] + done[1] + done[2]); }
  // If a worker has not finished, some worker can move.
  bool is_stuck(Clock clocks) const {
    bool left = false;
    for (int worker = 0; worker < kWorkers; ++worker) {
      if (worker == gone || done[worker] == clocks) continue;
      left = true;
      if (can_move(worker)) return false;
    }
    return left;
  }

  mutable ShardRig rig;
  const std::unique_ptr<Oracle> oracle;
  Clock done[kWorkers] = {}, reads[kWorkers] = {};
  int gone = -1;
};

TEST(SchemeOracle, EveryInterleavingOfThreeWorkersAndFourClocksIsByTheBook) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.words);
    std::vector<int> order = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
    std::size_t walked = 0, finished = 0;
    do {
      Job job(c);
      std::size_t moved = 0;
      for (; moved < order.size() && job.can_move(order[moved]); ++moved) {
        job.push(order[moved]);
        if (::testing::Test::HasFatalFailure())
          FAIL() << "after " << moved + 1 << " of " << ::testing::PrintToString(order);
      }
      ++walked;
      finished += moved == order.size();
      if (moved < order.size())
        std::sort(order.begin() + static_cast<std::ptrdiff_t>(moved) + 1, order.end(),
                  std::greater<>());
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_GT(walked, 1000u);
    EXPECT_GT(finished, 0u);
  }
}

// A worker makes 0 to 3 pushes of 3, then retires or is lost, at every point of every interleaving;
// in groups, of both.
TEST(SchemeOracle, WhoeverGoesNobodyIsStuckAndNothingIsLost) {
  constexpr Clock kClocks = 3;
  constexpr int kGo = kWorkers;
  for (const Case& c : cases())
    for (const int goes : {1, 2})
      for (const bool dies : {true, false})
        for (int pushes = 0; pushes <= 3; ++pushes) {
          SCOPED_TRACE(str(c.words, ": ", goes, dies ? " dies after " : " retires after ", pushes));
          std::vector<int> order = {0, 0, 0, 3 - goes, 3 - goes, 3 - goes, kGo};
          order.insert(order.end(), static_cast<std::size_t>(pushes), goes);
          std::sort(order.begin(), order.end());
          std::size_t finished = 0;
          do {
            // goes after its last push
            if (std::find(std::find(order.begin(), order.end(), kGo), order.end(), goes) !=
                order.end())
              continue;
            Job job(c);
            std::size_t moved = 0;
            for (; moved < order.size() && (order[moved] == kGo || job.can_move(order[moved]));
                 ++moved) {
              if (order[moved] != kGo) {
                job.push(order[moved]);
              } else {
                job.gone = goes;
                if (dies)
                  job.rig.leave(goes);
                else
                  job.rig.give(goes, Retire{job.done[goes]});
                job.hear({});
              }
              if (job.gone >= 0) {
                ASSERT_FALSE(job.is_stuck(kClocks))
                    << "after " << moved + 1 << " of " << ::testing::PrintToString(order);
              }
              if (::testing::Test::HasFatalFailure()) return;
            }
            if (moved < order.size()) continue;
            ++finished;
            for (int worker = 0; worker < kWorkers; ++worker)
              if (worker != goes) job.rig.give(worker, Retire{kClocks});
            ASSERT_EQ(job.accounted(), job.pushed()) << ::testing::PrintToString(order);
          } while (std::next_permutation(order.begin(), order.end()));
          EXPECT_GT(finished, 0u);
        }
}

// Deltas are whole numbers: the row is the sum of those that were not dropped.
TEST(SchemeOracle, WhatIsMergedIsWhatWasPushedLessWhatWasDropped) {
  for (const char* words :
       {"async payload=delta", "ssp 1 payload=delta", "weed_out max_version_lag=1 payload=delta",
        "async payload=delta weighting=cutoff weighting_a=2"}) {
    Plan plan = plan_of(words, kWorkers);
    ShardRig rig(plan);
    std::uint32_t random = 4711;
    Clock clocks[kWorkers] = {}, reads[kWorkers] = {};
    double kept = 0;
    for (int i = 0; i < 3000; ++i) {
      random = random * 1664525 + 1013904223;
      const int worker = static_cast<int>(random >> 24) % 7 % kWorkers;
      if (reads[worker] < clocks[worker]) continue;
      const float value = static_cast<float>(random >> 16 & 15) - 7;
      const std::uint64_t dropped = rig.shard().counters().dropped;
      rig.push(worker, clocks[worker]++, value);
      if (rig.shard().counters().dropped == dropped) kept += value;
      for (const Outgoing& one : std::exchange(rig.out(), {})) {
        const auto& row = std::get<RowMessage>(one.message);
        reads[one.to] = row.clock, rig.base(one.to, 0) = row.version;
        ASSERT_EQ(row.payload.floats()[0], static_cast<float>(kept)) << words << ", push " << i;
      }
    }
    const ShardCounters counters = rig.shard().counters();
    EXPECT_EQ(counters.contributions + counters.dropped,
              static_cast<std::uint64_t>(clocks[0] + clocks[1] + clocks[2]));
    EXPECT_EQ(counters.dropped > 0, std::string(words).find("max_version") != std::string::npos ||
                                        std::string(words).find("cutoff") != std::string::npos);
  }
}

}  // namespace
}  // namespace shoal::table::scheme_oracle_test
