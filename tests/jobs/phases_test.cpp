// Tests jobs of real train processes whose scheme changes on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/job_processes.h"
#include "support/pattern.h"
#include "support/solver_rig.h"

namespace shoal::test::process_phases_test {
namespace {

class ProcessPhases : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
    folder_ = fresh_directory("process_phases");
    make_digits(folder_ + "/data");
  }
  // Trains the small net, with its random numbers, for 12 iterations. Returns the output of each
  // process.
  std::vector<Ran> train(const std::string& name, const std::string& roles, const std::string& more,
                         const std::vector<std::string>& flags = {}) {
    const std::string path =
        put_small_solver(folder_, name, "display: 2 snapshot_after_train: true " + more);
    JobProcesses job(folder_, roles);
    job.start_all(path, flags);
    std::vector<Ran> all;
    for (std::size_t rank = 0; rank < roles.size(); ++rank) {
      all.push_back(job.wait(rank).ran);
      EXPECT_EQ(0, all.back().code) << all.back().err;
    }
    return all;
  }
  NetParameter model(const std::string& name, int iteration) const {
    return read_weights(model_path(snapshot_stem(folder_ + "/" + name, iteration)));
  }

  std::string folder_;
};

// Expects the same params to the bit. Running sums are averaged at the end of each phase, which
// rounds them once more.
void expect_same_run(const NetParameter& a, const NetParameter& b) {
  ASSERT_EQ(a.layer_size(), b.layer_size());
  for (int i = 0; i < a.layer_size(); ++i)
    for (int p = 0; p < a.layer(i).blobs_size(); ++p) {
      const auto &left = a.layer(i).blobs(p).data(), &right = b.layer(i).blobs(p).data();
      const bool rounded = a.layer(i).type() == "BatchNorm";
      ASSERT_EQ(left.size(), right.size());
      for (int n = 0; n < left.size(); ++n)
        EXPECT_NEAR(left[n], right[n], rounded ? 1e-6 * std::fabs(left[n]) : 0)
            << a.layer(i).name() << ", param " << p;
    }
}

TEST_F(ProcessPhases, PhasesOfOneSchemeAreOneRun) {
  for (const std::string roles : {"bb", "wsw"}) {
    SCOPED_TRACE(roles);
    const std::string tests = "test_iter: 2 test_interval: 6 ";
    const auto plain = train("plain", roles, tests, {"--net_outputs=" + folder_ + "/plain"});
    const auto phases = train(
        "phases", roles, tests + "scheme { iterations: 5 base_lr: 0.05 } scheme { iterations: 7 }",
        {"--net_outputs=" + folder_ + "/phases"});
    expect_same_run(model("plain", 12), model("phases", 12));
    EXPECT_HAS(phases[0].err, "Iteration 5: scheme bsp ends, bsp begins, until iteration 12");
    const auto rows = [&](const std::string& name) {
      const std::string table = get_file(folder_ + "/" + name + ".train.csv");
      return std::ranges::count(table, '\n');
    };
    EXPECT_EQ(rows("plain"), rows("phases"));
  }
}

// Returns "bsp, async at 5": the first scheme, and each later one.
std::string schemes_in(const std::string& metrics) {
  const std::string text = get_file(metrics);
  const std::string scheme =
      "\"kind\":\"(run|phase)\"(?:,\"clock\":([0-9]+))?[^\n]*\"scheme\":\"([^\"]*)\"";
  std::string words;
  for (const Match& found : matches_in(text, scheme))
    words += str(words.empty() ? "" : ", ", found[3], found[1] == "run" ? "" : " at " + found[2]);
  return words;
}

TEST_F(ProcessPhases, ASnapshotAtAChangeIsWhatTheNextPhaseBeginsWith) {
  const std::string phases =
      "snapshot: 4 scheme { type: 'async' iterations: 4 } scheme { type: 'ssp' staleness: 1 "
      "iterations: 4 base_lr: 0.02 } "
      "scheme { type: 'bsp' iterations: 4 }";
  train("whole", "bbw", phases, {"--metrics=" + folder_ + "/whole_metrics"});
  const auto rest = train("rest", "bbw", phases,
                          {"--snapshot=" + state_path(snapshot_stem(folder_ + "/whole", 8)),
                           "--metrics=" + folder_ + "/rest_metrics"});
  EXPECT_EQ(model("whole", 12).SerializeAsString(), model("rest", 12).SerializeAsString());
  EXPECT_HAS(rest[0].err, "Scheme bsp; ");
  for (const char* worker : {"0", "2"}) {
    EXPECT_EQ(schemes_in(folder_ + "/whole_metrics/metrics." + worker + ".jsonl"),
              "async, ssp 1 at 4, bsp at 8");
    EXPECT_EQ(schemes_in(folder_ + "/rest_metrics/metrics." + worker + ".jsonl"), "bsp, bsp at 8")
        << "it begins in the last phase";
  }
}

}  // namespace
}  // namespace shoal::test::process_phases_test
