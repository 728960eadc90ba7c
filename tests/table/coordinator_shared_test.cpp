// The tasks that the workers of a job share, while workers come and go: each is done once, by
// somebody, whatever happens when.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "shoal/table/coordinator.h"
#include "support/coordinator_rig.h"

namespace shoal::test::coordinator_shared_test {
namespace {

using table::Answer;
using table::BeginBody;
using table::Clock;
using table::LeaveBody;
using table::SegmentBody;
using table::Topic;

constexpr Clock kUntil = 6;

// Workers of a job, each as far as a test lets it come.
class Sharers {
 public:
  Sharers(std::uint32_t workers, const std::string& scheme)
      : job_(workers, 7, scheme), scheme_(scheme), workers_(workers) {
    for (std::uint32_t rank = 0; rank < workers; ++rank) ok(job_.join(rank, {.server = rank == 0}));
    begin_generation();
  }

  enum class State { kIdle, kAsks, kMay, kOver, kGone };
  State state(std::uint32_t rank) const { return workers_[rank].state; }
  std::vector<std::uint32_t> here() const {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 0; rank < workers_.size(); ++rank)
      if (workers_[rank].state != State::kGone) ranks.push_back(rank);
    return ranks;
  }
  std::int64_t done() const { return done_; }  // and not thrown away
  // of which the rate was, the last time
  Clock shown() const { return shown_; }
  Clock clock(std::uint32_t rank) const { return workers_[rank].clock; }

  void ask(std::uint32_t rank) {
    workers_[rank].state = State::kAsks;
    ok(job_.ask(rank, Topic::kBegin, workers_[rank].clock,
                table::encode(BeginBody{.last = {}, .until = kUntil})));
    listen();
  }
  void work(std::uint32_t rank, bool is_judged) {
    Worker& worker = workers_[rank];
    bool counts = true;
    if (is_judged) {
      ok(job_.ask(rank, Topic::kJudge, worker.clock,
                  table::encode(table::TaskReport{.steps = 1, .seconds = 1})));
      counts = table::decode<table::VerdictBody>(body_of(job_.told[rank].back())).value().verdict ==
               table::Verdict::kPush;
      listen();
    }
    ++worker.clock;
    done_ += counts;
    worker.state = State::kIdle;
  }
  // At the end of a task, or before one that it was told to begin.
  void leave(std::uint32_t rank) {
    ok(job_.ask(rank, Topic::kLeave, workers_[rank].clock, table::encode(LeaveBody{true, ""})));
    workers_[rank].state = State::kGone;
    next_generation();
  }
  void join() {
    const std::uint32_t rank = job_.coordinator.enroll();
    ok(job_.join(rank, {.server = false}));
    workers_.push_back({.state = State::kGone});
    next_generation();
    workers_[rank] = {.clock = roster_.processes[rank].clock};
  }

 private:
  struct Worker {
    Clock clock = 0;
    State state = State::kIdle;
  };
  static void ok(const Status& status) { ASSERT_TRUE(status.ok()) << status.error().message; }

  // A worker that hears that there is nothing more goes to the meeting at the end, which others may
  // have waited for.
  void listen() {
    for (bool more = true; std::exchange(more, false);)
      for (std::uint32_t rank = 0; rank < workers_.size(); ++rank) more = hear(rank) || more;
  }
  bool hear(std::uint32_t rank) {
    const auto messages = std::exchange(job_.told[rank], {});
    for (const auto& message : messages) {
      const auto* answer = std::get_if<Answer>(&message);
      if (!answer || answer->topic != Topic::kBegin || state(rank) != State::kAsks ||
          answer->clock != clock(rank))
        continue;
      const table::Start start = table::decode<table::Start>(answer->body).value();
      workers_[rank].state = start.over ? State::kOver : State::kMay;
      shown_ = start.at;
      if (start.over) ok(job_.ask(rank, Topic::kMeet, generation_ + 1, "\1"));
    }
    return !messages.empty();
  }

  // All stop, those who wait for a start too, and ask again in the next generation.
  void next_generation() {
    ++generation_;
    std::vector<std::pair<std::uint32_t, SegmentBody>> ends;
    for (const std::uint32_t rank : here()) {
      ends.emplace_back().first = rank;
      ends.back().second.clock = clock(rank);
      ends.back().second.phase_end = kUntil;
    }
    for (const auto& [rank, end] : ends)
      ok(job_.ask(rank, Topic::kPaused, end.clock, std::string(8, '\0')));
    for (const std::uint32_t rank : here())
      if (state(rank) != State::kOver) ok(job_.ask(rank, Topic::kMeet, generation_, "\2"));
    roster_ = job_.regroup(ends, generation_);
    ASSERT_EQ(roster_.generation, generation_);
    begin_generation();
    for (const std::uint32_t rank : here()) workers_[rank].state = State::kIdle;
  }
  void begin_generation() {
    ok(job_.ask(0, Topic::kScheme, generation_, scheme_));
    job_.forget();
  }

