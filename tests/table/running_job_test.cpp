// Tests how a process that is started again finds the job that goes on without it.
#include "shoal/table/running_job.h"

#include <gtest/gtest.h>

#include <future>

#include "shoal/table/coordinator.h"
#include "shoal/table/link/strand.h"
#include "support/expect.h"
#include "support/job.h"

namespace shoal::table::running_job_test {
namespace {

using shoal::test::expect_all_ok;
using shoal::test::JobOverTcp;
using namespace std::chrono_literals;

// Gives each process a port of its own, as a machinefile does.
struct Ported {
  explicit Ported(const std::string& roles) : job(roles), ports(roles.size()) {
    for (ServiceOptions& options : job.options) options.losses.goes_on = true;
    for (std::size_t rank = 1; rank < job.size(); ++rank)
      job.options[rank].port = static_cast<std::uint16_t>(ports[rank]);
  }
  JobOverTcp job;
  const shoal::test::ReservedPorts ports;
};

std::string address_of(const ServiceOptions& options) {
  return str(options.bind, ':', options.port);
}

TEST(RunningJob, AJobThatIsAboutToBeginIsNone) {
  Ported ported("bbb");
  JobOverTcp& job = ported.job;
  const std::vector<std::string> others{address_of(job.options[1]), address_of(job.options[2])};
  const Instant begin = shoal::table::now();
  const auto before = find_running_job(job.options[0], others);
  ASSERT_OK(before);
  EXPECT_TRUE(before.value().empty());
  auto second = std::async(std::launch::async, [&] { return Service::create(job.options[1]); });
  const auto found = find_running_job(job.options[0], others);
  ASSERT_OK(found);
  EXPECT_TRUE(found.value().empty());
  EXPECT_LT(shoal::table::now() - begin, 900ms) << "none of these addresses is waited for";
  auto first = std::async(std::launch::async, [&] { return Service::create(job.options[0]); });
  // Process 0 is there or comes, and waits for the third: the job cannot have begun.
  const auto of_first = find_running_job(job.options[2], {address_of(job.options[0])});
  ASSERT_OK(of_first);
  auto third = std::async(std::launch::async, [&] { return Service::create(job.options[2]); });
  // None ends before the others are there.
  const auto one = first.get(), two = second.get(), three = third.get();
  ASSERT_OK(one);
  ASSERT_OK(two);
  ASSERT_OK(three);
}

TEST(RunningJob, OneThatWasCountedOutFindsItAndOneWhoseRankIsTakenDoesNot) {
  Ported ported("bbb");
  JobOverTcp& job = ported.job;
  std::promise<void> asked;
  std::shared_future<void> is_asked = asked.get_future().share();
  expect_all_ok(job.run([&](std::size_t rank, Service& service) -> Status {
    Table& table = *service.table();
    const auto begun = table.ask(Topic::kBarrier, rows_exist(0), "");
    if (!begun.ok()) return begun.error();
    if (rank == 2) return {};  // as if it were killed
    if (rank == 0) {
      const std::string second = address_of(job.options[1]);
      ServiceOptions lost = job.options[2], taken = job.options[0];
      lost.key = taken.key = nullptr;
      const auto found = find_running_job(lost, {"127.0.0.1:1", second});
      EXPECT_TRUE(found.ok() && found.value() == (std::vector<std::string>{second, "127.0.0.1:1"}));
      // At the coordinator the same is known.
      const auto at_first = find_running_job(lost, {address_of(job.options[0])});
      EXPECT_TRUE(at_first.ok() && at_first.value().size() == 1);
      taken.stall_abort = 50ms;
      const auto of_other = find_running_job(taken, {second});
      EXPECT_TRUE(!of_other.ok() &&
                  of_other.error().message.starts_with(
                      "rank 0 is another process's, which takes part in the job at " + second));
      lost.token += "guess";
      const auto other = find_running_job(lost, {second});
      EXPECT_TRUE(other.ok() && other.value().empty()) << "a job of another token";
      asked.set_value();
    }
    is_asked.wait();
    return table.finish(0);
  }));
}

}  // namespace
}  // namespace shoal::table::running_job_test
