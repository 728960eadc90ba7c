// Questions of workers to the coordinator: every round in every order of arrival.
#include "shoal/table/coordinator.h"

#include <gtest/gtest.h>

#include "shoal/base/bytes.h"
#include "support/coordinator_rig.h"

namespace shoal::test::coordinator_rounds_test {
namespace {

using table::Clock;
using table::Topic;
using table::Want;
using Words = std::vector<std::string>;
using Process = CoordinatorRig::Process;

TEST(CoordinatorRounds, BarrierInEveryOrder) {
  in_every_order(3, [](const std::vector<std::uint32_t>& order) {
    CoordinatorRig job = CoordinatorRig::joined(3);
    for (Clock clock = 500; clock < 503; ++clock) {
      for (std::size_t i = 0; i < 3; ++i) {
        for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(job.take(rank), Words{});
        ASSERT_TRUE(job.ask(order[i], Topic::kBarrier, clock).ok());
        ASSERT_TRUE(i == 2 || job.ask(order[i], Topic::kBarrier, clock).ok());  // said twice
      }
      for (std::uint32_t rank = 0; rank < 3; ++rank)
        EXPECT_EQ(job.take(rank), Words{str("answer 2 at ", clock)});
    }
  });
}

TEST(CoordinatorRounds, SumsHaveTheSameBitsInEveryOrder) {
  const std::vector<double> parts[] = {{1e16, 0.1}, {1, 0.2}, {-1e16, 0.3}};
  const std::vector<double> expected = {(1e16 + 1.0) + -1e16, (0.1 + 0.2) + 0.3};
  in_every_order(3, [&](const std::vector<std::uint32_t>& order) {
    CoordinatorRig job = CoordinatorRig::joined(3);
    for (const std::uint32_t rank : order)
      ASSERT_TRUE(job.ask(rank, Topic::kSum, 4, numbers(parts[rank])).ok());
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(job.told[rank].size(), 1u);
      EXPECT_EQ(numbers_of(body_of(job.told[rank][0])), expected);
    }
  });
}

TEST(CoordinatorRounds, SumsOfOtherLengthsEndTheJob) {
  in_every_order(3, [](const std::vector<std::uint32_t>& order) {
    CoordinatorRig job = CoordinatorRig::joined(3);
    for (const std::uint32_t rank : order)
      (void)job.ask(rank, Topic::kSum, 4, numbers(std::vector<double>(rank == 2 ? 3 : 4))).ok();
    for (std::uint32_t rank = 0; rank < 3; ++rank)
      EXPECT_EQ(job.take(rank), Words{"abort 6: in sum 4 rank 2 (host c) has 3 numbers where rank "
                                      "0 (host a) has 4; do both train the same net?"});
  });
}

TEST(CoordinatorRounds, GatherInEveryOrder) {
  const std::string parts[] = {"zero", "", std::string("\0\1", 2)};
  in_every_order(3, [&](const std::vector<std::uint32_t>& order) {
    CoordinatorRig job = CoordinatorRig::joined(3);
    for (const std::uint32_t rank : order)
      ASSERT_TRUE(job.ask(rank, Topic::kGather, 1, parts[rank]).ok());
    std::string expected;
    for (const std::string& part : parts) {
      put_le(expected, static_cast<std::uint32_t>(part.size()));
      expected += part;
    }
    ASSERT_EQ(job.told[0].size(), 1u);
    EXPECT_EQ(body_of(job.told[0][0]), expected);
    for (const std::uint32_t rank : {1u, 2u}) EXPECT_EQ(body_of(job.told[rank].at(0)), "");
  });
}

TEST(CoordinatorRounds, ShareInEveryOrder) {
  in_every_order(3, [](const std::vector<std::uint32_t>& order) {
    CoordinatorRig job = CoordinatorRig::joined(3);
    for (const std::uint32_t rank : order)
      ASSERT_TRUE(job.ask(rank, Topic::kShare, 1, rank == 0 ? "the chief's" : "").ok());
    for (std::uint32_t rank = 0; rank < 3; ++rank)
      EXPECT_EQ(job.take(rank), Words{"answer 5 at 1 'the chief's'"});
  });
}

TEST(CoordinatorRounds, WorkerZeroNeedNotHaveRankZero) {
  CoordinatorRig job({{.worker = false}, {}, {}});
  ASSERT_TRUE(job.ask(2, Topic::kShare, 1).ok());
  ASSERT_TRUE(job.ask(1, Topic::kShare, 1, "of rank 1").ok());
  EXPECT_EQ(job.take(0), Words{});
  EXPECT_EQ(job.take(2), Words{"answer 5 at 1 'of rank 1'"});
}

TEST(CoordinatorRounds, ARepeatGetsTheAnswerAgainAndAnOldOneNothing) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  for (const Clock clock : {1, 2})
    for (const std::uint32_t rank : {0u, 1u})
      ASSERT_TRUE(job.ask(rank, Topic::kSum, clock, numbers({double(rank + clock)})).ok());
  // what it says now does not count any more
  ASSERT_TRUE(job.ask(0, Topic::kSum, 2, numbers({77})).ok());
  ASSERT_EQ(job.told[0].size(), 3u);
  EXPECT_EQ(body_of(job.told[0][2]), body_of(job.told[0][1]));
  ASSERT_TRUE(job.ask(0, Topic::kSum, 1, numbers({77})).ok());
  EXPECT_EQ(job.told[0].size(), 3u);
  EXPECT_EQ(job.coordinator.waiting_for(), "");
}

