// Tasks of real services: workers in threads, over TCP and beside the coordinator, that wait for
// each other and ask what becomes of a task.
#include <gtest/gtest.h>

#include <atomic>

#include "shoal/table/coordinator.h"
#include "support/job.h"
#include "support/schemes.h"

namespace shoal::test::service_pace_test {
namespace {

using table::Clock;
using table::Service;
using table::Table;
using table::TaskReport;
using table::Topic;
using table::Verdict;

Result<table::Start> begin(Table& table, Clock clock, Clock until = 0) {
  const Result<std::string> answer =
      table.ask(Topic::kBegin, clock, encode(table::BeginBody{.last = {}, .until = until}));
  if (!answer.ok()) return answer.error();
  return table::decode<table::Start>(answer.value());
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
        EXPECT_EQ(table::decode<table::VerdictBody>(answer.value()).value().verdict,
                  steps < 4 ? Verdict::kAnother : Verdict::kPush);
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
  EXPECT_NE(table::validate(options).find("did you mean 'esync'?"), std::string::npos);
}

}  // namespace
}  // namespace shoal::test::service_pace_test
