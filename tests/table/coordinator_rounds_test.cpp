// Questions of workers to the coordinator: every round, and every agreement on a clock, in every
// order of arrival.
#include "shoal/table/coordinator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>

#include "shoal/base/random.h"
#include "support/coordinator_rig.h"
#include "support/expect.h"

namespace shoal::test::coordinator_rounds_test {
namespace {

using table::Ask;
using table::Clock;
using table::Directive;
using table::DirectiveKind;
using table::Topic;
using table::Want;
using Words = std::vector<std::string>;
using Process = CoordinatorRig::Process;

// A round: what each of three workers says in it, and what rank 0 and the others hear.
struct Round {
  Topic topic;
  std::string said[3], first, others;
};

TEST(CoordinatorRounds, AreAnsweredAlikeInEveryOrder) {
  const Round rounds[] = {{Topic::kBarrier, {"", "", ""}, "", ""},
                          // of which the bits depend on the order of adding
                          {Topic::kSum,
                           {numbers({1e16, 0.1}), numbers({1, 0.2}), numbers({-1e16, 0.3})},
                           numbers({(1e16 + 1.0) + -1e16, (0.1 + 0.2) + 0.3}),
                           numbers({(1e16 + 1.0) + -1e16, (0.1 + 0.2) + 0.3})},
                          {Topic::kGather,
                           {"zero", "", std::string("\0\1", 2)},
                           std::string("\4\0\0\0zero\0\0\0\0\2\0\0\0\0\1", 18),
                           ""},
                          {Topic::kShare, {"the chief's", "", ""}, "the chief's", "the chief's"}};
  in_every_order(3, [&](const std::vector<std::uint32_t>& order) {
    CoordinatorRig job = CoordinatorRig::joined(3);
    Clock clock = 500;
    for (int repeat = 0; repeat < 3; ++repeat)
      for (const auto& [topic, said, first, others] : rounds) {
        for (const std::uint32_t rank : order) {
          for (const auto& messages : job.told) EXPECT_TRUE(messages.empty());
          job.all_ask({rank}, topic, clock, said[rank]);
          if (rank != order[2]) job.all_ask({rank}, topic, clock, said[rank]);  // said twice
        }
        for (std::uint32_t rank = 0; rank < 3; ++rank) {
          ASSERT_EQ(job.told[rank].size(), 1u);
          const auto& answer = std::get<table::Answer>(job.told[rank][0]);
          EXPECT_EQ(answer.topic, topic);
          EXPECT_EQ(answer.clock, clock);
          EXPECT_EQ(answer.body, rank == 0 ? first : others);
        }
        job.forget();
        ++clock;
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

TEST(CoordinatorRounds, WorkerZeroNeedNotHaveRankZero) {
  CoordinatorRig job({{.worker = false}, {}, {}});
  job.all_ask({2}, Topic::kShare, 1);
  job.all_ask({1}, Topic::kShare, 1, "of rank 1");
  EXPECT_EQ(job.take(0), Words{});
  EXPECT_EQ(job.take(2), Words{"answer 5 at 1 'of rank 1'"});
}

TEST(CoordinatorRounds, ARepeatGetsTheAnswerAgainAndAnOldOneNothing) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  for (const Clock clock : {1, 2})
    job.all_ask({0, 1}, Topic::kSum, clock, numbers({double(clock)}));
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
  const std::tuple<Topic, Clock, std::string> cases[] = {{Topic::kSum, 5, "sum 5"},
                                                         {Topic::kBarrier, 6, "barrier 6"},
                                                         {Topic::kGather, 6, "gather 6"}};
  in_every_order(3, [&](const std::vector<std::uint32_t>& order) {
    for (const auto& [topic, at, name] : cases) {
      CoordinatorRig job = CoordinatorRig::joined(3);
      for (const std::uint32_t rank : order) {
        EXPECT_EQ(job.coordinator.ended(), nullptr);
        (void)job.ask(rank, rank == 1 ? topic : Topic::kBarrier, rank == 1 ? at : 5).ok();
      }
      ASSERT_NE(job.coordinator.ended(), nullptr);
      const std::string& text = job.coordinator.ended()->message;
      EXPECT_HAS(text, "rank 0 (host a), rank 2 (host c) in barrier 5");
      EXPECT_HAS(text, "rank 1 (host b) in " + name);
      EXPECT_EQ(job.take_all(3), std::vector(3, Words{"abort 6: " + text}));
    }
  });
}

TEST(CoordinatorRounds, WhoIsDoneIsNotWaitedFor) {
  CoordinatorRig job = CoordinatorRig::joined(3);
  job.all_ask({1, 2}, Topic::kGather, 9, "x");
  EXPECT_EQ(job.coordinator.waiting_for(), "gather 9: waiting for rank 0 (host a)");
  job.all_ask({0}, Topic::kDone, 100);
  EXPECT_EQ(job.take(1), Words{"answer 4 at 9"});
  EXPECT_FALSE(job.ask(0, Topic::kBarrier, 1).ok());
  job.all_ask({1, 2}, Topic::kShare, 10);
  EXPECT_EQ(job.coordinator.ended()->message,
            "share 10 cannot be answered: worker 0, rank 0 (host a), has finished");
  CoordinatorRig keeps = CoordinatorRig::joined(3);
  keeps.all_ask({1}, Topic::kDone, 100);
  keeps.all_ask({0, 2}, Topic::kGather, 1, "a");
  EXPECT_EQ(body_of(keeps.told[0].at(0)), std::string("\1\0\0\0a\0\0\0\0\1\0\0\0a", 14))
      << "its place stays";
}

TEST(CoordinatorRounds, AGatherThatNoAnswerHoldsEndsTheJob) {
  CoordinatorRig job = CoordinatorRig::joined(3);
  const std::string third(table::kMaxBodyBytes / 3, 'x');
  for (const std::uint32_t rank : {0u, 1u, 2u}) (void)job.ask(rank, Topic::kGather, 1, third).ok();
  ASSERT_NE(job.coordinator.ended(), nullptr);
  EXPECT_EQ(job.coordinator.ended()->message,
            "the workers' states have 16777227 bytes together; at most 16777216 can be sent");
}

TEST(CoordinatorRounds, DoneInEveryOrder) {
  in_every_order(3, [](const std::vector<std::uint32_t>& order) {
    CoordinatorRig job({{}, {.server = false}, {}, {.worker = false}});
    for (const std::uint32_t rank : order) {
      EXPECT_FALSE(job.coordinator.finished());
      EXPECT_EQ(job.take_all(4), std::vector(4, Words{}));
      job.all_ask({rank}, Topic::kDone, 100);
      if (rank != order[2]) job.all_ask({rank}, Topic::kDone, 100);
    }
    EXPECT_TRUE(job.coordinator.finished());
    // The chief gets the account of the job first.
    EXPECT_EQ(job.take(0), (Words{"answer 10 at 100", "answer 9 at 100", "finished"}));
    EXPECT_EQ(job.take(1), Words{"answer 9 at 100"});
    EXPECT_EQ(job.take(3), Words{"finished"});
    EXPECT_EQ(job.hears(1, job.ask(1, Topic::kDone, 100)), Words{"answer 9 at 100"});
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
  const std::string c = "rank 2 (host c, last clock 498)",
                    barrier = "barrier 500: waiting for rank 1 (host b, last clock 500), " + c;
  EXPECT_EQ(begun.coordinator.waiting_for(), barrier);
  begun.all_ask({1}, Topic::kPause, 500, body_of(Want::kStop));
  begun.all_ask({0, 1}, Topic::kPaused, 500);
  for (const std::uint16_t rank : {0, 1})
    ASSERT_TRUE(begun.say(rank, table::Norm{7, rank, 1}).ok());
  EXPECT_EQ(begun.coordinator.waiting_for(),
            barrier + "; norm 7: waiting for " + c + "; agreement on a stop: waiting for " + c);
  CoordinatorRig ending = CoordinatorRig::joined(2);
  ASSERT_TRUE(ending.ask(1, Topic::kDone, 5).ok());
  EXPECT_EQ(ending.coordinator.waiting_for(), "end: waiting for rank 0 (host a)");
}

// ---- agreements on a clock ----

TEST(CoordinatorAgreement, TheLargestClockAndTheMostUrgentWant) {
  in_every_order(3, [](const std::vector<std::uint32_t>& order) {
    for (const Want second : {Want::kNothing, Want::kSnapshot, Want::kStop, Want::kRequeue}) {
      CoordinatorRig job = CoordinatorRig::joined(3);
      ASSERT_TRUE(job.ask(1, Topic::kPause, 5, body_of(Want::kStop)).ok());
      EXPECT_EQ(job.take_all(3), std::vector(3, Words{"pause for 2"}));
      ASSERT_TRUE(second == Want::kNothing || job.ask(2, Topic::kPause, 6, body_of(second)).ok());
      const Clock clocks[] = {6, 9, 7};
      for (const std::uint32_t rank : order) {
        EXPECT_EQ(job.take_all(3), std::vector(3, Words{}));
        ASSERT_TRUE(job.ask(rank, Topic::kPaused, clocks[rank]).ok());
        // the first word stands
        ASSERT_TRUE(rank == order[2] || job.ask(rank, Topic::kPaused, 99).ok());
      }
      const std::string agreed = str("agreed on ", second == Want::kRequeue ? 3 : 2, " at 9");
      EXPECT_EQ(job.take_all(3), std::vector(3, Words{agreed}));
      EXPECT_EQ(job.hears(0, job.ask(0, Topic::kPaused, 6)), Words{agreed});
      // a repeat is no new want
      EXPECT_EQ(job.hears(0, job.ask(1, Topic::kPause, 5, body_of(Want::kStop))), Words{});
    }
  });
}

TEST(CoordinatorAgreement, ClocksOfAgreementsRise) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  for (int i = 0; i < 3; ++i) {
    job.all_ask({0}, Topic::kPause, i, body_of(Want::kSnapshot));
    job.all_ask({0, 1}, Topic::kPaused, 4);
    EXPECT_EQ(job.take(1), (Words{"pause for 1", str("agreed on 1 at ", 4 + i)}));
  }
}

TEST(CoordinatorAgreement, GoesOnWithoutWhoIsDone) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  ASSERT_TRUE(job.ask(0, Topic::kPause, 3, body_of(Want::kStop)).ok());
  ASSERT_TRUE(job.ask(0, Topic::kPaused, 3).ok());
  EXPECT_EQ(job.hears(0, job.ask(1, Topic::kDone, 9)), (Words{"pause for 2", "agreed on 2 at 3"}));
  EXPECT_EQ(job.hears(0, job.ask(1, Topic::kPause, 3, body_of(Want::kStop))), Words{});
  ASSERT_TRUE(job.ask(0, Topic::kDone, 3).ok());
  EXPECT_TRUE(job.coordinator.finished());
}

// Workers as small automata: each starts iterations, ends them, and obeys what it is told, at its
// own pace; messages take their time in both directions, each process's in order. Seeded.
class Automata {
 public:
  static constexpr Clock kEnd = 12;
  explicit Automata(std::uint64_t seed) : random_(seed), workers_(3) {}

  // Until all are done; says what went wrong, or "".
  std::string run() {
    for (int step = 0; step < 10'000; ++step) {
      if (job_.coordinator.finished() && all_done()) return agree_everywhere();
      std::vector<std::function<void()>> moves = possible();
      if (moves.empty()) return "deadlock: " + job_.coordinator.waiting_for();
      moves[random_.below(moves.size())]();
      if (!wrong_.empty()) return wrong_;
    }
    return "no end in sight";
  }
  std::size_t agreements() const { return workers_[0].acted.size(); }

 private:
  struct Worker {
    Clock finished = 0;
    bool running = false, pausing = false, done = false, ended = false;
    std::deque<Ask> up;  // on their way to the coordinator
    std::deque<table::Message> down;
    std::map<Clock, Want> agreed;
    std::vector<std::pair<Clock, Want>> acted;
  };

  std::vector<std::function<void()>> possible() {
    std::vector<std::function<void()>> moves;
    for (std::uint32_t rank = 0; rank < workers_.size(); ++rank) {
      Worker& worker = workers_[rank];
      if (!worker.up.empty()) moves.push_back([this, rank] { to_coordinator(rank); });
      if (!worker.down.empty()) moves.push_back([this, rank] { to_worker(rank); });
      if (worker.running) moves.push_back([&worker] { worker.running = false, ++worker.finished; });
      if (!worker.running && !worker.done && !worker.pausing)
        moves.push_back([this, &worker] { start(worker); });
      if (!worker.done && wishes_ > 0) moves.push_back([this, &worker] { wish(worker); });
    }
    return moves;
  }
  void wish(Worker& worker) {
    --wishes_;
    const auto wanted = static_cast<Want>(1 + random_.below(2));
    worker.up.push_back({Topic::kPause, worker.finished, body_of(wanted)});
  }
  void start(Worker& worker) {
    bool stop = worker.finished >= kEnd;
    if (const auto now = worker.agreed.find(worker.finished); now != worker.agreed.end()) {
      worker.acted.emplace_back(*now);
      stop = stop || now->second != Want::kSnapshot;
      worker.agreed.erase(now);
    }
    if (!worker.agreed.empty() && worker.agreed.begin()->first < worker.finished)
      wrong_ = str("a worker at ", worker.finished, " has passed what was agreed at ",
                   worker.agreed.begin()->first);
    worker.running = !stop;
    worker.done = stop;
    if (stop) worker.up.push_back({Topic::kDone, worker.finished, {}});
  }
  void to_coordinator(std::uint32_t rank) {
    const Ask ask = workers_[rank].up.front();
    workers_[rank].up.pop_front();
    if (const Status status = job_.say(rank, ask); !status.ok()) wrong_ = status.error().message;
    for (std::uint32_t i = 0; i < workers_.size(); ++i)
      for (table::Message& message : std::exchange(job_.told[i], {}))
        workers_[i].down.push_back(std::move(message));
  }
  void to_worker(std::uint32_t rank) {
    Worker& worker = workers_[rank];
    const table::Message message = worker.down.front();
    worker.down.pop_front();
    const auto* directive = std::get_if<Directive>(&message);
    if (!directive) return;
    if (directive->kind == DirectiveKind::kPause && !worker.done) {
      worker.pausing = true;
      worker.up.push_back({Topic::kPaused, worker.finished + (worker.running ? 1 : 0), {}});
    } else if (directive->kind == DirectiveKind::kAgreed) {
      worker.pausing = false;
      if (directive->clock < worker.finished + (worker.running ? 1 : 0) && !worker.done)
        wrong_ = str("agreed on clock ", directive->clock, " and a worker is past it, at ",
                     worker.finished);
      worker.agreed[directive->clock] = directive->want;
    } else if (directive->kind == DirectiveKind::kAbort) {
      wrong_ = directive->text;
    }
  }
  bool all_done() const {
    return std::ranges::all_of(
        workers_, [](const Worker& worker) { return worker.done && worker.up.empty(); });
  }
  // A request that was acted on before any worker's end must be the same on all.
  std::string agree_everywhere() const {
    for (const Worker& worker : workers_)
      for (const Worker& other : workers_) {
        const std::size_t both = std::min(worker.acted.size(), other.acted.size());
        if (!std::equal(worker.acted.begin(),
                        worker.acted.begin() + static_cast<std::ptrdiff_t>(both),
                        other.acted.begin()))
          return "workers did different things";
        if (worker.acted.size() != other.acted.size() &&
            std::min(worker.finished, other.finished) < kEnd - 1)
          return str("one worker acted ", worker.acted.size(), " times, another ",
                     other.acted.size());
      }
    return {};
  }

  Random random_;
  CoordinatorRig job_ = CoordinatorRig::joined(3);
  std::vector<Worker> workers_;
  int wishes_ = 4;
  std::string wrong_;
};

TEST(CoordinatorAgreement, NobodyPassesTheAgreedClockAndNobodyWaitsForEver) {
  std::size_t agreements = 0;
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    Automata automata(seed);
    ASSERT_EQ(automata.run(), "") << "seed " << seed;
    agreements += automata.agreements();
  }
  EXPECT_GT(agreements, 20'000u);
}

}  // namespace
}  // namespace shoal::test::coordinator_rounds_test
