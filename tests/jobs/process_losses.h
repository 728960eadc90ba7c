// A job of real train processes, without an end, that loses one of them.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "support/data_files.h"
#include "support/job_processes.h"
#include "support/solver_rig.h"

namespace shoal::test {

inline constexpr const char* kTable = " exchange { way: TABLE }";

// Stands in the chief's line of the first iteration of each generation.
inline constexpr const char* kFirstIteration = " (0 iter/s";

class ProcessLosses : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
    folder_ = fresh_directory("process_losses");
    make_digits(folder_ + "/data");
  }
  // Writes the small net with its random numbers, shared data, and no end.
  std::string solver(const std::string& name, const std::string& more) const {
    return put_small_solver(folder_, name,
                            "base_lr: 0.01 momentum: 0.9 max_iter: 100000000 display: 1 " + more);
  }
  std::string job_folder(const std::string& name) const {
    return fresh_directory("losses_" + name);
  }
  static constexpr std::size_t kNone = 1000;
  // Stops the job with a snapshot, which all processes but `lost` end with.
  void end(JobProcesses& job, std::size_t lost) const {
    job.signal(lost == 0 ? 1 : 0, SIGUSR1);
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      if (rank == lost) continue;
      const Ran ran = job.wait(rank).ran;
      EXPECT_EQ(ran.code, 75) << "rank " << rank << ": " << ran.err;
    }
  }

  std::string folder_;
};

}  // namespace shoal::test
