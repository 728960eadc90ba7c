// Starts over TCP: the processes of a table service may come in any order, and who may not come, or
// does not, is named; workers in threads begin tasks.
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "shoal/table/coordinator.h"
#include "support/expect.h"
#include "support/job.h"
#include "support/schemes.h"

namespace shoal::test::service_start_test {
namespace {

using table::Clock;
using table::Service;
using table::Table;
using table::TaskReport;
using table::Topic;
using table::Verdict;

TEST(Service, StartsInAnyOrder) {
  JobOverTcp cluster("bb", true);
  auto second = std::async(std::launch::async, [&] { return Service::create(cluster.options[1]); });
  ASSERT_TRUE(cluster.proxy(0).wait_for_connections(3));  // it has tried in vain
  auto first = Service::create(cluster.options[0]);
  ASSERT_OK(first);
  ASSERT_OK(second.get());
}

// Words and code that ranks 0 and 1 hear; ranks above never start.
TEST(Service, NamesWhoDoesNotFit) {
  using Ends = std::pair<std::vector<std::string>, Code>;
  const Ends other{{"base_lr: 0.01", "base_lr: 0.02", "rank 1 (host host-b)"}, Code::kConfig};
  const std::tuple<const char*, std::function<void(table::ServiceOptions&)>, Ends, Ends> cases[] = {
      {"bb", [](auto& second) { second.token = "guess"; },
       Ends{{"rank 1 of 2 has not joined"}, Code::kTimeout}, Ends{{"token"}, Code::kPeer}},
      {"bb", [](auto& second) { second.configuration = "net: \"lenet\"\nbase_lr: 0.02\n"; }, other,
       other},
      {"bbbb", [](auto&) {}, Ends{{"ranks 2, 3 of 4 have not joined"}, Code::kTimeout},
       Ends{{"ranks 2, 3"}, Code::kTimeout}}};
  for (const auto& [roles, change, first, second] : cases) {
    JobOverTcp cluster(roles);
    cluster.options.resize(2);
    cluster.options[0].start = std::chrono::seconds(2);
    change(cluster.options[1]);
    const std::vector<Status> results = cluster.start();
    for (const auto& [words, code, result] :
         {std::tuple(first.first, first.second, results[0]),
          std::tuple(second.first, second.second, results[1])}) {
      for (const std::string& part : words) EXPECT_FAILS_WITH(part, result);
      EXPECT_EQ(result.error().code, code);
    }
  }
}

TEST(Service, RefusesASecondProcessWithARank) {
  JobOverTcp cluster("bb");
  ASSERT_EQ(cluster.start()[1].ok(), true);
  const auto third = Service::create(cluster.options[1]);
  EXPECT_FAILS_WITH("rank 1 (host host-b) is another process's, which came from 127.0.0.1:", third);
}

TEST(Service, NamesTheCoordinatorThatIsMissing) {
  JobOverTcp cluster("bb");
  cluster.options[1].start = std::chrono::milliseconds(300);
  const auto alone = Service::create(cluster.options[1]);
  EXPECT_FAILS_WITH(cluster.options[1].coordinator, alone);
  EXPECT_HAS(alone.error().message, "refused");
  EXPECT_EQ(alone.error().code, Code::kTimeout);
}

// It has ended since it gave a rank. No wait for others to join is due then.
TEST(Service, AJobThatIsGoneCannotBeJoined) {
  JobOverTcp cluster("bw");
  cluster.options[1].joins = true;
  cluster.options[1].connect = std::chrono::seconds(2);
  const auto late = Service::create(cluster.options[1]);
  EXPECT_FAILS_WITH("the job that gave this process its rank is gone: no coordinator at " +
                        cluster.options[1].coordinator,
                    late);
  EXPECT_EQ(late.error().code, Code::kPeer);
}

TEST(Service, NamesAPortThatIsTaken) {
  JobOverTcp cluster("b");
  const auto first = Service::create(cluster.options[0]);
  ASSERT_OK(first);
  EXPECT_FAILS_WITH(str("127.0.0.1, port ", cluster.options[0].port),
                    Service::create(cluster.options[0]));
}

TEST(Service, RefusesAnotherPlan) {
  JobOverTcp cluster("bbs");
  const std::vector<Status> results =
      cluster.run([&](std::size_t rank, Service& service) -> Status {
        if (!service.table()) return service.serve({});
        const Training training{.clip = rank == 1 ? 5.0f : -1.0f};
        return train(*service.table(), training);
      });
  for (const Status& result : results) {
    EXPECT_FAILS_WITH("worker 1 plans with 'clip: 5' where worker 0 has 'clip: -1'", result);
    EXPECT_EQ(result.error().code, Code::kConfig);
  }
}

TEST(Service, SaysWhatIsWrongWithItsOptions) {
  const std::pair<const char*, std::function<void(table::ServiceOptions&)>> cases[] = {
      {"rank is 2; with 2 processes", [](auto& o) { o.rank = 2; }},
      {"is no host:port", [](auto& o) { o.coordinator = "somewhere"; }},
      {"a worker, a server, or both", [](auto& o) { o.worker = o.server = false; }},
      {"no address to listen on", [](auto& o) { o.bind.clear(); }},
      {"0 threads", [](auto& o) { o.threads = 0; }},
      {"above 0", [](auto& o) { o.stall_abort = {}; }},
      {"at least 16 bytes",
       [](auto& o) { o.encrypt = table::Encrypt::kAlways, o.token = "short"; }},
  };
  for (const auto& [words, spoil] : cases) {
    JobOverTcp cluster("bb");
    spoil(cluster.options[1]);
    EXPECT_HAS(validate(cluster.options[1]), words);
    const auto made = Service::create(cluster.options[1]);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, Code::kUsage);
  }
}

// ---- tasks: workers wait for each other, and ask what becomes of one ----

Result<table::Start> begin(Table& table, Clock clock, Clock until = 0) {
  const Result<std::string> answer =
      table.ask(Topic::kBegin, clock, encode(table::BeginBody{.last = {}, .until = until}));
  return answer.ok() ? table::decode<table::Start>(answer.value()) : answer.error();
}

std::vector<Status> run(const std::string& scheme, const std::function<Status(Table&)>& life) {
  JobOverTcp cluster("bbw");
  for (auto& options : cluster.options) options.scheme = table::scheme_of(scheme);
  return cluster.run([&](std::size_t, Service& service) { return life(*service.table()); });
}

TEST(ServicePace, WorkersMeetAtBarriersAndSomeEndEarlier) {
  std::atomic<int> begun = 0;
  expect_all_ok(run("drift_barrier 1", [&](Table& table) -> Status {
    const Clock tasks = 20 + 10 * table.worker();
    for (Clock clock = 0; clock < tasks; ++clock) {
      const Result<table::Start> start = begin(table, clock);
      if (!start.ok()) return start.error();
      EXPECT_EQ(start.value().steps, 1u);
      EXPECT_FALSE(start.value().over);
      ++begun;
    }
    return table.finish(tasks);
  }));
  EXPECT_EQ(begun, 20 + 30 + 40);
}

TEST(ServicePace, TheTasksOfTheJobAreShared) {
  std::atomic<int> begun = 0;
  expect_all_ok(run("async", [&](Table& table) -> Status {
    for (Clock clock = 0;; ++clock) {
      const Result<table::Start> start = begin(table, clock, 30);
      if (!start.ok()) return start.error();
      if (start.value().over) return table.finish(clock);
      ++begun;
    }
  }));
  EXPECT_EQ(begun, 3 * 30);
}

TEST(ServicePace, QuestionsOfOneTaskAreToldApart) {
  expect_all_ok(run("esync mode=pull min_steps=4 max_steps=4", [&](Table& table) -> Status {
    for (Clock clock = 0; clock < 10; ++clock) {
      const Result<table::Start> start = begin(table, clock);
      if (!start.ok()) return start.error();
      EXPECT_EQ(start.value().steps, 0u);
      for (std::uint32_t steps = 1;; ++steps) {
        const Result<std::string> answer =
            table.ask(Topic::kJudge, clock, encode(TaskReport{.steps = steps, .seconds = 0.001}));
        if (!answer.ok()) return answer.error();
        const Verdict verdict = table::decode<table::VerdictBody>(answer.value()).value().verdict;
        EXPECT_EQ(verdict, steps < 4 ? Verdict::kAnother : Verdict::kPush);
        if (steps == 4) break;
      }
    }
    return table.finish(10);
  }));
}

TEST(ServicePace, AWorkerThatEndsWithAnErrorEndsTheWait) {
  const std::vector<Status> results = run("drift_barrier 1", [&](Table& table) -> Status {
    for (Clock clock = 0; clock < 2 || table.worker() != 1; ++clock) {
      const Result<table::Start> start = begin(table, clock);
      if (!start.ok()) return start.error();
    }
    const Error error{Code::kNonFinite, "loss is nan"};
    table.abort(error);
    return error;
  });
  for (const std::size_t rank : {0u, 2u}) {
    ASSERT_FALSE(results[rank].ok());
    EXPECT_EQ(results[rank].error().code, Code::kNonFinite);
  }
}

TEST(ServicePace, ASchemeThatIsNoneIsRefused) {
  table::ServiceOptions options;
  options.scheme = table::SchemeSpec{.name = "esynch"};
  EXPECT_HAS(table::validate(options), "did you mean 'esync'?");
}

}  // namespace
}  // namespace shoal::test::service_start_test
