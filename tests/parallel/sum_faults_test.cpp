// Tests workers that sum vectors by a tree, a ring or halves and send messages to all others, clock
// by clock, over rows with one writer, on a network with every kind of fault, by seed.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "shoal/parallel/sums/allreduce.h"
#include "shoal/table/client.h"
#include "shoal/table/shard.h"
#include "support/asks_again.h"
#include "support/schemes.h"
#include "support/seed_trial.h"
#include "support/simulated_cluster.h"

namespace shoal::table::sum_faults_test {
namespace {

using parallel::Step;
using parallel::Way;

// The job of a seed.
struct SumCase {
  Way way = Way::kTree;
  int workers = 2;
  std::size_t count = 1;  // numbers of the vector
  Clock clocks = 1;
  UnreliableLinkOptions network;
};

SumCase draw_sum(std::uint64_t seed) {
  Random random(seed, 7);
  return {.way = parallel::kCollectives[random.below(parallel::kCollectives.size())],
          .workers = static_cast<int>(2 + random.below(5)),
          .count = 1 + random.below(20),
          .clocks = static_cast<Clock>(1 + random.below(5)),
          .network = draw_network(random)};
}

// Returns a plan: row 0 is there because a plan has rows with numbers; then a message of each
// worker to all others, then the transfers of the sum.
Plan plan_of(const SumCase& one) {
  Plan plan;
  plan.workers = plan.servers = static_cast<std::uint16_t>(one.workers);
  plan.rows = {{.length = 1, .learns = false}};
  std::vector<std::uint16_t> servers;
  for (int worker = 0; worker < one.workers; ++worker) {
    servers.push_back(static_cast<std::uint16_t>(worker));
    plan.rows.edit().push_back(
        {.length = 2, .server = servers.back(), .learns = false, .writer = worker});
  }
  for (const Row& row : parallel::rows_of(one.way, one.count, 1, servers))
    plan.rows.edit().push_back(row);
  return plan;
}

// Returns a whole number, so that sums are exact.
float summand(int worker, Clock clock, std::size_t i) {
  return static_cast<float>((worker + 1) * (static_cast<int>(clock) + 3) + static_cast<int>(i));
}

class Sums {
 public:
  explicit Sums(std::uint64_t seed)
      : one_(draw_sum(seed)),
        plan_(plan_of(one_)),
        strips_(parallel::steps_of(one_.way, one_.workers, one_.count)) {
    for (int server = 0; server < one_.workers; ++server) {
      Shard& shard = *shards_.emplace_back(std::make_unique<Shard>(server));
      Outbox out;
      const float zero = 0;
      or_throw(shard.handle(0, PlanMessage{plan_}, out));
      if (server == 0) or_throw(shard.handle(0, Init{.payload = as_payload({{&zero, 1}})}, out));
    }
    for (int worker = 0; worker < one_.workers; ++worker)
      workers_.push_back(std::make_unique<Worker>(*this, worker));
    std::uint64_t stream = 0;
    for (int worker = 0; worker < one_.workers; ++worker)
      for (int server = 0; server < one_.workers; ++server)
        links_.push_back(std::make_unique<UnreliableLink>(
            time_, one_.network, Random(seed, ++stream), client_end(worker, server),
            shard_end(worker, server)));
  }
  Sums(const Sums&) = delete;

  std::string run(ClusterRun& figures) {
    constexpr Instant kLimit = std::chrono::minutes(10);
    for (const auto& worker : workers_) worker->begin();
    while (wrong_.empty() && !all_done()) {
      if (!time_.step()) wrong_ = "all stand still";
      if (time_.now() > kLimit) wrong_ = "a worker has waited ten minutes";
    }
    for (const auto& link : links_)
      for (const std::size_t from : {0, 1}) {
        figures.frames += link->counters(from).frames;
        figures.lost += link->counters(from).lost;
        figures.resets += link->counters(from).resets;
      }
    if (wrong_.empty()) return "";
    return str(name_of(one_.way), " of ", one_.count, " numbers and ", one_.workers, " workers, ",
               one_.clocks, " clocks: ", wrong_);
  }

 private:
  struct Worker {
    Worker(Sums& of, int number)
        : sums(of),
          number(number),
          received(sums.plan_.rows.size()),
          numbers(sums.one_.count),
          done(sums.strips_[static_cast<std::size_t>(number)]),
          client({.worker = number}, sums.plan_, [this](RowId row, Part) {
            received[row].resize(sums.plan_.rows[row].length);
            return std::span(received[row]);
          }) {}

    // Asks for the messages to come, then sends without waiting.
    void begin() {
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = summand(number, clock, i);
      for (RowId row = 1; row < sums.plan_.rows.size(); ++row)
        if (reads(row)) client.get(row, clock + 1, Part::kWeights, sums.time_.now());
      const float message[] = {static_cast<float>(number), static_cast<float>(clock)};
      push(static_cast<RowId>(1 + number), message);
      done.restart();
      go_on();
    }