  CoordinatorRig job_;
  const std::string scheme_;
  std::vector<Worker> workers_;  // by rank
  table::RosterBody roster_;
  table::Generation generation_ = 0;
  std::int64_t done_ = 0;
  Clock shown_ = 0;
};

// Two of six each.
TEST(SharedTasks, WhoJoinsTakesOfThem) {
  Sharers job(2, "async share_iterations=true");
  for (const std::uint32_t rank : {0u, 1u}) job.ask(rank);
  for (int task = 0; task < 9; ++task) job.work(0, false), job.ask(0);
  job.join();
  EXPECT_EQ(job.clock(2), 0) << "where the slowest is";
  job.ask(2);
  EXPECT_EQ(job.shown(), 5) << "eleven of twelve were begun before";
  job.work(2, false), job.ask(2);
  EXPECT_EQ(job.state(2), Sharers::State::kOver);
  for (const std::uint32_t rank : {0u, 1u}) job.ask(rank), job.work(rank, false), job.ask(rank);
  EXPECT_EQ(job.done(), 2 * kUntil);
}

// It was told to begin another task, which it did not, or it was not told.
TEST(SharedTasks, WhoLeavesLeavesItsOwnToTheOthers) {
  for (const bool was_told : {false, true}) {
    Sharers job(2, "async share_iterations=true");
    for (const std::uint32_t rank : {0u, 1u}) job.ask(rank);
    job.work(1, false);
    if (was_told) job.ask(1);
    job.leave(1);
    for (job.ask(0); job.state(0) == Sharers::State::kMay; job.ask(0)) job.work(0, false);
    EXPECT_EQ(job.done(), 2 * kUntil);
    EXPECT_EQ(job.clock(0), 2 * kUntil - 1);
  }
}

// The last task comes back when the others have heard that there is none.
TEST(SharedTasks, WhoWasToldThatThereIsNoneAsksAgain) {
  Sharers job(2, "async share_iterations=true");
  for (const std::uint32_t rank : {0u, 1u}) job.ask(rank);
  for (; job.state(0) == Sharers::State::kMay; job.ask(0)) job.work(0, false);
  ASSERT_EQ(job.done(), 2 * kUntil - 1);
  job.leave(1);
  job.ask(0);
  ASSERT_EQ(job.state(0), Sharers::State::kMay);
  job.work(0, false), job.ask(0);
  EXPECT_EQ(job.state(0), Sharers::State::kOver);
}

// Past the end of its phase, by its own clock, a worker is not past it: nor is who joins.
TEST(SharedTasks, WhoJoinsBeginsBeforeTheEnd) {
  Sharers job(2, "async share_iterations=true");
  for (const std::uint32_t rank : {0u, 1u}) job.ask(rank);
  job.leave(1);
  for (job.ask(0); job.clock(0) < kUntil + 3; job.ask(0)) job.work(0, false);
  job.join();
  EXPECT_EQ(job.clock(2), kUntil - 1);
}

TEST(SharedTasks, AreDoneOnceWhoeverComesAndGoes) {
  for (const std::string scheme :
       {"async", "drift_barrier max_advance=2", "weed_out weedout=1", "weed_out weedout=6"})
    for (std::uint32_t seed = 0; seed < 300 && !testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(str(scheme, ", seed ", seed));
      std::mt19937 random(seed);
      const auto below = [&](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
      const std::uint32_t workers = 1 + below(3);
      Sharers job(workers, scheme + " share_iterations=true");
      const auto is_over = [&](std::uint32_t rank) {
        return job.state(rank) == Sharers::State::kOver;
      };
      int step = 0, changes = 0;
      for (; step < 2000 && !std::ranges::all_of(job.here(), is_over); ++step) {
        const auto here = job.here();
        const std::uint32_t rank = here[below(here.size())];
        // who leaves before its first task has none in the pool
        const bool all_began = step > 40;
        if (all_began && changes < 8 && below(12) == 0) {
          ++changes;
          if (rank > 0 && !is_over(rank) && below(2) == 0)
            job.leave(rank);
          else if (here.size() < 5)
            job.join();
        } else if (job.state(rank) == Sharers::State::kIdle) {
          job.ask(rank);
        } else if (job.state(rank) == Sharers::State::kMay) {
          if (all_began || below(8) == 0) job.work(rank, scheme.starts_with("weed_out"));
        }
      }
      EXPECT_LT(step, 2000);
      EXPECT_EQ(job.done(), kUntil * workers);
    }
}

}  // namespace
}  // namespace shoal::test::coordinator_shared_test
