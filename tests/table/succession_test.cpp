// Tests that a standby takes the coordinator's place with all that it has said.
#include <gtest/gtest.h>

#include "shoal/table/coordinator.h"
#include "shoal/table/link/standbys.h"
#include "support/expect.h"
#include "support/job.h"

namespace shoal::table::succession_test {
namespace {

using shoal::test::JobOverTcp;

// Process 0 dies as soon as it has heard the answer to its last sum. What it was told, all others
// are told by its successor.
TEST(Succession, TheSuccessorSaysWhatTheCoordinatorHasSaid) {
  for (const Clock last : {1500, 1501, 1600, 1999}) {
    SCOPED_TRACE(last);
    constexpr Clock kAfter = 200;
    JobOverTcp cluster("bbbb");
    for (ServiceOptions& options : cluster.options) options.losses.goes_on = true;
    std::vector<std::vector<double>> sums(cluster.size());
    const std::vector<Status> results =
        cluster.run([&](std::size_t rank, Service& service) -> Status {
          Table& table = *service.table();
          const auto begun = table.ask(Topic::kBarrier, rows_exist(0), "");
          if (!begun.ok()) return begun.error();
          const double own = 1 << rank;
          for (Clock clock = 0; clock < last + kAfter; ++clock) {
            if (rank == 0 && clock == last) return {};
            const auto sum = table.ask(Topic::kSum, clock, numbers_to_bytes({&own, 1}));
            if (!sum.ok()) return sum.error();
            sums[rank].push_back(bytes_to_numbers(sum.value()).at(0));
          }
          return table.finish(last);
        });
    shoal::test::expect_all_ok(results);
    for (std::size_t rank = 0; rank < cluster.size(); ++rank) {
      std::vector<double> expected(last, 15);
      if (rank > 0) expected.resize(last + kAfter, 14);
      EXPECT_EQ(sums[rank], expected) << rank;
    }
  }
}

// A process that joined has other options than those that the job began with.
TEST(Succession, ASuccessorHandsOutTheNextRank) {
  Coordinator before({.processes = 3});
  EXPECT_EQ(before.enroll(), 3u);
  Coordinator after({.processes = 4});
  ASSERT_TRUE(after.load(before.save()).ok());
  EXPECT_EQ(after.processes(), 4u);
  for (int times = 0; times < 2; ++times) EXPECT_EQ(after.enroll(), before.enroll());
}

TEST(Succession, ALongRecordGoesInPieces) {
  const Record record{.kind = RecordKind::kMessage,
                      .rank = 3,
                      .code = Code::kTimeout,
                      .at = Instant(17),
                      .count = 5,
                      .bytes = std::string(2 * RecordPieces::kBytes, 'r') + "end"};
  const std::vector<Ask> pieces = RecordPieces::of(record);
  ASSERT_EQ(pieces.size(), 3u);
  RecordPieces taker;
  for (int times = 0; times < 2; ++times)
    for (const Ask& piece : pieces) {
      const Result<std::optional<Record>> taken = taker.take(piece);
      ASSERT_TRUE(taken.ok()) << taken.error().message;
      ASSERT_EQ(taken.value().has_value(), &piece == &pieces.back());
      if (!taken.value()) continue;
      EXPECT_EQ(taken.value()->bytes, record.bytes);
      EXPECT_EQ(taken.value()->rank, record.rank);
      EXPECT_EQ(taken.value()->at, record.at);
      EXPECT_EQ(taken.value()->count, record.count);
    }
  EXPECT_FAILS_WITH("cannot be read",
                    taker.take({.topic = Topic::kRecord, .clock = 1, .body = "short"}));
}

// The other side keeps what was not counted, and the successor asks for it and for nothing else.
TEST(Succession, AConversationGoesOnElsewhere) {
  ReliableChannel before;
  const auto answer = [](Clock clock) { return Answer{Topic::kSum, clock, "x"}; };
  for (Clock clock = 0; clock < 3; ++clock) before.send(answer(clock));
  before.forget(1);
  for (int i = 0; i < 4; ++i) ASSERT_OK(before.received(Ask{Topic::kSum, i, ""}));
  ReliableChannel after;
  ASSERT_TRUE(after.load(before.save()).ok());
  EXPECT_EQ(after.received(), 4u);
  EXPECT_EQ(after.counted(), 1u);
  EXPECT_EQ(after.sent(), 3u);
  after.replay();
  EXPECT_EQ(after.received(), 5u);
  // The record of a message that comes again over a new connection: it counts once.
  struct NoLink final : Link {
    const PeerName& peer() const override { return name; }
    void send(Message) override {}
    void wake() override {}
    void close(bool) override {}
    Clock heard_clock() const override { return -1; }
    PeerName name;
  };
  after.opened(std::make_shared<NoLink>());
  after.replay();
  const Result<bool> again = after.received(Ask{Topic::kSum, 5, ""});
  ASSERT_OK(again);
  EXPECT_FALSE(again.value());
  EXPECT_EQ(after.received(), 6u);
  EXPECT_EQ(after.save().uncounted, before.save().uncounted);
}

}  // namespace
}  // namespace shoal::table::succession_test
