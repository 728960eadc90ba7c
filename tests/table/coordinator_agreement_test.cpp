// Agreements on a clock, which workers ask the coordinator for.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>

#include "shoal/base/random.h"
#include "shoal/table/coordinator.h"
#include "support/coordinator_rig.h"

namespace shoal::test::coordinator_agreement_test {
namespace {

using table::Ask;
using table::Clock;
using table::Directive;
using table::DirectiveKind;
using table::Topic;
using table::Want;
using Words = std::vector<std::string>;
using Process = CoordinatorRig::Process;

TEST(CoordinatorAgreement, TheLargestClockAndTheMostUrgentWant) {
  in_every_order(3, [](const std::vector<std::uint32_t>& order) {
    for (const Want second : {Want::kNothing, Want::kSnapshot, Want::kStop, Want::kRequeue}) {
      CoordinatorRig job = CoordinatorRig::joined(3);
      ASSERT_TRUE(job.ask(1, Topic::kPause, 5, body_of(Want::kStop)).ok());
      for (std::uint32_t rank = 0; rank < 3; ++rank)
        EXPECT_EQ(job.take(rank), Words{"pause for 2"});
      ASSERT_TRUE(second == Want::kNothing || job.ask(2, Topic::kPause, 6, body_of(second)).ok());
      const Clock clocks[] = {6, 9, 7};
      for (const std::uint32_t rank : order) {
        for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(job.take(i), Words{});
        ASSERT_TRUE(job.ask(rank, Topic::kPaused, clocks[rank]).ok());
        // the first word stands
        ASSERT_TRUE(rank == order[2] || job.ask(rank, Topic::kPaused, 99).ok());
      }
      const std::string agreed = str("agreed on ", second == Want::kRequeue ? 3 : 2, " at 9");
      for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(job.take(rank), Words{agreed});
      ASSERT_TRUE(job.ask(0, Topic::kPaused, 6).ok());
      EXPECT_EQ(job.take(0), Words{agreed});
      // a repeat is no new want
      ASSERT_TRUE(job.ask(1, Topic::kPause, 5, body_of(Want::kStop)).ok());
      EXPECT_EQ(job.take(0), Words{});
    }
  });
}

TEST(CoordinatorAgreement, ClocksOfAgreementsRise) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(job.ask(0, Topic::kPause, i, body_of(Want::kSnapshot)).ok());
    for (const std::uint32_t rank : {0u, 1u}) ASSERT_TRUE(job.ask(rank, Topic::kPaused, 4).ok());
    EXPECT_EQ(job.take(1), (Words{"pause for 1", str("agreed on 1 at ", 4 + i)}));
  }
}

TEST(CoordinatorAgreement, GoesOnWithoutWhoIsDone) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  ASSERT_TRUE(job.ask(0, Topic::kPause, 3, body_of(Want::kStop)).ok());
  ASSERT_TRUE(job.ask(0, Topic::kPaused, 3).ok());
  ASSERT_TRUE(job.ask(1, Topic::kDone, 9).ok());
  EXPECT_EQ(job.take(0), (Words{"pause for 2", "agreed on 2 at 3"}));
  ASSERT_TRUE(job.ask(1, Topic::kPause, 3, body_of(Want::kStop)).ok());
  EXPECT_EQ(job.take(0), Words{});
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
}  // namespace shoal::test::coordinator_agreement_test
