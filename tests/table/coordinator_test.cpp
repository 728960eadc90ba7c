// The coordinator, message by message: outputs and norms, losses at every stage, stragglers.
#include "shoal/table/coordinator.h"

#include <gtest/gtest.h>

#include "support/coordinator_rig.h"
#include "support/expect.h"

namespace shoal::test::coordinator_test {
namespace {

using table::Clock;
using table::Directive;
using table::Topic;
using table::Want;
using Words = std::vector<std::string>;

// ---- outputs ----

TEST(CoordinatorOutputs, WeightedMeansInEveryOrderToWorkerZeroAlone) {
  const std::vector<double> parts[] = {{2, 1, 0.5}, {1, 4, 0.25}, {1, 2, 1}};
  in_every_order(3, [&](const std::vector<std::uint32_t>& order) {
    CoordinatorRig job = CoordinatorRig::joined(3);
    for (const Clock clock : {0, 3})
      for (const std::uint32_t rank : order) {
        ASSERT_TRUE(job.ask(rank, Topic::kOutputs, clock, numbers(parts[rank])).ok());
        ASSERT_TRUE(job.ask(rank, Topic::kOutputs, clock, numbers({9, 9, 9})).ok() || clock == 3);
      }
    ASSERT_GE(job.told[0].size(), 2u);
    for (const auto& message : job.told[0])
      EXPECT_EQ(numbers_of(body_of(message)), (std::vector<double>{2, 0.5625}));
    EXPECT_EQ(job.take(1), Words{});
    EXPECT_EQ(job.take(2), Words{});
  });
}

TEST(CoordinatorOutputs, AFastWorkerLeavesRoundsOpenAndADoneOneIsNotWaitedFor) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  for (Clock clock = 0; clock < 10; ++clock)
    ASSERT_TRUE(job.ask(1, Topic::kOutputs, clock, numbers({1, double(clock)})).ok());
  for (Clock clock = 0; clock < 4; ++clock)
    ASSERT_TRUE(job.ask(0, Topic::kOutputs, clock, numbers({1, 0})).ok());
  EXPECT_EQ(job.told[0].size(), 4u);
  ASSERT_TRUE(job.ask(0, Topic::kDone, 4).ok());
  ASSERT_EQ(job.told[0].size(), 10u);
  EXPECT_EQ(numbers_of(body_of(job.told[0][3])), std::vector<double>{1.5});
  EXPECT_EQ(numbers_of(body_of(job.told[0][9])), std::vector<double>{9});
}

TEST(CoordinatorOutputs, OpenRoundsAreBounded) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  for (Clock clock = 0; clock < 5000; ++clock)
    ASSERT_TRUE(job.ask(0, Topic::kOutputs, clock, numbers({1, double(clock)})).ok());
  EXPECT_EQ(job.told[0].size(), 5000u - 4096u);
  const Words warnings = job.coordinator.take_warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_HAS(warnings[0],
             "from iteration 0 on, the means of outputs leave out workers that are 4096 iterations "
             "behind");
  for (Clock clock = 0; clock < 5000; ++clock)
    ASSERT_TRUE(job.ask(1, Topic::kOutputs, clock, numbers({1, 0})).ok());
  ASSERT_EQ(job.told[0].size(), 5000u);
  for (Clock clock = 0; clock < 5000; ++clock) {
    const double mean = numbers_of(body_of(job.told[0][static_cast<std::size_t>(clock)])).at(0);
    ASSERT_EQ(mean, clock < 5000 - 4096 ? double(clock) : double(clock) / 2);
  }
}

TEST(CoordinatorOutputs, NoWeightAtAllIsNoDivisionByZeroAndOtherCountsAreAnError) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  ASSERT_TRUE(job.ask(0, Topic::kOutputs, 1, numbers({0, 5})).ok());
  ASSERT_TRUE(job.ask(1, Topic::kOutputs, 1, numbers({0, 7})).ok());
  EXPECT_EQ(numbers_of(body_of(job.told[0].at(0))), std::vector<double>{0});
  ASSERT_TRUE(job.ask(0, Topic::kOutputs, 2, numbers({1, 5})).ok());
  EXPECT_EQ(job.ask(1, Topic::kOutputs, 2, numbers({1, 5, 5})).error().message,
            "rank 1 (host b) has 2 outputs in iteration 2 where rank 0 (host a) has 1; do both "
            "train the same net?");
}

