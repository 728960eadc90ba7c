// Trains by real processes, three of which one is slow, with one scheme for each mechanism: rows
// alone, groups, tasks from one pool, and local steps that ask a pacer. Where a scheme lets them,
// they end one after the other. every_scheme_test trains with all schemes.
#include <gtest/gtest.h>

#include "support/data_files.h"
#include "support/job_processes.h"
#include "support/pattern.h"
#include "support/solver_rig.h"

namespace shoal::test::process_schemes_test {
namespace {

constexpr int kIterations = 36;

struct SchemeCase {
  std::string scheme;
  std::vector<std::string> flags;
};

std::vector<SchemeCase> scheme_cases() {
  return {{"bsp", {}},
          {"grouped", {"--groups=0,2|1"}},
          {"async", {"--share_iterations=true"}},
          {"esync", {"--epsilon=0.001", "--max_steps=4"}}};
}

// Returns a net without random numbers or running means. The loss of its test, on all records, is
// to fall.
std::string plain_net(const std::string& records) {
  const auto data = [&](const char* phase, const char* feed) {
    return str("layer { name: 'data' type: 'Data' top: 'data' top: 'label' include { phase: ",
               phase, " } transform_param { scale: 0.01 } data_param { source: '", records,
               "' backend: DATUMFILE shared_file_system: true ", feed, " } }\n");
  };
  return "name: 'plain'\n" + data("TRAIN", "batch_size: 4") + data("TEST", "batch_size: 10") +
         "layer { name: 'one' type: 'InnerProduct' bottom: 'data' top: 'one' inner_product_param { "
         "num_output: 6 weight_filler { type: 'xavier' } } }\n"
         "layer { name: 'tanh' type: 'TanH' bottom: 'one' top: 'tanh' }\n"
         "layer { name: 'ip' type: 'InnerProduct' bottom: 'tanh' top: 'ip' inner_product_param { "
         "num_output: 4 weight_filler { type: 'xavier' } } }\n"
         "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' "
         "}\n";
}

std::vector<double> tested_losses(const std::string& log) {
  std::vector<double> losses;
  for (const Match& found : matches_in(log, "Test net output #0: loss = ([-+.0-9e]+)"))
    losses.push_back(std::stod(found[1]));
  return losses;
}

class ProcessSchemes : public testing::TestWithParam<std::size_t> {};

TEST_P(ProcessSchemes, TrainToTheEnd) {
  if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
  const SchemeCase tried = scheme_cases()[GetParam()];
  const std::string folder = fresh_directory(str("process_schemes_", GetParam()));
  make_digits(folder + "/records");
  put_file(folder + "/net", plain_net(folder + "/records"));
  put_file(folder + "/solver",
           str("net: '", folder,
               "/net' base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' random_seed: 3 max_iter: ",
               kIterations, " test_iter: 4 test_interval: ", kIterations,
               " snapshot_after_train: false"));
  JobProcesses job(folder, "bbw");
  const std::size_t slow = GetParam() % job.size();  // each in its turn
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    std::vector<std::string> flags = tried.flags;
    flags.push_back("--scheme=" + tried.scheme);
    if (rank == slow) flags.emplace_back("--emulate_step_ms=4");
    job.start(rank, folder + "/solver", flags);
  }
  std::vector<Ran> all;
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    all.push_back(job.wait(rank).ran);
    EXPECT_EQ(0, all.back().code) << "rank " << rank << ": " << all.back().err;
  }
  const std::vector<double> losses = tested_losses(all[0].err);
  // A fast chief that shares its iterations may skip the last test before the end.
  ASSERT_GE(losses.size(), 2u) << all[0].err;
  EXPECT_LT(losses.back(), 0.8 * losses.front());
  EXPECT_TRUE(has_match(all[0].err,
                        str("Iteration ", kIterations, ": scheme ", tried.scheme, "[^\n]* ends\n")))
      << all[0].err;
}

INSTANTIATE_TEST_SUITE_P(All, ProcessSchemes, testing::Range(std::size_t{0}, scheme_cases().size()),
                         [](const auto& info) {
                           return str(scheme_cases()[info.param].scheme, '_', info.param);
                         });

// Workers that are stopped early have done their part of all sums, for which the others may wait.
TEST(ProcessExchanges, StopEarlyAndTogether) {
  if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
  const std::string folder = fresh_directory("process_exchanges");
  make_digits(folder + "/records");
  put_file(folder + "/net", plain_net(folder + "/records"));
  put_file(folder + "/solver",
           str("net: '", folder,
               "/net' base_lr: 0.05 lr_policy: 'fixed' random_seed: 3 max_iter: "
               "1000000 display: 10 snapshot_after_train: false"));
  for (const char* way : {"TREE", "RING", "HALVING_DOUBLING", "DIRECT"}) {
    JobProcesses job(folder, "bbb");
    job.start_all(folder + "/solver", {str("--exchange=", way)});
    EXPECT_TRUE(job.says(0, "Iteration 20"));
    job.signal(0, SIGINT);
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      const Ran ran = job.wait(rank).ran;
      EXPECT_EQ(0, ran.code) << way << ", rank " << rank << ": " << ran.err;
    }
  }
}

}  // namespace
}  // namespace shoal::test::process_schemes_test
