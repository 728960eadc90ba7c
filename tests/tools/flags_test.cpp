// Flags and variables that count instead of a solver's fields, given to the tool train.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "shoal/base/file.h"
#include "support/train_tool.h"

namespace shoal::tools_flags_test {
namespace {

using test::Ran;
using test::TrainTool;

TEST_F(TrainTool, FlagsCountInsteadOfTheFiles) {
  const std::string file = solver("flags", "max_iter: 9 snapshot: 2");
  const Ran ran =
      train(file, {"--v=1", "--set=base_lr: 0.25 snapshot: 3 stepvalue: 7", "--maxIter=2",
                   "--momentum=0.5", "--weightDecay=0.125", "--test=0", "--batch=2"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* words : {"base_lr: 0.25\n", "snapshot: 3\n", "stepvalue: 7\n", "max_iter: 2\n",
                            "momentum: 0.5\n", "weight_decay: 0.125\n"})
    EXPECT_HAS(ran.err, words);
  EXPECT_EQ(ran.err.find("test_iter"), std::string::npos);
  EXPECT_HAS(ran.err, "Batch 2 x iter_size 1");
  EXPECT_HAS(ran.err, "flags_iter_2.caffemodel");
  EXPECT_HAS(train(file, {"--model=" + folder_ + "/other.prototxt"}).err, "/other.prototxt");
  const std::string no_graphs = solver("no_graphs", "max_iter: 1 cuda_graphs: false");
  EXPECT_HAS(train(no_graphs, {"--v=1"}).err, "cuda_graphs: false\n");
  EXPECT_HAS(train(no_graphs, {"--v=1", "--cuda_graphs"}).err, "cuda_graphs: true\n");
  EXPECT_HAS(train(file, {"--v=1", "--nocuda_graphs"}).err, "cuda_graphs: false\n");
  const struct {
    const char *flag, *words;
    int code;
  } wrong[] = {
      {"--set=base_rl: 1", "--set:1:1: ", 2},
      {"--lr=fast", "--lr=fast: it is a number, 0 or more", 2},
      {"--lr=0.1 max_iter: 3", "--lr=0.1 max_iter: 3: it is a number", 2},
      {"--momentum=nan", "--momentum=nan: it is a number", 2},
      {"--max_iter=-5", "--max_iter=-5: it is a whole number, 0 or more", 2},
      {"--maxIter=1.5", "--maxIter=1.5: it is a whole number", 2},
      {"--test=2147483648", "--test=2147483648: it is a whole number", 2},
      {"--batch=-1", "--batch is -1", 2},
      {"--train_source=/no/such/data", "/no/such/data", 4},
  };
  EXPECT_HAS(train(file, {"--max_iter=2", "--maxIter=3"}).err,
             "--max_iter=2 and --maxIter=3 are two names of one flag; give one value");
  for (const auto& c : wrong) {
    const Ran refused = train(file, {c.flag});
    EXPECT_EQ(refused.code, c.code) << refused.err;
    EXPECT_HAS(refused.err, c.words);
  }
}

TEST_F(TrainTool, FlagsOfOtherSystemsEndWithTheLineToCopy) {
  const std::string file = solver("foreign", "max_iter: 1");
  const Ran speedo = train(file, {"--worker", "4", "--redis=host", "--movingRate", "0.5"});
  EXPECT_EQ(speedo.code, 2);
  EXPECT_HAS(speedo.err, "--worker is SpeeDO's; here a launcher starts the workers");
  EXPECT_HAS(speedo.err, "--redis: process 0 coordinates the job, without Redis");
  EXPECT_HAS(speedo.err, "scripts/launch.py -n 4 -- ");
  EXPECT_HAS(speedo.err, "train --solver=" + file + " --threads=1 --movingRate 0.5\n");
  const Ran mxnet = train(file, {"--batch-size", "45", "--num-epochs=2", "--load-epoch=3"});
  EXPECT_HAS(mxnet.err, " --solver=" + file + " --threads=1 --batch=45 --snapshot=auto\n");
  EXPECT_HAS(train(file, {"-m", "esync", "-port", "10010"}).err, "examples/fashion_mnist/esync.py");
  for (const char* const far : {"--retrain", "--redistribute"})
    EXPECT_EQ(train(file, {far}).err.find("did you mean"), std::string::npos) << far;
}

TEST_F(TrainTool, ATestOfNoughtIsOneAtEachEnd) {
  const Ran ran = train(solver("ends", "max_iter: 3 test_iter: 1 test_interval: 1"), {"--test=0"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* const words : {"Iteration 0, Testing net", "Iteration 3, Testing net"})
    EXPECT_HAS(ran.err, words);
  EXPECT_EQ(ran.err.find("Iteration 1, Testing net"), std::string::npos);
}

TEST_F(TrainTool, ARunEndsByTime) {
  const Ran ran = train(solver("time", "max_iter: 100000000"), {"--seconds=0.2"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err, "--seconds=0.2: the time is over");
  EXPECT_EQ(train(solver("time", "max_iter: 1"), {"--seconds=-1"}).code, 2);
  EXPECT_EQ(train(solver("time", "max_iter: 1"), {"--seconds=60"}).code, 0);
}

TEST_F(TrainTool, TheLogGoesToFilesOfAFolder) {
  const std::string logs = folder_ + "/logs", file = solver("logged", "max_iter: 1");
  EXPECT_EQ(train(file, {"--log_dir=" + logs}).code, 2) << "there is no such folder";
  std::filesystem::create_directory(logs);
  const Ran ran = train(file, {"--log_dir=" + logs});
  EXPECT_EQ(ran.code, 0);
  EXPECT_HAS(ran.err, "Optimization Done.");
  std::string written;
  for (const auto& entry : std::filesystem::directory_iterator(logs))
    if (entry.path().filename().string().find(".INFO.") != std::string::npos)
      written = or_throw(read_file(entry.path().string()));
  EXPECT_HAS(written, "Optimization Done.");
}

// Returns the names of the flags that a text of --help lists.
std::set<std::string> listed(const std::string& help) {
  std::set<std::string> names;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("  --") && !line.starts_with("  --v=") && !line.starts_with("  --help="))
      names.insert(line.substr(4, line.find(' ', 4) - 4));
  return names;
}

TEST_F(TrainTool, HelpShowsTheUsualFlagsAndTellsHowToSeeTheOthers) {
  const auto help = [&](const std::string& word) {
    return test::run_program({tool("train"), word});
  };
  const auto usual = listed(help("--help").out), all = listed(help("--help=all").out),
             compat = listed(help("--help=compat").out);
  EXPECT_LE(usual.size(), 30u);
  for (const char* name : {"solver", "snapshot", "hostfile", "scheme", "gpu"})
    EXPECT_TRUE(usual.contains(name)) << name;
  EXPECT_TRUE(std::ranges::includes(all, usual));
  for (const char* name : {"solver", "throttle", "stall_abort", "convolution"})
    EXPECT_TRUE(all.contains(name)) << name;
  for (const char* name : {"maxIter", "svb", "consistency_model", "row_type", "machinefile"})
    EXPECT_TRUE(compat.contains(name) && !all.contains(name)) << name;
  EXPECT_HAS(help("--help").out, "--help=all  " + std::to_string(all.size() - usual.size()));
  EXPECT_HAS(help("--help").out, "--help=compat  " + std::to_string(compat.size()));
  const Ran wrong = help("--help=more");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_HAS(wrong.err, "--help=more: known are --help, --help=all and --help=compat");
}

TEST_F(TrainTool, AVariableThatLooksLikeAMisspeltFlagIsNamed) {
  const std::string file = solver("variables", "max_iter: 9");
  const auto with = [&](const std::string& variable) {
    return test::run_program({"/usr/bin/env", variable, tool("train"), "--solver=" + file});
  };
  const Ran set = with("SHOAL_MAX_ITER=2");
  EXPECT_EQ(set.code, 0) << set.err;
  EXPECT_HAS(set.err, "variables_iter_2.caffemodel");
  EXPECT_EQ(set.err.find("the variable"), std::string::npos) << set.err;
  const Ran misspelt = with("SHOAL_MAX_ITR=2");
  EXPECT_EQ(misspelt.code, 0) << misspelt.err;
  EXPECT_HAS(
      misspelt.err,
      "the variable SHOAL_MAX_ITR belongs to no flag of this tool; did you mean SHOAL_MAX_ITER?");
  EXPECT_HAS(misspelt.err, "variables_iter_9.caffemodel");
  for (const char* of_others : {"SHOAL_JOBS=/tmp", "SHOAL_DATA_DIR=/tmp", "SHOAL_SHARED=/tmp"})
    EXPECT_EQ(with(of_others).err.find("the variable"), std::string::npos) << of_others;
}

}  // namespace
}  // namespace shoal::tools_flags_test
