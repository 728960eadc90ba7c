// Tests the account of a job's compute, by events that are made by hand.
#include "shoal/table/coordinator/participation.h"

#include <gtest/gtest.h>

#include "shoal/base/bytes.h"
#include "support/coordinator_rig.h"
#include "support/expect.h"

namespace shoal::table::participation_test {
namespace {

using shoal::test::CoordinatorRig;
using Clocks = std::map<Rank, Clock>;

constexpr Instant kSilence = std::chrono::seconds(5);

// A job whose events come at seconds. After each the account goes on in another object, with the
// state of the one before.
class Job {
 public:
  explicit Job(std::uint32_t processes, const std::string& scheme = "bsp")
      : members(processes), scheme_(scheme_of(scheme)) {
    Clocks all;
    for (Rank rank = 0; rank < processes; ++rank) all[rank] = 0;
    regroup(0, {}, all);
  }
  // The workers of `ends` stop at these clocks, and those of `begin` go on.
  void regroup(double at, const Clocks& ends, const Clocks& begin) {
    std::map<Rank, SegmentBody> said;
    for (const auto& [rank, clock] : ends) said[rank].clock = clock;
    RosterBody roster;
    std::int32_t workers = 0;
    for (Rank rank = 0; rank < members.size(); ++rank) {
      const auto clock = begin.find(rank);
      const bool works = clock != begin.end();
      Member& member = members[rank];
      member.joined = member.joined || works;
      member.worker = works ? workers++ : -1;
      member.body.host = std::string(1, static_cast<char>('a' + rank));
      RosterBody::Process& process = roster.processes.emplace_back();
      process.rank = rank;
      process.worker = member.worker;
      process.clock = works ? clock->second : 0;
    }
    roster.generation = generation_++;
    act(at, [&](Participation& account) { account.regroup(roster, said); });
  }
  void train(double at) {
    act(at, [](Participation& account) { account.train(); });
  }
  void lose(double at, Rank rank, Code code = Code::kPeer, bool interrupts = false) {
    members[rank].left = true;
    act(at, [&](Participation& account) {
      account.lose(rank, {code, "gone"}, interrupts, scheme_);
    });
  }
  AccountBody finish(double at, const Clocks& ends) {
    for (const auto& [rank, clock] : ends) {
      members[rank].done = true;
      act(at,
          [&, rank = rank, clock = clock](Participation& account) { account.done(rank, clock); });
    }
    act(at, [](Participation& account) { account.finish(); });
    return account_->account();
  }
  template <class Event>
  void act(double at, Event event) {
    members.now = std::chrono::nanoseconds(std::llround(at * 1e9));
    event(*account_);
    StateWriter saved;
    saved(*account_);
    const std::string state = saved.take();
    auto other = std::make_unique<Participation>(members, kSilence);
    StateReader io(state);
    io(*other);
    ASSERT_TRUE(io.ok());
    EXPECT_EQ(other->account(), account_->account());
    account_ = std::move(other);
  }
  AccountBody account() { return account_->account(); }

  Members members;

