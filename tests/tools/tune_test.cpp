// train and time with --tune, as processes: the file of choices, and what a second run makes of it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "shoal/base/file.h"
#include "support/expect.h"
#include "support/train_tool.h"

namespace shoal::tools_tune_test {
namespace {

using test::get_file;
using test::Ran;
using test::TrainTool;

constexpr const char* kMeasured = "measured the kernels of ";

class Tuned : public TrainTool {
 protected:
  std::string kernels(const std::string& prefix) const {
    return folder_ + "/" + prefix + ".kernels";
  }
};

TEST_F(Tuned, ASecondRunMeasuresNothingAndGivesTheSameBits) {
  const std::string solver = this->solver("t", "max_iter: 4 snapshot: 2");
  const Ran first = train(solver, {"--tune"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_HAS(first.err, kMeasured);
  const std::string choices = get_file(kernels("t")), model = get_file(model_path(stem("t", 4)));
  EXPECT_TRUE(choices.starts_with("shoal kernels 1\n")) << choices;
  const Ran second = train(solver, {"--tune"});
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.err.find(kMeasured), std::string::npos) << second.err;
  EXPECT_EQ(get_file(kernels("t")), choices);
  EXPECT_EQ(get_file(model_path(stem("t", 4))), model);

  // The third goes on under another prefix from the first one's snapshot.
  const Ran third = train(this->solver("u", "max_iter: 4"),
                          {"--tune", "--snapshot=" + stem("t", 2) + ".solverstate"});
  ASSERT_EQ(third.code, 0) << third.err;
  EXPECT_EQ(third.err.find(kMeasured), std::string::npos) << third.err;
  EXPECT_EQ(get_file(kernels("u")), choices);
  EXPECT_EQ(get_file(model_path(stem("u", 4))), model);
}

TEST_F(Tuned, WithoutTheFlagThereIsNoFile) {
  ASSERT_EQ(train(solver("t", "max_iter: 1")).code, 0);
  EXPECT_FALSE(file_exists(kernels("t")));
}

TEST_F(Tuned, TimeExplainsWhatItMeasured) {
  const std::vector<std::string> command = {tool("time"),
                                            "--model=" + folder_ + "/net.prototxt",
                                            "--iterations=1",
                                            "--threads=1",
                                            "--explain_ops",
                                            "--tune",
                                            "--kernels=" + kernels("x")};
  const Ran first = test::run_program(command), second = test::run_program(command);
  for (const Ran& ran : {first, second}) {
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_TRUE(test::has_match(ran.out, "conv \\(Convolution\\): conv by .*measured: .* ms"))
        << ran.out;
  }
  EXPECT_HAS(first.err, kMeasured);
  EXPECT_EQ(second.err.find(kMeasured), std::string::npos);
  EXPECT_EQ(first.out.substr(0, first.out.find("conversions")),
            second.out.substr(0, second.out.find("conversions")));
}

TEST_F(Tuned, AMemoryLimitIsOfTheSolverOrOfTheFlag) {
  const std::string words = "more than memory_limit: ";
  const Ran of_solver = train(solver("t", "max_iter: 1 memory_limit: 1"), {"--memory_limit=0"});
  EXPECT_EQ(of_solver.code, 0) << of_solver.err;
  std::string large = get_file(folder_ + "/net.prototxt");
  for (std::size_t at = 0; (at = large.find("batch_size: ", at)) != std::string::npos; ++at)
    large.insert(at + 12, "999");
  test::put_file(folder_ + "/net.prototxt", large);
  const Ran refused = train(solver("u", "max_iter: 1 memory_limit: 1"));
  EXPECT_EQ(refused.code, 3) << refused.err;
  EXPECT_HAS(refused.err, words);
  const Ran timed =
      test::run_program({tool("time"), "--model=" + folder_ + "/net.prototxt", "--memory_limit=1"});
  EXPECT_EQ(timed.code, 3) << timed.err;
  EXPECT_HAS(timed.err, words);
}

}  // namespace
}  // namespace shoal::tools_tune_test
