// The coordinator, message by message: who may join, outputs and norms, losses at every stage,
// stragglers.
#include "shoal/table/coordinator.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "support/expect.h"
#include "support/job.h"

namespace shoal::test::coordinator_test {
namespace {

using table::Answer;
using table::Clock;
using table::Directive;
using table::DirectiveKind;
using table::Topic;
using table::Want;
using Words = std::vector<std::string>;
using Process = Job::Process;

// ---- joining ----

TEST(CoordinatorJoin, AllGetTheSameRosterWhateverTheOrder) {
  in_every_order(4, [](const std::vector<std::uint32_t>& order) {
    Job job(4, 99);
    const Process kinds[] = {{.worker = false}, {}, {.server = false}, {}};
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(job.coordinator.roster(), nullptr);
      EXPECT_EQ(job.coordinator.missing().size(), 4 - i);
      ASSERT_TRUE(job.join(order[i], kinds[order[i]]).ok());
    }
    EXPECT_TRUE(job.coordinator.missing().empty());
    ASSERT_NE(job.coordinator.roster(), nullptr);
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      ASSERT_EQ(job.told[rank].size(), 1u);
      const auto& answer = std::get<Answer>(job.told[rank][0]);
      EXPECT_EQ(answer.topic, Topic::kJoin);
      const table::RosterBody roster = table::decode<table::RosterBody>(answer.body).value();
      EXPECT_EQ(roster.seed, 99u);
      std::vector<std::int32_t> numbers;
      for (const auto& process : roster.processes)
        numbers.insert(numbers.end(), {process.worker, process.server});
      EXPECT_EQ(numbers, (std::vector<std::int32_t>{-1, 0, 0, 1, 1, -1, 2, 2}));
      EXPECT_EQ(roster.processes[2].host, "c");
      EXPECT_EQ(roster.processes[3].address, "10.0.0.4:29600");
    }
  });
}

TEST(CoordinatorJoin, ARepeatGetsTheAnswerAgain) {
  Job job(2);
  ASSERT_TRUE(job.join(1, {}).ok());
  ASSERT_TRUE(job.join(1, {}).ok());
  EXPECT_EQ(job.take(1), Words{});
  ASSERT_TRUE(job.join(0, {}).ok());
  ASSERT_TRUE(job.join(1, {}).ok());
  EXPECT_EQ(job.told[0].size(), 1u);
  ASSERT_EQ(job.told[1].size(), 2u);
  EXPECT_EQ(body_of(job.told[1][0]), body_of(job.told[1][1]));
}