 private:
  const std::optional<SchemeSpec> scheme_;
  std::unique_ptr<Participation> account_ = std::make_unique<Participation>(members, kSilence);
  Generation generation_ = 0;
};

// Checks the steps in the params, those computed and those possible.
void expect_steps(const AccountBody& account, Clock in_params, Clock computed, double possible) {
  EXPECT_EQ(account.in_params, in_params);
  EXPECT_EQ(account.computed, computed);
  EXPECT_NEAR(account.possible, possible, 1e-6 * possible);
}

TEST(Participation, AllIsUsefulWhereNothingFails) {
  Job job(2);
  job.train(3);
  job.regroup(8, {{0, 50}, {1, 50}}, {{0, 50}, {1, 50}});  // as a phase that ends
  job.train(9);
  const AccountBody account = job.finish(13, {{0, 100}, {1, 90}});
  expect_steps(account, 190, 190, 190);
  EXPECT_EQ(account.seconds, 10) << "since they train";
  EXPECT_EQ(account.losses, 0u);
  EXPECT_EQ(account.taking_part, 2u);
  EXPECT_TRUE(account.ended);
}

TEST(Participation, ALostWorkersTimeCountsUntilTheEnd) {
  Job job(3);
  job.train(0);
  job.lose(10, 2);
  EXPECT_EQ(job.account().taking_part, 2u);
  EXPECT_EQ(job.account().alive, 2u);
  EXPECT_EQ(job.account().faults.at(0).stopped, -1) << "no progress so far";
  job.regroup(10.5, {{0, 100}, {1, 100}}, {{0, 100}, {1, 100}});
  job.train(11);
  const AccountBody account = job.finish(21, {{0, 200}, {1, 200}});
  // Both that are left made 200 in 20 s, and did without 1 s; the lost one made 99, and a 100th
  // that counts nowhere, in the first 10 of 21 s.
  expect_steps(account, 200 + 200 + 99, 500, 3 * 210);
  const AccountBody::Fault fault{.number = 1,
                                 .rank = 2,
                                 .host = "c",
                                 .why = "gone",
                                 .since = 10,
                                 .stopped = 1,
                                 .back = -1,
                                 .steps = 1};
  EXPECT_EQ(account.faults, std::vector{fault});
}

TEST(Participation, OneThatJoinsTakesTheLostOnesPlace) {
  Job job(3);
  job.train(0);
  job.lose(10, 2);
  job.regroup(10.5, {{0, 100}, {1, 100}}, {{0, 100}, {1, 100}});
  job.train(11);
  ASSERT_EQ(job.members.enroll({}), 3u);
  job.regroup(15, {{0, 140}, {1, 140}}, {{0, 140}, {1, 140}, {3, 140}});
  job.train(16);
  const AccountBody account = job.finish(21, {{0, 190}, {1, 190}, {3, 190}});
  // The first two trained for 19 of 21 s, the lost one for 10 of 15, the new one for 5 of 6.
  expect_steps(account, 190 + 190 + 99 + 50, 530, 2 * 190 * 21 / 19. + 100 * 1.5 + 50 * 1.2);
  EXPECT_EQ(account.faults.at(0).back, 5);
}

// The second one is silent, and so the others have stood still since before the first was lost.
TEST(Participation, TwoAtOnceInterruptAll) {
  Job job(4);
  job.train(0);
  job.lose(10, 1, Code::kPeer, true);
  job.lose(10.5, 3, Code::kTimeout, true);
  job.act(11, [](Participation& account) {
    account.reunites(0, 51);
    account.reunites(2, 50);
  });
  job.regroup(12, {{0, 50}, {2, 50}}, {{0, 50}, {2, 50}});
  job.train(12.5);
  const AccountBody account = job.finish(25, {{0, 100}, {2, 100}});
  // Each had a step under way, and rank 0 makes another one again.
  expect_steps(account, 100 + 100 + 49 + 49, 102 + 101 + 50 + 50,
               (102 + 101) * 25 / 18. + 50 * 25 / 10. + 50 * 25 / 5.5);
  ASSERT_EQ(account.faults.size(), 2u);
  EXPECT_EQ(account.faults[0].steps + account.faults[1].steps, 5);
  EXPECT_EQ(account.faults[0].stopped, 2.5);
  EXPECT_EQ(account.faults[1].since, 5.5);
  EXPECT_EQ(account.faults[1].stopped, 7);
}

// Without a bound the others train on, until the next generation.
TEST(Participation, WithoutABoundOthersStopForTheNextGenerationAlone) {
  Job job(2, "async");
  job.train(0);
  job.members.heard(1, 40);
  job.lose(10, 1, Code::kTimeout);
  job.regroup(10.5, {{0, 105}}, {{0, 105}});
  job.train(11);
  const AccountBody account = job.finish(21, {{0, 205}});
  expect_steps(account, 205 + 40, 205 + 41, 205 * 21 / 20.5 + 41 * 21 / 5.);
  EXPECT_EQ(account.faults.at(0).since, 5);
  EXPECT_EQ(account.faults.at(0).stopped, 0.5);
}

TEST(Participation, ARunThatGoesOnCountsItsOwnSteps) {
  Job job(2);
  job.act(0, [](Participation& account) {
    account.begins(0, 1000);
    account.begins(1, 1000);
  });
  job.train(0);
  job.act(4, [](Participation& account) { account.heard(0, 1004, true); });
  expect_steps(job.account(), 8, 8, 8);
  job.act(5, [](Participation& account) { account.heard(1, 1005, false); });
  EXPECT_EQ(job.account().in_params, 9);
  expect_steps(job.finish(10, {{0, 1010}, {1, 1010}}), 20, 20, 20);
}

// A process that is lost before the first step could have made as many as the mean of the others.
TEST(Participation, OneWithoutAStepCountsAsTheOthers) {
  Job job(2);
  job.lose(0, 1);
  job.regroup(0, {{0, 0}}, {{0, 0}});
  job.train(0);
  const AccountBody account = job.finish(10, {{0, 100}});
  expect_steps(account, 100, 100, 200);
  EXPECT_EQ(account.faults.at(0).steps, 0);
}

TEST(Participation, TheLastFaultsAreNamed) {
  Job job(Participation::kMostFaults + 3);
  job.train(0);
  for (Rank rank = 1; rank < job.members.size(); ++rank) job.lose(rank, rank);
  const AccountBody account = job.account();
  EXPECT_EQ(account.losses, Participation::kMostFaults + 2);
  ASSERT_EQ(account.faults.size(), Participation::kMostFaults);
  EXPECT_EQ(account.faults.back().number, account.losses);
}

// ---- as the coordinator tells it ----

std::optional<AccountBody> account_in(const std::vector<Message>& told) {
  std::optional<AccountBody> account;
  for (const Message& message : told)
    if (const auto* answer = std::get_if<Answer>(&message);
        answer && answer->topic == Topic::kReport)
      account = decode<AccountBody>(answer->body).value();
  return account;
}

// The rig puts another coordinator, with the same state, in the place of each after each message.
TEST(Participation, TheChiefIsToldWhoeverItIs) {
  CoordinatorRig job(3, 7, "bsp", {.goes_on = true});
  job.options.silence = kSilence;
  for (Rank rank = 0; rank < 3; ++rank) ASSERT_TRUE(job.join(rank, {}).ok());
  ASSERT_TRUE(job.ask(0, Topic::kTolerances, 0, encode(TolerancesBody{.copies = 2})).ok());
  std::string begin;
  put_le(begin, Clock{500});
  job.all_ask({0, 1, 2}, Topic::kBarrier, rows_exist(0), begin);
  job.forget();
  job.now = std::chrono::seconds(10);
  const std::string report = encode(ReportBody{.iterations = 10, .compute = 1});
  job.all_ask({1, 0}, Topic::kReport, 510, report);
  EXPECT_FALSE(account_in(job.told[1])) << "it is not the chief";
  const std::optional<AccountBody> first = account_in(job.told[0]);
  ASSERT_TRUE(first);
  expect_steps(*first, 30, 30, 30);
  EXPECT_EQ(first->alive, 3u);
  job.lose(0, Code::kPeer, "killed.");
  job.all_ask({1, 2}, Topic::kPaused, 511);
  (void)job.regroup({{1, {.clock = 511}}, {2, {.clock = 511}}});
  job.now = std::chrono::seconds(11);
  job.all_ask({1, 2}, Topic::kBarrier, rows_exist(1));
  job.now = std::chrono::seconds(21);
  job.forget();
  job.all_ask({2, 1}, Topic::kReport, 520, report);
  EXPECT_FALSE(account_in(job.told[2]));
  ASSERT_TRUE(account_in(job.told[1]));
  EXPECT_EQ(account_in(job.told[1])->faults.at(0).stopped, 1);
  EXPECT_FALSE(account_in(job.told[1])->ended);
  job.all_ask({1, 2}, Topic::kDone, 522);
  const AccountBody last = account_in(job.told[1]).value();
  expect_steps(last, 22 + 22 + 10, 55, 2 * 22 * 21 / 20. + 11 * 21 / 10.);
  EXPECT_TRUE(last.ended);
  EXPECT_EQ(last.taking_part, 2u);
  EXPECT_EQ(last.faults.at(0).host, "a");
  EXPECT_EQ(last.faults.at(0).why, "killed.");
}

}  // namespace
}  // namespace shoal::table::participation_test
