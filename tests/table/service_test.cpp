// The table service over TCP, with every process of a job a Service of this one: what it counts and
// says.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <set>
#include <thread>

#include "shoal/base/mutex.h"
#include "shoal/base/timer.h"
#include "support/certificates.h"
#include "support/coordinator_rig.h"
#include "support/expect.h"
#include "support/job.h"

namespace shoal::test::service_test {
namespace {

using table::Clock;
using table::RowId;
using table::Service;
using table::Table;
using table::Topic;
using table::Want;

int workers_in(const std::string& roles) {
  return static_cast<int>(
      std::count_if(roles.begin(), roles.end(), [](char role) { return role != 's'; }));
}

// ---- numbers ----

struct Shape {
  std::string roles, scheme;
};

// Whole numbers: every update of every worker is in every worker's weights, once.
void train_and_count(JobOverTcp& cluster, const Training& training, int workers) {
  expect_all_ok(cluster.train_all(training));
  for (std::size_t rank = 0; rank < cluster.size(); ++rank) {
    if (!cluster.options[rank].worker) continue;
    ASSERT_EQ(cluster.weights[rank].size(), training.lengths.size());
    for (RowId row = 0; row < training.lengths.size(); ++row)
      for (std::size_t i = 0; i < training.lengths[row]; i += 1 + i / 7) {
        float expected = first_weight(row, i);
        for (Clock clock = 0; clock < training.iterations; ++clock)
          for (int worker = 0; worker < workers; ++worker)
            expected -=
                gradient_of(training, workers, worker, clock, row, i) / static_cast<float>(workers);
        ASSERT_EQ(cluster.weights[rank][row][i], expected)
            << "rank " << rank << ", row " << row << "[" << i << "]";
      }
  }
}

class ServiceCounts : public testing::TestWithParam<Shape> {};

TEST_P(ServiceCounts, EveryPushOnce) {
  JobOverTcp cluster(GetParam().roles);
  train_and_count(cluster, {.scheme = GetParam().scheme}, workers_in(GetParam().roles));
}

INSTANTIATE_TEST_SUITE_P(Shapes, ServiceCounts,
                         testing::Values(Shape{"b", "ssp 0"}, Shape{"b", "async"},
                                         Shape{"bb", "ssp 0"}, Shape{"bb", "ssp 2"},
                                         Shape{"bb", "async"}, Shape{"bbb", "ssp 0"},
                                         Shape{"bbbb", "ssp 1"}, Shape{"sw", "ssp 0"},
                                         Shape{"ws", "ssp 0"}, Shape{"swww", "ssp 2"},
                                         Shape{"wwwwsss", "ssp 0"}, Shape{"bws", "async"},
                                         Shape{"ssbw", "ssp 0"}));

TEST(Service, TheSamePushesGiveTheSameBits) {
  const Training training{.rule = {.momentum = 0.9f}, .rate = 0.01f, .whole = false};
  std::vector<RowValues> runs;
  for (int run = 0; run < 2; ++run) {
    JobOverTcp cluster("bbb");
    cluster.options[1].threads = 3;
    expect_all_ok(cluster.train_all(training));
    runs.push_back(cluster.weights[run]);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

TEST(Service, AnEncryptedJobGivesTheBitsOfOneInClear) {
  const Training training{.rule = {.momentum = 0.9f}, .rate = 0.01f, .whole = false};
  std::vector<RowValues> runs;
  const table::test::Authority ca("Shoal CA");
  const std::string path = str(testing::TempDir(), "service_certificates_", ::getpid());
  const auto certified =
      table::test::certificates(table::test::put_files(path, ca.sign("machine"), ca.certificate()));
  for (const auto& [encrypt, certificates] :
       {std::pair(table::Encrypt::kNever, std::shared_ptr<table::Certificates>()),
        std::pair(table::Encrypt::kAlways, std::shared_ptr<table::Certificates>()),
        std::pair(table::Encrypt::kAlways, certified)}) {
    JobOverTcp cluster("bws");
    for (table::ServiceOptions& one : cluster.options) {
      one.encrypt = encrypt;
      one.certificates = certificates;
      one.local_transport = table::LocalTransport::kTcp;
    }
    expect_all_ok(cluster.train_all(training));
    runs.push_back(cluster.weights[0]);
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

// The weights of a row come first. A worker that has asked for its history too waits for both.
TEST(Service, ARowArrivesWithAllPartsThatWereAskedFor) {
  Training training;
  training.lengths.assign(32, 5000);
  training.rule.momentum = 0.9f;
  const auto life = [&](int worker, Table& table) -> Status {
    const table::Plan plan = plan_of(training, table.roster());
    const std::vector<float> first(5000, 3.0f);
    std::vector<std::vector<float>> history(32, std::vector<float>(5000));
    std::vector<std::vector<float>> weights = history;
    Status status = table.create(
        plan, [&](RowId, table::Part) { return std::span<const float>(first); },
        [&](RowId row, table::Part part) {
          return std::span<float>((part == table::Part::kWeights ? weights : history)[row]);
        });
    for (RowId row = 0; row < 32 && worker == 1 && status.ok(); ++row) {
      table.get(row, plan.start, table::Part::kWeights);
      table.get(row, plan.start, table::Part::kHistory);
      status = table.wait(std::span(&row, 1));
      if (weights[row] != first || history[row] != first)
        return Error{Code::kInternal, str("row ", row, " has not arrived as a whole")};
    }
    if (status.ok()) status = table.finish(plan.start);
    table.release();
    return status;
  };
  expect_all_ok(run_workers(2, 1, life));
}

// The thread that alone would wait for a row updates it itself, with its crew: the push is the
// whole of it.
TEST(Service, AloneInAJobAPushIsDoneWhenItReturns) {
  JobOverTcp cluster("b");
  const std::size_t length = 50'000;
  const auto life = [&](std::size_t, Service& service) -> Status {
    Table& table = *service.table();
    std::vector<float> weights(length, 3), gradient(length, 1);
    const auto mine = [&](RowId, table::Part part) {
      return part == table::Part::kWeights ? std::span(weights) : std::span<float>();
    };
    if (Status status = table.create(plan_of({.lengths = {length}}, service.roster()), mine, mine);
        !status.ok())
      return status;
    const std::thread::id self = std::this_thread::get_id();
    std::size_t pieces_done = 0;
    table.share_out([&](std::size_t pieces, const std::function<void(std::size_t)>& piece) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      for (std::size_t i = 0; i < pieces; ++i, ++pieces_done) piece(i);
    });
    const RowId row = 0;
    table.get(row, 0, table::Part::kWeights);
    if (Status status = table.wait({&row, 1}); !status.ok()) return status;
    Clock clock = 0;
    for (; clock < 20 || (pieces_done == 0 && clock < 1000); ++clock) {
      // on a busy machine the service's thread may still be at the last one
      if (clock >= 20) wait_until(std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
      table.push({.row = row,
                  .clock = clock,
                  .rate = 0.5f,
                  .payload = table::as_payload({gradient}),
                  .clear_after = gradient});
      if (Status status = table.wait({&row, 1}); !status.ok()) return status;
      const float expected = 3 - 0.5f * static_cast<float>(clock + 1);
      EXPECT_EQ(std::ranges::count(weights, expected), static_cast<std::ptrdiff_t>(length))
          << "clock " << clock;
      EXPECT_EQ(std::ranges::count(gradient, 0.0f), static_cast<std::ptrdiff_t>(length))
          << "clock " << clock;
      std::ranges::fill(gradient, 1.0f);
    }
    EXPECT_GT(pieces_done, 0u);
    const Status status = table.finish(clock);
    table.release();
    return status;
  };
  expect_all_ok(cluster.run(life));
}

TEST(Service, ClipsTheNormOverAllServers) {
  Training training{.iterations = 1, .lengths = {3, 4, 5}, .clip = 2};
  JobOverTcp cluster("bb");
  expect_all_ok(cluster.train_all(training));
  const auto mean = [&](RowId row, std::size_t i) {
    return (gradient_of(training, 2, 0, 0, row, i) + gradient_of(training, 2, 1, 0, row, i)) / 2;
  };
  double squares = 0;
  for (RowId row = 0; row < 3; ++row)
    for (std::size_t i = 0; i < training.lengths[row]; ++i) squares += mean(row, i) * mean(row, i);
  for (RowId row = 0; row < 3; ++row)
    for (std::size_t i = 0; i < training.lengths[row]; ++i)
      EXPECT_NEAR(cluster.weights[1][row][i],
                  first_weight(row, i) - mean(row, i) * 2 / std::sqrt(squares), 1e-5);
}

TEST(Service, CountsBytesPerIteration) {
  // Large rows, so that frames do not count; the first weights are the difference of two runs.
  const auto bytes_of = [](int iterations, const std::string& roles) {
    Training training{.iterations = iterations, .lengths = std::vector<std::uint32_t>(6, 50'000)};
    std::vector<table::Traffic> traffic(roles.size());
    JobOverTcp cluster(roles);
    expect_all_ok(cluster.run([&](std::size_t rank, Service& service) -> Status {
      Status status = train(*service.table(), training);
      traffic[rank] = service.table()->traffic();
      return status;
    }));
    return traffic;
  };
  constexpr int kMore = 10;
  for (const std::string roles : {"bb", "bbb"}) {
    const auto few = bytes_of(2, roles), many = bytes_of(2 + kMore, roles);
    const double processes = static_cast<double>(roles.size()), weights = 6 * 50'000 * 4.0;
    for (std::size_t rank = 0; rank < roles.size(); ++rank) {
      SCOPED_TRACE(str(roles, " rank ", rank));
      const auto more = [&](std::uint64_t table::Traffic::*bytes) {
        return static_cast<double>(many[rank].*bytes - few[rank].*bytes) / kMore;
      };
      const double expected = 2 * weights * (processes - 1) / processes;
      EXPECT_NEAR(more(&table::Traffic::bytes_sent) / expected, 1, 0.02);
      EXPECT_NEAR(more(&table::Traffic::bytes_received) / expected, 1, 0.02);
      EXPECT_NEAR(more(&table::Traffic::local_bytes), 2 * weights / processes, 1);
    }
  }
}

// All connections of a process share its rate: one that has nothing to read or to send takes
// nothing of it.
TEST(Service, GoesOnAtALowRate) {
  JobOverTcp cluster("bbw");
  for (auto& options : cluster.options) options.throttle = 100e3;
  train_and_count(cluster, {.iterations = 10, .lengths = {1, 700, 33, 256}}, 3);
}

// ---- words ----

TEST(Service, AnswersWhatWorkersAsk) {
  JobOverTcp cluster("bsw");
  std::mutex mutex;
  std::set<std::string> sums, shares, gathers;
  std::vector<table::Answer> outputs;
  expect_all_ok(cluster.run([&](std::size_t, Service& service) -> Status {
    if (!service.table()) return service.serve({});
    Table& table = *service.table();
    const std::string name = table.worker() == 0 ? "chief" : "other";
    const auto sum = table.ask(Topic::kSum, 0, numbers({1.0 + table.worker()}));
    const auto share = table.ask(Topic::kShare, 1, table.worker() == 0 ? name : "");
    const auto gather = table.ask(Topic::kGather, 2, name);
    table.tell(Topic::kOutputs, 5, numbers({1.0 + 2 * table.worker(), 10.0 * table.worker()}));
    const auto barrier = table.ask(Topic::kBarrier, 3, {});
    if (!sum.ok() || !share.ok() || !gather.ok() || !barrier.ok())
      return sum.ok() ? barrier.error() : sum.error();
    {
      std::lock_guard lock(mutex);
      sums.insert(sum.value());
      shares.insert(share.value());
      if (table.worker() == 0) outputs = table.take_outputs();
      if (table.worker() == 0) gathers.insert(gather.value());
    }
    return table.finish(0);
  }));
  EXPECT_EQ(sums, std::set<std::string>{numbers({3})});
  EXPECT_EQ(shares, std::set<std::string>{"chief"});
  EXPECT_EQ(gathers, std::set<std::string>{std::string("\5\0\0\0chief\5\0\0\0other", 18)});
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].clock, 5);
}

// At the same clock, where the scheme keeps them within a bound; otherwise each at its own.
TEST(Service, AllPause) {
  for (const char* scheme : {"ssp 0", "ssp 3", "async"}) {
    Training training{.scheme = scheme, .iterations = 60};
    std::mutex mutex;
    std::map<int, std::vector<std::pair<Clock, Want>>> paused;
    training.at = [&](Table& table, Clock clock, Want want) {
      // async: nobody is done before the second pause
      if (clock % 8 == 0) {
        EXPECT_TRUE(table.ask(Topic::kBarrier, clock, {}).ok());
      }
      if (table.worker() == 1 && clock == 7)
        table.tell(Topic::kPause, clock, body_of(Want::kSnapshot));
      if (table.worker() == 2 && clock == 31)
        table.tell(Topic::kPause, clock, body_of(Want::kRequeue));
      std::lock_guard lock(mutex);
      if (want != Want::kNothing) paused[table.worker()].emplace_back(clock, want);
    };
    JobOverTcp cluster("bbw");
    expect_all_ok(cluster.train_all(training));
    for (const auto& [worker, each] : paused) {
      ASSERT_EQ(each.size(), 2u) << scheme << ", worker " << worker;
      EXPECT_EQ(each[0].second, Want::kSnapshot);
      EXPECT_EQ(each[1].second, Want::kRequeue);
    }
    EXPECT_GT(paused[1][0].first, 7);
    if (scheme == std::string("async")) continue;
    EXPECT_EQ(paused[0], paused[1]) << scheme;
    EXPECT_EQ(paused[0], paused[2]) << scheme;
  }
}

TEST(Service, AnAbortReachesAllWithItsReason) {
  for (const std::size_t who : {0u, 1u}) {
    Training training{.iterations = 1000};
    JobOverTcp cluster("bbs");
    training.at = [&](Table& table, Clock clock, Want) {
      if (table.worker() == static_cast<int>(who) && clock == 5)
        table.abort({Code::kNonFinite, "the loss is nan"});
    };
    const std::vector<Status> results = cluster.train_all(training);
    for (const Status& result : results) {
      EXPECT_FAILS_WITH("the loss is nan", result);
      EXPECT_EQ(result.error().code, Code::kNonFinite);
    }
    EXPECT_HAS(results[2].error().message, str("rank ", who, " (host host-", "ab"[who]));
  }
}

// When the worker has met, and says that it has the numbers.
TEST(Service, AServerThatIsToldToLeaveLeavesAtTheNextGeneration) {
  JobOverTcp cluster("bs");
  std::atomic<bool> leave = false, left = false;
  Training training{.iterations = 100'000};
  training.at = [&](Table& table, Clock clock, Want want) {
    leave = leave || clock == 3;
    if (want != Want::kRegroup) return;
    const Result<bool> stays = table.regroup({.clock = clock});
    ASSERT_OK(stays);
    EXPECT_TRUE(stays.value());
    EXPECT_EQ(table.roster().generation, 1u);
    EXPECT_EQ(table.roster().processes[1].server, -1);
    table.abort(Error{Code::kInternal, "the test is over"});
  };
  const std::vector<Status> results = cluster.run([&](std::size_t, Service& service) -> Status {
    if (!service.table()) {
      const Status status = service.serve([&] { return table::Wish{.leaves = leave.load()}; });
      left = service.left();
      return status;
    }
    return train(*service.table(), training);
  });
  EXPECT_TRUE(results[1].ok());
  EXPECT_TRUE(left);
  EXPECT_FAILS_WITH("the test is over", results[0]);
}

}  // namespace
}  // namespace shoal::test::service_test