struct Refusal {
  const char* name;
  Process first, second;  // ranks 0 and 1 of 3
  std::string reason;
  Code code = Code::kConfig;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class CoordinatorRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(CoordinatorRefuses, TheSecondAndEndsTheFirst) {
  Job job(3);
  ASSERT_TRUE(job.join(0, GetParam().first).ok());
  ASSERT_TRUE(job.join(1, GetParam().second).ok());
  const std::string reason = str(static_cast<int>(GetParam().code), ": ", GetParam().reason),
                    again = str(static_cast<int>(GetParam().code),
                                ": the job has ended: ", GetParam().reason);
  EXPECT_EQ(job.take(1), Words{"refuse " + reason});
  EXPECT_EQ(job.take(0), Words{"abort " + reason});
  ASSERT_NE(job.coordinator.ended(), nullptr);
  // who comes later hears it too
  ASSERT_TRUE(job.join(2, {}).ok());
  EXPECT_EQ(job.take(2), Words{"refuse " + again});
  EXPECT_EQ(job.take(0), Words{});
  EXPECT_EQ(job.coordinator.roster(), nullptr);
}

const std::string kNet =
    "base_lr: 0.01\nlayer {\n  name: \"conv1\"\n  convolution_param {\n    num_output: 20\n  "
    "}\n}\nscheme: ssp 0\n";
std::string edited(const std::string& from, const std::string& to) {
  std::string text = kNet;
  return text.replace(text.find(from), from.size(), to);
}

INSTANTIATE_TEST_SUITE_P(
    Table, CoordinatorRefuses,
    testing::Values(
        Refusal{"value",
                {.configuration = kNet},
                {.configuration = edited("0.01", "0.02")},
                "rank 1 (host b) trains with 'base_lr: 0.02' where rank 0 (host a) has 'base_lr: "
                "0.01'"},
        Refusal{"in_layer",
                {.configuration = kNet},
                {.configuration = edited("20", "50")},
                "rank 1 (host b) trains with 'num_output: 50' in layer 'conv1' where rank 0 (host "
                "a) has 'num_output: 20'"},
        Refusal{
            "added",
            {.configuration = kNet},
            {.configuration = edited("layer {", "momentum: 0.9\nlayer {")},
            "rank 1 (host b) trains with 'momentum: 0.9' where rank 0 (host a) has no such line"},
        Refusal{"left_out",
                {.configuration = kNet},
                {.configuration = edited("base_lr: 0.01\n", "")},
                "rank 1 (host b) trains without 'base_lr: 0.01', which rank 0 (host a) has"},
        Refusal{"shorter",
                {.configuration = kNet},
                {.configuration = edited("scheme: ssp 0\n", "")},
                "rank 1 (host b) trains without 'scheme: ssp 0', which rank 0 (host a) has"},
        Refusal{"other_field",
                {.configuration = kNet},
                {.configuration = edited("scheme: ssp 0", "debug: 1")},
                "rank 1 (host b) trains with 'debug: 1' where rank 0 (host a) has 'scheme: ssp 0'"},
        Refusal{"blanks",
                {.configuration = kNet},
                {.configuration = kNet + " "},
                "rank 1 (host b) has the same net, solver and scheme as rank 0 (host a) but for "
                "blanks"},
        Refusal{"no_duty",
                {},
                {.worker = false, .server = false},
                "rank 1 (host b) is neither worker nor server",
                Code::kPeer},
        Refusal{"other_machinefile",
                {.configuration = kNet + "machinefile:\n0 a 1\n1 b 2\n"},
                {.configuration = kNet + "machinefile:\n0 a 1\n1 b 3\n"},
                "rank 1 (host b) has a machinefile with '1 b 3' where rank 0 (host a) has '1 b 2'",
                Code::kUsage},
        Refusal{"other_net_and_machinefile",
                {.configuration = kNet + "machinefile:\n0 a 1\n"},
                {.configuration = edited("0.01", "0.02")},
                "rank 1 (host b) trains with 'base_lr: 0.02' where rank 0 (host a) has 'base_lr: "
                "0.01'"},
        Refusal{"same_address",
                {.address = "127.0.0.1:29600"},
                {.address = "127.0.0.1:29600"},
                "rank 1 (host b) and rank 0 (host a) both say that they are reached at "
                "127.0.0.1:29600; each needs a port of its own and an "
                "address that others can reach",
                Code::kPeer}),
    [](const auto& info) { return info.param.name; });

TEST(CoordinatorJoin, AProcessWithoutAMachinefileIsComparedByItsNetAlone) {
  Job job(3);
  ASSERT_TRUE(job.join(0, {.configuration = kNet + "machinefile:\n0 a 1\n"}).ok());
  ASSERT_TRUE(job.join(1, {.configuration = kNet}).ok());
  ASSERT_TRUE(job.join(2, {.configuration = kNet + "machinefile:\n0 a 2\n"}).ok());
  EXPECT_EQ(job.take(1), Words{"abort 2: rank 2 (host c) has a machinefile with '0 a 2' where rank "
                               "0 (host a) has '0 a 1'"});
}

TEST(CoordinatorJoin, AJobNeedsServersAndWorkers) {
  const struct {
    Process kind;
    std::string reason;
  } cases[] = {
      {{.server = false},
       "zero servers: all 3 processes have role=worker, and no process holds the weights"},
      {{.worker = false}, "zero workers: all 3 processes have role=server, and no process trains"}};
  for (const auto& c : cases) {
    Job job(3);
    for (const std::uint32_t rank : {2u, 0u, 1u}) ASSERT_TRUE(job.join(rank, c.kind).ok());
    EXPECT_EQ(job.take(1), Words{"refuse 6: " + c.reason});
    EXPECT_EQ(job.take(0), Words{"abort 6: " + c.reason});
    EXPECT_EQ(job.take(2), Words{"abort 6: " + c.reason});
    EXPECT_EQ(job.coordinator.roster(), nullptr);
  }
}

TEST(CoordinatorJoin, ARankTwiceEndsAJobThatHasNotBegunAndNoOther) {
  for (const bool begun : {false, true}) {
    Job job(2);
    ASSERT_TRUE(job.join(1, {}).ok());
    ASSERT_TRUE(!begun || job.join(0, {}).ok());
    (void)job.take(0), (void)job.take(1);
    const Status status = job.join(1, {.host = "z", .incarnation = 5});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(
        status.error().message,
        "two processes say that they are rank 1, on hosts b and z; each needs its own --client_id");
    EXPECT_EQ(job.take(1), begun ? Words{} : Words{"abort 6: " + status.error().message});
    EXPECT_EQ(job.coordinator.ended() == nullptr, begun);
  }
}

TEST(CoordinatorJoin, AProcessStartedAgainIsAnother) {
  Job job = Job::joined(2);
  const Status status = job.join(1, {.incarnation = 5});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find(
                "it was started again; a job goes on only with the processes it began with"),
            std::string::npos);
  EXPECT_EQ(job.coordinator.ended(), nullptr);
}