    void go_on() {
      if (clock == sums.one_.clocks) return;
      done.advance([this](const Step& step) { return act(step); });
      for (int server = 0; server < sums.one_.workers; ++server) sums.link(number, server).wake(0);
      keep_time();
      if (!done.is_done() || client.overdue().has_value()) return;
      check();
      if (++clock < sums.one_.clocks) begin();
    }

    bool act(const Step& step) {
      const RowId row = sums.first_transfer() + static_cast<RowId>(step.transfer);
      const auto own = std::span(numbers).subspan(step.first, step.count);
      if (step.sends) {
        push(row, own);
        return true;
      }
      if (!client.arrived(row)) return false;
      for (std::size_t i = 0; i < step.count; ++i)
        own[i] = received[row][i] + (step.adds ? own[i] : 0);
      return true;
    }

    void check() {
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        float sum = 0;
        for (int worker = 0; worker < sums.one_.workers; ++worker) sum += summand(worker, clock, i);
        if (numbers[i] != sum)
          sums.wrong_ =
              str("worker ", number, " has ", numbers[i], " for ", sum, " at clock ", clock);
      }
      for (int worker = 0; worker < sums.one_.workers; ++worker)
        if (worker != number &&
            received[static_cast<std::size_t>(1 + worker)] !=
                std::vector{static_cast<float>(worker), static_cast<float>(clock)})
          sums.wrong_ = str("worker ", number, " has not worker ", worker, "'s message of ", clock);
    }

    bool reads(RowId row) const {
      const Row& of = sums.plan_.rows[row];
      return of.writer != number && (of.reader == kEveryWorker || of.reader == number);
    }
    void push(RowId row, std::span<const float> what) {
      client.push({.row = row, .clock = clock, .payload = owned(as_payload({what, nullptr}))},
                  sums.time_.now());
    }
    void keep_time() {
      const Instant due = asks_again.keep(client, sums.one_.workers, sums.time_.now());
      if (due >= alarm) return;
      alarm = due;
      sums.time_.at(due, [this] {
        alarm = Instant::max();
        go_on();
      });
    }

    Sums& sums;
    const int number;
    Clock clock = 0;
    std::vector<std::vector<float>> received;  // by row
    std::vector<float> numbers;
    parallel::StepsDone done;
    Client client;
    test::AsksAgain asks_again;
    Instant alarm = Instant::max();
  };

  RowId first_transfer() const { return static_cast<RowId>(1 + one_.workers); }
  UnreliableLink& link(int worker, int server) {
    return *links_[static_cast<std::size_t>(worker * one_.workers + server)];
  }
  UnreliableEnd client_end(int worker, int server) {
    Worker* const owner = workers_[static_cast<std::size_t>(worker)].get();
    return {.received =
                [this, owner, server](Message&& message) {
                  const Result<bool> taken = owner->client.take(server, message);
                  if (!taken.ok()) wrong_ = taken.error().message;
                  owner->go_on();
                },
            .next = [owner, server] { return owner->client.next(server); },
            .up =
                [this, owner, server] {
                  owner->client.link_up(server);
                  owner->go_on();
                }};
  }
  UnreliableEnd shard_end(int worker, int server) {
    return {.received = [this, worker, server](Message&& message) {
      Outbox out;
      const Status handled =
          shards_[static_cast<std::size_t>(server)]->handle(worker, message, out);
      if (!handled.ok()) wrong_ = handled.error().message;
      for (const Outgoing& each : out) link(each.to, server).send(1, each.message);
    }};
  }
  bool all_done() const {
    return std::ranges::all_of(workers_,
                               [this](const auto& worker) { return worker->clock == one_.clocks; });
  }

  const SumCase one_;
  const Plan plan_;
  const std::vector<std::vector<parallel::Strip>> strips_;
  VirtualTime time_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<UnreliableLink>> links_;  // of each worker to each server
  std::string wrong_;
};

std::string broken_sum(std::uint64_t seed, ClusterRun& run) { return Sums(seed).run(run); }

// Covers factors and collectives: a sum is whole, and a message the writer's, at each clock.
TEST(Faults, SumsAndMessagesAreWholeWhateverIsLost) {
  Trial trial(broken_sum, 3000);
  trial.run();
  for (const auto& [seed, broken] : trial.wrong())
    ADD_FAILURE() << broken << "\n  again: --seed=" << seed;
  if (trial.tried() < 3000) return;  // too few to say
  EXPECT_GT(trial.sum().lost, trial.tried());
  EXPECT_GT(trial.sum().resets, trial.tried() / 10);
}

}  // namespace
}  // namespace shoal::table::sum_faults_test
