// A row that one worker writes, in a shard: each reader gets each clock once, in whatever order
// messages come, and nothing is kept that all have read.
#include <gtest/gtest.h>

#include <map>

#include "shoal/base/random.h"
#include "shoal/table/shard.h"
#include "support/expect.h"
#include "support/schemes.h"

namespace shoal::table::test {
namespace {

constexpr int kWorkers = 3, kWriter = 1;

Plan plan_of() {
  Plan plan;
  plan.workers = kWorkers;
  plan.rows = {{.length = 1},
               {.length = 2, .learns = false, .writer = kWriter},
               {.length = 2, .learns = false, .writer = kWriter, .reader = 2}};
  return plan;
}

class WrittenRow : public testing::Test {
 protected:
  WrittenRow() {
    Outbox out;
    const float zero = 0;
    EXPECT_TRUE(shard_.handle(0, PlanMessage{plan_of()}, out).ok());
    EXPECT_TRUE(shard_.handle(0, Init{.payload = as_payload({{&zero, 1}})}, out).ok());
    EXPECT_TRUE(shard_.ready());
    before_ = shard_.bytes_held();
  }
  Outbox push(Clock clock, int worker = kWriter) {
    const float numbers[] = {static_cast<float>(clock), 7};
    return told(worker, Push{.row = 1, .clock = clock, .payload = owned(as_payload({numbers}))});
  }
  Outbox get(int worker, Clock clock) { return told(worker, Get{.row = 1, .clock = clock}); }
  Outbox told(int worker, const Message& message) {
    Outbox out;
    status_ = shard_.handle(worker, message, out);
    return out;
  }
  std::size_t kept() const { return (shard_.bytes_held() - before_) / (2 * sizeof(float)); }

  Shard shard_{0};
  Status status_;
  std::size_t before_ = 0;
};

const RowMessage& row_of(const Outgoing& out) { return std::get<RowMessage>(out.message); }

TEST_F(WrittenRow, GoesToThoseThatAskedWhenItComes) {
  EXPECT_TRUE(get(0, 1).empty());
  const Outbox out = push(0);
  ASSERT_EQ(2u, out.size());
  EXPECT_EQ(0, out[0].to);
  EXPECT_EQ(0.0f, row_of(out[0]).payload.floats()[0]);
  EXPECT_EQ(kWriter, out[1].to);  // the acknowledgement has no numbers
  EXPECT_EQ(1, row_of(out[1]).clock);
  EXPECT_TRUE(row_of(out[1]).payload.bytes.empty());
  const Outbox late = get(2, 1);
  ASSERT_EQ(1u, late.size());
  EXPECT_EQ(1, row_of(late[0]).clock);
}

TEST_F(WrittenRow, IsKeptUntilAllReadersAskForALaterClock) {
  push(0), push(1), push(2);
  EXPECT_EQ(3u, kept());
  get(0, 1), get(0, 2);
  EXPECT_EQ(3u, kept());
  get(2, 1), get(2, 2);
  EXPECT_EQ(2u, kept());
  EXPECT_EQ(1u, get(2, 2).size()) << "the answer was lost, and is given again";
  EXPECT_TRUE(get(2, 1).empty()) << "a late question";
  Outbox out;
  shard_.leave(2, out);
  get(0, 3);
  EXPECT_EQ(1u, kept());
}

TEST_F(WrittenRow, TakesPushesInTheirOrderOnce) {
  const Outbox early = push(1);
  ASSERT_EQ(1u, early.size());
  EXPECT_EQ(0, std::get<NeedPush>(early[0].message).clock);
  EXPECT_EQ(0u, kept());
  push(0);
  EXPECT_EQ(1, row_of(push(0).at(0)).clock) << "repeated: acknowledged again";
  push(1);
  EXPECT_TRUE(push(0).empty()) << "the writer has gone on";
  EXPECT_EQ(2u, kept());
  EXPECT_EQ(2, row_of(get(kWriter, 2).at(0)).clock);
  EXPECT_EQ(2, std::get<NeedPush>(get(kWriter, 3).at(0).message).clock);
}

TEST_F(WrittenRow, RefusesOtherWritersWrongSizesAndWhatIsNotFinite) {
  EXPECT_TRUE(push(0, 0).empty());
  EXPECT_HAS(status_.error().message,
             "worker 0's push of row 1 at clock 0 is of a row that worker 1 alone writes");
  const float nan[] = {NAN, 1};
  told(kWriter, Push{.row = 1, .payload = owned(as_payload({nan}))});
  EXPECT_HAS(status_.error().message, "holds a NaN or an infinity");
  told(kWriter, Push{.row = 1, .payload = owned(as_payload({{nan, 1}}))});
  EXPECT_FALSE(status_.ok());
  EXPECT_EQ(0u, kept());
}

TEST_F(WrittenRow, ForOneReaderIsKeptUntilThatOneAsksForALaterClock) {
  const float numbers[] = {3, 7};
  const auto pushed = [&](Clock clock) {
    return told(kWriter, Push{.row = 2, .clock = clock, .payload = owned(as_payload({numbers}))});
  };
  const auto read = [&](int worker, Clock clock) {
    return told(worker, Get{.row = 2, .clock = clock});
  };
  EXPECT_TRUE(read(2, 1).empty());
  const Outbox out = pushed(0);
  ASSERT_EQ(2u, out.size()) << "the reader's, and the acknowledgement";
  EXPECT_EQ(2, out[0].to);
  EXPECT_EQ(1u, kept());
  read(2, 2);
  EXPECT_EQ(0u, kept());
  EXPECT_TRUE(read(0, 1).empty());
  EXPECT_HAS(status_.error().message, "of row 2, which worker 2 alone reads");
}

// Readers up to three clocks behind each other, each message twice at times: every reader gets each
// clock's numbers.
TEST_F(WrittenRow, GivesEachClockToEachReaderInAnyOrder) {
  Random random(5, 0);
  Clock pushed = 0;
  std::map<int, Clock> read{{0, 0}, {2, 0}};
  const auto hear = [&](const Outbox& out) {
    for (const Outgoing& one : out) {
      const auto* row = std::get_if<RowMessage>(&one.message);
      if (!row || one.to == kWriter || row->clock != read[one.to] + 1) continue;
      EXPECT_EQ(static_cast<float>(read[one.to]), row->payload.floats()[0]);
      ++read[one.to];
    }
  };
  while (read[0] < 200 || read[2] < 200) {
    const int who = static_cast<int>(random.below(3));
    if (who == kWriter && pushed < std::min(read[0], read[2]) + 3) hear(push(pushed++));
    if (who == kWriter && pushed > 0 && random.below(4) == 0) hear(push(pushed - 1));
    if (who != kWriter && read[who] < 200) hear(get(who, read[who] + 1));
    EXPECT_LE(kept(), 4u);
  }
}

}  // namespace
}  // namespace shoal::table::test
