// The fixture of tests that run train and other tools on the small net, in a folder of their own.
// Wants the variable TOOLS_DIR; skipped by name without it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/solver_rig.h"

namespace shoal::test {

class TrainTool : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
    folder_ = fresh_directory("train_tool");
    make_digits(folder_ + "/data");
    put_file(folder_ + "/net.prototxt", small_net(folder_ + "/data"));
  }

  std::string tool(const std::string& name) const { return tools_dir() + "/" + name; }
  // Writes a solver, `more` going before the usual fields; its snapshots go to `prefix` in the
  // test's folder. Returns its path.
  std::string solver(const std::string& prefix, const std::string& more) const {
    const std::string path = folder_ + "/" + prefix + ".prototxt";
    std::string text =
        "net: '" + folder_ + "/net.prototxt' lr_policy: 'fixed' random_seed: 3 " + more;
    for (const auto& [field, value] : {std::pair<std::string, std::string>{
                                           "snapshot_prefix", "'" + folder_ + "/" + prefix + "'"},
                                       {"base_lr", "0.05"},
                                       {"momentum", "0.9"}})
      if (more.find(field + ":") == std::string::npos) text += " " + field + ": " + value;
    put_file(path, text);
    return path;
  }
  std::vector<std::string> train_command(const std::string& solver,
                                         const std::vector<std::string>& more = {}) const {
    std::vector<std::string> command = {tool("train"), "--solver=" + solver, "--threads=1"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  Ran train(const std::string& solver, const std::vector<std::string>& more = {}) const {
    return run_program(train_command(solver, more));
  }
  std::string stem(const std::string& prefix, std::int64_t iteration) const {
    return snapshot_stem(folder_ + "/" + prefix, iteration);
  }

  std::string folder_;
};

}  // namespace shoal::test
