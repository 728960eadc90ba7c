// Tests inputs to the processes of a job that make no job, or an odd one, and the errors for each.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/data_files.h"
#include "support/job_processes.h"

namespace shoal::test::process_bad_input_test {
namespace {

class ProcessBadInput : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
    folder_ = fresh_directory("process_bad_input");
  }
  // Writes a net on records, of which each process has a part, with one product of `outputs`
  // outputs and these further fields.
  std::string solver(const std::string& name, const std::string& more, int outputs = 10,
                     const std::string& fields = "") const {
    const std::string path = folder_ + "/" + name + ".prototxt";
    put_file(path + ".net", str("name: 'records' layer { name: 'data' type: 'Data' top: 'data' "
                                "top: 'label' data_param { source: '",
                                folder_,
                                "/data' backend: LMDB batch_size: 4 } } layer { name: 'ip' type: "
                                "'InnerProduct' bottom: 'data' top: 'ip' "
                                "inner_product_param { num_output: ",
                                outputs, " ", fields,
                                " weight_filler { type: 'xavier' } } } "
                                "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: "
                                "'label' top: 'loss' }"));
    put_file(path, "net: '" + path +
                       ".net' base_lr: 0.00001 lr_policy: 'fixed' random_seed: 3 max_iter: 12 "
                       "display: 1 snapshot_prefix: '" +
                       folder_ + "/" + name + "' " + more);
    return path;
  }
  void put_part(int client, int records) const {
    ASSERT_OK(write_records("lmdb", str(folder_, "/data_", client), small_records(records)));
  }

  std::string folder_;
};

TEST_F(ProcessBadInput, AnotherNetOnOneRankIsNamedWithBothValues) {
  put_part(0, 12), put_part(1, 12);
  JobProcesses job(folder_, "bb");
  job.start(0, solver("one", ""));
  job.start(1, solver("other", "", 11));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Ran ran = job.wait(rank).ran;
    EXPECT_EQ(ran.code, 3) << ran.err;
    for (const char* const words :
         {"layer 'ip'", "num_output: 11", "num_output: 10", "rank 0 (host ", "rank 1 (host "})
      EXPECT_HAS(ran.err, words);
  }
}

TEST_F(ProcessBadInput, AnotherMachinefileOnOneRankIsNamedWithBothLines) {
  put_part(0, 12), put_part(1, 12);
  const std::string path = solver("machines", "");
  JobProcesses job(folder_, "bb");
  const std::string own = get_file(job.machinefile()), other = folder_ + "/other_machines";
  put_file(other, own.substr(0, own.find('\n')) + " weight=2" + own.substr(own.find('\n')));
  job.start(0, path);
  job.start(1, path, {"--hostfile=" + other});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Ran ran = job.wait(rank).ran;
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_HAS(ran.err, "has a machinefile with '0 127.0.0.1 ");
    EXPECT_HAS(ran.err, "weight=2");
  }
}

// Each process divides the records by its own settings alone: some would be read twice, and others
// not at all.
TEST_F(ProcessBadInput, OtherSharesOfOneRankAreNamedWithBothValues) {
  put_part(0, 12), put_part(1, 12);
  put_file(folder_ + "/shares", "0 0.25\n0.25 1\n");
  const std::pair<std::string, const char*> cases[] = {
      {"--data_sharding=" + folder_ + "/shares", "replicas: 1, shares: 0.25 0.75"},
      {"--replicas=2", "replicas: 2, shares: none"}};
  for (const auto& [flag, words] : cases) {
    JobProcesses job(folder_, "bb");
    const std::string path = solver("shares", "");
    job.start(0, path);
    job.start(1, path, {flag});
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const Ran ran = job.wait(rank).ran;
      EXPECT_EQ(ran.code, 2) << ran.err;
      EXPECT_HAS(ran.err,
                 str("worker 1 has '", words, "' where worker 0 has 'replicas: 1, shares: none'"));
    }
  }
}

// A process with it would leave at the end of the profile, and the other would wait for it.
TEST_F(ProcessBadInput, AProfileAloneIsForAllOrForNone) {
  put_part(0, 12), put_part(1, 12);
  const std::string path =
      solver("profile", "scheme { type: 'grouped' group_by: SPEED profile_iterations: 4 }");
  JobProcesses job(folder_, "bb");
  job.start(0, path);
  job.start(1, path, {"--profile_only"});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Ran ran = job.wait(rank).ran;
    EXPECT_EQ(ran.code, 3) << ran.err;
    EXPECT_HAS(ran.err, "trains with 'profile_only: true' where rank 0");
  }
}

