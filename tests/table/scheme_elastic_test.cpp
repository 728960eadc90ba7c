// Elastic averaging against its equations, and its stability against its paper.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "support/shard_rig.h"

namespace shoal::table::scheme_elastic_test {
namespace {

using test::plan_of;
using test::ShardRig;
using Reads = std::map<int, double>;  // by worker, what it may go on from

// One worker's task: tau steps of SGD with momentum on (x - target)^2 / 2, with an exchange after
// them or before the first.
struct EasgdWorker {
  double x = 0, v = 0;
  void steps(double from, int tau, double rate, double momentum, double target) {
    for (int s = 0; s < tau; ++s) {
      v = momentum * v + rate * ((s == 0 ? from : x) - target);
      x -= v;
    }
  }
};

TEST(SchemeOracle, ElasticAveragingFollowsItsEquations) {
  for (const bool before : {false, true}) {
    constexpr int kPeople = 4, kTau = 3;
    const double alpha = 0.9 / kPeople, rate = 0.1, momentum = 0.5;
    ShardRig rig(
        plan_of(str("elastic local_steps=3", before ? " exchange_order=before" : ""), kPeople), 5);
    EasgdWorker ours[kPeople], books[kPeople];
    double center = 5;
    std::uint32_t random = 7;
    Clock clocks[kPeople] = {};
    for (EasgdWorker& worker : ours) worker.x = 5;
    for (EasgdWorker& worker : books) worker.x = 5;
    for (int i = 0; i < 400; ++i) {
      random = random * 1664525 + 1013904223;
      const int k = static_cast<int>(random >> 24) % kPeople;
      const double target = static_cast<double>(random >> 12 & 7) - 2;
      const auto exchange = [&] {
        rig.push(k, clocks[k]++, static_cast<float>(ours[k].x));
        ours[k].x = std::get<RowMessage>(rig.out().at(0).message).payload.floats()[0];
        rig.said();
        const double e = alpha * (books[k].x - center);
        books[k].x -= e;
        center += e;
      };
      const double ours_before = ours[k].x, book_before = books[k].x;
      if (before) exchange();
      ours[k].steps(before ? ours_before : ours[k].x, kTau, rate, momentum, target);
      books[k].steps(before ? book_before : books[k].x, kTau, rate, momentum, target);
      if (!before) exchange();
      ASSERT_NEAR(ours[k].x, books[k].x, 1e-4) << i;
    }
    rig.leave(3);
    rig.give(0, Get{0, clocks[0]});
    ASSERT_LT(std::fabs(center), 4);
    rig.said();
    Outbox out;
    rig.push(1, clocks[1]++, static_cast<float>(center));  // the center itself pulls nothing
    EXPECT_NEAR(std::get<RowMessage>(rig.out().at(0).message).payload.floats()[0], center, 1e-3);
  }
}

// Round-robin on F = x^2 / 2, in the paper's order: stable for 0 <= rate <= 2 and alpha <= (4 - 2
// rate) / (4 - rate), however many workers.
TEST(SchemeOracle, ElasticAveragingIsStableWhereThePaperSays) {
  for (const int workers : {1, 3, 8})
    for (const double rate : {0.2, 0.5, 1.0, 1.5, 1.9})
      for (const bool inside : {true, false}) {
        const double bound = (4 - 2 * rate) / (4 - rate), alpha = bound * (inside ? 0.95 : 1.05);
        if (alpha > 1) continue;
        ShardRig rig(plan_of(str("elastic exchange_order=before moving_rate=", alpha),
                             static_cast<std::uint16_t>(workers)),
                     1);
        std::vector<double> x(static_cast<std::size_t>(workers), 1.0);
        double largest = 1;
        for (Clock clock = 0; clock < 3000 && largest < 1e6; ++clock) {
          largest = 0;
          for (int k = 0; k < workers; ++k) {
            double& own = x[static_cast<std::size_t>(k)];
            const double gradient = own;
            rig.push(k, clock, static_cast<float>(own));
            own =
                std::get<RowMessage>(rig.out().at(0).message).payload.floats()[0] - rate * gradient;
            rig.said();
            largest = std::max(largest, std::fabs(own));
          }
        }
        EXPECT_EQ(largest < 1, inside)
            << workers << " workers, rate " << rate << ", alpha " << alpha << ": " << largest;
      }
}

}  // namespace
}  // namespace shoal::table::scheme_elastic_test
