// The tables of --net_outputs: columns, appending, going on, and what cannot be.
#include "shoal/report/net_outputs.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "shoal/base/file.h"
#include "support/data_files.h"

namespace shoal::net_outputs_test {
namespace {

using test::get_file;
using test::put_file;

class NetOutputsTest : public testing::Test {
 protected:
  void SetUp() override { prefix_ = test::fresh_directory("net_outputs") + "/run"; }
  NetOutputs open(std::int64_t iteration = 0) {
    return or_throw(NetOutputs::open(prefix_, {{"loss"}, column_names("prob", 2)}, iteration));
  }
  std::string train() const { return get_file(prefix_ + ".train.csv"); }
  std::string tested() const { return get_file(prefix_ + ".test0.csv"); }
  std::string prefix_;
};

TEST_F(NetOutputsTest, ColumnsHaveANameForEveryNumber) {
  EXPECT_EQ(column_names("loss", 1), std::vector<std::string>{"loss"});
  EXPECT_EQ(column_names("prob", 3), (std::vector<std::string>{"prob[0]", "prob[1]", "prob[2]"}));
}

TEST_F(NetOutputsTest, RowsAreOnTheDiskAtOnceAndTheWholeTableWhenAskedFor) {
  NetOutputs outputs = open();
  EXPECT_EQ(train(), "Iteration,time,loss,loss\n");
  ASSERT_OK(outputs.add(0, {0, 0.25, 2.5, {2.5}}));
  EXPECT_EQ(train(), "Iteration,time,loss,loss\n0,0.250,2.5,2.5\n");
  ASSERT_OK(outputs.add(1, {0, 0.5, 0, {0.125, 1.0 / 3}}));
  ASSERT_OK(outputs.add(0, {100, 12, 1e-7, {1e-7}}));
  EXPECT_EQ(tested(), "Iteration,time,loss,prob[0],prob[1]\n0,0.500,0,0.125,0.333333333\n");
  EXPECT_FALSE(file_exists(prefix_ + ".netoutputs"));
  ASSERT_OK(outputs.gather());
  EXPECT_EQ(get_file(prefix_ + ".netoutputs"),
            "Iteration,time,loss,loss,\n0,0.250,2.5,2.5,\n100,12.000,1e-07,1e-07,\n\n"
            "Iteration,time,loss,prob[0],prob[1],\n0,0.500,0,0.125,0.333333333,\n");
}

TEST_F(NetOutputsTest, ARunThatGoesOnKeepsEarlierRowsAndTheirTime) {
  {
    NetOutputs outputs = open();
    for (const int n : {0, 10, 20, 30}) ASSERT_OK(outputs.add(0, {n, n / 10.0, 1, {1}}));
  }
  put_file(prefix_ + ".train.csv", train() + "40,4.0");  // cut off by a crash
  NetOutputs outputs = open(20);
  EXPECT_EQ(train(), "Iteration,time,loss,loss\n0,0.000,1,1\n10,1.000,1,1\n");
  ASSERT_OK(outputs.add(0, {20, 0.5, 2, {2}}));
  EXPECT_EQ(train(), "Iteration,time,loss,loss\n0,0.000,1,1\n10,1.000,1,1\n20,1.500,2,2\n");
  open();
  EXPECT_EQ(train(), "Iteration,time,loss,loss\n")
      << "a run from the start has rows of its own alone";
}

TEST_F(NetOutputsTest, OtherColumnsAndUnwritablePlacesAreRefused) {
  open();
  put_file(prefix_ + ".test0.csv", "Iteration,time,loss,accuracy\n0,1,1,1\n");
  EXPECT_FAILS_WITH("run.test0.csv has other columns than those that this run would append",
                    NetOutputs::open(prefix_, {{"loss"}, {"prob"}}, 5));
  ASSERT_OK(NetOutputs::open(prefix_, {{"loss"}, {"prob"}}, 0));
  const auto nowhere = NetOutputs::open(prefix_ + "/none/x", {{"loss"}}, 0);
  EXPECT_FAILS_WITH("/none", nowhere);
  EXPECT_EQ(nowhere.error().code, Code::kUsage);
  NetOutputs outputs = open();
  std::filesystem::remove(prefix_ + ".train.csv");
  std::filesystem::create_directory(prefix_ + ".train.csv");
  EXPECT_FAILS_WITH("cannot write " + prefix_ + ".train.csv: Is a directory",
                    outputs.add(0, {0, 0, 0, {0}}));
}

}  // namespace
}  // namespace shoal::net_outputs_test