// ---- norms ----

TEST(CoordinatorNorm, SumsInTheOrderOfServersAndSaysItAgain) {
  const double parts[] = {1e16, 1, -1e16};
  in_every_order(3, [&](const std::vector<std::uint32_t>& order) {
    CoordinatorRig job = CoordinatorRig::joined(3);
    for (Clock clock = 0; clock < 40; ++clock) {
      for (const std::uint32_t rank : order) {
        ASSERT_TRUE(
            job.say(rank, table::Norm{clock, static_cast<std::uint16_t>(rank), parts[rank]}).ok());
        ASSERT_TRUE(rank == order[2] ||
                    job.say(rank, table::Norm{clock, static_cast<std::uint16_t>(rank), 5}).ok());
      }
      EXPECT_EQ(job.take_all(3), std::vector(3, Words{str("total ", clock, ": 0")}));
    }
    EXPECT_EQ(job.hears(1, job.say(1, table::Norm{39, 1, 1})), Words{"total 39: 0"});
    // forgotten, and nobody needs it any more
    EXPECT_EQ(job.hears(1, job.say(1, table::Norm{3, 1, 1})), Words{});
  });
}

TEST(CoordinatorNorm, BrokenProtocol) {
  CoordinatorRig job({{}, {.server = false}, {}});
  EXPECT_FALSE(job.say(1, table::Norm{0, 0, 1}).ok());
  EXPECT_FALSE(job.say(2, table::Norm{0, 0, 1}).ok());
  for (Clock clock = 0; clock < 8; ++clock) ASSERT_TRUE(job.say(2, table::Norm{clock, 1, 1}).ok());
  EXPECT_EQ(job.say(2, table::Norm{8, 1, 1}).error().message,
            "rank 2 (host c) sends a norm at clock 8 while that of clock 0 is not complete");
}

// ---- loss ----

TEST(CoordinatorLoss, AtEveryStageEndsAllOthersOnce) {
  using Said = std::pair<std::uint32_t, table::Message>;
  const table::Ask done{Topic::kDone, 1, {}}, barrier{Topic::kBarrier, 1, {}},
      paused{Topic::kPaused, 1, {}}, pause{Topic::kPause, 1, body_of(Want::kStop)};
  const std::pair<const char*, std::vector<Said>> stages[] = {
      {"idle", {}},
      {"barrier", {{0, barrier}}},
      {"barrier of the lost", {{1, barrier}}},
      {"agreement", {{0, pause}}},
      {"agreed", {{0, pause}, {0, paused}, {1, paused}, {2, paused}}},
      {"norm", {{0, table::Norm{0, 0, 1}}}},
      {"outputs", {{0, table::Ask{Topic::kOutputs, 1, numbers({1, 1})}}}},
      {"the lost is done", {{1, done}}},
      {"all others are done", {{0, done}, {2, done}}}};
  for (const auto& [name, said] : stages) {
    SCOPED_TRACE(name);
    CoordinatorRig job = CoordinatorRig::joined(3);
    for (const auto& [rank, message] : said) ASSERT_TRUE(job.say(rank, message).ok());
    job.coordinator.heard(1, 41);
    job.forget();
    job.lose(1, Code::kTimeout, "not heard of for 60 s");
    const Words expected = {"abort 8: lost rank 1 (host b, last clock 41): not heard of for 60 s"};
    EXPECT_EQ(job.take(0), expected);
    EXPECT_EQ(job.take(1), Words{});
    EXPECT_EQ(job.take(2), expected);
    EXPECT_EQ(job.coordinator.waiting_for(), "");
    job.lose(1, Code::kPeer, "again");
    job.lose(2, Code::kPeer, "leaves for the abort");
    EXPECT_TRUE(job.ask(0, Topic::kBarrier, 1).ok());
    EXPECT_TRUE(job.ask(2, Topic::kDone, 1).ok());
    EXPECT_EQ(job.take_all(3), std::vector(3, Words{}));
    EXPECT_FALSE(job.coordinator.finished());
    EXPECT_EQ(job.coordinator.ended()->code, Code::kTimeout);
  }
}