TEST(CoordinatorJoin, ARankOutsideTheJob) {
  for (const bool begun : {false, true}) {
    Job job(2);
    ASSERT_TRUE(job.join(0, {}).ok());
    ASSERT_TRUE(!begun || job.join(1, {}).ok());
    (void)job.take(0);
    ASSERT_TRUE(job.join(2, {.host = "z"}).ok());
    const std::string reason =
        "rank 2 (host z) is outside the job, which has ranks 0 to 1; is --num_clients the same "
        "everywhere?";
    EXPECT_EQ(job.take(2), Words{"refuse 6: " + reason});
    EXPECT_EQ(job.take(0), begun ? Words{} : Words{"abort 6: " + reason});
  }
}

TEST(CoordinatorJoin, BrokenProtocol) {
  Job job(2);
  EXPECT_FALSE(job.ask(0, Topic::kJoin, 1, "no body").ok());
  EXPECT_FALSE(job.ask(0, Topic::kJoin, 1,
                       table::encode(table::JoinBody{
                           .rank = 1, .host = {}, .address = {}, .configuration = {}}))
                   .ok());
  EXPECT_EQ(job.ask(0, Topic::kBarrier, 1).error().message,
            "rank 0 sends Ask before it has joined");
  EXPECT_EQ(job.ask(17, Topic::kBarrier, 1).error().message,
            "rank 17 sends Ask before it has joined");
  ASSERT_TRUE(job.join(0, {}).ok());
  EXPECT_EQ(job.ask(0, Topic::kBarrier, 1).error().message,
            "rank 0 (host a) sends Ask before all have joined");
  ASSERT_TRUE(job.join(1, {.worker = false}).ok());
  EXPECT_EQ(job.ask(1, Topic::kBarrier, 1).error().message,
            "rank 1 (host b) is a server alone and asks for barrier, which is for workers");
  EXPECT_EQ(job.say(1, table::Bye{}).error().message,
            "rank 1 (host b) sends Bye to the coordinator");
  EXPECT_FALSE(job.ask(0, static_cast<Topic>(77), 1).ok());
  EXPECT_FALSE(job.ask(0, Topic::kSum, 1, "123").ok());
  EXPECT_FALSE(job.ask(0, Topic::kOutputs, 1).ok());
  EXPECT_FALSE(job.ask(0, Topic::kOutputs, 1, numbers({-1, 2})).ok());
  for (const double weight :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const Status refused = job.ask(0, Topic::kOutputs, 1, numbers({weight, 2}));
    ASSERT_FALSE(refused.ok());
    EXPECT_HAS(refused.error().message, "sends outputs with the weight ");
  }
  EXPECT_FALSE(job.ask(0, Topic::kPause, 1).ok());
  EXPECT_FALSE(job.ask(0, Topic::kPause, 1, body_of(Want::kNothing)).ok());
  EXPECT_FALSE(job.ask(0, Topic::kPaused, 1).ok());
  EXPECT_FALSE(job.ask(0, Topic::kReport, 1, "short").ok());
}

