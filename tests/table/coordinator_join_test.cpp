// The coordinator, message by message: who may join, and what broken protocol is answered.
#include <gtest/gtest.h>

#include <limits>

#include "shoal/table/coordinator.h"
#include "support/coordinator_rig.h"
#include "support/expect.h"

namespace shoal::test::coordinator_join_test {
namespace {

using table::Answer;
using table::Topic;
using table::Want;
using Words = std::vector<std::string>;
using Process = CoordinatorRig::Process;

TEST(Roster, MustNumberAllInTheOrderOfRanks) {
  const auto said = [](const table::RosterBody& roster) {
    const auto decoded = table::decode<table::RosterBody>(encode(roster));
    return decoded.ok() ? "" : decoded.error().message;
  };
  table::RosterBody roster;
  roster.processes.resize(3);
  for (table::Rank rank = 0; rank < 3; ++rank) {
    roster.processes[rank].rank = rank;
    roster.processes[rank].worker = static_cast<std::int32_t>(rank);
  }
  EXPECT_EQ("A Roster has no worker or no server", said(roster));
  roster.processes[1].server = 0;
  EXPECT_EQ("", said(roster));
  roster.processes[2].worker = 3;
  EXPECT_EQ("A Roster has worker 3 of rank 2 where worker 2 is due", said(roster));
  roster.processes[0].rank = 5;
  EXPECT_EQ("A Roster has rank 5 in the place of rank 0", said(roster));
}

TEST(CoordinatorJoin, AllGetTheSameRosterWhateverTheOrder) {
  in_every_order(4, [](const std::vector<std::uint32_t>& order) {
    CoordinatorRig job(4, 99);
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
  CoordinatorRig job(2);
  ASSERT_TRUE(job.join(1, {}).ok());
  EXPECT_EQ(job.hears(1, job.join(1, {})), Words{});
  ASSERT_TRUE(job.join(0, {}).ok());
  ASSERT_TRUE(job.join(1, {}).ok());
  EXPECT_EQ(job.told[0].size(), 1u);
  ASSERT_EQ(job.told[1].size(), 2u);
  EXPECT_EQ(body_of(job.told[1][0]), body_of(job.told[1][1]));
}

struct Refusal {
  const char* name;
  Process first, second;  // ranks 0 and 1 of 3
  std::string reason;     // "rank 1 (host b) ..."
  Code code = Code::kConfig;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class CoordinatorRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(CoordinatorRefuses, TheSecondAndEndsTheFirst) {
  CoordinatorRig job(3);
  ASSERT_TRUE(job.join(0, GetParam().first).ok());
  ASSERT_TRUE(job.join(1, GetParam().second).ok());
  const std::string code = str(static_cast<int>(GetParam().code), ": "),
                    reason = "rank 1 (host b) " + GetParam().reason;
  EXPECT_EQ(job.take(1), Words{"refuse " + code + reason});
  EXPECT_EQ(job.take(0), Words{"abort " + code + reason});
  ASSERT_NE(job.coordinator.ended(), nullptr);
  // who comes later hears it too
  EXPECT_EQ(job.hears(2, job.join(2, {})),
            Words{"refuse " + code + "the job has ended: " + reason});
  EXPECT_EQ(job.take(0), Words{});
  EXPECT_EQ(job.coordinator.roster(), nullptr);
}

const std::string kNet =
    "base_lr: 0.01\nlayer {\n  name: \"conv1\"\n  convolution_param {\n    num_output: 20\n  "
    "}\n}\nscheme: ssp 0\n";

// The second's net is another.
Refusal edited(const char* name, const std::string& from, const std::string& to,
               const std::string& reason) {
  std::string text = kNet;
  text.replace(text.find(from), from.size(), to);
  return {name, {.configuration = kNet}, {.configuration = text}, reason};
}
// The machinefiles behind the nets differ.
Refusal placed(const char* name, const std::string& first, const std::string& second,
               const std::string& reason, Code code) {
  return {name, {.configuration = kNet + first}, {.configuration = second}, reason, code};
}

INSTANTIATE_TEST_SUITE_P(
    Table, CoordinatorRefuses,
    testing::Values(
        edited("value", "0.01", "0.02",
               "trains with 'base_lr: 0.02' where rank 0 (host a) has 'base_lr: 0.01'"),
        edited("in_layer", "20", "50",
               "trains with 'num_output: 50' in layer 'conv1' where rank 0 (host a) has "
               "'num_output: 20'"),
        edited("added", "layer {", "momentum: 0.9\nlayer {",
               "trains with 'momentum: 0.9' where rank 0 (host a) has no such line"),
        edited("left_out", "base_lr: 0.01\n", "",
               "trains without 'base_lr: 0.01', which rank 0 (host a) has"),
        edited("shorter", "scheme: ssp 0\n", "",
               "trains without 'scheme: ssp 0', which rank 0 (host a) has"),
        edited("other_field", "scheme: ssp 0", "debug: 1",
               "trains with 'debug: 1' where rank 0 (host a) has 'scheme: ssp 0'"),
        edited(
            "blanks", "ssp 0\n", "ssp 0\n ",
            "and rank 0 (host a) have nets, solvers or schemes that differ in white space alone"),
        placed("other_machinefile", "machinefile:\n0 a 1\n1 b 2\n",
               kNet + "machinefile:\n0 a 1\n1 b 3\n",
               "has a machinefile with '1 b 3' where rank 0 (host a) has '1 b 2'", Code::kUsage),
        placed("other_net_and_machinefile", "machinefile:\n0 a 1\n",
               edited("", "0.01", "0.02", "").second.configuration,
               "trains with 'base_lr: 0.02' where rank 0 (host a) has 'base_lr: 0.01'",
               Code::kConfig),
        Refusal{"no_duty",
                {},
                {.worker = false, .server = false},
                "is neither worker nor server",
                Code::kPeer},
        Refusal{"same_address",
                {.address = "127.0.0.1:29600"},
                {.address = "127.0.0.1:29600"},
                "and rank 0 (host a) both say that they are reached at 127.0.0.1:29600; each needs "
                "a port of its own and an address that others can reach",
                Code::kPeer}),
    [](const auto& info) { return info.param.name; });

TEST(CoordinatorJoin, AProcessWithoutAMachinefileIsComparedByItsNetAlone) {
  CoordinatorRig job(3);
  ASSERT_TRUE(job.join(0, {.configuration = kNet + "machinefile:\n0 a 1\n"}).ok());
  ASSERT_TRUE(job.join(1, {.configuration = kNet}).ok());
  EXPECT_EQ(job.hears(1, job.join(2, {.configuration = kNet + "machinefile:\n0 a 2\n"})),
            Words{"abort 2: rank 2 (host c) has a machinefile with '0 a 2' where rank "
                  "0 (host a) has '0 a 1'"});
}

TEST(CoordinatorJoin, AJobNeedsServersAndWorkers) {
  const std::pair<Process, std::string> cases[] = {
      {{.server = false},
       "zero servers: all 3 processes have role=worker, and no process holds the weights"},
      {{.worker = false}, "zero workers: all 3 processes have role=server, and no process trains"}};
  for (const auto& [kind, reason] : cases) {
    CoordinatorRig job(3);
    for (const std::uint32_t rank : {2u, 0u, 1u}) ASSERT_TRUE(job.join(rank, kind).ok());
    EXPECT_EQ(job.take(1), Words{"refuse 2: " + reason});
    for (const std::uint32_t rank : {0u, 2u})
      EXPECT_EQ(job.take(rank), Words{"abort 2: " + reason});
    EXPECT_EQ(job.coordinator.roster(), nullptr);
  }
}

TEST(CoordinatorJoin, ARankTwiceEndsAJobThatHasNotBegunAndNoOther) {
  for (const bool begun : {false, true}) {
    CoordinatorRig job(2);
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
  CoordinatorRig job = CoordinatorRig::joined(2);
  EXPECT_FAILS_WITH("it was started again; a job goes on only with the processes it began with",
                    job.join(1, {.incarnation = 5}));
  EXPECT_EQ(job.coordinator.ended(), nullptr);
}

TEST(CoordinatorJoin, ARankOutsideTheJob) {
  for (const bool begun : {false, true}) {
    CoordinatorRig job(2);
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
  CoordinatorRig job(2);
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
  EXPECT_EQ(
      job.ask(1, Topic::kBarrier, 1).error().message,
      "rank 1 (host b) is a server and no worker, but asks for barrier, which is for workers");
  EXPECT_EQ(job.say(1, table::Bye{}).error().message,
            "rank 1 (host b) sends Bye to the coordinator");
  EXPECT_FALSE(job.ask(0, static_cast<Topic>(77), 1).ok());
  for (const double weight :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_FAILS_WITH("sends outputs with the weight ",
                      job.ask(0, Topic::kOutputs, 1, numbers({weight, 2})));
  const std::pair<Topic, std::string> bodies[] = {{Topic::kSum, "123"},
                                                  {Topic::kOutputs, ""},
                                                  {Topic::kOutputs, numbers({-1, 2})},
                                                  {Topic::kPause, ""},
                                                  {Topic::kPause, body_of(Want::kNothing)},
                                                  {Topic::kPaused, ""},
                                                  {Topic::kReport, "short"}};
  for (const auto& [topic, body] : bodies)
    EXPECT_FALSE(job.ask(0, topic, 1, body).ok()) << static_cast<int>(topic);
}

}  // namespace
}  // namespace shoal::test::coordinator_join_test