TEST(CoordinatorRounds, OneAtATime) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  ASSERT_TRUE(job.ask(1, Topic::kSum, 1).ok());
  EXPECT_EQ(job.ask(1, Topic::kBarrier, 2).error().message,
            "rank 1 (host b) asks for barrier 2 while it waits in sum 1; a worker waits in one "
            "round at a time");
  EXPECT_EQ(job.ask(1, Topic::kDone, 2).error().message,
            "rank 1 (host b) is done while it waits in a round");
}

TEST(CoordinatorRounds, RoundsThatNobodyCanFinishEndTheJob) {
  const struct {
    Topic one;
    Clock at;
    std::string name;
  } cases[] = {{Topic::kSum, 5, "sum 5"},
               {Topic::kBarrier, 6, "barrier 6"},
               {Topic::kGather, 6, "gather 6"}};
  for (const auto& c : cases) {
    in_every_order(3, [&](const std::vector<std::uint32_t>& order) {
      CoordinatorRig job = CoordinatorRig::joined(3);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(job.coordinator.ended(), nullptr);
        (void)job.ask(order[i], order[i] == 1 ? c.one : Topic::kBarrier, order[i] == 1 ? c.at : 5)
            .ok();
      }
      ASSERT_NE(job.coordinator.ended(), nullptr);
      const std::string& text = job.coordinator.ended()->message;
      EXPECT_NE(text.find("rank 0 (host a), rank 2 (host c) in barrier 5"), std::string::npos)
          << text;
      EXPECT_NE(text.find("rank 1 (host b) in " + c.name), std::string::npos) << text;
      for (std::uint32_t rank = 0; rank < 3; ++rank)
        EXPECT_EQ(job.take(rank), Words{"abort 6: " + text});
    });
  }
}

TEST(CoordinatorRounds, WhoIsDoneIsNotWaitedFor) {
  CoordinatorRig job = CoordinatorRig::joined(3);
  for (const std::uint32_t rank : {1u, 2u})
    ASSERT_TRUE(
        job.ask(rank, Topic::kGather, 9, std::string(1, static_cast<char>('0' + rank))).ok());
  EXPECT_EQ(job.coordinator.waiting_for(), "gather 9: waiting for rank 0 (host a)");
  ASSERT_TRUE(job.ask(0, Topic::kDone, 100).ok());
  EXPECT_EQ(job.take(1), Words{"answer 4 at 9"});
  EXPECT_FALSE(job.ask(0, Topic::kBarrier, 1).ok());
  ASSERT_TRUE(job.ask(1, Topic::kShare, 10).ok());
  ASSERT_TRUE(job.ask(2, Topic::kShare, 10).ok());
  EXPECT_EQ(job.coordinator.ended()->message,
            "share 10 can have no answer: worker 0, rank 0 (host a), is done already");
}