TEST_F(ProcessBadInput, AHostThatCannotBeResolvedIsNamed) {
  put_part(0, 12), put_part(1, 12);
  const std::string path = solver("good", "");
  JobProcesses job(folder_, "bb");
  put_file(job.machinefile(),
           str("nowhere.invalid port=", job.port(0), "\n127.0.0.1 port=", job.port(1), "\n"));
  job.flags.push_back("--start_timeout=2");
  job.start(1, path);
  const Ran without = job.wait(1).ran;
  EXPECT_EQ(without.code, 2) << without.err;
  EXPECT_HAS(without.err, "it has no token: any process that reaches a port could join");
  job.flags.push_back("--insecure");
  job.start(1, path);
  job.start(0, path);
  const Ran first = job.wait(0).ran, second = job.wait(1).ran;
  EXPECT_EQ(first.code, 2) << first.err;
  EXPECT_HAS(first.err, "nowhere.invalid");
  EXPECT_EQ(second.code, 8) << second.err;
  EXPECT_HAS(second.err, str("nowhere.invalid:", job.port(0), ": the name cannot be resolved"));
}

TEST_F(ProcessBadInput, ATakenPortIsNamedWithTheNextFreeOne) {
  put_part(0, 12);
  JobProcesses job(folder_, "bb");
  const int taken = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(job.port(0)));
  const int yes = 1;  // since the job has reserved the port
  ASSERT_EQ(::setsockopt(taken, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
  ASSERT_EQ(::bind(taken, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(taken, 1), 0);
  job.start(0, solver("good", ""));
  const Ran ran = job.wait(0).ran;
  ::close(taken);
  EXPECT_EQ(ran.code, 2) << ran.err;
  EXPECT_HAS(ran.err, str("port ", job.port(0), ": Address already in use; port "));
  EXPECT_HAS(ran.err, " is free");
}

TEST_F(ProcessBadInput, UnequalPartsAreReadAnewAndThatIsSaidOnce) {
  put_part(0, 12), put_part(1, 20), put_part(2, 12);
  JobProcesses job(folder_, "bbb");
  job.start_all(solver("unequal", ""));
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const Ran ran = job.wait(rank).ran;
    EXPECT_EQ(ran.code, 0) << ran.err;
    const std::string words = "parts of the data have 12, 20, 12 records";
    const std::size_t said = ran.err.find(words);
    EXPECT_EQ(said != std::string::npos, rank == 0) << ran.err;
    EXPECT_TRUE(said == std::string::npos || ran.err.find(words, said + 1) == std::string::npos);
  }
}

TEST_F(ProcessBadInput, AWorkerThatWaitsForSlowerOnesIsToldToShareIterations) {
  put_part(0, 12), put_part(1, 12);
  for (const bool shares : {false, true}) {
    JobProcesses job(folder_, "bb");
    const std::string path =
        solver("uneven",
               str("scheme { type: 'async' share_iterations: ", shares ? "true" : "false", " }"));
    job.start(0, path);
    job.start(1, path, {"--emulate_step_ms=150"});
    const Ran fast = job.wait(0).ran, slow = job.wait(1).ran;
    EXPECT_EQ(fast.code, 0) << fast.err;
    const auto told = [](const Ran& ran) {
      return ran.err.find("With --share_iterations=true") != std::string::npos;
    };
    EXPECT_EQ(told(fast), !shares) << fast.err;
    EXPECT_FALSE(told(slow)) << slow.err;
  }
}

TEST_F(ProcessBadInput, MoreServersThanRowsTrain) {
  put_part(0, 12);
  JobProcesses job(folder_, "bsss");  // two rows, the weights and the bias
  job.start_all(solver("servers", ""));
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    const Ran ran = job.wait(rank).ran;
    EXPECT_EQ(ran.code, 0) << ran.err;
    if (rank == 0) {
      EXPECT_HAS(ran.err, " rows of params on 4 servers");
    }
  }
}

}  // namespace
}  // namespace shoal::test::process_bad_input_test
