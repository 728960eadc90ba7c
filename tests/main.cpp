// Runs every test and ends with one plain line, alone: "N passed, N failed, N skipped", after the names of those skipped.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "shoal/base/log.h"

namespace {

struct Tally {
  int passed = 0, failed = 0;
  std::vector<std::string> skipped;
};

Tally tally(const testing::UnitTest& run) {
  Tally result;
  for (int s = 0; s < run.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *run.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      if (!test.should_run()) continue;
      const std::string name = std::string(suite.name()) + "." + test.name();
      if (test.result()->Skipped()) result.skipped.push_back(name);
      else if (test.result()->Passed()) ++result.passed;
      else ++result.failed;
    }
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::start_log(argv[0]);
  testing::InitGoogleTest(&argc, argv);
  const int code = RUN_ALL_TESTS();
  const Tally result = tally(*testing::UnitTest::GetInstance());
  std::fflush(stderr);
  for (const std::string& name : result.skipped) std::printf("skipped: %s\n", name.c_str());
  std::printf("%d passed, %d failed, %zu skipped\n", result.passed, result.failed, result.skipped.size());
  std::fflush(stdout);
  if (result.passed + result.failed == 0 && !testing::GTEST_FLAG(list_tests)) {
    std::fprintf(stderr, "no test ran\n");
    return 1;
  }
  return code;
}