TEST(CoordinatorRounds, AGatherThatNoAnswerHoldsEndsTheJob) {
  CoordinatorRig job = CoordinatorRig::joined(3);
  const std::string third(table::kMaxBodyBytes / 3, 'x');
  for (const std::uint32_t rank : {0u, 1u, 2u}) (void)job.ask(rank, Topic::kGather, 1, third).ok();
  ASSERT_NE(job.coordinator.ended(), nullptr);
  EXPECT_EQ(job.coordinator.ended()->message,
            "what workers said of their states has 16777227 bytes; at most 16777216 can be sent");
}

TEST(CoordinatorRounds, GatherKeepsThePlaceOfAWorkerThatIsDone) {
  CoordinatorRig job = CoordinatorRig::joined(3);
  ASSERT_TRUE(job.ask(1, Topic::kDone, 100).ok());
  ASSERT_TRUE(job.ask(0, Topic::kGather, 1, "a").ok());
  ASSERT_TRUE(job.ask(2, Topic::kGather, 1, "c").ok());
  EXPECT_EQ(body_of(job.told[0].at(0)), std::string("\1\0\0\0a\0\0\0\0\1\0\0\0c", 14));
}

TEST(CoordinatorRounds, DoneInEveryOrder) {
  in_every_order(3, [](const std::vector<std::uint32_t>& order) {
    CoordinatorRig job({{}, {.server = false}, {}, {.worker = false}});
    for (const std::uint32_t rank : order) {
      EXPECT_FALSE(job.coordinator.finished());
      for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(job.take(i), Words{});
      ASSERT_TRUE(job.ask(rank, Topic::kDone, 100).ok());
      ASSERT_TRUE(rank == order[2] || job.ask(rank, Topic::kDone, 100).ok());
    }
    EXPECT_TRUE(job.coordinator.finished());
    EXPECT_EQ(job.take(0), (Words{"answer 9 at 100", "finished"}));
    EXPECT_EQ(job.take(1), Words{"answer 9 at 100"});
    EXPECT_EQ(job.take(3), Words{"finished"});
    ASSERT_TRUE(job.ask(1, Topic::kDone, 100).ok());
    EXPECT_EQ(job.take(1), Words{"answer 9 at 100"});
    ASSERT_TRUE(job.join(3, {.worker = false}).ok());
    EXPECT_EQ(job.take(3).back(), "finished");
    job.lose(3, Code::kPeer, "reset");
    EXPECT_EQ(job.coordinator.ended(), nullptr);
    EXPECT_EQ(job.take(0), Words{});
  });
}

TEST(CoordinatorRounds, WaitingForSaysWhoAndSinceWhichClock) {
  CoordinatorRig job(3);
  ASSERT_TRUE(job.join(1, {}).ok());
  EXPECT_EQ(job.coordinator.waiting_for(), "start: waiting for rank 0, rank 2");
  CoordinatorRig begun = CoordinatorRig::joined(3);
  EXPECT_EQ(begun.coordinator.waiting_for(), "");
  ASSERT_TRUE(begun.ask(0, Topic::kBarrier, 500).ok());
  begun.coordinator.heard(2, 498);
  begun.coordinator.heard(2, 497);
  ASSERT_TRUE(begun.say(1, table::Ping{500}).ok());
  EXPECT_EQ(
      begun.coordinator.waiting_for(),
      "barrier 500: waiting for rank 1 (host b, last clock 500), rank 2 (host c, last clock 498)");
  ASSERT_TRUE(begun.ask(1, Topic::kPause, 500, body_of(Want::kStop)).ok());
  ASSERT_TRUE(begun.ask(0, Topic::kPaused, 500).ok());
  ASSERT_TRUE(begun.ask(1, Topic::kPaused, 500).ok());
  ASSERT_TRUE(begun.say(0, table::Norm{7, 0, 1}).ok());
  ASSERT_TRUE(begun.say(1, table::Norm{7, 1, 1}).ok());
  EXPECT_EQ(begun.coordinator.waiting_for(),
            "barrier 500: waiting for rank 1 (host b, last clock 500), rank 2 (host c, last clock "
            "498); norm 7: waiting for rank 2 (host c, last clock 498); "
            "agreement on a stop: waiting for rank 2 (host c, last clock 498)");
  CoordinatorRig ending = CoordinatorRig::joined(2);
  ASSERT_TRUE(ending.ask(1, Topic::kDone, 5).ok());
  EXPECT_EQ(ending.coordinator.waiting_for(), "end: waiting for rank 0 (host a)");
}

}  // namespace
}  // namespace shoal::test::coordinator_rounds_test