// ---- outputs ----

TEST(CoordinatorOutputs, WeightedMeansInEveryOrderToWorkerZeroAlone) {
  const std::vector<double> parts[] = {{2, 1, 0.5}, {1, 4, 0.25}, {1, 2, 1}};
  in_every_order(3, [&](const std::vector<std::uint32_t>& order) {
    Job job = Job::joined(3);
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
  Job job = Job::joined(2);
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
  Job job = Job::joined(2);
  for (Clock clock = 0; clock < 5000; ++clock)
    ASSERT_TRUE(job.ask(0, Topic::kOutputs, clock, numbers({1, double(clock)})).ok());
  EXPECT_EQ(job.told[0].size(), 5000u - 4096u);
  const Words warnings = job.coordinator.take_warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(
      warnings[0].find(
          "outputs of iteration 0 are averaged without some worker that is 4096 iterations behind"),
      std::string::npos);
  for (Clock clock = 0; clock < 5000; ++clock)
    ASSERT_TRUE(job.ask(1, Topic::kOutputs, clock, numbers({1, 0})).ok());
  ASSERT_EQ(job.told[0].size(), 5000u);
  for (Clock clock = 0; clock < 5000; ++clock) {
    const double mean = numbers_of(body_of(job.told[0][static_cast<std::size_t>(clock)])).at(0);
    ASSERT_EQ(mean, clock < 5000 - 4096 ? double(clock) : double(clock) / 2);
  }
}

TEST(CoordinatorOutputs, NoWeightAtAllIsNoDivisionByZeroAndOtherCountsAreAnError) {
  Job job = Job::joined(2);
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
    Job job = Job::joined(3);
    for (Clock clock = 0; clock < 40; ++clock) {
      for (const std::uint32_t rank : order) {
        ASSERT_TRUE(
            job.say(rank, table::Norm{clock, static_cast<std::uint16_t>(rank), parts[rank]}).ok());
        ASSERT_TRUE(rank == order[2] ||
                    job.say(rank, table::Norm{clock, static_cast<std::uint16_t>(rank), 5}).ok());
      }
      for (std::uint32_t rank = 0; rank < 3; ++rank)
        EXPECT_EQ(job.take(rank), Words{str("total ", clock, ": 0")});
    }
    ASSERT_TRUE(job.say(1, table::Norm{39, 1, 1}).ok());
    EXPECT_EQ(job.take(1), Words{"total 39: 0"});
    // forgotten, and nobody needs it any more
    ASSERT_TRUE(job.say(1, table::Norm{3, 1, 1}).ok());
    EXPECT_EQ(job.take(1), Words{});
  });
}

TEST(CoordinatorNorm, BrokenProtocol) {
  Job job({{}, {.server = false}, {}});
  EXPECT_FALSE(job.say(1, table::Norm{0, 0, 1}).ok());
  EXPECT_FALSE(job.say(2, table::Norm{0, 0, 1}).ok());
  for (Clock clock = 0; clock < 8; ++clock) ASSERT_TRUE(job.say(2, table::Norm{clock, 1, 1}).ok());
  EXPECT_EQ(job.say(2, table::Norm{8, 1, 1}).error().message,
            "rank 2 (host c) sends a norm at clock 8 while that of clock 0 is not complete");
}

// ---- loss ----

