// Tests of a job in which a process dies, freezes or is cut off.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <iostream>
#include <random>
#include <thread>

#include "shoal/base/timer.h"
#include "support/expect.h"
#include "support/job.h"

namespace shoal::test::service_fault_test {
namespace {

using std::chrono::milliseconds;
using table::Clock;
using table::Service;
using table::Table;
using table::Want;

// ---- death: a service that goes before its job is over is gone as if killed ----

enum class Stage { kJoined, kCreated, kTraining };
struct Death {
  std::string roles;
  std::size_t victim;
  Stage stage;
};

class ServiceDeath : public testing::TestWithParam<Death> {};

// Lives until its time has come, then returns, and so is destroyed.
Status die(const Death& death, Service& service, const std::atomic<bool>& all_train) {
  if (death.stage == Stage::kJoined) return {};
  while (!service.table() && !all_train) std::this_thread::yield();
  if (!service.table()) return {};
  const Training training{.scheme = "async"};
  Table& table = *service.table();
  const auto plan = plan_of(training, table.roster());
  RowValues numbers;
  for (const std::uint32_t length : training.lengths) numbers.emplace_back(length);
  const auto where = [&](table::RowId row, table::Part) { return std::span<float>(numbers[row]); };
  if (Status status = table.create(plan, where, where);
      !status.ok() || death.stage == Stage::kCreated)
    return table.release(), status;
  for (Clock c = 0; c < 3; ++c) {
    for (table::RowId row = 0; row < numbers.size(); ++row)
      table.push({.row = row,
                  .clock = c,
                  .rate = 1,
                  .payload = table::as_payload({.data = numbers[row]})});
    std::vector<table::RowId> all{0, 1, 2, 3, 4};
    if (Status status = table.wait(all); !status.ok()) return table.release(), status;
  }
  return table.release(), Status();
}

TEST_P(ServiceDeath, EndsAllOthersWithItsName) {
  const Death& death = GetParam();
  JobOverTcp cluster(death.roles);
  std::atomic<std::int64_t> died = 0, last = 0;
  std::atomic<bool> all_train = false;
  const auto time = [] {
    return std::chrono::duration_cast<milliseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  Training training{.scheme = "async", .iterations = 1'000'000};
  training.at = [&](Table&, Clock clock, Want) { all_train = all_train || clock == 5; };
  const std::vector<Status> results =
      cluster.run([&](std::size_t rank, Service& service) -> Status {
        if (rank == death.victim) {
          Status status = die(death, service, all_train);
          died = time();
          return status;
        }
        const Status status =
            service.table() ? Status(train(*service.table(), training)) : service.serve({});
        last = std::max(last.load(), time());
        return status;
      });
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    if (rank == death.victim) continue;
    EXPECT_FAILS_WITH(
        str("rank ", death.victim, " (host host-", static_cast<char>('a' + death.victim)),
        results[rank]);
    EXPECT_EQ(results[rank].error().code, Code::kPeer);
  }
  std::cout << "all ended " << last - died << " ms after the death\n";
}

INSTANTIATE_TEST_SUITE_P(
    Stages, ServiceDeath,
    testing::Values(Death{"bbb", 0, Stage::kJoined}, Death{"bbb", 2, Stage::kJoined},
                    Death{"sww", 0, Stage::kJoined}, Death{"wsw", 1, Stage::kJoined},
                    Death{"bbb", 0, Stage::kCreated}, Death{"bbb", 1, Stage::kCreated},
                    Death{"sww", 2, Stage::kCreated}, Death{"bbb", 0, Stage::kTraining},
                    Death{"bbb", 1, Stage::kTraining}, Death{"sww", 1, Stage::kTraining},
                    Death{"bws", 1, Stage::kTraining}, Death{"bws", 2, Stage::kTraining}));

TEST(ServiceFault, AProcessThatDiesBeforeAllHaveJoinedIsNamed) {
  JobOverTcp cluster("bbbb", true);
  // it leaves by itself, in words
  cluster.options[1].start = milliseconds(400);
  // and rank 3 never starts
  cluster.options.resize(3);
  const std::vector<Status> results = cluster.start();
  for (const Status& result : results) EXPECT_FAILS_WITH("did not start within 0.4 s", result);
  EXPECT_HAS(results[0].error().message, "rank 1");
}

// ---- broken connections ----

Training drawn() {
  return {.iterations = 15,
          .rule = {.rule = optim::Rule::kAdam, .momentum = 0.9f},
          .rate = 0.01f,
          .whole = false};
}

RowValues undisturbed(const std::string& roles) {
  JobOverTcp cluster(roles);
  expect_all_ok(cluster.train_all(drawn()));
  return cluster.weights[roles.find_first_not_of('s')];
}

class ServiceCut : public testing::TestWithParam<std::string> {};

TEST_P(ServiceCut, ComesBackWithTheSameBits) {
  const std::string roles = GetParam();
  const RowValues expected = undisturbed(roles);
  const auto encrypts = [](int round) {
    return round < 4 ? table::Encrypt::kAuto : table::Encrypt::kAlways;
  };
  const unsigned seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937 draw(seed);
  for (int round = 0; round < 9; ++round) {
    JobOverTcp cluster(roles, true);
    for (std::size_t rank = 0; rank < cluster.size(); ++rank) {
      cluster.options[rank].encrypt = encrypts(round);
      const std::uint64_t after = draw() % (round % 4 < 2 ? 1'000'000 : 3'000);
      if (round == 6)
        cluster.proxy(rank).delay(milliseconds(3));
      else if (round % 2 == 0)
        cluster.proxy(rank).cut_after(after);
      else  // a handshake that is damaged is refused, and rightly
        cluster.proxy(rank).damage_after(100'000 + after);
    }
    Training training = drawn();
    training.at = [&](Table& table, Clock clock, Want) {
      if (round % 2 == 0 && round < 6 && table.worker() == 0 && clock == 9) cluster.proxy(0).cut();
    };
    SCOPED_TRACE(str("round ", round));
    expect_all_ok(cluster.train_all(training));
    for (std::size_t rank = 0; rank < cluster.size(); ++rank)
      EXPECT_TRUE(!cluster.options[rank].worker || cluster.weights[rank] == expected) << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Roles, ServiceCut, testing::Values("bb", "sww", "bbb"));

// Trains without end; worker 0 does this when it has come to clock 5.
std::vector<Status> train_until(JobOverTcp& cluster, const std::function<void()>& fault) {
  Training training{.iterations = 1'000'000};
  training.at = [&](Table& table, Clock clock, Want) {
    if (table.worker() == 0 && clock == 5) fault();
  };
  return cluster.train_all(training);
}

TEST(ServiceFault, AConnectionThatStaysBrokenIsALoss) {
  for (const std::size_t victim : {0u, 1u}) {
    JobOverTcp cluster("bb", true);
    const auto results = train_until(cluster, [&] { cluster.proxy(victim).shut(); });
    for (const Status& result : results) {
      EXPECT_FAILS_WITH("rank ", result);
      EXPECT_EQ(result.error().code, Code::kPeer) << result.error().message;
    }
    EXPECT_HAS(results[1 - victim].error().message, str("rank ", victim));
  }
}

// ---- silence ----

// So long that nobody is silent for want of a core. Both at once, as each only waits.
TEST(ServiceFault, ASilentPeerIsGivenUp) {
  const auto silence = [](std::size_t victim) {
    JobOverTcp cluster("bb", true);
    for (auto& options : cluster.options) {
      options.stall_warn = milliseconds(2000);
      options.stall_abort = milliseconds(4000);
    }
    const auto results = train_until(cluster, [&] { cluster.proxy(victim).hold(); });
    for (const Status& result : results) {
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().code, Code::kTimeout) << result.error().message;
    }
    // Two do not hear each other, and both reach the coordinator: the first to say so names the
    // other.
    const std::string& message = results[1 - victim].error().message;
    EXPECT_HAS(message, victim == 1 && message.find("rank 1") == std::string::npos
                            ? "lost rank 0"
                            : str("rank ", victim));
    EXPECT_HAS(message, "Nothing was heard for 4");
  };
  std::jthread other([&] { silence(1); });
  silence(0);
}

// Worker 1 is the first to find the coordinator silent, and leaves: it is not what worker 2 blames.
TEST(ServiceFault, TheOneThatLeavesSincePeersAreSilentIsNotBlamed) {
  JobOverTcp cluster("bbb", true);
  for (auto& options : cluster.options) {
    options.reconnect = milliseconds(100);
    options.stall_abort = milliseconds(&options == &cluster.options[1] ? 4000 : 5000);
  }
  const auto results = train_until(cluster, [&] { cluster.proxy(0).hold(); });
  for (const std::size_t worker : {1, 2}) {
    EXPECT_FAILS_WITH("rank 0", results[worker]);
    EXPECT_HAS(results[worker].error().message, "Nothing was heard");
    EXPECT_EQ(results[worker].error().code, Code::kTimeout) << results[worker].error().message;
  }
}

TEST(ServiceFault, ASlowWorkerIsNotASilentOne) {
  JobOverTcp cluster("bb");
  for (auto& options : cluster.options) {
    options.stall_warn = milliseconds(100);
    options.stall_abort = milliseconds(300);
  }
  Training training{.iterations = 3};
  training.at = [](Table& table, Clock clock, Want) {
    // Worker 1 computes for longer than a process may be silent.
    if (table.worker() == 1 && clock == 1)
      wait_until(std::chrono::steady_clock::now() + milliseconds(900));
  };
  expect_all_ok(cluster.train_all(training));
}

TEST(ServiceFault, AServiceMayGoAtAnyMoment) {
  // While others come, before anybody came, and with pushes on their way.
  for (int round = 0; round < 5; ++round) {
    JobOverTcp cluster("bbb");
    for (auto& options : cluster.options) options.start = milliseconds(round * 20 + 1);
    (void)cluster.start();
    cluster.services.clear();
  }
  JobOverTcp cluster("bb");
  expect_all_ok(cluster.start());
  std::vector<float> numbers(4096);
  std::vector<std::jthread> threads;
  for (const auto& service : cluster.services)
    threads.emplace_back([&] {
      const Training training{.lengths = {4096}};
      Table& table = *service->table();
      const auto where = [&](table::RowId, table::Part) { return std::span<float>(numbers); };
      RowValues mine(1, std::vector<float>(4096));
      const auto to = [&](table::RowId, table::Part) { return std::span<float>(mine[0]); };
      ASSERT_OK(table.create(plan_of(training, table.roster()), where, to));
      if (table.worker() == 1)
        table.push(
            {.row = 0, .clock = 0, .rate = 1, .payload = table::as_payload({.data = numbers})});
      table.release();
    });
  threads.clear();
  cluster.services.clear();
}

}  // namespace
}  // namespace shoal::test::service_fault_test
