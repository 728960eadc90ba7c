// The start of a table service over TCP: its processes may come in any order, and who may not come,
// or does not, is named.
#include <gtest/gtest.h>

#include <future>

#include "support/expect.h"
#include "support/job.h"

namespace shoal::test::service_start_test {
namespace {

using table::Service;

TEST(Service, StartsInAnyOrder) {
  JobOverTcp cluster("bb", true);
  auto second = std::async(std::launch::async, [&] { return Service::create(cluster.options[1]); });
  ASSERT_TRUE(cluster.proxy(0).wait_for_connections(3));  // it has tried in vain
  auto first = Service::create(cluster.options[0]);
  ASSERT_OK(first);
  ASSERT_OK(second.get());
}

TEST(Service, RefusesAnotherToken) {
  JobOverTcp cluster("bb");
  cluster.options[0].start = std::chrono::seconds(2);
  cluster.options[1].token = "guess";
  const std::vector<Status> results = cluster.start();
  EXPECT_FAILS_WITH("token", results[1]);
  EXPECT_EQ(results[1].error().code, Code::kPeer);
  EXPECT_FAILS_WITH("rank 1 of 2 has not joined", results[0]);
  EXPECT_EQ(results[0].error().code, Code::kTimeout);
}

TEST(Service, RefusesAnotherConfigurationWithBothSidesWords) {
  JobOverTcp cluster("bb");
  cluster.options[1].configuration = "net: \"lenet\"\nbase_lr: 0.02\n";
  const std::vector<Status> results = cluster.start();
  for (const Status& result : results) {
    EXPECT_FAILS_WITH("base_lr: 0.01", result);
    EXPECT_HAS(result.error().message, "base_lr: 0.02");
    EXPECT_HAS(result.error().message, "rank 1 (host host-b)");
  }
}

TEST(Service, RefusesASecondProcessWithARank) {
  JobOverTcp cluster("bb");
  ASSERT_EQ(cluster.start()[1].ok(), true);
  const auto third = Service::create(cluster.options[1]);
  EXPECT_FAILS_WITH("rank 1 is in the job already", third);
}

TEST(Service, NamesWhoIsMissing) {
  JobOverTcp cluster("bbbb");
  cluster.options.resize(2);  // ranks 2 and 3 never start
  cluster.options[0].start = std::chrono::milliseconds(700);
  const std::vector<Status> results = cluster.start();
  EXPECT_FAILS_WITH("ranks 2, 3 of 4 have not joined", results[0]);
  EXPECT_EQ(results[0].error().code, Code::kTimeout);
  EXPECT_FAILS_WITH("ranks 2, 3", results[1]);
  EXPECT_EQ(results[1].error().code, Code::kTimeout);
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
  cluster.options[1].connect = std::chrono::milliseconds(100);
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
        const Result<RowValues> result = train(*service.table(), training);
        return result.ok() ? Status() : Status(result.error());
      });
  for (const Status& result : results) {
    EXPECT_FAILS_WITH("worker 1 plans with 'clip: 5' where worker 0 has 'clip: -1'", result);
    EXPECT_EQ(result.error().code, Code::kConfig);
  }
}

TEST(Service, SaysWhatIsWrongWithItsOptions) {
  const std::pair<const char*, std::function<void(table::ServiceOptions&)>> cases[] = {
      {"rank 2 of 2", [](auto& o) { o.rank = 2; }},
      {"is no host:port", [](auto& o) { o.coordinator = "somewhere"; }},
      {"a worker, a server, or both", [](auto& o) { o.worker = o.server = false; }},
      {"no address to listen on", [](auto& o) { o.bind.clear(); }},
      {"0 threads", [](auto& o) { o.threads = 0; }},
      {"above 0", [](auto& o) { o.stall_abort = {}; }},
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

}  // namespace
}  // namespace shoal::test::service_start_test