TEST(CoordinatorLoss, AtEveryStageEndsAllOthersOnce) {
  const std::pair<const char*, std::function<void(Job&)>> stages[] = {
      {"idle", [](Job&) {}},
      {"barrier", [](Job& job) { (void)job.ask(0, Topic::kBarrier, 1).ok(); }},
      {"barrier of the lost", [](Job& job) { (void)job.ask(1, Topic::kBarrier, 1).ok(); }},
      {"agreement",
       [](Job& job) { (void)job.ask(0, Topic::kPause, 1, body_of(Want::kStop)).ok(); }},
      {"agreed",
       [](Job& job) {
         (void)job.ask(0, Topic::kPause, 1, body_of(Want::kStop)).ok();
         for (const std::uint32_t rank : {0u, 1u, 2u}) (void)job.ask(rank, Topic::kPaused, 1).ok();
       }},
      {"norm",
       [](Job& job) {
         (void)job.say(0, table::Norm{0, 0, 1}).ok();
       }},
      {"outputs",
       [](Job& job) {
         (void)job.ask(0, Topic::kOutputs, 1, numbers({1, 1})).ok();
       }},
      {"the lost is done", [](Job& job) { (void)job.ask(1, Topic::kDone, 1).ok(); }},
      {"all others are done", [](Job& job) {
         (void)job.ask(0, Topic::kDone, 1).ok(), (void)job.ask(2, Topic::kDone, 1).ok();
       }}};
  for (const auto& [name, reach] : stages) {
    SCOPED_TRACE(name);
    Job job = Job::joined(3);
    reach(job);
    job.coordinator.heard(1, 41);
    for (std::uint32_t rank = 0; rank < 3; ++rank) (void)job.take(rank);
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
    for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(job.take(rank), Words{});
    EXPECT_FALSE(job.coordinator.finished());
    EXPECT_EQ(job.coordinator.ended()->code, Code::kTimeout);
  }
}

TEST(CoordinatorLoss, BeforeAllHaveJoined) {
  Job job(4);
  ASSERT_TRUE(job.join(0, {}).ok());
  ASSERT_TRUE(job.join(2, {}).ok());
  job.lose(3, Code::kTimeout, "did not join within 300 s");
  EXPECT_EQ(job.take(0), Words{"abort 8: lost rank 3: did not join within 300 s"});
  EXPECT_EQ(job.take(2), Words{"abort 8: lost rank 3: did not join within 300 s"});
  ASSERT_TRUE(job.join(1, {}).ok());
  EXPECT_EQ(job.take(1),
            Words{"refuse 8: the job has ended: lost rank 3: did not join within 300 s"});
}

TEST(CoordinatorLoss, AProcessMayEndTheJobOrNameWhoIsLostToIt) {
  Job ends = Job::joined(3);
  ASSERT_TRUE(
      ends.say(1, Directive{.clock = 1, .code = Code::kNonFinite, .text = "loss is nan"}).ok());
  EXPECT_EQ(ends.take(0), Words{"abort 7: rank 1 (host b) has ended: loss is nan"});
  EXPECT_EQ(ends.take(2), Words{"abort 7: rank 1 (host b) has ended: loss is nan"});
  EXPECT_EQ(ends.take(1), Words{});
  Job names = Job::joined(3);
  ASSERT_TRUE(
      names.say(1, Directive{.clock = 2, .code = Code::kPeer, .text = "reset by peer"}).ok());
  EXPECT_EQ(names.take(0), Words{"abort 6: lost rank 2 (host c): reset by peer"});
  EXPECT_EQ(names.take(1), Words{"abort 6: lost rank 2 (host c): reset by peer"});
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
  Job job = Job::joined(3);
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
  const Words warnings = job.coordinator.take_warnings();
  EXPECT_EQ(warnings, Words{"straggler: rank 2 (host c) needs 5 s for an iteration, the median of "
                            "all is 0.11 s, for 5 reports in a row; the "
                            "largest part of its time is data (96 %)"});
  for (int i = 0; i < 10; ++i) round(49);
  EXPECT_EQ(job.coordinator.take_warnings(), Words{});  // once for each row of reports
}

TEST(CoordinatorReport, WaitingForOthersIsNoFault) {
  Job job = Job::joined(2);
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
