// A row that one worker writes, in a shard: each reader gets each clock once, in whatever order
// messages come, and nothing is kept that all have read.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "shoal/base/random.h"
#include "support/expect.h"
#include "support/shard_rig.h"

namespace shoal::table::written_row_test {
namespace {

constexpr int kWriter = 1;  // of three workers

// Row 1 is for both others, row 2 for worker 2 alone.
Plan plan_of_written() {
  Plan plan = test::plan_of("bsp", 3);
  plan.rows.edit().push_back({.length = 2, .learns = false, .writer = kWriter});
  plan.rows.edit().push_back({.length = 2, .learns = false, .writer = kWriter, .reader = 2});
  return plan;
}

// The first number tells the clock.
Push push(Clock clock, RowId row = 1) {
  return test::push_of(row, clock, static_cast<float>(clock), 2);
}

class WrittenRow : public testing::Test {
 protected:
  std::size_t kept() const { return (shard_.bytes_held() - before_) / (2 * sizeof(float)); }

  test::ShardRig rig{plan_of_written()};
  Shard& shard_ = rig.shard();
  const std::size_t before_ = shard_.bytes_held();
};

TEST_F(WrittenRow, GoesToThoseThatAskedWhenItComes) {
  EXPECT_EQ(rig.answers(0, Get{1, 1}), "");
  EXPECT_EQ(rig.answers(kWriter, push(0)), "row 1@1=0v1 to 0, row 1@1 to 1")
      << "the acknowledgement has no numbers";
  EXPECT_EQ(rig.answers(2, Get{1, 1}), "row 1@1=0v1 to 2");
}

TEST_F(WrittenRow, IsKeptUntilAllReadersAskForALaterClock) {
  for (const Clock clock : {0, 1, 2}) rig.give(kWriter, push(clock));
  EXPECT_EQ(kept(), 3u);
  for (const Clock clock : {1, 2}) rig.give(0, Get{1, clock});
  EXPECT_EQ(kept(), 3u);
  for (const Clock clock : {1, 2}) rig.give(2, Get{1, clock});
  EXPECT_EQ(kept(), 2u);
  rig.said();
  EXPECT_EQ(rig.answers(2, Get{1, 2}), "row 1@2=1v2 to 2") << "the answer was lost";
  EXPECT_EQ(rig.answers(2, Get{1, 1}), "") << "a late question";
  rig.leave(2);
  rig.give(0, Get{1, 3});
  EXPECT_EQ(kept(), 1u);
}

// A writer pushes on when it was told that its last push has come, so that a clock that is missing
// is one at which it wrote nothing.
TEST_F(WrittenRow, TakesAPushBehindClocksWithoutOne) {
  EXPECT_EQ(rig.answers(kWriter, push(3)), "row 1@4 to 1");
  EXPECT_EQ(kept(), 1u);
  EXPECT_EQ(rig.answers(kWriter, push(0)), "") << "the writer has gone on";
}

TEST_F(WrittenRow, TakesPushesInTheirOrderOnce) {
  rig.give(kWriter, push(0));
  rig.said();
  EXPECT_EQ(rig.answers(kWriter, push(0)), "row 1@1 to 1") << "repeated: acknowledged again";
  rig.give(kWriter, push(1));
  rig.said();
  EXPECT_EQ(rig.answers(kWriter, push(0)), "") << "the writer has gone on";
  EXPECT_EQ(kept(), 2u);
  EXPECT_EQ(rig.answers(kWriter, Get{1, 2}), "row 1@2 to 1");
  EXPECT_EQ(rig.answers(kWriter, Get{1, 3}), "need 1@2 to 1");
}

TEST_F(WrittenRow, RefusesOtherWritersWrongSizesAndWhatIsNotFinite) {
  EXPECT_HAS(rig.refused(0, push(0)),
             "worker 0's push of row 1 at clock 0 is of a row that worker 1 alone writes");
  EXPECT_HAS(rig.refused(kWriter, test::push_of(1, 0, NAN, 2)), "holds a NaN or an infinity");
  EXPECT_NE(rig.refused(kWriter, test::push_of(1, 0, 1, 1)), "");
  EXPECT_EQ(rig.said(), "");
  EXPECT_EQ(kept(), 0u);
}

TEST_F(WrittenRow, ForOneReaderIsKeptUntilThatOneAsksForALaterClock) {
  EXPECT_EQ(rig.answers(2, Get{2, 1}), "");
  EXPECT_EQ(rig.answers(kWriter, push(0, 2)), "row 2@1=0v1 to 2, row 2@1 to 1")
      << "the reader's, and the acknowledgement";
  EXPECT_EQ(kept(), 1u);
  rig.give(2, Get{2, 2});
  EXPECT_EQ(kept(), 0u);
  EXPECT_HAS(rig.refused(0, Get{2, 1}), "of row 2, which worker 2 alone reads");
  EXPECT_EQ(rig.said(), "");
}

// Readers up to three clocks behind each other, each message twice at times: every reader gets each
// clock's numbers.
TEST_F(WrittenRow, GivesEachClockToEachReaderInAnyOrder) {
  Random random(5, 0);
  Clock pushed = 0;
  std::map<int, Clock> read{{0, 0}, {2, 0}};
  while (read[0] < 200 || read[2] < 200) {
    const int who = static_cast<int>(random.below(3));
    if (who == kWriter && pushed < std::min(read[0], read[2]) + 3) rig.give(who, push(pushed++));
    if (who == kWriter && pushed > 0 && random.below(4) == 0) rig.give(who, push(pushed - 1));
    if (who != kWriter && read[who] < 200) rig.give(who, Get{1, read[who] + 1});
    for (const Outgoing& one : std::exchange(rig.out(), {})) {
      const auto* row = std::get_if<RowMessage>(&one.message);
      if (!row || one.to == kWriter || row->clock != read[one.to] + 1) continue;
      EXPECT_EQ(static_cast<float>(read[one.to]), row->payload.floats()[0]);
      ++read[one.to];
    }
    EXPECT_LE(kept(), 4u);
  }
}

}  // namespace
}  // namespace shoal::table::written_row_test
