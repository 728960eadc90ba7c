// Tests jobs of real train processes of one machine whose rows go through memory: they learn the
// same bits as over TCP, and end as well.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <regex>

#include "support/certificates.h"
#include "support/data_files.h"
#include "support/job_processes.h"

namespace shoal::test::process_memory_test {
namespace {

class ProcessMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
    folder_ = fresh_directory("process_memory");
  }

  // Writes a solver of two products, the first of 4 x 36 with 36 x 5000 numbers.
  std::string solver(const std::string& name, const std::string& more) const {
    const std::string path = folder_ + "/" + name + ".prototxt";
    put_file(path + ".net", R"(name: 'drawn'
      layer { name: 'data' type: 'DummyData' top: 'data' top: 'label' dummy_data_param { shape { dim: 4 dim: 36 } shape { dim: 4 }
        data_filler { type: 'gaussian' std: 1 } data_filler { type: 'constant' value: 1 } } }
      layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'
        inner_product_param { num_output: 5000 weight_filler { type: 'xavier' } } }
      layer { name: 'out' type: 'InnerProduct' bottom: 'ip' top: 'out' inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }
      layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'out' bottom: 'label' top: 'loss' })");
    put_file(path,
             str("net: '", path, ".net' base_lr: 0.001 momentum: 0.9 lr_policy: 'fixed' ",
                 "random_seed: 3 display: 1 snapshot_prefix: '", folder_, "/", name, "' ", more));
    return path;
  }

  struct Outcome {
    std::string model;
    double shared = 0;  // bytes an iteration of process 0 that it sent through memory
  };
  Outcome train(const std::string& name, const std::vector<std::string>& flags) const {
    std::filesystem::create_directories(folder_ + "/" + name + ".job");
    JobProcesses job(folder_ + "/" + name + ".job", "bb");
    job.start_all(solver(name, "max_iter: 40 snapshot: 40"), flags);
    std::string log;
    for (const std::size_t rank : {1u, 0u}) {
      const JobProcesses::Ended ended = job.wait(rank);
      EXPECT_EQ(ended.ran.code, 0) << ended.ran.err;
      log = ended.ran.err;
    }
    std::smatch found;
    const std::regex shared(R"(, ([0-9.e+]+) of those sent through shared memory)");
    EXPECT_TRUE(std::regex_search(log, found, shared)) << log;
    return {get_file(folder_ + "/" + name + "_iter_40.caffemodel"), std::stod(found[1])};
  }

  std::string folder_;
};

TEST_F(ProcessMemory, GivesTheSameBitsAsTcpInClearAndEncrypted) {
  const std::string token = folder_ + "/token";
  put_file(token, "the token of the job");
  const table::test::Authority ca("Shoal CA");
  const table::CertificateFiles own =
      table::test::put_files(folder_ + "/own", ca.sign("machine"), ca.certificate());
  for (const char* const exchange : {"TABLE", "FACTORS", "RING"}) {
    SCOPED_TRACE(exchange);
    const std::string flag = str("--exchange=", exchange), name = exchange;
    const Outcome memory = train(name + "_memory", {flag}),
                  tcp = train(name + "_tcp", {flag, "--local_transport=TCP"}),
                  encrypted = train(
                      name + "_encrypted",
                      {flag, "--local_transport=TCP", "--encrypt=always", "--token_file=" + token}),
                  certified = train(name + "_certified",
                                    {flag, "--local_transport=TCP", "--encrypt=always",
                                     "--token_file=" + token, "--tls_cert=" + own.certificate,
                                     "--tls_key=" + own.key, "--tls_ca=" + own.authorities});
    EXPECT_GT(memory.shared, 10'000) << "of the 740 kB of gradients, but in the first iterations";
    EXPECT_EQ(tcp.shared, 0);
    EXPECT_TRUE(memory.model == tcp.model);
    EXPECT_TRUE(encrypted.model == tcp.model);
    EXPECT_TRUE(certified.model == tcp.model);
  }
}

TEST_F(ProcessMemory, AKilledProcessEndsTheOthers) {
  JobProcesses job(folder_, "bbb");
  job.start_all(solver("killed", "max_iter: 100000000 on_lost: STOP"), {"--exchange=RING"});
  ASSERT_TRUE(job.says(0, "rows come through shared memory from ranks 1, 2"));
  ASSERT_TRUE(job.says(0, "Iteration 30 ("));
  job.signal(1, SIGKILL);
  job.wait(1);
  for (const std::size_t rank : {0u, 2u}) {
    const JobProcesses::Ended ended = job.wait(rank);
    EXPECT_EQ(ended.ran.code, 6) << ended.ran.err;
    EXPECT_NE(ended.ran.err.find("rank 1 (host "), std::string::npos) << ended.ran.err;
  }
}

TEST_F(ProcessMemory, AnUnknownTransportIsRefused) {
  JobProcesses job(folder_, "b");
  job.start(0, solver("unknown", "max_iter: 1"), {"--local_transport=RDMA"});
  const JobProcesses::Ended ended = job.wait(0);
  EXPECT_EQ(ended.ran.code, 2);
  EXPECT_NE(ended.ran.err.find("--local_transport=RDMA: known are AUTO and TCP"), std::string::npos)
      << ended.ran.err;
}

}  // namespace
}  // namespace shoal::test::process_memory_test