TEST(CoordinatorLoss, BeforeAllHaveJoined) {
  CoordinatorRig job(4);
  for (const std::uint32_t rank : {0u, 2u}) ASSERT_TRUE(job.join(rank, {}).ok());
  job.lose(3, Code::kTimeout, "did not join within 300 s");
  for (const std::uint32_t rank : {0u, 2u})
    EXPECT_EQ(job.take(rank), Words{"abort 8: lost rank 3: did not join within 300 s"});
  ASSERT_TRUE(job.join(1, {}).ok());
  EXPECT_EQ(job.take(1),
            Words{"refuse 8: the job has ended: lost rank 3: did not join within 300 s"});
}

TEST(CoordinatorLoss, AProcessMayEndTheJobOrNameWhoIsLostToIt) {
  const std::tuple<Directive, std::uint32_t, Words> cases[] = {
      {{.clock = 1, .code = Code::kNonFinite, .text = "loss is nan"},
       1,
       {"abort 7: rank 1 (host b) has ended: loss is nan"}},
      {{.clock = 2, .code = Code::kPeer, .text = "reset by peer"},
       2,
       {"abort 6: lost rank 2 (host c): reset by peer"}}};
  for (const auto& [said, lost, words] : cases) {
    CoordinatorRig job = CoordinatorRig::joined(3);
    ASSERT_TRUE(job.say(1, said).ok());
    for (std::uint32_t rank = 0; rank < 3; ++rank)
      EXPECT_EQ(job.take(rank), rank == lost ? Words{} : words);
  }
}

// ---- stragglers ----

TEST(CoordinatorReport, BodiesGoThereAndBack) {
  const table::ReportBody body{
      .iterations = 20, .compute = 1, .data = 0.5, .rows = 3, .other = 0.25};
  EXPECT_EQ(table::decode<table::ReportBody>(table::encode(body)).value(), body);
  EXPECT_FALSE(table::decode<table::ReportBody>("short").ok());
  EXPECT_FALSE(
      table::decode<table::ReportBody>(table::encode(table::ReportBody{.iterations = -1})).ok());
}

TEST(CoordinatorReport, NamesAStragglerAndWhatItSpendsItsTimeOn) {
  CoordinatorRig job = CoordinatorRig::joined(3);
  const auto report = [&](std::uint32_t rank, double data) {
    const table::ReportBody body{
        .iterations = 10, .compute = 1, .data = data, .rows = 50 / (1 + data), .other = 0};
    ASSERT_TRUE(job.ask(rank, Topic::kReport, 0, table::encode(body)).ok());
  };
  const auto round = [&](double data_of_2) { report(0, 0), report(1, 0.1), report(2, data_of_2); };
  for (int i = 0; i < 4; ++i) round(3.4);
  round(0.3);  // one good report, and it begins anew
  for (int i = 0; i < 4; ++i) round(49);
  EXPECT_EQ(job.coordinator.take_warnings(), Words{});
  round(49);
  EXPECT_EQ(job.coordinator.take_warnings(),
            Words{"straggler: rank 2 (host c) needs 5 s for an iteration, the median of "
                  "all is 0.11 s, for 5 reports in a row; the "
                  "largest part of its time is data (96 %)"});
  for (int i = 0; i < 10; ++i) round(49);
  EXPECT_EQ(job.coordinator.take_warnings(), Words{});  // once for each row of reports
}

TEST(CoordinatorReport, WaitingForOthersIsNoFault) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  for (int i = 0; i < 20; ++i)
    for (const std::uint32_t rank : {0u, 1u})
      ASSERT_TRUE(job.ask(rank, Topic::kReport, i,
                          table::encode(table::ReportBody{
                              .iterations = 1, .compute = 1, .rows = rank * 100.0}))
                      .ok());
  EXPECT_EQ(job.coordinator.take_warnings(), Words{});
}

}  // namespace
}  // namespace shoal::test::coordinator_test
